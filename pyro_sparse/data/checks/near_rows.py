r"""Rows that are nearly another row: a person entered twice, a measurement repeated.

Two signs. Where columns hold numbers that hardly any two rows share, two rows with the same number in most of
them are one row of which some cells were changed. And of rows that are independent draws the distances to the
two nearest others have a ratio :math:`\mu = d_2 / d_1` with :math:`P(\mu > m) = m^{-D}` in D dimensions,
whatever the density is, as long as it is smooth on that scale (Facco and others 2017): the same row with a
little noise is much nearer than that.
"""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.spatial.distance import cdist

from ...findings.finding import Finding
from ._cells import Cells

__all__ = ["nearly_repeated_rows"]

_CHANCE = 1e-3  # that a table of independent rows is told
_MANY_LEVELS = 0.5  # of the cells, in columns whose numbers name a row
_LEAST_SAME = 3  # cells, and
_MOSTLY = 0.5  # of those that two rows have in such columns
_MOST_TIED = 20  # rows with one number, of which no pairs are made
_LEAST_COLUMNS = 4
_LEAST_ROWS = 40
_MOST_ROWS = 3000  # whose distances are computed
_MOST_MISSING = 0.1  # of a column that rows are compared in
_TIMES_NEARER = 2.0  # at least, than the next row
_CLIPPED = 5.0  # standard deviations; further out rows are far from all others
_SHOWN = 3


def nearly_repeated_rows(cells: Cells, table: Cells | None = None) -> list[Finding]:
    """Pairs of rows of which one is the other with some cells changed, or with a little noise.

    Parameters
    ----------
    cells : Cells
        Of columns under one likelihood.
    table : Cells, optional
        With the columns under others. Rows that are equal in every cell of it are for `repeated_rows`.
    """
    if not cells.is_whole:
        return []
    changed = _changed(cells, table or cells)
    if changed:
        shown, n_same, n_cells = _shown(cells, changed), changed[0][2], changed[0][3]
        return [
            _finding(
                f"{_pairs(changed)} the same number in most cells ({shown}; the first in {n_same:g} of "
                f"{n_cells} columns of measurements)",
                len(changed) / len(cells.rows),
            )
        ]
    near = _near(cells)
    if not near:
        return []
    return [
        _finding(
            f"{_pairs(near)} nearly the same numbers ({_shown(cells, near)}; the first are {near[0][2]:.2g} "
            "times as near to each other as to any other row)",
            len(near) / len(cells.rows),
        )
    ]


def _finding(message: str, share: float) -> Finding:
    return Finding(
        "rows",
        f"{message}, as no independent rows have: one was probably entered twice, and counts twice",
        "drop one of each pair unless they are different samples",
        source="data",
        size=share,
    )


def _pairs(pairs: list[tuple[int, int, float, int]]) -> str:
    return "one pair of rows has" if len(pairs) == 1 else f"{len(pairs)} pairs of rows have"


def _shown(cells: Cells, pairs: list[tuple[int, int, float, int]]) -> str:
    phrases = [f"{cells.rows[j]!r} and {cells.rows[i]!r}" for i, j, *_ in pairs[:_SHOWN]]
    return "rows " + ", ".join(phrases) + (", …" if len(pairs) > _SHOWN else "")


def _changed(cells: Cells, table: Cells) -> list[tuple[int, int, float, int]]:
    """Pairs with the same number in most columns of measurements: first, second, equal cells, cells seen."""
    many = np.flatnonzero(cells.n_levels > _MANY_LEVELS * cells.mask.sum(0))
    if len(many) < _LEAST_COLUMNS:
        return []
    given = cells.values if cells.given is None else cells.given
    n = len(given)
    keys, chances = [], []
    for j in many:
        rows = np.flatnonzero(cells.mask[:, j])
        rows = rows[np.argsort(given[rows, j], kind="stable")]
        ends = np.flatnonzero(np.diff(given[rows, j])) + 1
        runs = [run for run in np.split(rows, ends) if 1 < len(run) <= _MOST_TIED]
        chances.append(sum(len(run) * (len(run) - 1) for run in runs) / max(len(rows) * (len(rows) - 1), 1))
        for run in runs:
            first, second = np.triu_indices(len(run), 1)
            low, high = np.minimum(run[first], run[second]), np.maximum(run[first], run[second])
            keys.append(low * n + high)
    if not keys:
        return []
    key, n_same = np.unique(np.concatenate(keys), return_counts=True)
    first, second = key // n, key % n
    seen = cells.mask[:, many]
    both = (seen[first] & seen[second]).sum(1)
    of_all = np.where(table.mask, table.values if table.given is None else table.given, np.inf)
    whole = (of_all[first] == of_all[second]).all(1)
    # rows of like factors are equal twice as often, in columns of so many numbers
    by_chance = stats.binom.sf(n_same - 1, both, min(2 * float(np.mean(chances)), 1.0)) * n * (n - 1) / 2
    is_pair = (n_same >= _LEAST_SAME) & (n_same >= _MOSTLY * both) & (by_chance <= _CHANCE) & ~whole
    order = np.flatnonzero(is_pair)[np.argsort(-n_same[is_pair], kind="stable")]
    return [(int(first[i]), int(second[i]), float(n_same[i]), int(both[i])) for i in order]


def _near(cells: Cells) -> list[tuple[int, int, float, int]]:
    """Pairs that are each other's nearest by far: first, second, times as near as the next row, columns."""
    if not cells.is_normal:
        return []
    use = (cells.n_levels > _MANY_LEVELS * cells.mask.sum(0)) & (cells.mask.mean(0) >= 1 - _MOST_MISSING)
    rows = np.flatnonzero(cells.mask[:, use].all(1))
    if use.sum() < _LEAST_COLUMNS or not _LEAST_ROWS <= len(rows) <= _MOST_ROWS:
        return []
    z = np.clip(cells.view[np.ix_(rows, use)], -_CLIPPED, _CLIPPED)
    z, kept = np.unique(z, axis=0, return_index=True)
    rows = rows[kept]
    distance = cdist(z, z)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argmin(1)
    three = np.sort(np.partition(distance, 2, axis=1)[:, :3], 1)
    three = np.maximum(three, 1e-12)
    # of the second and the third, which the nearest of a pair is not among
    dimension = np.log(2) / (2 * np.median(np.log(three[:, 2] / three[:, 1])))
    times = three[:, 1] / three[:, 0]
    least = max(np.log(len(z) / _CHANCE) / dimension, np.log(_TIMES_NEARER))
    at = np.flatnonzero((np.log(times) > least) & (nearest[nearest] == np.arange(len(z))))
    pairs = {tuple(sorted((int(rows[i]), int(rows[nearest[i]])))): float(times[i]) for i in at}
    near = [(i, j, ratio, int(use.sum())) for (i, j), ratio in pairs.items()]
    return sorted(near, key=lambda pair: -pair[2])
