r"""Covariates whose effects are no lines: what they leave of the columns depends on them still.

Effects are linear (`..design`), and what they leave is taken for factors. A curve, an effect that differs
between the levels of another covariate, means of the rows that share a value (schools, of which the covariate
says something), rows that are alike where they are near one another in a covariate (days, places): each
moves many columns together, as a factor does. Functions :math:`B` of the covariates, orthogonal to the
covariates themselves, stand for each, and a multivariate analysis of variance says whether the leading
principal components :math:`Y`, as normal scores, depend on them. With canonical correlations :math:`\rho_i`,

.. math:: -\big(n - 1 - q - \tfrac{1}{2} (d + r + 1)\big) \sum_i \log(1 - \rho_i^2) \sim \chi^2_{d r}

(Wilks' lambda, Bartlett's approximation), for rows that are independent, d components, r functions, and q
effects that were taken out before.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..._utils.wording import listed
from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, components_of

if TYPE_CHECKING:
    from ..design import Design, Term
    from ..table import Table

__all__ = ["Beyond", "beyond_covariates", "what_is_beyond"]

Array = NDArray[np.float64]

_LEAST_ROWS = 40
_MOST_TERMS = 6  # that are multiplied with one another
_MOST_LEVELS = 12  # of a category that is
_WAVES = 15  # cosines of a number's rank: rows are near that are within 1/15 of all
_WAVES_OF_SEVERAL = {2: 5, 3: 3}  # of each of so many numbers, for maps
_ROWS_A_VALUE = 4  # on average, of a number whose values are looked at each by itself
_FREE_ROWS = 20  # beside the functions
_SAME = 1e-6  # of a function's size: what others leave of one that is a combination of them
# Of 1,350 tables with linear effects none is told (seeds 1000 to 1299: normal, rounded, skewed, heavy-tailed
# covariates, curved features, 80 to 1,000 rows); of 135 with curves, products, clusters, maps and days all
# but three of those with the weakest clusters.
_CHANCE = 1e-6
# Tuning tables (1000 to 1004 of each kind) had false edges from a share of .49 on, and none up to .44.
_DOUBTED = 0.4

_REMEDIES = {
    "curve": "give powers of it as well, such as its square, or give it in classes",
    "product": "give their product as well, or fit each level by itself",
    "values": "say which row is of which cluster (groups=) in place of it: rows of one cluster are no "
    "independent evidence of its effect",
    "near": "give places or periods that are alike as groups (groups=); a time series is for "
    "LatentTransition",
}


class _Shape(NamedTuple):
    """Functions of covariates.

    Attributes
    ----------
    kind : {"curve", "product", "values", "near"}
    names : tuple of str
        Of the covariates.
    basis : ndarray (row, function)
    """

    kind: str
    names: tuple[str, ...]
    basis: Array


class Beyond(NamedTuple):
    """What depends on covariates beyond lines.

    Attributes
    ----------
    kind : {"curve", "product", "values", "near"}
    said : str
        The same as a sentence, with names.
    share : float
        Of the variance of the combination of components that depends most.
    """

    kind: str
    said: str
    share: float


class _Covariate(NamedTuple):
    """A covariate's coded columns, less their means, (row, column)."""

    name: str
    columns: Array
    is_number: bool


def beyond_covariates(cells: Cells, table: Table) -> list[Finding]:
    """What of the columns still depends on covariates that were given, in one finding at most.

    Parameters
    ----------
    cells : Cells
        Under the normal likelihood; of others nothing is said, since what covariates leave of their columns
        is not known before the fit.
    table : Table
        Of the same rows.

    Returns
    -------
    list of Finding
        `size` is the share of a combination of the columns that the covariates' functions explain.
    """
    design = table.design
    if design is None or not (cells.is_whole and cells.is_normal) or len(cells.view) < _LEAST_ROWS:
        return []
    if not 3 <= cells.view.shape[1] <= MOST_COLUMNS:
        return []
    rows = table.per_row["design"].astype(float)
    beyond = what_is_beyond(components_of(cells), design, rows, _CHANCE)
    if beyond is None:
        return []
    return [
        Finding(
            "covariates",
            f"{beyond.said}; what lines leave is {beyond.share:.0%} of a combination of the columns, and "
            "looks like a factor",
            _REMEDIES[beyond.kind],
            severity="doubt" if beyond.share >= _DOUBTED else "note",
            source="data",
            size=beyond.share,
        )
    ]


def what_is_beyond(
    components: Array, design: Design, rows: Array, chance: float, beside: Array | None = None
) -> Beyond | None:
    """What components depend on beside lines of covariates, in the simplest shapes that suffice.

    Parameters
    ----------
    components : ndarray (row, component)
        Close to normal ones.
    design : Design
    rows : ndarray (row, effect)
        Its design matrix.
    chance : float
        That anything is seen where rows are independent and effects are lines, at most.
    beside : ndarray (row, effect), optional
        What components are regressed on, too.
    """
    beside = np.zeros((len(rows), 0)) if beside is None else beside
    taken = lines = _orthonormal(np.concatenate([np.ones((len(rows), 1)), rows, beside], 1))
    covariates = _covariates(design.terms, design.coded(rows))
    simple = [*_curves(covariates), *_products(covariates)]
    complex_kinds = [_values(covariates), _nearness(covariates)]
    most = chance / max(len(simple) + sum(map(len, complex_kinds)), 1)
    chosen: list[_Shape] = []
    while simple:  # the clearest first: a curve of one covariate looks like a product of two that correlate
        chances = [_chance(components, taken, shape.basis) for shape in simple]
        if min(chances) > most:
            break
        chosen.append(simple.pop(int(np.argmin(chances))))
        taken = np.concatenate([taken, _beyond(taken, chosen[-1].basis)], 1)
    for shapes in complex_kinds:
        chances = [_chance(components, taken, shape.basis) for shape in shapes]
        if chances and min(chances) <= most:
            chosen = [shapes[int(np.argmin(chances))]]
            break
    if not chosen:
        return None
    share = _share(components, lines, np.concatenate([shape.basis for shape in chosen], 1))
    kind = chosen[0].kind
    names = [" and ".join(map(repr, shape.names)) for shape in chosen if shape.kind == kind]
    said = {
        "curve": f"effects of {listed(names)} are curves"
        if names[1:]
        else f"the effect of {names[0]} is a curve",
        "product": f"effects of {', and of '.join(names)} depend on each other",
        "values": f"rows with one value of {names[0]} are alike beyond its effect, as pupils of a school are",
        "near": f"rows near one another in {names[0]} are alike beyond its effect",
    }
    return Beyond(kind, said[kind], share)


