"""Slopes of known functions, loops over the published inequality, and complaints."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.graphs import anchors
from pyro_sparse.graphs.decoder_slopes import anchor_likeness, anchor_scale, slope_directions


@pytest.fixture
def z():
    return np.random.default_rng(0).normal(size=(400, 2))


def test_directions_of_known_functions(z):
    one, sech = np.ones(len(z)), 1 / np.cosh(z.sum(axis=1)) ** 2
    slopes = np.stack(
        [
            np.column_stack([one, 0.1 * one]),  # z1 + .1 z2
            np.column_stack([sech, sech]),  # tanh(z1 + z2)
            np.column_stack([z[:, 1], z[:, 0]]),  # z1 z2
            np.column_stack([one, 0.1 * z[:, 1]]),  # z1 + .05 z2², weak and bent
            np.column_stack([one, 0 * one]),  # z1; the second edge does nothing
            np.column_stack([one, one]),  # an anchor: the second slope is none of its edges
        ],
        axis=1,
    )
    graph = np.ones((6, 2), dtype=int)
    graph[5, 1] = 0
    found = slope_directions(slopes, graph)
    assert found.directions.tolist() == [1, 1, 2, 2, 1, 1]
    assert found.bends.tolist() == [False, False, True, True, False, False]
    np.testing.assert_allclose(found.evenness[[0, 1, 4]], 0, atol=1e-12)
    assert found.evenness[2] > 0.8 and np.isnan(found.evenness[5])
    rank = [np.linalg.matrix_rank(slopes[:, j]) for j in range(5)]
    assert found.directions.tolist()[:5] == rank


def test_scale_is_the_published_inequality():
    rng = np.random.default_rng(1)
    both = set()
    for _ in range(100):
        graph = (rng.random((8, 3)) < 0.4).astype(int)
        slopes = rng.normal(size=(20, 8, 3)) * rng.uniform(0.2, 2, size=(8, 1))
        d = np.abs(slopes) * graph
        several = [r for r in range(8) if graph[r].sum() > 1]
        found = anchor_scale(slopes, graph)
        for k in range(3):
            own = [r for r in range(8) if graph[r].tolist() == np.eye(3, dtype=int)[k].tolist()]
            if len(own) < 2:
                assert np.isnan(found[k])
                continue
            holding = 0
            for j in own:  # with equal weights, the slide's inequality for every other feature
                left = sum(d[s, j, k] ** 2 for s in range(20))
                right = [sum(d[s, j, k] * d[s, r, q] for s in range(20) for q in range(3)) for r in several]
                holding += all(left >= other for other in right)
            assert (holding >= 2) == (found[k] >= 1)
            both.add(holding >= 2)
    assert both == {True, False}


def test_the_scale_does_not_depend_on_how_weight_and_curve_share_it():
    """With x_j = f_j(w_j z), B the derivative of f: |w_j| sum B_j² >= sum |B_j| sum |w_l| |B_l|."""
    rng = np.random.default_rng(2)
    graph = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1]])
    w, b = rng.uniform(0.5, 2, (5, 2)) * graph, np.abs(rng.normal(size=(30, 5, 2))) * graph
    found = anchor_scale(w * b, graph)
    for k, own in ((0, (0, 1)), (1, (2, 3))):
        ratios = [
            w[j, k] * (b[:, j, k] ** 2).sum() / (b[:, j, k] * (w[4] * b[:, 4]).sum(axis=1)).sum() for j in own
        ]
        assert found[k] == pytest.approx(min(ratios))
    assert np.isinf(anchor_scale((w * b)[:, :4], graph[:4])).all()


def test_likeness_of_anchors(z):
    means = np.column_stack(
        [z[:, 0], -2 * z[:, 0] + 1, z[:, 1], np.tanh(z[:, 1]), z[:, 1] ** 2, z.sum(axis=1)]
    )
    graph = [[1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [1, 1]]
    found = anchor_likeness(means, graph)
    wanted = np.corrcoef(z[:, 1], np.tanh(z[:, 1]))[0, 1]
    np.testing.assert_allclose(found, [1, wanted])
    np.testing.assert_array_equal(np.isnan(anchor_likeness(means[:, 2:], graph[2:])), [True, False])
    assert anchors(graph).tolist() == [2, 3]
    assert anchor_likeness(np.zeros((5, 2)), [[1], [1]]) == 0


GOOD = np.ones((4, 2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: slope_directions(GOOD[0], np.eye(2)), r"slopes: want shape \(point, feature, factor\)"),
        (lambda: slope_directions(GOOD, np.eye(3)), r"over a graph \(3, 3\), got \(4, 2, 2\)"),
        (lambda: slope_directions(GOOD * np.nan, np.eye(2)), "slopes: want finite numbers"),
        (lambda: slope_directions(GOOD, np.eye(2), 0), "tolerance: want a share between 0 and 1, got 0"),
        (lambda: anchor_scale(GOOD, [np.eye(2)]), "graph: want one graph"),
        (lambda: anchor_scale(GOOD, 0.5 * np.eye(2)), "graph: want edges of 0 or 1"),
        (lambda: anchor_likeness(GOOD, np.eye(2)), r"means: want shape \(point, feature\)"),
    ],
)
def test_complaints(call, message):
    with pytest.raises(ValueError, match=message):
        call()
