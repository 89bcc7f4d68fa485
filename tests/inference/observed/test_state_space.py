"""The settled Kalman filter beside the density of all frames; the search beside what made the frames."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import linalg, stats

from pyro_sparse.inference.observed.state_space import (
    Pieces,
    _Likelihood,
    autoregression_score,
    error_model,
    innovations,
    one_lag_score,
    settled_covariance,
)

TRANSITION = np.array([[0.8, 0, 0], [0.5, 0.5, 0], [0, 0, 0.6]])


def walk(seed, n=400, error=(0.0, 0.0, 0.0)):
    """a drives b; errors in standard deviations of the variables."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n + 50, 3))
    for t in range(1, n + 50):
        x[t] = TRANSITION @ x[t - 1] + rng.normal(size=3)
    x = x[50:]
    return x + np.array(error) * x.std(0) * rng.normal(size=x.shape)


def pieces_of(y, skipped=4):
    counted = np.zeros((1, len(y)), bool)
    counted[:, skipped:] = True
    return Pieces(torch.as_tensor(y)[None], torch.ones(1, len(y), 1, dtype=torch.float64), counted)


def system(seed, d=3):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    root = np.tril(rng.normal(size=(d, d)))
    return A, root @ root.T + 0.1 * np.eye(d), rng.uniform(0.3, 2, d), rng


@pytest.mark.parametrize("seed", range(3))
def test_the_settled_covariance_is_that_of_scipy(seed):
    A, Q, errors, _ = system(seed)
    P = settled_covariance(*(torch.as_tensor(a) for a in (A, Q, errors))).numpy()
    np.testing.assert_allclose(P, linalg.solve_discrete_are(A.T, np.eye(3), Q, np.diag(errors)), rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_innovations_have_the_density_of_the_whole_series(seed):
    """With a first state of the settled covariance the filter is settled from the first frame."""
    A, Q, errors, rng = system(seed)
    n, d = 12, 3
    P = settled_covariance(*(torch.as_tensor(a) for a in (A, Q, errors))).numpy()
    S = P + np.diag(errors)
    B, inputs = rng.normal(size=(d, 2)), rng.normal(size=(n, 2))
    y = rng.normal(size=(n, d))
    M = A @ np.diag(errors) @ np.linalg.inv(S)
    e = innovations(*(torch.as_tensor(a) for a in (y[None], inputs[None], A, B, M)))[0].numpy()
    by_filter = stats.multivariate_normal(np.zeros(d), S).logpdf(e).sum()
    mean, covariance = np.zeros((n, d)), np.zeros((n, d, n, d))
    mean[0], state = B @ inputs[0], P
    for t in range(n):
        if t:
            mean[t], state = A @ mean[t - 1] + B @ inputs[t], A @ state @ A.T + Q
        for s in range(t, n):
            covariance[s, :, t] = np.linalg.matrix_power(A, s - t) @ state
            covariance[t, :, s] = covariance[s, :, t].T
        covariance[t, :, t] += np.diag(errors)
    dense = stats.multivariate_normal(mean.ravel(), covariance.reshape(n * d, n * d))
    np.testing.assert_allclose(by_filter, dense.logpdf(y.ravel()), rtol=1e-9)


def test_without_errors_it_is_least_squares():
    y = walk(1000)
    pieces = pieces_of(y)
    likelihood = _Likelihood(pieces, np.zeros(3, bool), np.ones((3, 3), bool))
    start = np.zeros(sum(likelihood.sizes))
    np.testing.assert_allclose(likelihood.maximised(start)[1], one_lag_score(pieces), atol=0.05)
    design = np.column_stack([np.ones(396), y[3:-1]])
    weights = np.linalg.lstsq(design, y[4:], rcond=None)[0]
    left = y[4:] - design @ weights
    log_density = stats.multivariate_normal(np.zeros(3), left.T @ left / 396).logpdf(left).sum()
    np.testing.assert_allclose(one_lag_score(pieces), log_density - 0.5 * np.log(396) * (12 + 6), rtol=1e-6)


def test_terms_of_the_autoregression_are_those_that_made_it():
    """The score is that of the true terms, fitted alone, or better."""
    y = walk(1001, n=2000)
    target, back = y[4:], y[3:-1]
    left = np.empty_like(target)
    for j in range(3):
        design = np.column_stack([np.ones(len(target)), back[:, TRANSITION[j] != 0]])
        left[:, j] = target[:, j] - design @ np.linalg.lstsq(design, target[:, j], rcond=None)[0]
    log_density = stats.multivariate_normal(np.zeros(3), left.T @ left / len(left)).logpdf(left).sum()
    wanted = log_density - 0.5 * np.log(len(left)) * (3 + 4 + 6)
    assert wanted - 1e-6 <= autoregression_score(pieces_of(y), 1) < wanted + 5
    assert autoregression_score(pieces_of(y), 1) > one_lag_score(pieces_of(y)) + 5


def test_the_error_model_finds_whose_error_it_is():
    y = walk(1002, n=2000, error=(1.0, 0, 0))
    model = error_model(pieces_of(y), np.ones(3, bool))
    np.testing.assert_allclose(model.errors / y.var(0), [0.5, 0, 0], atol=0.1)
    assert (model.edges == (TRANSITION != 0)).all()
    assert model.score > autoregression_score(pieces_of(y), 4) + 5
