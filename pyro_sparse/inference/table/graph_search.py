r"""The graph of a linear normal factor model, and how many factors it has, by one criterion.

A graph is worth the log-likelihood at its maximum (`factor_likelihood.py`) less

.. math:: \tfrac12 (e + c) \log N + \log \binom{G (K - 1)}{e - m} + \kappa\, G \log K

for e edges and c correlations that are not zero, m features with an edge at all: the Bayesian information
criterion, extended (Chen & Chen 2008) by a uniform prior on which of the features' further edges are there,
and by a share of one on which factor a feature's first edge goes to. Correlations that a table does not ask
for are zero and cost nothing.

At every number of factors the search begins with maximum-likelihood factor analysis in oblique axes (promax),
keeps the sizeable loadings, and drops and adds edges and correlations, several at once, as long as the
criterion rises; factors left with one feature go. At the best number it begins in other axes as well. Random
numbers are always the same: a table has one answer, whatever the seed, the precision and the number of
restarts of a fit.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import chi2

from ..rotation.axes import obliques, promax, varimax
from .factor_likelihood import (
    Array,
    EdgeTests,
    FactorFit,
    Mask,
    Moments,
    edge_tests,
    log_likelihood,
    maximum_likelihood,
)
from .start import factor_analysis

__all__ = [
    "best_graphs",
    "empty_level",
    "exact_fit",
    "graph_cost",
    "graph_key",
    "graph_level",
    "improved",
    "most_factors",
    "rotated_graph",
]


class _Steps(TypedDict):
    """What `maximum_likelihood` takes of its effort."""

    steps: int
    tolerance: float


_SIZEABLE = 0.2  # of a rotated loading, with which it is an edge at first
_SALIENT = 0.3  # the same where no search follows
# Kappa above. Of 200 tables of 2 to 8 factors (seeds 1060 to 1259) .3 has the right number in 198; 0 has it
# in 195, three of the others with a factor too many, and 1 in 195, all others with too few.
_FIRST_EDGES = 0.3
_LEAST_FEATURES = 2  # of a factor, as in `deletions.prune`
_LEAST_NOISE = 0.1  # at first
_ROUNDS = 60  # of changes, at most; usually two or three
_ROUGH: _Steps = {"steps": 6, "tolerance": 0.05}  # while changes are tried
_FINE: _Steps = {"steps": 30, "tolerance": 1e-4}
_HIGHER = 1e-6  # nats
# Numbers of factors in a row without a better graph after which larger ones are not tried: on 60 tables of
# 2 to 8 factors (seeds 1000 to 1059) the criterion rises up to the right number and falls from there.
_PATIENCE = 3
# Other axes at the best number of factors: on 24 tables of three factors without simple structure (seeds 1000
# to 1011 of `benchmarks ppl`) promax alone leads to the best graph known in 12, with these in 24.
_STARTS, _ROTATION_STEPS = 8, 150


def graph_cost(edge: Mask, correlated: Mask, n_rows: float) -> float:
    """What a graph costs, in nats: see the head of this file.

    Parameters
    ----------
    edge : ndarray of bool (feature, factor)
    correlated : ndarray of bool (factor, factor)
        Symmetric.
    n_rows : float

    Examples
    --------
    >>> block = np.kron(np.eye(2), np.ones((3, 1))) > 0
    >>> round(graph_cost(block, np.zeros((2, 2), bool), 100), 2)  # six edges, none beside a feature's first
    15.06
    """
    n_edges, n_explained = int(edge.sum()), int(edge.any(1).sum())
    return _cost(edge.shape, n_edges, n_explained, int(np.triu(correlated, 1).sum()), n_rows)


def _cost(shape: tuple[int, ...], n_edges: int, n_explained: int, n_pairs: int, n_rows: float) -> float:
    further, places = n_edges - n_explained, shape[0] * max(shape[1] - 1, 0)
    which = gammaln(places + 1) - gammaln(further + 1) - gammaln(places - further + 1)
    which += _FIRST_EDGES * shape[0] * np.log(shape[1])
    return float(0.5 * np.log(n_rows) * (n_edges + n_pairs) + which)


def graph_level(moments: Moments, fit: FactorFit) -> float:
    """The criterion of a graph at its maximum: the higher the better.

    Parameters
    ----------
    moments : Moments
    fit : FactorFit
    """
    return fit.level - graph_cost(fit.edge, fit.correlated, moments.n_rows)


def empty_level(moments: Moments) -> float:
    """The criterion of no factor at all: each feature its own noise.

    Parameters
    ----------
    moments : Moments
    """
    nothing = np.zeros((len(moments.covariance), 1))
    return log_likelihood(moments, nothing, np.eye(1), np.diag(moments.covariance))


def exact_fit(moments: Moments, fit: FactorFit) -> float:
    r"""p-value of a graph against any covariance matrix: small where no table of it looks like this one.

    The likelihood-ratio statistic with Bartlett's correction,

    .. math:: \Bigl(N - 1 - \tfrac{2G + 5}{6} - \tfrac{2K}{3}\Bigr)
              \bigl(\log|\Sigma| - \log|S| + \operatorname{tr} \Sigma^{-1} S - G\bigr),

    is chi-squared with :math:`G(G+1)/2 - G - e - c` degrees of freedom.

    Parameters
    ----------
    moments : Moments
    fit : FactorFit
        At its maximum.

    References
    ----------
    Bartlett (1950), Tests of significance in factor analysis, British Journal of Psychology 3(2)
    """
    g, k = fit.edge.shape
    n_pairs = int(np.triu(fit.correlated, 1).sum())
    freedom = g * (g - 1) // 2 - int(fit.edge.sum()) - n_pairs
    if freedom <= 0:
        return 1.0
    implied = fit.loadings @ fit.correlations @ fit.loadings.T + np.diag(fit.noise)
    sign, log_det = np.linalg.slogdet(moments.covariance)
    if sign <= 0:
        return 0.0
    distance = (
        np.linalg.slogdet(implied)[1] - log_det + np.trace(np.linalg.solve(implied, moments.covariance))
    )
    scale = max(moments.n_rows - 1 - (2 * g + 5) / 6 - 2 * k / 3, 1.0)
    return float(chi2.sf(scale * (distance - g), freedom))


def most_factors(n_features: int) -> int:
    r"""Ledermann's bound: with more factors a covariance matrix has fewer entries than parameters.

    Parameters
    ----------
    n_features : int

    Examples
    --------
    >>> [most_factors(g) for g in (3, 6, 9)]
    [1, 3, 5]
    """
    return max(1, int(n_features + 0.5 - np.sqrt(2 * n_features + 0.25)))


def best_graphs(
    moments: Moments,
    n_factors: int,
    correlations: bool = True,
) -> list[FactorFit]:
    """The best graph that the search found from each number of factors, and others of the best number.

    Parameters
    ----------
    moments : Moments
    n_factors : int
        At most.
    correlations : bool
        Whether factors may be correlated.

    Returns
    -------
    list of FactorFit
        All different, the best first; empty where no factor is worth its edges.

    References
    ----------
    Chen and Chen (2008), Extended Bayesian information criteria, Biometrika 95
    """
    ends: list[FactorFit] = []
    best, number, stale = -np.inf, 0, 0
    for k in range(1, min(n_factors, most_factors(len(moments.covariance))) + 1):
        rotated, between = _rotated(_loadings(moments, k), correlations)
        end = improved(moments, _start(moments, rotated, between, correlations), correlations)
        level = -np.inf if end is None else graph_level(moments, end)
        if end is not None:
            ends.append(end)
        best, number, stale = (level, k, 0) if level > best + _HIGHER else (best, number, stale + 1)
        if stale >= _PATIENCE:
            break
    if number > 1:
        for rotated, between in _other_axes(_loadings(moments, number), correlations):
            end = improved(moments, _start(moments, rotated, between, correlations), correlations)
            ends += [] if end is None else [end]
    return _distinct(sorted(ends, key=lambda end: -graph_level(moments, end)))


def rotated_graph(moments: Moments, n_factors: int, correlations: bool = True) -> FactorFit:
    """Salient loadings of factor analysis after a rotation, at their maximum: nothing is dropped or added.

    Parameters
    ----------
    moments : Moments
    n_factors : int
    correlations : bool
        Whether factors may be correlated.
    """
    start = _start(moments, *_rotated(_loadings(moments, n_factors), correlations), correlations, _SALIENT)
    return maximum_likelihood(moments, start, **_FINE)


def _rotated(loadings: Array, correlations: bool) -> tuple[Array, Array]:
    """Loadings and correlations by promax, or by varimax."""
    if correlations:
        return promax(loadings)
    return loadings @ varimax(loadings), np.eye(loadings.shape[1])


def _loadings(moments: Moments, n_factors: int) -> Array:
    """Standardised loadings of maximum-likelihood factor analysis, (feature, factor)."""
    scale = np.sqrt(np.diag(moments.covariance))
    return factor_analysis(moments.covariance / np.outer(scale, scale), n_factors)[0]


def _other_axes(loadings: Array, correlations: bool) -> list[tuple[Array, Array]]:
    """Loadings and correlations by varimax, and oblique or orthogonal from random axes."""
    k = loadings.shape[1]
    if correlations:
        oblique = obliques(loadings, n_starts=_STARTS, steps=_ROTATION_STEPS)
        return [(loadings @ varimax(loadings), np.eye(k)), *oblique]
    rng = np.random.default_rng(0)
    anywhere = [loadings @ np.linalg.qr(rng.standard_normal((k, k)))[0] for _ in range(_STARTS)]
    return [(rotated @ varimax(rotated), np.eye(k)) for rotated in anywhere]


def _distinct(ends: list[FactorFit]) -> list[FactorFit]:
    """The first of each graph, whatever the order of its factors."""
    by_graph: dict[bytes, FactorFit] = {}
    for end in ends:
        by_graph.setdefault(graph_key(end.edge), end)
    return list(by_graph.values())


def graph_key(edge: Mask) -> bytes:
    """The same for graphs that differ in the order of their factors only.

    Parameters
    ----------
    edge : ndarray of bool (feature, factor)

    Examples
    --------
    >>> graph_key(np.eye(3) > 0) == graph_key(np.eye(3)[:, ::-1] > 0)
    True
    """
    return bytes([edge.shape[1] % 256]) + np.packbits(edge[:, np.lexsort(edge)]).tobytes()


def _start(
    moments: Moments, rotated: Array, between: Array, correlations: bool, least: float = _SIZEABLE
) -> FactorFit:
    """Sizeable loadings in some axes; each feature's largest is one."""
    scale = np.sqrt(np.diag(moments.covariance))
    size = np.abs(rotated)
    edge = size >= np.minimum(least, size.max(1, keepdims=True))
    rotated = rotated * edge
    noise = np.maximum(1 - np.einsum("jk,kl,jl->j", rotated, between, rotated), _LEAST_NOISE)
    correlated = np.full(between.shape, correlations) & ~np.eye(len(between), dtype=bool)
    return FactorFit(edge, correlated, rotated * scale[:, None], between, noise * scale**2, -np.inf)


