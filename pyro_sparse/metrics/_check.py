"""The one check the metrics share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["same_rows"]


def same_rows(first: ArrayLike, second: ArrayLike, name: str, other: str) -> tuple[np.ndarray, np.ndarray]:
    """Both as float tables of shape (N, .), or a ValueError that names them."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b) or len(a) == 0:
        raise ValueError(f"{name} has shape {a.shape}, {other} {b.shape}: want two tables with the same rows")
    return a, b
