"""Rows of each family with their truth, and the exact posterior of their edges by importance sampling.

Nothing of the package's is used for the second: densities are written out, every support is enumerated, and
its marginal likelihood (over weights, intercept, and what the family has as parameters) is an average over
points of a scrambled Sobol sequence, turned into a multivariate t about the mode.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, gammaln, logsumexp, ndtri
from scipy.stats import chi2, qmc

FAMILIES = ("bernoulli", "poisson", "ordinal", "negative_binomial")
LEVELS = 4  # of ordinal outcomes, all of which occur
POINTS = 4096
RATE, INTERCEPT_SD = 0.3, 1.0
_GAP = np.log(4 / (LEVELS - 1))  # centre of the logarithm of a gap between cuts, a priori; its sd is 1
_DF, _WIDER = 8, 1.2

Array = NDArray[np.float64]


def rows(
    family: str, rng: np.random.Generator, n_tasks: int, n: int, d: int, rho: float
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Centred features (AR(1) columns), outcomes and edges, all from the prior."""
    features = correlated(rng, n_tasks, n, d, rho)
    edge = rng.random((n_tasks, d)) < RATE
    weight = rng.normal(size=edge.shape) * edge
    f = (features @ weight[..., None])[..., 0] + INTERCEPT_SD * rng.normal(size=(n_tasks, 1))
    y = np.stack([outcomes(family, rng, row, parameters(family, rng)) for row in f])
    return features, y, edge


