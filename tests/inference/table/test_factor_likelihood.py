"""The maximum of a graph: against scipy's density, numerical slopes, scikit-learn, and refitted graphs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

from pyro_sparse.inference.table import factor_likelihood
from pyro_sparse.inference.table._compiled_factor_likelihood import AVAILABLE
from pyro_sparse.inference.table.factor_likelihood import (
    FactorFit,
    Moments,
    edge_tests,
    log_likelihood,
    maximum_likelihood,
    observed_log_likelihood,
)


def rows(seed=0, n=400, correlation=0.4):
    """Two correlated factors of four features, one feature of both."""
    rng = np.random.default_rng(seed)
    loadings = np.zeros((8, 2))
    loadings[:4, 0] = loadings[4:, 1] = [0.8, 0.7, 0.6, 0.5]
    loadings[3, 1] = 0.3
    between = np.array([[1, correlation], [correlation, 1]])
    z = rng.multivariate_normal([0, 0], between, size=n)
    return z @ loadings.T + 0.6 * rng.normal(size=(n, 8)), loadings


def moments_of(x):
    return Moments(np.cov(x.T, bias=True), len(x))


def start(edge, correlated=True):
    k = edge.shape[1]
    pairs = np.full((k, k), correlated) & ~np.eye(k, dtype=bool)
    return FactorFit(edge, pairs, 0.5 * edge, np.eye(k), np.full(len(edge), 0.5), -np.inf)


def test_the_likelihood_is_that_of_the_rows():
    x, loadings = rows()
    between, noise = np.array([[1, 0.3], [0.3, 1]]), np.linspace(0.3, 0.6, 8)
    normal = multivariate_normal(x.mean(0), loadings @ between @ loadings.T + np.diag(noise))
    assert log_likelihood(moments_of(x), loadings, between, noise) == pytest.approx(normal.logpdf(x).sum())


def test_no_slope_is_left_and_zeros_stay():
    x, loadings = rows()
    moments, edge = moments_of(x), loadings != 0
    fit = maximum_likelihood(moments, start(edge), tolerance=1e-9)
    assert (fit.loadings[~edge] == 0).all() and np.diag(fit.correlations).tolist() == [1, 1]
    level = log_likelihood(moments, fit.loadings, fit.correlations, fit.noise)
    assert fit.level == pytest.approx(level)
    for j, k in [(0, 0), (3, 1), (7, 1)]:
        for step in (-1e-3, 1e-3):
            moved = fit.loadings.copy()
            moved[j, k] += step
            assert log_likelihood(moments, moved, fit.correlations, fit.noise) < level
    for step in (-1e-3, 1e-3):
        moved = fit.correlations + step * (1 - np.eye(2))
        assert log_likelihood(moments, fit.loadings, moved, fit.noise) < level
        assert log_likelihood(moments, fit.loadings, fit.correlations, fit.noise * (1 + step)) < level


def test_one_factor_is_that_of_scikit_learn():
    x, _ = rows(correlation=0.8)
    peer = FactorAnalysis(1, svd_method="lapack", tol=1e-8, max_iter=5000).fit(x)
    fit = maximum_likelihood(moments_of(x), start(np.ones((8, 1), dtype=bool)), tolerance=1e-9)
    assert fit.level == pytest.approx(len(x) * peer.score(x), abs=1e-3)
    np.testing.assert_allclose(np.abs(fit.loadings), np.abs(peer.components_.T), atol=1e-3)


def test_uncorrelated_factors_stay_so_and_cost_likelihood():
    x, loadings = rows()
    apart = maximum_likelihood(moments_of(x), start(loadings != 0, correlated=False))
    together = maximum_likelihood(moments_of(x), start(loadings != 0))
    assert apart.correlations[0, 1] == 0 and together.correlations[0, 1] > 0.2
    assert together.level > apart.level + 5


def test_tests_of_edges_say_what_new_fits_say():
    """Score and Wald tests are second-order: within a fifth of the likelihood ratio of moderate effects."""
    x, loadings = rows(n=1000)
    moments, edge = moments_of(x), loadings != 0
    less = edge.copy()
    less[3, 1] = False
    full, reduced = (maximum_likelihood(moments, start(e), tolerance=1e-9) for e in (edge, less))
    ratio = full.level - reduced.level
    assert ratio > 5
    tests = edge_tests(moments, reduced)
    assert tests.gain[3, 1] == pytest.approx(ratio, rel=0.2)
    assert tests.gain.argmax() == 7  # entry (3, 1)
    assert (tests.gain[less] == 0).all() and np.isinf(tests.loss[~less]).all()
    assert edge_tests(moments, full).loss[3, 1] == pytest.approx(ratio, rel=0.2)
    uncorrelated = maximum_likelihood(moments, start(edge, correlated=False), tolerance=1e-9)
    of_pair = full.level - uncorrelated.level
    assert edge_tests(moments, full).pair_loss[0, 1] == pytest.approx(of_pair, rel=0.3)
    assert edge_tests(moments, uncorrelated).pair_gain[0, 1] == pytest.approx(of_pair, rel=0.3)


def test_correlations_that_are_not_proper_are_drawn_in():
    x, loadings = rows()
    wild = start(loadings != 0)._replace(correlations=np.array([[1, 1.2], [1.2, 1]]))
    fit = maximum_likelihood(moments_of(x), wild)
    assert np.isfinite(fit.level) and np.linalg.eigvalsh(fit.correlations)[0] > 0
    assert fit.level == pytest.approx(maximum_likelihood(moments_of(x), start(loadings != 0)).level, abs=0.1)


@pytest.mark.parametrize("missing", [False, True])
def test_likelihood_of_seen_cells_is_that_of_normal_distributions(missing):
    rng = np.random.default_rng(3)
    loadings, noise = rng.normal(size=(6, 2)), rng.uniform(0.5, 1.5, 6)
    between = np.array([[1.0, 0.4], [0.4, 1.0]])
    x = rng.normal(size=(40, 6))
    mask = rng.random(x.shape) < 0.7 if missing else np.ones(x.shape, bool)
    fit = FactorFit(loadings != 0, np.ones((2, 2), bool), loadings, between, noise, 0.0)
    whole = loadings @ between @ loadings.T + np.diag(noise)
    want = sum(
        multivariate_normal(np.zeros(at.sum()), whole[np.ix_(at, at)]).logpdf(row[at])
        + 0.5 * at.sum() * np.log(2 * np.pi)
        for row, at in zip(x, mask, strict=True)
        if at.any()
    )
    assert observed_log_likelihood(np.where(mask, x, 0.0), mask, fit) == pytest.approx(want)


@pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")
@pytest.mark.parametrize("correlated", [True, False])
def test_compiled_derivatives_are_those_of_numpy(correlated, monkeypatch):
    x, loadings = rows()
    moments = moments_of(x)
    begun = start(loadings != 0, correlated)
    compiled = maximum_likelihood(moments, begun, steps=3), edge_tests(moments, begun)
    monkeypatch.setattr(factor_likelihood, "AVAILABLE", False)
    plain = maximum_likelihood(moments, begun, steps=3), edge_tests(moments, begun)
    np.testing.assert_allclose(compiled[0].loadings, plain[0].loadings, rtol=0, atol=1e-9)
    np.testing.assert_allclose(compiled[0].correlations, plain[0].correlations, rtol=0, atol=1e-9)
    for ours, theirs in zip(compiled[1], plain[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
