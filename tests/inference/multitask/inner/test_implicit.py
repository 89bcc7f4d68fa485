"""Gradients of solutions: the paper's closed form, central differences, and the solves behind them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.multitask.inner import moments, ridge_weights, sparse_weights
from pyro_sparse.inference.multitask.inner.implicit import attach, solve_active
from pyro_sparse.inference.multitask.inner.lasso import largest_penalty
from tests.inference.inner.problems import KINDS, tasks

both = pytest.mark.parametrize("compiled", KINDS)


@both
def test_the_papers_closed_form(compiled):
    """dL/dF_t = (r (w - u)' - F u w') / (n T): Lachapelle et al. (2023), at a fixed penalty."""
    features, targets = tasks()
    n_tasks, n, _ = features.shape
    data = moments(features.requires_grad_(), targets, intercept=False)
    found = sparse_weights(data, 0.1 * largest_penalty(data), compiled=compiled)
    loss = ((features @ found.weight - targets) ** 2).sum() / (2 * n * n_tasks)
    (slope,) = torch.autograd.grad(loss, features)
    for t in range(n_tasks):
        x, y, w = (
            features[t].detach().numpy(),
            targets[t, :, 0].numpy(),
            found.weight[t, :, 0].detach().numpy(),
        )
        inside = w != 0
        assert inside.any() and not inside.all()
        left = x @ w - y
        u = np.zeros_like(w)
        u[inside] = np.linalg.solve((x.T @ x / n)[np.ix_(inside, inside)], (x.T @ left / n)[inside])
        wanted = (np.outer(left, w - u) - np.outer(x @ u, w)) / (n * n_tasks)
        np.testing.assert_allclose(slope[t], wanted, atol=1e-13)


@both
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("share", [1.2, 0.1, 1e-4])
def test_gradients_are_central_differences(compiled, k, share):
    """With empty, mixed and full supports; of features, targets, a penalty for each feature and the ridge."""
    features, targets = tasks(n_tasks=2, n=9, d=4, k=k, seed=1)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, 5:] = False
    weights = torch.as_tensor(np.random.default_rng(0).uniform(0.5, 2, size=(2, 9)))
    data = moments(features, targets, mask, weights)
    penalty = share * largest_penalty(data).unsqueeze(1).repeat(1, 4)
    ridge = torch.tensor([0.01, 0.1], dtype=torch.float64)
    active = sparse_weights(data, penalty, ridge).active
    assert {1.2: not active.any(), 0.1: bool(active.any()) and not active.all(), 1e-4: active.all()}[share]

    def of(f, y, lam, kappa):
        own = moments(f, y, mask, weights)
        weight = sparse_weights(own, lam, kappa, tol=1e-13, compiled=compiled).weight
        return weight, own.intercept(weight)

    inputs = [part.clone().requires_grad_() for part in (features, targets, penalty, ridge)]
    assert torch.autograd.gradcheck(of, inputs, eps=1e-6, atol=1e-6, fast_mode=not compiled)


@pytest.mark.parametrize("k", [1, 2])
def test_gradients_of_ridge_regressions(k):
    features, targets = tasks(n_tasks=2, n=7, d=3, k=k)
    features[0, :, 1] = 0.3  # a constant column
    ridge = torch.tensor([0.1, 1.0], dtype=torch.float64)

    def of(f, y, kappa):
        return ridge_weights(moments(f, y), kappa)

    assert torch.autograd.gradcheck(
        of, [part.clone().requires_grad_() for part in (features, targets, ridge)]
    )


@both
@pytest.mark.parametrize("k", [1, 2])
def test_columns_without_weight_have_no_gradient_but_their_own(compiled, k):
    features, targets = tasks(n_tasks=2, d=4, k=k, density=1.0)
    features = torch.cat([features, torch.zeros(2, 30, 1), torch.full((2, 30, 1), 0.7)], -1).requires_grad_()
    found = sparse_weights(moments(features, targets), 0.05, compiled=compiled).weight
    (slope,) = torch.autograd.grad((found**2).sum(), features)
    assert slope.isfinite().all() and (slope[..., 4:] == 0).all() and (slope[..., :4] != 0).any()


@both
@pytest.mark.parametrize("k", [1, 2])
def test_equal_columns_have_finite_gradients(compiled, k):
    features, targets = tasks(n_tasks=2, d=3, k=k, density=1.0)
    wide = torch.cat([features, features], -1).requires_grad_()
    found = sparse_weights(moments(wide, targets), 0.05, start=torch.ones(2, 6, k), compiled=compiled).weight
    fitted = (wide @ found).square().sum()
    (slope,) = torch.autograd.grad(fitted, wide)
    assert slope.isfinite().all()


def test_what_is_fitted_changes_with_equal_columns_as_with_one():
    """Both copies moved together: the fit's derivative does not depend on how the weight is shared."""
    features, targets = tasks(n_tasks=1, d=3, density=1.0)

    def fitted(f, copies):
        wide = torch.cat([f] * copies, -1)
        data = moments(wide, targets)
        return (data.features @ sparse_weights(data, 0.05).weight).square().sum()

    single, double = (
        torch.autograd.functional.jacobian(lambda f, c=c: fitted(f, c), features) for c in (1, 2)
    )
    np.testing.assert_allclose(double, single, atol=1e-9)


