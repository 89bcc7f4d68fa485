"""Checks and bookkeeping that the scores share: pairs of arrays, bins of equal width, labels of data sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._utils.checks import check_whole
from ..graphs._draws import numbers

__all__ = ["Array", "bin_of", "groups", "pair"]

Array = NDArray[np.float64]


def pair(probability: ArrayLike, truth: ArrayLike) -> tuple[Array, Array]:
    """Both as flat arrays of float, checked."""
    p, gamma = numbers(probability, "probability"), numbers(truth, "truth")
    if p.shape != gamma.shape:
        raise ValueError(f"truth: want the shape of probability, {p.shape}, got {gamma.shape}")
    if p.size == 0:
        raise ValueError("probability: want at least one edge, got none")
    if not (np.isfinite(p).all() and p.min() >= 0 and p.max() <= 1):
        bad = np.argwhere(~((p >= 0) & (p <= 1)))
        raise ValueError(
            f"probability: want numbers in [0, 1], got {p[tuple(bad[0])]:.4g} at {tuple(bad[0].tolist())} "
            f"and {len(bad) - 1} more such; leave out edges without a probability"
        )
    if not np.isin(gamma, (0, 1)).all():
        strange = gamma[~np.isin(gamma, (0, 1))].flat[0]
        raise ValueError(
            f"truth: want 0 or 1 for every edge, got {strange:.4g}; compare weights with 0 first"
        )
    return p.ravel(), gamma.ravel()


def bin_of(p: Array, bins: int) -> NDArray[np.intp]:
    """Bin of each probability, bins of equal width; on a boundary, as `b / bins` rounds it, the upper one."""
    check_whole(1, bins=bins)
    return np.searchsorted(np.arange(1, bins) / bins, p, side="right")


def groups(group: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Data set of each edge as a number from 0, flat; labels of leading axes hold for all below them."""
    labels = np.asarray(group)
    if labels.ndim == 0 or labels.shape != shape[: labels.ndim]:
        raise ValueError(
            f"group: want a label for each edge, shape {shape}, or for the leading axes of it, got shape "
            f"{labels.shape}"
        )
    codes, _ = pd.factorize(labels.ravel())
    if (codes < 0).any():
        raise ValueError(f"group: want a label for every edge, got {int((codes < 0).sum())} missing ones")
    trailing = int(np.prod(shape[labels.ndim :], dtype=int))
    return np.repeat(codes, trailing)