# ---- functions of covariates -------------------------------------------------------------------------------
def _covariates(terms: Iterable[Term], columns: Array) -> list[_Covariate]:
    at, covariates = 0, []
    for term in terms:
        values = columns[:, at : at + term.width]
        covariates.append(_Covariate(term.name, values / values.std(0), not term.levels))
        at += term.width
    return covariates


def _curves(covariates: list[_Covariate]) -> list[_Shape]:
    """Square and cube of each number, of what is not far out."""
    shapes = []
    for name, columns, is_number in covariates:
        if is_number:
            within = np.clip(columns, -3, 3)
            shapes.append(_Shape("curve", (name,), np.concatenate([within**2, within**3], 1)))
    return shapes


def _products(covariates: list[_Covariate]) -> list[_Shape]:
    """Products of two covariates' columns."""
    few = [c for c in covariates if c.columns.shape[1] <= _MOST_LEVELS]
    if len(few) > _MOST_TERMS:
        return []
    shapes = []
    for a, b in combinations(few, 2):
        products = np.clip(a.columns, -3, 3)[:, :, None] * np.clip(b.columns, -3, 3)[:, None]
        shapes.append(_Shape("product", (a.name, b.name), products.reshape(len(products), -1)))
    return shapes


def _values(covariates: list[_Covariate]) -> list[_Shape]:
    """Indicators of the values of numbers that have few."""
    shapes = []
    for name, columns, is_number in covariates:
        values, number = np.unique(columns.round(9), return_inverse=True)
        if is_number and 2 < len(values) <= len(columns) / _ROWS_A_VALUE:
            indicators = (number.reshape(-1, 1) == np.arange(len(values))).astype(float)
            shapes.append(_Shape("values", (name,), indicators))
    return shapes


def _nearness(covariates: list[_Covariate]) -> list[_Shape]:
    """Cosines of the rank of each number, and products of them of two or three, as on a map."""
    numbers = [c for c in covariates if c.is_number]

    def cosines(covariate: _Covariate, n_waves: int) -> Array:
        rank = (stats.rankdata(covariate.columns) - 0.5) / len(covariate.columns)
        waves: Array = np.cos(np.pi * np.outer(rank, np.arange(n_waves)))
        return waves

    shapes = [_Shape("near", (number.name,), cosines(number, _WAVES)[:, 1:]) for number in numbers]
    if len(numbers) in _WAVES_OF_SEVERAL:
        products = np.ones((len(numbers[0].columns), 1))
        for number in numbers:
            waves = cosines(number, _WAVES_OF_SEVERAL[len(numbers)])
            products = (products[:, :, None] * waves[:, None]).reshape(len(waves), -1)
        shapes.append(_Shape("near", tuple(number.name for number in numbers), products[:, 1:]))
    return shapes


# ---- dependence on them ------------------------------------------------------------------------------------
def _orthonormal(columns: Array) -> Array:
    """An orthonormal basis of the space of columns, of any units."""
    size = np.linalg.norm(columns, axis=0)
    u, s, _ = np.linalg.svd(columns[:, size > 0] / size[size > 0], full_matrices=False)
    return u[:, s > _SAME * s.max(initial=0.0)]


def _beyond(taken: Array, basis: Array) -> Array:
    """An orthonormal basis of what is in the space of a basis beside that of another."""
    left = basis - taken @ (taken.T @ basis)
    size = np.linalg.norm(basis - basis.mean(0), axis=0)
    return _orthonormal(left[:, np.linalg.norm(left, axis=0) > _SAME * size])


def _correlations(components: Array, taken: Array, basis: Array) -> tuple[Array, int]:
    """Squares of canonical correlations, and how many functions there are beside those taken before."""
    functions = _beyond(taken, basis)
    left = _orthonormal(components - taken @ (taken.T @ components))
    squares = np.asarray(np.linalg.svd(functions.T @ left, compute_uv=False), dtype=np.float64) ** 2
    return squares, functions.shape[1]


def _chance(components: Array, taken: Array, basis: Array) -> float:
    """Chance that independent rows have components that functions explain as well."""
    squares, r = _correlations(components, taken, basis)
    n, d = components.shape
    free = n - taken.shape[1] - 0.5 * (d + r + 1)
    if not r or free < _FREE_ROWS:
        return 1.0
    return float(stats.chi2.sf(-free * np.log1p(-np.minimum(squares, 1 - 1e-12)).sum(), d * r))


def _share(components: Array, taken: Array, basis: Array) -> float:
    """The largest squared canonical correlation, beyond that of noise (Marchenko and Pastur's edge)."""
    squares, r = _correlations(components, taken, basis)
    n, d = components.shape
    by_chance = (np.sqrt(d) + np.sqrt(r)) ** 2 / (n - taken.shape[1])
    return float(max(squares.max() - by_chance, 0.0) / max(1 - by_chance, 1e-9))