def improved(
    moments: Moments,
    start: FactorFit,
    correlations: bool = True,
    edges: bool = True,
) -> FactorFit | None:
    """The graph that single edges and correlations, dropped or added, lead to from a start.

    Parameters
    ----------
    moments : Moments
    start : FactorFit
    correlations, edges : bool
        Whether they may change.

    Returns
    -------
    FactorFit or None
        At its maximum; None where no factor is left, or none is worth its edges.
    """
    now = _without_small(moments, maximum_likelihood(moments, start, **_ROUGH), edges)
    if now is None:
        return None
    level = graph_level(moments, now)
    kinds = (_dropped_edges, _added_edges) * edges + (_dropped_pairs, _added_pairs) * correlations
    tests = edge_tests(moments, now)
    for _ in range(_ROUNDS):
        before = level
        for kind in kinds:
            new, level = _changed(moments, now, level, kind(moments, now, tests))
            if new is not now:
                now, tests = new, edge_tests(moments, new)
        if level <= before:
            break
    end = maximum_likelihood(moments, now, **_FINE)
    return end if not edges or graph_level(moments, end) > empty_level(moments) else None


class _Changes(NamedTuple):
    """Entries of one kind that may change together, and what each promises by itself, in nats."""

    worth: Array
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    of_edges: bool
    present: bool  # after the change

    def applied(self, fit: FactorFit, which: NDArray[np.intp]) -> FactorFit:
        """The fit with another graph, not yet at its maximum."""
        edge, correlated = fit.edge.copy(), fit.correlated.copy()
        rows, columns = self.rows[which], self.columns[which]
        if self.of_edges:
            edge[rows, columns] = self.present
        else:
            correlated[rows, columns] = correlated[columns, rows] = self.present
        return fit._replace(edge=edge, correlated=correlated)


