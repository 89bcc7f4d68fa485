"""The bilevel objective: its value by scikit-learn, its gradient by differences, the program's mode step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso, Ridge

from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.inference.multitask.bilevel import left_out_error, mode_step, outer_loss, samples
from pyro_sparse.inference.multitask.inner import moments
from pyro_sparse.models import MultiTaskRegression
from pyro_sparse.priors import Laplace, ssl_regression

T, N, D = 4, 20, 3
SOLVERS = ["lasso", "ridge", "outer"]


def data(seed=0, missing=True):
    g = torch.Generator().manual_seed(seed)
    f = torch.randn(T, N, D, generator=g, dtype=torch.float64)
    w = torch.tensor([[2.0, 0, -1], [0, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.float64)
    y = (f @ w.unsqueeze(-1))[..., 0] + 0.4 * torch.randn(T, N, generator=g, dtype=torch.float64)
    mask = torch.ones(T, N, dtype=torch.bool)
    if missing:
        mask[0, 15:] = mask[2, 3] = False
    return f, y, mask


def by_sklearn(f, y, inner, penalty, ridge):
    """Half the mean squared error of one task at its inner solution, with an intercept."""
    n = len(y)
    top = float(np.abs((f - f.mean(0)).T @ (y - y.mean())).max() / n)
    if inner == "lasso":
        solver = Lasso(alpha=penalty * top, tol=1e-13, max_iter=100_000)
    else:
        solver = Ridge(alpha=n * ridge)
    solver.fit(f, y)
    loss = 0.5 * ((y - solver.predict(f)) ** 2).mean()
    return loss + (penalty * top * np.abs(solver.coef_).sum() if inner == "outer" else 0.0)


@pytest.mark.parametrize("inner", SOLVERS)
def test_the_value(inner):
    f, y, mask = data()
    got = outer_loss(f, y, mask, inner=inner, penalty=0.2, ridge=0.05)
    each = [by_sklearn(f[t][mask[t]].numpy(), y[t][mask[t]].numpy(), inner, 0.2, 0.05) for t in range(T)]
    assert float(got) == pytest.approx(np.mean(each), rel=1e-9)
    single = outer_loss(f.float(), y.float(), mask, inner=inner, penalty=0.2, ridge=0.05)
    assert float(single) == pytest.approx(float(got), rel=1e-5)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("inner", SOLVERS)
def test_the_gradient(inner, missing):
    """Central differences; the penalty's scale is held, as nothing is differentiated through it."""
    f, y, mask = data(missing=missing)
    f.requires_grad_()
    outer_loss(f, y, mask, inner=inner, penalty=0.2, ridge=0.05).backward()
    held = [
        float(np.abs((a - a.mean(0)).T @ (b - b.mean())).max() / len(b))
        for a, b in ((f[t][mask[t]].detach().numpy(), y[t][mask[t]].numpy()) for t in range(T))
    ]

    def value(t, features):
        a, b = features[mask[t]].numpy(), y[t][mask[t]].numpy()
        now = float(np.abs((a - a.mean(0)).T @ (b - b.mean())).max() / len(b))
        return by_sklearn(a, b, inner, 0.2 * held[t] / now, 0.05) / T

    rng = np.random.default_rng(0)
    for t, i, k in zip(
        rng.integers(T, size=12), rng.integers(N, size=12), rng.integers(D, size=12), strict=True
    ):
        step = torch.zeros(N, D, dtype=torch.float64)
        step[i, k] = 1e-5
        slope = (value(t, f[t].detach() + step) - value(t, f[t].detach() - step)) / 2e-5
        assert float(f.grad[t, i, k]) == pytest.approx(slope, abs=2e-8)
    assert (f.grad[~mask] == 0).all()


@pytest.mark.parametrize("inner", SOLVERS)
def test_a_task_of_weight_2_is_a_task_that_is_there_twice(inner):
    f, y, mask = data()
    times = torch.tensor([1, 2, 1, 1])
    f.requires_grad_()
    options = {"inner": inner, "penalty": 0.2, "ridge": 0.05}
    weighted = outer_loss(f, y, mask, task_weight=times / times.double().mean(), **options)
    repeated = outer_loss(*(a.repeat_interleave(times, 0) for a in (f, y, mask)), **options)
    torch.testing.assert_close(weighted, repeated, rtol=1e-12, atol=0)
    one, two = (torch.autograd.grad(loss, f)[0] for loss in (weighted, repeated))
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-14)
    assert not torch.isclose(weighted, outer_loss(f, y, mask, **options), rtol=1e-3)


