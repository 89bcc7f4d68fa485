r"""The Bayesian bootstrap of the spike-and-slab lasso: many modes, each of randomly weighted samples.

.. math:: \hat u = \arg\max_u\; -\tfrac{1}{2\sigma^2} \sum_i \omega_i (y_i - F_i'(u + \mu))^2
          + \sum_j \log[\eta \psi_1(u_j) + (1 - \eta) \psi_0(u_j)], \qquad w = \hat u + \mu

with :math:`\omega` n times a uniform Dirichlet draw and the jitter :math:`\mu_j \sim \psi_0`: a prior whose
centre is moved by a draw of the spike. Replicates w stand for draws of the posterior, so that
:math:`P(\gamma_j = 1 \mid y)` is the average of :math:`p^*(w_j, \eta)`: of w under the prior as it is, not
of u; and of a learned rate drawn from :math:`p(\eta \mid w)`, not the mode's, which few edges pull to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from torch import Tensor

from ...._utils.checks import check_whole
from ...multitask.inner.moments import moments
from .row_checks import Rows, pooled, rows_of, tables
from .row_mode import Mode, first_mode, row_mode
from .rows import RowDraws, RowPosterior, RowPrior

__all__ = ["bootstrap_edges"]

SETTLED, MOVING = 0.01, 0.05
"""A mode has settled if no weight moved by more in its last round, in slab scales; a row of replicates has
converged if no larger share of them has not."""

_BUDGET = 2**23  # numbers held at a time
_RATES = 10  # rounds of edges given the rate and the rate given edges, from the mode's rate

Array = NDArray[np.float64]


def bootstrap_edges(
    features: ArrayLike,
    targets: ArrayLike,
    prior: RowPrior,
    mask: ArrayLike | None = None,
    *,
    replicates: int = 60,
    jitter: bool = True,
    seed: int = 0,
) -> RowPosterior:
    """Edge probabilities of sparse linear rows by the weighted-likelihood bootstrap of their mode.

    Parameters
    ----------
    features : array_like of shape (..., task, sample, feature)
    targets : array_like of shape (..., task, sample)
    prior : RowPrior
        ``slab="laplace"`` with ``spike_scale`` above 0, in units of the target.
    mask : array_like of bool, shape (..., task, sample), optional
        Samples that exist; what stands elsewhere is not looked at.
    replicates : int
        Modes, at least 2. Each has its own weights of the samples of each task.
    jitter : bool
        Move the prior's centre by a draw of the spike in every replicate. Without, weights whose mode is at
        zero are zero exactly in most replicates, which posterior draws are not.
    seed : int
        Same seed, same replicates, however many are asked for.

    Returns
    -------
    RowPosterior
        Moments are those of the replicates; `eta` and 1 / `noise_variance` their averages, the noise at its
        modes.
        `gap` is the standard error of `edge_prob` for the finite number of replicates: it says nothing of
        the method's own error, which is larger. `converged` says that 95 % of a row's modes have settled.
        `draws` picks replicates, different ones as long as there are, and draws edges given their weights.
        A feature that is constant in a task has the average rate for its probability, and the jitter for
        its weights.

    Raises
    ------
    ValueError
        If an input does not fit, the prior is not one of the above, or `replicates` is below 2.

    Notes
    -----
    Weighted modes spread as the posterior does where there are many samples and one mode. Features that
    stand in for one another, or few samples, leave it too sure of itself and short of edges
    (``python -m benchmarks calibration``); expectation propagation is better in all settings there, and
    faster where features are few.

    References
    ----------
    Newton and Raftery (1994), Approximate Bayesian inference with the weighted likelihood bootstrap, JRSSB
    56. Nie and Ročková (2023), Bayesian bootstrap spike-and-slab LASSO, JASA 118.
    """
    if prior.slab != "laplace" or prior.spike_scale == 0:
        raise ValueError(
            'prior: the bootstrap wants slab="laplace" and spike_scale above 0, got '
            f"slab={prior.slab!r} and spike_scale={prior.spike_scale!r}; use expectation propagation or Gibbs"
        )
    if prior.slab_units == "noise":
        raise ValueError(
            'slab_units: the bootstrap wants "target", got "noise"; give scales in units of the target'
        )
    check_whole(2, replicates=replicates)
    modes = _replicates(features, targets, prior, mask, replicates, jitter, seed)
    p = modes.prob
    return RowPosterior(
        edge_prob=p.mean(0),
        weight_mean=modes.weight.mean(0),
        weight_sd=modes.weight.std(0, ddof=1),
        eta=modes.eta.mean(0),
        noise_variance=1 / (1 / modes.noise).mean(0),
        log_evidence=None,
        converged=(modes.moved > SETTLED).mean(0) <= MOVING,
        gap=p.std(0, ddof=1) / np.sqrt(replicates),
        sampler=_Picked(p, modes.weight),
    )


class _Replicates(NamedTuple):
    """Of each, (replicate, ..., task, feature); noise and moved (replicate, ..., task)."""

    prob: Array
    weight: Array
    eta: Array
    noise: Array
    moved: Array


@dataclass(frozen=True, eq=False)
class _Picked:
    """Replicates, and draws from them."""

    prob: Array
    weight: Array

    def __call__(self, n: int, rng: np.random.Generator) -> RowDraws:
        rounds = [rng.permutation(len(self.prob)) for _ in range(-(-n // len(self.prob)))]
        picked = np.concatenate(rounds)[:n]
        edge = rng.random((n, *self.prob.shape[1:])) < self.prob[picked]
        return RowDraws(edge.astype(np.int8), self.weight[picked])


def _replicates(
    features: ArrayLike,
    targets: ArrayLike,
    prior: RowPrior,
    mask: ArrayLike | None,
    number: int,
    jitter: bool,
    seed: int,
) -> _Replicates:
    """All of them, in blocks that fit into memory."""
    rows = rows_of(features, targets, prior, mask)
    x, y, observed = tables(features, targets, mask)
    still = np.diagonal(rows.gram, axis1=-2, axis2=-1) == 0
    x = np.where(still[..., None, :], 0.0, x)
    n, m = x.shape[-2:]
    n_numbers = rows.samples.size * (4 * n * m + 2 * m * m)  # numbers, for one replicate
    size = max(1, _BUDGET // n_numbers)
    children = np.random.SeedSequence(seed).spawn(number)
    spike = prior.spike_scale if jitter else 0.0
    blocks = []
    for i in range(0, number, size):
        rngs = [np.random.default_rng(child) for child in children[i : i + size]]
        drawn = [_draw(rng, observed, m, spike) for rng in rngs]
        omega, shift = (torch.as_tensor(np.stack(draws)) for draws in zip(*drawn, strict=True))
        mode = _modes(rows, x, y, prior, omega, shift)
        weight = (mode.weight + shift).numpy()
        # The log of slab over spike; where there are no data, the weight is not known.
        slope = 1 / prior.spike_scale - 1 / rows.scale
        evidence = np.where(still, 0.0, np.log(prior.spike_scale / rows.scale) + slope * np.abs(weight))
        rate = logit(mode.eta.numpy())
        if rows.log_odds is None:
            replicates = zip(rate, evidence, rngs, strict=True)
            rate = np.stack([_rate(start, log_bayes, prior, rng) for start, log_bayes, rng in replicates])
        moved = (mode.change.numpy() / rows.scale).max(-1)
        blocks.append(_Replicates(expit(rate + evidence), weight, expit(rate), mode.noise.numpy(), moved))
    return _Replicates(*(np.concatenate(arrays) for arrays in zip(*blocks, strict=True)))


def _draw(rng: np.random.Generator, mask: NDArray[np.bool_], m: int, spike: float) -> tuple[Array, Array]:
    """Weights of the samples, up to a factor for each task, and the prior's centre."""
    # Only for samples that exist: a mask gives what leaving them out would.
    omega = np.zeros(mask.shape)
    omega[mask] = rng.standard_exponential(int(mask.sum()))
    return omega, spike * rng.laplace(size=(*mask.shape[:-1], m))


