"""The search for a graph: what it finds where the answer is known, and what a graph costs."""

from __future__ import annotations

from math import comb, log

import numpy as np
import pytest
from scipy.stats import kstest

from pyro_sparse.inference.table.factor_likelihood import FactorFit, Moments, maximum_likelihood
from pyro_sparse.inference.table.graph_search import (
    best_graphs,
    exact_fit,
    graph_cost,
    graph_key,
    graph_level,
    improved,
    most_factors,
    rotated_graph,
)


def blocks(k=4, size=3, loading=0.7, correlation=0.3):
    """Covariance of k factors of `size` features each, and its edges."""
    edge = np.kron(np.eye(k), np.ones((size, 1))) > 0
    between = np.full((k, k), correlation) + (1 - correlation) * np.eye(k)
    covariance = loading**2 * edge @ between @ edge.T
    np.fill_diagonal(covariance, 1.0)
    return covariance, edge


def in_order(edge):
    """Columns by their first feature."""
    return edge[:, np.argsort(edge.argmax(0))]


@pytest.mark.parametrize(("correlation", "k"), [(0.0, 2), (0.3, 4), (0.5, 5)])
def test_the_graph_of_a_covariance_is_found_whatever_is_offered(correlation, k):
    covariance, edge = blocks(k=k, correlation=correlation)
    moments = Moments(covariance, 500)
    for offered in (k, k + 2, 2 * k):
        best = best_graphs(moments, offered)[0]
        np.testing.assert_array_equal(in_order(best.edge), edge)
        assert best.correlated.any() == (correlation > 0)


def test_fewer_than_there_are_is_the_best_of_what_is_offered():
    found = best_graphs(Moments(blocks()[0], 500), 2)
    assert max(graph.edge.shape[1] for graph in found) == 2


def test_levels_fall_and_the_order_of_columns_does_not_matter():
    rng = np.random.default_rng(0)
    covariance, _ = blocks()
    x = rng.multivariate_normal(np.zeros(12), covariance, size=200)
    s = np.corrcoef(x.T)
    found = best_graphs(Moments(s, 200), 6)
    levels = [graph_level(Moments(s, 200), graph) for graph in found]
    assert levels == sorted(levels, reverse=True)
    order = rng.permutation(12)
    other = best_graphs(Moments(s[np.ix_(order, order)], 200), 6)[0]
    np.testing.assert_array_equal(in_order(other.edge), in_order(found[0].edge[order]))


def test_other_axes_lead_where_promax_does_not():
    """Dense graphs without simple structure: 40 % of the edges, seeds whose best graph promax misses."""
    for seed in (1007, 1009):
        rng = np.random.default_rng([seed, 0, 77])
        edge = rng.random((15, 3)) < 0.4
        weight = edge * rng.uniform(0.4, 1.0, edge.shape) * rng.choice([-1, 1], edge.shape)
        x = rng.normal(size=(200, 3)) @ weight.T + 0.6 * rng.normal(size=(200, 15))
        graphs = best_graphs(Moments(np.corrcoef(x.T), 200.0), 3)
        assert graph_key(graphs[0].edge) == graph_key(edge)
        assert len({graph_key(graph.edge) for graph in graphs}) == len(graphs) >= 3


def test_exact_fit_is_uniform_under_the_graph_and_small_beside_it():
    """Of 120 tables of the graph; then two features correlate beside their factors, by .2 of 1,000 rows."""
    covariance, edge = blocks()
    beside = covariance.copy()
    beside[0, 4] += 0.2
    beside[4, 0] += 0.2
    rng, correlated = np.random.default_rng(0), ~np.eye(4, dtype=bool)
    loadings, between = 0.7 * edge, np.where(np.eye(4) == 1, 1.0, 0.3)
    start = FactorFit(edge, correlated, loadings, between, np.full(12, 0.51), -np.inf)

    def p_value(of, n):
        x = rng.normal(size=(n, 12)) @ np.linalg.cholesky(of).T
        moments = Moments(np.cov(x.T, bias=True), float(n))
        return exact_fit(moments, maximum_likelihood(moments, start, steps=60, tolerance=1e-8))

    assert kstest([p_value(covariance, 150) for _ in range(120)], "uniform").pvalue > 0.01
    assert max(p_value(beside, 1000) for _ in range(5)) < 1e-4


def test_noise_has_no_factor():
    assert best_graphs(Moments(np.eye(8), 200), 3) == []


def test_factors_stay_uncorrelated_where_they_must():
    covariance, _ = blocks(correlation=0.3)
    for graph in best_graphs(Moments(covariance, 500), 4, correlations=False):
        np.testing.assert_array_equal(graph.correlations, np.eye(len(graph.correlations)))


def test_a_wrong_edge_goes_and_a_lost_one_comes():
    covariance, edge = blocks()
    wrong = edge.copy()
    wrong[0, 0], wrong[0, 1], wrong[5, 3] = False, True, True
    pairs = ~np.eye(4, dtype=bool)
    start = FactorFit(wrong, pairs, 0.5 * wrong, np.eye(4), np.full(12, 0.5), -np.inf)
    found = improved(Moments(covariance, 500), start)
    np.testing.assert_array_equal(found.edge, edge)
    held = improved(Moments(covariance, 500), start, edges=False)
    np.testing.assert_array_equal(held.edge, wrong)


def test_what_a_graph_costs():
    edge = np.zeros((5, 3), dtype=bool)
    edge[:4, 0] = edge[2:4, 1] = True
    correlated = np.zeros((3, 3), dtype=bool)
    correlated[0, 1] = correlated[1, 0] = True
    want = 0.5 * log(50) * 7 + log(comb(10, 2)) + 0.3 * 5 * log(3)
    assert graph_cost(edge, correlated, 50) == pytest.approx(want)


def test_ledermanns_bound():
    """(G - K)^2 >= G + K, the count of entries less that of parameters."""
    for g in range(3, 60):
        k = most_factors(g)
        assert (g - k) ** 2 >= g + k and (g - k - 1) ** 2 < g + k + 1


def test_a_rotated_graph_has_as_many_factors_as_are_asked_for():
    """Salient loadings of three factors, of which the search would drop one that is hardly there."""
    weights = np.kron(np.eye(3), np.ones((3, 1))) * np.array([0.7, 0.7, 0.35])
    covariance = weights @ weights.T
    np.fill_diagonal(covariance, 1.0)
    moments = Moments(covariance, 60)
    assert best_graphs(moments, 3)[0].edge.shape[1] == 2
    graph = rotated_graph(moments, 3)
    order = np.abs(graph.loadings).argmax(0).argsort()
    np.testing.assert_allclose(np.abs(graph.loadings[:, order]), weights, atol=0.02)
    np.testing.assert_array_equal(rotated_graph(moments, 3, False).edge.sum(0), [3, 3, 3])
