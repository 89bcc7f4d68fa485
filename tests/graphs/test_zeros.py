"""Matchings against the null spaces of random matrices, and the two ends: linear, and bent in every way."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._by_definition import free_given_zeros as free_by_algebra
from pyro_sparse.graphs import anchors, may_depend
from pyro_sparse.graphs.zeros import free_given_zeros

CYCLE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])


def test_random_graphs_against_null_spaces():
    rng = np.random.default_rng(0)
    kept = []
    for _ in range(400):
        shape = rng.integers(1, 9), rng.integers(1, 6)
        graph = (rng.random(shape) < rng.choice([0.2, 0.4, 0.6])).astype(int)
        directions = rng.integers(1, 4, size=shape[0])
        found = free_given_zeros(graph, directions)
        np.testing.assert_array_equal(found, free_by_algebra(graph, directions, rng))
        kept.append((found.sum(axis=1) == 1).mean())
    assert 0.1 < np.mean(kept) < 0.9


def test_leaving_out_one_feature_after_another():
    rng = np.random.default_rng(7)
    kept = []
    for _ in range(250):
        k = rng.integers(1, 5)
        graph = (rng.random((rng.integers(1, 6), k)) < rng.choice([0.3, 0.5])).astype(int)
        graph = np.vstack([graph, np.eye(k, dtype=int)[rng.integers(0, k, rng.integers(0, 2 * k))]])
        directions = rng.integers(1, 3, size=len(graph))
        found = free_given_zeros(graph, directions, overdetermined=True)
        np.testing.assert_array_equal(found, free_by_algebra(graph, directions, rng, overdetermined=True))
        assert not (free_given_zeros(graph, directions) & ~found).any()
        kept.append((found.sum(axis=1) == 1).mean())
    assert 0.1 < np.mean(kept) < 0.9


def test_zeros_that_any_turn_can_have_are_no_evidence():
    """A dense decoder of three factors, turned until each of them has two zeros."""
    dense = np.random.default_rng(8).normal(size=(9, 3))
    turn = np.column_stack([np.linalg.svd(dense[rows])[2][-1] for rows in ([0, 1], [2, 3], [4, 5])])
    graph = np.abs(dense @ turn) > 1e-9
    assert graph.sum() == 27 - 6 and np.linalg.matrix_rank(turn) == 3
    np.testing.assert_array_equal(free_given_zeros(graph), np.eye(3))
    assert free_given_zeros(graph, overdetermined=True).all()
    two = np.repeat(np.eye(3, dtype=int), 2, axis=0)
    np.testing.assert_array_equal(free_given_zeros(two, overdetermined=True), np.eye(3))
    assert free_given_zeros(two[1:], overdetermined=True)[0].all()


def test_features_that_bend_in_every_way_leave_inclusions():
    rng = np.random.default_rng(1)
    for _ in range(200):
        graph = rng.random((rng.integers(1, 8), rng.integers(1, 6))) < 0.5
        bent, straight = free_given_zeros(graph, np.inf), free_given_zeros(graph)
        np.testing.assert_array_equal(bent, may_depend(graph))
        assert not (bent & ~straight).any()  # bending only pins down more


def test_anchors_are_enough_and_a_cycle_is_not():
    anchored = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(free_given_zeros(anchored), np.eye(3))
    assert free_given_zeros(CYCLE).all()
    np.testing.assert_array_equal(free_given_zeros(CYCLE, [2, 2, 2]), np.eye(3))
    # Twice the features of the cycle are no longer turned into anchors, with or without a bend.
    np.testing.assert_array_equal(free_given_zeros(np.tile(CYCLE, (2, 1))), np.eye(3))


def test_a_linear_cycle_has_another_solution_as_sparse():
    """What the matching says of the cycle, with numbers: the same features from anchors alone."""
    loadings = CYCLE * np.array([[1.0, 2.0, 0.0], [0.0, 1.5, 1.0], [0.7, 0.0, 1.2]])
    z = np.random.default_rng(2).normal(size=(50, 3))
    x = z @ loadings.T
    turned = z @ loadings.T  # its own features as latents: three edges instead of six
    np.testing.assert_allclose(x, turned @ np.eye(3))


def test_stacks_are_one_by_one_and_large_graphs_are_possible():
    rng = np.random.default_rng(3)
    draws = rng.random((2, 6, 12, 4)) < 0.5
    found = free_given_zeros(draws)
    for c, d in ((0, 0), (1, 5)):
        np.testing.assert_array_equal(found[c, d], free_given_zeros(draws[c, d]))
    wide = rng.random((3, 2000, 20)) < 0.4
    assert not (anchors(wide) > 0).all()
    np.testing.assert_array_equal(
        free_given_zeros(wide), np.broadcast_to(np.eye(20, dtype=bool), (3, 20, 20))
    )
    # Sparse rows first, and then all of them: the last feature alone decides.
    many = np.vstack([np.tile([[1, 1, 0], [0, 1, 1]], (200, 1)), [[1, 0, 0]]])
    np.testing.assert_array_equal(free_given_zeros(many), free_by_algebra(many, np.ones(401), rng))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.5, 1]],), "graph: want edges of 0 or 1, got 0.5"),
        ((CYCLE, [1, 2]), r"directions: want one number, or one for each of 3 features, got shape \(2,\)"),
        ((CYCLE, 0), "directions: want numbers of at least 1, got 0"),
        ((CYCLE, np.nan), "directions: want numbers of at least 1, got nan"),
    ],
)
def test_complaints(arguments, message):
    with pytest.raises(ValueError, match=message):
        free_given_zeros(*arguments)
