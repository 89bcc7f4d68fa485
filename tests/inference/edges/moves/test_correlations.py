"""Correlations given factors: the moves keep the density that scipy integrates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from pyro_sparse.inference.edges.moves.correlations import moved_correlations
from pyro_sparse.priors import LKJ


@pytest.mark.parametrize("prior", [LKJ(1.0), LKJ((1.0, 40.0))])
def test_two_factors_have_the_density_of_the_integral(prior):
    rng, n, chains = np.random.default_rng(0), 12, 6000
    z = rng.standard_normal((n, 2)) @ np.linalg.cholesky(np.array([[1, 0.5], [0.5, 1]])).T
    whole = np.broadcast_to(z.T @ z, (chains, 2, 2))

    def density(r, power=0):
        cov = np.array([[1, r], [r, 1]])
        level = -0.5 * n * np.log(1 - r**2) - 0.5 * np.trace(np.linalg.solve(cov, z.T @ z))
        return r**power * np.exp(level + 10) * np.exp(prior.log_density(np.log(1 - r**2), 2))

    cov = np.tile(np.eye(2), (chains, 1, 1))
    for _ in range(60):
        cov = moved_correlations(cov, whole, n, np.array([[0, 1]]), prior, rng)
    total = integrate.quad(density, -1, 1)[0]
    for power in (1, 2):
        want = integrate.quad(density, -1, 1, args=(power,))[0] / total
        assert (cov[:, 0, 1] ** power).mean() == pytest.approx(want, abs=0.012)


@pytest.mark.parametrize("prior", [LKJ(1.0), LKJ(3.0), LKJ((1.0, 30.0))])
def test_three_factors_keep_the_prior_where_there_are_no_rows_to_speak(prior):
    """Z'Z of none: the density is the prior, as it draws itself."""
    rng, chains = np.random.default_rng(1), 4000
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    start = prior.draw(chains, 3, rng)
    cov = start
    for _ in range(20):
        cov = moved_correlations(cov, np.zeros((chains, 3, 3)), 0, pairs, prior, rng)
    assert (cov != start).any((1, 2)).mean() > 0.9 and (np.linalg.eigvalsh(cov) > 0).all()
    for i, j in pairs:
        assert (cov[:, i, j] ** 2).mean() == pytest.approx((start[:, i, j] ** 2).mean(), abs=0.015)
        np.testing.assert_array_equal(cov[:, i, j], cov[:, j, i])
    np.testing.assert_array_equal(np.diagonal(cov, axis1=1, axis2=2), 1.0)
