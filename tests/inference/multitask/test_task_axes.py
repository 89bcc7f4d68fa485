"""Axes of stacked task weights: exact weights give them back, up to order and size."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.multitask.task_axes import (
    RESOLVED,
    _assemble,
    _independent,
    _Weights,
    independent_blocks,
    task_axes,
)
from pyro_sparse.inference.rotation.jacobian_axes import _Contraction
from pyro_sparse.metrics import mcc


def sparse_weights(n_tasks, d, rng, probability=0.4):
    support = rng.random((n_tasks, d)) < probability
    support[np.arange(n_tasks), rng.integers(d, size=n_tasks)] = True
    return support * rng.choice([-1, 1], support.shape) * rng.uniform(0.5, 1.5, support.shape)


@pytest.mark.parametrize(("n_tasks", "d"), [(10, 1), (30, 3), (60, 5)])
def test_exact_weights_give_the_axes_back(n_tasks, d):
    rng = np.random.default_rng(d)
    true = sparse_weights(n_tasks, d, rng)
    mix = rng.normal(size=(d, d)) + 2 * np.eye(d)  # latent_old = mix @ latent_true
    found = task_axes(true @ np.linalg.inv(mix), n_starts=12, steps=150)
    turn = found.map @ mix  # latent_new = turn @ latent_true
    size = np.abs(turn)
    order = size.argmax(1)
    assert sorted(order) == list(range(d))
    off = size / size.max(1, keepdims=True)
    off[np.arange(d), order] = 0
    assert off.max() < 1e-3
    np.testing.assert_allclose((found.weights**2).mean(0), 1, rtol=1e-9)
    # the targets are the same: w . z_old = v . z_new
    z = rng.normal(size=(d, 7))
    old = true @ np.linalg.inv(mix) @ (mix @ z)
    np.testing.assert_allclose(found.weights @ (turn @ z), old, atol=1e-9)
    np.testing.assert_array_equal(np.abs(found.weights) > 0.05, true[:, order] != 0)


def test_the_objective_is_the_smooth_count():
    rng = np.random.default_rng(0)
    found = task_axes(sparse_weights(40, 3, rng), n_starts=8, steps=100, epsilon=(0.3, 0.2))
    count = (found.weights**2 / (found.weights**2 + 0.2**2)).sum() / 40
    # the search sees unit rows of the inverse map: columns of unit mean square
    assert found.objective == pytest.approx(count, rel=1e-6)
    assert 1 <= found.agreement <= found.n_starts == 8


def test_the_same_seed_gives_the_same_axes():
    weights = sparse_weights(40, 4, np.random.default_rng(1))
    one, two = (task_axes(weights, n_starts=4, steps=40, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.map, two.map)


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        (np.ones(5), {}, r"weights: want shape \(task, latent\), got \(5,\)"),
        (np.ones((0, 2)), {}, r"weights: want shape \(task, latent\), got \(0, 2\)"),
        (np.eye(3)[:2], {}, "weights: 2 tasks cannot fix 3 axes"),
        (np.full((4, 2), np.nan), {}, "weights: want finite numbers"),
        (
            np.outer([1.0, 2, 3], [1, 1]),
            {},
            "weights: the tasks leave a direction of the latent unused; lower",
        ),
        (np.eye(3), {"n_starts": 0}, "n_starts=0"),
        (np.eye(3), {"steps": 1}, "steps=1"),
        (np.eye(3), {"epsilon": ()}, r"epsilon=\(\)"),
        (np.eye(3), {"epsilon": (0.3, 0.0)}, r"epsilon=\(0.3, 0.0\)"),
    ],
)
def test_bad_weights(weights, options, message):
    with pytest.raises(ValueError, match=message):
        task_axes(weights, **options)


def blocks_of_two(seed=0, t=300):
    """Weights of tasks that use both latents of one pair, and how a mixture shows them."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(t, 4)) * (np.arange(4) // 2 == rng.integers(2, size=t)[:, None])
    return w, rng.normal(size=(4, 4)), rng


def test_latents_always_used_together_make_a_block():
    w, mixing, _ = blocks_of_two()
    found = task_axes(w @ np.linalg.inv(mixing))
    assert sorted(np.bincount(found.block)) == [2, 2]
    across = found.evidence[found.block[:, None] != found.block]
    within = found.evidence[(found.block[:, None] == found.block) & ~np.eye(4, dtype=bool)]
    assert across.min() > RESOLVED > within.max()


def test_independence_tells_a_block_apart_where_blocks_are_independent():
    w, mixing, rng = blocks_of_two()
    found = task_axes(w @ np.linalg.inv(mixing))
    z = rng.uniform(-1, 1, size=(5000, 4))
    seen = z @ mixing.T @ found.map.T
    turn = independent_blocks(seen, found.block)
    assert mcc(z, seen @ turn.T).value > 0.99
    assert not turn[found.block[:, None] != found.block].any()
    # correlated blocks speak against independence, and one block says nothing either way
    shared = z + rng.normal(size=(5000, 1))
    np.testing.assert_array_equal(independent_blocks(shared @ mixing.T @ found.map.T, found.block), np.eye(4))
    np.testing.assert_array_equal(independent_blocks(seen, np.zeros(4, int)), np.eye(4))


@pytest.mark.parametrize("kind", ["log", "count"])
def test_weights_are_actions_of_rank_one(kind):
    """The general problem of the same axes, which is checked against plain loops."""
    rng = np.random.default_rng(0)
    weights = sparse_weights(30, 4, rng)
    maps = torch.linalg.qr(torch.tensor(rng.normal(size=(40, 4, 4))))[0]
    general, own = _Contraction(4, None, weights[:, :, None] * weights[:, None]), _Weights(weights)
    torch.testing.assert_close(own.cost(maps, 0.2), general.cost(maps, 0.2), rtol=1e-12, atol=1e-12)
    slope = own.gradient(maps, kind, 0.2)
    torch.testing.assert_close(slope, general.gradient(maps, kind, 0.2), rtol=1e-10, atol=1e-10)


def test_the_best_basis_is_assembled_from_all_restarts():
    """Against every choice of rows: the cheapest three that are independent."""
    rng = np.random.default_rng(0)
    problem = _Weights(rng.normal(size=(4, 3)))
    rows = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [1, 1, 1], [1, -1, 0]]
    rows += [[1, 1e-4, 0], [1e-4, 1, 0], [1, 1, 1 + 1e-4]]  # the same axes again, almost
    maps = torch.nn.functional.normalize(torch.tensor(rows, dtype=torch.float64), dim=-1).reshape(3, 3, 3)
    rows, cost = maps.reshape(9, 3).numpy(), problem.cost(maps, 0.3).reshape(9).numpy()
    volumes = {k: abs(np.linalg.det(rows[list(k)])) for k in combinations(range(9), 3)}
    assert not any(1e-2 < v < 0.4 for v in volumes.values())
    lowest = min(cost[list(k)].sum() for k, v in volumes.items() if v >= 0.4)
    best = _assemble(problem, maps, 0.3)
    assert problem.cost(best, 0.3).sum().item() == pytest.approx(lowest)
    angle = np.array([0.2, 0.5, 1.0])
    pairs = np.stack([np.stack([np.ones(3), 0 * angle], 1), np.stack([np.cos(angle), np.sin(angle)], 1)], 1)
    assert _independent(torch.tensor(pairs)).tolist() == [False, True, True]
