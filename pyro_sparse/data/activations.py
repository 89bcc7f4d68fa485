"""Activations before and after a layer, as they are: arrays in memory or mapped from a file, read by rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..findings.finding import Finding

__all__ = ["Activations", "Unit", "read_activations"]

_CHUNK = 16_384  # rows that are looked at at a time
_FOR_UNITS = 100_000  # rows from which mean and standard deviation are taken


class Unit(NamedTuple):
    """What activations are measured in.

    Attributes
    ----------
    centre : Tensor (d,)
        Their mean.
    scale : float
        One standard deviation for all dimensions.
    """

    centre: Tensor
    scale: float


@dataclass(frozen=True, eq=False)
class Activations:
    """Rows before and after a layer.

    Parameters
    ----------
    before, after : ndarray or Tensor (row, d)
    standardise : bool
        Whether `units` are those of the data, or 0 and 1.
    findings : tuple of Finding
    """

    before: Any
    after: Any
    standardise: bool = True
    findings: tuple[Finding, ...] = ()

    def __len__(self) -> int:
        return int(self.before.shape[0])

    @property
    def sizes(self) -> tuple[int, int]:
        """Dimensions before and after the layer."""
        return int(self.before.shape[1]), int(self.after.shape[1])

    def rows(self, index: Tensor | slice, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
        """Some rows of both, as tensors.

        Parameters
        ----------
        index : Tensor of int or slice
        dtype, device
            Of the tensors.
        """
        before, after = (_read(side, index).to(device, dtype) for side in (self.before, self.after))
        return before, after

    def some(self, rows: slice) -> Activations:
        """A range of the rows.

        Parameters
        ----------
        rows : slice
        """
        return replace(self, before=self.before[rows], after=self.after[rows])

    def batches(self, size: int, dtype: torch.dtype, device: str) -> Iterator[tuple[Tensor, Tensor]]:
        """All rows in their order.

        Parameters
        ----------
        size : int
            Rows at a time.
        dtype, device
            Of the tensors.
        """
        for start in range(0, len(self), size):
            yield self.rows(slice(start, min(start + size, len(self))), dtype, device)

    def units(self) -> tuple[Unit, Unit]:
        """Mean and standard deviation of each side, from rows spread over all."""
        before, after = (self._unit(side) for side in (self.before, self.after))
        return before, after

    def content(self) -> tuple[np.ndarray, np.ndarray]:
        """Both sides as arrays, for a digest."""
        before, after = (
            _read(side, slice(None)).cpu().float().numpy() if isinstance(side, Tensor) else np.asarray(side)
            for side in (self.before, self.after)
        )
        return before, after

    def _unit(self, side: Any) -> Unit:
        if not self.standardise:
            return Unit(torch.zeros(side.shape[1]), 1.0)
        index = torch.arange(0, len(self), max(1, len(self) // _FOR_UNITS))
        chosen = _read(side, index).double()
        centre = chosen.mean(0)
        scale = float((chosen - centre).square().mean().sqrt())
        return Unit(centre.float(), scale)


def read_activations(X: object, standardise: bool = True) -> Activations:
    """Activations before and after a layer, checked.

    Parameters
    ----------
    X : (array_like, array_like)
        Rows before the layer and the same rows after it; memory maps are read by rows.
    standardise : bool

    Returns
    -------
    Activations

    Raises
    ------
    TypeError
        X is no pair.
    ValueError
        Not two tables of floating-point numbers with the same rows; values that are not finite, or all alike.
    """
    if not isinstance(X, tuple | list) or len(X) != 2:
        kind = f"{len(X)} of them" if isinstance(X, tuple | list) else f"a {type(X).__name__}"
        raise TypeError(
            f"X: an AutoencoderPair wants two arrays, (X, Y): activations before the layer and after it; got "
            f"{kind}"
        )
    sides = [_as_rows(side, name) for side, name in zip(X, ("X", "Y"), strict=True)]
    n_rows = [int(side.shape[0]) for side in sides]
    if n_rows[0] != n_rows[1]:
        raise ValueError(f"Y: has {n_rows[1]} rows, and X has {n_rows[0]}; wanted the same rows")
    for side, name in zip(sides, ("X", "Y"), strict=True):
        _check_values(side, name)
    return Activations(sides[0], sides[1], standardise)


def _as_rows(side: Any, name: str) -> Any:
    """An array or a tensor (row, d) of floating-point numbers."""
    try:
        rows = side if isinstance(side, np.ndarray | Tensor) else np.asarray(side)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name}: got rows of different lengths, wanted activations (row, d)") from error
    real = rows.dtype.is_floating_point if isinstance(rows, Tensor) else rows.dtype.kind == "f"
    if rows.ndim != 2 or 0 in rows.shape or not real:
        raise ValueError(
            f"{name}: got {rows.dtype} of shape {tuple(rows.shape)}, wanted activations (row, d) as "
            "floating-point numbers; token ids and labels are none"
        )
    return rows.detach() if isinstance(rows, Tensor) else rows


def _check_values(side: Any, name: str) -> None:
    varies = False
    first = _read(side, slice(0, 1))
    for start in range(0, side.shape[0], _CHUNK):
        rows = _read(side, slice(start, start + _CHUNK))
        if not torch.isfinite(rows).all():
            bad = int((~torch.isfinite(rows).all(1)).nonzero()[0, 0]) + start
            raise ValueError(f"{name}: row {bad} has a value that is not finite; leave such rows out")
        varies = varies or bool((rows != first).any())
    if not varies:
        raise ValueError(f"{name}: all rows are alike; wanted activations of different inputs")


def _read(side: Any, index: Tensor | slice) -> Tensor:
    if isinstance(side, Tensor):
        return side[index.to(side.device) if isinstance(index, Tensor) else index]
    return torch.from_numpy(  # of a copy: maps are read-only
        np.array(side[index.numpy() if isinstance(index, Tensor) else index])
    )
