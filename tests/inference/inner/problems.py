"""Random tasks with known sparse weights, and what scikit-learn says about them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import ElasticNet, MultiTaskElasticNet

from pyro_sparse.inference.multitask.inner._compiled import AVAILABLE

needs_numba = pytest.mark.skipif(not AVAILABLE, reason="numba is not installed")
KINDS = [False, pytest.param(True, marks=needs_numba)]


def tasks(n_tasks=4, n=30, d=6, k=1, *, density=0.5, noise=0.1, seed=0, dtype=torch.float64):
    """Features (task, sample, feature) and targets (task, sample, output)."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(n_tasks, d, k)) * (rng.random((n_tasks, d, 1)) < density)
    features = rng.normal(size=(n_tasks, n, d)) + rng.normal(size=(n_tasks, 1, d))
    targets = features @ weight + noise * rng.normal(size=(n_tasks, n, k)) + rng.normal(size=(n_tasks, 1, k))
    return torch.as_tensor(features, dtype=dtype), torch.as_tensor(targets, dtype=dtype)


def sklearn_weights(features, targets, penalty, ridge=0.0, *, weights=None, intercept=True, tol=1e-14):
    """Weights (feature, output) and intercepts (output,) of one task, by scikit-learn."""
    alpha, ratio = penalty + ridge, penalty / (penalty + ridge)
    settings = {
        "alpha": alpha,
        "l1_ratio": ratio,
        "tol": tol,
        "max_iter": 10**6,
        "fit_intercept": intercept,
    }
    if targets.shape[1] == 1:
        fit = ElasticNet(**settings).fit(features, targets[:, 0], sample_weight=weights)
        return fit.coef_[:, None], np.atleast_1d(fit.intercept_)
    assert weights is None
    fit = MultiTaskElasticNet(**settings).fit(features, targets)
    return fit.coef_.T, np.broadcast_to(fit.intercept_, targets.shape[1:])


def objective(features, targets, weight, intercept, penalty, ridge=0.0, share=None):
    """The penalised loss of one task, from residuals."""
    share = np.full(len(features), 1 / len(features)) if share is None else share
    left = targets - features @ weight - intercept
    norms = np.sqrt((weight**2).sum(1))
    loss = 0.5 * (share[:, None] * left**2).sum()
    return loss + (penalty * norms).sum() + 0.5 * ridge * (weight**2).sum()
