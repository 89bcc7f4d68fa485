r"""Rows with one answer to all questions: people who did not read them (straight-lining, careless answers).

Such rows correlate all columns alike, whichever way an item is keyed, and so make a factor of their own or
bend those that there are. Where traits are strong, floors low, or items few, honest rows have one answer to
all, too: as many as in tables of a Gaussian copula with the same margins and correlations. More than those
are told once they can make a factor: if the largest eigenvalue of what they add to the correlations is well
above :math:`\sqrt{p / n}`, the least that n rows of p columns tell from noise (Baik, Ben Arous and Péché
2005).

Items that were reversed before the fit turn one answer into two, a and its mirror image. Whatever they are,
all such rows have the same columns on the same side; so the division of the columns that most rows have is
taken, in the table and in each table of the copula. It is read off rows of two answers that are not the two
ends of the scale: "fully" to all that is good and "not at all" to the rest is what some people mean (a
hundredth of the persons in some parts of the personality items).

It does not matter which answer it is: 12 % of rows with the lowest answer to all items of scales without a
floor made false edges in six tables of six (seeds 1040 to 1045), those with the middle one, which correlate
nothing and are not told, in none. Answers that many honest rows have throughout are left aside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, correlation, listed
from .copula import copula_tables

__all__ = ["straightlined_rows"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LIKELIHOODS = ("normal", "student_t", "ordinal", "bernoulli")
# Tuned on seeds 1000 to 1099 of `straightlined` in `benchmarks/_faults_tables.py`: 85 are told, all 69
# of five or seven levels and 16 of 31 of three (not with reversed items, or few items and common ends);
# and on some 3,400 tables of which none is: factors cut into 2 to 7 levels, floors, one strong trait, counts.
_LEAST_ROWS = 40
_LEAST_ITEMS = 6  # of one scale: five of a strong trait are often answered alike
_MOST_VALUES = 101  # of a scale, 0 to 100
_SAME_VALUES = 0.6  # of two columns' values, in both: a scale of five of which one answer was never given
_MOST_LEVELS = 11  # of a column whose levels are numbered, if they are no whole numbers (z-scored answers)
_LEAST_SEEN = 0.5  # of a row's items
_UNLIKE = 0.15  # of a row's answers, in rows of nearly one answer
_LEAST_COUNT = 4  # rows
_TIMES_EXPECTED = 2.0
_CHANCE = 1e-4  # that as many rows are alike in a table of the copula, with
_INEXACT = 1.5  # times as many: correlations are estimates
# Times sqrt(p / n): false edges are seen from 2 or 2.5 on (5 % of 300 rows with 12 items, 2 % of 1000 with
# 24; seeds 1010 to 1035), and at 1.8 in one table of twelve.
_LEAST_EIGENVALUE = 1.5
_LEAST_REVERSED = 2  # rows of two answers that agree which columns are reversed
_RARE = 0.02  # of the rows of a copula's tables: answers that more of them have throughout do not tell
_DRAWS = 10  # tables of the copula
_MOST_ROWS = 2000  # of each
_SHOWN = 10  # rows in a sentence


class _Alike(NamedTuple):
    """Rows whose answers are alike, all of them or nearly all; the answer; and columns counted in reverse."""

    wholly: Mask
    nearly: Mask
    answer: Array
    is_reversed: Mask


def straightlined_rows(cells: Cells) -> tuple[list[Finding], NDArray[np.int_]]:
    """Rows of one answer to all questions, where there are more than traits give and they make a factor.

    Parameters
    ----------
    cells : Cells
        Of columns under one likelihood, of measurements, levels or yes and no.

    Returns
    -------
    findings : list of Finding
        One for each scale (columns with the same answers). `size` is the share of the rows.
    rows : ndarray of int
    """
    n_rows, n_features = cells.values.shape
    told = np.zeros(n_rows, bool)
    findings: list[Finding] = []
    if (
        cells.likelihood not in _LIKELIHOODS
        or n_rows < _LEAST_ROWS
        or not _LEAST_ITEMS <= n_features <= MOST_COLUMNS
    ):
        return findings, np.flatnonzero(told)
    answers = _answers(cells)
    for items in _scales(answers):
        alike = _alike(answers[:, items])
        for rows, expected, all_of in _beyond_traits(answers[:, items], alike):
            findings.append(_finding(cells, items, rows, alike.is_reversed, expected, all_of))
            told |= rows
    return findings, np.flatnonzero(told)


def _answers(cells: Cells) -> Array:
    """Values of columns that can be answers, NaN elsewhere; few levels that are no whole numbers numbered."""
    answers = np.full(cells.mask.shape, np.nan)
    for j in np.flatnonzero((cells.n_levels > 1) & (cells.n_levels <= _MOST_VALUES)).tolist():
        column = cells.columns[j]
        if not cells.is_integer[j] and cells.n_levels[j] <= _MOST_LEVELS:
            column = np.unique(column, return_inverse=True)[1].reshape(-1).astype(float)
        answers[cells.mask[:, j], j] = column
    return answers


def _scales(answers: Array) -> list[list[int]]:
    """Columns with the same answers, in groups that are large enough to be looked at."""
    values = {j: set(np.unique(column[~np.isnan(column)])) for j, column in enumerate(answers.T)}
    left = [j for j, of_column in values.items() if of_column]
    scales = []
    while left:
        first = values[left[0]]
        scale = [j for j in left if len(first & values[j]) >= _SAME_VALUES * len(first | values[j])]
        left = [j for j in left if j not in scale]
        if len(scale) >= _LEAST_ITEMS:
            scales.append(scale)
    return scales


def _beyond_traits(answers: Array, alike: _Alike) -> list[tuple[Mask, float, str]]:
    """Rows alike, how many were expected and "all" or "nearly all" of the answers; or nothing to tell."""
    if alike.nearly.sum() < _LEAST_COUNT:
        return []
    n_rows, n_items = answers.shape
    values = np.unique(alike.answer)
    expected_shares = _expected_shares(answers, values)
    # the wider set, unless honest rows are a part of it
    for is_wide, of_value in zip((True, False), expected_shares, strict=True):
        is_rare = of_value <= _RARE
        share = float(of_value[is_rare].sum())
        rows = (alike.nearly if is_wide else alike.wholly) & np.isin(alike.answer, values[is_rare])
        count, expected = int(rows.sum()), share * n_rows
        by_chance = stats.binom.sf(count - 1, n_rows, min(_INEXACT * share, 1.0))
        if count < max(_LEAST_COUNT, _TIMES_EXPECTED * expected) or by_chance > _CHANCE:
            continue
        if _added_eigenvalue(answers, rows) >= _LEAST_EIGENVALUE * np.sqrt(n_items / n_rows):
            return [(rows, expected, "nearly all" if is_wide else "all")]
    return []


def _alike(answers: Array) -> _Alike:
    """Rows of one answer, or nearly, after the columns of the commonest division were reversed."""
    seen = ~np.isnan(answers)
    ends = np.nanmin(answers) + np.nanmax(answers)
    is_reversed = _reversed(answers, ends)
    same = np.where(is_reversed, ends - answers, answers)
    values = np.unique(same[seen])
    n_same = np.stack([(same == value).sum(1) for value in values])
    n_seen = seen.sum(1)
    is_read = n_seen >= max(_LEAST_ITEMS, _LEAST_SEEN * answers.shape[1])
    n_unlike = n_seen - n_same.max(0)
    nearly = is_read & (n_unlike <= _UNLIKE * n_seen)
    return _Alike(is_read & (n_unlike == 0), nearly, values[n_same.argmax(0)], is_reversed)


def _reversed(answers: Array, ends: float) -> Mask:
    """Columns that have the mirror image of the others' answer, in most rows of one answer and its image.

    Rows of the middle answer do not tell, nor do those of the two ends.
    """
    none = np.zeros(answers.shape[1], bool)
    first = answers[:, :1]
    is_telling = ~np.isin(first[:, 0], (ends / 2, np.nanmin(answers), np.nanmax(answers)))
    has_two = ((answers == first) | (answers == ends - first)).all(1) & is_telling
    if has_two.sum() < _LEAST_REVERSED:
        return none
    sides, count = np.unique(answers[has_two] == first[has_two], axis=0, return_counts=True)
    return ~sides[count.argmax()] if count.max() >= _LEAST_REVERSED else none


def _expected_shares(answers: Array, values: Array) -> tuple[Array, Array]:
    """Shares of rows whose answers are nearly all, and all, each of some values, in tables of the copula."""
    rng = np.random.default_rng(0)
    if len(answers) > _MOST_ROWS:
        answers = answers[np.sort(rng.choice(len(answers), _MOST_ROWS, replace=False))]
    seen = ~np.isnan(answers)
    tables = copula_tables(answers, seen, rng)
    drawn = [_alike(np.where(seen, next(tables), np.nan)) for _ in range(_DRAWS)]
    answer = np.concatenate([table.answer for table in drawn])
    nearly, wholly = (
        ((answer == values[:, None]) & rows).sum(1) + 0.5 / len(values)
        for rows in (
            np.concatenate([table.nearly for table in drawn]),
            np.concatenate([table.wholly for table in drawn]),
        )
    )
    return nearly / len(answer), wholly / len(answer)


def _added_eigenvalue(answers: Array, rows: Mask) -> float:
    """The largest eigenvalue of what rows add to the correlations of columns."""
    seen = ~np.isnan(answers)
    if not (seen[~rows].any(0)).all():
        return np.inf
    with_rows, without = (correlation(np.where(of, answers, 0.0), of) for of in (seen, seen & ~rows[:, None]))
    return float(np.linalg.eigvalsh(with_rows - without)[-1])


def _finding(
    cells: Cells, items: list[int], rows: Mask, is_reversed: Mask, expected: float, all_of: str
) -> Finding:
    names = [cells.features[j] for j in items]
    at = [cells.rows[i] for i in np.flatnonzero(rows)]
    reversed_names = [name for name, of_name in zip(names, is_reversed, strict=True) if of_name]
    counted = f", {listed(reversed_names, 4)} counted in reverse" if reversed_names else ""
    return Finding(
        "answers",
        f"{len(at)} of {len(rows)} rows have one answer to {all_of} of {len(names)} columns "
        f"({listed(names, 4)}{counted}; rows {listed(at, _SHOWN)}), where {expected:.2g} would by the "
        "columns' correlations: people who did not read the questions look like that, or those to whom none "
        "applies, and they make false edges",
        "look at these rows (their answers have the least variance), leave out those that were careless or "
        "are people of another kind, and fit again",
        source="data",
        columns=tuple(names),
        size=len(at) / len(rows),
    )
