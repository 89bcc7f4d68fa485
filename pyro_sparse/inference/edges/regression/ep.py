r"""Expectation propagation for sparse linear rows: one edge at a time instead of all 2^m sets.

Each spike-and-slab prior is replaced by a normal site :math:`e^{-\tau_j w^2/2 + \nu_j w}`. Taking one site
out of the joint normal leaves the cavity (A, B); with the true prior put back,

.. math:: \tilde p_j(w, \gamma) \propto e^{-A w^2/2 + B w}\, [\eta \psi_1(w)]^{\gamma}
          [(1 - \eta) \psi_0(w)]^{1 - \gamma}

has closed moments, to which the site is matched. Then every undecided edge is held in, and held out, while
the other sites settle: :math:`\mathrm{logit}\, p_j = \mathrm{logit}\, \eta + \log Z(\gamma_j = 1) -
\log Z(\gamma_j = 0)`, which takes away a good part of the error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logsumexp

from ...._utils.checks import check_whole
from ..density.weight import Component, Tilted, mixture
from .ep_draws import sequential_draws
from .ep_rate import collapsed, rate_levels
from .ep_sites import Fit, NormalProblem, Problem, State, settle
from .noise_levels import mass_at_levels, wide_levels
from .row_checks import Rows, pooled, rows_of, slab_unit
from .rows import RowDraws, RowPosterior, RowPrior

__all__ = ["check_sweeps", "ep_edges", "row_posterior"]

_PIN = 1e7  # log odds of an edge that is held in
_SETTLE, _SETTLE_DAMPING = 6, 0.8  # few and long sweeps: the other sites begin where they had settled
_UNDECIDED = 0.01  # edges surer than this, and levels of less weight, are not worth holding in and out
_LEVELS = 5  # of the inclusion rate of a row; with so many, edges err by .015 on average at most (RESULTS.md)
_WIDE_LEVELS = 11  # of learned noise, at which the rows' likelihood is computed
_NOISE_LEVELS = 6  # of it, over which edges are averaged
_ROUNDS = 2  # of correction and a better rate, where tasks share it
_FIRST_SWEEPS = 30  # with the rate collapsed, to place the levels
_BUDGET = 2**22  # matrix entries held at a time

Array = NDArray[np.float64]


def ep_edges(
    features: ArrayLike,
    targets: ArrayLike,
    prior: RowPrior,
    mask: ArrayLike | None = None,
    *,
    correct: bool = True,
    max_sweeps: int = 200,
    damping: float = 0.5,
    tol: float = 1e-3,
) -> RowPosterior:
    """Approximate edge probabilities of sparse linear rows, all rows at once.

    Parameters
    ----------
    features : array_like of shape (..., task, sample, feature)
    targets : array_like of shape (..., task, sample)
    prior : RowPrior
        Any. A rate of a row is averaged over five levels, weighted by evidence; a rate shared over tasks is
        integrated out of the messages between the edges that share it.
    mask : array_like of bool, shape (..., task, sample), optional
        Samples that exist; what stands elsewhere is not looked at.
    correct : bool
        Hold every undecided edge in and out. Without, it is plain expectation propagation, several times
        faster.
    max_sweeps : int
        Limit of parallel updates of all sites.
    damping : float in (0, 1]
        Largest step of a site towards its new value, 1 being all the way; it shrinks by itself in rows that
        oscillate.
    tol : float
        A row has converged when no P(edge) changes by more.

    Returns
    -------
    RowPosterior
        `gap` is the last change of P(edge), before correction. `log_evidence` is approximate, and None if
        the rate is shared over tasks. A feature that is constant in a task keeps the probability that the
        prior and the other features give it. `draws` weighs sequential draws (each weight from its exact
        conditional given those drawn, sites standing in for the rest) by the exact posterior at the estimated
        noise; edge frequencies are therefore close to `edge_prob`, not equal.

    Raises
    ------
    ValueError
        If an input does not fit or a number is out of range.

    Warns
    -----
    RuntimeWarning
        If a row has not converged: how many, and how large the last change was.

    Notes
    -----
    A sweep inverts one matrix of (feature, feature) per task; correction adds twelve inversions for every
    undecided edge, at each level of the rate that counts. Two copies of a column are handled unless there is
    hardly any noise: with a standard deviation below some 1e-3 of what a weight of the slab's size explains,
    the copies' probabilities are wrong, without warning. Of three and more that can stand in for one another
    (copies, or correlated by .9) no normal describes "one of these": under a normal slab their
    probabilities were off by .03 to .06, by .2 at most, and those of `gibbs`, which is slower, by .01 to .02.

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference, UAI. Hernández-Lobato,
    Hernández-Lobato and Suárez (2015), Expectation propagation in linear regression models with
    spike-and-slab priors, Machine Learning 99. Cseke and Heskes (2011), Approximate marginals in latent
    Gaussian models, JMLR 12 (holding a variable while the others settle).
    """
    rows = rows_of(features, targets, prior, mask)
    check_sweeps(max_sweeps, damping, tol)
    problem = NormalProblem(rows.flat(), prior)
    return row_posterior(problem, rows, correct=correct, max_sweeps=max_sweeps, damping=damping, tol=tol)


def check_sweeps(max_sweeps: int, damping: float, tol: float) -> None:
    """Refuse settings of the sweeps that are out of range."""
    check_whole(1, max_sweeps=max_sweeps)
    if not 0 < damping <= 1:
        raise ValueError(f"damping: want a number above 0 and at most 1, got {damping!r}")
    if not 0 < tol < 1:
        raise ValueError(f"tol: want a number between 0 and 1, got {tol!r}")


def row_posterior(
    problem: Problem, rows: Rows, *, correct: bool, max_sweeps: int, damping: float, tol: float
) -> RowPosterior:
    """What expectation propagation finds, of whatever outcomes.

    Parameters
    ----------
    problem : Problem
        Of the flat rows.
    rows : Rows
        In the caller's shape.
    correct, max_sweeps, damping, tol
        As for `ep_edges`.
    """
    prior, shape, flat = problem.prior, rows.cross.shape, problem.rows
    over_noise = flat.noise is None and prior.noise_prior == "learned"
    levels = _levels(problem, shape, max_sweeps, damping, tol)
    if over_noise:
        sweeps = _Sweeps(max_sweeps, damping, tol)
        problem, levels = _over_noise(cast("NormalProblem", problem), shape, levels, sweeps)
    marginals = _marginals(levels.fit.view.tilted)
    if correct:
        marginals = _corrected(problem, levels)
        for _ in range(_ROUNDS if levels.evidence is None else 0):
            # The rate the other tasks speak for, now that their edges are better known.
            log_odds = levels.fit.state.log_odds[: len(flat.cross)]
            log_odds = collapsed(prior, shape)(levels.mixed(marginals.prob), log_odds)
            state = levels.fit.state._replace(log_odds=np.tile(log_odds, (levels.number, 1)))
            fit = settle(problem.take(levels.row), state, max_sweeps, damping, tol)
            levels = levels._replace(fit=fit)
            marginals = _corrected(problem, levels)
    fit, mixed = levels.fit, levels.mixed
    p = np.clip(mixed(marginals.prob), 0, 1)
    unit = slab_unit(prior, flat.take(levels.row), fit.state.noise)[:, None]
    mean, var = mixture(marginals.prob, marginals.slab, marginals.spike)
    first, second = mixed(unit * mean), mixed(unit**2 * (var + mean**2))
    precision = mixed(np.broadcast_to(1 / fit.state.noise[:, None], fit.state.tau.shape))[:, 0]
    gap = mixed(fit.change)
    late = (gap > tol).any(-1)
    _warn(late, gap, tol, max_sweeps)
    return RowPosterior(
        edge_prob=p.reshape(shape),
        weight_mean=rows.scale * first.reshape(shape),
        weight_sd=rows.scale * np.sqrt(np.maximum(second - first**2, 0)).reshape(shape),
        eta=_eta(prior, p.reshape(shape), mixed(expit(fit.state.log_odds)).reshape(shape)),
        noise_variance=(1 / precision).reshape(shape[:-1]),
        log_evidence=None if levels.evidence is None else levels.evidence.reshape(shape[:-1]),
        converged=np.reshape(~late, shape[:-1]),
        gap=gap.reshape(shape),
        sampler=_sampler(problem, levels, rows),
    )


class _Levels(NamedTuple):
    """Fits at several levels of the inclusion rate and the noise, level by level, along one axis."""

    fit: Fit
    row: NDArray[np.intp]
    weight: Array
    number: int
    evidence: Array | None
    log_rate: Array  # of the rate's levels, a priori (rate, row)

    def mixed(self, values: Array) -> Array:
        """Average over the levels of each row: (fit, feature) to (row, feature)."""
        weight = self.weight.reshape(self.number, -1, 1)
        return (weight * values.reshape(*weight.shape[:2], -1)).sum(0)


class _Sweeps(NamedTuple):
    """Settings of the sweeps."""

    most: int
    damping: float
    tol: float


class _Marginals(NamedTuple):
    """P(edge), and the weight given that it is there or not."""

    prob: Array
    slab: Component
    spike: Component


def _levels(problem: Problem, shape: tuple[int, ...], sweeps: int, damping: float, tol: float) -> _Levels:
    """Fits at the known rate, at a collapsed one, or at levels of the rate of each row."""
    rows, prior = problem.rows, problem.prior
    n, m = rows.cross.shape
    everyone = np.arange(n)
    a, b = prior.eta_prior
    tau = np.full((n, m), 1 / rows.density.variance)
    log_odds = np.full((n, m), np.log(a / b)) if rows.log_odds is None else rows.log_odds
    start = problem.start(tau, log_odds)
    if rows.log_odds is not None:
        fit = settle(problem, start, sweeps, damping, tol)
        return _Levels(fit, everyone, np.ones(n), 1, problem.log_evidence(fit), np.zeros((1, n)))

    odds = collapsed(prior, shape)
    if prior.eta_over != "row":
        fit = settle(problem, start, sweeps, damping, tol, odds)
        return _Levels(fit, everyone, np.ones(n), 1, None, np.zeros((1, n)))
    first = settle(problem, start, _FIRST_SWEEPS, damping, -1.0, odds)  # all sweeps, whatever changes
    place, log_weight = rate_levels(first.view.tilted.prob, prior, _LEVELS)
    row = np.tile(everyone, _LEVELS)
    state = first.state.take(row)._replace(log_odds=np.repeat(place.reshape(-1, 1), m, axis=1))
    fit = settle(problem.take(row), state, sweeps, damping, tol)
    log_joint = log_weight + problem.take(row).log_evidence(fit).reshape(_LEVELS, n)
    evidence = logsumexp(log_joint, axis=0)
    return _Levels(fit, row, np.exp(log_joint - evidence).ravel(), _LEVELS, evidence, log_weight)


def _over_noise(
    problem: NormalProblem, shape: tuple[int, ...], levels: _Levels, sweeps: _Sweeps
) -> tuple[NormalProblem, _Levels]:
    """Levels of the rate, if it has some, times levels of the noise; the problem, which now holds noise."""
    problem = problem._replace(holds_noise=True)
    prior, n, n_rates = problem.prior, len(problem.rows.cross), levels.number

    def fits(noise: Array, state: State) -> tuple[Fit, NDArray[np.intp], Array]:
        """At all levels of the noise and the rate; log p(y, rate) of each, (noise, rate, row)."""
        row = np.tile(np.arange(n), len(noise) * n_rates)
        at = np.tile(np.arange(n_rates * n), len(noise))
        begun = state.take(at)._replace(noise=np.repeat(noise, n_rates, axis=0).ravel())
        fit = settle(problem.take(row), begun, *sweeps)
        joint = problem.take(row).log_evidence(fit).reshape(len(noise), n_rates, n)
        return fit, row, joint + levels.log_rate

    state = levels.fit.state
    wide = wide_levels(problem.rows, prior, _WIDE_LEVELS)
    for last in (False, True) if levels.evidence is None else (True,):
        _, _, joint = fits(wide, state)
        noise, mass, evidence = mass_at_levels(
            wide, logsumexp(joint, axis=1), prior, shape[:-1], _NOISE_LEVELS
        )
        fit, row, joint = fits(noise, state)
        rate = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        weight = (mass[:, None] * rate).ravel()
        known = levels.evidence is not None
        over = _Levels(fit, row, weight, len(noise) * n_rates, evidence if known else None, levels.log_rate)
        if not last:  # the rate that tasks share, now that they are less sure
            p = over.mixed(fit.view.tilted.prob)
            state = state._replace(log_odds=collapsed(prior, shape)(p, state.log_odds))
    return problem, over


def _marginals(t: Tilted) -> _Marginals:
    return _Marginals(t.prob, t.slab, t.spike)


def _corrected(problem: Problem, levels: _Levels) -> _Marginals:
    """Every undecided edge held in and out while the other sites settle."""
    problem, state, weight = problem.take(levels.row), levels.fit.state, levels.weight
    marginals = deepcopy(_marginals(levels.fit.view.tilted))
    unsure = (
        (marginals.prob > _UNDECIDED) & (marginals.prob < 1 - _UNDECIDED) & (weight > _UNDECIDED)[:, None]
    )
    undecided = np.argwhere(unsure)
    size = max(1, _BUDGET // (2 * problem.entries))
    for i in range(0, len(undecided), size):
        row, j = undecided[i : i + size].T
        some, n = problem.take(np.tile(row, 2)), len(row)
        log_odds = state.log_odds[np.tile(row, 2)].copy()
        prior_odds = log_odds[np.arange(n), j]
        log_odds[np.arange(2 * n), np.tile(j, 2)] = np.repeat([_PIN, -_PIN], n)
        pinned = state.take(np.tile(row, 2))._replace(log_odds=log_odds)
        fit = settle(some, pinned, _SETTLE, _SETTLE_DAMPING, 1e-12)
        evidence = some.log_evidence(fit)
        marginals.prob[row, j] = expit(prior_odds + evidence[:n] - evidence[n:])
        tilted = fit.view.tilted
        for component, settled, half in (
            (marginals.slab, tilted.slab, slice(n)),
            (marginals.spike, tilted.spike, slice(n, None)),
        ):
            component.mean[row, j] = settled.mean[half][np.arange(n), j]
            component.var[row, j] = settled.var[half][np.arange(n), j]
    return marginals


def _eta(prior: RowPrior, p: Array, averaged: Array) -> Array:
    if prior.eta is not None or prior.eta_over == "row":
        return averaged
    a, b = prior.eta_prior
    n_edges, size = pooled(p, prior.eta_over)
    return np.broadcast_to((a + n_edges) / (a + b + size), p.shape).copy()


def _warn(late: NDArray[np.bool_] | np.bool_, gap: Array, tol: float, sweeps: int) -> None:
    if late.any():
        warnings.warn(
            f"expectation propagation: {int(late.sum())} of {late.size} tasks have not converged in {sweeps} "
            f"sweeps, an edge probability still changing by {gap.max():.2g} (tol {tol:g}); raise max_sweeps, "
            "lower damping, or use Gibbs for them",
            RuntimeWarning,
            stacklevel=3,
        )


def _sampler(problem: Problem, levels: _Levels, rows: Rows) -> Callable[[int, np.random.Generator], RowDraws]:
    at_levels = problem.take(levels.row)

    def sample(n: int, rng: np.random.Generator) -> RowDraws:
        drawn = sequential_draws(
            at_levels.rows.density,
            at_levels.target(levels.fit),
            levels.fit.state.tau,
            levels.fit.state.nu,
            levels.fit.state.log_odds,
            weight=levels.weight.reshape(levels.number, -1),
            n=n,
            rng=rng,
        )
        shape = (n, *rows.cross.shape)
        return RowDraws(drawn.edge.reshape(shape), drawn.weight.reshape(shape) * rows.scale)

    return sample
