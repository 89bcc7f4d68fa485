"""CorrelatedNormal against torch's MultivariateNormal."""

from __future__ import annotations

import math

import pyro
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from pyro_sparse.distributions import CorrelatedNormal, FullNormal

R, B, K = 3, 5, 4


def some(seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(R, 1, K, K, generator=generator, dtype=torch.float64)
    return a @ a.mT + 0.5 * torch.eye(K, dtype=torch.float64)


def test_log_prob():
    covariance = some()
    value = torch.randn(R, B, K, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = MultivariateNormal(torch.zeros(K, dtype=torch.float64), covariance).log_prob(value)
    torch.testing.assert_close(CorrelatedNormal(covariance).log_prob(value), expected)
    torch.testing.assert_close(CorrelatedNormal(covariance).expand((R, B)).log_prob(value), expected)


def test_one_dimension_is_the_normal():
    prior = CorrelatedNormal(torch.tensor([[[4.0]]]))
    value = torch.tensor([[1.5]])
    expected = -0.5 * (1.5**2 / 4 + math.log(4 * 2 * math.pi))
    assert prior.log_prob(value).item() == pytest.approx(expected)


@pytest.mark.parametrize("independent", [Independent, pyro.distributions.Independent])
def test_kl_is_that_of_multivariate_normals(independent):
    covariance = some()
    generator = torch.Generator().manual_seed(2)
    location = torch.randn(R, B, K, dtype=torch.float64, generator=generator)
    sd = torch.rand(R, B, K, dtype=torch.float64, generator=generator) + 0.1
    guide = independent(Normal(location, sd), 1)
    full = MultivariateNormal(torch.zeros(R, B, K, dtype=torch.float64), covariance.expand(R, B, K, K))
    expected = kl_divergence(MultivariateNormal(location, torch.diag_embed(sd**2)), full)
    torch.testing.assert_close(kl_divergence(guide, CorrelatedNormal(covariance)), expected)
    torch.testing.assert_close(kl_divergence(guide, CorrelatedNormal(covariance).expand((R, B))), expected)


def test_kl_refuses_other_guides():
    laplace = Independent(torch.distributions.Laplace(torch.zeros(R, B, K), 1.0), 1)
    with pytest.raises(NotImplementedError):
        kl_divergence(laplace, CorrelatedNormal(some().float()))


def test_draws_have_the_covariance_and_are_differentiable():
    torch.manual_seed(0)
    covariance = some().requires_grad_()
    prior = CorrelatedNormal(covariance).expand((R, 20_000))
    z = prior.rsample()
    assert z.shape == (R, 20_000, K) and z.dtype == torch.float64
    found = z.mT @ z / z.shape[1]
    scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt()[:, 0]
    error = (found - covariance[:, 0]).abs() / scale.unsqueeze(-1) / scale.unsqueeze(-2)
    assert error.max() < 0.05
    z.sum().backward()
    assert covariance.grad.abs().sum() > 0


def test_shapes_moments_and_expand():
    prior = CorrelatedNormal(some())
    assert prior.batch_shape == (R, 1) and prior.event_shape == (K,)
    assert prior.rsample((7,)).shape == (7, R, 1, K)
    wide = prior.expand((R, B))
    assert wide.batch_shape == (R, B) and wide.rsample((2,)).shape == (2, R, B, K)
    assert wide.mean.shape == wide.variance.shape == (R, B, K)
    reference = MultivariateNormal(torch.zeros(K, dtype=torch.float64), some())
    torch.testing.assert_close(wide.variance, reference.variance.expand(R, B, K))
    torch.testing.assert_close(prior.precision, reference.precision_matrix)
    torch.testing.assert_close(prior.log_determinant, torch.logdet(some()))


def test_kl_of_a_full_guide_is_that_of_multivariate_normals():
    torch.manual_seed(2)
    loc, factor = torch.randn(2, 4, 3).double(), torch.randn(2, 4, 3, 3).double()
    root = torch.randn(2, 1, 3, 3).double()
    cov = root @ root.mT + torch.eye(3)
    guide = FullNormal(loc, factor, torch.linalg.slogdet(factor)[1])
    expected = kl_divergence(
        MultivariateNormal(loc, factor @ factor.mT), MultivariateNormal(loc.new_zeros(3), cov)
    )
    torch.testing.assert_close(kl_divergence(guide, CorrelatedNormal(cov)), expected)
    paths = FullNormal(loc, factor, torch.linalg.slogdet(factor)[1], event_dims=2)
    with pytest.raises(NotImplementedError):
        kl_divergence(paths, CorrelatedNormal(cov))
