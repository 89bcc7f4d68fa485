"""Axes of exact Jacobians of the sine mechanisms of Lachapelle et al. (2024), hidden behind a linear map."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from scipy.optimize import linear_sum_assignment
from scipy.stats import ortho_group

from pyro_sparse.inference.rotation.axis_search import descend
from pyro_sparse.inference.rotation.jacobian_axes import (
    JacobianAxes,
    _clearest,
    _Contraction,
    _hop,
    jacobian_axes,
)
from pyro_sparse.inference.rotation.strength_gap import strength_gap


def time_jacobians(graph, rng, n=2000):
    """Of mu_i = z_i + 1/2 sum_j G_ij sin(w_i z_j + i) at z ~ N(0, I)."""
    d = len(graph)
    i = np.arange(d)[:, None]
    w = (i + 3) / np.pi
    return np.eye(d) + 0.5 * graph * w * np.cos(w * rng.normal(size=(n, 1, d)) + i)


def action_jacobians(graph, rng, n=2000):
    """Of mu_i = sum_j G_ij sin(w_i a_j + i) at a ~ U(-2, 2)."""
    i = np.arange(len(graph))[:, None]
    w = (i + 3) / np.pi
    return graph * w * np.cos(w * rng.uniform(-2, 2, size=(n, 1, graph.shape[1])) + i)


def time_moment(jacobians):
    vec = jacobians.reshape(len(jacobians), -1)
    return vec.T @ vec / len(vec)


def action_moments(jacobians):
    return np.einsum("naj,ncj->jac", jacobians, jacobians) / len(jacobians)


def random_graph(d, density, seed):
    return np.maximum(np.eye(d), np.random.default_rng(seed).random((d, d)) < density).astype(int)


def cycle(d):
    return np.eye(d, dtype=int) + np.roll(np.eye(d, dtype=int), 1, axis=0)


TIME = {
    "diag": lambda d: np.eye(d, dtype=int),
    "lower triangular": lambda d: np.tril(np.ones((d, d), dtype=int)),
    "random": lambda d: random_graph(d, 0.4, seed=3),
}


def matched(found_map, hidden):
    """New axis of each true latent, and the mean correlation with it (latents independent, unit variance)."""
    cosine = np.abs(found_map @ hidden)
    cosine /= np.linalg.norm(cosine, axis=1, keepdims=True)
    axis = linear_sum_assignment(-cosine.T)[1]
    return axis, cosine[axis, np.arange(len(axis))].mean()


def check_time(graph, seed, **options):
    d = len(graph)
    hidden = ortho_group.rvs(d, random_state=seed)
    jacobians = hidden @ time_jacobians(graph, np.random.default_rng(seed)) @ hidden.T
    found = jacobian_axes(time_moment(jacobians), seed=seed, **options)
    axis, mcc = matched(found.map, hidden)
    assert mcc > 0.999
    np.testing.assert_array_equal(found.graph_z[np.ix_(axis, axis)], graph)
    assert found.graph_a is None and found.strength_a is None
    assert found.gap > 1 and 0 < found.agreement <= found.n_starts
    return found


def check_actions(graph, seed, **options):
    hidden = np.random.default_rng(seed + 100).normal(size=(len(graph), len(graph)))
    jacobians = hidden @ action_jacobians(graph, np.random.default_rng(seed))
    found = jacobian_axes(actions=action_moments(jacobians), noise=hidden @ hidden.T, seed=seed, **options)
    axis, mcc = matched(found.map, hidden)
    assert mcc > 0.999
    np.testing.assert_array_equal(found.graph_a[axis], graph)
    np.testing.assert_allclose((found.strength_a**2).sum(1), 1)
    assert found.graph_z is None and found.gap > 1
    return found


@pytest.mark.parametrize("name", TIME)
def test_time_graphs_are_found(name):
    check_time(TIME[name](5), seed=1, n_starts=24, steps=100)


def test_action_graphs_are_found_behind_any_map():
    check_actions(cycle(5), seed=1, n_starts=24, steps=100)


def test_latents_under_few_and_under_many_actions():
    graph = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 1, 1, 1]])
    check_actions(graph, seed=1, n_starts=24, steps=100)


@pytest.mark.slow
@pytest.mark.parametrize("name", TIME)
@pytest.mark.parametrize("seed", [0, 1])
def test_ten_latents_over_time(name, seed):
    check_time(TIME[name](10), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_ten_latents_under_actions(seed):
    check_actions(cycle(10), seed)


def test_both_at_once_find_what_neither_shows():
    """Time leaves two latents mixed; one action that moves a single one of them tells them apart."""
    graph_z = block_diag(np.ones((2, 2), dtype=int), np.eye(2, dtype=int))
    graph_a = np.array([[1], [0], [0], [0]])
    hidden = ortho_group.rvs(4, random_state=0)
    rng = np.random.default_rng(0)
    time = time_moment(hidden @ time_jacobians(graph_z, rng) @ hidden.T)
    jacobians = hidden @ (5 * action_jacobians(graph_a, rng))
    actions = action_moments(jacobians)
    found = jacobian_axes(time, actions, n_starts=16, steps=100)
    axis, mcc = matched(found.map, hidden)
    assert mcc > 0.999
    np.testing.assert_array_equal(found.graph_z[np.ix_(axis, axis)], graph_z)
    np.testing.assert_array_equal(found.graph_a[axis], graph_a)
    np.testing.assert_allclose(found.map @ found.map.T, np.eye(4), atol=1e-10)
    # strengths come back in the units of the Jacobian, though the search rescales the actions
    np.testing.assert_allclose(found.strength_a**2, ((found.map @ jacobians) ** 2).mean(0), atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_tells_what_nearly_dependent_effects_do_not(seed):
    """Six of ten edges: some sum of latents is nearly unmoved by an action, and would save an edge.

    The noise is known with errors (correlations of up to a quarter between true axes), as a fit knows it.
    """
    rng = np.random.default_rng(seed)
    graph = (rng.random((8, 8)) < 0.65) | np.eye(8, dtype=bool)
    jacobians = action_jacobians(graph, rng) + 0.02 * rng.normal(size=(2000, 8, 8))
    unit = rng.normal(size=(8, 8))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    noise = np.eye(8) + 0.3 * (unit @ unit.T - np.eye(8))
    hidden = rng.normal(size=(8, 8))
    found = jacobian_axes(
        actions=action_moments(hidden @ jacobians), noise=hidden @ noise @ hidden.T, n_starts=48
    )
    axis, mcc = matched(found.map, hidden)
    assert mcc > 0.98
    np.testing.assert_array_equal(found.graph_a[axis], graph)


def test_noise_takes_out_what_no_derivative_shows():
    """Latent 2 has the parents of 0 and one more; its sum with 0 has the same, and is told by the noise."""
    graph = np.array([[1, 0], [0, 1], [1, 1]])
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(3, 3))
    jacobians = basis @ action_jacobians(graph, rng)
    noise = basis @ np.diag([0.5, 1.0, 2.0]) @ basis.T
    found = jacobian_axes(actions=action_moments(jacobians), noise=noise, n_starts=16, steps=100)
    assert matched(found.map, basis)[1] > 0.999
    apart = found.map @ noise @ found.map.T
    np.testing.assert_allclose(apart - np.diag(np.diag(apart)), 0, atol=1e-2)


def test_of_a_block_only_the_block_is_determined():
    graph = np.kron(np.eye(2, dtype=int), np.ones((2, 2), dtype=int))
    hidden = ortho_group.rvs(4, random_state=2)
    jacobians = time_jacobians(graph, np.random.default_rng(2))
    over_time = jacobian_axes(time_moment(hidden @ jacobians @ hidden.T), n_starts=16, steps=100)
    acts = np.repeat(np.eye(2, dtype=int), 2, axis=0)
    general = np.random.default_rng(5).normal(size=(4, 4))
    jacobians = general @ action_jacobians(acts, np.random.default_rng(2))
    under_actions = jacobian_axes(
        actions=action_moments(jacobians), noise=general @ general.T, n_starts=16, steps=100
    )
    for found, truth in ((over_time, hidden), (under_actions, general)):
        share = (found.map @ truth) ** 2
        share = share.reshape(4, 2, 2).sum(2) / share.sum(1, keepdims=True)  # of each block in each new axis
        block = share.argmax(1)
        assert np.sort(block).tolist() == [0, 0, 1, 1]
        assert share.max(1).min() > 0.999
        if found.graph_z is not None:
            np.testing.assert_array_equal(found.graph_z, block[:, None] == block)
        else:
            np.testing.assert_array_equal(found.graph_a, block[:, None] == np.arange(2))


def test_strengths_and_gradient_agree_with_plain_loops():
    rng = np.random.default_rng(0)
    d, n_actions, n = 3, 2, 7
    jacobians, acts = rng.normal(size=(n, d, d)), rng.normal(size=(n, d, n_actions))
    maps = np.stack([ortho_group.rvs(d, random_state=s) for s in range(2)])
    problem = _Contraction(d, time_moment(jacobians), action_moments(acts))
    squared = problem.squared(torch.tensor(maps)).numpy()
    for m, one in enumerate(maps):
        for i in range(d):
            for j in range(d):
                direct = np.mean([(one @ jac @ np.linalg.inv(one))[i, j] ** 2 for jac in jacobians])
                assert squared[m, i, j] == pytest.approx(direct)
            for j in range(n_actions):
                direct = np.mean([(one @ jac)[i, j] ** 2 for jac in acts])
                assert squared[m, i, d + j] == pytest.approx(direct)

    def objective(one, kind, epsilon):
        both = np.concatenate([one @ jacobians @ one.T, one @ acts], axis=2)
        r2 = (both**2).mean(0)
        return (0.5 * np.log(r2 + epsilon**2) if kind == "log" else r2 / (r2 + epsilon**2)).sum()

    for kind in ("log", "count"):
        slope = problem.gradient(torch.tensor(maps), kind, 0.3).numpy()
        for m, i, j in np.ndindex(maps.shape):
            step = np.zeros((d, d))
            step[i, j] = 1e-5
            ends = [objective(maps[m] + sign * step, kind, 0.3) for sign in (1, -1)]
            assert slope[m, i, j] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7)
    counts = [objective(one, "count", 0.3) for one in maps]
    np.testing.assert_allclose(problem.cost(torch.tensor(maps), 0.3).sum(-1), counts)


def test_the_barrier_keeps_axes_apart():
    """With nothing to count, it alone makes them orthogonal; without it nothing moves."""
    problem = _Contraction(3, None, np.zeros((1, 3, 3)))
    maps = torch.nn.functional.normalize(torch.eye(3).double() + 0.5, dim=-1)[None]
    apart = descend(problem, maps, "count", 0.1, 300, 0.05, barrier=1.0)[0]
    np.testing.assert_allclose(apart @ apart.mT, np.eye(3), atol=1e-3)
    torch.testing.assert_close(descend(problem, maps, "count", 0.1, 5, 0.05, barrier=0.0), maps)


def test_of_clear_candidates_the_sparsest_is_chosen():
    def candidate(gap, *edges):
        graphs = [np.ones(k, dtype=int) for k in edges]
        return JacobianAxes(np.eye(1), None, None, *graphs, 0.0, 0.1, gap, 1, 1)

    vague, sparse, widest = candidate(0.9, 1, 1), candidate(1.8, 3, 2), candidate(2.0, 4, 2)
    assert _clearest([vague, widest, sparse]) is sparse
    assert _clearest([vague, widest]) is widest
    assert _clearest([candidate(1.8, 4, 2), widest]) is widest


def test_the_result_describes_its_map():
    rng = np.random.default_rng(4)
    jacobians = time_jacobians(random_graph(4, 0.4, 4), rng) + 0.02 * rng.normal(size=(2000, 4, 4))
    found = jacobian_axes(time_moment(jacobians), n_starts=8, steps=50)
    strength = np.sqrt(((found.map @ jacobians @ np.linalg.inv(found.map)) ** 2).mean(0))
    np.testing.assert_allclose(found.strength_z, strength)
    assert found.objective == pytest.approx((strength**2 / (strength**2 + found.epsilon**2)).sum())
    split = strength_gap(strength, at_least=4)
    np.testing.assert_array_equal(found.graph_z, strength > split.threshold)
    assert found.gap == pytest.approx(split.gap)


def test_turning_pairs_of_axes_leaves_a_poor_optimum():
    graph = np.tril(np.ones((8, 8), dtype=int))
    problem = _Contraction(8, time_moment(time_jacobians(graph, np.random.default_rng(0))), None)
    start = torch.linalg.qr(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(1)).double())[0]
    poor = descend(problem, start, "count", 0.1, 100, 0.05)
    cost = problem.cost(poor, 0.1).sum(-1)
    poor, worst = poor[cost.argmax()][None], float(cost.max())
    rate = torch.full((32, 1, 1), 0.1, dtype=torch.float64)
    better = _hop(problem, poor, 0.1, 50, rate, 20, torch.Generator().manual_seed(0))
    assert float(problem.cost(better, 0.1).sum()) < worst - 1
    np.testing.assert_allclose(better @ better.mT, np.eye(8), atol=1e-10)


def test_the_seed_decides_and_the_global_random_state_stays():
    moment = time_moment(time_jacobians(random_graph(3, 0.3, 0), np.random.default_rng(0)))
    state = torch.get_rng_state()
    one, two, other = (jacobian_axes(moment, n_starts=4, steps=20, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(one.map, two.map)
    assert (one.objective, one.agreement) == (two.objective, two.agreement)
    assert np.abs(one.map - other.map).max() > 1e-9


def test_one_latent_has_one_axis():
    found = jacobian_axes([[0.64]], n_starts=2, steps=4)
    assert np.abs(found.map).tolist() == [[1.0]] and found.graph_z.tolist() == [[1]]
    np.testing.assert_allclose(found.strength_z, [[0.8]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "time and actions are both missing"),
        ({"time": np.eye(3)}, r"time: want shape \(d \* d, d \* d\), got \(3, 3\)"),
        ({"time": np.ones((4, 2))}, r"time: want shape .* got \(4, 2\)"),
        ({"time": np.full((4, 4), np.nan)}, "time: want finite numbers"),
        ({"time": np.triu(np.ones((4, 4)))}, "time: want a symmetric second moment"),
        ({"time": -np.eye(4)}, "time: want a positive semidefinite .* eigenvalue -1"),
        ({"time": np.zeros((4, 4))}, "no edge; 0 of 4 values exceed floor=0.05, need 2"),
        ({"actions": np.eye(2)}, r"actions: want shape \(n_actions, d, d\), got \(2, 2\)"),
        ({"actions": -np.eye(2)[None]}, r"actions\[0\]: want a positive semidefinite"),
        ({"actions": np.diag([1.0, 0.0])[None]}, "they move 1 of 2 directions"),
        ({"actions": np.zeros((1, 2, 2))}, "they move 0 of 2 directions"),
        ({"actions": np.eye(2)[None], "noise": np.eye(3)}, r"noise: want shape \(2, 2\), .* got \(3, 3\)"),
        (
            {"actions": np.eye(2)[None], "noise": np.diag([1.0, 0.0])},
            "noise: want a positive definite .* rank 1 for 2 latents",
        ),
        ({"actions": np.eye(2)[None], "noise": np.full((2, 2), np.inf)}, "noise: want finite"),
        ({"time": np.eye(4), "noise": np.eye(2)}, "noise: got one with a time graph"),
        (
            {"actions": np.eye(2)[None], "noise": np.eye(2), "orthogonal": True},
            "noise: got one with orthogonal=True",
        ),
        ({"time": np.eye(4), "actions": np.eye(3)[None]}, "actions: want d=2 latents as time has, got 3"),
        ({"time": np.eye(4), "n_starts": 0}, "n_starts=0"),
        ({"time": np.eye(4), "epsilon": (0.1, 0.0)}, "positive"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        jacobian_axes(**{"n_starts": 2, "steps": 4, **arguments})
