r"""Sites of expectation propagation, and the joint normal they make with the likelihood.

.. math:: q(w) \propto e^{-w'Kw/2 + h'w} \prod_j e^{-\tau_j w_j^2/2 + \nu_j w_j}, \qquad
          K = SF'FS / \sigma^2, \; h = SF'y / \sigma^2

All sites are updated at once, with damping that shrinks in rows that oscillate, and rows that have settled
leave. Sites have positive precision: the joint normal is then proper whatever the data, and so are cavities.
What the outcomes make of the joint normal is a `Problem`: normal ones here, any others in `ep_outcomes.py`,
where each outcome has a site of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from ..density.weight import LEAST_PRECISION, Tilted
from .ep_draws import Target
from .noise_levels import first_noise_prior
from .row_checks import Rows, first_noise, slab_unit
from .rows import RowPrior

__all__ = [
    "Fit",
    "NormalProblem",
    "Odds",
    "OutcomeSites",
    "Problem",
    "State",
    "View",
    "log_evidence",
    "log_norm",
    "log_site_norm",
    "no_outcome_sites",
    "settle",
    "weight_sites",
]

_LEAST_SITE, _MOST_SITE = 1e-3, 1e8  # site precisions, in units of the slab
_LEAST_DAMPING = 0.02
_LEAST_VARIANCE = 1e-300  # a weight surely absent has none

Array = NDArray[np.float64]
Odds = Callable[[Array, Array], Array]
"""Log odds a priori from P(edge) and the log odds that gave it."""


class State(NamedTuple):
    """Where expectation propagation stands.

    Attributes
    ----------
    tau, nu : ndarray (row, feature)
        Sites of the weights.
    noise : ndarray (row,)
        Variances; 1 where the outcomes are not normal.
    log_odds : ndarray (row, feature)
        Of every edge a priori.
    outcome_tau, outcome_nu : ndarray (row, sample)
        Sites of the outcomes; no columns where these are normal.
    """

    tau: Array
    nu: Array
    noise: Array
    log_odds: Array
    outcome_tau: Array
    outcome_nu: Array

    def take(self, index: NDArray[np.intp]) -> State:
        """Some of the rows."""
        return State(*(v[index] for v in self))


class OutcomeSites(NamedTuple):
    """Linear predictors (row, sample) with their outcome's own density put back; see `ep_outcomes.py`.

    Attributes
    ----------
    a, b : ndarray
        The cavity, as of a weight.
    mean, var : ndarray
        Of the predictor.
    log_norm : ndarray
        log of the integral of the cavity times the density, less that of the joint normal's own marginal.
    """

    a: Array
    b: Array
    mean: Array
    var: Array
    log_norm: Array


class View(NamedTuple):
    """The joint normal at a state, and what each edge looks like with its own prior put back."""

    full: Array  # precision of the joint normal
    linear: Array  # its precision times its mean
    mean: Array
    cov: Array
    a: Array
    b: Array
    tilted: Tilted
    outcomes: OutcomeSites


class Fit(NamedTuple):
    """Sites of all rows after some sweeps."""

    state: State
    view: View
    change: Array  # last change of P(edge)


class Problem(Protocol):
    """Flat rows, their prior, and what their outcomes make of the joint normal."""

    @property
    def rows(self) -> Rows: ...

    @property
    def prior(self) -> RowPrior: ...

    @property
    def entries(self) -> int:
        """Numbers held for a row at a time, about."""
        ...

    def take(self, index: NDArray[np.intp]) -> Self: ...

    def start(self, tau: Array, log_odds: Array) -> State: ...

    def view(self, state: State) -> View: ...

    def moved(self, state: State, view: View, step: Array, odds: Odds | None) -> State: ...

    def log_evidence(self, fit: Fit) -> Array: ...

    def target(self, fit: Fit) -> Target: ...


class NormalProblem(NamedTuple):
    """Flat rows of normal outcomes, their prior, and whether noise is held where the state has it."""

    rows: Rows
    prior: RowPrior
    holds_noise: bool = False

    @property
    def entries(self) -> int:
        """Of the Gram matrix."""
        return self.rows.cross.shape[-1] ** 2

    @property
    def knows_noise(self) -> bool:
        """Whether sweeps leave it as it is."""
        return self.holds_noise or self.rows.noise is not None

    def take(self, index: NDArray[np.intp]) -> NormalProblem:
        """Some of the rows; one may be taken several times."""
        return self._replace(rows=self.rows.take(index))

    def start(self, tau: Array, log_odds: Array) -> State:
        """Sites of the weights without a pull, and the variance of the targets."""
        noise = first_noise(self.rows) if self.rows.noise is None else self.rows.noise
        nothing = np.zeros((len(tau), 0))
        return State(tau, np.zeros_like(tau), noise, log_odds, nothing, nothing)

    def view(self, state: State) -> View:
        """The joint normal."""
        rows, noise = self.rows, state.noise
        unit = slab_unit(self.prior, rows, noise)
        full = rows.gram * (unit**2 / noise)[:, None, None]
        diagonal = np.arange(full.shape[-1])
        full[:, diagonal, diagonal] += state.tau
        linear = rows.cross * (unit / noise)[:, None] + state.nu
        cov: Any = np.linalg.inv(full)
        mean: Array = (cov @ linear[..., None])[..., 0]
        v: Array = cov[:, diagonal, diagonal]
        a = np.maximum(1 / v - state.tau, LEAST_PRECISION)
        b = mean / v - state.nu
        tilted = rows.density.tilted(a, b, state.log_odds)
        return View(full, linear, mean, cov, a, b, tilted, no_outcome_sites(len(noise)))

    def moved(self, state: State, view: View, step: Array, odds: Odds | None) -> State:
        """The next state: some way towards the sites that match."""
        tau, nu, log_odds = weight_sites(state, view, step, odds)
        noise = state.noise if self.knows_noise else _noise(self, state, view)
        return state._replace(tau=tau, nu=nu, noise=noise, log_odds=log_odds)

    def log_evidence(self, fit: Fit) -> Array:
        """log p(y | eta) of each row."""
        return log_evidence(self, fit)

    def target(self, fit: Fit) -> Target:
        """What draws go by: given its noise, the likelihood is normal."""
        rows, noise = self.rows, fit.state.noise
        unit, log_integral = slab_unit(self.prior, rows, noise), log_norm(fit)
        gram = rows.gram * (unit**2 / noise)[:, None, None]
        linear = rows.cross * (unit / noise)[:, None]

        def log_likelihood(w: Array, fit: NDArray[np.intp], rng: np.random.Generator) -> Array:
            pull = (linear[fit] * w).sum(-1) - 0.5 * ((gram[fit] @ w[..., None])[..., 0] * w).sum(-1)
            return pull - log_integral[fit]

        return Target(gram, linear, unit, log_likelihood)


def no_outcome_sites(n_rows: int) -> OutcomeSites:
    """Those of normal outcomes, which need none."""
    return OutcomeSites(*(np.zeros((n_rows, 0)) for _ in OutcomeSites._fields))


def settle(
    problem: Problem, state: State, sweeps: int, damping: float, tol: float, odds: Odds | None = None
) -> Fit:
    """Parallel updates until P(edge) changes by less than `tol`: row by row, unless `odds` couples rows."""
    live = np.arange(len(state.noise))
    step, last = np.full(len(live), damping), np.full(len(live), np.inf)
    prob = expit(state.log_odds)
    whole: Fit | None = None
    for sweep in range(sweeps + 1):
        view = problem.view(state)
        change = np.abs(view.tilted.prob - prob)
        prob, worst = view.tilted.prob, change.max(-1)
        now = Fit(state, view, change)
        whole = deepcopy(now) if whole is None else whole
        done = worst <= tol if odds is None else np.full(len(live), (worst <= tol).all())
        done |= sweep == sweeps
        if done.all() and len(live) == len(whole.change):
            return now
        if done.any():
            _put(whole, now, live[done], done)
        slower, faster = np.maximum(0.7 * step, _LEAST_DAMPING), np.minimum(1.02 * step, damping)
        step = np.where(worst > last, slower, faster)
        state, last = problem.moved(state, view, step, odds), worst
        if done.any():  # the rest goes on alone
            remaining = np.flatnonzero(~done)
            if not len(remaining):
                break
            problem, state, live = problem.take(remaining), state.take(remaining), live[remaining]
            prob, step, last = prob[remaining], step[remaining], last[remaining]
    assert whole is not None
    return whole


def weight_sites(state: State, view: View, step: Array, odds: Odds | None) -> tuple[Array, Array, Array]:
    """Sites of the weights a step (row,) on, and the log odds of edges."""
    t, s = view.tilted, step[:, None]
    # Only positive sites: they keep the joint normal proper whatever the data, and cavities too.
    tau = np.clip(1 / np.maximum(t.var, _LEAST_VARIANCE) - view.a, _LEAST_SITE, _MOST_SITE)
    nu = t.mean * (tau + view.a) - view.b
    log_odds = state.log_odds if odds is None else odds(t.prob, state.log_odds)
    return state.tau + s * (tau - state.tau), state.nu + s * (nu - state.nu), log_odds


def _noise(problem: NormalProblem, state: State, view: View) -> Array:
    """One over the mean of the gamma that is the precision's optimal factor."""
    rows, (a, b) = problem.rows, first_noise_prior(problem.prior)
    unit = slab_unit(problem.prior, rows, state.noise)
    moment = view.cov + view.mean[:, :, None] * view.mean[:, None, :]
    squares = rows.square - 2 * unit * (rows.cross * view.mean).sum(-1)
    squares = np.maximum(squares + unit**2 * (rows.gram * moment).sum((-1, -2)), 0)
    count = rows.dof
    if problem.prior.slab_units == "noise":
        t = view.tilted
        count = count + t.prob.sum(-1)
        squares = squares + unit**2 * (t.var + t.mean**2).sum(-1)
    return (b + squares / 2) / (a + count / 2)


