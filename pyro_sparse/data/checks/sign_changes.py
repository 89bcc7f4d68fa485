r"""Columns whose sign changes at a row: a scoring key changed, a sensor was remounted, two files appended.

Before and after such a row the column has opposite correlations with the columns of its factor. Over all rows
they cancel, and a linear fit calls the column absent from its factor.

For a column :math:`z_j` (normal scores of its ranks) let :math:`f_k` be the leading K principal components,
rotated by varimax, without its share. Where rows are exchangeable the partial sums of the centred products
:math:`z_{ij} f_{ik}`, over their standard deviation and :math:`\sqrt n`, are close to a Brownian bridge B,
and

.. math:: P\big(\max_t |B(t)| > b\big) \leq 2 e^{-2 b^2}

(Kolmogorov), times the number of columns and components. A tie that becomes weaker is no change of sign:
correlations of the column with a combination of the components, chosen in half of the rows and computed in
the other half, must be clear and opposite before and after the row.

The clearest column says at which row. Which columns change there is said by the signs that bring correlations
before and after into agreement: those of the column's partners change with it, too. They are reversed from
that row on, and the table is looked at again.

The same is asked of the rows of each level of a category that was given as a covariate or as groups: there
the sum over these rows is compared with a normal distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..._utils.varimax import varimax
from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, naming
from .copula import column_scores
from .groups import row_groups

if TYPE_CHECKING:
    from ..design import Term
    from ..table import Table

__all__ = ["sign_changes", "sign_changes_of_levels"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Tuned on seeds 1000 to 1199: tables of 8 to 40 columns, loadings .5 to .9, a change at 20 to 80 % of the
# rows. Of 300 rows 185 of 200 are told (measurements), of 1,000 all. Of 4,800 without a change none is (seeds
# 1200 to 1499, 60 and 300 rows; normal, t(3), rows of unequal size, skewed, levels, yes/no, counts, missing
# cells): the two opposite correlations keep away most that the chance below lets through.
_LEAST_ROWS = 60
_LEAST_COLUMNS = 4
_LEAST_SIDE = 15  # rows before and after a change
_CHANCE = 1e-2  # that any column of a table of exchangeable rows seems to change
_LEAST_Z = 3.0  # standard errors of each correlation
_LEAST_CORRELATION = 0.15  # of a share of variance of .02
_MOST_LEVELS = 12  # of a category
_MOST_CHANGES = 5  # rows at which columns change
_MOST_COMPONENTS = 25  # a column is looked at with each: factors beyond them are not seen


class _Change(NamedTuple):
    """The first row of another sign, columns that change there, and their correlations before and after."""

    row: int
    columns: list[int]
    correlations: list[tuple[float, float]]


def sign_changes(cells: Cells, numbers: list[int], has_groups: bool = False) -> list[Finding]:
    """Columns whose correlations with the others change their sign at a row.

    Parameters
    ----------
    cells : Cells
        Of all columns.
    numbers : list of int
        As for `row_groups`.
    has_groups : bool
        Whether that found groups of rows, in which products of columns drift as they do where a sign changes.
        Then nothing is said, unless the groups are the two sides of a change: the mean of an item changes,
        too, if its scale has another middle.

    Returns
    -------
    list of Finding
        One for each row at which columns change. `size` is the least of their correlations before and after.
    """
    n_rows, n_features = cells.view.shape
    if not cells.is_whole or n_rows < _LEAST_ROWS or not _LEAST_COLUMNS <= n_features <= MOST_COLUMNS:
        return []
    z = column_scores(cells.view, cells.mask)
    if has_groups:
        row = _clearest_row(z, cells.mask)
        if row is None:
            return []
        is_after = np.arange(n_rows) >= row
        sides = np.column_stack([~is_after, is_after])
        if row_groups(replace(cells, view=_centred(cells.view, cells.mask, sides)), numbers):
            return []
        z = _centred(z, cells.mask, sides)
    return [_finding(cells, change) for change in _changes(z, cells.mask)]


def sign_changes_of_levels(cells: Cells, table: Table) -> list[Finding]:
    """Columns whose correlations with the others have another sign in the rows of one level of a covariate.

    Parameters
    ----------
    cells : Cells
        Of all columns.
    table : Table
        Of the same rows; its covariates and groups that are categories are looked at.

    Returns
    -------
    list of Finding
        One for each level. `size` is the least of the correlations in these rows and in the others.
    """
    n_rows, n_features = cells.view.shape
    if not cells.is_whole or n_rows < _LEAST_ROWS or not _LEAST_COLUMNS <= n_features <= MOST_COLUMNS:
        return []
    categories = list(_categories(table))
    n_levels = sum(len(term.levels) for term, _ in categories)
    levels = [
        (chance * n_levels, term.name, str(term.levels[k]), number == k)
        for term, number in categories
        for k, chance in enumerate(_chances_of_levels(cells, number, len(term.levels)))
    ]
    findings: list[Finding] = []
    named: set[int] = set()
    for chance, name, level, rows in sorted(levels, key=lambda of_level: of_level[0]):
        if chance > _CHANCE:
            break
        order, row = np.argsort(rows, kind="stable"), int((~rows).sum())
        z = _centred(column_scores(cells.view, cells.mask), cells.mask, np.column_stack([~rows, rows]))
        change, _ = _undone(z[order], cells.mask[order], row)
        # of two levels each differs from the other, and of several the others from one that does
        if change.columns and not named & set(change.columns):
            named |= set(change.columns)
            findings.append(_finding_of_level(cells, change, name, level))
    return findings


def _categories(table: Table) -> Iterator[tuple[Term, NDArray[np.int_]]]:
    """Covariates and groups that are categories, and the number of each row's level."""
    if table.design is None:
        return
    coded, at = table.design.coded(table.per_row["design"].astype(float)), 0
    for term in table.design.terms:
        if 2 <= len(term.levels) <= _MOST_LEVELS:
            # one less its mean in a row's own level, and less than 0 in the others
            yield term, coded[:, at : at + term.width].argmax(1)
        at += term.width


