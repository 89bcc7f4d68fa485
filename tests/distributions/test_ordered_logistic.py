"""`OrderedLogistic`: its log density against differences of scipy's logistic distribution, in all layouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import logistic

from pyro_sparse.distributions import OrderedLogistic

CUTS = (-1.5, -0.2, 0.3, 2.0)


def by_differences(f: np.ndarray, cuts: np.ndarray, level: np.ndarray) -> np.ndarray:
    ends = np.concatenate([[-np.inf], cuts, [np.inf]])
    return np.log(logistic.cdf(ends[level + 1] - f) - logistic.cdf(ends[level] - f))


@pytest.mark.parametrize(
    ("shape", "of_cuts"),
    [((), ()), ((6,), ()), ((6, 3), ()), ((6, 3), (3,)), ((2, 6, 3), (2, 1, 3)), ((2, 6, 3), (2, 6, 3))],
    ids=["number", "row", "one for all", "of each feature", "of each restart", "of each cell"],
)
def test_log_density_is_that_of_an_interval_between_cuts(shape: tuple[int, ...], of_cuts: tuple[int, ...]):
    rng = np.random.default_rng(0)
    f, level = rng.normal(size=shape), rng.integers(0, 5, shape)
    cuts = np.sort(rng.normal(size=(*of_cuts, 4)), -1)
    wide = np.broadcast_to(cuts, (*shape, 4)).reshape(-1, 4)
    want = [by_differences(*cell) for cell in zip(f.ravel(), wide, level.ravel(), strict=True)]
    density = OrderedLogistic(torch.as_tensor(f), torch.as_tensor(cuts))
    assert density.batch_shape == shape
    got = density.log_prob(torch.as_tensor(level))
    np.testing.assert_allclose(got.numpy().ravel(), want, atol=1e-10)


def test_levels_broadcast_with_predictors():
    f, cuts = torch.randn(3, 6, 2, dtype=torch.double), torch.tensor(CUTS).double().expand(3, 1, 2, 4)
    level = torch.randint(0, 5, (6, 2))
    each = torch.stack([OrderedLogistic(f[r], cuts[r]).log_prob(level) for r in range(3)])
    torch.testing.assert_close(OrderedLogistic(f, cuts).log_prob(level), each)


def test_slopes_are_those_of_finite_differences():
    f = torch.randn(2, 5, 3, dtype=torch.double, requires_grad=True)
    cuts = torch.tensor(CUTS).double().repeat(2, 1, 3, 1).requires_grad_()
    level = torch.randint(0, 5, (5, 3))
    assert torch.autograd.gradcheck(lambda f, c: OrderedLogistic(f, c).log_prob(level), (f, cuts))
    assert torch.autograd.gradgradcheck(lambda f: OrderedLogistic(f, cuts.detach()).log_prob(level), (f,))


def test_far_tails_have_the_logarithm_of_the_logistic_tail():
    density = OrderedLogistic(torch.tensor([300.0, -300.0]).double(), torch.tensor(CUTS).double())
    got = density.log_prob(torch.tensor([0, 4]))
    torch.testing.assert_close(got, torch.tensor([CUTS[0] - 300, -300 - CUTS[-1]]).double())


def test_levels_that_are_not_there_have_no_probability_and_no_nan():
    f = torch.zeros(2, 3, requires_grad=True)
    cuts = torch.tensor([[0.0, torch.inf], [-1.0, 1.0], [0.0, torch.inf]])
    log_p = OrderedLogistic(f, cuts).log_prob(torch.tensor([[2, 2, 1], [1, 0, 0]]))
    assert log_p[0, 0] < -1000
    torch.testing.assert_close(log_p[0, 1:], torch.tensor([-1.3133, -0.6931]), atol=1e-4, rtol=0)
    (slope,) = torch.autograd.grad(log_p.sum(), f)
    assert torch.isfinite(slope).all()


def test_log_density_under_vmap_and_by_enumeration_is_the_same():
    f, cuts, level = torch.randn(4, 6, 3), torch.tensor(CUTS), torch.randint(0, 5, (6, 3))
    mapped = torch.func.vmap(lambda f: OrderedLogistic(f, cuts, validate_args=False).log_prob(level))(f)
    density = OrderedLogistic(f, cuts)
    torch.testing.assert_close(mapped, density.log_prob(level))
    every = density.log_prob(density.enumerate_support(expand=False))
    chosen = every.gather(0, level.expand(4, -1, -1).unsqueeze(0))[0]
    torch.testing.assert_close(mapped, chosen, atol=1e-4, rtol=1e-4)


def test_probabilities_mean_and_draws():
    torch.manual_seed(0)
    density = OrderedLogistic(torch.tensor([0.4]), torch.tensor(CUTS))
    want = np.exp([by_differences(np.array(0.4), np.array(CUTS), np.array(i)) for i in range(5)])
    np.testing.assert_allclose(density.probs[0].numpy(), want, atol=1e-6)
    np.testing.assert_allclose(density.mean, want @ np.arange(5), atol=1e-6)
    draws = density.expand(torch.Size((20_000, 1))).sample()
    shares = np.bincount(draws.flatten().long(), minlength=5) / 20_000
    np.testing.assert_allclose(shares, want, atol=0.015)
    assert density.entropy().item() == pytest.approx(-(want * np.log(want)).sum(), abs=1e-5)
