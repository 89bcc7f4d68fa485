"""Rows and cells that stand out: rows there twice, rows on another scale, a cell that makes its column.

A factor model is fitted to covariances, and these are made by whatever is largest: six of three hundred rows
multiplied by ten bring more to them than all others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding
from ._cells import NORMAL_MAD, Cells, listed, naming

__all__ = ["outlying_cells", "outlying_rows", "repeated_rows", "whitened_rows"]

_LEAST_REPEATS = 2  # a single repeat may be chance or a person asked twice
_MOST_EXPECTED = 0.01  # repeats by chance, of those seen
_TRIMMED = 0.15  # of the rows, left out of the covariance that all are judged by
_MOST = 30.0  # robust standard deviations: further out a cell says no more
_FAR, _WIDE = 2.2, 0.5  # half of a row's cells are so many robust sd from the median; one cell makes no row
_MOSTLY = 0.5  # of the rows that are far out, so wide
_LEAST_LOG = 0.8  # a row on another scale is more than twice as far out as the middle one
# Of all squared distances from the middle, what far rows hold, and of the cells beyond _FAR that rows so many
# times as far out as normal ones have. Of 240 tuning tables with such rows (seeds 1000 to 1239) the least are
# .3 and .85; a row at the end of curves is far out in few columns, or holds little.
_LEAST_OF_ALL = 0.15
_AS_EXPECTED = 0.85
_LEAST_SHARE = 0.3  # of a column's sum of squares, due to a cell that makes it
_GAP = 7.5  # times the distance over which the next 5 % of cells spread: tails thin out, slips stand apart
_LEAST_WINDOW = 8  # cells over which it is measured, for the spread of three of them is chance
_BY_CHANCE = 1e-3  # of a table whose columns have exponential tails, to have such a gap anywhere
_MOST_OUTLYING = 0.06
_LEAST_COLUMNS = 4


def repeated_rows(cells: Cells) -> list[Finding]:
    """Rows that are equal in every cell, more of them than chance makes in columns of so many values.

    Parameters
    ----------
    cells : Cells
    """
    if not cells.is_whole:
        return []
    values = np.ascontiguousarray(np.where(cells.mask, cells.values, np.inf) + 0.0)
    rows = values.view(np.dtype((np.void, values.dtype.itemsize * values.shape[1]))).ravel()
    _, first, number, count = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    extra = len(rows) - len(count)
    if extra < _LEAST_REPEATS:
        return []
    is_doubled = bool((count % 2 == 0).all())
    if not is_doubled and _expected_repeats(cells) > _MOST_EXPECTED * extra:
        return []
    again = np.flatnonzero(first[number.ravel()] != np.arange(len(rows)))
    pairs = [f"{cells.rows[i]!r} = {cells.rows[first[number.ravel()[i]]]!r}" for i in again[:3]]
    return [
        Finding(
            "rows",
            f"{extra} of {len(rows)} rows repeat another one in every cell (rows {', '.join(pairs)}"
            f"{', …' if extra > 3 else ''}): they count twice, and edges look more certain than they are",
            "drop them (X.drop_duplicates()) unless they are different samples",
            source="data",
            size=extra / len(rows),
        )
    ]


def _expected_repeats(cells: Cells) -> float:
    """Equal pairs of rows by chance; columns are taken for half as many, since they depend on one another.

    Pattern by pattern of what is missing: where a view is missing as a whole, few columns tell rows apart.
    """
    log_chance = np.zeros(len(cells.columns))
    for j, column in enumerate(cells.columns):
        share = np.unique(column, return_counts=True)[1] / max(len(column), 1)
        log_chance[j] = np.log(max((share**2).sum(), 1e-300))
    patterns, count = np.unique(cells.mask, axis=0, return_counts=True)
    pairs = count * (count - 1) / 2
    return float((pairs * np.exp(np.maximum(0.5 * patterns @ log_chance, -700.0))).sum())


def outlying_rows(cells: Cells) -> tuple[list[Finding], NDArray[np.int_]]:
    """Rows on another scale than the rest, in most of their columns at once.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    findings : list of Finding
    rows : ndarray of int

    Notes
    -----
    Cells are whitened by a covariance of the middle 85 % of the rows. A row multiplied by ten is ten times as
    far out in each of these parts; a skewed factor or heavy-tailed noise moves a few.
    """
    nothing = np.empty(0, int)
    n_rows, n_features = cells.values.shape
    if not cells.is_normal or n_features < _LEAST_COLUMNS or n_features > 1000:
        return [], nothing
    size = np.log(whitened_rows(cells.robust, cells.mask)[1])
    # the spread of sizes up to the upper tenth, which a few far rows do not move
    middle, upper = np.quantile(size, [0.5, 0.9])
    limit = middle + max((upper - middle) / stats.norm.isf(0.1) * _beyond(n_rows), _LEAST_LOG)
    is_far = size > limit
    is_wide = (np.abs(cells.robust) > _FAR).sum(1) >= _WIDE * cells.mask.sum(1)
    if not is_far.any() or is_wide[is_far].mean() < _MOSTLY:  # a column in another unit moves its rows, too
        return [], nothing
    far = np.flatnonzero(is_far)
    squares = np.where(cells.mask, np.clip(cells.robust, -_MOST, _MOST), 0.0) ** 2
    if len(far) > 0.2 * n_rows or squares[far].sum() < _LEAST_OF_ALL * squares.sum():
        return [], nothing
    far = far[np.argsort(-size[far])]
    times = float(np.exp(np.median(size[far]) - middle))
    # rows of normal cells, multiplied, have so many cells beyond that line, in whatever columns
    expected = 2 * stats.norm.sf(_FAR / times)
    if (np.abs(cells.robust[far]) > _FAR).sum() < _AS_EXPECTED * expected * cells.mask[far].sum():
        return [], nothing
    names = [cells.rows[i] for i in np.sort(far)]
    return [
        Finding(
            "rows",
            f"{naming(names, 'row')} {'are' if len(far) > 1 else 'is'} about {times:.2g} times as far from "
            f"the middle as other rows, in most columns at once ({len(far)} of {n_rows} rows), and "
            "correlations are mostly theirs",
            "look whether they are in other units or were filled in carelessly; correct or drop them",
            severity="doubt",
            source="data",
            size=times,
        )
    ], far


def _beyond(n_rows: int) -> float:
    """Standard deviations of the log size of rows that one in a thousand normal samples has a row beyond."""
    return 1.1 * float(stats.norm.isf(0.001 / n_rows))


def whitened_rows(
    z: NDArray[np.float64], mask: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cells whitened by a covariance of the middle rows, and each row's size: mean square root, squared.

    The roots of a row's cells are added, not their squares, so that a few far cells add little.

    Parameters
    ----------
    z : ndarray (row, feature)
        In robust standard deviations; 0 where missing.
    mask : ndarray of bool (row, feature)
    """
    z = np.clip(z, -_MOST, _MOST)
    size, whitened = np.median(np.abs(z), 1), z
    n_features = z.shape[1]
    for _ in range(3):
        kept = z[size <= np.quantile(size, 1 - _TRIMMED)]
        centre = kept.mean(0)
        covariance = np.cov((kept - centre).T)
        level = max(0.05, min(0.5, n_features / len(kept)))
        covariance = (1 - level) * covariance + level * np.diag(np.diag(covariance) + 1e-12)
        values, vectors = np.linalg.eigh(covariance)
        white = (vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1]))) @ vectors.T
        whitened = np.where(mask, (z - centre) * mask @ white, 0.0)
        seen = mask.sum(1)  # none, where a whole view of the row is missing
        size = (np.sqrt(np.abs(whitened)).sum(1) / np.maximum(seen, 1)) ** 2
        size = np.where(seen < _LEAST_COLUMNS, np.median(size[seen > 0]), size)
    return whitened, size


