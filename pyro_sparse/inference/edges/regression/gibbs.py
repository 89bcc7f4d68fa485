r"""A long Gibbs run of sparse linear rows: slow, plain, and right if its chains agree.

Weight j and its edge are drawn together given all others, from the exact mixture

.. math:: p(w_j, \gamma_j \mid \cdot) \propto e^{-A w^2/2 + B w}\, [\eta \psi_1(w)]^{\gamma}
          [(1-\eta) \psi_0(w)]^{1-\gamma}, \quad A = (F'F)_{jj} / \sigma^2, \;
          B = (F'y - \textstyle\sum_{l \ne j} F'F_{jl} w_l) / \sigma^2

then :math:`\eta` from its beta and :math:`\sigma^2` from its inverse gamma. Probabilities and moments are
averages of the exact conditional ones (Rao-Blackwell), not of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln

from ...._utils.checks import check_whole
from ....models._task_noise import LEVEL, SHAPE, SHARES, log_hyperprior
from ..density.weight import floor_precision
from .noise_levels import log_spread
from .row_checks import Rows, first_noise, pooled, rows_of, slab_unit
from .rows import RowDraws, RowPosterior, RowPrior

__all__ = ["UNRESOLVED", "gibbs_edges"]

UNRESOLVED = 0.1
"""A row whose chains differ by more in some edge probability counts as not converged."""

_REACH, _SHAPES, _LEVELS = 5.0, 41, 81  # of the grid of what the noise's prior learns, in its own sd
_KEPT = 2000  # joint states kept for draws, over all chains

Array = NDArray[np.float64]


def gibbs_edges(
    features: ArrayLike,
    targets: ArrayLike,
    prior: RowPrior,
    mask: ArrayLike | None = None,
    *,
    sweeps: int = 2000,
    burn_in: int = 500,
    chains: int = 4,
    seed: int = 0,
) -> RowPosterior:
    """Edge probabilities of sparse linear rows by Gibbs sampling, all rows and chains at once.

    Parameters
    ----------
    features : array_like of shape (..., task, sample, feature)
    targets : array_like of shape (..., task, sample)
    prior : RowPrior
    mask : array_like of bool, shape (..., task, sample), optional
        Samples that exist; what stands elsewhere is not looked at.
    sweeps, burn_in : int
        Sweeps that count, for each chain, and sweeps before them.
    chains : int
        At least 2. Every other one starts from no edges, the rest from a ridge fit with all of them.
    seed : int

    Returns
    -------
    RowPosterior
        `gap` is the range of P(edge) over chains; `converged` says that it is at most 0.1 in all of a row.
        `draws` picks from 2000 states at most, equally spaced and over all chains.

    Raises
    ------
    ValueError
        If an input does not fit, or a number is not a whole one of the least size.
    """
    rows = rows_of(features, targets, prior, mask)
    check_whole(1, sweeps=sweeps)
    check_whole(0, burn_in=burn_in)
    check_whole(2, chains=chains)
    rng = np.random.default_rng(seed)
    state = _start(rows, prior, chains, rng)
    shape = state.weight.shape
    prob, first, second, eta = (np.zeros(shape) for _ in range(4))
    precision = np.zeros(shape[:-1])
    stride = max(1, int(np.ceil(sweeps * chains / _KEPT)))
    kept: list[tuple[NDArray[np.bool_], Array]] = []
    for sweep in range(-burn_in, sweeps):
        state, p, mean, square = _sweep(rows, prior, state, rng)
        if sweep < 0:
            continue
        prob, first, second = prob + p, first + mean, second + square
        eta, precision = eta + expit(state.log_odds), precision + 1 / state.noise
        if sweep % stride == 0:
            kept.append((state.edge.copy(), state.weight.copy()))
    by_chain = prob / sweeps
    gap = np.ptp(by_chain, axis=0)
    mean, square = (total.mean(0) / sweeps for total in (first, second))
    return RowPosterior(
        edge_prob=by_chain.mean(0),
        weight_mean=rows.scale * mean,
        weight_sd=rows.scale * np.sqrt(np.maximum(square - mean**2, 0)),
        eta=eta.mean(0) / sweeps,
        noise_variance=sweeps / precision.mean(0),
        log_evidence=None,
        converged=(gap <= UNRESOLVED).all(-1),
        gap=gap,
        sampler=_Kept(
            np.concatenate([edge for edge, _ in kept]).astype(np.int8),
            np.concatenate([weight for _, weight in kept]) * rows.scale,
        ),
    )


@dataclass(frozen=True, eq=False)
class _Kept:
    """States of the chains, and draws from them."""

    edge: NDArray[np.int8]
    weight: Array

    def __call__(self, n: int, rng: np.random.Generator) -> RowDraws:
        """As many different states as there are; with more draws than states, some come again."""
        rounds = [rng.permutation(len(self.edge)) for _ in range(-(-n // len(self.edge)))]
        picked = np.concatenate(rounds)[:n]
        return RowDraws(self.edge[picked], self.weight[picked])


class _State(NamedTuple):
    """One state of every chain, (chain, ..., task, feature), weights over slab scale."""

    weight: Array
    edge: NDArray[np.bool_]
    log_odds: Array
    noise: Array


def _start(rows: Rows, prior: RowPrior, chains: int, rng: np.random.Generator) -> _State:
    shape = (chains, *rows.cross.shape)
    spread = np.trace(rows.gram, axis1=-2, axis2=-1) / shape[-1]
    ridge = np.where(spread > 0, 0.01 * spread, 1.0)  # there may be more features than samples
    loose = rows.gram + np.eye(shape[-1]) * ridge[..., None, None]
    dense = np.linalg.solve(loose, rows.cross[..., None])[..., 0]
    edge = np.zeros(shape, dtype=bool)
    edge[1::2] = True
    weight = np.where(edge, dense * (1 + 0.1 * rng.standard_normal(shape)), 0.0)
    if rows.log_odds is None:
        a, b = prior.eta_prior
        log_odds = np.full(shape, np.log(a / b))
    else:
        log_odds = np.broadcast_to(rows.log_odds, shape)
    if rows.noise is None:
        noise = np.broadcast_to(first_noise(rows), shape[:-1])
    else:
        noise = np.broadcast_to(rows.noise, shape[:-1])
    return _State(weight, edge, log_odds, noise)


def _sweep(
    rows: Rows, prior: RowPrior, state: _State, rng: np.random.Generator
) -> tuple[_State, Array, Array, Array]:
    """The next state, and P(edge), E[w] and E[w^2] of each weight given what stood when it was drawn."""
    weight, edge = state.weight.copy(), state.edge.copy()
    prob, first, second = (np.empty(weight.shape) for _ in range(3))
    wide = slab_unit(prior, rows, state.noise)
    for j in range(weight.shape[-1]):
        gram = rows.gram[..., j, :]
        pull = rows.cross[..., j] - (gram * weight).sum(-1) + gram[..., j] * weight[..., j]
        a = floor_precision(gram[..., j] * wide**2 / state.noise)
        b = pull * wide / state.noise
        density = rows.density._replace(ratio=rows.density.ratio[..., j])
        tilted = density.tilted(a, b, state.log_odds[..., j])
        edge[..., j] = rng.random(a.shape) < tilted.prob
        weight[..., j] = wide * density.draw(a, b, edge[..., j], rng)
        prob[..., j], first[..., j] = tilted.prob, wide * tilted.mean
        second[..., j] = wide**2 * (tilted.var + tilted.mean**2)
    noise = (
        state.noise if rows.noise is not None else _draw_noise(rows, prior, weight, edge, state.noise, rng)
    )
    log_odds = state.log_odds
    if rows.log_odds is None:
        a0, b0 = prior.eta_prior
        n_edges, size = pooled(edge.astype(float), prior.eta_over)
        # Two gammas rather than a beta: log odds stay finite however sure they are.
        log_odds = np.log(rng.gamma(a0 + n_edges)) - np.log(rng.gamma(b0 + size - n_edges))
        log_odds = np.broadcast_to(log_odds, edge.shape)
    return _State(weight, edge, log_odds, noise), prob, first, second


def _draw_noise(
    rows: Rows,
    prior: RowPrior,
    weight: Array,
    edge: NDArray[np.bool_],
    noise: Array,
    rng: np.random.Generator,
) -> Array:
    a, b = _noise_prior(prior, noise, rng)
    fit = (rows.gram @ weight[..., None])[..., 0] - 2 * rows.cross
    squares = np.maximum(rows.square + (weight * fit).sum(-1), 0)
    count = rows.dof
    if prior.slab_units == "noise":
        count, squares = count + edge.sum(-1), squares + (weight**2).sum(-1)
    return (b + squares / 2) / rng.gamma(a + count / 2, size=squares.shape)


def _noise_prior(prior: RowPrior, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Shape and scale of the noise's inverse gamma; drawn given the noise of tasks, if learned."""
    if not isinstance(prior.noise_prior, str):
        shape, scale = prior.noise_prior
        return np.asarray(shape), np.asarray(scale)
    log_a, log_s = (
        mean + sd * np.linspace(-_REACH, _REACH, points)
        for (mean, sd), points in ((SHAPE, _SHAPES), (LEVEL, _LEVELS))
    )
    spread = log_spread(prior, noise.shape[1:])
    log_p = []
    at = np.meshgrid(log_a, log_s, indexing="ij")
    a, b = np.exp(at[0]), np.exp(at[0] + at[1])
    for share in SHARES:
        unit = np.exp(-share * spread)
        log_sum, inverse = np.log(noise / unit).sum(-1)[..., None, None], (unit / noise).sum(-1)
        log_p.append(
            noise.shape[-1] * (a * np.log(b) - gammaln(a)) - a * log_sum - b * inverse[..., None, None]
        )
    flat = np.stack(log_p, axis=-1) + log_hyperprior(*at)[..., None]
    flat = flat.reshape(*noise.shape[:-1], -1)
    picked = (flat + rng.gumbel(size=flat.shape)).argmax(-1)[..., None]
    point, share = np.divmod(picked, len(SHARES))
    return a.ravel()[point], b.ravel()[point] * np.exp(-SHARES[share] * spread)
