"""Columns of another table that was joined: a person's age and income, again on each row of a visit.

Such columns repeat together. They have as many independent rows as there are persons, and a fit that counts
the visits takes chance correlations between persons for factors. The sign is a pair of columns with few
combinations of values, each in several rows: far fewer than two columns with the same values, as often and
as correlated, have (a Gaussian copula). A curve of one column has few combinations, too, but neighbours on it
are alike; levels and counts have their rare combinations in single rows. Columns that are constant wherever
such a pair is belong to the same table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, listed

__all__ = ["joined_columns"]

Array = NDArray[np.float64]
Codes = NDArray[np.int_]

# Tuned on seeds 1000 to 1399 of `joined` in `benchmarks/_faults_tables.py`, of which 399 are told, and on
# 2000 tables of which none is: clean ones, these rounded, 3 to 51 levels, skewed or heaped numbers.
_LEAST_ROWS = 40
_LEAST_LEVELS = 8  # of both columns of a pair: fewer have few combinations by necessity
_LEAST_COMBINATIONS = 10
_LEAST_EACH = 2.0  # rows of a combination, on average
_OF_EXPECTED = 0.6  # combinations, of those that a Gaussian copula has
_MOST_SINGLE = 0.2  # of the combinations, in one row only
_LEAST_ROUGH = 0.35  # step to the nearest of four neighbours, over that of a random order: less on a curve
_LEAST_ALIKE = 0.1  # agreement of rows that share a value beyond chance, for a pair to be looked at
_CONSTANT = 0.75  # the same, of a column that belongs to a pair whose numbers were rounded, and
_MOST_GROWTH = 1.2  # times as many combinations with it: one that differs by row has many more
_MOSTLY_SEEN = 0.5  # of the rows: combinations are counted where cells are seen
_CHANCE = 1e-4  # that any column of a table seems constant
_MOST_ROWS = 4000  # that are looked at for a column, with all rows of a value or none
_MOST_CELLS = 1.5e8  # that are compared in all: of a wide table partners are looked for some columns only
_MOST_PARTNERS = 20  # whose combinations are counted, the most alike first
_DRAWS = 3  # of the copula
_ORDERS = 20  # at random, that neighbours are compared with
_MISSING = -1


def joined_columns(cells: Cells) -> list[Finding]:
    """Blocks of columns that repeat together, as those of another table do where it was joined.

    Parameters
    ----------
    cells : Cells
        Of all columns.

    Returns
    -------
    list of Finding
        One for each block of two columns or more. `size` is the number of different combinations.
    """
    n_rows, n_features = cells.values.shape
    if n_rows < _LEAST_ROWS or not 2 <= n_features <= MOST_COLUMNS:
        return []
    codes, n_levels = _codes(cells)
    n_seen = (codes != _MISSING).sum(0)
    seeds = np.flatnonzero((n_levels >= _LEAST_LEVELS) & (n_levels <= n_seen / _LEAST_EACH))
    if len(seeds) < 2:
        return []
    rng = np.random.default_rng(0)
    chance = np.array([_chance_equal(column) for column in codes.T])
    n_tried = int(np.clip(_MOST_CELLS / (min(n_rows, _MOST_ROWS) * n_features), 1, len(seeds)))
    findings: list[Finding] = []
    named: set[int] = set()
    for j in seeds[np.linspace(0, len(seeds) - 1, n_tried).astype(int)].tolist():
        others = np.array([k for k in seeds.tolist() if k not in named and k != j])
        if j in named or not len(others):
            continue
        partner = _partner(codes, j, others, chance, rng)
        if partner is not None:
            block, n_combinations, n_of = _block(codes, [j, partner], chance, rng)
            named |= set(block)
            findings.append(_finding([cells.features[k] for k in block], n_combinations, n_of))
    return findings


def _finding(names: list[str], n_combinations: int, n_rows: int) -> Finding:
    return Finding(
        "joined",
        f"columns {listed(names)} repeat together, with {n_combinations} different combinations in {n_rows} "
        f"rows: they look like {n_combinations} rows of another table (persons with several visits, schools "
        "with several pupils), and edges between them are judged as if there were more",
        "leave them out, and fit them by themselves in a table with one row for each combination",
        source="data",
        columns=tuple(names),
        size=float(n_combinations),
    )


def _codes(cells: Cells) -> tuple[Codes, Codes]:
    """Values numbered in their order, (row, column), -1 where missing; and how many a column has."""
    codes = np.full(cells.mask.shape, _MISSING)
    for j, column in enumerate(cells.columns):
        codes[cells.mask[:, j], j] = np.unique(column, return_inverse=True)[1].reshape(-1)
    return codes, codes.max(0) + 1


def _chance_equal(column: Codes) -> float:
    """Probability that two rows in which a column is seen have the same value."""
    count = np.bincount(column[column != _MISSING])
    return float(((count / max(count.sum(), 1)) ** 2).sum())


def _partner(codes: Codes, j: int, others: Codes, chance: Array, rng: np.random.Generator) -> int | None:
    """The column with which another has fewest combinations of those expected, if these are few enough."""
    rows = _rows_of_values(codes[:, j], rng)
    kappa = _agreement(codes[rows, j], codes[np.ix_(rows, others)], chance[others])[0]
    best, partner = _OF_EXPECTED, None
    for at in np.argsort(-kappa, kind="stable")[:_MOST_PARTNERS]:
        if kappa[at] < _LEAST_ALIKE:
            break
        k = int(others[at])
        complete = rows[codes[rows, k] != _MISSING]
        share = _share_of_expected(codes[complete][:, [j, k]], rng)
        if share <= best:
            best, partner = share, k
    return partner


def _rows_of_values(column: Codes, rng: np.random.Generator) -> Codes:
    """Rows in random order in which a column is seen; of a long one those of some of its values."""
    rows = rng.permutation(np.flatnonzero(column != _MISSING))
    if len(rows) <= _MOST_ROWS:
        return rows
    order = rng.permutation(column.max() + 1)
    reached = np.cumsum(np.bincount(column[rows])[order])
    kept = order[: max(int(np.searchsorted(reached, _MOST_ROWS)), 1)]
    return rows[np.isin(column[rows], kept)]


def _agreement(groups: Codes, columns: Codes, chance: Array) -> tuple[Array, Array]:
    """Agreement of neighbouring rows of one group in each column, and its probability by chance.

    The agreement is Cohen's kappa of a row and the next of its group, 1 where a column is constant in groups.

    Parameters
    ----------
    groups : ndarray of int (row,)
        In random order within groups.
    columns : ndarray of int (row, column)
        -1 where missing.
    chance : ndarray (column,)
        Probability that any two rows agree.
    """
    order = np.argsort(groups, kind="stable")
    same_group = np.diff(groups[order]) == 0
    ordered = columns[order]
    upper, lower = ordered[:-1][same_group], ordered[1:][same_group]
    both = (upper != _MISSING) & (lower != _MISSING)
    n_pairs = both.sum(0)
    n_equal = ((upper == lower) & both).sum(0)
    equal = n_equal / np.maximum(n_pairs, 1)
    kappa = np.where(chance < 1, (equal - chance) / np.maximum(1 - chance, 1e-12), 0.0)
    return kappa, np.asarray(stats.binom.sf(n_equal - 1, n_pairs, chance))


def _share_of_expected(codes: Codes, rng: np.random.Generator) -> float:
    """Combinations of two columns over those expected; infinite where they are no rows of another table.

    Parameters
    ----------
    codes : ndarray of int (row, 2)
        Without missing cells.
    """
    n_rows = len(codes)
    first, count = np.unique(_numbered(codes), return_index=True, return_counts=True)[1:]
    points = codes[first]
    if n_rows < _LEAST_ROWS or not _LEAST_COMBINATIONS <= len(points) <= n_rows / _LEAST_EACH:
        return np.inf
    if (count == 1).sum() > _MOST_SINGLE * len(points) or _roughness(points, rng) < _LEAST_ROUGH:
        return np.inf
    return len(points) / _expected_combinations(codes, rng)


def _roughness(points: Codes, rng: np.random.Generator) -> float:
    """Mean step to the nearest of a point's neighbours, over that of a random order: near 0 on a curve.

    Neighbours are the two points on either side in the order of the other column, so that saw-teeth and both
    branches of a circle count as curves. A step to the next value is none: levels are no smoother than that.
    """
    ratios = []
    for x, y in (points.T, points.T[::-1]):
        order = np.lexsort((rng.random(len(x)), x))
        ordered = stats.rankdata(y[order], "dense").astype(float)
        chance = np.mean([_step_to_nearest(rng.permutation(ordered)) for _ in range(_ORDERS)])
        ratios.append(_step_to_nearest(ordered) / max(float(chance), 1e-12))
    return float(min(ratios))


def _step_to_nearest(ordered: Array) -> float:
    steps = np.full((4, len(ordered)), np.inf)
    for at, lag in enumerate((1, 2)):
        distance = np.maximum(np.abs(ordered[lag:] - ordered[:-lag]) - 1.0, 0.0)
        steps[at, lag:] = steps[at + 2, :-lag] = distance
    return float(steps.min(0).mean())


def _expected_combinations(codes: Codes, rng: np.random.Generator) -> float:
    """Different combinations in rows of a Gaussian copula with these columns' margins and correlation."""
    scores = np.apply_along_axis(lambda x: stats.norm.ppf((stats.rankdata(x) - 0.5) / len(x)), 0, codes)
    r = float(np.clip(np.corrcoef(scores.T)[0, 1], -0.99, 0.99))
    first, second = np.sort(codes, 0).T
    n_combinations = []
    for _ in range(_DRAWS):
        x = rng.normal(size=len(codes))
        y = r * x + np.sqrt(1 - r**2) * rng.normal(size=len(codes))
        drawn = first[x.argsort().argsort()] * (second[-1] + 1) + second[y.argsort().argsort()]
        n_combinations.append(len(np.unique(drawn)))
    return float(np.mean(n_combinations))


