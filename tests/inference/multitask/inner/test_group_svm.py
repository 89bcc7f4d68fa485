"""The group-lasso SVM against its primal written out, a general solver, liblinear, and the conditions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from pyro_sparse.inference.multitask.inner import group_svm
from pyro_sparse.inference.multitask.inner.group_svm import zero_weight_l1


def episodes(n=12, d=6, n_classes=3, batch=(), spread=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % n_classes
    centre = spread * torch.randn(*batch, n_classes, d, dtype=torch.float64, generator=generator)
    x = centre[..., labels, :] + torch.randn(*batch, n, d, dtype=torch.float64, generator=generator)
    return x - x.mean(-2, keepdim=True), labels.expand(*batch, n)


def primal(x, labels, weight, l1, l2):
    """Eq. 79, entry by entry."""
    total = l1 * sum(np.sqrt((row**2).sum()) for row in weight) + l2 / 2 * (weight**2).sum()
    for row, label in zip(x, labels, strict=True):
        scores = row @ weight
        margins = [float(k != label) + scores[k] - scores[label] for k in range(weight.shape[1])]
        total += max(margins)
    return total


def solved(x, labels, sparsity, l2, n_classes=3, **options):
    return group_svm(x, labels, n_classes, sparsity=sparsity, l2=l2, tol=1e-12, max_iter=50_000, **options)


@pytest.mark.parametrize("sparsity, l2", [(0.0, 1.0), (0.3, 0.5), (0.3, 5.0), (0.6, 2.0)])
def test_no_weights_have_a_lower_primal_and_the_dual_as_written_meets_it(sparsity, l2):
    x, labels = episodes()
    svm = solved(x, labels, sparsity, l2)
    weight, dual = svm.weight.numpy(), svm.dual.numpy()
    l1 = sparsity * float(zero_weight_l1(x, labels, 3))
    value = primal(x.numpy(), labels.numpy(), weight, l1, l2)
    # the dual, written out: n - <Y, Lambda> - |S(V)|^2 / 2 l2
    y = np.eye(3)[labels.numpy()]
    v = x.numpy().T @ (y - dual)
    shrunk = [row * max(0.0, 1 - l1 / np.linalg.norm(row)) for row in v]
    bound = len(x) - (y * dual).sum() - np.square(shrunk).sum() / (2 * l2)
    assert value == pytest.approx(bound, rel=1e-11) and dual.min() >= 0
    np.testing.assert_allclose(dual.sum(-1), 1.0)
    np.testing.assert_allclose(svm.gap, (value - bound) / value, atol=1e-13)
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(100):
            other = weight + size * rng.standard_normal(weight.shape) * (rng.random((6, 1)) < 0.5)
            assert primal(x.numpy(), labels.numpy(), other, l1, l2) >= value - 1e-10


@pytest.mark.parametrize("sparsity, l2", [(0.0, 1.0), (0.4, 1.0)])
def test_a_general_solver_of_the_primal_finds_the_same_weights(sparsity, l2):
    """Slack variables make the hinge linear constraints, and cones of the group norms."""
    x, labels = episodes(n=6, d=3, seed=1)
    xs, ls, l1 = x.numpy(), labels.numpy(), sparsity * float(zero_weight_l1(x, labels, 3))

    def parts(u):
        return u[:9].reshape(3, 3), u[9:15], u[15:]

    def cost(u):
        weight, slack, size = parts(u)
        return slack.sum() + l1 * size.sum() + l2 / 2 * (weight**2).sum()

    def margins(u):
        weight, slack, _ = parts(u)
        scores = xs @ weight
        own = scores[np.arange(6), ls][:, None]
        return (slack[:, None] - (1 - np.eye(3)[ls] + scores - own)).ravel()

    def cones(u):
        weight, _, size = parts(u)
        return size - np.sqrt((weight**2).sum(1) + 1e-14)

    constraints = [{"type": "ineq", "fun": margins}, {"type": "ineq", "fun": cones}]
    start = np.concatenate([0.1 * np.random.default_rng(0).standard_normal(9), np.full(6, 3.0), np.ones(3)])
    found = minimize(
        cost, start, method="SLSQP", constraints=constraints, options={"maxiter": 1000, "ftol": 1e-13}
    )
    svm = solved(x, labels, sparsity, l2)
    assert cost(found.x) == pytest.approx(primal(xs, ls, svm.weight.numpy(), l1, l2), rel=1e-6)
    np.testing.assert_allclose(parts(found.x)[0], svm.weight, atol=1e-3)
    if sparsity:
        assert 0 < svm.active.sum() < 3


@pytest.mark.parametrize("sparsity", [0.15, 0.5])
def test_optimality_conditions(sparsity):
    x, labels = episodes(n=20, d=15, n_classes=4, seed=2)
    l2, l1 = 2.0, sparsity * zero_weight_l1(x, labels, 4)
    svm = solved(x, labels, sparsity, l2, n_classes=4)
    weight, y = svm.weight, torch.eye(4, dtype=torch.float64)[labels]
    v, size = x.mT @ (y - svm.dual), weight.norm(dim=-1)
    on = size > 0
    assert 0 < on.sum() < 15 and torch.equal(on, svm.active)
    stationary = v[on] - l1 * weight[on] / size[on][:, None] - l2 * weight[on]
    np.testing.assert_allclose(stationary, 0, atol=1e-10)
    assert (v[~on].norm(dim=-1) <= l1).all()
    margins = 1 - y + x @ weight
    slack = margins.amax(-1, keepdim=True) - margins  # a class has mass only where it attains the hinge
    assert slack[svm.dual > 1e-6].max() < 1e-5


@pytest.mark.parametrize("l2", [0.5, 10.0])
def test_without_groups_it_is_the_svm_of_liblinear(l2):
    """liblinear: 1/2 |W|^2 + C sum of slacks without intercept, so C = 1 / l2."""
    x, labels = episodes(n=30, d=5, seed=3)
    theirs = LinearSVC(
        multi_class="crammer_singer", C=1 / l2, fit_intercept=False, tol=1e-10, max_iter=1_000_000
    ).fit(x.numpy(), labels.numpy())
    ours = solved(x, labels, 0.0, l2).weight
    np.testing.assert_allclose(ours, theirs.coef_.T, atol=1e-5)


def test_the_largest_penalty_is_sharp_for_two_classes_and_enough_for_more():
    x, labels = episodes(n=10, n_classes=2, seed=4)
    assert not solved(x, labels, 1.0, 1.0, 2).active.any()
    assert solved(x, labels, 0.999, 1.0, 2).active.sum() == 1
    by_hand = 2 * (x[labels == 0].sum(0) - x[labels == 1].sum(0)).abs().max() / np.sqrt(2)
    assert float(zero_weight_l1(x, labels, 2)) == pytest.approx(float(by_hand))
    for seed in range(5):
        x, labels = episodes(n=12, n_classes=4, seed=seed)
        assert not solved(x, labels, 1.0, 1.0, 4).active.any()
        assert solved(x, labels, 0.5, 1.0, 4).active.any()


def test_dead_features_are_exact_zeros_and_nothing_is_nan():
    x, labels = episodes(seed=6)
    x[:, 2] = 0
    for data in (x, torch.zeros_like(x)):
        data = data.clone().requires_grad_()
        svm = group_svm(data, labels, sparsity=0.2)
        svm.weight.square().sum().backward()
        assert (svm.weight[2] == 0).all() and not svm.active[2] and svm.converged
        assert data.grad.isfinite().all() and svm.dual.isfinite().all()


def test_episodes_are_solved_side_by_side_in_the_dtype_given():
    x, labels = episodes(n=15, d=8, batch=(2, 3), seed=7)
    share = torch.tensor([0.1, 0.3, 0.5])
    svm = solved(x, labels, share, 2.0)
    assert svm.weight.shape == (2, 3, 8, 3) and svm.dual.shape == (2, 3, 15, 3)
    assert svm.gap.shape == svm.converged.shape == (2, 3) and svm.active.shape == (2, 3, 8)
    for i, j in np.ndindex(2, 3):
        alone = solved(x[i, j], labels[i, j], share[j], 2.0)
        np.testing.assert_allclose(svm.weight[i, j], alone.weight, atol=1e-6)
    single = group_svm(x.float(), labels.int(), sparsity=share, l2=2.0)
    assert single.weight.dtype == torch.float32 and single.gap.dtype == torch.float64
    np.testing.assert_allclose(single.weight, svm.weight, atol=2e-3)
    assert (single.gap <= 1e-6).all() and single.converged.all()


def test_giving_up_is_said_with_the_gap():
    x, labels = episodes(n=20, d=15, seed=8)
    with pytest.warns(ConvergenceWarning, match=r"gap [0-9.]+ after 3 steps, wanted 1e-06 \(1 of 1 ep"):
        svm = group_svm(x, labels, l2=0.01, max_iter=3)
    assert not svm.converged and svm.gap > 1e-6


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"x": torch.ones(4, 2, dtype=torch.int64)}, TypeError, r"x: got torch.int64, wanted floating point"),
        ({"labels": torch.zeros(4)}, TypeError, r"labels: got torch.float32, wanted whole numbers"),
        ({"x": torch.ones(4)}, ValueError, r"x: got shape \(4,\), wanted \(..., example, feature\)"),
        ({"x": torch.ones(4, 0)}, ValueError, r"x: got shape \(4, 0\), .*none of them empty"),
        ({"labels": torch.tensor([0, 1, 0])}, ValueError, r"labels: got shape \(3,\), .*\(4,\)"),
        ({"x": torch.full((4, 2), torch.nan)}, ValueError, "x: 8 values are not finite"),
        ({"labels": torch.zeros(4, dtype=torch.int64)}, ValueError, "n_classes: got 1, wanted at least 2"),
        ({"labels": torch.tensor([0, 1, -1, 0])}, ValueError, "labels: got -1 to 1, wanted 0 to 1"),
        (
            {"labels": torch.tensor([0, 1, 2, 0]), "n_classes": 2},
            ValueError,
            "labels: got 0 to 2, wanted 0 to 1",
        ),
        ({"sparsity": -0.1}, ValueError, "sparsity: got -0.1, wanted 0 or more"),
        ({"sparsity": torch.nan}, ValueError, "sparsity: got nan, wanted finite"),
        ({"sparsity": torch.ones(3)}, ValueError, r"sparsity: got shape \(3,\), wanted a number or one per"),
        ({"l2": 0.0}, ValueError, "l2: got 0, wanted a positive number"),
        ({"tol": 0.0}, ValueError, "tol: got 0.0, wanted a positive number"),
        ({"max_iter": 0}, ValueError, "max_iter: got 0, wanted at least 1"),
    ],
)
def test_complaints(change, error, message):
    given = {"x": torch.randn(4, 2), "labels": torch.tensor([0, 1, 0, 1]), **change}
    with pytest.raises(error, match=message):
        group_svm(**given)
