"""Ridge regressions against scikit-learn and LAPACK's least squares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from pyro_sparse.inference.multitask.inner import moments, ridge_weights
from tests.inference.inner.problems import tasks


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("d", [5, 40])
def test_scikit_learns_answer(k, d):
    features, targets = tasks(d=d, k=k)
    ridge = torch.tensor([1e-3, 0.1, 1.0, 10.0], dtype=torch.float64)
    data = moments(features, targets)
    found = ridge_weights(data, ridge)
    for t in range(4):
        fit = Ridge(30 * float(ridge[t]), solver="svd").fit(features[t].numpy(), targets[t].numpy())
        np.testing.assert_allclose(found[t], np.reshape(fit.coef_, (k, d)).T, atol=1e-11)
        np.testing.assert_allclose(data.intercept(found)[t], np.ravel(fit.intercept_), atol=1e-10)


@pytest.mark.parametrize("compiled", [False, True])
def test_without_a_ridge_it_is_least_squares_the_shortest_where_there_are_many(compiled, monkeypatch):
    from pyro_sparse.inference.multitask.inner import _compiled

    monkeypatch.setattr(_compiled, "AVAILABLE", compiled)
    features, targets = tasks(n=20, d=6, k=2)
    wide = torch.cat([features, features[..., :2], torch.full((4, 20, 1), 0.1)], -1)
    found = ridge_weights(moments(wide, targets))
    for t in range(4):
        x = wide[t].numpy() - wide[t].numpy().mean(0)
        x[:, -1] = 0
        y = targets[t].numpy() - targets[t].numpy().mean(0)
        np.testing.assert_allclose(found[t], np.linalg.lstsq(x, y, rcond=1e-10)[0], atol=1e-9)


def test_single_precision_in_and_out():
    features, targets = tasks(dtype=torch.float32)
    found = ridge_weights(moments(features, targets), 0.1)
    wanted = ridge_weights(moments(features.double(), targets.double()), 0.1)
    assert found.dtype == torch.float32 and torch.equal(found, wanted.float())


@pytest.mark.parametrize(
    ("ridge", "words"),
    [(-1.0, "ridge: want finite and >= 0, .* got -1.0"), (torch.ones(3), r"shape \(\) or \(task,\) \(4,\)")],
)
def test_complaints(ridge, words):
    with pytest.raises(ValueError, match=words):
        ridge_weights(moments(*tasks()), ridge)
