"""Sparse generalised linear models against scikit-learn, SciPy and central differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression

from pyro_sparse.inference.multitask.inner import moments, sparse_glm
from pyro_sparse.inference.multitask.inner.glm import FAMILIES, half_deviance
from pyro_sparse.inference.multitask.inner.lasso import largest_penalty
from tests.inference.inner.problems import KINDS, tasks

both = pytest.mark.parametrize("compiled", KINDS)
families = pytest.mark.parametrize("family", list(FAMILIES))


def problem(family, n_tasks=3, n=40, d=5, seed=0, dtype=torch.float64):
    features, eta = tasks(n_tasks=n_tasks, n=n, d=d, seed=seed)
    eta = (eta - eta.mean(1, keepdim=True)).clamp(-4, 2).numpy()
    rng = np.random.default_rng(seed)
    targets = (
        rng.random(eta.shape) < special.expit(eta) if family == "bernoulli" else rng.poisson(np.exp(eta))
    )
    return features.to(dtype), torch.as_tensor(targets.astype(float), dtype=dtype)


def loss(family, eta, y):
    """Mean negative log-likelihood of samples, up to a constant, by SciPy."""
    if family == "bernoulli":
        return -(special.log_expit(eta) * y + special.log_expit(-eta) * (1 - y))
    return np.exp(eta) - y * eta + special.gammaln(y + 1)


def scipys(family, x, y, penalty, ridge=0.0, share=None):
    """Weights and intercept by a bounded quasi-Newton search over positive and negative parts."""
    n, d = x.shape
    share = np.full(n, 1 / n) if share is None else share

    def value(parts):
        w, b = parts[:d] - parts[d : 2 * d], parts[-1]
        eta = x @ w + b
        mean = special.expit(eta) if family == "bernoulli" else np.exp(eta)
        slope = x.T @ (share * (mean - y)) + ridge * w
        total = share @ loss(family, eta, y) + penalty * parts[:-1].sum() + ridge / 2 * w @ w
        return total, np.concatenate([slope + penalty, penalty - slope, [share @ (mean - y)]])

    bounds = [(0, None)] * (2 * d) + [(None, None)]
    options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10**5, "maxfun": 10**5}
    found = optimize.minimize(
        value, np.zeros(2 * d + 1), jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    return found.x[:d] - found.x[d : 2 * d], found.x[-1], found.fun


@both
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_scikit_learns_logistic_lasso(compiled, share):
    features, targets = problem("bernoulli")
    penalty = share * largest_penalty(moments(features, targets))
    found = sparse_glm(features, targets, penalty, compiled=compiled)
    assert found.relative_gap.max() <= 1e-8
    for t in range(3):
        settings = {"l1_ratio": 1.0, "solver": "saga", "tol": 1e-12, "max_iter": 10**6}
        x = features[t].numpy()
        fit = LogisticRegression(C=1 / (40 * float(penalty[t])), **settings).fit(x, targets[t, :, 0].numpy())
        np.testing.assert_allclose(found.weight[t, :, 0], fit.coef_[0], atol=1e-6)
        np.testing.assert_allclose(found.intercept[t], fit.intercept_, atol=1e-6)
        np.testing.assert_array_equal(found.active[t], fit.coef_[0] != 0)


@both
@families
@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_scipys_answer_with_weights_and_a_mask(compiled, family, ridge):
    features, targets = problem(family)
    rng = np.random.default_rng(7)
    mask, weights = rng.random((3, 40)) < 0.8, rng.uniform(0.5, 2, size=(3, 40))
    features[~torch.as_tensor(mask)], targets[~torch.as_tensor(mask)] = torch.nan, torch.nan
    found = sparse_glm(
        features,
        targets,
        0.05,
        family,
        ridge,
        mask=torch.as_tensor(mask),
        weights=torch.as_tensor(weights),
        compiled=compiled,
    )
    for t in range(3):
        seen = mask[t]
        share = weights[t][seen] / weights[t][seen].sum()
        x, y = features[t].numpy()[seen], targets[t, :, 0].numpy()[seen]
        w, b, _ = scipys(family, x, y, 0.05, ridge, share)
        np.testing.assert_allclose(found.weight[t, :, 0], w, atol=2e-5)
        np.testing.assert_allclose(found.intercept[t], b, atol=2e-5)


@families
def test_the_gap_bounds_what_is_missing(family):
    features, targets = problem(family)
    with pytest.warns(RuntimeWarning, match="did not converge in 1 Newton steps"):
        found = sparse_glm(features, targets, 0.02, family, max_steps=1)
    for t in range(3):
        x, y, w = features[t].numpy(), targets[t, :, 0].numpy(), found.weight[t, :, 0].numpy()
        value = loss(family, x @ w + float(found.intercept[t]), y).mean() + 0.02 * np.abs(w).sum()
        missing = value - scipys(family, x, y, 0.02)[2]
        assert 0 < missing <= found.gap[t]


@families
def test_the_largest_penalty_is_that_of_a_squared_loss(family):
    features, targets = problem(family)
    most = largest_penalty(moments(features, targets))
    assert not sparse_glm(features, targets, 1.0001 * most, family).active.any()
    assert (sparse_glm(features, targets, 0.999 * most, family).active.sum(1) == 1).all()


@families
def test_half_deviance_is_never_negative_and_nothing_where_the_mean_is_the_target(family):
    eta = torch.linspace(-3, 3, 7, dtype=torch.float64)
    mean = FAMILIES[family].mean(eta)
    np.testing.assert_allclose(half_deviance(FAMILIES[family], eta, mean), 0, atol=1e-12)
    y = torch.tensor([0.0, 1, 1, 0, 1, 0, 0], dtype=torch.float64)
    found = half_deviance(FAMILIES[family], eta, y).numpy()
    best = special.logit(y.numpy()) if family == "bernoulli" else np.log(np.maximum(y.numpy(), 1e-300))
    best = np.clip(best, -700, 700)
    np.testing.assert_allclose(
        found, loss(family, eta.numpy(), y.numpy()) - loss(family, best, y.numpy()), atol=1e-12
    )
    assert (found >= 0).all()


@both
@families
def test_gradients_are_central_differences(compiled, family):
    features, targets = problem(family, n_tasks=2, n=12, d=3)
    weights = torch.as_tensor(np.random.default_rng(0).uniform(0.5, 2, size=(2, 12)))
    penalty = torch.full((2, 3), 0.03, dtype=torch.float64)

    def of(f, lam):
        found = sparse_glm(f, targets, lam, family, 0.01, weights=weights, tol=1e-14, compiled=compiled)
        return found.weight, found.intercept

    used = of(features, penalty)[0] != 0
    assert used.any()
    inputs = [part.clone().requires_grad_() for part in (features, penalty)]
    assert torch.autograd.gradcheck(of, inputs, eps=1e-5, atol=1e-5, fast_mode=True)


def test_gradients_of_counts_with_respect_to_the_counts():
    features, targets = problem("poisson", n_tasks=1, n=12, d=3)
    targets = targets + 0.5

    def of(y):
        found = sparse_glm(features, y, 0.03, "poisson", tol=1e-14)
        return found.weight, found.intercept

    assert torch.autograd.gradcheck(of, targets.requires_grad_(), eps=1e-5, atol=1e-5)


@families
def test_single_precision_in_and_out(family):
    features, targets = problem(family, dtype=torch.float32)
    found = sparse_glm(features, targets, 0.05, family)
    wanted = sparse_glm(features.double(), targets.double(), 0.05, family)
    assert found.weight.dtype == found.intercept.dtype == torch.float32
    assert found.relative_gap.max() < 1e-8
    np.testing.assert_allclose(found.weight, wanted.weight, atol=1e-6)


def test_separable_classes_converge_at_a_small_penalty():
    x = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(1, 20, 1)
    found = sparse_glm(x, (x > 0).double(), 1e-4)
    w, b, _ = scipys("bernoulli", x[0].numpy(), (x[0, :, 0] > 0).numpy().astype(float), 1e-4)
    np.testing.assert_allclose(found.weight[0, 0, 0], w[0], rtol=1e-3)
    np.testing.assert_allclose(found.intercept[0, 0], b, atol=1e-3)


def test_large_counts_and_a_far_start():
    features, targets = problem("poisson")
    found = sparse_glm(features, 1e4 * targets, 100.0, "poisson")
    far = sparse_glm(features, 1e4 * targets, 100.0, "poisson", start=torch.full((3, 5, 1), 2.0))
    np.testing.assert_allclose(far.weight, found.weight, atol=1e-6)


def test_equal_counts_need_no_weight():
    features, targets = problem("poisson")
    found = sparse_glm(features, torch.full_like(targets, 3.0), 0.1, "poisson")
    assert not found.active.any()
    np.testing.assert_allclose(found.intercept, np.log(3), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"family": "gamma"}, r"family: want one of \['bernoulli', 'poisson'\], got 'gamma'"),
        ({"targets": torch.zeros(3, 40, 2)}, r"targets: got \(3, 40, 2\), want \(task, sample, 1\)"),
        ({"targets": torch.zeros(2, 40, 1)}, r"features \(3, 40, 5\) and targets \(2, 40, 1\)"),
        ({"targets": torch.full((3, 40, 1), 0.5)}, "targets: the bernoulli family wants values 0 or 1"),
        ({"targets": -torch.ones(3, 40, 1), "family": "poisson"}, "the poisson family wants values >= 0"),
        ({"targets": torch.ones(3, 40, 1)}, r"tasks \[0, 1, 2\] have one class only"),
        ({"targets": torch.zeros(3, 40, 1), "family": "poisson"}, "no counts at all; .* drop them"),
        ({"ridge": -1.0}, "ridge: want finite and >= 0, got -1.0"),
        ({"penalty": 0.0}, "penalty: want finite and > 0"),
        ({"penalty": torch.ones(2)}, r"penalty: got shape \(2,\)"),
        ({"start": torch.zeros(3, 5)}, r"start: want shape \(3, 5, 1\), got \(3, 5\)"),
        ({"mask": torch.ones(3, 41, dtype=torch.bool)}, r"mask: got shape \(3, 41\)"),
        ({"features": torch.full((3, 40, 5), torch.nan)}, "features: .* NaN"),
    ],
)
def test_complaints(change, words):
    features, targets = problem("bernoulli")
    with pytest.raises(ValueError, match=words):
        sparse_glm(**{"features": features, "targets": targets, "penalty": 0.1, **change})


def test_the_warning_has_the_gap():
    features, targets = problem("bernoulli")
    with pytest.warns(
        RuntimeWarning, match=r"of 3 tasks .* in 1 Newton steps: largest .* wanted 1.00e-08"
    ) as seen:
        found = sparse_glm(features, targets, 0.01, max_steps=1)
    assert f"{float(found.relative_gap.max()):.2e}" in str(seen[0].message)
    assert seen[0].filename == __file__