def correlated(rng: np.random.Generator, n_tasks: int, n: int, d: int, rho: float) -> Array:
    """Features (task, sample, feature) with correlations rho^|i - j|, centred in every task."""
    lower = np.linalg.cholesky(rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
    x = rng.normal(size=(n_tasks, n, d)) @ lower.T
    return x - x.mean(1, keepdims=True)


def n_parameters(family: str) -> int:
    """What a family has beside the linear predictor."""
    return {"ordinal": LEVELS - 2, "negative_binomial": 1}.get(family, 0)


def parameters(family: str, rng: np.random.Generator) -> Array:
    """A draw from their prior: logarithms of gaps between cuts; the extra coefficient of variation.

    The latter is half normal; as a normal number whose sign says nothing it has no end at 0.
    """
    if family == "ordinal":
        return _GAP + rng.normal(size=LEVELS - 2)
    return rng.normal(size=n_parameters(family))


def outcomes(family: str, rng: np.random.Generator, f: Array, given: Array) -> Array:
    """Outcomes of linear predictors (sample,)."""
    if family == "bernoulli":
        return (rng.random(len(f)) < expit(f)).astype(float)
    if family == "poisson":
        return rng.poisson(np.exp(f)).astype(float)
    if family == "negative_binomial":
        shape = given[0] ** -2
        return rng.poisson(rng.gamma(shape, np.exp(f) / shape)).astype(float)
    below = expit(_cuts(given[None])[0][:, None] - f)
    return (rng.random(len(f)) > below).sum(0).astype(float)


def _cuts(log_gaps: Array) -> Array:
    """Cuts (point, cut) with the middle one at 0."""
    cuts = np.concatenate([np.zeros((len(log_gaps), 1)), np.cumsum(np.exp(log_gaps), -1)], -1)
    return cuts - cuts[:, [(LEVELS - 2) // 2]]


def log_likelihood(family: str, f: Array, y: Array, given: Array) -> Array:
    """Of predictors (point, sample) and parameters (point, parameter): (point,)."""
    f = np.clip(f, -60, 60)
    if family == "bernoulli":
        cells = -np.logaddexp(0, -(2 * y - 1) * f)
    elif family == "poisson":
        cells = y * f - np.exp(f) - gammaln(y + 1)
    elif family == "negative_binomial":
        log_shape = -2 * np.log(np.clip(np.abs(given), 1e-5, None))
        shape = np.exp(log_shape)
        total = np.logaddexp(f, log_shape)
        cells = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1)
        cells = cells + shape * (log_shape - total) + y * (f - total)
    else:
        far = np.full((len(given), 1), 1e3)
        ends = np.concatenate([-far, _cuts(np.clip(given, -20, 5)), far], -1)
        level = y.astype(int)
        low, high = ends[:, level] - f, ends[:, level + 1] - f
        # s(high) - s(low), without a difference of numbers that are nearly the same
        width = np.log(-np.expm1(np.minimum(low - high, -1e-12)))
        cells = width - np.logaddexp(0, -high) - np.logaddexp(0, low)
    return cells.sum(-1)


def log_parameter_prior(family: str, given: Array) -> Array:
    """Of the parameters (point, parameter), as `parameters` has them."""
    centre = _GAP if family == "ordinal" else 0.0
    return (-0.5 * (given - centre) ** 2 - 0.5 * np.log(2 * np.pi)).sum(-1)


def exact(
    family: str, x: Array, y: Array, rate: float, intercept_sd: float, points: int = POINTS, seed: int = 0
) -> dict[str, Any]:
    """P(edge) of one row with a normal slab of unit scale, the log evidence, and the least effective sample.

    Parameters
    ----------
    family : str
    x : ndarray (sample, feature)
        Centred.
    y : ndarray (sample,)
    rate, intercept_sd : float
        Inclusion rate; standard deviation of the intercept.
    points : int
        A power of 2.
    seed : int
        Of the sequence.
    """
    supports = np.array(list(product([False, True], repeat=x.shape[1])))
    found = [_evidence(family, x[:, on], y, intercept_sd, points, seed) for on in supports]
    size = supports.sum(1)
    log_joint = np.array([log_z for log_z, _ in found])
    log_joint += size * np.log(rate) + (x.shape[1] - size) * np.log1p(-rate)
    evidence = logsumexp(log_joint)
    share = np.exp(log_joint - evidence)
    return {
        "edge_prob": share @ supports,
        "log_evidence": float(evidence),
        "effective": float(min(ess for (_, ess), p in zip(found, share, strict=True) if p > 1e-3)),
    }


def _evidence(
    family: str, x: Array, y: Array, intercept_sd: float, points: int, seed: int
) -> tuple[float, float]:
    """log marginal likelihood of a support, and the effective number of points."""
    design = np.column_stack([x, np.ones(len(x))])
    own = n_parameters(family)
    sd = np.append(np.ones(x.shape[1]), intercept_sd)

    def log_joint(theta: Array) -> Array:
        linear, given = theta[:, : len(sd)], theta[:, len(sd) :]
        prior = (-0.5 * (linear / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)).sum(-1)
        likelihood = log_likelihood(family, linear @ design.T, y, given)
        return likelihood + prior + log_parameter_prior(family, given)

    start = np.append(np.zeros(len(sd)), np.full(own, 0.5))
    mode = minimize(lambda theta: -float(log_joint(theta[None])[0]), start, method="BFGS").x
    lower = _root(log_joint, mode)
    p = len(mode)
    u = np.clip(qmc.Sobol(p + 1, seed=seed).random(points), 1e-12, 1 - 1e-12)
    t = ndtri(u[:, :p]) / np.sqrt(chi2.ppf(u[:, p], _DF) / _DF)[:, None]
    for last in (False, False, True):
        theta = mode + t @ lower.T
        log_q = _log_t(theta, mode, lower)
        if family == "negative_binomial":  # either sign is proposed as often
            mirrored = theta * np.append(np.ones(p - 1), -1)
            log_q = np.logaddexp(log_q, _log_t(mirrored, mode, lower)) - np.log(2)
        log_w = log_joint(theta) - log_q
        if not last:  # the next points go by the moments that these found
            share = np.exp(0.7 * (log_w - log_w.max()))  # tempered, for a few points may have all the weight
            if family == "negative_binomial":
                theta[:, -1] = np.abs(theta[:, -1])
            mode = (share @ theta) / share.sum()
            spread = (theta - mode).T * share @ (theta - mode) / share.sum()
            lower = np.linalg.cholesky(_WIDER * spread + 1e-8 * np.eye(p))
    effective = float(np.exp(2 * logsumexp(log_w) - logsumexp(2 * log_w)))
    return float(logsumexp(log_w) - np.log(points)), effective


def _log_t(theta: Array, mode: Array, lower: Array) -> Array:
    """Log density of the multivariate t."""
    p = len(mode)
    z = solve_triangular(lower, (theta - mode).T, lower=True)
    norm = gammaln((_DF + p) / 2) - gammaln(_DF / 2) - p / 2 * np.log(_DF * np.pi)
    return norm - np.log(np.diag(lower)).sum() - (_DF + p) / 2 * np.log1p((z**2).sum(0) / _DF)


def _root(log_joint: Any, mode: Array, step: float = 1e-3) -> Array:
    """Root of a covariance a little wider than that of the normal at the mode."""
    p = len(mode)
    unit = step * np.eye(p)
    plus, minus = mode + unit, mode - unit
    corners = [
        log_joint((base[:, None] + sign * unit[None]).reshape(-1, p)).reshape(p, p)
        for base in (plus, minus)
        for sign in (1, -1)
    ]
    hessian = -(corners[0] - corners[1] - corners[2] + corners[3]) / (4 * step**2)
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    variance = _WIDER / np.maximum(values, 0.05)
    return np.linalg.cholesky((vectors * variance) @ vectors.T)
