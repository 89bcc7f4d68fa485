"""Groups of rows whose means differ: batches, sites, plates, days.

Differences of means between groups correlate columns as a factor does, across all others. Three signs: rows near
one another, or a fixed number of rows apart, are alike; rows whose names begin alike are alike; rows
fall into clusters.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..findings import Finding
from ._cells import MOST_COLUMNS, Cells

__all__ = ["row_groups"]

_MOST_LAGS = 12
_LEAST_Z = 5.0  # of the best lag and component of some hundred
_LEAST_ROWS = 40
_MOST_COMPONENTS = 10
_MOST_PREFIXES = 20
_REMEDY = (
    "if rows come in batches, take out each batch's means (X - X.groupby(batch).transform('mean')) before the "
    "fit, or fit each by itself"
)


def row_groups(cells: Cells) -> list[Finding]:
    """Groups of rows that differ in the means of their columns.

    Parameters
    ----------
    cells : Cells
    """
    n_rows, n_features = cells.view.shape
    if n_rows < _LEAST_ROWS or not 3 <= n_features <= MOST_COLUMNS:
        return []
    scores = _components(cells)
    ranks = np.apply_along_axis(_normal_scores, 0, scores)
    for find in (_by_name, _by_order):
        found = find(cells, ranks)
        if found is not None:
            return [found]
    return []


def _components(cells: Cells) -> NDArray[np.float64]:
    """Scores of the leading principal components (row, component)."""
    z = np.where(cells.seen, cells.view, 0.0)
    z = np.clip(z, -5, 5)
    z = z - z.mean(0)
    u, s, _ = np.linalg.svd(z, full_matrices=False)
    n_signal = int((s**2 / len(z) > (1 + np.sqrt(z.shape[1] / len(z))) ** 2).sum())
    return u[:, : int(np.clip(n_signal + 1, 2, _MOST_COMPONENTS))] * np.sqrt(len(z))


def _normal_scores(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return stats.norm.ppf(stats.rankdata(x) / (len(x) + 1))


def _by_order(cells: Cells, scores: NDArray[np.float64]) -> Finding | None:
    """Rows that are alike where they are near, or a fixed number apart."""
    n = len(scores)
    z = (scores - scores.mean(0)) / scores.std(0)
    lags = np.arange(1, min(_MOST_LAGS, n // 4) + 1)
    r = np.array([(z[lag:] * z[:-lag]).mean(0) * np.sqrt(n - lag) for lag in lags])
    together = r.sum(1) / np.sqrt(r.shape[1])
    best = max(float(together.max()), float(r.max()))
    if best < _LEAST_Z:
        return None
    lag = int(lags[np.maximum(together, r.max(1)).argmax()])
    r_best = float(r[lag - 1].max() / np.sqrt(n - lag))
    is_near = r[0].max() > 0.5 * best
    where = "rows near one another" if is_near else f"rows {lag} apart"
    return Finding(
        "groups",
        f"{where} are alike (correlation up to {r_best:.2f} of a principal component with itself), so "
        "rows are not independent: they come in batches or drift, and that makes factors of its own",
        f"{_REMEDY}; a time series is for LatentTransition",
        source="data",
        size=r_best,
    )


def _by_name(cells: Cells, scores: NDArray[np.float64]) -> Finding | None:
    """Rows that are alike where their names begin alike."""
    prefixes = [re.split(r"[\s_\-:./|]|\d+$", str(name))[0] for name in cells.rows]
    names, number, count = np.unique(prefixes, return_inverse=True, return_counts=True)
    if not 2 <= len(names) <= _MOST_PREFIXES or count.min() < 5 or "" in names:
        return None
    z = (scores - scores.mean(0)) / scores.std(0)
    between = np.zeros(z.shape[1])
    for g, size in enumerate(count):
        between += size * z[number == g].mean(0) ** 2
    score = float(stats.norm.isf(np.clip(stats.chi2.sf(between, len(names) - 1).min(), 1e-300, 1.0)))
    if score < _LEAST_Z:
        return None
    share = float(between.max() / len(z))
    shown = ", ".join(repr(str(name)) for name in names[:4]) + (", …" if len(names) > 4 else "")
    return Finding(
        "groups",
        f"rows whose names begin alike ({shown}) have means of their own ({share:.0%} of a principal component), "
        "and that makes factors of its own, as batches do",
        _REMEDY,
        source="data",
        size=share,
    )
