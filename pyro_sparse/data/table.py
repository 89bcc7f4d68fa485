"""A table in model units, in memory (`Table`), and rows of it on the device (`Batch`).

A `Table` knows its names, which cells are missing, and how it was standardised, and can undo it.
`data.as_table` makes them of a caller's data, `data/large_table.py` has the same of what is read by rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..findings.finding import Finding
from .columns import check_order, row_names

__all__ = ["MOST_JUDGED", "Batch", "Table", "given_exposure"]

_MOST_EXPOSED = 1e30  # times a typical row, and as many times less: beyond it single precision has no number
MOST_JUDGED = 2000  # held-out rows: enough to tell restarts apart


@dataclass(frozen=True)
class Batch:
    """Rows of a table on the device.

    Attributes
    ----------
    x : Tensor (row, feature)
        Values; missing cells hold the likelihood's `filler`.
    inputs : Tensor (row, feature)
        What the encoder reads: `x`, or for counts their standardised logarithm; missing cells 0.
    mask : Tensor (row, feature) of bool, or None
        True where the cell was seen; None when all were.
    exposure : Tensor (row, 1) or None
        Size factor or total count of each row.
    total : int
        Number of rows in the full data: the plate scales the minibatch by ``total / len(x)``.
    """

    x: Tensor
    inputs: Tensor
    mask: Tensor | None
    exposure: Tensor | None
    total: int

    def __len__(self) -> int:
        return self.x.shape[0]

    def rows(self, index: Tensor) -> Batch:
        """The minibatch with these rows, still scaled to `total`."""
        mask, exposure = (None if p is None else p.index_select(0, index) for p in (self.mask, self.exposure))
        x = self.x.index_select(0, index)
        inputs = x if self.inputs is self.x else self.inputs.index_select(0, index)
        return Batch(x, inputs, mask, exposure, self.total)

    def whole(self) -> Batch:
        """The same rows seen as a data set of their own (no scaling up)."""
        return replace(self, total=len(self))

    def mean(self, own: Tensor) -> Tensor:
        """The minibatch's mean, from that of these rows: the same, unless other processes have more of it."""
        return own

    def shuffled(self) -> Tensor:
        """Order of the rows in an epoch, from torch's random stream."""
        return torch.randperm(self.total)


@dataclass(frozen=True)
class Table:
    """A numeric table in model units, with the way back to the caller's units.

    Attributes
    ----------
    x : ndarray (row, feature)
        Values; missing cells hold the likelihood's `filler`.
    inputs : ndarray (row, feature)
        What the encoder reads of them (z-scored, for counts their logarithm); missing cells 0.
    mask : ndarray of bool (row, feature) or None
    exposure : ndarray (row, 1) or None
        In units of `exposure_unit`.
    centre, scale : ndarray (feature,)
        ``x = (original - centre) / scale``.
    input_centre, input_scale : ndarray (feature,)
        The same for `inputs`.
    feature_names, sample_names : list of str
    exposure_unit : float, optional
        The typical one of the caller's exposures; None where he gave none.
    findings : tuple of Finding
        What the checks before a fit noticed.
    """

    x: np.ndarray
    inputs: np.ndarray
    mask: np.ndarray | None
    exposure: np.ndarray | None
    centre: np.ndarray
    scale: np.ndarray
    input_centre: np.ndarray
    input_scale: np.ndarray
    feature_names: list[str]
    sample_names: list[str]
    exposure_unit: float | None = None
    findings: tuple[Finding, ...] = field(default=(), repr=False, compare=False)

    def batch(self, device: Any = "cpu", dtype: torch.dtype = torch.float32) -> Batch:
        """All rows as tensors; `inputs` is `x` itself where they hold the same numbers."""
        x, same = torch.as_tensor(self.x, dtype=dtype, device=device), np.array_equal(self.inputs, self.x)
        return Batch(
            x=x,
            inputs=x if same else torch.as_tensor(self.inputs, dtype=dtype, device=device),
            mask=None if self.mask is None else torch.as_tensor(self.mask, device=device),
            exposure=None
            if self.exposure is None
            else torch.as_tensor(self.exposure, dtype=dtype, device=device),
            total=len(self.x),
        )

    def unit(self, likelihood: Any) -> np.ndarray:
        """Standard deviation of each feature in model units, (feature,); 1 under likelihoods of other scales.

        Parameters
        ----------
        likelihood : Likelihood
            One that can be standardised (`standardise`) has the features' own scale.
        """
        return self.input_scale / self.scale if likelihood.standardise else np.ones(len(self.scale))

    def units(self) -> dict[str, np.ndarray]:
        """What leads back to the caller's units, by attribute, and the exposures if there are any."""
        names = ("centre", "scale", "input_centre", "input_scale", "exposure")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @classmethod
    def without_rows(cls, scale: np.ndarray, exposure: np.ndarray | None = None, **about: Any) -> Table:
        """A table that knows its units and names, and has no row.

        Parameters
        ----------
        scale : ndarray (feature,)
        exposure : ndarray (row, 1), optional
            Of the rows that there were.
        **about
            The other attributes.
        """
        empty = np.zeros((0, len(scale)))
        return cls(x=empty, inputs=empty, mask=None, exposure=exposure, scale=scale, **about)

    @property
    def missing(self) -> bool:
        """Whether any cell is."""
        return self.mask is not None

    @property
    def most_judged(self) -> int:
        """How many rows may be kept aside: they are looked at again and again while a fit is trained."""
        return MOST_JUDGED

    def content(self) -> tuple[np.ndarray | None, ...]:
        """Arrays that tell this table from another."""
        return self.x, self.mask, self.exposure

    def part(self, index: np.ndarray, device: Any, dtype: torch.dtype) -> Batch:
        """These rows as what minibatches are taken from."""
        return self.rows(index).batch(device, dtype)

    def intercept(self, likelihood: Any, kept: np.ndarray) -> Any:
        """The likelihood's start (feature,), from these rows."""
        observed = self.x[kept] if self.mask is None else np.where(self.mask[kept], self.x[kept], np.nan)
        return likelihood.start(torch.as_tensor(observed))

    def rows(self, index: np.ndarray) -> Table:
        """The table with these rows only."""
        return replace(
            self,
            x=self.x[index],
            inputs=self.inputs[index],
            mask=None if self.mask is None else self.mask[index],
            exposure=None if self.exposure is None else self.exposure[index],
            sample_names=[self.sample_names[i] for i in index],
        )