def outlying_cells(cells: Cells) -> tuple[list[Finding], NDArray[np.bool_]]:
    """A few cells that stand far apart from all others of their column, and make its variance.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    findings : list of Finding
    where : ndarray of bool (row, feature)
    """
    where = np.zeros(cells.values.shape, bool)
    if not cells.is_normal:
        return [], where
    outliers = []
    for j in np.flatnonzero((cells.n_levels > 0.3 * cells.mask.sum(0)) | cells.is_coarse).tolist():
        far, share = _far_cells(cells, j)
        if len(far):
            outliers.append((share, j, far))
            where[far, j] = True
    if not outliers:
        return [], where
    outliers.sort(key=lambda outlier: -outlier[0])
    share, worst, at = outliers[0]
    as_given = cells.values if cells.given is None else cells.given  # what stands in the caller's table
    values = ", ".join(f"{as_given[i, worst]:.6g}" for i in at[:3]) + (", …" if len(at) > 3 else "")
    more = (
        f" ({len(outliers)} such columns: {listed([cells.features[i] for _, i, _ in outliers])})"
        if len(outliers) > 1
        else ""
    )
    how_many = "a cell" if len(at) == 1 else f"{len(at)} cells"
    return [
        Finding(
            "cells",
            f"column {cells.features[worst]!r} has {how_many} far from all others ({values}; "
            f"{naming([cells.rows[i] for i in at], 'row')}), {share:.0%} of the column's variance{more}",
            "correct the cell, set it to NaN, or take the column's logarithm if it is skewed",
            source="data",
            columns=tuple(cells.features[i] for _, i, _ in outliers),
            size=share,
        )
    ], where


