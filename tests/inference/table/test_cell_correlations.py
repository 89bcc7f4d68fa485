"""Eigenvalues of answers: against those of loadings made smaller, and rare answers that go with rare ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import norm

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference.table.cell_correlations import cell_correlation, cell_eigenvalues
from pyro_sparse.inference.table.linear_maximum import row_moments

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")

N, G, LOADING = 4000, 12, 0.8
RATES = np.linspace(0.05, 0.95, G)


def responses(rng):
    return LOADING * rng.normal(size=(N, 1)) + np.sqrt(1 - LOADING**2) * rng.normal(size=(N, G))


def numbers(x, likelihood):
    model = ps.models.SparseDecoder(n_factors=2, decoder="linear", likelihood=likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(model, x, restarts=1, steps=5, seed=0, progress=False)
    return fit, cell_eigenvalues(fit, *row_moments(fit.table, np.arange(len(x))))


def test_rare_answers_make_no_factor_of_their_own():
    x = (responses(np.random.default_rng(1000)) < norm.ppf(RATES)).astype(float)
    fit, answer = numbers(x, "bernoulli")
    plain = np.linalg.eigvalsh(np.corrcoef(x.T))[::-1]
    assert plain[1] > answer.noise[1] + 0.05 and answer.above[1] < 0.2
    k = norm.pdf(norm.ppf(RATES)) / np.sqrt(RATES * (1 - RATES))
    smaller = LOADING**2 * np.outer(k, k)
    np.fill_diagonal(smaller, 1.0)
    np.testing.assert_allclose(answer.value[:2], np.linalg.eigvalsh(smaller)[::-1][:2], atol=0.15)
    np.testing.assert_allclose(fit.number_of_factors()["eigenvalue"][1:3], answer.value[:2])


@pytest.mark.parametrize("kinds", ["bernoulli", {(0, 1, 2): "normal", tuple(range(3, G)): "bernoulli"}])
def test_only_answers_are_changed_and_missing_ones_left_out(kinds):
    rng = np.random.default_rng(1000)
    x = responses(rng)
    x[:, 3:] = x[:, 3:] < norm.ppf(RATES[3:])
    if kinds == "bernoulli":
        x = x[:, 3:]
    x[rng.random(x.shape) < 0.05] = np.nan
    _, answer = numbers(x, kinds)
    assert answer.above[0] > 0.99 and answer.above[1] < 0.5


def test_of_numbers_they_are_the_cells_own():
    x = responses(np.random.default_rng(1000))[:200]
    _, answer = numbers(x, "student_t")
    np.testing.assert_allclose(answer.value, np.linalg.eigvalsh(np.corrcoef(x.T))[::-1], atol=1e-5)


def test_correlations_of_some_rows_cut_at_their_medians_are_those_of_arcsine():
    """Of median cuts r = (2 / pi) arcsin(rho), and smaller loadings explain (2 / pi) rho."""
    rng = np.random.default_rng(1000)
    y = responses(rng)[:400]
    x = (y > np.median(y[:300], 0)).astype(float)
    model = ps.models.SparseDecoder(G, 1, decoder="linear", likelihood="bernoulli")
    model.setup(1, len(x))
    rows = np.arange(300)
    table = as_table(x, likelihood=model.likelihood)
    r = np.corrcoef(x[rows].T)
    assert np.abs(r).min() > 2 / np.sqrt(len(rows))  # none of them is chance
    wanted = np.where(np.eye(G) > 0, 1.0, 2 / np.pi * np.sin(np.pi / 2 * r))
    correlation = cell_correlation(model, table, rows, row_moments(table, rows)[1])
    np.testing.assert_allclose(correlation, wanted, atol=1e-3)
