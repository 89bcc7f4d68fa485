r"""Sites of expectation propagation, and the joint normal they make with the likelihood.

.. math:: q(w) \propto e^{-w'Kw/2 + h'w} \prod_j e^{-\tau_j w_j^2/2 + \nu_j w_j}, \qquad
          K = SF'FS / \sigma^2, \; h = SF'y / \sigma^2

All sites are updated at once, with damping that shrinks in rows that oscillate, and rows that have settled
leave. Sites have positive precision: the joint normal is then proper whatever the data, and so are cavities.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from ..density.weight import Tilted
from .row_checks import LEAST_PRECISION, Rows, slab_unit
from .rows import RowPrior

__all__ = ["Fit", "Odds", "Problem", "State", "View", "log_evidence", "log_norm", "settle"]

_LEAST_SITE, _MOST_SITE = 1e-3, 1e8  # site precisions, in units of the slab
_LEAST_DAMPING = 0.02
_LEAST_VARIANCE = 1e-300  # a weight surely absent has none

Array = NDArray[np.float64]
Odds = Callable[[Array, Array], Array]
"""Log odds a priori from P(edge) and the log odds that gave it."""


class Problem(NamedTuple):
    """Flat rows and their prior."""

    rows: Rows
    prior: RowPrior

    def take(self, index: NDArray[np.intp]) -> Problem:
        return Problem(self.rows.take(index), self.prior)


class State(NamedTuple):
    """Sites (row, feature), noise variance (row,), log odds of every edge a priori (row, feature)."""

    tau: Array
    nu: Array
    noise: Array
    log_odds: Array

    def take(self, index: NDArray[np.intp]) -> State:
        return State(*(v[index] for v in self))


class View(NamedTuple):
    """The joint normal at a state, and what each edge looks like with its own prior put back."""

    full: Array  # precision of the joint normal
    linear: Array  # its precision times its mean
    mean: Array
    cov: Array
    a: Array
    b: Array
    tilted: Tilted


class Fit(NamedTuple):
    """Sites of all rows after some sweeps."""

    state: State
    view: View
    change: Array  # last change of P(edge)


def _view(problem: Problem, state: State) -> View:
    rows, noise = problem.rows, state.noise
    unit = slab_unit(problem.prior, rows, noise)
    full = rows.gram * (unit**2 / noise)[:, None, None]
    diagonal = np.arange(full.shape[-1])
    full[:, diagonal, diagonal] += state.tau
    linear = rows.cross * (unit / noise)[:, None] + state.nu
    cov: Any = np.linalg.inv(full)
    mean: Array = (cov @ linear[..., None])[..., 0]
    v: Array = cov[:, diagonal, diagonal]
    a = np.maximum(1 / v - state.tau, LEAST_PRECISION)
    b = mean / v - state.nu
    return View(full, linear, mean, cov, a, b, rows.density.tilted(a, b, state.log_odds))


def settle(
    problem: Problem, state: State, sweeps: int, damping: float, tol: float, odds: Odds | None = None
) -> Fit:
    """Parallel updates until P(edge) changes by less than `tol`: row by row, unless `odds` couples rows."""
    live = np.arange(len(state.noise))
    step, last = np.full(len(live), damping), np.full(len(live), np.inf)
    prob = expit(state.log_odds)
    whole: Fit | None = None
    for sweep in range(sweeps + 1):
        view = _view(problem, state)
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
        state, last = _updated(problem, state, view, step, odds), worst
        if done.any():  # the rest goes on alone
            remaining = np.flatnonzero(~done)
            if not len(remaining):
                break
            problem, state, live = problem.take(remaining), state.take(remaining), live[remaining]
            prob, step, last = prob[remaining], step[remaining], last[remaining]
    assert whole is not None
    return whole


def _updated(problem: Problem, state: State, view: View, step: Array, odds: Odds | None) -> State:
    t, s = view.tilted, step[:, None]
    # Only positive sites: they keep the joint normal proper whatever the data, and cavities too.
    tau = np.clip(1 / np.maximum(t.var, _LEAST_VARIANCE) - view.a, _LEAST_SITE, _MOST_SITE)
    nu = t.mean * (tau + view.a) - view.b
    return State(
        tau=state.tau + s * (tau - state.tau),
        nu=state.nu + s * (nu - state.nu),
        noise=state.noise if problem.rows.noise is not None else _noise(problem, state, view),
        log_odds=state.log_odds if odds is None else odds(t.prob, state.log_odds),
    )


def _noise(problem: Problem, state: State, view: View) -> Array:
    """One over the mean of the gamma that is the precision's optimal factor."""
    rows, (a, b) = problem.rows, problem.prior.noise_prior
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


def log_norm(fit: Fit) -> Array:
    """Log of the likelihood's exponential part integrated over the prior of the weights."""
    state, view = fit.state, fit.view
    total = view.a + state.tau
    site = view.tilted.log_norm - 0.5 * (view.b + state.nu) ** 2 / total + 0.5 * np.log(total)
    return 0.5 * ((view.linear * view.mean).sum(-1) - np.linalg.slogdet(view.full)[1]) + site.sum(-1)


def log_evidence(problem: Problem, fit: Fit) -> Array:
    """log p(y | eta) of each row; learned noise by Laplace's method in its logarithm."""
    (rows, prior), state = problem, fit.state
    like = rows.dof * np.log(2 * np.pi * state.noise) + prior.intercept * np.log(rows.samples)
    evidence = log_norm(fit) - 0.5 * (like + rows.square / state.noise)
    if rows.noise is None:
        a, b = prior.noise_prior
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