def _far_cells(cells: Cells, j: int) -> tuple[NDArray[np.int_], float]:
    """Rows of a column's far cells, the furthest first, and their share of its sum of squares.

    A far cell moves the mean of its group, and with it what covariates leave of its neighbours: of a group of
    two rows both are as far out. So of far cells those are named that stand apart as they were given, too.

    Parameters
    ----------
    cells : Cells
    j : int
    """
    index = np.flatnonzero(cells.mask[:, j])
    left = cells.robust[index, j]
    k, share = _apart(left, len(cells.features))
    order = np.argsort(-np.abs(left))
    if cells.given is not None:
        away = cells.given[index, j] - np.median(cells.given[index, j])
        away /= max(NORMAL_MAD * float(np.median(np.abs(away))), 1e-300)
        n_given = _apart(away, len(cells.features))[0]
        as_given = np.argsort(-np.abs(away))[:n_given]
        # a group whose mean is far from others stands apart as given, and covariates leave nothing of that
        if n_given and set(as_given.tolist()) <= set(order[: max(k, n_given)].tolist()):
            return index[as_given], share or float((left[as_given] ** 2).sum() / (left**2).sum())
    return index[order[:k]], share


def _apart(z: NDArray[np.float64], n_columns: int) -> tuple[int, float]:
    r"""How many cells lie beyond a gap, and their share of the sum of squares; 0 if none makes the column.

    Of exponential tails the k-th spacing of n ordered sizes is exponential with mean 1 / k, whatever the
    others are (Renyi 1953). So a gap below the k furthest cells that is g times as wide as the next w
    spacings together has the probability :math:`\prod_{i=k+1}^{k+w} i / (i + k g)`: of three spacings and a
    g of 7.5 that is .01, which some column in a hundred has. Columns and numbers k were all looked at
    (Bonferroni).

    Parameters
    ----------
    z : ndarray (row,)
        Cells of a column, in robust standard deviations from its median.
    n_columns : int
        That are looked at.
    """
    n = len(z)
    if n < 20:
        return 0, 0.0
    size = np.sort(np.abs(z))[::-1]
    squares = np.cumsum(size**2) / max((size**2).sum(), 1e-300)
    window = max(int(0.05 * n), _LEAST_WINDOW)
    most = max(1, int(_MOST_OUTLYING * n))
    for k in range(most, 0, -1):
        beyond = max(size[k] - size[min(k + window, n - 1)], 0.5)
        gap = (size[k - 1] - size[k]) / beyond
        if gap <= _GAP or squares[k - 1] <= _LEAST_SHARE:
            continue
        place = np.arange(k + 1, k + window + 1)
        if np.log1p(k * gap / place).sum() >= np.log(n_columns * most / _BY_CHANCE):
            return int(k), float(squares[k - 1])
    return 0, 0.0
