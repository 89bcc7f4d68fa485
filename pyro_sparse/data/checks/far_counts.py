"""Rows of counts that stand apart in many columns at once: multiplied, or measured by another instrument.

On the scale of logarithms such rows are shifted by one vector, the same for all of them, in most of their
columns. It is looked for as the direction in which a few rows, the furthest first, lie apart from all others,
each judged by the direction of the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, NORMAL_MAD, Cells, naming
from .rows import whitened_rows

__all__ = ["far_count_rows"]

_LIKELIHOODS = ("poisson", "negative_binomial")
_LEAST_ROWS, _LEAST_COLUMNS = 40, 6
_MOST_ZEROS = 0.3  # of the cells: of rare counts logarithms have no scale, and topics are rows apart
_STARTING = 0.05  # of the rows, the furthest out
_ROUNDS = 4
_IN_DIRECTION = 3.5  # standard deviations from which a row belongs to those that make the direction
_MOST_FAR = 0.15  # of the rows; more are a batch
_LEAST_FAR = 3  # two rows at the ends of skewed factors share a direction by chance
_SHIFTED, _TOGETHER = 0.7, 0.7  # of the far rows so many are off, in robust standard deviations, to one side
# How far apart rows are (median, standard deviations along their direction) and in what share of the columns,
# at least. In clean tables (360 of seeds 1000 to 1359, a seventh of them curves) rows are up to 7.2 apart in
# up to 55 % of the columns, topics aside; rows multiplied are 5 to 24 apart in 75 % and more, those of an
# instrument whose columns have random scales 6 to 14 apart in a half (60 tables of seeds 1000 to 1059).
_APART = ((5.5, 0.65), (8.0, 0.45))
_MAKES_CORRELATIONS = 0.1  # share of all squared distances that puts edges in doubt

Array = NDArray[np.float64]


def far_count_rows(cells: Cells) -> tuple[list[Finding], NDArray[np.int_]]:
    """Rows of counts that stand apart from all others in most columns at once.

    Parameters
    ----------
    cells : Cells
        Of one likelihood; of others than counts nothing is said, and nothing where exposures, covariates or
        groups are given, which say why a row is far.

    Returns
    -------
    findings : list of Finding
    rows : ndarray of int
    """
    nothing = np.empty(0, int)
    n_rows, n_columns = cells.values.shape
    if cells.likelihood not in _LIKELIHOODS or n_rows < _LEAST_ROWS:
        return [], nothing
    if cells.given is not None or cells.amount_is_given:
        return [], nothing
    if not _LEAST_COLUMNS <= n_columns <= MOST_COLUMNS:
        return [], nothing
    if (cells.values == 0).sum() > _MOST_ZEROS * cells.mask.sum():
        return [], nothing
    z = _logarithms(cells)
    if z is None:
        return [], nothing
    white, size = whitened_rows(z, cells.mask)
    level = z.mean(1) - np.median(z.mean(1))
    directions = [_rows_apart(white, start) for start in (size, np.abs(level), level)]
    far, apart = max(directions, key=lambda direction: direction[1])
    if len(far) < _LEAST_FAR:
        return [], nothing
    to_one_side = np.maximum((z[far] > _SHIFTED).mean(0), (z[far] < -_SHIFTED).mean(0))
    share = float((to_one_side >= _TOGETHER).mean())
    if not any(apart >= least and share >= columns for least, columns in _APART):
        return [], nothing
    squares = z**2
    makes = float(squares[far].sum() / squares.sum())
    return [
        Finding(
            "rows",
            f"{naming([cells.rows[i] for i in far], 'row')} stand apart from all others in {share:.0%} of "
            f"the columns at once ({len(far)} of {n_rows} rows, {makes:.0%} of all squared distances from "
            "columns' medians, in logarithms)",
            "look whether they were multiplied, or measured by another instrument; correct or drop them",
            severity="doubt" if makes >= _MAKES_CORRELATIONS else "note",
            source="data",
            size=apart,
        )
    ], far


def _logarithms(cells: Cells) -> Array | None:
    """Logarithms of counts in robust standard deviations from medians; None: a column has no spread."""
    z = np.log1p(cells.values)
    z -= np.nanmedian(z, 0)
    mad, sd = NORMAL_MAD * np.nanmedian(np.abs(z), 0), np.nanstd(z, 0)
    scale = np.where(mad > 0.5 * sd, mad, sd)  # most cells of a column of few values may be equal
    return np.where(cells.mask, z / scale, 0.0) if (scale > 0).all() else None


def _rows_apart(white: Array, start: Array) -> tuple[NDArray[np.int_], float]:
    """Rows beyond all others along a direction of their own, and how far their median is; none: 0.

    Parameters
    ----------
    white : ndarray (row, feature)
        Cells whitened by the middle rows.
    start : ndarray (row,)
        By whose largest values rows are chosen to begin with.
    """
    n_rows, nothing = len(white), (np.empty(0, int), 0.0)
    rows = np.argsort(-start)[: max(3, int(_STARTING * n_rows))]
    along = np.zeros(n_rows)
    for _ in range(_ROUNDS):
        direction = np.tile(white[rows].sum(0), (n_rows, 1))
        direction[rows] -= white[rows]  # a row does not speak for itself
        along = (white * direction).sum(1) / np.maximum(np.linalg.norm(direction, axis=1), 1e-12)
        middle, upper = np.quantile(along, [0.5, 0.9])
        if upper - middle <= 1e-9 * max(float(np.abs(along).max()), 1e-300):
            return nothing
        along = (along - middle) / ((upper - middle) / stats.norm.isf(0.1))
        rows = np.flatnonzero(along > _IN_DIRECTION)
        if not _LEAST_FAR <= len(rows) <= _MOST_FAR * n_rows:
            return nothing
    far = np.flatnonzero(along > 1.1 * stats.norm.isf(0.001 / n_rows))
    return (far, float(np.median(along[far]))) if len(far) >= _LEAST_FAR else nothing