def _block(
    codes: Codes, pair: list[int], chance: Array, rng: np.random.Generator
) -> tuple[list[int], int, int]:
    """Columns that are constant wherever a pair is, their different combinations, and rows these are of.

    The most constant first, and again with those: a third column tells apart what rounding made equal in two.
    """
    block = list(pair)
    rows = rng.permutation(np.flatnonzero((codes[:, block] != _MISSING).all(1)))
    groups = _numbered(codes[rows][:, block])
    n_before = 0
    while len(block) > n_before:
        n_before = len(block)
        kappa, by_chance = _agreement(groups, codes[rows], chance)
        is_constant = (kappa >= _CONSTANT) & (by_chance <= _CHANCE / codes.shape[1])
        is_constant[block] = False
        for j in np.argsort(-kappa, kind="stable")[: is_constant.sum() + len(block)].tolist():
            seen = codes[rows, j] != _MISSING
            if not is_constant[j] or not seen.any():
                continue
            finer = _numbered(np.column_stack([groups[seen], codes[rows[seen], j]]))
            if finer.max() + 1 > _MOST_GROWTH * len(np.unique(groups[seen])):
                continue
            block.append(j)
            if seen.sum() >= _MOSTLY_SEEN * len(codes):
                rows, groups = rows[seen], finer
    return sorted(block), int(groups.max() + 1), len(rows)


def _numbered(columns: Codes) -> Codes:
    """Pairs of numbers, numbered from 0."""
    return np.unique(columns[:, 0] * (columns[:, 1].max() + 1) + columns[:, 1], return_inverse=True)[
        1
    ].reshape(-1)
