"""Assumptions 3.3 to 3.5 against eigenvalues, ranks, and the paper's own examples and counter-examples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_sparse.graphs import sufficient_supports
from pyro_sparse.graphs.task_variability import (
    sufficient_representation,
    sufficient_tasks,
    sufficient_within_supports,
)

COUNTER_EXAMPLE = np.array([[1.0, 1, 0], [0, 1, 1], [1, 0, 1]])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_a_representation_against_eigenvalues(rng):
    features = rng.standard_normal((200, 4)) @ rng.standard_normal((4, 4)) + [5.0, 0, 0, 0]
    found = sufficient_representation(features)
    eigenvalues = np.linalg.eigvalsh(features.T @ features / 200)
    np.testing.assert_allclose(found.smallest**2, eigenvalues[:1], rtol=1e-8)
    np.testing.assert_allclose(found.largest**2, eigenvalues[-1:], rtol=1e-8)
    assert found.holds and found.condition == pytest.approx(np.linalg.cond(features))
    features[:, 3] = features[:, 0] - 2 * features[:, 1]
    flat = sufficient_representation(features)
    assert not flat.holds and flat.rank.tolist() == [3] and flat.dimension.tolist() == [4]
    assert sufficient_representation(features[:3, :3]).holds
    assert not sufficient_representation(features[:2, :3]).holds  # two points span no three dimensions


def test_tasks_against_numpys_rank(rng):
    for tasks, rank in itertools.product((3, 5, 20), (1, 3, 5)):
        weights = rng.standard_normal((tasks, rank)) @ rng.standard_normal((rank, 5))
        found = sufficient_tasks(weights)
        assert found.rank.tolist() == [np.linalg.matrix_rank(weights)]
        assert found.holds == (min(tasks, rank) == 5)
    several = rng.standard_normal((2, 3, 5))
    assert sufficient_tasks(several).rank.tolist() == [np.linalg.matrix_rank(several.reshape(6, 5))]
    assert sufficient_tasks(several).holds and not sufficient_tasks(several[:, 0]).holds


def test_tolerance_is_a_share_of_the_largest_value():
    weights = np.diag([1e6, 1e3, 1.0])
    assert sufficient_tasks(weights, tolerance=1e-7).holds
    assert sufficient_tasks(weights, tolerance=1e-5).rank.tolist() == [2]
    assert sufficient_tasks(weights, tolerance=1e-2).rank.tolist() == [1]


def test_the_counter_example_of_the_paper():
    """Finitely many weights: a map that is no permutation keeps every support, and only 3.5 sees it."""
    entangle = np.array([[1, 0, 0.5], [0, 1, -0.5], [0, 0, 1.5]])
    np.testing.assert_array_equal(COUNTER_EXAMPLE @ entangle != 0, COUNTER_EXAMPLE != 0)
    assert sufficient_supports(COUNTER_EXAMPLE).holds and sufficient_tasks(COUNTER_EXAMPLE).holds
    once = sufficient_within_supports(COUNTER_EXAMPLE)
    assert not once.holds and once.n_tasks.tolist() == [1, 1, 1] and np.isnan(once.concentration).all()
    often = sufficient_within_supports(np.tile(COUNTER_EXAMPLE, (50, 1)))
    assert not often.holds and often.n_tasks.tolist() == [50, 50, 50]
    np.testing.assert_array_equal(often.rank, [1, 1, 1])
    np.testing.assert_array_equal(often.concentration, [1, 1, 1])
    scaled = np.tile(COUNTER_EXAMPLE, (50, 1)) * np.linspace(1, 3, 150)[:, None]
    assert not sufficient_within_supports(scaled).holds


def test_one_direction_more_for_each_support_is_enough_to_span_and_not_to_hold(rng):
    """Two atoms per support span it, so the map of the counter-example is excluded, but 3.5 is violated."""
    weights = np.concatenate([np.tile(COUNTER_EXAMPLE, (30, 1)), COUNTER_EXAMPLE * rng.uniform(1, 2, (3, 3))])
    found = sufficient_within_supports(weights)
    assert (found.rank == found.dimension).all()
    np.testing.assert_allclose(found.concentration, 29 / 30)
    assert not found.holds


def test_weights_with_a_density_hold(rng):
    supports = rng.random((300, 4)) < 0.6
    gaussian = rng.standard_normal((300, 4))
    sphere = gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)
    for weights in (gaussian, sphere, rng.laplace(size=(300, 4))):
        found = sufficient_within_supports(weights * supports)
        assert found.holds and found.n_tasks.sum() == supports.any(1).sum()
        np.testing.assert_array_equal(found.dimension, found.supports.sum(1))
    assert found.rank.max() == 4


def test_a_flat_support_is_found_among_others(rng):
    flat = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 3))
    weights = np.zeros((80, 4))
    weights[:40, :3] = flat
    weights[40:, 1:] = rng.standard_normal((40, 3))
    found = sufficient_within_supports(weights)
    order = [tuple(s) for s in found.supports.astype(int)]
    assert order == [(0, 1, 1, 1), (1, 1, 1, 0)]
    assert found.rank.tolist() == [3, 2] and found.p_value[0] > 0.01 >= found.p_value[1]
    noisy = weights + 1e-3 * (weights != 0) * rng.standard_normal(weights.shape)
    assert sufficient_within_supports(noisy, tolerance=1e-6).holds
    assert sufficient_within_supports(noisy, tolerance=1e-2).rank.tolist() == [3, 2]


def test_a_share_of_the_weights_on_a_plane_is_found(rng):
    """A third of the tasks have w_1 = w_2 + w_3: full rank, many hyperplanes, and more than chance on one."""
    weights = rng.standard_normal((60, 3))
    weights[:20, 0] = weights[:20, 1] + weights[:20, 2]
    found = sufficient_within_supports(weights)
    assert found.rank.tolist() == [3] and not found.holds
    np.testing.assert_allclose(found.concentration, 18 / 58)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-2, 0.1])
def test_chance_is_seldom_taken_for_a_plane(tolerance, rng):
    p = [
        sufficient_within_supports(rng.standard_normal((n, s)), tolerance=tolerance, level=0.05).p_value[0]
        for n, s in itertools.product((4, 12, 30), (2, 3, 4))
        for _ in range(12)
    ]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / len(p))


def test_supports_may_be_given_and_empty_tasks_are_left_out(rng):
    weights = rng.standard_normal((40, 3))
    supports = np.tile([[1, 1, 0], [0, 0, 0], [0, 1, 1], [0, 1, 0]], (10, 1))
    found = sufficient_within_supports(weights, supports)
    assert found.n_tasks.tolist() == [10, 10, 10] and found.dimension.tolist() == [1, 2, 2] and found.holds
    same = sufficient_within_supports(weights * supports)
    np.testing.assert_allclose(found.smallest, same.smallest)
    (lonely,) = found.smallest[found.dimension == 1]
    assert lonely == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sufficient_representation([1.0, 2.0]), r"features: want shape \(sample, latent\)"),
        (lambda: sufficient_representation(np.zeros((0, 3))), r"with entries, got \(0, 3\)"),
        (lambda: sufficient_representation([[np.nan, 1]]), "features: want finite numbers"),
        (lambda: sufficient_representation(np.eye(2), tolerance=0), "tolerance: want a share between"),
        (lambda: sufficient_tasks(np.zeros((2, 2, 2, 2))), r"weights: want shape \(task, latent\) or"),
        (lambda: sufficient_tasks([[np.inf, 1]]), "weights: want finite numbers"),
        (
            lambda: sufficient_within_supports(np.eye(2), np.ones((2, 3))),
            r"supports: want the shape .* \(2, 2\)",
        ),
        (lambda: sufficient_within_supports(np.eye(2), np.eye(2) / 2), "supports: want 0 or 1, got 0.5"),
        (lambda: sufficient_within_supports(np.zeros((2, 2))), "supports: want tasks that use a latent"),
        (lambda: sufficient_within_supports(np.eye(2), np.eye(2)[::-1]), "support of task 0 .* are 0"),
        (lambda: sufficient_within_supports(np.eye(2), level=1.0), "level=1.0: want a probability"),
        (lambda: sufficient_within_supports(np.eye(2), tolerance=2.0), "tolerance: want a share"),
        (lambda: sufficient_within_supports(np.ones((2, 2, 2))), r"weights: want shape \(task, latent\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
