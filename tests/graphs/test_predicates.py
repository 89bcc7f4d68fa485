"""Probability of a statement: against counting, against enumeration, and its error against ArviZ."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from pyro_sparse.graphs import probability_of
from pyro_sparse.posterior.arviz import arviz


def sticky_chains(rng, chains=4, draws=500, stay=0.8):
    """Draws of a 2 x 2 graph in which every edge is redrawn now and then, with probability .4."""
    graphs = np.zeros((chains, draws, 2, 2), dtype=int)
    state = rng.random((chains, 2, 2)) < 0.4
    for t in range(draws):
        move = rng.random((chains, 2, 2)) > stay
        state = np.where(move, rng.random((chains, 2, 2)) < 0.4, state)
        graphs[:, t] = state
    return graphs


def connected(graph):
    """Whether rows and columns form one piece."""
    rows, columns = graph.shape
    square = np.zeros((rows + columns,) * 2)
    square[:rows, rows:] = graph
    return connected_components(square, directed=False)[0] == 1


def test_against_enumeration():
    """Draws that hold each of the 64 graphs as often as independent fair edges would."""
    graphs = np.array(list(itertools.product([0, 1], repeat=6))).reshape(-1, 2, 3)
    want = sum(connected(graph) for graph in graphs) / 64
    assert probability_of(np.tile(graphs, (5, 1, 1)), connected).probability == pytest.approx(want)


def test_vectorised_and_one_by_one_agree():
    draws = sticky_chains(np.random.default_rng(0))
    one = probability_of(draws, lambda g: (g[0] & g[1]).any())
    all_at_once = probability_of(draws, lambda g: (g[:, 0] & g[:, 1]).any(axis=1), vectorised=True)
    assert one == all_at_once
    assert one.probability == pytest.approx(np.mean((draws[..., 0, :] & draws[..., 1, :]).any(axis=-1)))
    assert one.probability == pytest.approx(1 - (1 - 0.16) ** 2, abs=3 * one.standard_error)


def test_a_predicate_sees_each_graph_once():
    seen = []
    draws = np.array([[[0, 1]], [[1, 1]], [[0, 1]]])
    found = probability_of(draws, lambda g: bool(seen.append(g.tolist()) or g[0, 0] == 1))
    assert sorted(seen) == [[[0, 1]], [[1, 1]]]
    assert found.probability == pytest.approx(1 / 3)


def test_standard_error_is_that_of_arviz():
    draws = sticky_chains(np.random.default_rng(1))
    found = probability_of(draws, lambda g: g.sum() >= 2)
    holds = (draws.sum(axis=(2, 3)) >= 2).astype(float)
    assert found.standard_error == pytest.approx(np.ravel(arviz().mcse(holds, method="mean"))[0], rel=0.01)
    assert 0.1 < found.effective_sample_size / 2000 < 0.4


def test_chains_that_never_move_are_worth_one_draw_each_at_most():
    draws = np.zeros((4, 100, 1, 1))
    draws[:2] = 1
    found = probability_of(draws, lambda g: g[0, 0] == 1)
    assert found.probability == 0.5
    assert found.effective_sample_size < 6
    assert found.standard_error > 0.2


@pytest.mark.parametrize("draws", [np.zeros((50, 2, 2)), np.zeros((2, 3, 2, 2)), np.zeros((4, 50, 2, 2))])
def test_no_error_without_chains_or_variation(draws):
    found = probability_of(draws, lambda g: g.any())
    assert found.probability == 0
    assert np.isnan(found.standard_error) and np.isnan(found.effective_sample_size)


DRAWS = np.eye(3)[None, :2]
BATCH = np.stack([np.eye(2), np.ones((2, 2))])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: probability_of(DRAWS, "acyclic"),
            TypeError,
            "predicate: want a function of a graph, got str",
        ),
        (lambda: probability_of(DRAWS, lambda g: g.sum()), TypeError, r"True or False for a graph, got .*2"),
        (lambda: probability_of(DRAWS, lambda g: None), TypeError, "True or False for a graph, got None"),
        (
            lambda: probability_of(DRAWS, lambda g: g == 1),
            TypeError,
            r"got an array of shape \(2, 3\); .* \.all\(\)",
        ),
        (
            lambda: probability_of(BATCH, lambda g: g.sum(axis=(1, 2)), vectorised=True),
            TypeError,
            "True or False per graph, got int64; compare numbers",
        ),
        (
            lambda: probability_of(BATCH, lambda g: (g == 1).any(), vectorised=True),
            ValueError,
            r"one answer per graph, shape \(2,\), got \(\); reduce over the last two axes",
        ),
        (
            lambda: probability_of(np.eye(2), np.any),
            ValueError,
            r"draws: want shape \(chain, draw, row, column\) or",
        ),
        (
            lambda: probability_of(np.zeros((0, 2, 2)), np.any),
            ValueError,
            r"draws: want shape .* with entries, got \(0, 2, 2\)",
        ),
        (lambda: probability_of(DRAWS + 0.5, np.any), ValueError, "draws: want edges of 0 or 1, got"),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()
