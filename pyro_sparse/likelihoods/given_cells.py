"""Cells as likelihoods are given them: made numbers, missing ones filled, impossible ones refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ArrayT", "column_mean", "column_numbers", "filled", "in_kind", "refuse_where"]

ArrayT = TypeVar("ArrayT", np.ndarray, Tensor)  # what answers in kind


def in_kind(result: Tensor, x: ArrayT) -> ArrayT:
    """The result as a tensor where x was one, else as a numpy array."""
    return result if isinstance(x, Tensor) else result.numpy()


def filled(
    x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None, filler: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Data with missing cells at `filler`, and the boolean mask of observed cells (not NaN, and ``mask``)."""
    x = torch.as_tensor(x)
    observed = ~torch.isnan(x)
    if mask is not None:
        observed = observed & torch.as_tensor(mask, device=x.device).bool()
    return torch.where(observed, x, torch.full_like(x, filler)), observed


def column_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean (G,) of the seen cells of each column; 0 where none was."""
    return (x * mask).sum(0) / mask.sum(0).clamp(min=1)


def _column(feature_names: Sequence[str] | None, j: int) -> str:
    return f"column {j}" if feature_names is None else f"column {feature_names[j]!r}"


def column_numbers(x: npt.ArrayLike, feature_names: Sequence[str] | None) -> np.ndarray:
    """The table as floats; ValueError naming the first cell that is no number, or infinite."""
    x = np.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"X: want a table (rows, features), got an array of shape {x.shape}.")
    if x.dtype.kind not in "biuf":
        numbers = np.empty(x.shape)
        for j in range(x.shape[1]):
            for i in range(x.shape[0]):
                value = x[i, j]
                try:
                    numbers[i, j] = np.nan if value is None else value
                    ok = not isinstance(value, str)
                except (TypeError, ValueError):
                    ok = False
                if not ok:
                    raise ValueError(
                        f"X: {_column(feature_names, j)} holds {value!r} (row {i}), which is not a number. "
                        "Encode the column as numbers, drop it, or write NaN where the value is missing."
                    )
        x = numbers
    x = x.astype(float, copy=False)
    refuse_where(
        np.isinf(x),
        x,
        feature_names,
        "want finite numbers or NaN",
        "Write NaN where a value is unknown or out of range.",
    )
    return x


def refuse_where(
    bad: np.ndarray, x: np.ndarray, feature_names: Sequence[str] | None, want: str, fix: str
) -> None:
    """ValueError for the first cell marked bad: what it holds, what is wanted, the fix."""
    if bad.any():
        j = int(bad.any(0).argmax())
        i = int(bad[:, j].argmax())
        raise ValueError(
            f"X: {_column(feature_names, j)} holds {x[i, j]:g} (row {i}); {want}. {fix} "
            f"({int(bad.sum())} such cell(s) in {int(bad.any(0).sum())} column(s).)"
        )