def _chances_of_levels(cells: Cells, number: NDArray[np.int_], n_levels: int) -> Array:
    """For each level the probability that some column's products differ so much there from the other rows."""
    has_level = number[:, None] == np.arange(n_levels)
    # centred after ranks: ranks of what means leave of yes and no are those of the means
    z = _centred(column_scores(cells.view, cells.mask), cells.mask, has_level)
    loadings = _loadings(z)
    scores = z @ loadings
    height = np.zeros(n_levels)
    for j, seen in enumerate(cells.mask.T):
        products = z[:, [j]] * (scores - z[:, [j]] * loadings[j])
        products = np.where(seen[:, None], products - products.sum(0) / max(seen.sum(), 1), 0.0)
        spread = np.sqrt((products**2).sum(0))
        sums = np.abs(has_level.T @ products) / np.where(spread > 1e-9 * np.sqrt(len(z)), spread, np.inf)
        height = np.maximum(height, sums.max(1))
    share = has_level.mean(0)
    is_large = np.minimum(has_level.sum(0), (~has_level).sum(0)) >= _LEAST_SIDE
    normal = height / np.sqrt(np.maximum(share * (1 - share), 1e-12))
    return np.where(is_large, 2 * stats.norm.sf(normal) * loadings.size, 1.0)


def _centred(values: Array, mask: Mask, parts: Mask) -> Array:
    """Values less each column's mean in each part of the rows, (row, part); 0 where missing."""
    centred = np.where(mask, values, 0.0)
    for rows in parts.T:
        centred[rows] -= centred[rows].sum(0) / np.maximum(mask[rows].sum(0), 1)
    return np.where(mask, centred, 0.0)


def _changes(z: Array, mask: Mask) -> list[_Change]:
    """Changes of sign, the clearest first, each looked for after those before it were undone."""
    changes: list[_Change] = []
    while len(changes) < _MOST_CHANGES and (row := _clearest_row(z, mask)) is not None:
        change, z = _undone(z, mask, row)
        if not change.columns:
            break
        changes.append(change)
    return changes


def _clearest_row(z: Array, mask: Mask) -> int | None:
    """The first row of another sign, of the column that changes it most clearly, if any does."""
    loadings = _loadings(z)
    scores = z @ loadings
    height, row = _largest_sums(z, mask, scores, loadings)
    chance = 2 * np.exp(-2 * height**2) * loadings.size
    for j in np.argsort(-height, kind="stable").tolist():
        if chance[j] > _CHANCE:
            break
        before, after = _correlations(z[:, j], mask[:, j], scores - np.outer(z[:, j], loadings[j]), row[j])
        if before * after < 0:
            return int(row[j])
    return None


def _loadings(z: Array) -> Array:
    """Weights (column, component) of the leading components, rotated, of variance 1."""
    n_rows, n_features = z.shape
    values, vectors = np.linalg.eigh(z.T @ z / n_rows)
    # above the largest eigenvalue that noise has (Marchenko and Pastur)
    n_signal = int((values > (1 + np.sqrt(n_features / n_rows)) ** 2).sum())
    n_components = min(max(n_signal + 1, 2), _MOST_COMPONENTS, n_features - 1)
    size = np.sqrt(np.maximum(values[-n_components:], 1e-12))
    leading = vectors[:, -n_components:]
    return (leading / size) @ varimax(leading * size)


