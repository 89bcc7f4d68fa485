"""Noise with heavier tails than the normal likelihood has: a few cells then decide correlations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, correlation, listed

__all__ = ["heavy_tails"]

_CONDITIONED_ON = 8
_LEAST_ROWS = 40
_CLIPPED = 5.0  # robust standard deviations, for the regressions
_TAIL = 0.025  # of the cells on either side
_FAR = 4.0  # robust standard deviations: normal noise has 3 cells in 100,000 beyond, on a side
# Tuned on seeds from 1000: of t noise with 2 to 4 degrees of freedom (60 tables) the least are 3.8 and 1.8
# in a thousand; of 900 ordinary tables 1 % of those made of curves, and none else, pass both.
_LEAST_Z, _LEAST_COLUMNS = 3.2, 3
_LEAST_BEYOND = 0.0015


def heavy_tails(cells: Cells) -> list[Finding]:
    """Columns whose residuals, given the columns most like them, have heavy tails on both sides.

    Parameters
    ----------
    cells : Cells

    Notes
    -----
    A curve of a factor is skewed, or bounded, or shared by few columns; noise with heavy tails shows on both
    sides and in most columns.
    """
    if not cells.is_normal or len(cells.values) < _LEAST_ROWS or len(cells.features) > MOST_COLUMNS:
        return []
    usable = np.flatnonzero((cells.n_levels > 0.5 * cells.mask.sum(0)) & (cells.mask.sum(0) >= _LEAST_ROWS))
    if len(usable) < 3:
        return []
    left = residuals(cells, usable)
    excess = np.array([_excess(residual) for residual in left])
    together = float((excess.mean(0) * np.sqrt(len(excess))).min())
    beyond = np.array([[_beyond(-residual), _beyond(residual)] for residual in left])
    share = float(beyond.sum(0).min() / sum(len(residual) for residual in left))
    if together < _LEAST_Z or share < _LEAST_BEYOND:
        return []
    names = [cells.features[j] for j in usable[(excess.min(1) > 1) | (beyond.min(1) > 0)]]
    if len(names) < _LEAST_COLUMNS:  # a product of two factors has such tails
        return []
    return [
        Finding(
            "tails",
            f"noise has heavier tails than normal noise in {len(names)} of {len(cells.features)} columns"
            f"{f' ({listed(names)})' if names else ''}: {1000 * share:.2g} in a thousand cells are beyond "
            "four standard deviations on the thinner side, and these decide correlations, whatever the prior "
            "is",
            'take likelihood="student_t", or clip the tails, and compare the two fits',
            source="data",
            columns=tuple(names),
            size=share,
        )
    ]


def _beyond(residual: NDArray[np.float64]) -> int:
    """Cells more than so many robust standard deviations above the median."""
    off = residual - np.median(residual)
    return int((off > _FAR * 1.4826 * np.median(np.abs(off))).sum())


def residuals(cells: Cells, columns: NDArray[np.int_]) -> list[NDArray[np.float64]]:
    """Of each column, what the columns most correlated with it leave, in rows in which all of them are seen.

    Parameters
    ----------
    cells : Cells
    columns : ndarray of int
    """
    z = np.clip(cells.robust, -_CLIPPED, _CLIPPED)
    r = correlation(z, cells.mask)
    by_column = []
    for j in columns:
        together = np.abs(r[j])
        together[j] = -1.0
        predictors = np.argsort(-together)[: min(_CONDITIONED_ON, len(r) - 1, len(z) // 10)]
        rows = cells.mask[:, [j, *predictors]].all(1)
        while len(predictors) and rows.sum() < max(_LEAST_ROWS, cells.mask[:, j].sum() // 3):
            predictors = predictors[:-1]
            rows = cells.mask[:, [j, *predictors]].all(1)
        x = np.column_stack([np.ones(int(rows.sum())), z[np.ix_(rows, predictors)]])
        weights = np.linalg.lstsq(x, z[rows, j], rcond=None)[0]
        by_column.append(cells.robust[rows, j] - x @ weights)
    return by_column


def _excess(residual: NDArray[np.float64]) -> tuple[float, float]:
    """How much further out both tails are than a normal's of the same quartile, in standard errors."""
    n = len(residual)
    low, quarter, middle, three, high = np.quantile(residual, [_TAIL, 0.25, 0.5, 0.75, 1 - _TAIL])
    normal = 2.906  # 1.960 / 0.6745
    error = 4.0 / np.sqrt(n)  # of the ratio, in normal samples
    lower = (middle - low) / max(middle - quarter, 1e-300)
    upper = (high - middle) / max(three - middle, 1e-300)
    return (lower - normal) / error, (upper - normal) / error
