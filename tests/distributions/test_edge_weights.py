"""Weights with their edges summed out against SciPy's densities, and their draws against the law."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, special, stats

from pyro_sparse.distributions.edge_weights import NEVER, Component, EdgeWeights, as_component, widened_spikes

WEIGHTS = np.array([-2.3, -0.11, 0.0, 0.04, 0.9])
LOG_ODDS = np.array([-1.2, 0.4, 0.0, -2.0, 3.0])
FAMILIES = {
    "normal": (lambda s: dist.Normal(double(0.0), double(s)), lambda s: stats.norm(0, s)),
    "laplace": (lambda s: dist.Laplace(double(0.0), double(s)), lambda s: stats.laplace(0, s)),
    "student": (lambda s: dist.StudentT(double(3.0), double(0.0), double(s)), lambda s: stats.t(3, 0, s)),
}


def double(values):
    return torch.as_tensor(values, dtype=torch.float64)


def weights_of(slab, spike, log_odds=LOG_ODDS, **options):
    """Of two Pyro distributions."""
    return EdgeWeights(double(log_odds), as_component("slab", slab), as_component("spike", spike), **options)


def point():
    return dist.Delta(double(0.0))


@pytest.mark.parametrize("slab", FAMILIES)
@pytest.mark.parametrize("spike", FAMILIES)
def test_density_and_edge_probability_are_those_of_the_mixture(slab, spike):
    density = weights_of(FAMILIES[slab][0](0.8), FAMILIES[spike][0](0.07))
    rate = special.expit(LOG_ODDS)
    there = rate * FAMILIES[slab][1](0.8).pdf(WEIGHTS)
    absent = (1 - rate) * FAMILIES[spike][1](0.07).pdf(WEIGHTS)
    np.testing.assert_allclose(density.log_prob(double(WEIGHTS)), np.log(there + absent).sum(), rtol=1e-10)
    np.testing.assert_allclose(density.edge_prob(double(WEIGHTS)), there / (there + absent), rtol=1e-9)
    joint = density.log_densities(double(WEIGHTS))
    np.testing.assert_allclose(torch.stack(joint), np.log([there, absent]), rtol=1e-10)


def test_a_point_spike_has_mass_at_zero_and_none_elsewhere():
    density = weights_of(dist.Normal(double(0.0), double(0.8)), point())
    rate, zero = special.expit(LOG_ODDS), WEIGHTS == 0
    wanted = np.where(zero, np.log1p(-rate), np.log(rate) + stats.norm.logpdf(WEIGHTS, 0, 0.8))
    np.testing.assert_allclose(density.log_prob(double(WEIGHTS)), wanted.sum(), rtol=1e-12)
    np.testing.assert_array_equal(density.edge_prob(double(WEIGHTS)), np.where(zero, 0.0, 1.0))


@pytest.mark.parametrize("slab", FAMILIES)
def test_density_integrates_to_one(slab):
    density = weights_of(FAMILIES[slab][0](0.8), FAMILIES["normal"][0](0.05), [0.3])
    found = integrate.quad(
        lambda w: density.log_prob(double([w])).exp().item(), -400, 400, points=[-0.2, 0.0, 0.2], limit=400
    )[0]
    assert found == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("slab", FAMILIES)
@pytest.mark.parametrize("spike", FAMILIES)
def test_draws_follow_the_law(slab, spike):
    torch.manual_seed(0)
    density = weights_of(FAMILIES[slab][0](0.8), FAMILIES[spike][0](0.07), [-0.5])
    drawn = density.sample((20_000,)).numpy()[:, 0]
    there, rate = density.drawn_edges.numpy()[:, 0], special.expit(-0.5)
    assert there.mean() == pytest.approx(rate, abs=0.015)
    law, narrow = FAMILIES[slab][1](0.8), FAMILIES[spike][1](0.07)
    assert stats.kstest(drawn[there], law.cdf).pvalue > 0.005
    assert stats.kstest(drawn[~there], narrow.cdf).pvalue > 0.005


def test_draws_of_a_point_spike_are_zero():
    torch.manual_seed(0)
    density = weights_of(dist.Laplace(double(0.0), double(1.0)), point(), [1.0, -2.0])
    drawn = density.sample((4000,))
    np.testing.assert_allclose((drawn != 0).double().mean(0), special.expit([1.0, -2.0]), atol=0.03)
    assert torch.equal(drawn != 0, density.drawn_edges)


def test_forbidden_edges_are_absent_and_required_ones_are_there():
    torch.manual_seed(0)
    permitted, required = torch.tensor([False, True, True]), torch.tensor([False, False, True])
    normal = dist.Normal(double(0.0), double(1.0)), dist.Normal(double(0.0), double(0.1))
    density = weights_of(*normal, [5.0, 0.5, -5.0], permitted=permitted, required=required)
    np.testing.assert_array_equal(density.log_odds, [NEVER, 0.5, -NEVER])
    density.sample((3000,))
    assert not density.drawn_edges[:, 0].any() and density.drawn_edges[:, 2].all()
    assert 0 < density.drawn_edges[:, 1].double().mean() < 1
    at = double([0.3, 0.3, 0.3])
    wanted = stats.norm.logpdf(0.3, 0, [0.1, 1.0])
    rate = special.expit(0.5)
    middle = np.log(rate * np.exp(wanted[1]) + (1 - rate) * np.exp(wanted[0]))
    np.testing.assert_allclose(density.log_prob(at), wanted.sum() + middle, rtol=1e-9)
    probability = density.edge_prob(at)
    assert probability[0] < 1e-10 and probability[2] > 1 - 1e-10


def test_expanded_weights_are_independent_and_of_the_same_density():
    torch.manual_seed(0)
    density = weights_of(*(dist.Normal(double(0.0), double(s)) for s in (1.0, 0.1)))
    assert density.expand([2, 3]).shape(torch.Size([4])) == (4, 2, 3, 5)  # Pyro's guides give lists
    wide = density.expand((2, 3))
    assert (wide.batch_shape, wide.event_shape) == ((2, 3), (5,))
    drawn = wide.sample((4,))
    assert drawn.shape == (4, 2, 3, 5) and len(drawn.unique()) == drawn.numel()
    np.testing.assert_allclose(wide.log_prob(drawn)[1, 0, 2], density.log_prob(drawn[1, 0, 2]), rtol=1e-12)


def test_scales_of_each_edge_broadcast():
    scale = double([[0.5], [2.0]])
    density = weights_of(dist.Normal(double(0.0), scale), dist.Normal(double(0.0), 0.1 * scale), [0.3, -0.3])
    assert (density.batch_shape, density.event_shape) == ((2,), (2,))
    rate, w, s = special.expit([0.3, -0.3]), np.array([[0.2, -1.0], [0.1, 3.0]]), scale.numpy()
    wanted = np.log(rate * stats.norm.pdf(w, 0, s) + (1 - rate) * stats.norm.pdf(w, 0, 0.1 * s)).sum(1)
    np.testing.assert_allclose(density.log_prob(double(w)), wanted, rtol=1e-10)


def test_widened_spikes_grow_to_half_of_their_slab_and_come_back():
    density = weights_of(*(dist.Normal(double(0.0), double(s)) for s in (1.0, 0.1)), [0.0])
    for heat, wanted in ((1.0, 0.1), (3.0, 0.3), (10.0, 0.5), (double(3.0), 0.3)):
        with widened_spikes(heat):
            assert density.spike.scale.item() == pytest.approx(wanted)
            there, absent = 0.5 * stats.norm.pdf(0.4), 0.5 * stats.norm.pdf(0.4, 0, wanted)
            assert density.edge_prob(double([0.4])).item() == pytest.approx(there / (there + absent))
    assert density.spike.scale.item() == 0.1


def test_a_spike_wider_than_half_of_its_slab_is_left_as_it_is():
    density = weights_of(*(dist.Normal(double(0.0), double(s)) for s in (1.0, 0.8)), [0.0])
    with widened_spikes(10.0):
        assert density.spike.scale.item() == 0.8


def test_a_widened_point_is_a_narrow_normal_and_draws_stay_those_of_the_point():
    density = weights_of(dist.Normal(double(0.0), double(2.0)), point(), [-30.0])
    with widened_spikes(2.0):
        assert density.spike.scale.item() == pytest.approx(0.2)
        assert density.log_prob(double([0.1])).item() == pytest.approx(stats.norm.logpdf(0.1, 0, 0.2))
        assert density.sample((5,)).abs().max() == 0
    assert density.spike.family == "point" and density.spike.scale.item() == 0


def test_spikes_are_narrow_again_after_an_error():
    density = weights_of(*(dist.Normal(double(0.0), double(s)) for s in (1.0, 0.1)), [0.0])
    with pytest.raises(ZeroDivisionError), widened_spikes(4.0):
        raise ZeroDivisionError
    assert density.spike.scale.item() == 0.1


def test_components_are_read_off_distributions():
    assert as_component("slab", dist.Laplace(0.0, 2.0))[:2] == ("laplace", torch.tensor(2.0))
    student = as_component("spike", dist.StudentT(4.0, 0.0, 0.5))
    assert (student.family, student.scale.item(), float(student.df)) == ("student", 0.5, 4.0)
    assert as_component("spike", point()).scale == 0
    assert as_component("slab", dist.Normal(0.0, 1.0)).df == float("inf")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_components_draws_and_density_agree(name):
    torch.manual_seed(1)
    family, law = FAMILIES[name]
    component = as_component("slab", family(0.7))
    np.testing.assert_allclose(component.log_prob(double(WEIGHTS)), law(0.7).logpdf(WEIGHTS), rtol=1e-10)
    drawn = component.sample(torch.Size((100, 50)))
    assert drawn.shape == (100, 50)
    assert stats.kstest(drawn.flatten().numpy(), law(0.7).cdf).pvalue > 0.005


def test_a_point_draws_zeros():
    assert Component("point", double(0.0)).sample(torch.Size((2, 3))).tolist() == [[0.0] * 3] * 2


def test_other_families_and_other_centres_are_refused():
    with pytest.raises(
        TypeError, match=r"slab: got HalfNormal, .* not negative are ps.gates times a ps.sample"
    ):
        as_component("slab", dist.HalfNormal(1.0))
    with pytest.raises(
        TypeError, match=r"slab: got Cauchy, wanted Normal, Laplace or StudentT around 0, such as"
    ):
        as_component("slab", dist.Cauchy(0.0, 1.0))
    with pytest.raises(
        TypeError, match=r"spike: got Gamma, wanted .* around 0 or Delta\(torch.tensor\(0\.\)\), such"
    ):
        as_component("spike", dist.Gamma(1.0, 1.0))
    with pytest.raises(TypeError, match="slab: got Delta, wanted"):
        as_component("slab", point())
    with pytest.raises(ValueError, match="slab: is around 1.5, wanted 0"):
        as_component("slab", dist.Normal(torch.tensor([1.5, 0.0]), 1.0))
    with pytest.raises(ValueError, match="spike: is around 0.25, wanted 0"):
        as_component("spike", dist.Delta(torch.tensor(0.25)))