def _undone(z: Array, mask: Mask, row: int) -> tuple[_Change, Array]:
    """Columns that change their sign at a row, and the table with these reversed from there on.

    Signs are those by which correlations before and after agree best: the sum of their products over all
    pairs of columns is largest.
    """
    agreement = np.prod([z_side.T @ z_side / len(z_side) for z_side in (z[:row], z[row:])], axis=0)
    np.fill_diagonal(agreement, 0.0)
    sign = np.ones(z.shape[1])
    for _ in range(4 * len(sign)):
        gain = -sign * (agreement @ sign)
        j = int(gain.argmax())
        if gain[j] <= 1e-9:
            break
        sign[j] *= -1
    after = np.arange(len(z))[:, None] >= row
    undone = np.where(after, z * sign, z)
    loadings = _loadings(undone)
    scores = undone @ loadings
    columns, sides = [], []
    for j in np.flatnonzero(sign < 0).tolist():
        others = scores - np.outer(undone[:, j], loadings[j])
        of_column = _correlations(z[:, j], mask[:, j], others, row)
        if of_column[0] * of_column[1] < 0:
            columns.append(j)
            sides.append(of_column)
    sign = np.ones(z.shape[1])
    sign[columns] = -1
    return _Change(row, columns, sides), np.where(after, z * sign, z)


def _largest_sums(z: Array, mask: Mask, scores: Array, loadings: Array) -> tuple[Array, Array]:
    """Of each column the largest partial sum of its products with a component, and the row after it."""
    n_rows, n_features = z.shape
    height, row = np.zeros(n_features), np.zeros(n_features, dtype=int)
    for j in range(n_features):
        column, seen = z[:, [j]], mask[:, [j]]
        products = column * (scores - column * loadings[j])  # (row, component)
        products = np.where(seen, products - products.sum(0) / max(seen.sum(), 1), 0.0)
        spread = np.sqrt((products**2).sum(0))
        sums = np.abs(np.cumsum(products, 0))[_LEAST_SIDE - 1 : n_rows - _LEAST_SIDE]
        sums /= np.where(spread > 1e-9 * np.sqrt(n_rows), spread, np.inf)
        at = np.unravel_index(sums.argmax(), sums.shape)
        height[j], row[j] = sums[at], at[0] + _LEAST_SIDE
    return height, row


def _correlations(column: Array, seen: Mask, others: Array, row: int) -> tuple[float, float]:
    """Correlations with a combination of components before and after a row, 0 where one is not clear.

    The combination is the difference of two regressions, before and after. It is chosen in the even rows for
    the odd ones, and the other way round.
    """
    is_after = np.arange(len(column)) >= row
    is_even = np.arange(len(column)) % 2 == 0
    combination = np.zeros(len(column))
    for half in (is_even, ~is_even):
        differences = [
            (column[rows] @ others[rows]) / max(rows.sum(), 1)
            for rows in (half & seen & ~is_after, half & seen & is_after)
        ]
        moments = others[half].T @ others[half] / half.sum()
        moments += 1e-9 * np.trace(moments) * np.eye(len(moments)) + 1e-12 * np.eye(len(moments))
        weights = np.linalg.solve(moments, differences[0] - differences[1])
        combination[~half] = others[~half] @ weights / np.sqrt(weights @ moments @ weights + 1e-300)
    sides = []
    for rows in (seen & ~is_after, seen & is_after):
        if rows.sum() < _LEAST_SIDE:
            return 0.0, 0.0
        with np.errstate(invalid="ignore"):
            r = float(np.nan_to_num(np.corrcoef(column[rows], combination[rows])[0, 1]))
        z_of_r = np.arctanh(np.clip(r, -0.999, 0.999)) * np.sqrt(rows.sum() - 3)
        sides.append(r if abs(z_of_r) >= _LEAST_Z and abs(r) >= _LEAST_CORRELATION else 0.0)
    return sides[0], sides[1]


def _finding(cells: Cells, change: _Change) -> Finding:
    shown = f"at row {cells.rows[change.row]!r} ({change.row + 1} of {len(cells.rows)})"
    return _said(cells, change, shown, ("before it", "from it on"))


def _finding_of_level(cells: Cells, change: _Change, name: str, level: str) -> Finding:
    return _said(cells, change, f"where {name!r} is {level!r}", ("elsewhere", "there"))


def _said(cells: Cells, change: _Change, where: str, sides: tuple[str, str]) -> Finding:
    names = [cells.features[j] for j in change.columns]
    first, second = max(change.correlations, key=lambda of_column: min(map(abs, of_column)))
    plural = len(names) > 1
    return Finding(
        "signs",
        f"{naming(names, 'column')} {'change their signs' if plural else 'changes its sign'} {where}: "
        f"correlations with the other columns are {first:.2f} {sides[0]} and {second:.2f} {sides[1]}"
        f"{' (of the clearest)' if plural else ''}, so that over all rows they cancel, in whole or in part, "
        "and edges seem absent",
        "look at how these values were scored or measured (two files, another key, a sensor mounted anew); "
        "reverse them in the rows of one side, or fit the two sides by themselves",
        source="data",
        columns=tuple(names),
        size=min(min(map(abs, of_column)) for of_column in change.correlations),
    )
