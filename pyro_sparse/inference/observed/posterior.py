"""Parents of every variable: samplers over terms, with rates and sizes of effects that all targets share.

Rates of terms and variances of their coefficients belong to classes of terms (lines of a target's own past,
of other variables, of actions; curves; products) and to all targets together. They are set to their posterior
means given the terms that a shorter run found, twice over, and then held (empirical Bayes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits

from .sampler import Chain, Prior, Regression, sample_terms
from .terms import CURVES, LINE, PRODUCT, TermMap, Terms, effects_basis, freed, terms_of, winsorised

if TYPE_CHECKING:
    from ...data.sequences import Sequences

__all__ = ["Candidates", "Settled", "TermPosterior", "candidates_of", "classes_of", "term_posterior"]

# Classes of terms.
_OWN_LINE, _LINE, _ACTION_LINE, _OWN_CURVE, _CURVE, _PRODUCT = range(6)
_N_CLASSES = 6
# Terms of each class that a target is expected to have, where nothing is known, and what that counts for: as
# many targets. None: half of them, as much as two terms.
_EXPECTED = {_CURVE: 0.2, _OWN_CURVE: 0.1, _PRODUCT: 0.2}
_COUNTS = 2.0
_LINE_B, _ACTION_B = 4.0, 2.0  # b of a Beta(1, b): of other variables' lines a fifth, of actions' a third
_SLAB, _SLAB_COUNTS = 0.3, 10.0  # squared coefficient over noise variance, and as how many terms it counts
_LEAST_SLAB = 0.2
_LOGIT = np.linspace(-14, 6, 201)  # of rates


class Candidates(NamedTuple):
    """What the candidate parents are.

    Parameters
    ----------
    n_variables, lags, n_actions : int
        They are the variables one step back, two steps back, …, then actions.
    action_widths : tuple of int, optional
        Columns of each action; default one.
    """

    n_variables: int
    lags: int
    n_actions: int
    action_widths: tuple[int, ...] | None = None

    @property
    def total(self) -> int:
        """All of them."""
        return self.n_variables * self.lags + self.n_actions

    @property
    def widths(self) -> NDArray[np.intp]:
        """Columns of each."""
        past = np.ones(self.n_variables * self.lags, dtype=int)
        of_actions = np.ones(self.n_actions) if self.action_widths is None else self.action_widths
        return np.concatenate([past, of_actions]).astype(int)


def candidates_of(sequences: Sequences, lags: int) -> Candidates:
    """The candidates of sequences.

    Parameters
    ----------
    sequences : Sequences
    lags : int
    """
    n_actions = len(sequences.action_names)
    return Candidates(len(sequences.feature_names), lags, n_actions, tuple(sequences.action_widths))


class Settled(NamedTuple):
    """Rates and slabs of the classes.

    Attributes
    ----------
    rate, slab : ndarray (class,)
    """

    rate: NDArray[np.float64]
    slab: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TermPosterior:
    """What `term_posterior` found.

    Attributes
    ----------
    probability : ndarray (target, candidate)
    by_chain : ndarray (chain, target, candidate)
    draws : ndarray of int8 (chain, draw, target, candidate)
    curved : ndarray (target, candidate)
        Probability that a parent acts otherwise than by a line.
    strength : ndarray (target, candidate)
        Standard deviation of the part of the target's mean that a candidate has a share in, in standard
        deviations of the target; mean over the posterior.
    fitted : ndarray (step, target)
        Posterior mean of the targets, in standard deviations; NaN where a target was not seen.
    residual : ndarray (step, target)
        The targets less that.
    sets : ndarray of int (chain, draw, target, term)
        Terms of the draws, -1 where there are fewer.
    settled : Settled
        Rates and slabs that it was made with.
    updated : Settled
        What another round would take.
    """

    probability: NDArray[np.float64]
    by_chain: NDArray[np.float64]
    draws: NDArray[np.int8]
    curved: NDArray[np.float64]
    strength: NDArray[np.float64]
    fitted: NDArray[np.float64]
    residual: NDArray[np.float64]
    sets: NDArray[np.int16]
    settled: Settled
    updated: Settled


def term_posterior(
    inputs: NDArray[np.float64],
    targets: NDArray[np.float64],
    candidates: Candidates,
    *,
    forbidden: NDArray[np.bool_] | None = None,
    curves: bool = True,
    products: bool = True,
    power: float = 1.0,
    steps: int = 600,
    rounds: int = 2,
    n_chains: int = 2,
    num_draws: int = 250,
    settled: Settled | None = None,
    starts: list[list[int]] | None = None,
    burn: int = 50,
    covariates: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> TermPosterior:
    """Posterior of the parents of every target.

    Parameters
    ----------
    inputs : ndarray (step, column)
        Of all candidates, one after the other.
    targets : ndarray (step, target)
        NaN: not seen, and no evidence for that target.
    candidates : Candidates
    forbidden : ndarray of bool (target, candidate), optional
    curves, products : bool
    power : float
    steps : int
        Flips of each chain that count.
    rounds : int
        Shorter runs by which rates and slabs are set; 0: as they are in `settled`, or a priori.
    n_chains : int
        From the empty set, and from where the shorter runs ended; more from the empty set, too.
    num_draws : int
        Of each chain.
    settled : Settled, optional
        Where rates and slabs begin.
    starts : list of list of int, optional
        Terms of each target where the first chain begins.
    burn : int
        Flips before those that count.
    covariates : ndarray (step, column), optional
        Of every target, always in its sum, under flat priors: targets and terms are freed of them (Frisch and
        Waugh), and the degrees of freedom are counted. All is then in standard deviations of what is left.
    seed : int
    """
    n_targets = targets.shape[1]
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(n_targets)]
    regressions = _regressions(inputs, targets, curves, products, candidates, covariates)
    classes = [classes_of(regression.terms, i, candidates) for i, regression in enumerate(regressions)]
    sizes = np.stack([np.bincount(c, minlength=_N_CLASSES) for c in classes])
    allowed = [regression.diagonal > 0 for regression in regressions]  # 0: follows from the covariates
    if forbidden is not None:
        allowed = [
            may & ~forbidden[i][regression.terms.parents].any(1)
            for i, (may, regression) in enumerate(zip(allowed, regressions, strict=True))
        ]
    settled = settled or _a_priori(sizes)
    total = candidates.total

    def priors(at: Settled) -> list[Prior]:
        made = []
        for c, may, regression in zip(classes, allowed, regressions, strict=True):
            # that one of an action's contrasts is in the sum is as probable as the line of a number
            absent = np.log1p(-at.rate[c]) / _shares(regression.terms, candidates)
            odds = np.log(-np.expm1(absent)) - absent
            made.append(Prior(np.where(may, odds, -np.inf), at.slab[c], power))
        return made

    starts = starts or [[] for _ in regressions]
    with threadpool_limits(1, user_api="blas"):  # matrices too small to share
        for _ in range(rounds):
            chains = [
                sample_terms(r, p, total, max(steps // 3, 50), rng, start)
                for r, p, rng, start in zip(regressions, priors(settled), streams, starts, strict=True)
            ]
            starts = [list(chain.states[int(chain.weights.argmax())]) for chain in chains]
            settled = _update(chains, classes, sizes, settled)
        prior = priors(settled)
        by_target = [
            [sample_terms(r, p, total, steps, rng, start if c == 0 else None, burn) for c in range(n_chains)]
            for r, p, rng, start in zip(regressions, prior, streams, starts, strict=True)
        ]
    updated = _update([chains[0] for chains in by_target], classes, sizes, settled)
    by_chain = np.stack([[chain.edge for chain in chains] for chains in by_target], 1)
    draws = np.zeros((n_chains, num_draws, n_targets, total), np.int8)
    longest = max(len(state) for chains in by_target for chain in chains for state in chain.states)
    sets = np.full((n_chains, num_draws, n_targets, longest), -1, np.int16)
    curved, strength = np.zeros((n_targets, total)), np.zeros((n_targets, total))
    fitted, residual = np.full(targets.shape, np.nan), np.full(targets.shape, np.nan)
    for i, (regression, chains) in enumerate(zip(regressions, by_target, strict=True)):
        parents, kind = regression.terms.parents, regression.terms.kind
        for c, chain in enumerate(chains):
            for draw, at in enumerate(streams[i].choice(len(chain.states), num_draws, p=chain.weights)):
                chosen = list(chain.states[at])
                draws[c, draw, i, parents[chosen].ravel()] = 1
                sets[c, draw, i, : len(chosen)] = chosen
        mean = np.zeros(len(kind))
        for chain in chains:
            for state, weight in zip(chain.states, chain.weights, strict=True):
                chosen = list(state)
                if weight * len(chain.states) < 1e-2 and weight < 1e-3:
                    continue
                mean[chosen] += weight / n_chains * regression.coefficients(chosen, prior[i].slab)
                bent = np.zeros(total, bool)
                bent[parents[chosen][kind[chosen] != LINE].ravel()] = True
                curved[i] += weight / n_chains * bent
        used = np.flatnonzero(mean)
        seen = ~np.isnan(targets[:, i])
        parts = regression.terms.columns[:, used] * mean[used]
        for j in np.unique(parents[used]):
            strength[i, j] = parts[:, (parents[used] == j).any(1)].sum(1).std()
        fitted[seen, i] = parts.sum(1)
        residual[seen, i] = regression.target - parts.sum(1)
    probability = by_chain.mean(0)
    return TermPosterior(
        probability, by_chain, draws, curved, strength, fitted, residual, sets, settled, updated
    )


def _shares(terms: Terms, candidates: Candidates) -> NDArray[np.intp]:
    """How many terms stand for what one does between numbers, (term,): contrasts, and their products."""
    of_each = candidates.widths[terms.parents]
    shares = np.where(terms.kind == PRODUCT, of_each.prod(1), of_each[:, 0])
    return np.where(terms.kind == CURVES, 1, shares)


def _regressions(
    inputs: NDArray[np.float64],
    targets: NDArray[np.float64],
    curves: bool,
    products: bool,
    candidates: Candidates,
    covariates: NDArray[np.float64] | None,
) -> list[Regression]:
    """One for each target; targets that were seen in the same steps share their columns."""
    by_rows: dict[bytes, Regression] = {}
    regressions = []
    of_column = np.repeat(np.arange(candidates.total), candidates.widths)
    for column in targets.T:
        seen = ~np.isnan(column)
        key = seen.tobytes()
        known = by_rows.get(key)
        terms = known.terms if known is not None else terms_of(inputs[seen], curves, products, of_column)
        target = winsorised(column[seen][:, None])
        n_effects = 0
        if covariates is not None:
            basis = effects_basis(covariates[seen])
            target, n_effects = freed(target, basis), basis.shape[1]
            if known is None:
                terms = terms._replace(columns=freed(terms.columns, basis))
        regression = Regression(terms, target[:, 0], n_effects)
        if known is not None:
            regression.share(known)
        by_rows.setdefault(key, regression)
        regressions.append(regression)
    return regressions


def classes_of(terms: Terms | TermMap, target: int, candidates: Candidates) -> NDArray[np.intp]:
    """Class of every term of a target, (term,).

    Parameters
    ----------
    terms : Terms or TermMap
    target : int
    candidates : Candidates
    """
    past = candidates.n_variables * candidates.lags
    candidate = terms.parents[:, 0]
    own_past = (candidate < past) & (candidate % candidates.n_variables == target)
    classes = np.where(own_past, _OWN_LINE, np.where(candidate < past, _LINE, _ACTION_LINE))
    classes = np.where(terms.kind == CURVES, np.where(own_past, _OWN_CURVE, _CURVE), classes)
    return np.where(terms.kind == PRODUCT, _PRODUCT, classes)


def _a_priori(sizes: NDArray[np.intp]) -> Settled:
    a, b = _beta(sizes)
    return Settled(a / (a + b), np.full(_N_CLASSES, _SLAB))


def _beta(sizes: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Beta prior of each class's rate."""
    a, b = np.ones(_N_CLASSES), np.array([1.0, _LINE_B, _ACTION_B, 1.0, 1.0, 1.0])
    each = np.maximum(sizes.mean(0), 1)
    for c, expected in _EXPECTED.items():
        a[c] = _COUNTS * expected
        b[c] = _COUNTS * max(each[c] - expected, expected)
    return a, b


