"""Log-likelihoods of loadings along a factor: against the cells, quadrature, the closed form of a line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.special import expit

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.loadings import Curve, Parabola
from pyro_sparse.inference.edges.density.weight import SpikeSlab

pytestmark = pytest.mark.usefixtures("hurried_module")

CHAINS, FEATURES, ROWS, UNIT, NOISE = 2, 3, 60, 0.7, 0.4
DENSITIES = [(True, 0.05), (True, 0.2), (False, 0.05), (False, 0.2)]


@pytest.fixture(params=["bernoulli", "poisson", "normal"])
def along(request):
    """A curve, its cells, predictors, factor and loadings."""
    rng = np.random.default_rng(3)
    z = torch.as_tensor(rng.standard_normal((CHAINS, ROWS)))
    loading = rng.standard_normal((CHAINS, FEATURES))
    other = torch.as_tensor(0.5 * rng.standard_normal((CHAINS, FEATURES, ROWS)))
    f = other + UNIT * torch.as_tensor(loading).unsqueeze(-1) * z.unsqueeze(1)
    likelihood, x = {
        "bernoulli": (ps.likelihoods.Bernoulli(), rng.random(f.shape) < expit(f.numpy())),
        "poisson": (ps.likelihoods.Poisson(size_factors=False), rng.poisson(np.exp(f.numpy()))),
        "normal": (ps.likelihoods.Normal(), f.numpy() + np.sqrt(NOISE) * rng.standard_normal(f.shape)),
    }[request.param]
    mask = torch.as_tensor(rng.random((1, FEATURES, ROWS)) < 0.9).double()
    cells = Cells(torch.as_tensor(np.asarray(x, dtype=float)) * mask, mask, {}, likelihood)
    noise = torch.full((CHAINS, FEATURES), NOISE)
    terms = cells.expanded(f, noise)
    curve = Curve.along(cells, f, terms, noise, z, loading, UNIT)
    return curve, cells, f, noise, z, loading


def exact(along, u):
    """Log-likelihood of loadings (chain, feature), less that at the loadings as they are."""
    _, cells, f, noise, z, loading = along
    moved = f + UNIT * torch.as_tensor(u - loading).unsqueeze(-1) * z.unsqueeze(1)
    return (cells.log_prob(moved, noise) - cells.log_prob(f, noise)).sum(-1).numpy()


@pytest.mark.parametrize("away", [-2.7, -1.2, 0.4, 1.9, 2.9])
def test_a_curve_is_the_log_likelihood_within_three_standard_deviations(along, away):
    curve, loading = along[0], along[-1]
    u = curve.mode + away * curve.shape.sd
    got = curve.log_likelihood(u) - curve.log_likelihood(loading)
    np.testing.assert_allclose(got, exact(along, u), atol=0.01)


def test_beyond_it_goes_on_as_a_parabola(along):
    curve = along[0]
    for end in (-3.0, 3.0):
        just, far = (curve.mode + (end + np.sign(end) * more) * curve.shape.sd for more in (1e-6, 2.0))
        at_end, further = (curve.shape.expanded(u - curve.mode) for u in (just, far))
        step = far - just
        np.testing.assert_allclose(
            further[0], at_end[0] + step * (at_end[1] - at_end[2] * step / 2), rtol=1e-6
        )
        inside = curve.shape.expanded((end - np.sign(end) * 1e-6) * curve.shape.sd)
        for left, right in zip(inside, at_end, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


def test_it_does_not_depend_on_where_it_begins(along):
    curve, cells, f, noise, z, loading = along
    other = loading + 0.3
    moved = f + UNIT * 0.3 * z.view(CHAINS, 1, ROWS)
    again = Curve.along(cells, moved, cells.expanded(moved, noise), noise, z, other, UNIT)
    u = curve.mode + np.linspace(-2, 2, 5).reshape(-1, 1, 1) * curve.shape.sd
    difference = again.log_likelihood(u) - curve.log_likelihood(u)
    np.testing.assert_allclose(difference - difference[2], 0.0, atol=2e-3)


def test_of_normal_cells_it_is_the_parabola_of_the_closed_form():
    rng = np.random.default_rng(4)
    x, z = rng.standard_normal((1, 1, ROWS)), rng.standard_normal((1, ROWS))
    cells = Cells(torch.as_tensor(x), None, {}, ps.likelihoods.Normal())
    f, noise = torch.zeros(1, 1, ROWS, dtype=torch.float64), torch.full((1, 1), NOISE)
    terms = cells.expanded(f, noise)
    curve = Curve.along(cells, f, terms, noise, torch.as_tensor(z), np.zeros((1, 1)), UNIT)
    a, b = UNIT**2 * (z**2).sum(-1, keepdims=True) / NOISE, UNIT * (x[0] @ z.T) / NOISE
    parabola = Parabola(a, b)
    shift = np.array([-0.4, 0.0, 0.9]).reshape(-1, 1, 1) * curve.shape.sd + curve.mode
    density = SpikeSlab(True, np.array(0.1))
    for got, want in zip(curve.log_norms(shift, density), parabola.log_norms(shift, density), strict=True):
        np.testing.assert_allclose(got - curve.log_likelihood(np.zeros((1, 1))), want, atol=0.02)


@pytest.mark.parametrize(("laplace", "ratio"), DENSITIES)
def test_integrals_are_those_of_quadrature(along, laplace, ratio):
    curve, density = along[0], SpikeSlab(laplace, np.array(ratio))
    shift = curve.mode + 1.5 * curve.shape.sd
    slab, spike = curve.log_norms(shift, density)
    for chain, feature in np.ndindex(CHAINS, FEATURES):
        place, scale = shift[chain, feature], curve.shape.sd[chain, feature]

        def likelihood(u, at=(chain, feature)):
            return np.exp(curve.log_likelihood(np.full_like(shift, u))[at])

        def under(log_density, low, high, likelihood=likelihood, place=place):
            ends = np.unique(np.append(np.linspace(low, high, 9), 0.0))
            pieces = zip(ends[:-1], ends[1:], strict=True)

            def tilted(w):
                return likelihood(w + place) * np.exp(log_density(np.array(w)))

            return np.log(sum(integrate.quad(tilted, *piece)[0] for piece in pieces))

        wide = 8 * scale
        np.testing.assert_allclose(
            slab[chain, feature], under(density.log_density, -wide - 1, wide + 1), atol=0.03
        )
        narrow = 12 * ratio
        np.testing.assert_allclose(spike[chain, feature], under(density.log_spike, -narrow, narrow), atol=0.1)


@pytest.mark.parametrize(("laplace", "ratio"), DENSITIES)
def test_what_is_drawn_has_the_density_that_excess_says(along, laplace, ratio):
    """Weighed by exp(excess), draws have the integral of likelihood and prior, and its mean."""
    curve, density = along[0], SpikeSlab(laplace, np.array(ratio))
    n, odds, rng = 20_000, 0.3, np.random.default_rng(0)
    shift = np.broadcast_to(curve.mode - 0.8 * curve.shape.sd, (n, CHAINS, FEATURES))
    slab, spike = curve.log_norms(shift[:1], density)
    yes, no = slab - np.logaddexp(0, -odds), spike - np.logaddexp(0, odds)
    whole = np.logaddexp(yes, no)
    edge = rng.random(shift.shape) < np.exp(yes - whole)
    loading = curve.draw(shift, edge, density, rng)
    weight = np.exp(curve.excess(shift, loading, np.full((1, 1), odds), density))
    assert weight.std() < 0.3 * weight.mean()
    grid = np.linspace(-9, 9, 40_001).reshape(-1, 1, 1)
    prior = np.logaddexp(
        density.log_density(grid) - np.logaddexp(0, -odds), density.log_spike(grid) - np.logaddexp(0, odds)
    )
    target = np.exp(curve.log_likelihood(grid + shift[0]) + prior)
    integral = integrate.trapezoid(target, grid, axis=0)
    np.testing.assert_allclose(weight.mean(0) * np.exp(whole[0]), integral, rtol=0.02)
    mean = integrate.trapezoid(target * grid, grid, axis=0) / integral
    got = (weight * loading).mean(0) / weight.mean(0)
    error = loading.std(0) / np.sqrt(n)
    assert (np.abs(got - mean) < 5 * error + 1e-4).all()


def test_translated_loadings_are_shifted_ones(along):
    curve, density = along[0], SpikeSlab(True, np.array(0.1))
    shift = 0.4 * np.ones_like(curve.mode)
    parabola = Parabola(2 + 0 * shift, 0.3 * shift)
    level = shift * (parabola.b - 0.5 * shift * parabola.a)  # a parabola is 1 where loadings are 0
    for likelihood, constant in ((curve, 0.0), (parabola, level)):
        moved = likelihood.translated(shift).log_norms(0 * shift, density)
        for got, want in zip(moved, likelihood.log_norms(shift, density), strict=True):
            np.testing.assert_allclose(got + constant, want, atol=1e-9)
