r"""Maximum likelihood of a linear normal factor model whose graph is given, from the covariance alone.

.. math:: x_i \sim N(\mu, \Sigma), \qquad \Sigma = \Lambda C \Lambda^\top + \mathrm{diag}(\psi),

with zeros in :math:`\Lambda` where the graph has no edge, and in C where two factors are uncorrelated
(confirmatory factor analysis; Jöreskog 1969). Rows enter through their covariance S only. Fisher scoring with
Levenberg's damping reaches the maximum in some ten steps of milliseconds, where the loadings that gradient
steps on minibatches end with are 10 to 60 nats below it. The same expected information says what one more
edge would gain (score test) and what one fewer would cost (Wald test), without a new fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._compiled_factor_likelihood import AVAILABLE, derivatives

__all__ = [
    "EdgeTests",
    "FactorFit",
    "Moments",
    "edge_tests",
    "log_likelihood",
    "maximum_likelihood",
    "observed_log_likelihood",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = tuple[NDArray[np.intp], ...]  # features and factors, or two factors

_LEAST_NOISE = 0.002  # variance left of a standardised column: below lie Heywood cases
_LEAST_EIGENVALUE = 0.02  # of C: beyond, two factors are one
_RIDGE = 1e-6  # of the information, in units of a row's: directions that the graph leaves free do not move
_LONGEST = 1.0  # of a step, in loadings, correlations and log variances
_DAMPING, _HARDER, _TRIES = 1e-3, 6.0, 12  # Levenberg's, how it grows, and how often in one step
_INFORMATIVE = 1e-3  # share of an edge's information that is its alone, below which it is tested by nobody


class Moments(NamedTuple):
    """What a table says of a normal model.

    Attributes
    ----------
    covariance : ndarray (feature, feature)
        Of standardised columns.
    n_rows : float
        That it counts for.
    """

    covariance: Array
    n_rows: float


class FactorFit(NamedTuple):
    """A graph at its maximum.

    Attributes
    ----------
    edge : ndarray of bool (feature, factor)
    correlated : ndarray of bool (factor, factor)
        Symmetric, False on the diagonal.
    loadings : ndarray (feature, factor)
    correlations : ndarray (factor, factor)
        Unit diagonal.
    noise : ndarray (feature,)
        Variances.
    level : float
        Log-likelihood, in nats.
    """

    edge: Mask
    correlated: Mask
    loadings: Array
    correlations: Array
    noise: Array
    level: float


def log_likelihood(moments: Moments, loadings: Array, correlations: Array, noise: Array) -> float:
    r"""Of all rows, means at their maximum, in nats; minus infinity where the covariance is not proper.

    .. math:: -\tfrac N2 \big(\log|2\pi\Sigma| + \mathrm{tr}(\Sigma^{-1} S)\big)

    Parameters
    ----------
    moments : Moments
    loadings, correlations, noise
        As of a `FactorFit`.

    Examples
    --------
    >>> one = log_likelihood(Moments(np.eye(2), 10), np.zeros((2, 1)), np.eye(1), np.ones(2))
    >>> round(one, 3)  # twenty standard normal cells, with mean square 1
    -28.379
    """
    return _likelihood(moments, loadings, correlations, noise)[0]


def _likelihood(moments: Moments, loadings: Array, correlations: Array, noise: Array) -> tuple[float, Array]:
    """Log-likelihood, and the precision matrix."""
    covariance = loadings @ correlations @ loadings.T
    covariance[np.diag_indices_from(covariance)] += noise
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return -np.inf, covariance
    precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    log_determinant = 2 * np.log(np.diag(root)).sum() + len(noise) * np.log(2 * np.pi)
    fit = float((precision * moments.covariance).sum())
    return -0.5 * moments.n_rows * (float(log_determinant) + fit), precision


def _derivatives(
    moments: Moments, fit: FactorFit, precision: Array, edges: Indices, pairs: Indices
) -> tuple[Array, Array]:
    """Gradient and expected information by these loadings, correlations, and all log noise variances."""
    n, (features, factors), (first, second) = moments.n_rows, edges, pairs
    if AVAILABLE:
        covariance, *matrices = (
            np.ascontiguousarray(part, dtype=float)
            for part in (moments.covariance, fit.loadings, fit.correlations, fit.noise, precision)
        )
        return derivatives(covariance, float(n), *matrices, features, factors, first, second)
    through = fit.loadings @ fit.correlations
    weighted, turned = precision @ through, precision @ fit.loadings
    within, between = through.T @ weighted, through.T @ turned
    across = fit.loadings.T @ turned
    misfit = precision @ moments.covariance @ precision - precision
    gradient = np.concatenate(
        [
            (misfit @ through)[features, factors],
            (fit.loadings.T @ misfit @ fit.loadings)[first, second],
            0.5 * np.diag(misfit) * fit.noise,
        ]
    )
    of_edges = weighted[np.ix_(features, factors)]
    edge_edge = (
        precision[np.ix_(features, features)] * within[np.ix_(factors, factors)] + of_edges * of_edges.T
    )
    pair_pair = (
        across[np.ix_(first, first)] * across[np.ix_(second, second)]
        + across[np.ix_(first, second)] * across[np.ix_(second, first)]
    )
    edge_pair = (
        turned[np.ix_(features, first)] * between[np.ix_(factors, second)]
        + turned[np.ix_(features, second)] * between[np.ix_(factors, first)]
    )
    edge_noise = precision[features] * weighted[:, factors].T * fit.noise
    pair_noise = (turned[:, first] * turned[:, second]).T * fit.noise
    noise_noise = 0.5 * precision**2 * np.outer(fit.noise, fit.noise)
    information = np.block(
        [
            [edge_edge, edge_pair, edge_noise],
            [edge_pair.T, pair_pair, pair_noise],
            [edge_noise.T, pair_noise.T, noise_noise],
        ]
    )
    return n * gradient, n * information


def observed_log_likelihood(x: Array, mask: Mask, fit: FactorFit) -> float:
    r"""Log-likelihood of the cells that were seen, without its constant.

    .. math:: -\tfrac12 \sum_i \log|\Sigma_{oo}| + x_o^\top \Sigma_{oo}^{-1} x_o, \qquad
              \Sigma = \Lambda C \Lambda^\top + \Psi

    with o what was seen of row i, in K dimensions (Woodbury's identity).

    Parameters
    ----------
    x : ndarray (row, feature)
        Centred.
    mask : ndarray of bool (row, feature)
        True where a cell was seen.
    fit : FactorFit
    """
    seen = mask.astype(float)
    weighted = fit.loadings / fit.noise[:, None]
    outer = (fit.loadings[:, :, None] * weighted[:, None]).reshape(len(fit.noise), -1)
    k = fit.loadings.shape[1]
    inner = np.linalg.inv(fit.correlations) + (seen @ outer).reshape(-1, k, k)
    pull = (seen * x) @ weighted
    explained = (pull * np.linalg.solve(inner, pull[..., None])[..., 0]).sum()
    log_det = np.linalg.slogdet(inner)[1].sum() + len(x) * np.linalg.slogdet(fit.correlations)[1]
    log_det += (seen @ np.log(fit.noise)).sum()
    return float(-0.5 * (log_det + (seen * x**2 / fit.noise).sum() - explained))


def maximum_likelihood(
    moments: Moments,
    start: FactorFit,
    steps: int = 30,
    tolerance: float = 1e-3,
) -> FactorFit:
    """Loadings, correlations and noise of the start's graph at their maximum.

    Parameters
    ----------
    moments : Moments
    start : FactorFit
        Its graph, and where to begin; loadings beside its edges are left out.
    steps : int
        At most.
    tolerance : float
        Nats by which a step must gain to be followed by another.

    Returns
    -------
    FactorFit
        Of the same graph; never below its start.

    References
    ----------
    Jöreskog (1969), A general approach to confirmatory maximum likelihood factor analysis, Psychometrika 34
    """
    fit = _proper(moments, start)
    edges, pairs = np.nonzero(fit.edge), np.nonzero(np.triu(fit.correlated, 1))
    damping = _DAMPING
    precision = _likelihood(moments, fit.loadings, fit.correlations, fit.noise)[1]
    for _ in range(steps):
        gradient, information = _derivatives(moments, fit, precision, edges, pairs)
        diagonal = np.diag(information).copy()
        for _ in range(_TRIES):
            damped = information + np.diag(damping * diagonal + _RIDGE * moments.n_rows)
            step = np.clip(np.linalg.solve(damped, gradient), -_LONGEST, _LONGEST)
            new, new_precision = _moved(moments, fit, step, edges, pairs)
            if new.level > fit.level - 1e-9:
                break
            damping *= _HARDER
        else:
            return fit
        gain, fit, precision = new.level - fit.level, new, new_precision
        damping /= _HARDER
        if gain < tolerance:
            break
    return fit


def _proper(moments: Moments, start: FactorFit) -> FactorFit:
    """The start with zeros where its graph has them, and correlations of a proper matrix; its level."""
    identity = np.eye(len(start.correlations))
    correlations = np.where(start.correlated, start.correlations, identity)
    while len(identity) > 1 and np.linalg.eigvalsh(correlations)[0] < 2 * _LEAST_EIGENVALUE:
        correlations = 0.5 * (correlations + identity)
    loadings, noise = start.loadings * start.edge, np.maximum(start.noise, _LEAST_NOISE)
    level = log_likelihood(moments, loadings, correlations, noise)
    return start._replace(loadings=loadings, correlations=correlations, noise=noise, level=level)


def _moved(
    moments: Moments, fit: FactorFit, step: Array, edges: Indices, pairs: Indices
) -> tuple[FactorFit, Array]:
    """After a step; its level is minus infinity where the correlations are not proper."""
    n_edges, n_pairs = len(edges[0]), len(pairs[0])
    loadings, correlations = fit.loadings.copy(), fit.correlations.copy()
    loadings[edges] += step[:n_edges]
    correlations[pairs] += step[n_edges : n_edges + n_pairs]
    correlations.T[pairs] = correlations[pairs]
    noise = np.maximum(fit.noise * np.exp(step[n_edges + n_pairs :]), _LEAST_NOISE)
    level, precision = -np.inf, correlations
    if n_pairs == 0 or np.linalg.eigvalsh(correlations)[0] > _LEAST_EIGENVALUE:
        level, precision = _likelihood(moments, loadings, correlations, noise)
    moved = fit._replace(loadings=loadings, correlations=correlations, noise=noise, level=level)
    return moved, precision


class EdgeTests(NamedTuple):
    """What a change of one entry is worth, in nats, before anything is fitted anew.

    Attributes
    ----------
    gain : ndarray (feature, factor)
        Of an edge that is absent (score test); 0 elsewhere.
    loss : ndarray (feature, factor)
        Without an edge that is there (Wald test); infinite elsewhere.
    pair_gain, pair_loss : ndarray (factor, factor)
        The same of correlations, above the diagonal.
    """

    gain: Array
    loss: Array
    pair_gain: Array
    pair_loss: Array


def edge_tests(moments: Moments, fit: FactorFit) -> EdgeTests:
    r"""Score tests of absent edges and correlations, Wald tests of those that are there.

    .. math:: \tfrac12\, s_a^2 / (I_{aa} - I_{a\theta} I_{\theta\theta}^{-1} I_{\theta a}), \qquad
              \tfrac12\, \theta_e^2 / (I_{\theta\theta}^{-1})_{ee}

    Parameters
    ----------
    moments : Moments
    fit : FactorFit
        At its maximum.
    """
    n_features, n_factors = fit.edge.shape
    every, pairs = np.indices(fit.edge.shape).reshape(2, -1), np.triu_indices(n_factors, 1)
    _, precision = _likelihood(moments, fit.loadings, fit.correlations, fit.noise)
    score, information = _derivatives(moments, fit, precision, (every[0], every[1]), pairs)
    free = np.concatenate([fit.edge.ravel(), fit.correlated[pairs], np.ones(n_features, dtype=bool)])
    ridge = _RIDGE * moments.n_rows * np.eye(int(free.sum()))
    variance = np.linalg.inv(information[np.ix_(free, free)] + ridge)
    cross, alone = information[np.ix_(~free, free)], np.diag(information)[~free]
    left = alone - ((cross @ variance) * cross).sum(1)
    gain, loss = np.zeros(len(free)), np.full(len(free), np.inf)
    testable = left > _INFORMATIVE * alone
    gain[~free] = np.where(testable, score[~free] ** 2 / (2 * np.where(testable, left, 1.0)), 0.0)
    estimate = np.concatenate([fit.loadings.ravel(), fit.correlations[pairs], np.zeros(n_features)])
    loss[free] = estimate[free] ** 2 / (2 * np.diag(variance))
    n_edges, n_pairs = fit.edge.size, len(pairs[0])
    pair_gain, pair_loss = np.zeros((n_factors, n_factors)), np.full((n_factors, n_factors), np.inf)
    pair_gain[pairs], pair_loss[pairs] = (a[n_edges : n_edges + n_pairs] for a in (gain, loss))
    return EdgeTests(
        gain[:n_edges].reshape(fit.edge.shape), loss[:n_edges].reshape(fit.edge.shape), pair_gain, pair_loss
    )
