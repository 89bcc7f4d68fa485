"""Rotations against scikit-learn and structures that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group, special_ortho_group
from sklearn.decomposition._factor_analysis import _ortho_rotation

from pyro_sparse.graphs.alignment import align, match_columns, similarity
from pyro_sparse.inference.rotation import axes
from pyro_sparse.inference.rotation._compiled_axes import AVAILABLE
from pyro_sparse.inference.rotation.axes import n_sizeable, oblique, simple, varimax


def structure(rng, g=24, k=3, cross=4):
    loadings = np.zeros((g, k))
    for j in range(g):
        loadings[j, j % k] = rng.uniform(0.5, 0.9)
    for j in rng.choice(g, cross, replace=False):
        loadings[j, (j + 1) % k] = rng.uniform(0.3, 0.5)
    return loadings


def congruence(found, truth):
    return np.nan_to_num(align(found[None], pivot=truth).congruence[0])


def variance(loadings):
    return ((loadings**2).var(0)).sum()


def test_varimax_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    loadings = structure(rng) @ special_ortho_group.rvs(3, random_state=1) + 0.02 * rng.normal(size=(24, 3))
    ours = loadings @ varimax(loadings)
    theirs = _ortho_rotation(loadings, method="varimax", tol=1e-10, max_iter=1000)
    theirs = theirs if theirs.shape == ours.shape else theirs.T
    np.testing.assert_allclose(variance(ours), variance(theirs), rtol=1e-6)
    assert congruence(ours, theirs).min() > 1 - 1e-6


def test_varimax_is_a_rotation_that_finds_simple_structure_and_a_local_maximum():
    rng = np.random.default_rng(1)
    truth = structure(rng, cross=0)
    mixed = truth @ ortho_group.rvs(3, random_state=2)
    turn = varimax(mixed)
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-10)
    found = mixed @ turn
    assert congruence(found, truth).min() > 1 - 1e-6
    for seed in range(20):
        skew = np.random.default_rng(seed).normal(size=(3, 3)) * 0.05
        nearby = np.linalg.qr(np.eye(3) + skew - skew.T)[0]
        assert variance(found @ nearby) <= variance(found) + 1e-9


def test_one_factor_is_left_alone():
    loadings = np.array([[0.5], [0.2], [-0.3]])
    np.testing.assert_allclose(np.abs(loadings @ varimax(loadings)), np.abs(loadings))
    found, correlation = oblique(loadings)
    np.testing.assert_array_equal(found, loadings)
    np.testing.assert_array_equal(correlation, [[1.0]])


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.7])
def test_oblique_finds_correlated_simple_structure(rho):
    truth = structure(np.random.default_rng(2))
    cov = np.full((3, 3), rho) + (1 - rho) * np.eye(3)
    mixed = truth @ np.linalg.cholesky(cov) @ ortho_group.rvs(3, random_state=3)
    found, correlation = oblique(mixed)
    assert congruence(found, truth).min() > 0.99
    # the rotated pair describes the same covariance
    np.testing.assert_allclose(found @ correlation @ found.T, mixed @ mixed.T, atol=1e-6)
    np.testing.assert_allclose(np.diag(correlation), 1.0)
    order, sign = match_columns(similarity(truth, found))
    aligned = correlation[np.ix_(order, order)] * np.outer(sign, sign)
    assert np.abs(aligned - cov).max() < 0.08
    if rho == 0.7:  # an orthogonal rotation cannot
        assert congruence(mixed @ varimax(mixed), truth).min() < 0.98


def test_oblique_is_deterministic_and_leaves_the_random_state():
    import torch

    mixed = structure(np.random.default_rng(2)) @ ortho_group.rvs(3, random_state=3)
    state = torch.get_rng_state()
    one, two = oblique(mixed, steps=20), oblique(mixed, steps=20)
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(one[0], two[0])


def test_oblique_falls_back_to_varimax_when_all_solutions_are_degenerate():
    mixed = structure(np.random.default_rng(2)) @ ortho_group.rvs(3, random_state=3)
    found, correlation = oblique(mixed, steps=5, max_correlation=-1.0)
    np.testing.assert_allclose(found, mixed @ varimax(mixed))
    np.testing.assert_array_equal(correlation, np.eye(3))


def test_sizeable_loadings_are_counted():
    loadings = np.array([[5.0, 0.0], [0.1, -0.1], [0.0, 1e-4]])
    assert n_sizeable(loadings) == pytest.approx(2, abs=1e-3)
    assert n_sizeable(loadings, size=5.0) == pytest.approx(0.5, abs=1e-2)


@pytest.mark.parametrize(("rho", "slanted"), [(0.0, False), (0.6, True)])
def test_oblique_axes_only_where_they_pay(rho, slanted):
    rng = np.random.default_rng(1)
    truth = np.kron(np.eye(3), np.ones((6, 1))) * rng.uniform(0.5, 0.9, (18, 1))
    correlation = rho + (1 - rho) * np.eye(3)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    dense = truth @ np.linalg.cholesky(correlation) @ turn + 0.02 * rng.normal(size=(18, 3))
    found, factor_correlation = simple(dense)
    np.testing.assert_allclose(found @ factor_correlation @ found.T, dense @ dense.T, atol=1e-6)
    off = np.abs(factor_correlation - np.eye(3)).max()
    assert (off > 0.4) if slanted else (off == 0)
    assert n_sizeable(found) < 20


def test_slope_is_that_of_autograd():
    rng = np.random.default_rng(3)
    a = torch.as_tensor(rng.normal(size=(9, 4)))
    turn = torch.as_tensor(rng.normal(size=(5, 4, 4))).requires_grad_()
    unit = turn / turn.norm(dim=1, keepdim=True)
    found = torch.linalg.solve(unit, a.mT.expand(5, -1, -1)).mT
    cost = (found**2 / (found**2 + 0.2)).sum() - axes.BARRIER * torch.logdet(unit.mT @ unit).sum()
    cost.backward()
    np.testing.assert_allclose(axes._slope(turn.detach().numpy(), a.numpy(), 0.2), turn.grad)


@pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")
@pytest.mark.parametrize("k", [2, 4])
def test_compiled_steps_are_those_of_torch(k, monkeypatch):
    rng = np.random.default_rng(k)
    loadings = structure(rng, k=k) @ ortho_group.rvs(k, random_state=1) + 0.05 * rng.normal(size=(24, k))
    compiled = axes.obliques(loadings[:, ::-1], steps=40)
    monkeypatch.setattr(axes, "AVAILABLE", False)
    plain = axes.obliques(loadings[:, ::-1], steps=40)
    assert len(compiled) == len(plain) > 1
    for ours, theirs in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=0, atol=1e-9)