def _rate(log_odds: Array, evidence: Array, prior: RowPrior, rng: np.random.Generator) -> Array:
    """A draw of the rate's log odds given the weights, by a short Gibbs run."""
    a, b = prior.eta_prior
    for _ in range(_RATES):
        edge = rng.random(evidence.shape) < expit(log_odds + evidence)
        n_edges, size = pooled(edge.astype(float), prior.eta_over)
        # Two gammas rather than a beta: log odds stay finite however sure they are.
        log_odds = np.log(rng.gamma(a + n_edges)) - np.log(rng.gamma(b + size - n_edges))
    return np.broadcast_to(log_odds, evidence.shape)


def _modes(rows: Rows, x: Array, y: Array, prior: RowPrior, omega: Tensor, shift: Tensor) -> Mode:
    """Modes u of samples that weigh omega, (replicate, ..., task, sample), under centres moved by shift."""
    n, m = x.shape[-2:]

    def every(values: Array) -> Tensor:
        """The same for all replicates."""
        return torch.tensor(values).expand(len(omega), *values.shape)

    data = moments(
        every(x).reshape(-1, n, m),
        every(y).reshape(-1, n, 1),
        weights=omega.reshape(-1, n),
        intercept=prior.intercept,
    )
    # The targets less what the centre explains: what is left has a prior centred at zero.
    centre = shift.reshape(-1, m, 1)
    pull = data.gram @ centre
    square = data.square + (centre * (pull - 2 * data.moment)).sum((1, 2))
    data = data._replace(moment=data.moment - pull, square=square.clamp(min=0))
    samples, dof = every(rows.samples), every(rows.dof)
    eta = None if rows.log_odds is None else every(expit(rows.log_odds))
    noise = None if rows.noise is None else every(rows.noise)
    return row_mode(data, samples, dof, prior, first_mode(data, dof, prior, eta, noise))
