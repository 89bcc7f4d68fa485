"""Assumption 3.6 against its own definition, against all maps of three latents, and against enumeration."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest

from pyro_sparse.graphs import (
    blocks,
    consistency,
    sufficient_supports,
    support_failure,
    support_identifiability,
)
from pyro_sparse.graphs.supports import bernoulli_failure_bound


def supports_of(sets, m):
    return np.array([[int(k in s) for k in range(m)] for s in sets])


FOUR_OF_SIX = supports_of([{0, 1, 2}, {0, 3, 4}, {1, 3, 5}, {2, 4, 5}], 6)


def holds_by_definition(supports):
    """The union of the supports without j is everything but j, for every j."""
    m = supports.shape[1]
    sets = [set(np.flatnonzero(row)) for row in supports]
    return all(set().union(*(s for s in sets if j not in s)) == set(range(m)) - {j} for j in range(m))


def every(tasks, m):
    return np.array(list(itertools.product([0, 1], repeat=tasks * m))).reshape(-1, tasks, m)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_four_tasks_tell_six_latents_apart():
    found = sufficient_supports(FOUR_OF_SIX)
    assert found.holds and found.disentangled.all() and not found.failing
    assert all(not sufficient_supports(np.delete(FOUR_OF_SIX, t, axis=0)).holds for t in range(4))


@pytest.mark.parametrize(("size", "pairs"), [(2, 6), (3, 12), (6, 30)])
def test_blocks_fail_with_the_pairs_inside_them(size, pairs):
    supports = np.kron(np.eye(6 // size, dtype=int), np.ones((1, size), dtype=int))
    found = sufficient_supports(supports)
    assert len(found.failing) == pairs and not found.holds and not found.disentangled.any()
    np.testing.assert_array_equal(found.free, np.kron(np.eye(6 // size), np.ones((size, size))))
    assert blocks(graph_a=supports.T).equivalent == tuple(
        tuple(range(k, k + size)) for k in range(0, 6, size)
    )


def test_the_definition_on_random_supports(rng):
    seen = []
    for _ in range(400):
        m = int(rng.integers(1, 6))
        supports = (rng.random((rng.integers(1, 9), m)) < rng.uniform(0.2, 0.8)).astype(int)
        found = sufficient_supports(supports)
        seen.append(found.holds)
        assert found.holds == holds_by_definition(supports)
        sets = [set(np.flatnonzero(row)) for row in supports]
        for k, j in itertools.product(range(m), repeat=2):
            assert found.separating[k, j] == sum(k in s and j not in s for s in sets)
        np.testing.assert_array_equal(found.free, consistency(graph_a=supports.T))
        assert found.failing == [(k, j) for k, j in np.argwhere(found.free) if k != j]
    assert 0.1 < np.mean(seen) < 0.9


@pytest.mark.parametrize(("tasks", "m"), [(2, 3), (3, 4), (2, 2), (3, 3)])
def test_fewer_tasks_than_an_antichain_needs_never_do(tasks, m):
    """Sperner: m latents need sets of tasks of which none holds another."""
    some = support_identifiability(every(tasks, m)).all_disentangled > 0
    assert some == (comb(tasks, tasks // 2) >= m)


def test_maps_that_keep_the_sparsity_are_those_that_are_left_free(rng):
    """All supports of a 3 x 3 map, with random entries: E|W L|_0 <= E|W|_0, for random sets of tasks."""
    shapes = np.array(list(itertools.product([0, 1], repeat=9))).reshape(-1, 3, 3)
    maps = shapes * rng.uniform(1, 2, shapes.shape)
    invertible = np.abs(np.linalg.det(maps)) > 1e-6
    shapes, maps = shapes[invertible], maps[invertible]
    permutations = [list(p) for p in itertools.permutations(range(3))]
    outcomes = set()
    for _ in range(80):
        supports = (rng.random((rng.integers(1, 5), 3)) < 0.6).astype(int)
        weights = supports * rng.uniform(1, 2, supports.shape)
        keeps = ((weights @ maps) != 0).sum((1, 2)) <= supports.sum()
        free = sufficient_supports(supports).free
        inside = np.array(
            [any((s[:, p] <= free).all() and s[range(3), p].all() for p in permutations) for s in shapes]
        )
        assert not (keeps & ~inside).any()
        # The converse needs the diagonal in the support, which every invertible map has up to a permutation.
        assert not (inside & ~keeps).any()
        outcomes |= {int(inside.sum())}
    assert len(outcomes) > 3


@pytest.mark.parametrize(("tasks", "m"), [(3, 3), (4, 2), (1, 4)])
def test_independent_edges_against_enumeration(tasks, m, rng):
    pi = rng.random((tasks, m))
    pi[0, 0], pi[0, 1] = 1.0, 0.0
    all_supports = every(tasks, m)
    probability = np.where(all_supports == 1, pi, 1 - pi).prod((1, 2))
    separating = np.einsum("stk,stj->skj", all_supports, 1 - all_supports)
    failed = separating == 0
    found = support_failure(pi)
    np.testing.assert_allclose(found.pairs, np.tensordot(probability, failed, 1), atol=1e-12)
    overall = probability @ (failed.sum((1, 2)) > m)
    assert found.lower - 1e-12 <= overall <= found.upper + 1e-12
    off = found.pairs[~np.eye(m, dtype=bool)]
    assert found.lower == pytest.approx(off.max()) and found.upper == pytest.approx(min(1, off.sum()))


def test_draws_agree_with_the_closed_form(rng):
    pi = rng.random((6, 4))
    found = support_identifiability((rng.random((4, 5000, 6, 4)) < pi).astype(int))
    exact = support_failure(pi)
    np.testing.assert_allclose(found.consistency, exact.pairs, atol=4 / np.sqrt(4 * 20_000))
    assert exact.lower - 0.015 <= 1 - found.all_disentangled <= exact.upper + 0.015


def test_draws_are_counted():
    passing, failing = FOUR_OF_SIX, FOUR_OF_SIX.copy()
    failing[:, 0] = failing[:, 1]
    found = support_identifiability(np.stack([passing, failing, passing, passing]))
    assert found.all_disentangled == 0.75
    assert found.consistency[0, 1] == found.consistency[1, 0] == 0.25
    np.testing.assert_allclose(found.disentangled[:2], 0.75)


def test_proposition_b7():
    assert bernoulli_failure_bound(6, 20) == pytest.approx(0.0951, abs=5e-5)
    for m, n, eta in ((6, 30, 0.5), (4, 12, 0.3), (3, 2, 0.9), (1, 5, 0.5), (5, 0, 0.5)):
        assert bernoulli_failure_bound(m, n, eta) == pytest.approx(
            support_failure(np.full((n, m), eta)).upper, rel=1e-9
        )
    rng = np.random.default_rng(1)
    random = support_identifiability(rng.random((4000, 20, 6)) < 0.5)
    assert 0.07 < 1 - random.all_disentangled < 0.0951 + 0.01


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        (sufficient_supports, [[0.5, 1]], "supports: want 0 or 1, got 0.5; give probabilities"),
        (sufficient_supports, [[np.nan, 1]], "supports: want 0 or 1, got nan"),
        (sufficient_supports, [1, 0], r"supports: want shape \(..., task, latent\), got \(2,\)"),
        (sufficient_supports, np.ones((2, 3, 3)), r"supports: want shape \(task, latent\), got \(2, 3, 3\)"),
        (support_identifiability, [[1, 0]], r"draws: want at least one draw.* got \(1, 2\)"),
        (support_identifiability, np.zeros((0, 2, 2)), r"draws: want at least one draw.* got \(0, 2, 2\)"),
        (support_identifiability, [[[1, 2]]], "draws: want 0 or 1, got 2"),
        (support_failure, [0.5], r"probabilities: want shape \(task, latent\), got \(1,\)"),
        (support_failure, [[0.5, 1.5]], "probabilities: want numbers from 0 to 1, got 1.5"),
        (support_failure, [[0.5, np.nan]], "probabilities: want numbers from 0 to 1, got nan"),
    ],
)
def test_bad_supports_are_named(function, value, message):
    with pytest.raises(ValueError, match=message):
        function(value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "n_latents: want a whole number of at least .*, got 0"),
        ((3, -1), "n_tasks: want a whole number of at least .*, got -1"),
        ((3, 5, 1.5), "probability=1.5: want a number from 0 to 1"),
        ((3, 5, np.nan), "probability=nan"),
    ],
)
def test_bad_numbers_of_the_bound_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        bernoulli_failure_bound(*arguments)