@both
def test_single_precision_gradients(compiled):
    features, targets = tasks(dtype=torch.float32)
    slopes = []
    for given in (features, features.double()):
        given = given.clone().requires_grad_()
        weight = sparse_weights(moments(given, targets.to(given)), 0.05, compiled=compiled).weight
        slopes.append(torch.autograd.grad(weight.sum(), given)[0])
    assert slopes[0].dtype == torch.float32
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-6)


def test_the_penalty_may_be_learnt():
    features, targets = tasks()
    data = moments(features, targets)
    size = torch.tensor(0.1, requires_grad=True, dtype=torch.float64)
    sparse_weights(data, size).weight.abs().sum().backward()
    step = 1e-5
    after, before = (sparse_weights(data, 0.1 + s).weight.abs().sum() for s in (step, -step))
    np.testing.assert_allclose(size.grad, (after - before) / (2 * step), rtol=1e-6)


def test_no_graph_is_made_where_none_is_wanted():
    features, targets = tasks()
    assert not sparse_weights(moments(features, targets), 0.1).weight.requires_grad
    features.requires_grad_()
    assert sparse_weights(moments(features, targets), 0.1).weight.requires_grad
    with torch.no_grad():
        assert not sparse_weights(moments(features, targets), 0.1).weight.requires_grad


def test_attach_is_the_implicit_function_theorem():
    """x solves A x = b: dx = A^-1 db, whatever function of it is differentiated."""
    rng = np.random.default_rng(0)
    matrix = torch.as_tensor(np.stack([np.cov(rng.normal(size=(4, 9))) for _ in range(2)]))
    right = torch.as_tensor(rng.normal(size=(2, 4, 1))).requires_grad_()
    solution = torch.linalg.solve(matrix, right)
    active = torch.ones(2, 4, dtype=torch.bool)
    found = attach(solution.detach(), matrix @ solution.detach() - right, matrix, active)
    assert torch.equal(found, solution)
    slopes = [torch.autograd.grad((way**3).sum(), right)[0] for way in (found, solution)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("bent", [False, True])
def test_solve_active_is_lapacks_on_each_support(dtype, k, bent):
    rng = np.random.default_rng(1)
    gram = np.stack([np.cov(rng.normal(size=(6, 20))) for _ in range(5)])
    right, active = rng.normal(size=(5, 6, k)), rng.random((5, 6)) < 0.5
    active[0], active[1] = False, True
    bend = np.stack([np.cov(rng.normal(size=(k, 9))).reshape(k, k) for _ in range(30)]).reshape(5, 6, k, k)
    parts = [torch.as_tensor(part, dtype=dtype) for part in (gram, right)]
    found = solve_active(
        *parts, torch.as_tensor(active), torch.as_tensor(bend, dtype=dtype) if bent else None
    )
    for t in range(5):
        wanted, inside = np.zeros((6, k)), active[t]
        matrix = np.kron(gram[t], np.eye(k))
        if bent:
            for j in range(6):
                matrix[j * k : (j + 1) * k, j * k : (j + 1) * k] += bend[t, j]
        chosen = np.repeat(inside, k)
        wanted[inside] = np.linalg.solve(matrix[np.ix_(chosen, chosen)], right[t].ravel()[chosen]).reshape(
            -1, k
        )
        np.testing.assert_allclose(found[t], wanted, atol=1e-4 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("scale", [1.0, 1e-16, 1e16])
def test_a_singular_support_gets_the_shortest_solution(scale):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(9, 3))
    x = np.hstack([x, x[:, :1], rng.normal(size=(9, 1))])
    gram, right = scale * x.T @ x, scale * x.T @ rng.normal(size=(9, 2))
    active = np.array([[True, True, True, True, False], [True, False, False, False, False]])
    found = solve_active(
        *(torch.as_tensor(np.stack([part, part])) for part in (gram, right)), torch.as_tensor(active)
    )
    wanted = np.linalg.pinv(gram[:4, :4], rcond=1e-12) @ right[:4]
    np.testing.assert_allclose(found[0, :4], wanted, atol=1e-9)
    np.testing.assert_allclose(found[1, 0], right[0] / gram[0, 0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"gram": torch.eye(3).expand(2, 3, 3)},
            r"gram: got \(2, 3, 3\), want \(2, 4, 4\) for right \(2, 4, 1\)",
        ),
        ({"active": torch.ones(2, 3, dtype=torch.bool)}, r"active: got \(2, 3\), want \(2, 4\)"),
        ({"bend": torch.ones(2, 4, 1)}, r"bend: got \(2, 4, 1\), want \(2, 4, 1, 1\)"),
    ],
)
def test_complaints(change, words):
    given = {
        "gram": torch.eye(4).expand(2, 4, 4),
        "right": torch.ones(2, 4, 1),
        "active": torch.ones(2, 4, dtype=torch.bool),
    }
    with pytest.raises(ValueError, match=words):
        solve_active(**{**given, **change})
