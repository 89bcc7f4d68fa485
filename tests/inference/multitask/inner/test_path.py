"""Penalties chosen from the data, against scikit-learn on the same folds and criteria written out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import special
from sklearn.linear_model import LassoCV, LogisticRegression, Ridge

from pyro_sparse.inference.multitask.inner import choose_penalty, moments, sparse_glm, sparse_weights
from pyro_sparse.inference.multitask.inner.lasso import largest_penalty
from pyro_sparse.inference.multitask.inner.path import _folds, penalty_grid
from tests.inference.inner.problems import sklearn_weights, tasks


def test_grid_is_geometric():
    found = penalty_grid(torch.tensor([1.0, 10.0], dtype=torch.float64), 4, 1e-3)
    np.testing.assert_allclose(found, np.outer([1, 10], np.geomspace(1, 1e-3, 4)))


@pytest.mark.parametrize(("levels", "ratio"), [(1, 0.1), (5, 1.0), (5, 0.0)])
def test_complaints_of_the_grid(levels, ratio):
    with pytest.raises(
        ValueError, match=f"levels: want >= 2, got {levels}; ratio: want in .0, 1., got {ratio}"
    ):
        penalty_grid(torch.ones(2), levels, ratio)


def splits(mask, t, fold, n_folds):
    seen = np.flatnonzero(mask[t])
    return [(seen[fold[t, seen] != k], seen[fold[t, seen] == k]) for k in range(n_folds)]


def test_folds_are_lasso_cvs_answer_on_the_same_folds():
    features, targets = tasks(n=37)
    mask = torch.as_tensor(np.random.default_rng(0).random((4, 37)) < 0.8)
    features[~mask], targets[~mask] = torch.nan, torch.nan
    found = choose_penalty(features, targets, mask=mask, folds=4, levels=10, seed=3)
    fold = _folds(mask, targets[..., 0] > 0, "normal", 4, 3).numpy()
    for t in range(4):
        seen = mask[t].numpy()
        x, y = np.nan_to_num(features[t].numpy()), np.nan_to_num(targets[t, :, 0].numpy())
        pairs = splits(mask.numpy(), t, fold, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = LassoCV(alphas=found.grid[t].numpy(), cv=pairs, tol=1e-10, max_iter=10**5).fit(x, y)
        np.testing.assert_allclose(found.score[t], fit.mse_path_.mean(1) / 2, rtol=1e-5)
        np.testing.assert_allclose(found.penalty[t], fit.alpha_)
        assert seen.sum() == sum(len(outside) for _, outside in pairs)


@pytest.mark.slow
def test_several_outputs():
    features, targets = tasks(n=30, k=2)
    found = choose_penalty(features, targets, folds=3, levels=6)
    fold = _folds(torch.ones(4, 30, dtype=torch.bool), targets[..., 0] > 0, "normal", 3, 0).numpy()
    for t, level in ((0, 2), (3, 4)):
        errors = []
        for inside, outside in splits(np.ones((4, 30), bool), t, fold, 3):
            x, y = features[t].numpy(), targets[t].numpy()
            w, b = sklearn_weights(x[inside], y[inside], float(found.grid[t, level]))
            errors.append(0.5 * ((y[outside] - x[outside] @ w - b) ** 2).sum(1).mean())
        np.testing.assert_allclose(found.score[t, level], np.mean(errors), rtol=1e-5)


def test_ridge():
    features, targets = tasks(n=20, d=15)
    found = choose_penalty(features, targets, kind="ridge", folds=5, levels=8)
    x = features - features.mean(1, keepdim=True)
    np.testing.assert_allclose(found.grid[:, 0], (x**2).sum((1, 2)) / 20)
    np.testing.assert_allclose(found.grid[:, -1], 1e-3 * found.grid[:, 0])
    fold = _folds(torch.ones(4, 20, dtype=torch.bool), targets[..., 0] > 0, "normal", 5, 0).numpy()
    for t, level in ((0, 0), (1, 7)):
        errors = []
        for inside, outside in splits(np.ones((4, 20), bool), t, fold, 5):
            fit = Ridge(len(inside) * float(found.grid[t, level])).fit(
                features[t].numpy()[inside], targets[t].numpy()[inside]
            )
            errors.append(
                0.5
                * (
                    (targets[t].numpy()[outside, 0] - fit.predict(features[t].numpy()[outside]).ravel()) ** 2
                ).mean()
            )
        np.testing.assert_allclose(found.score[t, level], np.mean(errors), rtol=1e-9)


def test_yes_or_no_targets():
    features, eta = tasks(n_tasks=2, n=40)
    targets = (eta > eta.mean(1, keepdim=True)).double()
    found = choose_penalty(features, targets, family="bernoulli", folds=4, levels=5, ratio=0.05)
    fold = _folds(torch.ones(2, 40, dtype=torch.bool), targets[..., 0] > 0, "bernoulli", 4, 0).numpy()
    for t, level in ((0, 1), (1, 4)):
        errors = []
        for inside, outside in splits(np.ones((2, 40), bool), t, fold, 4):
            x, y = features[t].numpy(), targets[t, :, 0].numpy()
            c = 1 / (len(inside) * float(found.grid[t, level]))
            fit = LogisticRegression(C=c, l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=10**6).fit(
                x[inside], y[inside]
            )
            chance = fit.predict_proba(x[outside])[:, 1]
            errors.append(-np.log(np.where(y[outside] > 0, chance, 1 - chance)).mean())
        np.testing.assert_allclose(found.score[t, level], np.mean(errors), rtol=1e-4)


@pytest.mark.parametrize("family", ["normal", "bernoulli"])
def test_folds_share_samples_and_classes_evenly(family):
    rng = np.random.default_rng(1)
    seen, above = torch.as_tensor(rng.random((5, 43)) < 0.8), torch.as_tensor(rng.random((5, 43)) < 0.25)
    fold = _folds(seen, above, family, 5, 0)
    for t in range(5):
        groups = [seen[t]] if family == "normal" else [seen[t], seen[t] & above[t], seen[t] & ~above[t]]
        for group in groups:
            count = np.bincount(fold[t][group], minlength=5)
            assert count.max() - count.min() <= 1
    assert torch.equal(fold, _folds(seen, above, family, 5, 0))
    assert not torch.equal(fold, _folds(seen, above, family, 5, 1))


@pytest.mark.parametrize("by", ["aic", "bic", "ebic"])
@pytest.mark.parametrize("k", [1, 2])
def test_criteria_are_log_likelihoods_with_a_price(by, k):
    features, targets = tasks(n=40, k=k)
    found = choose_penalty(features, targets, by=by, levels=8)
    data = moments(features, targets)
    price = {"aic": 2, "bic": np.log(40), "ebic": np.log(40) + np.log(6)}[by]
    scores = []
    for level in range(8):
        weight = sparse_weights(data, found.grid[:, level]).weight
        left = targets - features @ weight - data.intercept(weight).unsqueeze(1)
        variance = (left**2).mean((1, 2), keepdim=True)
        normal = torch.distributions.Normal(0.0, variance.sqrt()).log_prob(left).sum((1, 2))
        constant = k * (1 + np.log(2 * np.pi))
        scores.append((-2 * normal + price * (weight != 0).sum((1, 2))) / 40 - constant)
    np.testing.assert_allclose(found.score, torch.stack(scores, 1), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found.penalty, found.grid[range(4), found.score.argmin(1)])


def test_a_criterion_finds_the_support():
    features, targets = tasks(n_tasks=20, n=200, d=8, density=0.4, seed=2)
    found = choose_penalty(features, targets, by="ebic")
    active = sparse_weights(moments(features, targets), found.penalty).active
    truth = sparse_weights(moments(features, targets), 0.05).active
    assert (active == truth).float().mean() > 0.9


def test_criterion_of_counts():
    features, eta = tasks(n_tasks=2, n=60)
    rate = (eta - eta.mean(1, keepdim=True)).clamp(-3, 1).exp()
    targets = torch.poisson(rate, generator=torch.Generator().manual_seed(0))
    found = choose_penalty(features, targets, by="bic", family="poisson", levels=6, ratio=0.01)
    for level in (1, 5):
        fit = sparse_glm(features, targets, found.grid[:, level], "poisson")
        y, eta = targets.numpy(), (features @ fit.weight + fit.intercept.unsqueeze(1)).numpy()
        deviance = 2 * (special.xlogy(y, y) - y * eta - y + np.exp(eta)).mean((1, 2))
        price = np.log(60) * fit.active.sum(1).numpy() / 60
        np.testing.assert_allclose(found.score[:, level], deviance + price, rtol=1e-5)
    np.testing.assert_array_equal(found.penalty, found.grid[range(2), found.score.argmin(1)])


def test_one_share_for_all_tasks():
    features, targets = tasks(n=30)
    found = choose_penalty(features, targets, levels=7, per_task=False)
    share = found.penalty / largest_penalty(moments(features, targets))
    np.testing.assert_allclose(share, share[0].item())
    np.testing.assert_allclose(share[0], (1e-3 ** np.linspace(0, 1, 7))[found.score.sum(0).argmin()])


def test_a_task_with_constant_targets_has_no_penalty():
    features, targets = tasks(n=30)
    targets[1] = 0.1
    found = choose_penalty(features, targets, levels=4, folds=3)
    assert found.penalty[1] == 0 and (found.penalty[[0, 2, 3]] > 0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"by": "mdl"}, "by: want cv, bic, aic or ebic, got 'mdl'"),
        ({"kind": "group"}, "kind: want lasso, or ridge .* got 'group'"),
        ({"kind": "ridge", "by": "bic"}, "ridge with by='cv' and family='normal'"),
        ({"family": "gamma"}, "family: want normal, bernoulli or poisson, got 'gamma'"),
        ({"folds": 1}, r"folds: want 2 to 30 \(the samples of the smallest task\), got 1"),
        ({"folds": 31}, "folds: want 2 to 30"),
        ({"levels": 1}, "levels: want >= 2"),
        ({"mask": torch.ones(4, 30)}, "mask: want bool"),
        (
            {"family": "bernoulli", "targets": torch.eye(30, 1).expand(4, 30, 1)},
            r"targets: tasks \[0, 1, 2, 3\] have fewer than two ones",
        ),
    ],
)
def test_complaints(change, words):
    features, targets = tasks()
    with pytest.raises(ValueError, match=words):
        choose_penalty(**{"features": features, "targets": targets, **change})
