"""Distributions of rows with room for columns, against their bases."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.distributions import constraints

from pyro_sparse.distributions.unsqueezed import Unsqueezed


def normal():
    loc = torch.arange(10.0).reshape(5, 2)
    return dist.Normal(loc, 0.5).to_event(1)


def test_shapes_and_density_are_those_of_the_base_with_one_column():
    base, value = normal(), torch.randn(5, 2)
    rows = Unsqueezed(base)
    assert (rows.batch_shape, rows.event_shape) == ((5, 1), (2,))
    torch.testing.assert_close(rows.log_prob(value[:, None]), base.log_prob(value)[:, None], rtol=0, atol=0)
    torch.testing.assert_close(rows.mean, base.mean[:, None], rtol=0, atol=0)
    assert rows.support.base_constraint is base.support.base_constraint and rows.support.event_dim == 1
    assert rows.has_rsample and not rows.has_enumerate_support


def test_draws_are_those_of_the_base():
    base, rows = normal(), Unsqueezed(normal())
    for method in ("sample", "rsample"):
        torch.manual_seed(3)
        wanted = getattr(base, method)((4,))
        torch.manual_seed(3)
        found = getattr(rows, method)((4,))
        assert found.shape == (4, 5, 1, 2)
        torch.testing.assert_close(found[:, :, 0], wanted, rtol=0, atol=0)


def test_draws_with_gradients_follow_the_location():
    loc = torch.zeros(5, 2, requires_grad=True)
    Unsqueezed(dist.Normal(loc, 1.0).to_event(1)).rsample().sum().backward()
    assert torch.equal(loc.grad, torch.ones(5, 2))


def test_a_larger_batch_keeps_its_one_column():
    rows = Unsqueezed(normal()).expand((3, 5, 1))
    drawn = rows.sample()
    assert drawn.shape == (3, 5, 1, 2) and len(drawn.unique()) == drawn.numel()
    wanted = normal().log_prob(drawn[:, :, 0])[..., None]
    torch.testing.assert_close(rows.log_prob(drawn), wanted, rtol=0, atol=0)
    with pytest.raises(ValueError, match="batch_shape: its last dimension is 4, wanted 1"):
        rows.expand((5, 4))


def test_a_base_without_gradients_or_of_whole_numbers_says_so():
    rows = Unsqueezed(dist.Bernoulli(torch.full((5,), 0.5)))
    assert not rows.has_rsample
    assert rows.support == constraints.boolean
    assert rows.has_enumerate_support
    assert rows.enumerate_support(expand=False).tolist() == [[[0.0]], [[1.0]]]
    assert rows.enumerate_support().shape == (2, 5, 1)


def test_events_of_two_dimensions_keep_their_place():
    base = dist.Normal(torch.zeros(5, 3, 2), 1.0).to_event(2)
    value = torch.randn(5, 3, 2)
    found = Unsqueezed(base).log_prob(value[:, None])
    torch.testing.assert_close(found, base.log_prob(value)[:, None], rtol=0, atol=0)


def test_it_fits_into_a_plate_of_rows():
    with pyro.plate("rows", 5, dim=-2), pyro.validation_enabled(True):
        assert pyro.sample("z", Unsqueezed(normal())).shape == (5, 1, 2)
