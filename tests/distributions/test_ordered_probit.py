"""Intervals of a normal variable against quadrature, far in the tails, too, and `OrderedProbit`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr
from scipy.stats import norm

from pyro_sparse.distributions import OrderedProbit
from pyro_sparse.distributions._normal_interval import (
    interval_curvature,
    interval_slopes,
    inverse_mills,
    log_interval,
    log_tail,
    tail_curvature,
    tail_terms,
)

CUTS = (-1.5, -0.2, 0.3, 2.0)


def by_quadrature(low: float, high: float) -> tuple[float, float, float]:
    """Log mass of an interval, and mean and variance of a standard normal variable that lies in it."""
    peak = min(max(0.0, low), high)
    ends = max(low, peak - 40 / (1 + abs(peak))), min(high, peak + 40 / (1 + abs(peak)))
    ends = (max(low, -12.0), min(high, 12.0)) if abs(peak) < 3 else ends

    nodes, weights = np.polynomial.legendre.leggauss(400)
    half = (ends[1] - ends[0]) / 2
    t = ends[0] + half * (1 + nodes)

    def moment(p: int, about: float = 0.0) -> float:
        return half * float((weights * (t - about) ** p * np.exp(0.5 * (peak**2 - t**2))).sum())

    mass = moment(0)
    mean = peak + moment(1, peak) / mass
    return norm.logpdf(peak) + np.log(mass), mean, moment(2, mean) / mass


CENTRES = (-30.0, -22.0, -18.0, -6.0, -1.0, 0.0, 0.4, 3.0, 12.0, 30.0)
INTERVALS = [(c - w / 2, c + w / 2) for c in CENTRES for w in (0.1, 0.7, 3.0)]
INTERVALS += [ends for c in CENTRES for ends in ((-np.inf, c), (c, np.inf))]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 3e-5)])
def test_intervals_are_those_of_quadrature_in_both_precisions(dtype, tolerance):
    low, high = (torch.tensor(ends, dtype=dtype) for ends in zip(*INTERVALS, strict=True))
    want = np.array([by_quadrature(float(a), float(b)) for a, b in zip(low, high, strict=True)])
    log_p, by_low, by_high = interval_slopes(low, high)
    np.testing.assert_allclose(log_p, want[:, 0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(log_interval(low, high), want[:, 0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(-(by_low + by_high), want[:, 1], rtol=tolerance, atol=tolerance)
    curvature = interval_curvature(low, high, by_low, by_high)
    np.testing.assert_allclose(curvature, 1 - want[:, 2], atol=2e-4)
    in_bulk = np.abs(want[:, 1]) < 15
    np.testing.assert_allclose(curvature[in_bulk], 1 - want[in_bulk, 2], atol=max(tolerance, 1e-9) * 10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_one_tail_is_scipys(dtype, tolerance):
    t = torch.linspace(-30, 30, 121, dtype=dtype)
    exact = t.double().numpy()
    want = np.exp(norm.logpdf(exact) - log_ndtr(exact))
    np.testing.assert_allclose(log_tail(t), log_ndtr(exact), rtol=10 * tolerance, atol=1e-37)
    for got, value in zip(tail_terms(t), (log_ndtr(exact), want), strict=True):
        np.testing.assert_allclose(got, value, rtol=10 * tolerance, atol=1e-37)
    np.testing.assert_allclose(inverse_mills(t), want, rtol=10 * tolerance, atol=1e-37)
    leaf = t.requires_grad_()
    (slope,) = torch.autograd.grad(log_tail(leaf).sum(), leaf)
    np.testing.assert_allclose(slope, want, rtol=100 * tolerance, atol=1e-37)
    t = t.detach()
    np.testing.assert_allclose(tail_curvature(t, inverse_mills(t)), want * (want + exact), rtol=0, atol=1e-4)


def test_log_density_is_that_of_an_interval_between_cuts_and_so_are_its_slopes():
    f = torch.randn(2, 5, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0)).requires_grad_()
    cuts = torch.tensor(CUTS).double().repeat(2, 1, 3, 1).requires_grad_()
    level = torch.randint(0, 5, (5, 3), generator=torch.Generator().manual_seed(1))
    ends = np.concatenate([[-np.inf], np.float32(CUTS), [np.inf]])
    g = f.detach().numpy()
    want = np.log(norm.cdf(ends[level + 1] - g) - norm.cdf(ends[level] - g))
    np.testing.assert_allclose(OrderedProbit(f, cuts).log_prob(level).detach(), want, atol=1e-9)
    assert torch.autograd.gradcheck(lambda f, c: OrderedProbit(f, c).log_prob(level), (f, cuts))
    assert torch.autograd.gradgradcheck(lambda f: OrderedProbit(f, cuts.detach()).log_prob(level), (f,))


def test_probabilities_keep_their_digits_in_the_tails_and_draws_follow_them():
    density = OrderedProbit(torch.tensor([[-9.0], [9.0], [0.4]]), torch.tensor(CUTS))
    below = norm.cdf(np.array(CUTS) - [[-9.0], [9.0], [0.4]])
    above = norm.sf(np.array(CUTS) - [[-9.0], [9.0], [0.4]])
    np.testing.assert_allclose(density.probs[1, 0, 0], below[1, 0], rtol=1e-4)
    np.testing.assert_allclose(density.probs[0, 0, -1], above[0, -1], rtol=1e-4)
    torch.manual_seed(0)
    draws = density.sample((20_000,))[:, 2, 0]
    share = torch.bincount(draws, minlength=5) / len(draws)
    np.testing.assert_allclose(share, density.probs[2, 0], atol=0.02)


def test_levels_that_are_not_there_have_no_probability_and_no_nan():
    f = torch.zeros(2, 3, requires_grad=True)
    cuts = torch.tensor([[0.0, torch.inf], [-1.0, 1.0], [0.0, torch.inf]])
    log_p = OrderedProbit(f, cuts).log_prob(torch.tensor([[2, 2, 1], [1, 0, 0]]))
    assert log_p[0, 0] < -1000
    np.testing.assert_allclose(log_p[0, 1:].detach(), [norm.logsf(1), np.log(0.5)], rtol=1e-5)
    (slope,) = torch.autograd.grad(log_p.sum(), f)
    assert torch.isfinite(slope).all()


def test_log_density_under_vmap_is_the_same():
    f, cuts, level = torch.randn(4, 6, 3), torch.tensor(CUTS), torch.randint(0, 5, (6, 3))
    mapped = torch.func.vmap(lambda f: OrderedProbit(f, cuts, validate_args=False).log_prob(level))(f)
    torch.testing.assert_close(mapped, OrderedProbit(f, cuts).log_prob(level))
