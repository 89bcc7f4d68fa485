"""Single-index factors: splines against differences, axes and missing factors of tables of curves."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.rotation.single_index import (
    SingleIndex,
    _splines,
    add_factors,
    search,
    single_index,
    sparse_axes,
)

CURVES = (np.tanh, np.abs, lambda u: u, np.square, lambda u: np.sin(1.5 * u))


def table(seed: int, n: int = 300, rho: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Twenty features of three correlated factors: five of each alone, five of pairs."""
    rng = np.random.default_rng(seed)
    cov = np.where(np.eye(3, dtype=bool), 1.0, rho)
    z = rng.multivariate_normal(np.zeros(3), cov, size=n)
    directions = np.zeros((20, 3))
    for j in range(20):
        own = [j % 3] if j < 15 else [j % 3, (j + 1) % 3]
        directions[j, own] = rng.choice([-1, 1], len(own))
    x = np.empty((n, 20))
    for j, c in enumerate(directions):
        signal = CURVES[j // 3 % 5](z @ c / np.sqrt(c @ cov @ c))
        x[:, j] = (signal - signal.mean()) / signal.std() + 0.3 * rng.normal(size=n)
    return (x - x.mean(0)) / x.std(0), z, directions


def congruent(z: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Largest correlation of each true factor with a score."""
    return np.abs(np.corrcoef(z.T, scores.T)[: z.shape[1], z.shape[1] :]).max(1)


def test_splines_add_to_one_and_have_their_slopes():
    index = np.linspace(-2.5, 2.5, 41)[None]
    at, value, slope = _splines(index)
    dense = np.zeros((3, 41, at.max() + 2))
    for i, shift in enumerate((-1e-5, 0.0, 1e-5)):
        place, moved, _ = _splines(index + shift)
        np.put_along_axis(dense[i], place[0], moved[0], -1)
    assert value.sum(-1) == pytest.approx(1)
    by_difference = np.take_along_axis((dense[2] - dense[0]) / 2e-5, at[0], -1)
    np.testing.assert_allclose(slope[0], by_difference, atol=1e-4)


@pytest.mark.slow
def test_the_search_leaves_a_guess_of_mixed_factors():
    """From the guess alone five factors are found, in other axes than the true three."""
    rng = np.random.default_rng(1003)
    x, z, _ = table(1003)
    mixed = z @ rng.normal(size=(3, 3)) ** 3 + z**2
    seen = rng.random(x.shape) < 0.95
    found = search(np.where(seen, x, 0.0), [mixed], 5, seen)
    assert found.n_factors == 3
    assert congruent(z, sparse_axes(found)[0]).min() > 0.93
    with pytest.raises(np.linalg.LinAlgError):
        search(np.where(x > 9, x, np.nan), [mixed], 5)


@pytest.mark.parametrize("seed", [1000, 1001])
def test_rotated_factors_come_back_to_their_axes(seed):
    x, z, directions = table(seed)
    turned = z @ np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.3, 1.0]])
    assert congruent(z, turned).min() < 0.9
    scores, found = sparse_axes(single_index(x, turned))
    assert congruent(z, scores).min() > 0.93
    assert ((np.abs(found) > 0.3).sum() - (directions != 0).sum()) <= 2


def test_a_factor_that_correlations_hardly_show_is_added():
    x, z, _ = table(1002)
    model = single_index(x, z[:, :2])
    grown = add_factors(model, 5)
    assert grown.n_factors == 3
    assert grown.criterion > model.criterion + 100
    assert congruent(z, sparse_axes(grown)[0]).min() > 0.93


def test_a_missing_cell_counts_for_nothing():
    x, z, _ = table(1003, n=200)
    seen = np.random.default_rng(0).random(x.shape) > 0.1
    model = single_index(np.where(seen, x, 0.0), z, seen, sweeps=3)
    residual, slope = model.residuals_and_slopes()
    assert not residual[~seen.T].any() and not slope[~seen.T].any()
    assert congruent(z, model.scores @ np.linalg.lstsq(model.scores, z, rcond=None)[0]).min() > 0.9


def test_criterion_is_the_marginal_likelihood_where_curves_are_lines():
    """With linear curves the Laplace approximation is exact: a normal distribution of each row."""
    rng = np.random.default_rng(0)
    n, p = 50, 4
    line = np.linspace(-2.8 - 0.8, 2.8 + 0.8, 10)  # cubic splines with these coefficients are the identity
    slope = rng.uniform(0.5, 1, p)
    directions = np.array([[1.0, 0], [0, 1], [0.6, 0.8], [0.8, -0.6]])
    noise = np.full(p, 0.5)
    x = rng.normal(size=(p, n)) * 0.3
    precision = (directions.T * slope**2 / noise) @ directions + np.eye(2)
    mode = np.linalg.solve(precision, (directions.T * slope / noise) @ x).T
    model = SingleIndex(mode, directions, slope[:, None] * line, noise, x, np.ones_like(x))
    cov = (slope[:, None] * directions) @ (slope[:, None] * directions).T + np.diag(noise)
    exact = -0.5 * (np.einsum("jn,jk,kn->", x, np.linalg.inv(cov), x) + n * np.linalg.slogdet(cov)[1])
    assert model.criterion == pytest.approx(exact - 0.5 * p * np.log(n), rel=1e-6)