def test_an_unknown_inner_problem():
    f, y, _ = data()
    with pytest.raises(ValueError, match="inner: want lasso, ridge or outer, got 'elastic'"):
        outer_loss(f, y, inner="elastic")


def fitted(seed=0, missing=False):
    f, y, mask = data(seed, missing)
    y[~mask] = torch.nan
    batch = as_tasks(f.numpy(), y.numpy()).batch(dtype=torch.float64)
    torch.manual_seed(0)
    model = MultiTaskRegression(D, D)
    model.setup(T)
    return model.double().eval(), batch


def test_the_mode_step_ends_at_the_mode_of_the_program():
    model, batch = fitted(missing=True)
    model.prior.eta.fill_(0.4)
    features = model.latents(batch).detach()
    for _ in range(200):
        mode_step(model, batch, moments(features, batch.y.unsqueeze(-1), batch.mask))
    for t in range(T):
        seen = samples(batch)[t]
        sigma = float(model.variance[t]) ** 0.5
        want = ssl_regression(
            features[t][seen],
            batch.y[t][seen],
            ladder=[100.0],
            sigma=sigma,
            eta=0.4,
            start=model.weights[0, t],
        )
        torch.testing.assert_close(model.weights[0, t], want.coef, rtol=1e-7, atol=1e-9)
        error = batch.y[t][seen] - features[t][seen] @ want.coef
        mode = (0.02 + 0.5 * float((error**2).sum())) / (2 + 0.5 * int(seen.sum()))
        assert float(model.variance[t]) == pytest.approx(max(mode, 1e-4), rel=1e-6)


def test_the_mode_step_leaves_other_tasks_alone():
    model, batch = fitted()
    part = batch.rows(torch.tensor([2, 0]))
    mode_step(model, part, moments(model.latents(part).detach(), part.y.unsqueeze(-1), part.mask))
    assert (model.weights[0, [1, 3]] == 0).all()
    assert (model.variance[[1, 3]] == 1).all()
    assert (model.weights[0, 0] != 0).any()


def test_the_mode_step_wants_a_spike_and_slab_lasso():
    model, batch = fitted()
    model.prior = Laplace()
    with pytest.raises(TypeError, match="prior: inner='ssl' wants a SpikeSlabLasso, got a Laplace"):
        mode_step(model, batch, moments(model.latents(batch), batch.y.unsqueeze(-1)))


@pytest.mark.parametrize("inner", [*SOLVERS, "ssl"])
def test_the_left_out_error(inner):
    """Every second seen sample, predicted by scikit-learn from the others."""
    model, batch = fitted(missing=True)
    got = left_out_error(model, batch, inner, 0.2, 0.05)
    f = model.latents(batch).detach().numpy()
    for t in range(T):
        seen = samples(batch)[t].numpy()
        a, b = f[t][seen], batch.y[t].numpy()[seen]
        learn, judge = slice(0, None, 2), slice(1, None, 2)
        n = len(b[learn])
        if inner in ("lasso", "ssl"):
            centred = a[learn] - a[learn].mean(0)
            top = np.abs(centred.T @ (b[learn] - b[learn].mean())).max() / n
            solver = Lasso(alpha=0.2 * top, tol=1e-13, max_iter=100_000)
        else:
            solver = Ridge(alpha=n * 0.05)
        error = b[judge] - solver.fit(a[learn], b[learn]).predict(a[judge])
        assert float(got[t]) == pytest.approx((error**2).mean(), rel=1e-7)


def test_the_left_out_error_of_too_few_samples_is_not_a_number():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 6, D)), rng.normal(size=(3, 6))
    y[1, 3:] = np.nan
    torch.manual_seed(0)
    model = MultiTaskRegression(D, 2)
    model.setup(3)
    got = left_out_error(model, as_tasks(x, y).batch(), "lasso", 0.1, 1e-3)
    assert torch.isfinite(got).tolist() == [True, False, True]
    few = as_tasks(x[:, :3], y[:, :3]).batch()
    assert torch.isnan(left_out_error(model, few, "ridge", 0.1, 1e-3)).all()
