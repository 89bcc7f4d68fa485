"""The graph of least expected Hamming distance: against all digraphs on three nodes, and the metric."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_sparse.graphs import bayesian_fdr, expected_shd, median_probability_graph, shd_optimal_graph
from pyro_sparse.metrics import shd

DIGRAPHS = np.array(list(itertools.product([0, 1], repeat=9))).reshape(-1, 3, 3)


def draws_of(seed, n=40):
    """Draws with opposite edges that exclude each other, so that the joint matters."""
    rng = np.random.default_rng(seed)
    graphs = (rng.random((n, 3, 3)) < rng.random((3, 3))).astype(int)
    exclusive = rng.random(n) < 0.7
    graphs[exclusive] = np.triu(graphs[exclusive])
    turned = exclusive & (rng.random(n) < 0.5)
    graphs[turned] = graphs[turned].swapaxes(1, 2)
    return graphs


def cost(graph, truths, a, b, once):
    """Mean weighted distance of a graph from the truths, pair by pair."""
    total = a * ((graph == 1) & (truths == 0)).sum() + b * ((graph == 0) & (truths == 1)).sum()
    if once:
        for i, j in itertools.permutations(range(len(graph)), 2):
            if graph[i, j] and not graph[j, i]:
                total -= (a + b) / 2 * ((truths[:, i, j] == 0) & (truths[:, j, i] == 1)).sum()
    return total / len(truths)


@pytest.mark.parametrize("reversal", [1, 2])
def test_expected_distance_is_the_mean_of_the_metric(reversal):
    draws = draws_of(0)
    for graph in DIGRAPHS[::17]:
        want = np.mean([shd(truth, graph, reversal=reversal) for truth in draws])
        got = expected_shd(draws, graph, reversal_counts_once=reversal == 1)
        assert got == pytest.approx(want)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("a", "b"), [(1, 1), (3, 1), (0.5, 2), (0, 1)])
def test_minimiser_over_all_digraphs(once, a, b):
    for seed in range(2):
        draws = draws_of(seed)
        options = {"weight_false": a, "weight_missing": b, "reversal_counts_once": once}
        everything = [cost(graph, draws, a, b, once) for graph in DIGRAPHS]
        best = shd_optimal_graph(draws, **options)
        assert expected_shd(draws, best, **options) == pytest.approx(min(everything))
        assert cost(best, draws, a, b, once) == pytest.approx(min(everything))


def test_reversals_can_change_the_answer():
    """An edge for sure, in a direction that is open: worth naming only if a reversal counts once."""
    draws = [[[0, 1], [0, 0]]] * 9 + [[[0, 0], [1, 0]]] * 11
    assert not shd_optimal_graph(draws, weight_false=2).any()
    assert shd_optimal_graph(draws, weight_false=2, reversal_counts_once=True).tolist() == [[0, 0], [1, 0]]


def test_equal_weights_give_the_median_probability_graph():
    p = np.array([[0.0, 0.5, 0.49], [1.0, 0.51, 0.2]])
    np.testing.assert_array_equal(shd_optimal_graph(p), median_probability_graph(p))
    assert expected_shd(p, shd_optimal_graph(p)) == pytest.approx(0.5 + 0.49 + 0.49 + 0.2)
    # a/(a + b) = .3 is not a binary fraction: the tie still goes to the edge
    assert shd_optimal_graph([[0.3, 0.29]], weight_false=3, weight_missing=7).tolist() == [[True, False]]


def test_a_half_by_rounding_is_a_half_everywhere():
    short = np.nextafter(0.5, 0)
    assert short < 0.5
    chosen = shd_optimal_graph([[short, 0.4999]])
    assert chosen.tolist() == [[True, False]]
    np.testing.assert_array_equal(median_probability_graph([[short, 0.4999]]), chosen)
    np.testing.assert_array_equal(bayesian_fdr([[short, 0.4999]], fdr=1), chosen)


def test_chains_are_pooled_and_ties_go_to_more_edges():
    draws = draws_of(3)
    chains = draws.reshape(4, 10, 3, 3)
    for once in (False, True):
        np.testing.assert_array_equal(
            shd_optimal_graph(chains, reversal_counts_once=once),
            shd_optimal_graph(draws, reversal_counts_once=once),
        )
    both_or_none = [np.ones((2, 2)), np.zeros((2, 2))]
    assert shd_optimal_graph(both_or_none, reversal_counts_once=True).all()
    either = [[[0, 1], [0, 0]], [[0, 0], [1, 0]]]
    assert shd_optimal_graph(either, reversal_counts_once=True).tolist() == [[0, 1], [0, 0]]


SQUARE = np.zeros((5, 2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shd_optimal_graph([0.2, 0.3]), r"draws: want shape \(..., draw, row, column\), or"),
        (lambda: shd_optimal_graph(np.zeros((0, 2, 2))), r"draws: want shape .* got \(0, 2, 2\)"),
        (lambda: shd_optimal_graph([[1.2]]), r"draws: want numbers in \[0, 1\], got values from 1.2"),
        (
            lambda: shd_optimal_graph(SQUARE, weight_false=-1),
            "weight_false: want a cost of 0 or more, got -1",
        ),
        (lambda: shd_optimal_graph(SQUARE, weight_missing=np.nan), "weight_missing: want a cost of 0 or"),
        (lambda: shd_optimal_graph(SQUARE, weight_false=0, weight_missing=0), "both are 0, so that"),
        (
            lambda: shd_optimal_graph(np.zeros((2, 2)), reversal_counts_once=True),
            r"reversal_counts_once wants joint draws, shape .* got \(2, 2\); probabilities of single",
        ),
        (
            lambda: shd_optimal_graph(np.zeros((5, 2, 3)), reversal_counts_once=True),
            r"reversal_counts_once wants square graphs, got \(2, 3\)",
        ),
        (
            lambda: shd_optimal_graph(SQUARE + 0.5, reversal_counts_once=True),
            "draws: want edges of 0 or 1, got 0.5; draw graphs from the probabilities first",
        ),
        (lambda: expected_shd(SQUARE, np.zeros((2, 3))), r"graph: want the shape of a draw, \(2, 2\), got"),
        (lambda: expected_shd(SQUARE, [[0, 2], [0, 0]]), "graph: want edges of 0 or 1, got 2"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
