"""Data-driven starts against scikit-learn, simulation and known factors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

from pyro_sparse.datasets import sim1
from pyro_sparse.inference.registry import kind_of
from pyro_sparse.inference.table.start import cap_grid, factor_analysis, find_start, noise_edge
from pyro_sparse.metrics import mcc
from pyro_sparse.models import SparseDecoder


def z_score(x):
    return (x - np.nanmean(x, 0)) / np.nanstd(x, 0)


def linear_table(n=400, g=8, k=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)) @ rng.normal(size=(k, g)) + rng.normal(size=(n, g)) * rng.uniform(0.3, 1.2, g)
    return z_score(x)


def test_factor_analysis_is_as_likely_as_scikit_learns():
    x = linear_table()
    loadings, unique = factor_analysis(np.cov(x.T, bias=True), 2, max_iter=3000, floor=1e-6)
    reference = FactorAnalysis(2, tol=1e-8, max_iter=5000, svd_method="lapack").fit(x)
    implied = loadings @ loadings.T + np.diag(unique)
    ours = multivariate_normal(np.zeros(8), implied).logpdf(x).mean()
    assert ours == pytest.approx(reference.score(x), abs=1e-3)
    np.testing.assert_allclose(implied, reference.get_covariance(), atol=0.02)


def test_factor_analysis_floors_a_heywood_case():
    x = linear_table()
    x[:, 0] = x[:, 1]
    _, unique = factor_analysis(np.corrcoef(x.T), 2, floor=0.05)
    assert unique.min() == pytest.approx(0.05)


@pytest.mark.parametrize(("n", "g"), [(200, 40), (1000, 50), (120, 120)])
def test_noise_edge_bounds_the_eigenvalues_of_noise(n, g):
    rng = np.random.default_rng(0)
    top = np.mean([np.linalg.eigvalsh(np.corrcoef(rng.normal(size=(n, g)).T))[-1] for _ in range(5)])
    assert top == pytest.approx(noise_edge(n, g), rel=0.06)


@pytest.mark.parametrize(
    ("k", "restarts", "grid"),
    [
        (5, 8, [5, 4, 3, 2, 1, 5, 4, 3]),
        (20, 4, [20, 15, 10, 5]),
        (1, 3, [1, 1, 1]),
        (3, 1, [3]),
        (5, 3, [5, 4, 2]),
    ],
)
def test_cap_grid(k, restarts, grid):
    assert cap_grid(k, restarts).tolist() == grid


def correlations(scores, z):
    k = z.shape[1]
    return np.abs(np.corrcoef(scores[:, :k].T, z.T)[:k, k:])


@pytest.mark.parametrize(
    ("rho", "least", "kind"), [(0.0, 0.95, "oblique"), (0.8, 0.85, "oblique"), (0.0, 0.95, "principal")]
)
def test_find_start_on_the_papers_simulation(rho, least, kind):
    worst = []
    for seed in (2001, 2002):
        data = sim1(1000, rho=rho, seed=seed)
        start = find_start(z_score(data.x), None, 2, kind)
        table = correlations(start.scores, data.z)
        worst.append(max(min(table[0, 0], table[1, 1]), min(table[0, 1], table[1, 0])))
    assert min(worst) > least


def test_find_start_with_missing_cells():
    data = sim1(1000, seed=2001)
    x = data.x.copy()
    mask = np.random.default_rng(0).random(x.shape) > 0.15
    x[~mask] = np.nan
    start = find_start(np.nan_to_num(z_score(x)), mask, 2)
    table = correlations(start.scores, data.z)
    assert max(min(table[0, 0], table[1, 1]), min(table[0, 1], table[1, 0])) > 0.85


@pytest.mark.parametrize("kind", ["oblique", "principal"])
def test_start_says_what_it_means(kind):
    x = z_score(sim1(500, seed=2001).x)
    start = find_start(x, None, 4, kind)
    assert start.scores.shape == (500, 4) and start.loadings.shape == start.maps.shape == (7, 4)
    np.testing.assert_allclose(start.scores, x @ start.maps, atol=1e-10)
    used = (start.scores != 0).any(0)
    np.testing.assert_allclose(start.scores[:, used].std(0), 1.0)
    assert used.sum() >= 2 and (start.loadings[:, ~used] == 0).all()
    assert (
        start.residual_sd.shape == (7,) and (0 < start.residual_sd).all() and (start.residual_sd < 1.01).all()
    )
    again = find_start(x, None, 4, kind)
    np.testing.assert_array_equal(start.scores, again.scores)


def test_a_quadratic_residual_is_that_of_a_regression():
    x = z_score(sim1(500, seed=2001).x)
    start = find_start(x, None, 2)
    z1, z2 = start.scores.T
    terms = np.column_stack([np.ones(500), z1, z2, z1**2, z1 * z2, z2**2])
    residual = x - terms @ np.linalg.lstsq(terms, x, rcond=None)[0]
    np.testing.assert_allclose(
        start.residual_sd**2, np.maximum((residual**2).mean(0), 0.02), rtol=0.05, atol=2e-3
    )


def test_one_strong_factor_and_wide_tables():
    rng = np.random.default_rng(0)
    z = rng.normal(size=100)
    x = z_score(z[:, None] * rng.uniform(0.5, 1, 60) + rng.normal(size=(100, 60)))
    start = find_start(x, None, 1)
    assert abs(np.corrcoef(start.scores[:, 0], z)[0, 1]) > 0.97


def test_pure_noise_gives_a_start_too():
    start = find_start(z_score(np.random.default_rng(0).normal(size=(60, 5))), None, 3)
    assert np.isfinite(start.scores).all() and start.scores.shape == (60, 3)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_a_curve_of_the_factors_is_not_taken_for_a_factor(rho):
    data = sim1(rho=rho, seed=1000)  # features 3 and 7 share a direction of their own, a quadratic
    x, z = data.part("train")
    start = find_start((x - x.mean(0)) / x.std(0), None, 5, "oblique")
    used = (start.scores != 0).any(0)
    assert used.sum() == 2
    assert mcc(z, start.scores[:, used], "spearman").value > 0.95


def test_noise_stays_unexplained_however_many_terms_a_quadratic_has():
    """231 terms fit a quarter of 900 rows of noise; counted with their degrees of freedom they fit none."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 20)) @ rng.normal(size=(20, 60)) / 4 + 0.3 * rng.normal(size=(900, 60))
    x = z_score(np.hstack([x, rng.normal(size=(900, 30))]))
    start = find_start(x, None, 20)
    assert (start.scores != 0).any(0).all()
    assert np.mean(start.residual_sd[60:] ** 2) > 0.95 and np.mean(start.residual_sd[:60] ** 2) < 0.3


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/getting_started.md"])
def test_examples_have_a_second_restart_with_all_factors(page):
    """Otherwise "no other restart had as many factors" where all are in use, and nothing is compared."""
    text = (Path(__file__).resolve().parents[3] / page).read_text()
    n_factors = int(re.search(r"SparseDecoder\((?:.|\n)*?n_factors=(\d+)", text)[1])
    first_fit = re.search(r"ps\.fit\((?:.|\n)*?\)", text)[0]
    given = re.search(r"restarts=(\d+)", first_fit)
    restarts = kind_of(SparseDecoder(9, n_factors)).restarts if given is None else int(given[1])
    assert (cap_grid(n_factors, restarts) == n_factors).sum() >= 2
