r"""Columns of a few levels whose numbers are in another order than what they mean.

pandas sorts ordered categories by the alphabet (high < low < mid), and codes of regions or blood groups have
no order at all. A likelihood that reads levels as more and more of something then finds a part of the
column's edges, or none.

If an answer is a cut of something that depends on the factors, means of any combination of the other columns
rise, or fall, from level to level. Let :math:`y` be the leading components of the other columns, uncorrelated
and of variance 1 each, :math:`m_l` their means at level l, seen in :math:`n_l` rows, and d the direction in
which these means differ most. Where the levels differ at all,

.. math:: \sum_l n_l |m_l|^2 \sim \chi^2_{(L - 1) K} \quad \text{if they did not,}

a monotone regression of :math:`m_l^\top d` on the level (Barlow and others 1972, *Statistical inference under
order restrictions*) leaves about :math:`\chi^2_{L + K - 2}` if they are in order, whichever way it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import isotonic_regression

from ...findings.finding import Finding
from ...likelihoods.ordinal import level_numbers
from ._cells import MOST_COLUMNS, Cells

__all__ = ["MUCH_LOST", "levels_out_of_order"]

Array = NDArray[np.float64]

_LEAST_ROWS = 40
_LEAST_COLUMNS = 4
_LEVELS = 3, 12  # that a column has, at least and most
_LEAST_CELLS = 5  # of a level
_MOST_COMPONENTS = 6
# Tuned on seed 1000 (benchmarks/NOTEBOOK.md, "Levels out of order"): of 5,294 columns in order the least
# p-value, times their number, was .5; in a random order a quarter to three quarters of those with loadings of
# .5 and more are told, from 150 rows on.
_CHANCE = 1e-3  # that any column of a table in order is reported
_CLEAR = 1e-6  # that levels without a difference seem to differ
_LEAST_LOST = 0.1  # of what levels say of the other columns, by the order that they have
# From .41 on 7 of 13 fits had wrong edges, below none of 17 (`level_order` of `faults`, seeds 1000 to 1029).
MUCH_LOST = 0.4
_SHOWN = 4  # columns whose order is said


class _Disorder(NamedTuple):
    """A column, its levels in the order that the other columns say, and what its own order loses of them."""

    column: int
    levels: list[int]
    lost: float
    chance: float


def levels_out_of_order(
    cells: Cells, columns: Sequence[int], labels: Sequence[tuple[str, ...] | None] = ()
) -> list[Finding]:
    """Columns whose levels are in another order than the other columns say.

    Parameters
    ----------
    cells : Cells
        Of all columns.
    columns : sequence of int
        Those whose numbers a likelihood reads as levels or measurements.
    labels : sequence of (tuple of str or None)
        Words for the levels of each column, if there are any.
    """
    n_rows, n_columns = cells.view.shape
    few = [
        j for j in columns if _LEVELS[0] <= cells.n_levels[j] <= _LEVELS[1] and cells.n_levels[j] < n_rows / 2
    ]
    if not few or n_rows < _LEAST_ROWS or not _LEAST_COLUMNS <= n_columns <= MOST_COLUMNS:
        return []
    out = [disorder for disorder in _disorders(cells, few) if disorder.chance * len(few) < _CHANCE]
    much = [disorder for disorder in out if disorder.lost >= MUCH_LOST]
    little = [disorder for disorder in out if disorder.lost < MUCH_LOST]
    return [_finding(cells, some, labels) for some in (much, little) if some]


def _finding(cells: Cells, out: list[_Disorder], labels: Sequence[tuple[str, ...] | None]) -> Finding:
    names = [cells.features[disorder.column] for disorder in out]
    orders = [_said(cells, disorder, labels) for disorder in out[:_SHOWN]]
    more = f" and {len(out) - _SHOWN} more" if len(out) > _SHOWN else ""
    lost = max(disorder.lost for disorder in out)
    return Finding(
        "order",
        f"levels are not in the order in which the other columns rise: {'; '.join(orders)}{more} "
        f"({lost:.0%} of what levels share with the other columns is lost by it), so that edges seem "
        "weaker, or absent",
        "put the levels in their order (pandas sorts words by the alphabet; categories=[…] gives their "
        "order); where they have none, as regions, take a column of 0 and 1 for each; where the others "
        "rise and then fall, it is a curve, and no edge stands for it",
        source="data",
        columns=tuple(names),
        size=lost,
    )


def _disorders(cells: Cells, columns: Sequence[int]) -> Iterator[_Disorder]:
    """Of columns whose levels differ."""
    z = np.clip(np.where(cells.mask, cells.view, 0.0), -5, 5)
    z = z - z.mean(0)
    n = len(z)
    _, s, v = np.linalg.svd(z, full_matrices=False)
    # above the largest eigenvalue that noise has (Marchenko and Pastur)
    n_signal = int((s**2 / n > (1 + np.sqrt(z.shape[1] / n)) ** 2).sum())
    axes = v[: int(np.clip(n_signal, 1, _MOST_COMPONENTS))].T
    scores = z @ axes
    for j in columns:
        seen = cells.mask[:, j]
        y = _whitened((scores - np.outer(z[:, j], axes[j]))[seen])
        _, level, count = np.unique(cells.columns[j], return_inverse=True, return_counts=True)
        often = np.flatnonzero(count >= _LEAST_CELLS)
        if y is None or len(often) < _LEVELS[0]:
            continue
        means = np.array([y[level == at].mean(0) for at in often])
        weights = count[often].astype(float)
        means -= weights @ means / weights.sum()
        between = means.T @ (weights[:, None] * means)
        if stats.chi2.sf(np.trace(between), (len(often) - 1) * y.shape[1]) > _CLEAR:
            continue
        largest, directions = np.linalg.eigh(between)
        along = means @ directions[:, -1]
        fits = [sign * isotonic_regression(sign * along, weights=weights).x for sign in (1, -1)]
        left = [float(weights @ (along - fit) ** 2) for fit in fits]
        lost = float(min(left) / largest[-1])
        if lost < _LEAST_LOST:
            continue
        within = 1 - min(largest[-1] / seen.sum(), 0.95)
        chance = stats.chi2.sf(min(left) / within, len(often) + y.shape[1] - 2)
        rising = along if left[0] <= left[1] else -along
        yield _Disorder(j, [int(at) for at in often[np.argsort(rising)]], lost, float(chance))


def _whitened(y: Array) -> Array | None:
    """Uncorrelated columns of variance 1; None where there are none."""
    y = y - y.mean(0)
    try:
        root = np.linalg.cholesky(y.T @ y / len(y))
    except np.linalg.LinAlgError:
        return None
    return np.linalg.solve(root, y.T).T


def _said(cells: Cells, disorder: _Disorder, labels: Sequence[tuple[str, ...] | None]) -> str:
    """Name and levels, as words where there are any."""
    j = disorder.column
    values = np.unique(cells.columns[j]) + 0.0  # no minus 0
    words = labels[j] if len(labels) > j else None

    def word(at: int) -> str:
        value = values[at]
        numbers = level_numbers(words) if words else []
        return words[numbers.index(int(value))] if words and value in numbers else f"{value:g}"

    return f"{cells.features[j]!r} is {' < '.join(word(at) for at in disorder.levels)} by them"
