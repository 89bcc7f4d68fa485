r"""Regression of factors that nobody has seen on covariates, by Gibbs sampling, given a measurement model.

.. math:: z_i \sim N\Big(B^\top d_i + \sum_g U_g^\top e_{g(i)},\; \Omega^{-1}\Big), \qquad
          U_{glk} \sim N(0, \tau_{gk}^2), \qquad x_i \sim p(x_i \mid z_i)

Scores are no data: they are pulled towards 0, the more the fewer cells speak of a factor, and slopes of a
regression on them with them (of three items with loadings of .6 by a third). Here rows' factors are drawn
together with their regression. Loadings, noise and correlations beside it come from Markov chains that know
nothing of the covariates: what a factor is does not change with what it is regressed on (Burt 1976; Rosseel
and Loh 2022, Psychological Methods 27(4); a "cut" posterior, Plummer 2015, Statistics and Computing 25).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, wishart

__all__ = ["Regression", "RowDraws", "direct_effects", "regressed"]

Array = NDArray[np.float64]
RowDraws = Callable[[Array, Array, Array, np.random.Generator], tuple[Array, Array]]

_SLOPE_SD = 1.0  # of the prior, of a standardised covariate on a factor with a standard deviation of 1
_GROUP_SCALE = 0.5  # median of the half-Cauchy prior of groups' standard deviation, that of a factor being 1
_INNER, _WARM_UP = 3, 30  # sweeps for each draw of the measurement model, and before the first


class Regression(NamedTuple):
    """What factors are regressed on.

    Attributes
    ----------
    slopes : ndarray (row, effect)
        Of mean 0 and mean square 1, with normal priors that hardly matter.
    groups : sequence of (ndarray, ndarray)
        For each grouping its design (row, effect), and the groups in its terms, (group, effect).
    """

    slopes: Array
    groups: Sequence[tuple[Array, Array]] = ()


class _State:
    """Coefficients (effect, factor), precision of what they leave, variances of groups, rows' factors."""

    def __init__(self, design: Regression, start: Array):
        self.z = start.copy()
        self.whole = np.concatenate([design.slopes, *(rows for rows, _ in design.groups)], 1)
        self.square = self.whole.T @ self.whole
        self.contrasts = [contrasts for _, contrasts in design.groups]
        at = np.cumsum([design.slopes.shape[1], *(rows.shape[1] for rows, _ in design.groups)])
        self.places = [slice(a, b) for a, b in zip(at[:-1], at[1:], strict=True)]
        self.n_slopes = design.slopes.shape[1]
        k = start.shape[1]
        self.coefficients = np.zeros((self.whole.shape[1], k))
        self.precision = np.eye(k)
        self.variance = np.full((len(self.places), k), _GROUP_SCALE**2)
        self.mixing = np.full((len(self.places), k), 1 / _GROUP_SCALE**2)

    def mean(self) -> Array:
        return self.whole @ self.coefficients

    def sweep(self, rng: np.random.Generator) -> None:
        """New coefficients, precision and variances given the rows' factors."""
        n, k = self.z.shape
        pull = self.whole.T @ self.z
        prior = np.zeros_like(self.square)
        prior[range(self.n_slopes), range(self.n_slopes)] = _SLOPE_SD**-2
        for f in range(k):
            for place, of_group, contrasts in zip(
                self.places, self.variance[:, f], self.contrasts, strict=True
            ):
                prior[place, place] = contrasts.T @ contrasts / of_group
            others = np.delete(np.arange(k), f)
            shift = self.precision[f, others] / self.precision[f, f]
            left = pull[:, f] + (pull[:, others] - self.square @ self.coefficients[:, others]) @ shift
            root = np.linalg.cholesky(self.precision[f, f] * self.square + prior)
            centred = np.linalg.solve(root, self.precision[f, f] * left) + rng.standard_normal(len(root))
            self.coefficients[:, f] = np.linalg.solve(root.T, centred)
        residual = self.z - self.mean()
        scale = np.linalg.inv(residual.T @ residual + np.eye(k))
        drawn = wishart.rvs(n + k + 1, (scale + scale.T) / 2, random_state=rng)
        self.precision = np.reshape(drawn, (k, k))
        for g, (place, contrasts) in enumerate(zip(self.places, self.contrasts, strict=True)):
            # a half-Cauchy standard deviation is two inverse gammas (Makalic and Schmidt 2016)
            squares = ((contrasts @ self.coefficients[place]) ** 2).sum(0)
            rate = self.mixing[g] + squares / 2
            self.variance[g] = rate / rng.gamma((contrasts.shape[1] + 1) / 2, size=k)
            self.mixing[g] = rng.gamma(1.0, 1 / (1 / self.variance[g] + _GROUP_SCALE**-2))


def regressed(
    design: Regression, draws: Sequence[RowDraws], start: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws of the coefficients, one for each draw of the measurement model.

    Parameters
    ----------
    design : Regression
    draws : sequence of callable
        Each, for one draw of the measurement model: of rows' present factors, the means and the precision of
        their prior, new factors (row, factor) and the slopes of the cells' log densities (row, feature).
    start : ndarray (row, factor)
        Where factors begin.
    rng : numpy.random.Generator

    Returns
    -------
    coefficients : ndarray (draw, effect, factor)
    slopes : ndarray (row, feature)
        Means over all draws.
    """
    state, kept, total = _State(design, start), [], np.zeros(())
    for _ in range(_WARM_UP):
        state.z, _ = draws[0](state.z, state.mean(), state.precision, rng)
        state.sweep(rng)
    for rows in draws:
        for _ in range(_INNER):
            state.z, slopes = rows(state.z, state.mean(), state.precision, rng)
            state.sweep(rng)
            total = total + slopes
        kept.append(state.coefficients.copy())
    return np.stack(kept), total / (_INNER * len(draws))


def direct_effects(slopes: Array, design: Array, weight: Array) -> tuple[float, Array]:
    r"""Score test of effects that go past the factors, and how much each feature speaks for one.

    By Fisher's identity the derivative of a row's log density in a direct effect is the posterior mean of
    that of its cell. Given the slopes on factors and without a direct effect, the statistic has a chi-squared
    distribution with (features - factors) degrees of freedom for each column of the design.

    Parameters
    ----------
    slopes : ndarray (row, feature)
        Posterior means of the derivatives of cells' log densities in their linear predictors.
    design : ndarray (row, effect)
        Of one covariate.
    weight : ndarray (feature, factor)

    Returns
    -------
    p_value : float
    z_score : ndarray (feature,)
        The largest over the covariate's columns, in absolute value.
    """
    spread = slopes.T @ slopes / len(slopes)
    across = weight.T @ spread
    residual = slopes - (slopes @ weight) @ np.linalg.pinv(across @ weight, rcond=1e-8) @ across
    spread = residual.T @ residual / len(slopes)
    score = design.T @ residual / np.sqrt(len(slopes))  # effect, feature
    inverse = np.linalg.pinv(spread, rcond=1e-8, hermitian=True)
    freedom = np.linalg.matrix_rank(spread, tol=1e-8 * np.linalg.norm(spread, 2), hermitian=True)
    statistic = float(((score @ inverse) * score).sum())
    sd = np.sqrt(spread.diagonal())
    z_score = np.where(sd > 1e-8 * sd.max(), np.abs(score) / np.where(sd > 0, sd, 1.0), 0.0).max(0)
    return float(chi2.sf(statistic, max(1, design.shape[1] * int(freedom)))), z_score