def _update(
    chains: list[Chain], classes: list[NDArray[np.intp]], sizes: NDArray[np.intp], last: Settled
) -> Settled:
    """Posterior means of rates and slabs given what the chains expect."""
    a, b = _beta(sizes)
    squares, included = np.zeros(_N_CLASSES), np.zeros(_N_CLASSES)
    for chain, c in zip(chains, classes, strict=True):
        squares += np.bincount(c, chain.squares, _N_CLASSES)
        for state, weight in zip(chain.states, chain.weights, strict=True):
            included += weight * np.bincount(c[list(state)], minlength=_N_CLASSES)
    probability, of_class = np.concatenate([chain.term for chain in chains]), np.concatenate(classes)
    rate = np.array([
        _rate(probability[of_class == c], last.rate[c], a[c], b[c]) for c in range(_N_CLASSES)
    ])  # fmt: skip
    slab = (_SLAB_COUNTS * _SLAB + squares) / (_SLAB_COUNTS + included)
    return Settled(rate, np.maximum(slab, _LEAST_SLAB))


def _rate(probability: NDArray[np.float64], at: float, a: float, b: float) -> float:
    """Posterior mean of a rate, from probabilities at another one as if terms were independent.

    The mean of these probabilities is one step of EM, which takes hundreds where nearly all terms are absent.
    """
    if not len(probability):
        return float(a / (a + b))
    rate = expit(_LOGIT)
    ratio = rate / (1 - rate) * (1 - at) / at
    sure = probability.clip(0, 1 - 1e-9)
    fit = np.array([np.log1p(sure * (r - 1)).sum() for r in ratio])
    density = fit + (len(sure) + b) * np.log1p(-rate) + a * np.log(rate)
    weight = np.exp(density - density.max())
    return float((weight @ rate / weight.sum()).clip(1e-6, 1 - 1e-6))
