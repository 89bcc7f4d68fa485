r"""The terms that a target may be a sum of: lines, curves and products of its candidate parents.

A candidate x (a variable at a lag, or an action) gives the line x, Legendre polynomials of degree 2 to 5 of
its rank (shapes that a line cannot have, bounded however heavy x's tails), and its product with every other
candidate. Columns are centred and have unit variance. A candidate is a parent where any of its terms is in
the sum. A categorical action is one candidate with a line for each of its contrasts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["CURVES", "LINE", "PRODUCT", "Terms", "far_cells", "terms_of", "winsorised"]

LINE, CURVES, PRODUCT = 0, 1, 2
_DEGREES = (2, 3, 4, 5)
_LEAST_VALUES = 8  # different values of a column of which a curve is more than a line
_MOST_SDS = 4.0  # robust standard deviations at which values are cut off: one outlier is no line
_FAR_SDS = 2 * _MOST_SDS  # from which a reader is told; heavy tails have some beyond the cut


class Terms(NamedTuple):
    """Columns of the regression, and what each is made of.

    Attributes
    ----------
    columns : ndarray (step, term)
        Centred, mean square 1.
    kind : ndarray of int (term,)
        `LINE`, `CURVES` or `PRODUCT`.
    parents : ndarray of int (term, 2)
        The candidates in it; twice the same, but for products.
    """

    columns: NDArray[np.float64]
    kind: NDArray[np.intp]
    parents: NDArray[np.intp]


def winsorised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns in standard deviations about their mean, values beyond four robust ones cut off.

    Parameters
    ----------
    values : ndarray (step, column)
    """
    middle, spread = _middle(values)
    cut = np.clip(values, middle - _MOST_SDS * spread, middle + _MOST_SDS * spread)
    return _standardised(cut)


def far_cells(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """How many cells of each column are so far out that cutting them off changes what they say, (column,).

    Parameters
    ----------
    values : ndarray (step, column)
        NaN where not seen.
    """
    middle, spread = _middle(values)
    far: NDArray[np.intp] = (np.abs(values - middle) > _FAR_SDS * spread).sum(0)
    return far


def _middle(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median and robust standard deviation of each column, infinite where more than half is one value."""
    middle = np.nanmedian(values, axis=0)
    spread = 1.4826 * np.nanmedian(np.abs(values - middle), axis=0)
    return middle, np.where(spread > 0, spread, np.inf)


def terms_of(
    inputs: NDArray[np.float64],
    curves: bool = True,
    products: bool = True,
    candidate: NDArray[np.intp] | None = None,
) -> Terms:
    """All terms of some candidates.

    Parameters
    ----------
    inputs : ndarray (step, column)
    curves, products : bool
        Whether there are any but lines.
    candidate : ndarray of int (column,), optional
        That each column belongs to; default its own.
    """
    candidate = np.arange(inputs.shape[1]) if candidate is None else candidate
    x = winsorised(inputs)
    n, p = x.shape
    columns, kind, parents = [x], [np.full(p, LINE)], [np.repeat(np.arange(p)[:, None], 2, 1)]
    if curves:
        bent = [j for j in range(p) if len(np.unique(x[:, j])) >= _LEAST_VALUES]
        for j in bent:
            rank = 2 * (rankdata(x[:, j]) - 0.5) / n - 1
            shapes = np.stack([legendre.legval(rank, np.eye(degree + 1)[degree]) for degree in _DEGREES], 1)
            line = x[:, [j]]
            shapes = shapes - shapes.mean(0)
            shapes = shapes - line * (line * shapes).mean(0)  # what a line has of it is the line's
            columns.append(_standardised(shapes))
            kind.append(np.full(len(_DEGREES), CURVES))
            parents.append(np.full((len(_DEGREES), 2), j))
    if products and p > 1:
        first, second = np.triu_indices(p, 1)
        apart = candidate[first] != candidate[second]
        first, second = first[apart], second[apart]
        both = x[:, first] * x[:, second]
        varies = both.std(0) > 1e-6
        columns.append(_standardised(both[:, varies]))
        kind.append(np.full(int(varies.sum()), PRODUCT))
        parents.append(np.stack([first, second], 1)[varies])
    return Terms(np.concatenate(columns, 1), np.concatenate(kind), candidate[np.concatenate(parents)])


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values = values - values.mean(0)
    size = np.sqrt((values**2).mean(0))
    return values / np.where(size > 0, size, 1.0)
