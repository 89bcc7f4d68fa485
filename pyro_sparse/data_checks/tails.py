"""Noise with heavier tails than the normal likelihood has: a few cells then decide correlations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..findings import Finding
from ._cells import MOST_COLUMNS, Cells, correlation, listed

__all__ = ["heavy_tails"]

_CONDITIONED_ON = 8
_LEAST_ROWS = 40
_TAIL = 0.025  # of the cells on either side
_SHARE = 0.6  # of the columns, whose residuals have heavy tails on both sides


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
    usable = np.flatnonzero((cells.n_levels > 0.5 * cells.seen.sum(0)) & (cells.seen.sum(0) >= _LEAST_ROWS))
    if len(usable) < 3:
        return []
    scores = np.array([_excess(residual) for residual in residuals(cells, usable)])
    return _decide(cells, usable, scores)


def _decide(cells: Cells, usable: NDArray[np.int_], scores: NDArray[np.float64]) -> list[Finding]:
    heavy = usable[(scores > 2.0).all(1)]
    total = float(np.minimum(scores[:, 0], scores[:, 1]).mean() * np.sqrt(len(scores)))
    if len(heavy) < max(_SHARE * len(usable), 3):
        return []
    names = [cells.features[j] for j in heavy]
    return [
        Finding(
            "tails",
            f"cells of {len(names)} of {len(cells.features)} columns ({listed(names)}) lie further out on both "
            "sides than normal noise puts them: a few of them decide correlations, whatever the prior is",
            "give ranks as normal scores or clip the tails, and compare the two fits",
            source="data",
            columns=tuple(names),
            size=total,
        )
    ]


def residuals(cells: Cells, columns: NDArray[np.int_]) -> list[NDArray[np.float64]]:
    """Of each column, what the columns most correlated with it leave, by ridge regression on ranks' scale.

    Parameters
    ----------
    cells : Cells
    columns : ndarray of int
    """
    z = np.clip(cells.robust, -5, 5)
    r = correlation(z, cells.seen)
    found = []
    for j in columns:
        together = np.abs(r[j])
        together[j] = 0.0
        given = np.argsort(-together)[: min(_CONDITIONED_ON, len(r) - 1, len(z) // 10)]
        weights = np.linalg.solve(r[np.ix_(given, given)] + 0.05 * np.eye(len(given)), r[given, j])
        sd = z.std(0)
        predicted = (z[:, given] / np.where(sd[given] > 0, sd[given], 1.0)) @ weights * sd[j]
        seen = cells.seen[:, j]
        found.append((cells.robust[:, j] - predicted)[seen])
    return found


def _excess(residual: NDArray[np.float64]) -> tuple[float, float]:
    """How much further out both tails are than those of a normal with the same quartile, in standard errors."""
    n = len(residual)
    low, quarter, middle, three, high = np.quantile(residual, [_TAIL, 0.25, 0.5, 0.75, 1 - _TAIL])
    normal = 2.906  # 1.960 / 0.6745
    error = 4.0 / np.sqrt(n)  # of the ratio, in normal samples
    lower = (middle - low) / max(middle - quarter, 1e-300)
    upper = (high - middle) / max(three - middle, 1e-300)
    return (lower - normal) / error, (upper - normal) / error
