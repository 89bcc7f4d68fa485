r"""Inclusion rates of chains, drawn given the edges; and what is known of single edges beside them.

.. math:: \operatorname{logit} \eta_{jk} = l_k + o_{jk}, \qquad
          p(l_k \mid \gamma) \propto \prod_j \frac{e^{\gamma_{jk} l_k}}{1 + e^{l_k + o_{jk}}} \;
          \frac{e^{a l_k}}{(1 + e^{l_k})^{a + b}}

With o = 0 that is a Beta distribution. Otherwise it is log-concave in :math:`l_k`: a few independent
proposals from a Student distribution at its mode, each accepted or not.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from ....priors import em
from ....priors.spike_slab import SpikeSlabPrior

__all__ = ["drawn_log_odds", "log_density", "rate_prior", "solved_log_odds"]

Array = NDArray[np.float64]
_TRIES, _DEGREES = 3, 4.0  # proposals; their tails are heavier than those of any log-concave density


def drawn_log_odds(
    edge: NDArray[np.bool_],
    free: NDArray[np.bool_],
    prior: tuple[Array, Array],
    shared: bool,
    edge_offset: Array | None,
    now: Array,
    rng: np.random.Generator,
) -> Array:
    """Log odds of the rates of each chain, (chain, 1, factor).

    Parameters
    ----------
    edge : ndarray of bool (chain, feature, factor)
    free : ndarray of bool (feature, factor)
        Edges that may be there or not.
    prior : tuple of ndarray
        a and b, each broadcastable to (factor,).
    shared : bool
        One rate for all factors.
    edge_offset : ndarray (feature, factor) or None
        o.
    now : ndarray (chain, 1, factor)
        As they are, where edges have offsets.
    rng : numpy.random.Generator
    """
    axes = (-2, -1) if shared else (-2,)
    a, b = (np.broadcast_to(of_rates, free.shape[-1:])[:1] for of_rates in prior) if shared else prior
    n_edges, size = (edge & free).sum(axes, keepdims=True), free.sum(axes, keepdims=True)
    if edge_offset is None:
        # Two gammas rather than a beta: log odds stay finite however sure they are.
        yes = np.maximum(rng.gamma(a + n_edges), 1e-300)
        no = np.maximum(rng.gamma(b + size - n_edges), 1e-300)
        odds = np.log(yes) - np.log(no)
    else:
        odds = _informed(n_edges, free, a, b, edge_offset, axes, now[..., :1] if shared else now, rng)
    return np.broadcast_to(odds, (len(edge), 1, edge.shape[-1])).copy() if shared else odds


def log_density(log_odds: Array, prior: tuple[Array, Array], shared: bool) -> Array:
    r"""Log density of the rates of each chain, (chain,), up to a constant: of eta, not of its log odds.

    .. math:: \sum_k (a_k - 1) \log \eta_k + (b_k - 1) \log (1 - \eta_k)

    Parameters
    ----------
    log_odds : ndarray (chain, 1, factor)
    prior : tuple of ndarray
        a and b, each broadcastable to (factor,).
    shared : bool
        One rate for all factors, which counts once.
    """
    a, b = (np.broadcast_to(parameter, log_odds.shape[-1:]) for parameter in prior)
    log_p = -(a - 1) * np.logaddexp(0, -log_odds) - (b - 1) * np.logaddexp(0, log_odds)
    return (log_p[..., :1] if shared else log_p).sum((-1, -2))


def solved_log_odds(
    wanted: Array, edge_offset: Array, free: NDArray[np.bool_], beside: Array | float
) -> Array:
    """`priors.em.solved_log_odds` of arrays.

    Parameters
    ----------
    wanted : ndarray (..., 1, factor or 1)
    edge_offset : ndarray (feature, factor)
    free : ndarray of bool (feature, factor)
    beside : ndarray or float
    """
    tensors = (
        torch.as_tensor(np.asarray(array, dtype=float)) for array in (wanted, edge_offset, free, beside)
    )
    return em.solved_log_odds(*tensors).numpy()


def _informed(
    n_edges: Array,
    free: NDArray[np.bool_],
    a: Array,
    b: Array,
    edge_offset: Array,
    axes: tuple[int, ...],
    now: Array,
    rng: np.random.Generator,
) -> Array:
    """Independent proposals of log odds, each accepted or not."""

    def log_target(odds: Array) -> Array:
        none = (np.logaddexp(0, odds + edge_offset) * free).sum(axes, keepdims=True)
        return (n_edges + a) * odds - none - (a + b) * np.logaddexp(0, odds)

    mode = solved_log_odds(n_edges + a, edge_offset, free, a + b)
    edge_rate, rate = expit(mode + edge_offset), expit(mode)
    bend = (edge_rate * (1 - edge_rate) * free).sum(axes, keepdims=True) + (a + b) * rate * (1 - rate)
    scale = 1.2 / np.sqrt(bend)  # a little wider than the target

    def log_proposal(odds: Array) -> Array:
        return -(_DEGREES + 1) / 2 * np.log1p(((odds - mode) / scale) ** 2 / _DEGREES)

    level = log_target(now) - log_proposal(now)
    for _ in range(_TRIES):
        tried = mode + scale * rng.standard_t(_DEGREES, size=mode.shape)
        there = log_target(tried) - log_proposal(tried)
        yes = np.log(rng.random(mode.shape)) < there - level
        now, level = np.where(yes, tried, now), np.where(yes, there, level)
    return now


def rate_prior(prior: SpikeSlabPrior) -> tuple[Array, Array]:
    """a and b of the Beta distribution of each factor's rate; of its finite form for the Indian buffet."""
    k = prior.n_factors
    if prior.column == "ibp":
        return np.full(k, prior.alpha / k), np.ones(k)
    return np.full(k, prior.a), prior.b.reshape(-1).cpu().double().numpy()
