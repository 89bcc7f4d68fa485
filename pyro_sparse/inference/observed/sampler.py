r"""Which terms are in a target's sum: spike and slab over all of them, coefficients and noise integrated out.

.. math:: y \mid \gamma, \beta, \sigma^2 \sim N\Big(\sum_{i: \gamma_i = 1} \beta_i f_i, \sigma^2 I\Big), \quad
          \beta_i \mid \sigma^2 \sim N(0, g_{c(i)} \sigma^2), \quad p(\sigma^2) \propto 1 / \sigma^2, \quad
          \gamma_i \sim \mathrm{Bernoulli}(\eta_{c(i)})

with c(i) the class of a term (line of the target's own past, of another variable, …). The evidence of a set
and of all its neighbours, one term more or less, follows from one inverse as small as the set, so that a
sampler that looks at all neighbours before it moves costs little: the weighted tempered Gibbs sampler of
Zanella and Roberts (2019). Every step moves; states are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .terms import Terms

__all__ = ["Chain", "Prior", "Regression", "sample_terms"]

_EXPLORE = 5.0  # expected moves of a sweep to terms that nothing speaks for, of about as many as the set has
_MOST_TERMS = 40  # in a sum
_WORTH_A_LOOK = 1e-3  # weight of a state whose neighbours are looked at for its parents'


class Prior(NamedTuple):
    """Prior of the terms of one target.

    Attributes
    ----------
    log_odds : ndarray (term,)
        Of being in the sum; -inf: never.
    slab : ndarray (term,)
        g: variance of a coefficient in units of the noise variance.
    power : float
        Of the likelihood, in (0, 1]; below 1 it makes up for noise that is not normal.
    """

    log_odds: NDArray[np.float64]
    slab: NDArray[np.float64]
    power: float


class Regression:
    """One target on all terms, by the products of columns; those of a term are made when it is first used.

    Parameters
    ----------
    terms : Terms
    target : ndarray (step,)
    n_effects : int
        Of covariates that both were freed of: as many degrees of freedom are gone.
    """

    def __init__(self, terms: Terms, target: NDArray[np.float64], n_effects: int = 0) -> None:
        self.terms, self.target = terms, target
        self.n, self.freedom = len(target), len(target) - 1 - n_effects
        self.square = float(target @ target)
        self.with_target = terms.columns.T @ target
        self.diagonal = (terms.columns**2).sum(0)
        self._rows: dict[int, NDArray[np.float64]] = {}

    def share(self, other: Regression) -> None:
        """Use the products of another target on the same terms, too.

        Parameters
        ----------
        other : Regression
        """
        self._rows = other._rows

    def products(self, chosen: list[int]) -> NDArray[np.float64]:
        """Products of some columns with all, (chosen, term)."""
        for i in chosen:
            if i not in self._rows:
                self._rows[i] = self.terms.columns[:, i] @ self.terms.columns
        return np.stack([self._rows[i] for i in chosen])

    def coefficients(self, chosen: list[int], slab: NDArray[np.float64]) -> NDArray[np.float64]:
        """Posterior means given the set."""
        if not chosen:
            return np.zeros(0)
        a = self.products(chosen)[:, chosen] + np.diag(1 / slab[chosen])
        return np.asarray(np.linalg.solve(a, self.with_target[chosen]), dtype=float)

    def neighbours(self, chosen: list[int], prior: Prior) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log odds of every term given the others, and (mean² / noise variance) of the coefficients there.

        Parameters
        ----------
        chosen : list of int
        prior : Prior

        Returns
        -------
        log_odds : ndarray (term,)
        squares : ndarray (chosen,)
            Second moment of each coefficient in the set, in units of the noise variance.
        """
        g, freedom = prior.slab, self.freedom
        squares = np.zeros(0)
        if chosen:
            rows = self.products(chosen)
            inverse = np.linalg.inv(rows[:, chosen] + np.diag(1 / g[chosen]))
            mean = inverse @ self.with_target[chosen]
            q = np.asarray(self.square - self.with_target[chosen] @ mean)
            r = self.diagonal + 1 / g - (rows * (inverse @ rows)).sum(0)
            c = self.with_target - mean @ rows
        else:
            q, r, c = np.asarray(self.square), self.diagonal + 1 / g, self.with_target
        less = np.maximum(1 - c**2 / (r * q), 1e-12)
        gain = -0.5 * np.log(np.maximum(r * g, 1e-12)) - freedom / 2 * np.log(less)
        if chosen:
            spread = np.diag(inverse)
            more = 1 + mean**2 / (spread * q)
            gain[chosen] = 0.5 * np.log(spread / g[chosen]) + freedom / 2 * np.log(more)
            squares = mean**2 * freedom / q + spread
        if len(chosen) >= _MOST_TERMS:
            outside = np.ones(len(gain), bool)
            outside[chosen] = False
            gain[outside] = -np.inf
        return prior.power * gain + prior.log_odds, squares


