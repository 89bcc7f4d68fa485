"""Filling in: the Gaussian conditional, residuals that factors do not explain, and what must not change."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import pyro_sparse as ps
from pyro_sparse.inference.table.impute import add_residuals, excess_covariance, implied_moments
from pyro_sparse.models import SparseDecoder

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")

G = 6
W = np.array([[1, 0], [0.8, 0], [-1, 0], [0, 1], [0, 0.9], [0.5, 0.5]])
IMPLIED = W @ W.T + 0.3 * np.eye(G)
EXCESS = np.zeros((G, G))
EXCESS[1, 4] = EXCESS[4, 1] = 0.22  # two features share something that is no factor


def rows(n, covariance, seed=0):
    return np.random.default_rng(seed).multivariate_normal(np.zeros(G), covariance, size=n)


def test_with_linear_factors_the_sum_is_the_gaussian_conditional():
    x = rows(40, IMPLIED + EXCESS)
    mask = np.random.default_rng(1).random(x.shape) < 0.7
    mean = np.arange(G) / 10.0
    expected, factors = x.copy(), x.copy()
    for i, seen in enumerate(mask):
        for covariance, out in ((IMPLIED + EXCESS, expected), (IMPLIED, factors)):
            a, b = np.ix_(~seen, seen), np.ix_(seen, seen)
            out[i, ~seen] = mean[~seen] + covariance[a] @ np.linalg.inv(covariance[b]) @ (x[i] - mean)[seen]
    found = add_residuals(factors, x, mask, mean, IMPLIED, EXCESS)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    np.testing.assert_array_equal(found[mask], x[mask])


def test_excess_is_found_and_noise_is_not():
    zero = np.zeros(G)
    real = excess_covariance(rows(3000, IMPLIED + EXCESS), None, zero, IMPLIED)
    assert real[1, 4] == pytest.approx(0.22, abs=0.05)
    nothing = excess_covariance(rows(60, IMPLIED, seed=4), None, zero, IMPLIED)
    sample = np.cov(rows(60, IMPLIED, seed=4).T, bias=True) - IMPLIED
    assert np.abs(nothing).max() < 0.35 * np.abs(sample).max()


def test_excess_of_pairs_seen_together():
    x = rows(4000, IMPLIED + EXCESS)
    mask = np.random.default_rng(2).random(x.shape) < 0.6
    found = excess_covariance(np.where(mask, x, 99.0), mask, np.zeros(G), IMPLIED)
    assert found[1, 4] == pytest.approx(0.22, abs=0.06)
    mask[:, 1] &= ~mask[:, 4]  # never together: nothing is known
    found = excess_covariance(np.where(mask, x, 99.0), mask, np.zeros(G), IMPLIED)
    assert found[1, 4] == pytest.approx(0, abs=0.05)


@pytest.fixture(scope="module")
def found():
    x = rows(800, IMPLIED + EXCESS)
    x[np.random.default_rng(3).random(x.shape) < 0.1] = np.nan
    frame = pd.DataFrame(10 + 3 * x, columns=list("abcdef"))
    model = SparseDecoder(G, 2, decoder="linear", encoder_hidden=8)
    fit = ps.fit(model, frame, restarts=1, n_factors_init=[2], steps=400, progress=False)
    return fit, frame


def test_implied_moments_are_those_of_the_linear_model(found):
    fit, _ = found
    mean, covariance = implied_moments(fit.model, num_draws=200_000)
    w = fit.model.weights[0].detach().double().numpy()
    cov = w @ fit.model.factor_cov[0].double().numpy() @ w.T
    noise = fit.model.likelihood.noise_sd()[0, 0].detach().double().numpy()
    np.testing.assert_allclose(covariance, cov + np.diag(noise**2), atol=0.02)
    np.testing.assert_allclose(mean, fit.model.decoder.intercept[0, 0].detach(), atol=1e-3)


def test_impute_keeps_what_was_seen_and_beats_the_factors_alone(found):
    fit, frame = found
    assert fit.excess_cov[1, 4] > 0.05
    x = 10 + 3 * rows(600, IMPLIED + EXCESS, seed=9)
    holes = x.copy()
    holes[::2, 1], holes[1::2, 4] = np.nan, np.nan
    filled = fit.impute(holes)
    seen = ~np.isnan(holes)
    np.testing.assert_array_equal(filled[seen], holes[seen])
    error = ((filled - x)[~seen] ** 2).mean()
    alone = ((fit.predict(holes) - x)[~seen] ** 2).mean()
    total = IMPLIED + EXCESS
    best = np.mean([9 / np.linalg.inv(total)[j, j] for j in (1, 4)])  # variance given all other features
    assert error < 0.95 * alone and error < 1.1 * best
    np.testing.assert_array_equal(fit.impute(x), x)  # nothing to fill in


def test_a_table_is_filled_in_as_it_was_given(found):
    fit, frame = found
    new = frame.head(5).set_axis([f"row {i}" for i in range(5)])
    new.iloc[2, 1] = np.nan
    turned = new[new.columns[::-1]]
    filled = fit.impute(turned)
    assert list(filled.columns) == list(turned.columns) and list(filled.index) == list(turned.index)
    pd.testing.assert_frame_equal(filled[new.columns], fit.impute(new))
    pd.testing.assert_frame_equal(filled.where(turned.notna()), turned, check_exact=True)
    np.testing.assert_array_equal(filled[new.columns], fit.impute(new.to_numpy()))
    named = SimpleNamespace(X=turned.to_numpy(), var_names=turned.columns, obs_names=turned.index)
    np.testing.assert_array_equal(fit.impute(named), filled)  # an AnnData


def test_a_loaded_fit_imputes_the_same(found, tmp_path):
    fit, frame = found
    fit.save(tmp_path / "a.fit")
    np.testing.assert_allclose(ps.load(tmp_path / "a.fit").impute(frame), fit.impute(frame), rtol=1e-6)


@pytest.mark.slow
def test_counts_are_filled_in_by_the_factors_alone():
    x = np.random.default_rng(0).poisson(3, (60, 4)).astype(float)
    x[3, 1] = np.nan
    fit = ps.fit(SparseDecoder(4, 1, likelihood="poisson"), x, restarts=1, steps=30, progress=False)
    assert fit.excess_cov is None
    assert fit.impute(x)[3, 1] == pytest.approx(fit.predict(x)[3, 1])
    assert (fit.impute(x)[0] == x[0]).all()


def test_the_likelihood_of_a_half_is_the_gaussian_one():
    """The share is chosen by slogdet + trace; over rows that is scipy's log-density up to a constant."""
    x = rows(50, IMPLIED)
    own = x.T @ x / 50
    score = -(np.linalg.slogdet(IMPLIED)[1] + np.trace(np.linalg.solve(IMPLIED, own)))
    dense = multivariate_normal(np.zeros(G), IMPLIED).logpdf(x).mean()
    assert dense == pytest.approx(0.5 * score - 0.5 * G * np.log(2 * np.pi))
