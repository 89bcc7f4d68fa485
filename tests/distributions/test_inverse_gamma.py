"""The inverse gamma is Pyro's, however it is made."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch

from pyro_sparse.distributions._inverse_gamma import InverseGamma


@pytest.mark.parametrize("to", [(3,), (2, 3)])
def test_it_is_that_of_pyro(to):
    shape, rate = torch.tensor([1.5, 2.5, 4.0]), torch.tensor([0.02, 1.0, 3.0])
    ours, theirs = InverseGamma(shape, rate).expand(to), dist.InverseGamma(shape, rate).expand(to)
    assert type(ours) is InverseGamma and ours.batch_shape == theirs.batch_shape == to
    x = torch.tensor([0.1, 0.4, 2.0])
    torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x), rtol=0, atol=0)
    torch.testing.assert_close(ours.mean, theirs.mean)
    drawn = []
    for made in (ours, theirs):
        torch.manual_seed(0)
        drawn.append(made.sample((4,)))
    torch.testing.assert_close(*drawn, rtol=0, atol=0)
    assert ours.to_event(1).event_shape == (3,)
