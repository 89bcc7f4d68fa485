"""The implicit gradient of the group-lasso SVM against central differences, also where the dual is open."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.multitask.inner import group_svm

TIGHT = {"tol": 1e-12, "max_iter": 20_000}
# The weights are exact to some 1e-11: a smaller step shows that, and a larger one leaves the face.
STEP, OF_L2, OF_SHARE = 6e-4, 1e-3, 3e-4


def episode(n=12, d=6, n_classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % n_classes
    centre = torch.randn(n_classes, d, dtype=torch.float64, generator=generator)
    x = centre[labels] + torch.randn(n, d, dtype=torch.float64, generator=generator)
    return x - x.mean(-2, keepdim=True), labels


def number(value):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def central(weight, argument, step=STEP):
    """d weight / d argument, (entry, ...), curvature extrapolated away (Richardson).

    All the moved copies are episodes of one call.
    """
    ways = torch.eye(argument.numel(), dtype=torch.float64).reshape(-1, *argument.shape)
    with torch.no_grad():
        step *= max(1.0, float(argument.abs().max()))
        moved = [argument + size * step * ways for size in (1, -1, 0.5, -0.5)]
        up, down, half_up, half_down = weight(torch.cat(moved)).chunk(4)
        return (4 * (half_up - half_down) / step - (up - down) / (2 * step)) / 3


def analytic(weight, argument):
    found = weight(argument)
    basis = torch.eye(found.numel(), dtype=torch.float64).reshape(-1, *found.shape)
    rows = [torch.autograd.grad(found, argument, b, retain_graph=True)[0] for b in basis]
    return torch.stack(rows, -1).reshape(argument.numel(), *found.shape)


@pytest.mark.slow
@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_central_differences_in_features_and_penalties(sparsity, n_classes):
    x, labels = episode(n_classes=n_classes, seed=1)
    share, l2 = number(sparsity), number(20.0)

    def weight(x, share, l2):
        batch = torch.broadcast_shapes(x.shape[:-2], share.shape, l2.shape)
        many = x.expand(*batch, *x.shape[-2:]), labels.expand(*batch, -1)
        return group_svm(*many, sparsity=share, l2=l2, **TIGHT).weight

    n_active = int(weight(x, share, l2).any(-1).sum())
    assert 0 < n_active < 6 or not sparsity, "some features are used, and not all"
    x.requires_grad_()
    of_one = [(x, lambda x: weight(x, share, l2), STEP), (l2, lambda l2: weight(x, share, l2), OF_L2)]
    if sparsity:  # there is no share below none
        of_one.append((share, lambda share: weight(x, share, l2), OF_SHARE))
    for argument, function, step in of_one:
        exact = analytic(function, argument)
        assert exact.abs().max() > 1e-5
        atol = 1e-5 * float(exact.abs().max())
        np.testing.assert_allclose(exact, central(function, argument, step), atol=atol)


def test_a_loss_of_query_scores_through_the_standardised_support():
    x, labels = episode(n=15, d=20, n_classes=5, seed=3)
    query = torch.randn(7, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = torch.arange(7) % 5

    def loss(x):
        x = x / (x.var(-2, keepdim=True) + 0.1).sqrt()
        weight = group_svm(x, labels.expand(*x.shape[:-2], -1), sparsity=0.5, l2=4.0, **TIGHT).weight
        return torch.log_softmax(query @ weight, -1)[..., torch.arange(7), target].sum(-1)

    x.requires_grad_()
    (exact,) = torch.autograd.grad(loss(x), x)
    np.testing.assert_allclose(exact.flatten(), central(loss, x), atol=1e-6)


def test_copies_of_an_example_leave_the_dual_open_but_not_the_gradient():
    """The weight that two equal examples share is free: least squares; moving both together is smooth."""
    x, labels = episode(n=6, d=4, seed=4)
    twice = torch.arange(6).repeat(2)

    def weight(x):
        many = x[..., twice, :], labels[twice].expand(*x.shape[:-2], -1)
        return group_svm(*many, sparsity=0.2, l2=3.0, **TIGHT).weight

    svm = group_svm(x[twice], labels[twice], sparsity=0.2, l2=3.0, **TIGHT)
    assert ((svm.dual > 1e-6) & (svm.dual < 1 - 1e-6)).any(), "some example is between classes"
    x.requires_grad_()
    np.testing.assert_allclose(analytic(weight, x), central(weight, x), atol=1e-6)


def test_where_no_feature_is_used_nothing_changes():
    x, labels = episode(seed=5)
    x.requires_grad_()
    group_svm(x, labels, sparsity=1.2).weight.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_the_gradient_at_the_default_gap_is_the_one_at_the_solution():
    parts = [episode(n=25, d=32, n_classes=5, seed=seed) for seed in range(16)]
    x, labels = (torch.stack(part) for part in zip(*parts, strict=True))
    way = torch.randn(16, 32, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def gradient(**options):
        data = x.clone().requires_grad_()
        (group_svm(data, labels, sparsity=0.5, l2=32.0, **options).weight * way).sum().backward()
        return data.grad

    exact = gradient(**TIGHT)
    assert float((gradient() - exact).norm() / exact.norm()) < 1e-6


def test_second_derivatives_are_refused_by_torch():
    x, labels = episode(seed=7)
    x.requires_grad_()
    (first,) = torch.autograd.grad(group_svm(x, labels).weight.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