@dataclass
class Chain:
    """What a sampler saw of one target.

    Attributes
    ----------
    term : ndarray (term,)
        Posterior probability of each term.
    edge : ndarray (candidate,)
        Of each parent.
    squares : ndarray (term,)
        Expected (coefficient² / noise variance) times the term's being in the sum.
    states : list of tuple of int
        Sets that were visited.
    weights : ndarray (state,)
        Their posterior probabilities, as far as the sampler knows.
    last : list of int
        Where it ended.
    """

    term: NDArray[np.float64]
    edge: NDArray[np.float64]
    squares: NDArray[np.float64]
    states: list[tuple[int, ...]] = field(default_factory=list)
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    last: list[int] = field(default_factory=list)


def sample_terms(
    regression: Regression,
    prior: Prior,
    n_candidates: int,
    steps: int,
    rng: np.random.Generator,
    start: list[int] | None = None,
    burn: int = 50,
) -> Chain:
    """Weighted tempered Gibbs sampling of the set of terms.

    Parameters
    ----------
    regression : Regression
    prior : Prior
    n_candidates : int
    steps, burn : int
        Flips that count, and before them.
    rng : Generator
    start : list of int, optional
        Terms at the beginning; default the empty set.

    Returns
    -------
    Chain

    References
    ----------
    Zanella and Roberts (2019), Scalable importance tempering and Bayesian variable selection, JRSS B 81(3),
    section 4. Given a state, a parent of one term or of none has one of its terms or none: the probability of
    that is averaged (Rao and Blackwell).
    """
    n_terms = len(prior.slab)
    floor = _EXPLORE / max(int(np.isfinite(prior.log_odds).sum()), 1)
    state = sorted(start or [])
    looked: dict[tuple[int, ...], tuple[NDArray, float, NDArray, NDArray, NDArray]] = {}
    visits: dict[tuple[int, ...], int] = {}
    for step in range(burn + steps):
        key = tuple(state)
        if key not in looked:
            looked[key] = _look(regression, prior, state, n_candidates, floor)
        cumulative, total = looked[key][:2]
        if step >= burn:
            visits[key] = visits.get(key, 0) + 1
        i = int(np.searchsorted(cumulative, rng.random() * total, side="right"))
        i = min(i, n_terms - 1)
        state = [k for k in state if k != i] if i in state else sorted([*state, i])
    weights = np.array([count / looked[key][1] for key, count in visits.items()])
    weights /= weights.sum()
    term, edge, squares = np.zeros(n_terms), np.zeros(n_candidates), np.zeros(n_terms)
    for key, weight in zip(visits, weights, strict=True):
        _, _, p, e, second = looked[key]
        term += weight * p
        edge += weight * _edges(key, weight, e, looked, regression, prior, n_candidates, floor)
        squares[list(key)] += weight * second
    return Chain(term, edge.clip(0, 1), squares, list(visits), weights, state)


def _edges(
    key: tuple[int, ...],
    weight: float,
    edge: NDArray[np.float64],
    looked: dict[tuple[int, ...], tuple[NDArray, float, NDArray, NDArray, NDArray]],
    regression: Regression,
    prior: Prior,
    n_candidates: int,
    floor: float,
) -> NDArray[np.float64]:
    """Of a state: probabilities of parents by a single term as they are without that, where it was looked at.

    Without it, other terms of the same parent may come in.
    """
    parents = regression.terms.parents
    ends = np.bincount([j for i in key for j in set(parents[i].tolist())], minlength=n_candidates)
    edge = edge.copy()
    for i in key:
        alone = [j for j in set(parents[i].tolist()) if ends[j] == 1]
        without = tuple(k for k in key if k != i)
        if not alone or (without not in looked and weight < _WORTH_A_LOOK):
            continue
        if without not in looked:
            looked[without] = _look(regression, prior, list(without), n_candidates, floor)
        edge[alone] = looked[without][3][alone]
    return edge


def _look(
    regression: Regression, prior: Prior, state: list[int], n_candidates: int, floor: float
) -> tuple[NDArray, float, NDArray, NDArray, NDArray]:
    """Of a state: cumulated rates of its flips, their sum, probabilities of terms and parents, squares."""
    log_odds, squares = regression.neighbours(state, prior)
    log_odds = np.minimum(log_odds, 500.0)
    p = expit(log_odds)
    odds = np.exp(log_odds)
    rate = odds + floor * (1 + odds)
    rate[np.isneginf(log_odds)] = 0.0
    rate[state] = 1 + floor * (1 + np.exp(-log_odds[state]))
    parents = regression.terms.parents
    outside = odds.copy()
    outside[state] = 0.0
    # Not a parent yet: none, or one, of its terms. Already one by a single term: that or none. Else it stays.
    twice = parents[:, 0] != parents[:, 1]
    sums = np.bincount(parents[:, 0], outside, n_candidates)
    sums += np.bincount(parents[twice, 1], outside[twice], n_candidates)
    edge = sums / (1 + sums)
    count = np.zeros(n_candidates, int)
    alone = np.zeros(n_candidates)
    for i in state:
        for j in set(parents[i].tolist()):
            count[j] += 1
            alone[j] = p[i]
    edge = np.where(count == 1, np.maximum(alone, 0), np.where(count > 1, 1.0, edge))
    cumulative = np.cumsum(rate)
    return cumulative, float(cumulative[-1]), p, edge, squares
