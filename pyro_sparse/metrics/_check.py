"""The checks the metrics share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["edges_of", "levels_and_codes", "same_rows"]


def edges_of(values: ArrayLike, name: str) -> np.ndarray:
    """Where a graph has an edge, or a ValueError that names it."""
    numbers = np.asarray(values, dtype=float)
    if np.isnan(numbers).any():
        raise ValueError(f"{name}: want 0 or another number for every edge, got NaN; say which are there")
    edges: np.ndarray = numbers != 0
    return edges


def same_rows(
    first: ArrayLike, second: ArrayLike, name: str, second_name: str, finite: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Both as float tables of shape (N, .), finite where asked for, or a ValueError that names them."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b) or len(a) == 0:
        raise ValueError(
            f"{name} has shape {a.shape}, {second_name} {b.shape}: want two tables with the same rows"
        )
    for values, argument in ((a, name), (b, second_name)):
        if finite and not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).sum())
            raise ValueError(f"{argument}: want finite numbers, got {bad} that are NaN or infinite")
    return a, b


def levels_and_codes(
    levels: ArrayLike, codes: ArrayLike, name: str = "levels", second_name: str = "codes"
) -> tuple[np.ndarray, np.ndarray]:
    """Levels (N, F) counted from 0 without gaps, finite codes (N, K); or a ValueError that names them."""
    level, code = same_rows(levels, codes, name, second_name)
    if not np.array_equal(level, np.rint(level)):
        raise ValueError(f"{name}: want whole numbers, a level for each factor, got others")
    ranks = np.column_stack([np.unique(column, return_inverse=True)[1] for column in level.T])
    if (ranks.max(0) == 0).any():
        k = int(np.argmax(ranks.max(0) == 0))
        raise ValueError(f"{name}: factor {k} has one level only; leave it out")
    return ranks, code
