"""The LKJ prior against integrals, marginal distributions and torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import simpson
from torch.distributions import LKJCholesky

from pyro_sparse._utils.recorded import describe, rebuild
from pyro_sparse.priors import LKJ


def log_det(cov):
    return np.linalg.slogdet(cov)[1]


def test_the_density_of_three_factors_integrates_to_one():
    r = np.linspace(-1, 1, 161)
    a, b, c = np.meshgrid(r, r, r, indexing="ij", sparse=True)
    det = np.maximum(1 - a**2 - b**2 - c**2 + 2 * a * b * c, 1e-300)
    for prior in (LKJ(3.0), LKJ((2.5, 6.0))):
        density = np.where(det > 1e-299, np.exp(prior.log_density(np.log(det), 3)), 0.0)
        total = simpson(simpson(simpson(density, x=r), x=r), x=r)
        assert total == pytest.approx(1.0, abs=2e-3)


def test_log_weights_and_powers_of_the_determinant_are_the_density():
    prior, log_det_of_one = LKJ((1.5, 8.0), (1.0, 3.0)), -0.7
    levels = prior.log_weights(4) + (np.array(prior.concentration) - 1) * log_det_of_one
    assert np.logaddexp(*levels) == pytest.approx(float(prior.log_density(log_det_of_one, 4)), rel=1e-12)


def test_the_density_is_torchs_but_for_the_change_to_cholesky_factors():
    k, c = 4, 2.5
    root = LKJCholesky(k, torch.tensor(c, dtype=torch.float64), validate_args=False).sample((20,))
    # dC = prod_i L_ii^(K - i) dL, factors counted from 1: rows of L have unit length.
    powers = torch.arange(k - 1, -1, -1, dtype=torch.float64)
    change = (powers * root.diagonal(dim1=-2, dim2=-1).log()).sum(-1)
    want = LKJCholesky(k, torch.tensor(c, dtype=torch.float64)).log_prob(root) - change
    cov = (root @ root.mT).numpy()
    np.testing.assert_allclose(LKJ(c).log_density(log_det(cov), k), want.numpy(), rtol=1e-9)


def test_a_mixture_is_the_mean_of_its_components_and_one_is_flat():
    levels = np.array([-8.0, -1.0, 0.0])
    each = np.exp([LKJ(c).log_density(levels, 3) for c in (1.0, 5.0, 200.0)])
    np.testing.assert_allclose(np.exp(LKJ((1.0, 5.0, 200.0)).log_density(levels, 3)), each.mean(0))
    uneven = np.exp(LKJ((1.0, 200.0), (1, 3)).log_density(levels, 3))
    np.testing.assert_allclose(uneven, each[0] / 4 + each[2] * 3 / 4)
    assert np.ptp(each[0]) == 0 and LKJ().log_density(-np.inf, 3) == LKJ().log_density(0.0, 3)
    assert LKJ(2.0).log_density(-np.inf, 3) == -np.inf and LKJ(7.0).log_density(0.0, 1) == 0.0


@pytest.mark.parametrize("concentration", [1.0, 4.5, (1.0, 60.0)])
def test_draws_have_the_marginal_of_every_correlation(concentration):
    k, n = 4, 6000
    cov = LKJ(concentration).draw(n, k, np.random.default_rng(0))
    np.testing.assert_array_equal(np.diagonal(cov, axis1=1, axis2=2), 1.0)
    np.testing.assert_allclose(cov, cov.swapaxes(1, 2))
    assert (np.linalg.eigvalsh(cov) > 0).all()
    shapes = np.atleast_1d(concentration) - 1 + k / 2

    def cdf(r):
        return np.mean([stats.beta(a, a).cdf((r + 1) / 2) for a in shapes], axis=0)

    for i, j in zip(*np.triu_indices(k, 1), strict=True):
        assert stats.kstest(cov[:, i, j], cdf).pvalue > 1e-3


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf, np.nan, (), (1.0, 0.0), [[1.0]]])
def test_concentrations_are_positive_numbers(wrong):
    with pytest.raises(ValueError, match="concentration: got .*, wanted a positive number or several"):
        LKJ(wrong)


@pytest.mark.parametrize("wrong", [(1.0,), (1.0, 0.0), (1.0, 2.0, 3.0), 1.0])
def test_every_concentration_has_a_share(wrong):
    with pytest.raises(ValueError, match="share: got .*, wanted a positive number for each of 2"):
        LKJ((1.0, 2.0), wrong)


def test_it_is_stored_and_shown_as_it_was_made():
    for prior in (LKJ(2.0), LKJ((1.0, 100.0)), LKJ((1.0, 100.0), (1, 4))):
        assert rebuild(describe(prior)) == prior == eval(repr(prior)) and prior != LKJ(3.0)
        assert hash(prior) == hash(rebuild(describe(prior)))


@pytest.mark.parametrize("prior", [LKJ(3.0), LKJ((1.0, 1000.0)), LKJ((1.0, 20.0), (0.3, 0.7))])
def test_slope_is_that_of_differences(prior):
    at = np.array([-2.0, -0.3, -0.004, -1e-5])
    step = 1e-6
    above, below = (prior.log_density(at + sign * step, 4) for sign in (1, -1))
    np.testing.assert_allclose(prior.slope(at, 4), (above - below) / (2 * step), rtol=1e-5, atol=1e-6)
