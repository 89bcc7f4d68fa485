"""N(m, A A^T) against torch's own multivariate normal."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal

from pyro_sparse.distributions import FullNormal


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    factor = torch.randn(4, 5, 3, 3, generator=generator, dtype=torch.float64)
    return (
        FullNormal(loc, factor, torch.linalg.slogdet(factor)[1], event_dims=2),
        Independent(MultivariateNormal(loc, factor @ factor.mT), 1),
    )


def test_density_entropy_and_moments_are_those_of_the_multivariate_normal(pair):
    ours, theirs = pair
    assert ours.batch_shape == theirs.batch_shape == (4,)
    assert ours.event_shape == theirs.event_shape == (5, 3)
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close(ours.variance, theirs.variance)
    wide = ours.expand((2, 4))
    torch.testing.assert_close(wide.log_prob(x), theirs.log_prob(x).expand(2, 4))


def test_draws_have_the_moments(pair):
    ours, theirs = pair
    torch.manual_seed(0)
    x = ours.rsample((40_000,))
    torch.testing.assert_close(x.mean(0), theirs.mean, atol=0.06, rtol=0)
    torch.testing.assert_close(x.var(0) / theirs.variance, torch.ones_like(x[0]), atol=0.05, rtol=0)
    one = x[:, 0, 0]
    cov = ours.factor[0, 0] @ ours.factor[0, 0].mT
    torch.testing.assert_close(torch.cov(one.mT), cov, atol=0.15, rtol=0)


def test_gradients_reach_location_and_factor():
    loc, factor = torch.zeros(2, requires_grad=True), torch.eye(2, requires_grad=True)
    q = FullNormal(loc, factor, torch.zeros(()))
    (q.rsample() ** 2).sum().backward()
    assert loc.grad is not None and factor.grad is not None
