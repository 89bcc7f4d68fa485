"""Modification indices against likelihood ratios, and on tables with pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

import pyro_sparse as ps
from pyro_sparse.inference.table.residual_pairs import residual_correlations

pytestmark = pytest.mark.usefixtures("hurried_module")

LOADING = np.kron(np.eye(2), np.full((4, 1), 0.7))
IMPLIED = LOADING @ LOADING.T + 0.51 * np.eye(8)
NOISE_SD = np.full(8, np.sqrt(0.51))


def with_pair(r):
    cov = IMPLIED.copy()
    cov[0, 5] += 0.51 * r
    cov[5, 0] += 0.51 * r
    return cov


@pytest.mark.parametrize("r", [-0.15, 0.1])
def test_index_is_near_the_likelihood_ratio(r):
    """2 (log L with the covariance at its best - log L without), by scipy, of a table's own density."""
    x = np.random.default_rng(1000).multivariate_normal(np.zeros(8), with_pair(r), size=500)
    correlation, index = residual_correlations(x.T @ x / 500, IMPLIED, NOISE_SD, 500)

    def deviance(value):
        return -2 * multivariate_normal(np.zeros(8), with_pair(value)).logpdf(x).sum()

    best = minimize_scalar(deviance, bounds=(-0.9, 0.9), method="bounded")
    assert correlation[0, 5] == pytest.approx(best.x, abs=0.02)
    assert index[0, 5] == pytest.approx(deviance(0.0) - best.fun, rel=0.15, abs=0.5)
    np.testing.assert_allclose(index, index.T)
    assert not index.diagonal().any()


def test_index_of_a_model_that_holds_is_chi_square():
    rng = np.random.default_rng(1000)
    squares = []
    for _ in range(200):
        x = rng.multivariate_normal(np.zeros(8), IMPLIED, size=300)
        squares.append(residual_correlations(x.T @ x / 300, IMPLIED, NOISE_SD, 300)[1][0, 5])
    assert np.mean(squares) == pytest.approx(1, abs=0.35)  # standard error .1
    assert np.mean(np.array(squares) > 3.84) < 0.1


def fitted(cov, names=None, n=400):
    import pandas as pd

    x = np.random.default_rng(1000).multivariate_normal(np.zeros(8), cov, size=n)
    frame = pd.DataFrame(x, columns=[f"q{j}" for j in range(8)])
    model = ps.models.SparseDecoder(8, 2, decoder="linear")
    return ps.fit(model, frame, restarts=2, steps=300, seed=1000, progress=False)


@pytest.mark.parametrize("r", [0.5, -0.5])
def test_twins_are_named(r):
    fit = fitted(with_pair(r))
    top = fit.residual_pairs().iloc[0]
    assert {top.feature, top.other} == {"q0", "q5"}
    assert top.residual_correlation == pytest.approx(r, abs=0.15)
    (finding,) = [f for f in fit.findings if f.kind == "pairs"]
    assert "q0 and q5" in finding.message and not finding.is_doubt


def test_without_twins_nothing_is_said():
    fit = fitted(IMPLIED)
    assert len(fit.residual_pairs()) == 28
    assert not [f for f in fit.findings if f.kind == "pairs"]


def test_moments_of_straight_lines_are_exact():
    fit = fitted(IMPLIED)
    model, best = fit.model, fit.best
    loading = model.weights[best].detach().double().numpy()
    noise = model.likelihood.noise_sd()[best, 0].detach().double().numpy()
    want = loading @ model.factor_cov[best].double().numpy() @ loading.T + np.diag(noise**2)
    np.testing.assert_allclose(fit.implied_moments()[1], want, atol=2e-5)


def test_only_a_table_with_residuals_can_be_asked():
    x = (np.random.default_rng(0).normal(size=(60, 4)) > 0).astype(float)
    fit = ps.fit(
        ps.models.SparseDecoder(4, 1, likelihood="bernoulli"), x, restarts=1, steps=20, progress=False
    )
    with pytest.raises(ValueError, match="residual_pairs: wants a fit under the normal likelihood"):
        fit.residual_pairs()


def test_a_correlation_stays_one_where_next_to_nothing_is_left_unexplained():
    covariance = np.array([[1.0, 0.9], [0.9, 1.0]])
    correlation, _ = residual_correlations(covariance, np.eye(2), np.full(2, 1e-3), 100.0)
    assert correlation[0, 1] == 1.0