def given_exposure(
    exposure: Any, n_rows: int, samples: list[str] | None, likelihood: Any, like: Table | None
) -> tuple[np.ndarray | None, float | None]:
    """A caller's exposures (row, 1) in units of the training table's typical one, and that; None without any.

    Parameters
    ----------
    exposure : array_like (row,), or None
    n_rows : int
    samples : list of str or None
        Names of the table's rows, where it has any.
    likelihood : Likelihood
    like : Table, optional
        Of the fit that these rows are for.

    Raises
    ------
    ValueError
        They are no positive numbers, one per row; or have the names of the rows in another order; or the fit
        was given some and these rows are not, or the other way round.
    TypeError
        They are the name of a column, or no numbers.
    """
    if exposure is None:
        if like is not None and like.exposure_unit is not None:
            raise ValueError("exposure: got none, and the fit was given its rows'; give those of these rows")
        return None, None
    if like is not None and like.exposure_unit is None:
        raise ValueError("exposure: got some, and the fit was made without; leave them out")
    if isinstance(exposure, str):
        raise TypeError(
            f"exposure: got the name {exposure!r}, wanted one positive number per row; give the column "
            f"itself, such as adata.obs[{exposure!r}]"
        )
    try:
        size = np.array(exposure, dtype=float).reshape(-1, 1)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"exposure: cannot be read as numbers ({error}), wanted one positive per row"
        ) from error
    bad = ~(np.isfinite(size) & (size > 0))
    if len(size) != n_rows or bad.any():
        fault = f"has shape {np.shape(exposure)} for {n_rows} rows"
        if len(size) == n_rows:
            fault = f"is {size[bad][0]:g} in row {bad.argmax()}"
        raise ValueError(f"exposure: {fault}, wanted one positive number per row")
    check_order("exposure", row_names(exposure), samples)
    unit = float(likelihood.typical_exposure(size)) if like is None else like.exposure_unit
    size = size / unit
    far = ~((size > 1 / _MOST_EXPOSED) & (size < _MOST_EXPOSED))
    if far.any():
        raise ValueError(
            f"exposure: is {size[far][0] * unit:g} in row {far.argmax()}, and {unit:g} in a typical one; "
            f"wanted numbers less than a factor of {_MOST_EXPOSED:g} apart from that"
        )
    return size, unit
