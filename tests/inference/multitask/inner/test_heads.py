"""Heads against scikit-learn and distances, and what they promise in common."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC

from pyro_sparse.inference.multitask.inner import GroupSVMHead, PrototypeHead, RidgeHead
from pyro_sparse.inference.multitask.inner.heads import get_head

NAMES = ("group_svm", "dense_svm", "ridge", "prototype")


def episode(batch=(), n=15, d=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centre = torch.randn(*batch, 3, d, dtype=torch.float64, generator=generator)
    x = centre[..., labels, :] + torch.randn(*batch, n, d, dtype=torch.float64, generator=generator)
    query = torch.randn(*batch, 4, d, dtype=torch.float64, generator=generator)
    mean = x.mean(-2, keepdim=True)
    return x - mean, labels.expand(*batch, n), query - mean


def test_the_dense_svm_is_that_of_liblinear():
    x, labels, query = episode()
    penalty = 0.5 * float(x.square().sum() / len(x))
    theirs = LinearSVC(
        multi_class="crammer_singer", C=1 / penalty, fit_intercept=False, tol=1e-10, max_iter=100_000
    ).fit(x.numpy(), labels.numpy())
    ours = GroupSVMHead(sparsity=0.0, ridge=0.5, tol=1e-12)(x, labels, query)
    np.testing.assert_allclose(ours, theirs.decision_function(query.numpy()), atol=1e-5)


def test_the_ridge_head_is_that_of_scikit_learn():
    x, labels, query = episode(seed=1)
    x, query = x + 3.0, query + 3.0  # it has an intercept
    centred = x - x.mean(0)
    penalty = 0.2 * float(centred.square().sum())
    theirs = Ridge(alpha=penalty).fit(x.numpy(), np.eye(3)[labels.numpy()])
    np.testing.assert_allclose(RidgeHead(0.2)(x, labels, query), theirs.predict(query.numpy()), atol=1e-10)


def test_prototype_scores_are_distances_but_for_the_query_s_own_norm():
    x, labels, query = episode(seed=2)
    centres = torch.stack([x[labels == c].mean(0) for c in range(3)])
    distance = torch.cdist(query, centres).square()
    scores = PrototypeHead()(x, labels, query)
    np.testing.assert_allclose(torch.softmax(scores, -1), torch.softmax(-distance, -1))


@pytest.mark.parametrize("name", NAMES)
def test_heads_work_on_episodes_side_by_side_whatever_the_scale(name):
    x, labels, query = episode(batch=(2, 3), seed=3)
    head = get_head(name)
    assert get_head(head) is head
    scores, fitted = head(x, labels, query), head.fit(x, labels)
    assert scores.shape == (2, 3, 4, 3) and fitted.weight.shape == (2, 3, 8, 3)
    assert fitted.gap.shape == (2, 3) and (fitted.gap <= 1e-6).all()
    np.testing.assert_allclose(scores[1, 2], head(x[1, 2], labels[1, 2], query[1, 2]), atol=1e-6)
    scale = 1.0 if name == "prototype" else 10.0
    np.testing.assert_allclose(scores, head(scale * x, labels, scale * query), atol=1e-6)
    assert head(x.float(), labels, query.float()).dtype == torch.float32
    used = (fitted.weight != 0).any(-1).double().mean()
    assert (used < 1) == (name == "group_svm")


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_differentiable_in_support_and_query(name):
    x, labels, query = episode(n=9, d=5, seed=4)
    ways = torch.eye(45, dtype=torch.float64).reshape(45, 9, 5)

    def total(x):
        lead = x.shape[:-2]
        scores = get_head(name)(x, labels[:9].expand(*lead, -1), query.expand(*lead, -1, -1))
        return torch.log_softmax(scores, -1)[..., 0].sum(-1)

    x.requires_grad_()
    (exact,) = torch.autograd.grad(total(x), x)
    with torch.no_grad():
        up, down = total(torch.cat([x + 1e-4 * ways, x - 1e-4 * ways])).chunk(2)
    np.testing.assert_allclose(exact.flatten(), (up - down) / 2e-4, atol=1e-5)
    query.requires_grad_()
    assert torch.autograd.gradcheck(lambda q: get_head(name)(x.detach(), labels, q), (query,))


@pytest.mark.parametrize("name", NAMES)
def test_features_that_are_all_dead_score_alike(name):
    x = torch.zeros(6, 4, requires_grad=True)
    scores = get_head(name)(x, torch.arange(6) % 3, torch.zeros(2, 4))
    scores.sum().backward()
    assert torch.equal(scores, scores[:, :1].expand(-1, 3)) and x.grad.isfinite().all()


def test_complaints():
    x, labels, query = episode()
    with pytest.raises(ValueError, match="head: got 'svm', wanted a Head or one of 'group_svm'"):
        get_head("svm")
    with pytest.raises(ValueError, match=r"query: got shape \(4, 7\), .* features of support, \(15, 8\)"):
        RidgeHead()(x, labels, query[:, :7])
    with pytest.raises(ValueError, match="labels: class 3 has no example"):
        PrototypeHead()(x, labels, query, n_classes=4)
    for head in (RidgeHead(ridge=0.0), GroupSVMHead(ridge=0.0)):
        with pytest.raises(ValueError, match="ridge: got 0.0, wanted a positive number"):
            head(x, labels, query)
    for name in NAMES:
        with pytest.raises(ValueError, match=r"labels: got shape \(14,\)"):
            get_head(name)(x, labels[:14], query)
