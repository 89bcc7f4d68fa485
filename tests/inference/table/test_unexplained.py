"""Too few factors are told by what they leave unexplained; the right number is not told anything."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.inference.table.unexplained import excess_eigenvalue


def implied(n_factors, p=12):
    loading = 0.8 * np.kron(np.eye(n_factors), np.ones((p // n_factors, 1)))
    return loading @ loading.T + 0.36 * np.eye(p)


@pytest.mark.parametrize("share_seen", [1.0, 0.8])
def test_noise_stays_below_the_edge_and_a_missing_factor_does_not(share_seen):
    """Twenty tables of the model itself, and the covariance of a model that lacks the third factor."""
    short = implied(3).copy()
    short[8:, 8:] = np.eye(4)
    above = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.multivariate_normal(np.zeros(12), implied(3), size=400)
        mask = None if share_seen == 1 else rng.random(x.shape) < share_seen
        ratio, _ = excess_eigenvalue(x, mask, np.zeros(12), implied(3))
        above.append(ratio)
        ratio, direction = excess_eigenvalue(x, mask, np.zeros(12), short)
        assert ratio > 1.5 and (direction[8:] ** 2).sum() > 0.9
    assert max(above) < 1.2


def test_the_edge_is_that_of_marchenko_and_pastur():
    """Against the largest eigenvalue by scikit-learn's sample covariance of whitened rows."""
    from sklearn.covariance import empirical_covariance

    x = np.random.default_rng(0).normal(size=(300, 30))
    ratio, _ = excess_eigenvalue(x, None, np.zeros(30), np.eye(30))
    top = np.linalg.eigvalsh(empirical_covariance(x, assume_centered=True))[-1]
    assert ratio == pytest.approx(top / (1 + np.sqrt(0.1)) ** 2)


@pytest.mark.slow
def test_a_larger_number_is_advised_only_where_it_would_explain_more():
    rng = np.random.default_rng(1000)
    x = rng.multivariate_normal(np.zeros(12), implied(3), size=300)

    def said(k):
        model = ps.models.SparseDecoder(12, k, decoder="linear")
        return " ".join(ps.fit(model, x, restarts=2, steps=200, seed=1000, progress=False).warnings)

    assert "all 2 factors are in use" in said(2) and "try a larger n_factors" in said(2)
    assert "n_factors" not in said(3)
