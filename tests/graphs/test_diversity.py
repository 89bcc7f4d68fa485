"""Closed forms against their definitions over every group of features, and the worked examples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks._by_definition import apart as apart_by_definition
from benchmarks._by_definition import diversity as diversity_by_definition
from benchmarks._by_definition import groups_of, rows_of
from pyro_sparse.graphs import (
    anchors,
    consistency,
    dependency_identifiability,
    identifiability_probability,
    may_depend,
    structural_sparsity,
    sufficient_diversity,
)
from pyro_sparse.graphs.dependence import kept_apart

CYCLE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
ANCHORED = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1]])
DOUBLED = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1]])
NOT_DIVERSE = np.array([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 1]])


def random_graphs(n, rng, most=(6, 5)):
    for _ in range(n):
        shape = rng.integers(1, most[0] + 1), rng.integers(1, most[1] + 1)
        yield (rng.random(shape) < rng.choice([0.3, 0.5, 0.7])).astype(int)


def test_the_conditions_on_random_graphs():
    seen = np.zeros((3, 2), dtype=int)
    for graph in random_graphs(600, np.random.default_rng(0)):
        found, wanted = sufficient_diversity(graph), diversity_by_definition(graph)
        np.testing.assert_array_equal(np.array(found), wanted)
        np.testing.assert_array_equal(structural_sparsity(graph), wanted[2])
        np.testing.assert_array_equal(found.diverse, wanted.any(axis=0))
        assert found.holds == wanted.any(axis=0).all()
        seen += np.stack([(~wanted).sum(axis=1), wanted.sum(axis=1)], axis=1)
        rows = rows_of(graph)
        np.testing.assert_array_equal(
            anchors(graph), [sum(row == {i} for row in rows) for i in range(graph.shape[1])]
        )
    assert (seen > 200).all()  # neither answer is the rare one


def test_pairs_on_random_graphs():
    for graph in random_graphs(300, np.random.default_rng(1), most=(4, 4)):
        idle = ~graph.any(axis=0)
        # Groups say nothing of an estimate that reaches no feature; nothing can depend on it.
        beyond = idle[None, :] & ~idle[:, None]
        for mode, clauses in (("support", ("i", "iii")), ("paper", ("i", "ii", "iii"))):
            np.testing.assert_array_equal(
                ~may_depend(graph, mode), apart_by_definition(graph, clauses) | beyond
            )


@pytest.mark.parametrize("mode", ["support", "paper"])
def test_two_groups_on_random_graphs(mode):
    rng = np.random.default_rng(2)
    for graph in random_graphs(40, rng, most=(4, 4)):
        k, groups = graph.shape[1], groups_of(len(graph))
        joined = np.zeros((k, k), dtype=bool)
        for a, b in itertools.product(groups, repeat=2):
            ia, ib = ({int(j) for r in group for j in np.flatnonzero(graph[r])} for group in (a, b))
            wanted = [
                [
                    (i in ia & ib and j in ia ^ ib)
                    or (mode == "paper" and i in ia ^ ib and j in ia & ib)
                    or (i in ia and i not in ib and j in ib and j not in ia)
                    or (i in ib and i not in ia and j in ia and j not in ib)
                    for j in range(k)
                ]
                for i in range(k)
            ]
            found = kept_apart(graph, a, b, mode)
            np.testing.assert_array_equal(found, wanted)
            joined |= found
        assert not (joined & may_depend(graph, mode)).any()


T, F = True, False


@pytest.mark.parametrize(
    ("graph", "conditions", "counts"),
    [
        (1 - np.eye(4, dtype=int), [[T, T, T]] * 4, [0, 0, 0, 0]),
        (np.triu(np.ones((4, 4), dtype=int)), [[T, T, F], [F, T, F], [F, T, F], [F, F, T]], [0, 0, 0, 1]),
        (np.ones((3, 3), dtype=int), [[F, F, F]] * 3, [0, 0, 0]),
        (DOUBLED, [[F, F, F], [F, F, F], [T, T, T]], [0, 0, 1]),
        (NOT_DIVERSE, [[T, T, F], [F, F, F], [F, T, T], [F, T, T]], [0, 0, 1, 1]),
        (CYCLE, [[T, T, T]] * 3, [0, 0, 0]),
        (ANCHORED, [[T, T, T]] * 2, [2, 2]),
    ],
)
def test_worked_examples(graph, conditions, counts):
    found = sufficient_diversity(graph)
    assert np.array(found).T.tolist() == conditions
    assert anchors(graph).tolist() == counts
    assert bool(found.holds) == all(any(row) for row in conditions)


def test_the_two_modes_differ_where_one_column_holds_another():
    """The counter-example of the docstring: z1 may hold some of z2, and the paper says that it may not."""
    assert may_depend([[1, 1], [0, 1]])[0, 1]
    assert not may_depend([[1, 1], [0, 1]], "paper")[0, 1]
    z = np.random.default_rng(0).normal(size=(1000, 2))
    x = np.stack([z[:, 0] + np.sin(z[:, 1]), z[:, 1]], axis=1)
    turned = np.stack([z[:, 0] + z[:, 1], z[:, 1]], axis=1)
    again = np.stack([turned[:, 0] - turned[:, 1] + np.sin(turned[:, 1]), turned[:, 1]], axis=1)
    np.testing.assert_allclose(again, x)  # the same features from turned latents, with the same support
    assert sufficient_diversity([[1, 1], [0, 1]]).holds


def test_diversity_implies_what_the_modes_say():
    for graph in random_graphs(400, np.random.default_rng(3)):
        found = sufficient_diversity(graph)
        apart = {m: may_depend(graph, m).sum(axis=-1) == 1 for m in ("support", "paper")}
        assert not (found.diverse & ~apart["paper"]).any()
        some = graph.any(axis=0)
        np.testing.assert_array_equal(apart["support"] & some, found.common)
        assert not ((anchors(graph) >= 1) & ~found.common).any()


def test_features_are_to_factors_what_actions_are_to_latents():
    rng = np.random.default_rng(4)
    draws = rng.random((50, 8, 4)) < 0.6
    draws = draws[draws.any(axis=1).all(axis=1)]
    np.testing.assert_array_equal(may_depend(draws), consistency(graph_a=draws.swapaxes(-1, -2)))
    ours = dependency_identifiability(draws)
    theirs = identifiability_probability(graph_a=draws.swapaxes(-1, -2))
    for name in ("consistency", "disentangled", "all_disentangled", "mixed"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_draws_are_counted_and_stacks_are_one_by_one():
    rng = np.random.default_rng(5)
    draws = rng.random((3, 20, 6, 4)) < 0.4
    found = sufficient_diversity(draws)
    assert found.holds.shape == (3, 20)
    for c, d in ((0, 0), (1, 7), (2, 19)):
        np.testing.assert_array_equal(np.array(found)[:, c, d], np.array(sufficient_diversity(draws[c, d])))
        np.testing.assert_array_equal(anchors(draws)[c, d], anchors(draws[c, d]))
    for mode in ("support", "paper"):
        p = dependency_identifiability(draws, mode)
        free = may_depend(draws.reshape(-1, 6, 4), mode)
        np.testing.assert_allclose(p.consistency, free.mean(axis=0))
        assert ((p.mixed == p.mixed.T) & (p.mixed >= p.consistency)).all()
    nothing = np.zeros((5, 3, 1), dtype=int)
    assert dependency_identifiability(nothing).disentangled == 0
    assert dependency_identifiability(nothing, "paper").all_disentangled == 0


def test_large_stacks():
    draws = np.random.default_rng(6).random((100, 2000, 20)) < 0.1
    found = sufficient_diversity(draws)
    np.testing.assert_allclose(found.common.mean(axis=0), dependency_identifiability(draws).disentangled)


@pytest.mark.parametrize(
    "function",
    [
        anchors,
        structural_sparsity,
        sufficient_diversity,
        may_depend,
        lambda graph: kept_apart(graph, [0], [0]),
    ],
)
def test_bad_graphs_are_named(function):
    with pytest.raises(ValueError, match="graph: want edges of 0 or 1, got 0.5"):
        function([[0.5, 1]])
    with pytest.raises(ValueError, match=r"graph: want shape \(..., feature, factor\).* got \(2,\)"):
        function([1, 0])
    with pytest.raises(ValueError, match=r"with at least one factor, got \(3, 0\)"):
        function(np.zeros((3, 0)))


def test_other_complaints():
    with pytest.raises(ValueError, match='mode: want "support" or "paper", got \'both\''):
        may_depend([[1]], "both")
    with pytest.raises(ValueError, match="mode"):
        kept_apart([[1]], [0], [0], "both")
    with pytest.raises(ValueError, match=r"draws: want at least one draw.* got \(2, 2\)"):
        dependency_identifiability([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="draws: want edges of 0 or 1, got 2"):
        dependency_identifiability([[[1, 2]]])
