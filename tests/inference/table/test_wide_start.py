"""The start of a wide table is the start of the same table by feature-by-feature matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from pyro_sparse.data.read import as_table
from pyro_sparse.data.stores import open_rows
from pyro_sparse.inference.table import wide_start
from pyro_sparse.inference.table.start import find_start
from pyro_sparse.inference.table.wide_start import find_wide_start, start_of
from pyro_sparse.likelihoods import Poisson


def linear_table(n=300, g=40, k=3, seed=1000):
    """Each feature follows one factor; z-scored."""
    rng = np.random.default_rng(seed)
    z, loadings = rng.normal(size=(n, k)), np.zeros((g, k))
    loadings[np.arange(g), np.arange(g) % k] = rng.uniform(0.8, 1.5, g)
    x = z @ loadings.T + rng.normal(size=(n, g))
    return (x - x.mean(0)) / x.std(0), z


def correlations(scores, z):
    """Absolute ones of every guessed factor (those that are there) with every true one."""
    scores = scores[:, scores.std(0) > 0]
    return np.abs(np.corrcoef(scores.T, z.T)[: scores.shape[1], scores.shape[1] :])


def by_factor(start, z):
    """Scores in the order and sign of the true factors, and the loadings so turned."""
    cross = np.corrcoef(start.scores.T, z.T)[: z.shape[1], z.shape[1] :]
    own = np.abs(cross).argmax(0)
    sign = np.sign(cross[own, np.arange(z.shape[1])])
    return start.scores[:, own] * sign, start.loadings[:, own] * sign


@pytest.mark.parametrize("kind", ["principal", "oblique"])
def test_it_is_the_usual_start(kind):
    x, z = linear_table()
    usual, wide = find_start(x, None, 3, kind), find_wide_start(x.copy(), 3, kind)
    for one, two in zip(by_factor(usual, z), by_factor(wide, z), strict=True):
        np.testing.assert_allclose(one, two, atol=0.03)
    np.testing.assert_allclose(wide.scores, x @ wide.maps, atol=1e-6)
    np.testing.assert_allclose(usual.residual_sd, wide.residual_sd, atol=0.01)


@pytest.mark.parametrize("kind", ["principal", "oblique"])
def test_more_features_than_rows(kind):
    x, z = linear_table(200, 1500, 3)
    start = find_wide_start(x.astype(np.float32), 4, kind)
    assert correlations(start.scores, z).max(0).min() > 0.97
    assert start.maps.shape == start.loadings.shape == (1500, 4)


def test_one_large_cell_of_a_rare_feature_is_no_factor():
    x, z = linear_table(300, 60, 2)
    rare = np.zeros((300, 300))
    rare[np.arange(300), np.arange(300)] = np.sqrt(300 * 50)  # of rows that are more than these
    start = find_wide_start(np.column_stack([x, rare]), 2, "principal")
    assert correlations(start.scores, z).max(0).min() > 0.97


@pytest.mark.parametrize("limit", [10, 2000])
def test_a_sample_of_the_rows_is_enough(limit, monkeypatch):
    rng = np.random.default_rng(1000)
    z = rng.normal(size=(2000, 2))
    rate = np.exp(1 + z @ np.repeat(np.eye(2), 10, 0).T * 0.7)
    rate = np.column_stack([rate, np.full((2000, 20), 40.0)])  # so that a row's total says nothing of z
    counts = rng.poisson(rate).astype(float)
    large = as_table(open_rows(sp.csr_matrix(counts)), likelihood=Poisson(size_factors=False))
    monkeypatch.setattr(wide_start, "WIDE", limit)
    monkeypatch.setattr(wide_start, "SAMPLE_CELLS", 600 * 40)
    start = start_of(large, np.arange(2000), 2, "principal")
    assert start.scores.shape == (600, 2)
    view = (np.log1p(counts) - np.log1p(counts).mean(0)) / np.log1p(counts).std(0)
    assert correlations(view @ start.maps, z).max(0).min() > 0.9
