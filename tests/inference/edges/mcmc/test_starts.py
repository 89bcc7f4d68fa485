"""Other axes for linear chains: the same covariance of what is predicted, by another criterion."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.edges.mcmc.starts import in_other_axes

COV = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]])


def loadings(n_factors=3):
    rng = np.random.default_rng(0)
    weight = np.kron(np.eye(n_factors), np.full((5, 1), 0.7)) + 0.02 * rng.standard_normal((15, n_factors))
    return weight[: 5 * n_factors]


@pytest.mark.parametrize("number, correlated", [(0, True), (1, True), (2, True), (3, True), (2, False)])
def test_they_predict_the_same_covariance(number, correlated):
    weight = loadings()
    new, cov = in_other_axes(weight, COV, number, correlated, seed=0)
    np.testing.assert_allclose(new @ cov @ new.T, weight @ COV @ weight.T, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(cov), 1.0)
    assert np.linalg.eigvalsh(cov).min() > 0.01
    assert (cov == np.eye(3)).all() or (correlated and number > 1)


def test_the_first_are_those_of_varimax():
    weight = loadings()
    new, _ = in_other_axes(weight, np.eye(3), 0, True, seed=0)

    def criterion(w):
        return ((w**2).var(0)).sum()

    assert criterion(new) >= criterion(weight) - 1e-9
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    again, _ = in_other_axes(weight @ turn, np.eye(3), 0, True, seed=0)
    assert criterion(again) == pytest.approx(criterion(new), rel=1e-6)


def test_the_second_are_random_and_not_simple():
    weight, least = loadings(), []
    size = np.linalg.norm(weight, axis=0)
    for seed in range(20):
        new, _ = in_other_axes(weight, np.eye(3), 1, True, seed=seed)
        congruence = np.abs(new.T @ weight) / np.outer(np.linalg.norm(new, axis=0), size)
        least.append(congruence.max(0).min())
    assert np.mean(np.array(least) < 0.9) > 0.5  # congruence from which two columns are one factor


def test_factors_without_a_loading_stay_without():
    weight = np.concatenate([loadings(), np.zeros((15, 2))], 1)[:, [0, 3, 1, 4, 2]]
    new, cov = in_other_axes(weight, np.eye(5), 1, True, seed=0)
    assert not new[:, [1, 3]].any() and new[:, [0, 2, 4]].any(0).all()
    assert (cov[[1, 3]] == np.eye(5)[[1, 3]]).all()
    alone, _ = in_other_axes(weight * [1, 0, 0, 0, 0], np.eye(5), 1, True, seed=0)
    np.testing.assert_array_equal(alone, weight * [1, 0, 0, 0, 0])


def test_other_numbers_and_seeds_are_other_axes_and_the_same_are_the_same():
    weight = np.random.default_rng(0).standard_normal((15, 3))
    first, again = (in_other_axes(weight, COV, 1, False, seed=0)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, in_other_axes(weight, COV, 2, False, seed=0)[0], atol=1e-3)
