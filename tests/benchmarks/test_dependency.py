"""What the dependency benchmark holds fits against: posterior means by the density that made a table."""

from __future__ import annotations

import numpy as np

from benchmarks._posterior_mean import posterior_mean


def test_posterior_mean_of_straight_features_is_ridge_regression():
    rng = np.random.default_rng(0)
    loadings, noise = rng.standard_normal((3, 3)), 0.1
    z = rng.standard_normal((40, 3))
    x = z @ loadings.T + noise * rng.standard_normal((40, 3))
    found = posterior_mean(lambda z: z @ loadings.T, x, noise, 3)
    exact = np.linalg.solve(loadings.T @ loadings + noise**2 * np.eye(3), loadings.T @ x.T).T
    sd = np.sqrt(np.diag(np.linalg.inv(loadings.T @ loadings / noise**2 + np.eye(3))))
    assert np.sqrt(((found - exact) ** 2).mean(0)).max() < 0.25 * sd.max()
    assert np.abs(found - exact).max() < sd.max()


def test_posterior_mean_of_a_fold_is_between_its_sides():
    """x = |z1| says nothing of the sign of z1, x = z2 all of z2."""
    z = np.column_stack([np.linspace(-2, 2, 30), np.linspace(-1, 1, 30)])
    x = np.column_stack([np.abs(z[:, 0]), z[:, 1]])
    found = posterior_mean(lambda z: np.column_stack([np.abs(z[:, 0]), z[:, 1]]), x, 0.03, 2, 4000)
    assert np.abs(found[:, 0]).max() < 0.25  # the sides share 4,000 particles nearly evenly
    np.testing.assert_allclose(found[:, 1], x[:, 1], atol=0.02)