def _changed(moments: Moments, now: FactorFit, level: float, changes: _Changes) -> tuple[FactorFit, float]:
    """With all changes that promise something, or the better half of them, ..., if the criterion rises."""
    order = np.flatnonzero(changes.worth > 0)
    order = order[np.argsort(-changes.worth[order], kind="stable")]
    while len(order):
        new = maximum_likelihood(moments, changes.applied(now, order), **_ROUGH)
        new_or_none = _without_small(moments, new, changes.of_edges)
        if new_or_none is not None:
            new_level = graph_level(moments, new_or_none)
            if new_level > level + _HIGHER:
                return new_or_none, new_level
        order = order[: len(order) // 2]
    return now, level


def _dropped_edges(moments: Moments, fit: FactorFit, tests: EdgeTests) -> _Changes:
    """Of each feature the edge that costs least to drop."""
    loss = tests.loss
    column, rows = loss.argmin(1), np.arange(len(loss))
    first, further = _edge_costs(moments, fit, -1)
    saved = np.where(fit.edge.sum(1) > 1, further, first)
    return _Changes(saved - loss[rows, column], rows, column, of_edges=True, present=False)


def _added_edges(moments: Moments, fit: FactorFit, tests: EdgeTests) -> _Changes:
    """Of each feature the edge that gains most."""
    gain = tests.gain
    column, rows = gain.argmax(1), np.arange(len(gain))
    first, further = _edge_costs(moments, fit, 1)
    paid = np.where(fit.edge.any(1), further, first)
    return _Changes(gain[rows, column] - paid, rows, column, of_edges=True, present=True)


def _edge_costs(moments: Moments, fit: FactorFit, more: int) -> tuple[float, float]:
    """What a feature's first edge costs, and one of its further edges, when there are so many more."""
    n_edges, n_explained = int(fit.edge.sum()), int(fit.edge.any(1).sum())
    if n_edges + more < n_explained:  # there is no further edge
        return 0.5 * np.log(moments.n_rows), 0.5 * np.log(moments.n_rows)
    before, after = (
        _cost(fit.edge.shape, e, n_explained, 0, moments.n_rows) for e in (n_edges, n_edges + more)
    )
    return 0.5 * np.log(moments.n_rows), (after - before) * more


def _dropped_pairs(moments: Moments, fit: FactorFit, tests: EdgeTests) -> _Changes:
    """Correlations that are not worth a parameter."""
    rows, columns = np.triu_indices(len(fit.correlated), 1)
    worth = 0.5 * np.log(moments.n_rows) - tests.pair_loss[rows, columns]
    return _Changes(worth, rows, columns, of_edges=False, present=False)


def _added_pairs(moments: Moments, fit: FactorFit, tests: EdgeTests) -> _Changes:
    """Correlations that are."""
    rows, columns = np.triu_indices(len(fit.correlated), 1)
    worth = tests.pair_gain[rows, columns] - 0.5 * np.log(moments.n_rows)
    return _Changes(worth, rows, columns, of_edges=False, present=True)


def _without_small(moments: Moments, fit: FactorFit, small_go: bool) -> FactorFit | None:
    """Without factors of too few features, at the maximum again; None where none is left."""
    kept = fit.edge.sum(0) >= _LEAST_FEATURES
    if kept.all() or not small_go:
        return fit
    if not kept.any():
        return None
    square = np.ix_(kept, kept)
    left = fit._replace(
        edge=fit.edge[:, kept],
        correlated=fit.correlated[square],
        loadings=fit.loadings[:, kept],
        correlations=fit.correlations[square],
        noise=fit.noise + (fit.loadings[:, ~kept] ** 2).sum(1),
    )
    return maximum_likelihood(moments, left, **_ROUGH)
