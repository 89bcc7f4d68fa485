"""The densities against scipy, at the places where a naive formula breaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch.distributions import Laplace, MultivariateNormal, Normal, StudentT

from pyro_sparse.distributions import (
    Horseshoe,
    RegularisedHorseshoe,
    SpikeSlabLasso,
    SpikeSlabMixture,
    SpikeSlabNormal,
)
from pyro_sparse.distributions.horseshoe import scaled_expint

POINTS = np.concatenate([[0.0], np.geomspace(1e-4, 50, 30), -np.geomspace(1e-4, 50, 30)])
ALL = [
    SpikeSlabLasso(torch.tensor([0.1, 0.7]), 1.0, 20.0),
    SpikeSlabNormal(torch.tensor([0.1, 0.7]), 1.0, 0.1),
    SpikeSlabMixture(torch.tensor([0.1, 0.7]), Laplace(0.0, 1.0), Normal(torch.zeros(2), 0.1)),
    Horseshoe(torch.tensor([0.1, 2.0])),
    RegularisedHorseshoe(torch.tensor([0.1, 2.0]), 1.5),
]
each = pytest.mark.parametrize("d", ALL, ids=lambda d: type(d).__name__)


def mixture(eta, slab, spike, points=POINTS):
    return np.logaddexp(np.log(eta) + slab.logpdf(points), np.log1p(-eta) + spike.logpdf(points))


@pytest.mark.parametrize("eta", [1e-12, 0.01, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("lambda0", [1.0, 30.0, 1e4])
def test_lasso_is_a_mixture_of_laplaces(eta, lambda0):
    d = SpikeSlabLasso(torch.tensor(eta, dtype=torch.float64), 1.0, lambda0)
    wanted = mixture(eta, stats.laplace(), stats.laplace(scale=1 / lambda0))
    np.testing.assert_allclose(d.log_prob(torch.as_tensor(POINTS)).numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("eta", [1e-12, 0.01, 0.5, 1 - 1e-9])
def test_normal_is_a_mixture_of_normals(eta):
    d = SpikeSlabNormal(torch.tensor(eta, dtype=torch.float64), 2.0, 0.01)
    wanted = mixture(eta, stats.norm(scale=2), stats.norm(scale=0.01))
    np.testing.assert_allclose(d.log_prob(torch.as_tensor(POINTS)).numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("eta", [1e-12, 0.01, 0.5, 1 - 1e-9])
def test_any_two_densities_are_mixed(eta):
    one, two, zero = torch.tensor([3.0, 0.5, 0.0], dtype=torch.float64)
    d = SpikeSlabMixture(
        torch.tensor(eta, dtype=torch.float64), StudentT(one, zero, two), Normal(zero, two / 10)
    )
    slab, spike = stats.t(3, scale=0.5), stats.norm(scale=0.05)
    w = torch.as_tensor(POINTS)
    np.testing.assert_allclose(d.log_prob(w).numpy(), mixture(eta, slab, spike), rtol=1e-10)
    wanted = np.log(eta) - np.log1p(-eta) + slab.logpdf(POINTS) - spike.logpdf(POINTS)
    np.testing.assert_allclose(d.posterior_log_odds(w).numpy(), wanted, rtol=1e-6)
    assert SpikeSlabMixture(0.5, d.slab, d.spike).expand((4, 2)).sample((7,)).shape == (7, 4, 2)


def test_a_mixture_is_of_numbers():
    pair = MultivariateNormal(torch.zeros(2), torch.eye(2))
    with pytest.raises(ValueError, match=r"spike: MultivariateNormal is a density of shape \(2,\)"):
        SpikeSlabMixture(0.5, Normal(0.0, 1.0), pair)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eta", [0.0, 1e-30, 0.5, 1.0])
def test_lasso_far_out_and_at_zero(eta, dtype):
    """At |w| = 1e3 and lambda0 = 1e4 exp(-lambda0 |w|) is long gone; there and at 0 the slope is known."""
    w = torch.tensor([0.0, 1e3, -1e3, 1e-30], dtype=dtype, requires_grad=True)
    log_prob = SpikeSlabLasso(torch.tensor(eta, dtype=dtype), 1.0, 1e4).log_prob(w)
    (gradient,) = torch.autograd.grad(log_prob.sum(), w, create_graph=True)
    (curvature,) = torch.autograd.grad(gradient.sum(), w)
    assert torch.isfinite(log_prob).all() and torch.isfinite(curvature).all()
    assert gradient[0] == 0
    # Far out the slab holds unless it is all but excluded, and even then its log odds outgrow any eta.
    np.testing.assert_allclose(gradient.detach()[1:3].numpy(), [-1.0, 1.0], rtol=1e-6)


def test_lasso_slope_is_the_mixed_rate():
    eta, low, high = 0.3, 0.5, 40.0
    w = torch.tensor([1e-3, 0.05, 0.2, 3.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(SpikeSlabLasso(eta, low, high).log_prob(w).sum(), w)
    x = w.detach().numpy()
    slab, spike = eta * low * np.exp(-low * x), (1 - eta) * high * np.exp(-high * x)
    np.testing.assert_allclose(-gradient.numpy(), (low * slab + high * spike) / (slab + spike), rtol=1e-6)


def test_lasso_odds_keep_the_normalisers():
    """An exact zero is eta lambda1 / ((1 - eta) lambda0) likely to be an edge, not eta / (1 - eta)."""
    d = SpikeSlabLasso(torch.tensor(0.5, dtype=torch.float64), 1.0, 100.0)
    assert d.posterior_odds(torch.tensor(0.0)).item() == pytest.approx(0.01)
    where_equal = np.log(100.0) / 99.0
    assert d.posterior_odds(torch.tensor(where_equal, dtype=torch.float64)).item() == pytest.approx(1.0)


def test_normal_odds():
    d = SpikeSlabNormal(torch.tensor(0.2, dtype=torch.float64), 1.0, 0.1)
    w = torch.tensor([0.0, 0.3, -2.0], dtype=torch.float64)
    wanted = 0.2 * stats.norm.pdf(w) / (0.8 * stats.norm.pdf(w, scale=0.1))
    np.testing.assert_allclose(d.posterior_odds(w).numpy(), wanted, rtol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_scaled_expint(order):
    x = np.concatenate([np.geomspace(1e-30, 700, 300), [1.999999, 2.0, 2.000001]])
    found = scaled_expint(torch.as_tensor(x), order).numpy()
    np.testing.assert_allclose(found, special.expn(order, x) * np.exp(x), rtol=1e-12)
    single = scaled_expint(torch.as_tensor(x).float(), order)
    np.testing.assert_allclose(single.numpy(), found, rtol=1e-5)


def test_scaled_expint_derivatives():
    x = torch.tensor([1e-3, 0.5, 1.9, 2.1, 30.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(scaled_expint, x)
    assert torch.autograd.gradgradcheck(scaled_expint, x)


@pytest.mark.parametrize("w", [1e-3, 0.1, 1.0, 20.0])
def test_horseshoe_is_the_scale_mixture(w):
    tau = 0.5

    def integrand(angle):  # lambda = tan(angle) makes the half-Cauchy uniform
        return stats.norm.pdf(w, scale=tau * np.tan(angle)) * 2 / np.pi

    wanted = integrate.quad(integrand, 0, np.pi / 2, limit=500, points=[np.arctan(w / tau)])[0]
    d = Horseshoe(torch.tensor(tau, dtype=torch.float64))
    value = torch.tensor(w, dtype=torch.float64)
    assert d.log_prob(value).exp().item() == pytest.approx(wanted, rel=1e-6)

    def ratio(angle):
        return integrand(angle) * (w / (tau * np.tan(angle))) ** 2

    expected = integrate.quad(ratio, 1e-6, np.pi / 2, limit=500, points=[np.arctan(w / tau)])[0] / wanted
    assert d.expected_scaled_square(value).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_horseshoe_pole_is_finite(dtype):
    w = torch.tensor([0.0, 1e-25, 1e6], dtype=dtype, requires_grad=True)
    log_prob = Horseshoe(torch.tensor(0.01, dtype=dtype)).log_prob(w)
    (gradient,) = torch.autograd.grad(log_prob.sum(), w)
    assert torch.isfinite(log_prob).all() and torch.isfinite(gradient).all()
    assert gradient[0] == 0 and log_prob[0] > log_prob[2]
    assert gradient[2].item() == pytest.approx(-2e-6, rel=1e-4)  # the tail is 1 / w^2


@pytest.mark.parametrize("w", [3e-3, 0.03, 0.3, 3.0, 6.0])
def test_regularised_horseshoe_follows_the_continuous_one(w):
    tau, slab = 0.5, 2.0

    def integrand(angle):
        wide = tau * np.tan(angle)
        return stats.norm.pdf(w, scale=wide / np.sqrt(1 + (wide / slab) ** 2)) * 2 / np.pi

    wanted = integrate.quad(integrand, 1e-9, np.pi / 2 - 1e-9, limit=500, points=[np.arctan(w / tau)])[0]
    found = RegularisedHorseshoe(torch.tensor(tau, dtype=torch.float64), slab).log_prob(torch.tensor(w)).exp()
    assert found.item() == pytest.approx(wanted, rel=2e-2 if w < 0.01 else 1e-3)


@each
def test_shapes_and_expand(d):
    assert d.batch_shape == (2,) and d.event_shape == ()
    wide = d.expand((5, 3, 2))
    assert type(wide) is type(d) and wide.batch_shape == (5, 3, 2)
    value = torch.linspace(-1, 1, 2)
    torch.testing.assert_close(wide.log_prob(value)[4, 1], d.log_prob(value))
    assert wide.sample((7,)).shape == (7, 5, 3, 2) and wide.mean.shape == (5, 3, 2)
    assert wide.to_event(2).batch_shape == (5,)
    assert d.sample().shape == (2,)


@each
def test_moments_and_cdf(d):
    torch.manual_seed(1)
    draws = d.sample((200_000,)).double()
    if torch.isfinite(d.variance).all():
        np.testing.assert_allclose(draws.var(0), d.variance, rtol=0.05)
        np.testing.assert_allclose(draws.mean(0), d.mean, atol=0.02)
        np.testing.assert_allclose(d.mode, 0)
        points = torch.tensor([-1.0, -0.01, 0.0, 0.02, 2.0])
        share = (draws < points[:, None, None]).double().mean(1)
        np.testing.assert_allclose(d.cdf(points[:, None]), share, atol=0.005)
    else:
        assert isinstance(d, Horseshoe) and torch.isnan(d.mean).all()
        # The median of |w| / tau, by integrating the normal over the angle of the local scale.
        angle = (np.arange(2000) + 0.5) * np.pi / 4000
        median = (draws.abs() / d.tau).median(0).values.numpy()
        inside = (2 * stats.norm.cdf(median[:, None] / np.tan(angle)) - 1).mean(1)
        np.testing.assert_allclose(inside, 0.5, atol=0.005)


@each
def test_arguments_are_validated(d):
    first = next(iter(d.arg_constraints))
    names = [*d.arg_constraints, *(name for name in ("slab", "spike") if hasattr(d, name))]
    good = {name: getattr(d, name) for name in names}
    bad = good | {first: torch.tensor(-1.0)}
    with pytest.raises(ValueError, match=first):
        type(d)(**bad, validate_args=True)
    type(d)(**bad, validate_args=False)
    with pytest.raises(ValueError, match="value"):
        type(d)(**good, validate_args=True).log_prob(torch.tensor(torch.nan))


def test_gradients_reach_the_parameters():
    for d_class, names in (
        (SpikeSlabLasso, ("eta", "lambda1", "lambda0")),
        (SpikeSlabNormal, ("eta", "slab_scale", "spike_scale")),
    ):
        values = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.4, 1.0, 3.0)]
        w = torch.tensor([0.1, -2.0], dtype=torch.float64)
        assert torch.autograd.gradcheck(
            lambda *p, d_class=d_class, names=names, w=w: d_class(
                **dict(zip(names, p, strict=True))
            ).log_prob(w),
            values,
        )


def test_horseshoes_reparameterise():
    tau = torch.tensor(0.5, requires_grad=True)
    for d in (Horseshoe(tau), RegularisedHorseshoe(tau, torch.tensor(1.0))):
        torch.manual_seed(0)
        (slope,) = torch.autograd.grad(d.rsample((10,)).abs().sum(), tau)
        assert slope > 0


def test_node_count_is_checked():
    with pytest.raises(ValueError, match="n_nodes is 1"):
        RegularisedHorseshoe(1.0, 1.0, n_nodes=1)
