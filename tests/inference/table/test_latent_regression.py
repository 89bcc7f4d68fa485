"""The regression of factors nobody has seen: conjugate posteriors, quadrature, and the test's own null."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import kstest, norm

from pyro_sparse.inference.table.latent_regression import Regression, direct_effects, regressed


def known(z):
    """Rows whose factors are known: nothing to draw."""
    return lambda state, mean, precision, rng: (z, np.zeros((len(z), 1)))


def standardised(rng, n, p):
    root = np.linalg.qr(rng.normal(size=(n, p)))[0]
    root = root - root.mean(0)
    return np.sqrt(n) * np.linalg.qr(root)[0]


def test_of_known_factors_the_posterior_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    n, d = 200, standardised(rng, 200, 2)
    cov = np.array([[1.0, 0.5], [0.5, 0.8]])
    z = d @ np.array([[0.5, 0.0], [-0.2, 0.3]]) + rng.normal(size=(n, 2)) @ np.linalg.cholesky(cov).T
    draws, _ = regressed(Regression(d), [known(z)] * 1500, np.zeros((n, 2)), rng)
    squares = np.linalg.lstsq(d, z, rcond=None)[0]
    sd = np.sqrt(np.var(z - d @ squares, axis=0) / n)
    np.testing.assert_allclose(draws[100:].mean(0), squares, atol=0.012)
    np.testing.assert_allclose(draws[100:].std(0), np.broadcast_to(sd, (2, 2)), rtol=0.12)


def test_means_of_small_groups_are_drawn_towards_each_other_as_the_variance_ratio_says():
    rng = np.random.default_rng(1)
    n_groups, each = 60, 4
    group = np.repeat(np.arange(n_groups), each)
    effect = rng.normal(0, 0.8, n_groups)
    z = (effect[group] + rng.normal(size=len(group)))[:, None]
    rows = np.eye(n_groups)[group] - 1 / n_groups
    basis = np.linalg.svd(rows, full_matrices=False)[0][:, : n_groups - 1] * np.sqrt(len(group))
    contrasts = np.stack([basis[group == g][0] for g in range(n_groups)])
    design = Regression(np.zeros((len(group), 0)), [(basis, contrasts)])
    draws, _ = regressed(design, [known(z)] * 600, np.zeros_like(z), rng)
    means = np.array([z[group == g].mean() for g in range(n_groups)])
    means -= means.mean()
    got = (contrasts @ draws[100:].mean(0))[:, 0]
    shrunk = np.polyfit(means, got, 1)[0]
    between = means.var() - 1 / each
    assert shrunk == pytest.approx(between / (between + 1 / each), abs=0.05)
    assert np.corrcoef(means, got)[0, 1] > 0.99


def test_a_slope_behind_noisy_rows_is_not_pulled_towards_0():
    rng = np.random.default_rng(2)
    n, noise, d = 2000, 1.0, standardised(rng, 2000, 1)
    z = 0.5 * d + np.sqrt(0.75) * rng.normal(size=(n, 1))
    seen = z + np.sqrt(noise) * rng.normal(size=(n, 1))

    def rows(state, mean, precision, rng):
        spread = 1 / (1 / noise + precision[0, 0])
        new = spread * (seen / noise + precision[0, 0] * mean) + np.sqrt(spread) * rng.normal(size=(n, 1))
        return new, (seen - new) / noise

    draws, _ = regressed(Regression(d), [rows] * 600, np.zeros((n, 1)), rng)
    slope = float((d * seen).mean())  # regression of an unbiased measurement, by hand
    assert draws[100:].mean() == pytest.approx(slope, abs=0.01)
    assert draws[100:].std() == pytest.approx(np.sqrt((0.75 + noise) / n), rel=0.2)


def test_p_values_of_direct_effects_are_uniform_where_there_is_none():
    rng = np.random.default_rng(3)
    p_values = [_tested(rng, 0.0)[0] for _ in range(300)]
    assert kstest(p_values, "uniform").pvalue > 0.01
    assert np.mean(np.array(p_values) < 0.01) < 0.04


def test_a_direct_effect_is_noticed_and_its_feature_named():
    rng = np.random.default_rng(4)
    tested = [_tested(rng, 0.4) for _ in range(20)]
    assert max(p for p, _ in tested) < 0.01
    assert all(z_score.argmax() == 2 for _, z_score in tested)


def _tested(rng, direct):
    n, weight = 300, np.zeros((8, 2))
    weight[:4, 0] = weight[4:, 1] = 0.7
    d = standardised(rng, n, 1)
    z = d * 0.4 + rng.normal(size=(n, 2))
    x = z @ weight.T + 0.7 * rng.normal(size=(n, 8))
    x[:, 2] += direct * d[:, 0]
    precision = np.linalg.inv(weight @ weight.T + 0.49 * np.eye(8))
    scaled = precision @ weight
    slope = np.linalg.solve(weight.T @ scaled, scaled.T @ (x.T @ d) / n)  # generalised least squares
    return direct_effects((x - d @ (weight @ slope).T) @ precision, d, weight)


def bernoulli_rows(x, weight):
    import torch

    import pyro_sparse as ps
    from pyro_sparse.data.read import Batch
    from pyro_sparse.inference.table.factor_rows import _ExpandedRows

    class Restart:
        likelihood = ps.likelihoods.Bernoulli()

        @staticmethod
        def decode(z, weights):
            return z @ weights.mT

    Restart.likelihood.setup(x.shape[1], 1)
    x = torch.as_tensor(x).double()
    return _ExpandedRows(Restart(), Batch(x, x, None, len(x)), weight, np.ones(weight.shape[1], bool))


def test_modes_are_those_of_an_optimiser_and_rows_that_begin_there_move():
    """Under these loadings two rows of five that begin at a draw of the prior never move."""
    rng = np.random.default_rng(0)
    weight = np.array([[5.0, 0.0], [6.0, 0.0], [4.0, 1.0], [7.0, 0.0], [0.0, 6.0], [0.0, 5.0]])
    x = (rng.random((60, 6)) < expit(rng.normal(size=(60, 2)) @ weight.T)) * 1.0
    rows = bernoulli_rows(x, weight)
    modes = rows.modes()
    for i in range(len(x)):

        def energy(z, of_row=x[i]):
            f = weight @ z
            return 0.5 * z @ z + np.logaddexp(0, f).sum() - of_row @ f

        np.testing.assert_allclose(modes[i], minimize(energy, np.zeros(2)).x, atol=1e-3)
    z, moved = modes, np.zeros(len(x))
    for _ in range(60):
        new, _ = rows(z, np.zeros(2), np.eye(2), rng)
        moved, z = moved + (new != z).any(1), new
    assert moved.min() > 5


def test_laplace_proposals_draw_from_the_posterior_of_a_row():
    rows = bernoulli_rows(np.tile([1.0, 1.0, 0.0], (4000, 1)), np.array([[1.5], [2.0], [-1.0]]))
    rng, z = np.random.default_rng(0), np.zeros((4000, 1))
    mean, precision = np.full((4000, 1), 0.3), np.array([[1 / 0.6]])
    for _ in range(20):
        z, slopes = rows(z, mean, precision, rng)
    grid = np.linspace(-8, 8, 4001)
    cells = expit(grid * 1.5) * expit(grid * 2.0) * expit(grid)
    density = cells * norm.pdf(grid, 0.3, np.sqrt(0.6))
    density /= density.sum()
    want = density @ grid
    assert z.mean() == pytest.approx(want, abs=0.03)
    assert z.std() == pytest.approx(np.sqrt(density @ (grid - want) ** 2), abs=0.02)
    expected = np.array(
        [density @ (1 - expit(1.5 * grid)), density @ (1 - expit(2 * grid)), -(density @ expit(-grid))]
    )
    np.testing.assert_allclose(slopes.mean(0), expected, atol=0.02)
