r"""Draws of the effects on a target given its set of terms: noise, coefficients, intercept, covariates.

.. math:: \sigma^2 \mid \gamma, y, \qquad \beta \mid \sigma^2, \gamma, y, \qquad
          (\alpha, \delta) \mid \beta, \sigma^2, y
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .terms import TermMap, effects_basis, freed, units_of

__all__ = ["Effects", "Prepared", "draw_effects", "prepared"]


@dataclass(frozen=True, eq=False)
class Effects:
    """Draws of all that leads to a target, in the fit's units.

    Attributes
    ----------
    terms : TermMap
    weights : ndarray (draw, term)
    intercept : ndarray (draw,)
    covariates : ndarray (draw, column)
        Empty without any.
    noise_sd : ndarray (draw,)
    """

    terms: TermMap
    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]
    covariates: NDArray[np.float64]
    noise_sd: NDArray[np.float64]


class Prepared(NamedTuple):
    """What the targets of the same steps share.

    Attributes
    ----------
    terms : TermMap
    columns : ndarray (step, term)
    left : ndarray (step, term)
        The same less what covariates explain, of mean square 1.
    size : ndarray (term,)
        That they were divided by.
    basis : ndarray (step, effect)
        Of the covariates.
    always : tuple of ndarray
        Singular value decomposition of the intercept and the covariates: u, inverse values, v.
    """

    terms: TermMap
    columns: NDArray[np.float64]
    left: NDArray[np.float64]
    size: NDArray[np.float64]
    basis: NDArray[np.float64]
    always: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def prepared(terms: TermMap, inputs: NDArray[np.float64], covariates: NDArray[np.float64] | None) -> Prepared:
    """What the targets of some steps share.

    Parameters
    ----------
    terms : TermMap
    inputs : ndarray (step, column)
    covariates : ndarray (step, column) or None
    """
    columns, n = terms.columns(inputs), len(inputs)
    basis = np.zeros((n, 0)) if covariates is None else effects_basis(covariates)
    left, size = _freed(columns, basis)
    always = np.ones((n, 1)) if covariates is None else np.concatenate([np.ones((n, 1)), covariates], 1)
    u, s, v = np.linalg.svd(always, full_matrices=False)
    inverse = np.where(s > 1e-9 * s[0], 1 / np.maximum(s, 1e-300), 0.0)
    return Prepared(terms, columns, left, size, basis, (u, inverse, v))


def draw_effects(
    of_steps: Prepared,
    target: NDArray[np.float64],
    sets: NDArray[np.integer],
    slab: NDArray[np.float64],
    rng: np.random.Generator,
) -> Effects:
    """Draws of one target's effects.

    Parameters
    ----------
    of_steps : Prepared
    target : ndarray (step,)
    sets : ndarray of int (draw, term)
        Terms of each draw, -1 where there are fewer.
    slab : ndarray (term,)
    rng : Generator
    """
    columns, left, size = of_steps.columns, of_steps.left, of_steps.size
    u, inverse, v = of_steps.always
    units = units_of(target[:, None])
    y = units.of(target[:, None])
    y_left, y_size = _freed(y, of_steps.basis)
    freedom = len(y) - 1 - of_steps.basis.shape[1]
    weights, noise_sd = np.zeros((len(sets), columns.shape[1])), np.zeros(len(sets))
    beside = np.zeros((len(sets), v.shape[1]))
    for draw, with_blanks in enumerate(sets):
        chosen = with_blanks[with_blanks >= 0]
        a = left[:, chosen]
        precision = a.T @ a + np.diag(1 / slab[chosen])
        with_target = a.T @ y_left[:, 0]
        mean = np.linalg.solve(precision, with_target)
        square = float(y_left[:, 0] @ y_left[:, 0] - with_target @ mean)
        sd = np.sqrt(square / rng.chisquare(freedom))
        upper = np.linalg.cholesky(precision).T
        beta = mean + sd * np.linalg.solve(upper, rng.normal(size=len(chosen)))
        # back to terms and target as they were before covariates were taken off
        beta, sd = beta * y_size[0] / size[chosen], sd * y_size[0]
        weights[draw, chosen], noise_sd[draw] = beta, sd
        rest = u.T @ (y[:, 0] - columns[:, chosen] @ beta)
        beside[draw] = v.T @ (inverse * (rest + sd * rng.normal(size=len(inverse))))
    scale = units.size[0]
    intercept = units.mean[0] + scale * beside[:, 0]
    return Effects(of_steps.terms, scale * weights, intercept, scale * beside[:, 1:], scale * noise_sd)


def _freed(
    values: NDArray[np.float64], basis: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """As `terms.freed`, and the sizes that columns were divided by."""
    if not basis.shape[1]:
        return values, np.ones(values.shape[1])
    left = values - basis @ (basis.T @ values)
    size = np.sqrt((left**2).mean(0))
    return freed(values, basis), np.where(size > 0, size, 1.0)
