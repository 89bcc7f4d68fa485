r"""The terms that a target may be a sum of: lines, curves and products of its candidate parents.

A candidate x (a variable at a lag, or an action) gives the line x, Legendre polynomials of degree 2 to 5 of
its rank (shapes that a line cannot have, bounded however heavy x's tails), and its product with every other
candidate. Columns are centred and have unit variance. A candidate is a parent where any of its terms is in
the sum. A categorical action is one candidate with a line for each of its contrasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

__all__ = [
    "CURVES",
    "LINE",
    "PRODUCT",
    "TermMap",
    "Terms",
    "Units",
    "effects_basis",
    "far_cells",
    "freed",
    "term_map",
    "terms_of",
    "units_of",
    "winsorised",
]

LINE, CURVES, PRODUCT = 0, 1, 2
_DEGREES = (2, 3, 4, 5)
_LEAST_VALUES = 8  # different values of a column of which a curve is more than a line
_MOST_SDS = 4.0  # robust standard deviations at which values are cut off: one outlier is no line
_SAME = 1e-6  # of a column's standard deviation: what is left of one that follows from covariates
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


class Units(NamedTuple):
    """How columns are cut off and standardised.

    Attributes
    ----------
    low, high, mean, size : ndarray (column,)
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: NDArray[np.float64]
    size: NDArray[np.float64]

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Columns in standard deviations about their mean, values far out cut off.

        Parameters
        ----------
        values : ndarray (step, column)
        """
        return np.asarray((np.clip(values, self.low, self.high) - self.mean) / self.size)


def units_of(values: NDArray[np.float64]) -> Units:
    """Units of columns: values beyond four robust standard deviations are cut off.

    Parameters
    ----------
    values : ndarray (step, column)
    """
    middle, spread = _middle(values)
    low, high = middle - _MOST_SDS * spread, middle + _MOST_SDS * spread
    cut = np.clip(values, low, high)
    mean = cut.mean(0)
    return Units(low, high, mean, _size(cut - mean))


def winsorised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns in standard deviations about their mean, values beyond four robust ones cut off.

    Parameters
    ----------
    values : ndarray (step, column)
    """
    return units_of(values).of(values)


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


@dataclass(frozen=True, eq=False)
class TermMap:
    """How inputs become terms, as it was set by the steps of a fit.

    Attributes
    ----------
    units : Units
        Of the lines.
    ordered : ndarray (step, column)
        The lines' values, each column sorted.
    bent : list of int
        Columns that have curves.
    shapes : list of tuple of ndarray (degree,)
        Of each of them: means, what a line has of the shapes, and their sizes.
    pairs : ndarray of int (product, 2)
        Columns of the products.
    product_mean, product_size : ndarray (product,)
    kind, parents : ndarray
        As in `Terms`.
    """

    units: Units
    ordered: NDArray[np.float64]
    bent: list[int]
    shapes: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]
    pairs: NDArray[np.intp]
    product_mean: NDArray[np.float64]
    product_size: NDArray[np.float64]
    kind: NDArray[np.intp]
    parents: NDArray[np.intp]

    def columns(
        self, inputs: NDArray[np.float64], used: NDArray[np.intp] | None = None
    ) -> NDArray[np.float64]:
        """Terms of some inputs, (step, term).

        Parameters
        ----------
        inputs : ndarray (step, column)
        used : ndarray of int (term,), optional
            Those that are wanted; default all.
        """
        x = self.units.of(inputs)
        if used is not None:
            return self._some(x, used)
        columns = [x]
        for j, (mean, of_line, size) in zip(self.bent, self.shapes, strict=True):
            shapes = _legendre(x[:, j], self.ordered[:, j]) - mean
            columns.append((shapes - x[:, [j]] * of_line) / size)
        if len(self.pairs):
            first, second = self.pairs.T
            columns.append((x[:, first] * x[:, second] - self.product_mean) / self.product_size)
        return np.concatenate(columns, 1)

    def _some(self, x: NDArray[np.float64], used: NDArray[np.intp]) -> NDArray[np.float64]:
        n_lines, n_shapes = x.shape[1], len(_DEGREES)
        first_pair = n_lines + n_shapes * len(self.bent)
        columns = np.empty((len(x), len(used)))
        shapes: dict[int, NDArray[np.float64]] = {}
        for at, term in enumerate(used):
            if term < n_lines:
                columns[:, at] = x[:, term]
            elif term < first_pair:
                which, degree = divmod(int(term) - n_lines, n_shapes)
                if which not in shapes:
                    j, (mean, of_line, size) = self.bent[which], self.shapes[which]
                    curve = _legendre(x[:, j], self.ordered[:, j]) - mean
                    shapes[which] = (curve - x[:, [j]] * of_line) / size
                columns[:, at] = shapes[which][:, degree]
            else:
                pair = int(term) - first_pair
                first, second = self.pairs[pair]
                both = x[:, first] * x[:, second]
                columns[:, at] = (both - self.product_mean[pair]) / self.product_size[pair]
        return columns


