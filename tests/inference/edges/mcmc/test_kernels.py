"""Loadings that chains keep are standardised: against regressions of simulated rows on their factors."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyro_sparse.inference.edges.mcmc.kernels import LinearRun, curve_loadings

COV = np.array([[2.0, 0.9, -0.3], [0.9, 1.0, 0.2], [-0.3, 0.2, 0.5]])
NOISE = np.array([0.5, 2.0, 1.0, 0.3])


@pytest.fixture(scope="module")
def rows():
    """Weights, factors with correlations and variances of their own, their rows, and standardised slopes."""
    rng = np.random.default_rng(1000)
    weight = np.where(rng.random((4, 3)) < 0.3, 0.0, rng.normal(size=(4, 3)))
    z = rng.multivariate_normal(np.zeros(3), COV, size=100_000)
    x = z @ weight.T + np.sqrt(NOISE) * rng.standard_normal((len(z), 4))
    slopes = np.linalg.lstsq(z / z.std(0), (x - x.mean(0)) / x.std(0), rcond=None)[0].T
    return weight, z, slopes


def test_of_straight_lines_with_factors_of_any_variance(rows):
    weight, _, slopes = rows
    state = SimpleNamespace(weight=weight[None], cov=COV[None], noise=NOISE[None])
    found = LinearRun.loadings(SimpleNamespace(state=state), np.random.default_rng(0))[0]
    assert np.abs(found - slopes).max() < 0.015
    assert (np.abs(found - weight).max(0) > 0.05).all()  # which a weight alone is not


def test_of_curves_the_same_where_they_are_lines(rows):
    weight, z, slopes = rows
    z, w, noise = (torch.as_tensor(values) for values in (z[None, :20_000], weight, NOISE[None]))
    value = lambda moved: w @ moved.transpose(-1, -2)  # noqa: E731
    found = curve_loadings(value, z, value(z), noise, np.random.default_rng(0))[0]
    assert np.abs(found.numpy() - slopes).max() < 0.03


def test_of_a_curve_the_root_of_its_share():
    """x = z² + e, with var(z²) = 2: half of the variance where that of e is 2, whatever the mean slope is."""
    z = torch.as_tensor(np.random.default_rng(1000).standard_normal((1, 50_000, 1)))
    value = lambda moved: moved.transpose(-1, -2) ** 2  # noqa: E731
    found = curve_loadings(value, z, value(z), 2.0, np.random.default_rng(0))
    assert abs(found.abs().item() - np.sqrt(0.5)) < 0.02