def log_site_norm(fit: Fit) -> Array:
    """log of what the sites of a row's weights leave out of the prior, the 2 pi apart."""
    state, view = fit.state, fit.view
    total = view.a + state.tau
    site = view.tilted.log_norm - 0.5 * (view.b + state.nu) ** 2 / total + 0.5 * np.log(total)
    return site.sum(-1)


def log_norm(fit: Fit) -> Array:
    """Log of the likelihood's exponential part integrated over the prior of the weights."""
    view = fit.view
    volume = (view.linear * view.mean).sum(-1) - np.linalg.slogdet(view.full)[1]
    return 0.5 * volume + log_site_norm(fit)


def log_evidence(problem: NormalProblem, fit: Fit) -> Array:
    """log p(y | eta) of each row; learned noise by Laplace's method in its logarithm."""
    rows, prior, state = problem.rows, problem.prior, fit.state
    like = rows.dof * np.log(2 * np.pi * state.noise) + prior.intercept * np.log(rows.samples)
    evidence = log_norm(fit) - 0.5 * (like + rows.square / state.noise)
    if not problem.knows_noise:
        a, b = first_noise_prior(prior)
        evidence += a * np.log(b) - gammaln(a) - a * np.log(state.noise) - b / state.noise
        evidence += 0.5 * np.log(2 * np.pi / (a + rows.dof / 2))
    return evidence


def _put(
    whole: tuple[Any, ...], update: tuple[Any, ...], index: NDArray[np.intp], done: NDArray[np.bool_]
) -> None:
    """Write the rows of the update that are done into their place."""
    for old, new in zip(whole, update, strict=True):
        if isinstance(old, tuple):
            _put(old, new, index, done)
        else:
            old[index] = new[done]
