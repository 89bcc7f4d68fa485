"""Hamiltonian steps between axes: what stays as it is, and that the prior does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.moves import axes
from pyro_sparse.inference.edges.moves.axes import moved_axes
from pyro_sparse.priors import LKJ

SLAB = 0.8


def correlations(n, k, rng):
    """Flat over correlation matrices, by rejection."""
    tried = np.tile(np.eye(k), (8 * n, 1, 1))
    for i, j in zip(*np.triu_indices(k, 1), strict=True):
        tried[:, i, j] = tried[:, j, i] = rng.uniform(-1, 1, len(tried))
    return tried[np.linalg.eigvalsh(tried)[:, 0] > 0][:n]


def test_the_covariance_of_what_is_predicted_stays():
    rng = np.random.default_rng(0)
    weight, cov = rng.normal(size=(50, 6, 3)), correlations(50, 3, rng)
    new, other, by = moved_axes(
        weight,
        cov,
        np.zeros((50, 1, 3)),
        np.zeros((6, 3), bool),
        SpikeSlab(False, np.array(0.2)),
        SLAB,
        LKJ(1.0),
        rng,
    )
    assert (np.abs(other - cov).max((1, 2)) > 0.01).mean() > 0.5
    np.testing.assert_allclose(np.diagonal(other, axis1=1, axis2=2), 1.0)
    was, now = (w @ c @ w.swapaxes(1, 2) for w, c in ((weight, cov), (new, other)))
    np.testing.assert_allclose(now, was, atol=1e-9)
    np.testing.assert_allclose(new @ by, weight, atol=1e-9)  # and what factors, mapped, predict
    np.testing.assert_allclose(by @ cov @ by.swapaxes(1, 2), other, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("laplace", "ratio", "prior"),
    [(False, 0.2, LKJ(1.0)), (True, 0.3, LKJ(1.0)), (False, 0.3, LKJ((1.0, 50.0)))],
)
def test_loadings_and_correlations_of_the_prior_are_left_alone(laplace, ratio, prior):
    """Without data the prior is the density; one edge has to be there, rates differ between factors."""
    rng, n, k, g = np.random.default_rng(1), 3000, 3, 4
    cov = correlations(n, k, rng) if prior == LKJ(1.0) else prior.draw(n, k, rng)
    must = np.zeros((g, k), bool)
    must[0, 0] = True
    rate = np.array([0.4, 0.6, 0.2])
    edge = (rng.random((n, g, k)) < rate) | must
    unit = rng.laplace(size=edge.shape) if laplace else rng.standard_normal(edge.shape)
    weight = SLAB * unit * np.where(edge, 1.0, ratio)
    log_odds = np.broadcast_to(np.log(rate / (1 - rate)), (n, 1, k))
    density, new, other = SpikeSlab(laplace, np.array(ratio)), weight, cov
    for _ in range(40):
        new, other, _ = moved_axes(new, other, log_odds, must, density, SLAB, prior, rng)
    assert np.corrcoef(cov[:, 1, 2], other[:, 1, 2])[0, 1] < (0.5 if prior == LKJ(1.0) else 0.9)
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert stats.ks_2samp(np.abs(cov[:, i, j]), np.abs(other[:, i, j])).pvalue > 1e-3
    for j, factor in [(0, 0), (1, 0), (2, 1), (3, 2)]:
        before, after = np.abs(weight[:, j, factor]), np.abs(new[:, j, factor])
        assert stats.ks_2samp(before, after).pvalue > 1e-3


def test_a_step_too_long_leaves_the_chain_where_it_was(monkeypatch):
    monkeypatch.setattr(axes, "_LENGTH", 1e6)
    rng = np.random.default_rng(0)
    weight, cov = np.zeros((3, 5, 2)), np.tile(np.eye(2), (3, 1, 1))
    weight[:, :3, 0] = weight[:, 3:, 1] = 5.0
    new, other, by = moved_axes(
        weight,
        cov,
        np.zeros((3, 1, 2)),
        np.zeros((5, 2), bool),
        SpikeSlab(False, np.array(1e-3)),
        1.0,
        LKJ(1.0),
        rng,
    )
    np.testing.assert_array_equal(new, weight)
    np.testing.assert_array_equal(other, cov)
    np.testing.assert_array_equal(by, np.tile(np.eye(2), (3, 1, 1)))