def term_map(
    inputs: NDArray[np.float64],
    curves: bool = True,
    products: bool = True,
    candidate: NDArray[np.intp] | None = None,
) -> TermMap:
    """How the inputs of a fit become terms.

    Parameters
    ----------
    inputs : ndarray (step, column)
    curves, products : bool
        Whether there are any but lines.
    candidate : ndarray of int (column,), optional
        That each column belongs to; default its own.
    """
    candidate = np.arange(inputs.shape[1]) if candidate is None else candidate
    units = units_of(inputs)
    x = units.of(inputs)
    p = x.shape[1]
    ordered = np.sort(x, axis=0)
    bent = [j for j in range(p) if curves and len(np.unique(x[:, j])) >= _LEAST_VALUES]
    kind, parents = [np.full(p, LINE)], [np.repeat(np.arange(p)[:, None], 2, 1)]
    made = []
    for j in bent:
        shapes, line = _legendre(x[:, j], ordered[:, j]), x[:, [j]]
        mean = shapes.mean(0)
        of_line = (line * (shapes - mean)).mean(0)  # what a line has of it is the line's
        made.append((mean, of_line, _size(shapes - mean - line * of_line)))
        kind.append(np.full(len(_DEGREES), CURVES))
        parents.append(np.full((len(_DEGREES), 2), j))
    pairs, product_mean, product_size = np.zeros((0, 2), int), np.zeros(0), np.zeros(0)
    if products and p > 1:
        first, second = np.triu_indices(p, 1)
        apart = candidate[first] != candidate[second]
        first, second = first[apart], second[apart]
        both = x[:, first] * x[:, second]
        varies = both.std(0) > 1e-6
        pairs = np.stack([first, second], 1)[varies]
        product_mean = both[:, varies].mean(0)
        product_size = _size(both[:, varies] - product_mean)
        kind.append(np.full(len(pairs), PRODUCT))
        parents.append(pairs)
    return TermMap(
        units, ordered, bent, made, pairs, product_mean, product_size,
        np.concatenate(kind), candidate[np.concatenate(parents)],
    )  # fmt: skip


def terms_of(
    inputs: NDArray[np.float64],
    curves: bool = True,
    products: bool = True,
    candidate: NDArray[np.intp] | None = None,
) -> Terms:
    """All terms of some candidates.

    Parameters
    ----------
    inputs, curves, products, candidate
        As of `term_map`.
    """
    made = term_map(inputs, curves, products, candidate)
    return Terms(made.columns(inputs), made.kind, made.parents)


def effects_basis(covariates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal columns of mean 0 that span those of covariates, (step, effect).

    Parameters
    ----------
    covariates : ndarray (step, column)
    """
    centred = covariates - covariates.mean(0)
    centred = centred / _size(centred)
    left, s, _ = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(left[:, s > _SAME * np.sqrt(len(centred))])


def freed(values: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns less what covariates explain of them, of mean square 1; 0 where that is all.

    Parameters
    ----------
    values : ndarray (step, column)
        Of mean square 1.
    basis : ndarray (step, effect)
        `effects_basis`.
    """
    left = values - basis @ (basis.T @ values)
    size = np.sqrt((left**2).mean(0))
    return np.asarray(left * np.where(size > _SAME, 1 / np.maximum(size, _SAME), 0.0))


def _legendre(x: NDArray[np.float64], ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """Legendre polynomials of the rank of x among the ordered values, in (-1, 1): (step, degree)."""
    n = len(ordered)
    below, up_to = (np.searchsorted(ordered, x, side) for side in ("left", "right"))
    rank = (below + up_to + 1) / 2  # of values that are tied the mean
    at = (2 * (rank - 0.5) / n - 1).clip(-1, 1)
    return np.stack([legendre.legval(at, np.eye(degree + 1)[degree]) for degree in _DEGREES], 1)


def _size(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root mean square of columns, 1 where that is 0."""
    size = np.sqrt((centred**2).mean(0))
    return np.where(size > 0, size, 1.0)
