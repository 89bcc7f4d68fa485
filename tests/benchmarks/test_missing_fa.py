"""EM factor analysis: the likelihood, its maximum, and scikit-learn's answer where nothing is missing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

from benchmarks._missing_fa import MissingFactorAnalysis


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((9, 2))
    x = (
        rng.standard_normal((200, 2)) @ loadings.T
        + rng.standard_normal((200, 9)) * rng.uniform(0.5, 1, 9)
        + 3
    )
    holes = x.copy()
    holes[rng.random(x.shape) < 0.25] = np.nan
    holes[0] = np.nan
    return x, holes


def log_likelihood(model, x):
    """Row by row, from the marginal normal of the observed cells."""
    total = 0.0
    covariance = model.loadings @ model.loadings.T + np.diag(model.noise)
    for row in x:
        seen = np.flatnonzero(~np.isnan(row))
        if len(seen):
            total += multivariate_normal.logpdf(row[seen], model.mean[seen], covariance[np.ix_(seen, seen)])
    return total / len(x)


def test_likelihood_is_right_never_falls_and_ends_at_a_maximum(table):
    holes = table[1]
    model = MissingFactorAnalysis(2, tolerance=1e-12).fit(holes)
    assert (np.diff(model.log_likelihood) > -1e-10).all()
    assert model.log_likelihood[-1] == pytest.approx(log_likelihood(model, holes), abs=1e-8)

    def at(parameters):
        model.loadings = parameters[:18].reshape(9, 2)
        model.mean, model.noise = parameters[18:27], parameters[27:]
        return log_likelihood(model, holes)

    best = np.concatenate([model.loadings.ravel(), model.mean, model.noise])
    assert np.abs(approx_fprime(best, at, 1e-6)).max() < 1e-4


def test_without_holes_it_is_scikit_learns(table):
    x = table[0]
    ours, theirs = (
        MissingFactorAnalysis(2, tolerance=1e-10).fit(x),
        FactorAnalysis(2, tol=1e-10, max_iter=10_000).fit(x),
    )
    assert ours.log_likelihood[-1] == pytest.approx(theirs.score(x), abs=1e-6)
    np.testing.assert_allclose(
        ours.loadings @ ours.loadings.T + np.diag(ours.noise), theirs.get_covariance(), atol=2e-3
    )


def test_predicts_holes_by_the_conditional_normal(table):
    x, holes = table
    model = MissingFactorAnalysis(2).fit(holes)
    covariance = model.loadings @ model.loadings.T + np.diag(model.noise)
    guess = model.predict(holes)
    row = 5
    out, seen = np.flatnonzero(np.isnan(holes[row])), np.flatnonzero(~np.isnan(holes[row]))
    expected = model.mean[out] + covariance[np.ix_(out, seen)] @ np.linalg.solve(
        covariance[np.ix_(seen, seen)], holes[row, seen] - model.mean[seen]
    )
    np.testing.assert_allclose(guess[row, out], expected)
    np.testing.assert_allclose(guess[0], model.mean)  # an empty row
    hidden = np.isnan(holes)
    assert ((guess - x)[hidden] ** 2).mean() < 0.6 * ((model.mean - x)[hidden] ** 2).mean()
