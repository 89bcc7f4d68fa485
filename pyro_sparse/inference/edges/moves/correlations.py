r"""Correlations of factors given the factors, one by one, by random-walk Metropolis.

.. math:: p(C \mid Z) \propto p(C)\, |C|^{-N/2} \exp(-\tfrac12 \operatorname{tr} C^{-1} Z^\top Z)

with an `LKJ` prior p(C), or a mixture of several. A step is as long as N rows let it be, and shorter for
a correlation near 1 or -1; the proposal is not symmetric, and its densities both ways are in the acceptance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....priors import LKJ
from ._compiled import AVAILABLE, correlation_steps

__all__ = ["moved_correlations"]

Array = NDArray[np.float64]
_STEP = 2.0  # standard errors of a correlation of independent factors
_SINGULAR = -20.0  # log determinant below which an inverse has lost its digits


def moved_correlations(
    cov: Array, whole: Array, n_rows: int, pairs: NDArray[np.intp], prior: LKJ, rng: np.random.Generator
) -> Array:
    """The next correlations of every chain.

    Parameters
    ----------
    cov : ndarray (chain, factor, factor)
        Correlation matrices.
    whole : ndarray (chain, factor, factor)
        Z'Z.
    n_rows : int
    pairs : ndarray of int (pair, 2)
        Which ones move, in this order.
    prior : LKJ
    rng : numpy.random.Generator
    """
    step = _STEP / np.sqrt(max(n_rows, 4))
    if AVAILABLE and type(prior) is LKJ:
        return _compiled_steps(cov, whole, n_rows, pairs, step, prior, rng)
    cov, n_chains = cov.copy(), len(cov)
    level = _log_density(cov, whole, n_rows, prior)[1]
    for i, j in pairs:
        now = cov[:, i, j]
        size = step * (1 - now**2)
        new = now + size * rng.standard_normal(n_chains)
        possible = np.abs(new) < 1 - 1e-9
        tried = cov.copy()
        tried[:, i, j] = tried[:, j, i] = np.where(possible, new, now)
        with np.errstate(all="ignore"):
            # Without factor i it is as before: at most one eigenvalue may have changed its sign.
            definite, there = _log_density(tried, whole, n_rows, prior)
            inside, back = definite & possible, step * (1 - new**2)
            ratio = np.log(size / back) - 0.5 * (new - now) ** 2 * (1 / back**2 - 1 / size**2)
            taken = inside & (np.log(rng.random(n_chains)) < there - level + ratio)
        cov = np.where(taken[:, None, None], tried, cov)
        level = np.where(taken, there, level)
    return cov


def _compiled_steps(
    cov: Array,
    whole: Array,
    n_rows: int,
    pairs: NDArray[np.intp],
    step: float,
    prior: LKJ,
    rng: np.random.Generator,
) -> Array:
    """The same in one call, with the same random numbers."""
    cov, drawn = np.array(cov, dtype=float, order="C"), np.empty((2, len(pairs), len(cov)))
    for m in range(len(pairs)):
        drawn[0, m], drawn[1, m] = rng.standard_normal(len(cov)), rng.random(len(cov))
    correlation_steps(
        cov, np.ascontiguousarray(whole), n_rows, np.ascontiguousarray(pairs), step, _SINGULAR,
        np.array(prior.concentration), prior.log_weights(cov.shape[-1]), drawn[0], np.log(drawn[1]),
    )  # fmt: skip
    return cov


def _log_density(cov: Array, whole: Array, n_rows: int, prior: LKJ) -> tuple[NDArray[np.bool_], Array]:
    """Whether the determinant is positive, and the log density up to a constant, both (chain,)."""
    sign, log_det = np.linalg.slogdet(cov)
    explained = (np.linalg.inv(cov) * np.swapaxes(whole, -1, -2)).sum((-1, -2))
    definite = (sign > 0) & (log_det > _SINGULAR)
    level = prior.log_density(np.where(definite, log_det, 0.0), cov.shape[-1])
    return definite, level - 0.5 * (n_rows * log_det + explained)
