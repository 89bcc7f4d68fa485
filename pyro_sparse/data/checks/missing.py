"""Groups of columns that are never seen in the same row, so that no cell says how they go together."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, listed

__all__ = ["separate_columns"]

_MOST_BY_CHANCE = 3.0  # times as many pairs without a common row as cells missing at random leave
_LEAST_PAIRS = 3
_FEW_ROWS = 10  # in common
_TIMES_MORE = 8  # as many were expected, had cells been missing at random


def separate_columns(cells: Cells) -> list[Finding]:
    """Columns without a common row, where cells missing at random would leave some.

    Parameters
    ----------
    cells : Cells
    """
    n_features = len(cells.features)
    if cells.mask.all() or n_features > MOST_COLUMNS:
        return []
    observed = cells.mask.astype(float)
    together = observed.T @ observed
    count = np.diag(together)
    # a few rows in common, where cells missing at random would leave many, are next to none
    expected = np.outer(count, count) / len(observed)
    is_seldom = (together <= _FEW_ROWS) & (expected >= _TIMES_MORE * np.maximum(together, 1))
    most = int(together[is_seldom].max(initial=0))
    together = np.where(is_seldom, 0.0, together)
    pairs = np.triu(together == 0, 1)
    if not pairs.any():
        return []
    # two columns have so many rows in common on average, and with about this probability none
    by_chance = np.exp(-np.outer(count, count) / len(observed))[np.triu_indices(n_features, 1)].sum()
    n_groups, group = connected_components(together > 0, directed=False)
    if n_groups == 1 and pairs.sum() <= _LEAST_PAIRS + _MOST_BY_CHANCE * by_chance:
        return []
    if n_groups == 1:  # columns with the same partners belong together
        partners = np.unique((together > 0).astype(np.int8), axis=0, return_inverse=True)[1].ravel()
        apart = np.flatnonzero((together == 0).any(1))
        groups = [[int(j) for j in apart if partners[j] == g] for g in np.unique(partners[apart])]
    else:
        groups = [np.flatnonzero(group == g).tolist() for g in range(n_groups)]
    shown = "; ".join(listed([cells.features[j] for j in members], 4) for members in groups[:4])
    more = "; …" if len(groups) > 4 else ""
    seldom = f"seen together in {most} row(s) at most" if most else "never seen in the same row"
    return [
        Finding(
            "missing",
            f"groups of columns are {seldom} ({shown}{more}; {int(pairs.sum())} pairs "
            "of columns): few cells or none say how these go together, and a factor that they share may come "
            "out as several",
            "fit each group by itself, or add rows in which both are seen",
            source="data",
            columns=tuple(cells.features[j] for members in groups for j in members),
            size=float(pairs.sum()),
        )
    ]
