"""The compiled loops: the same numbers whether numba compiles them or Python runs them, from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from pyro_sparse.inference.multitask.inner import _compiled, moments, sparse_weights
from pyro_sparse.inference.multitask.inner.lasso import largest_penalty
from tests.inference.inner.problems import needs_numba, tasks

pytestmark = needs_numba


def plain(monkeypatch):
    """Take the compiled functions for the Python they were made of."""
    for name, function in list(vars(_compiled).items()):
        if hasattr(function, "py_func"):
            monkeypatch.setattr(_compiled, name, function.py_func)


def problem(k, n_tasks=3):
    features, targets = tasks(n_tasks=n_tasks, n=12, d=8, k=k)
    data = moments(features, targets)
    penalty = (0.05 * largest_penalty(data)).unsqueeze(1).expand(n_tasks, 8).contiguous()
    return [part.numpy() for part in (data.gram, data.moment, data.square, penalty)]


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.slow
def test_python_and_machine_code_agree(k, monkeypatch):
    given = problem(k)
    quick, slow = np.zeros((3, 8, k)), np.zeros((3, 8, k))
    gap, sweeps = _compiled.descend(*given, quick, 1e-12, 1000)
    plain(monkeypatch)
    slow_gap, slow_sweeps = _compiled.descend(*given, slow, 1e-12, 1000)
    np.testing.assert_allclose(quick, slow, atol=1e-12)
    np.testing.assert_array_equal(sweeps, slow_sweeps)
    np.testing.assert_allclose(gap, slow_gap, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2])
def test_optimality_conditions(k):
    gram, moment, square, penalty = problem(k)
    weight = np.zeros((3, 8, k))
    _compiled.descend(gram, moment, square, penalty, weight, 1e-12, 1000)
    gradient = moment - gram @ weight
    norm = np.linalg.norm(weight, axis=-1, keepdims=True)
    used = norm[..., 0] > 0
    assert used.any() and not used.all()
    np.testing.assert_allclose(
        gradient[used], (penalty[..., None] * weight / np.maximum(norm, 1e-300))[used], atol=1e-12
    )
    assert (np.linalg.norm(gradient, axis=-1)[~used] <= penalty[~used]).all()


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_solutions_on_supports_are_lapacks(n_outputs):
    rng = np.random.default_rng(0)
    gram = np.stack([np.cov(rng.normal(size=(6, 20))) for _ in range(4)])
    gram[3, 5], gram[3, :, 5] = gram[3, 0], gram[3, :, 0]
    gram[3, 5, 5] = gram[3, 0, 0]
    right, active = rng.normal(size=(4, 6, n_outputs)), rng.random((4, 6)) < 0.6
    active[1], active[2], active[3] = False, True, True
    answer = np.zeros_like(right)
    singular = _compiled.solve_supports(gram, right, active, answer)
    np.testing.assert_array_equal(singular, [False, False, False, True])
    for t in range(3):
        inside = active[t]
        np.testing.assert_allclose(
            answer[t, inside], np.linalg.solve(gram[t][np.ix_(inside, inside)], right[t, inside]), atol=1e-11
        )
        assert (answer[t, ~inside] == 0).all()


def test_threads_do_not_meet():
    data = moments(*tasks(n_tasks=50, d=12))
    wanted = sparse_weights(data, 0.02, compiled=True).weight
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: sparse_weights(data, 0.02, compiled=True).weight, range(16)))
    assert all(torch.equal(weight, wanted) for weight in found)
