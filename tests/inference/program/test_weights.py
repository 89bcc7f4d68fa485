"""Kernels of edges and gates in the long run, against enumeration in closed form and quadrature."""

from __future__ import annotations

import itertools

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, special, stats

from pyro_sparse.inference.program.edge_densities import edge_prob
from pyro_sparse.inference.program.weights import WeightSampler
from tests.inference.program._long_runs import check, of_copies, of_weights, on_grid, run

rng = np.random.default_rng(2)
Z = rng.standard_normal((8, 2)) @ np.array([[1.0, 0.5], [0.0, 0.9]])
X = Z @ np.array([0.5, 0.25]) + 0.8 * rng.standard_normal(8)
NOISE = 0.8
ODDS = np.array([-0.6, 0.4])
LAWS = {
    "normal": (lambda s: dist.Normal(0.0, s), lambda s: stats.norm(0, s).logpdf),
    "laplace": (lambda s: dist.Laplace(0.0, s), lambda s: stats.laplace(0, s).logpdf),
    "student": (lambda s: dist.StudentT(3.0, 0.0, s), lambda s: stats.t(3, 0, s).logpdf),
}


def gaussian(mean):
    return dist.Normal(mean, NOISE)


def gaussian_log(w1, w2):
    mean = Z[:, 0, None, None] * w1 + Z[:, 1, None, None] * w2
    return stats.norm.logpdf(X[:, None, None], mean, NOISE).sum(0)


def sampler_of(slab, spike, cells=gaussian, x=X, z=Z, odds=ODDS, **options):
    program = of_weights(slab, spike, torch.as_tensor(odds), cells)
    density = of_copies(x, z, program, z.shape[1], **options)
    torch.manual_seed(11)
    return WeightSampler(density, density.blocks["W"], density.start), density


def look(density):
    """(chain, feature, 3, factor): edge, weight, its square."""

    def seen(u):
        probability = edge_prob(u["W"], density.edges(u)["W"], density.families["W"])
        return torch.stack([probability, u["W"], u["W"] ** 2], 2)

    return seen


def enumerated(slab, spike):
    """The four graphs of two normal weights of variances slab or spike: P(edge), mean, second moment."""
    log_evidence, moments = [], []
    for graph in itertools.product((0, 1), repeat=2):
        variance = np.where(graph, slab**2, spike**2)
        cover = NOISE**2 * np.eye(len(X)) + Z @ np.diag(variance) @ Z.T
        prior = np.where(graph, ODDS, 0) - np.log1p(np.exp(ODDS))
        log_evidence.append(stats.multivariate_normal(np.zeros(len(X)), cover).logpdf(X) + prior.sum())
        gain = np.diag(variance) @ Z.T @ np.linalg.inv(cover)
        mean, left = gain @ X, np.diag(variance) - gain @ Z @ np.diag(variance)
        moments.append([np.array(graph, float), mean, mean**2 + np.diag(left)])
    weight = special.softmax(log_evidence)
    return np.einsum("g,gmk->mk", weight, np.array(moments))


@pytest.mark.slow
def test_normal_weights_agree_with_the_evidence_of_all_graphs():
    sampler, density = sampler_of(dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1))
    assert sampler.method == "exact"
    wanted = enumerated(1.0, 0.1)
    assert 0.2 < wanted[0].min() and wanted[0].max() < 0.9  # neither is sure
    check(run(sampler, density.start, 150, 20, look(density)), wanted)


POINT = "a point mass is recorded as a narrow normal (see test_recorded), and every weight counts as an edge"


def test_weights_of_a_point_spike_agree_with_the_evidence_of_all_graphs():
    sampler, density = sampler_of(dist.Normal(0.0, 1.0), dist.Delta(torch.tensor(0.0)))
    check(run(sampler, density.start, 150, 20, look(density)), enumerated(1.0, 0.0))


def test_the_grid_of_the_next_tests_agrees_with_the_evidence_of_all_graphs():
    normal = LAWS["normal"][1]
    np.testing.assert_allclose(
        on_grid(gaussian_log, normal(1.0), normal(0.1), ODDS), enumerated(1.0, 0.1), rtol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slab", "spike"), [("laplace", "laplace"), ("student", "student"), ("normal", "laplace")]
)
def test_scale_mixtures_agree_with_quadrature(slab, spike):
    """Laplace and Student weights are normal with variances that are drawn."""
    sampler, density = sampler_of(LAWS[slab][0](0.8), LAWS[spike][0](0.1))
    assert sampler.is_exact  # the likelihood is a quadratic; the densities of the weights need not be
    wanted = on_grid(gaussian_log, LAWS[slab][1](0.8), LAWS[spike][1](0.1), ODDS)
    check(run(sampler, density.start, 180, 20, look(density)), wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slab", "spike"),
    [("student", "student"), ("laplace", "laplace")],
)
def test_without_data_weights_follow_their_prior(slab, spike):
    """Shares within some distances of zero: variances that are drawn wrongly show here at once."""

    def hardly(mean):
        return dist.Normal(mean, 1e4)

    sampler, density = sampler_of(LAWS[slab][0](1.0), LAWS[spike][0](0.2), hardly, odds=np.zeros(2))
    bounds = np.array([0.1, 0.4, 1.5])
    there, absent = (mass_within(LAWS[name][1](s), bounds) for name, s in ((slab, 1.0), (spike, 0.2)))

    def shares(u):
        return torch.stack([(u["W"].abs() < b).double().mean(-1) for b in bounds], -1)

    check(run(sampler, density.start, 120, 20, shares), (there + absent) / 2)


def mass_within(log_density, bounds):
    """Of each bound around zero."""
    return np.array([2 * integrate.quad(lambda w: np.exp(log_density(w)), 0, b)[0] for b in bounds])


@pytest.mark.parametrize("slab", ["normal", "laplace", "student"])
def test_an_edge_that_is_added_has_the_odds_of_the_integral(slab):
    sampler, density = sampler_of(LAWS[slab][0](1.0), LAWS["normal"][0](0.1))
    weight = np.array([0.3, -0.2])
    u = {"W": torch.as_tensor(weight).expand_as(density.start["W"]).clone()}
    found = sampler.prob_if_added(u)[0].numpy()
    grid = np.linspace(-12, 12, 20_001)

    def log_evidence(log_density, k):
        w = [weight[0] + 0 * grid, weight[1] + 0 * grid]
        w[k] = grid
        mean = Z[:, 0, None] * w[0] + Z[:, 1, None] * w[1]
        level = stats.norm.logpdf(X[:, None], mean, NOISE).sum(0) + log_density(grid)
        return np.log(integrate.trapezoid(np.exp(level - level.max()), grid)) + level.max()

    for k in range(2):
        gain = log_evidence(LAWS[slab][1](1.0), k) - log_evidence(LAWS["normal"][1](0.1), k)
        wanted = special.expit(ODDS[k] + gain)
        assert found[:, k].mean() == pytest.approx(wanted, abs=1e-6 if slab == "normal" else 0.02)


# ---- likelihoods that are no quadratic ------------------------------------------------------------------
MORE_Z = rng.standard_normal((24, 2)) @ np.array([[1.0, 0.5], [0.0, 0.9]])
BITS = (rng.random(24) < special.expit(MORE_Z @ [0.9, 0.3])).astype(float)


def bernoulli(mean):
    return dist.Bernoulli(logits=mean)


def bernoulli_log(w1, w2):
    logits = MORE_Z[:, 0, None, None] * w1 + MORE_Z[:, 1, None, None] * w2
    return -np.logaddexp(0, np.where(BITS[:, None, None] > 0, -logits, logits)).sum(0)


@pytest.mark.slow
@pytest.mark.parametrize(("slab", "parts"), [("normal", 1), ("laplace", 1), ("normal", 2)])
def test_weights_of_bits_agree_with_quadrature(slab, parts):
    """All factors in one proposal, or one factor at a time."""
    sampler, density = sampler_of(LAWS[slab][0](1.0), LAWS["normal"][0](0.15), bernoulli, x=BITS, z=MORE_Z)
    assert sampler.method == "surrogate in 1 part(s)"
    sampler.n_parts = parts
    wanted = on_grid(bernoulli_log, LAWS[slab][1](1.0), LAWS["normal"][1](0.15), ODDS, largest=20.0)
    start = {"W": 0.2 * density.start["W"]}
    check(run(sampler, start, 150, 30, look(density)), wanted, most=0.03 if slab == "normal" else 0.05)
    assert sampler.n_parts == parts and 0.5 < sampler.acceptance < 1


@pytest.mark.slow
@pytest.mark.parametrize("is_bits", [False, True])
def test_probabilities_of_the_sweep_agree_too(is_bits):
    """Weights summed out where the likelihood is a quadratic, else the mean over several draws of them."""
    data = {"cells": bernoulli, "x": BITS, "z": MORE_Z} if is_bits else {}
    log = bernoulli_log if is_bits else gaussian_log
    sampler, density = sampler_of(dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.15), **data)
    wanted = on_grid(log, LAWS["normal"][1](1.0), LAWS["normal"][1](0.15), ODDS, largest=20.0)[0]
    start = {"W": 0.2 * density.start["W"]}
    means = run(sampler, start, 100, 30, lambda _: sampler.drawn[1])
    check(means, wanted, most=0.03)
    given_weights = run(sampler, start, 100, 0, look(density))[:, 0]
    assert (means.std(0) < given_weights.std(0)).all()


class Walk:
    """A sampler that does nothing else."""

    def __init__(self, sampler):
        self.sampler = sampler

    def draw(self, u, adapts):
        weight = self.sampler.density.pack(self.sampler.block, u)
        level = self.sampler.density.total(self.sampler.block, weight, u)
        return {"W": self.sampler._walked(weight, level, u)[0]}

    def settle(self):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("slab", ["normal", "laplace"])
def test_walks_agree_with_quadrature(slab):
    sampler, density = sampler_of(LAWS[slab][0](1.0), LAWS["normal"][0](0.15), bernoulli, x=BITS, z=MORE_Z)
    wanted = on_grid(bernoulli_log, LAWS[slab][1](1.0), LAWS["normal"][1](0.15), ODDS, largest=20.0)
    start = {"W": 0.2 * density.start["W"]}
    check(run(Walk(sampler), start, 250, 30, look(density)), wanted, most=0.06)
    assert 0.5 < sampler.walked < 1


@pytest.mark.slow
def test_weights_under_a_likelihood_of_two_modes_agree_with_quadrature():
    """Between the modes, where the running mean comes to be, the likelihood curves upwards."""
    x = np.array([1.2, 1.2, -1.2, -1.2])

    def cells(mean):
        return dist.StudentT(3.0, mean, 0.5)

    sampler, density = sampler_of(
        dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.3), cells, x=x, z=np.ones((4, 1)), odds=np.array([0.5])
    )
    sampler.centre = torch.zeros_like(density.start["W"])
    w = np.linspace(-8, 8, 4001)
    rate = special.expit(0.5)
    there, absent = rate * stats.norm.pdf(w), (1 - rate) * stats.norm.pdf(w, 0, 0.3)
    p = (there + absent) * np.exp(stats.t.logpdf(x[:, None] - w, 3, 0, 0.5).sum(0))
    p /= integrate.simpson(p, x=w)
    wanted = [integrate.simpson(p * value, x=w) for value in (there / (there + absent), w, w**2)]
    means = run(sampler, density.start, 200, 0, look(density))
    check(means[..., 0], wanted)


def test_more_factors_at_a_time_are_tried_before_fewer():
    sampler, density = sampler_of(
        dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1), bernoulli, x=BITS, z=MORE_Z, copies=2
    )
    u, sampler.acceptance = density.start, 0.1
    for _ in range(20):
        sampler.acceptance = min(sampler.acceptance, 0.1)
        u = sampler.draw(u, adapts=True)
    assert sampler.n_parts == 2 and sampler.method == "surrogate in 2 part(s)"


def test_the_first_sweeps_find_the_weights_that_the_data_ask_for():
    z = np.random.default_rng(0).standard_normal((60, 2))
    sampler, density = sampler_of(
        dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.05), x=z @ [1.5, 0.0], z=z, copies=5
    )
    u = density.start
    for _ in range(10):
        u = sampler.ascend(u)
    assert (u["W"][..., 0] - 1.5).abs().max() < 0.6 and u["W"][..., 1].abs().max() < 0.5


@pytest.mark.parametrize("cells", [gaussian, bernoulli])
def test_a_weight_sampler_goes_on_from_its_state(cells):
    x, z = (X, Z) if cells is gaussian else (BITS, MORE_Z)
    one, density = sampler_of(dist.Laplace(0.0, 1.0), dist.Normal(0.0, 0.1), cells, x=x, z=z, copies=3)
    u = density.start
    for _ in range(5):
        u = one.draw(u, adapts=True)
    two = WeightSampler(density, density.blocks["W"], density.start)
    two.load(one.state())
    drawn = []
    for sampler in (one, two):
        torch.manual_seed(0)
        drawn.append(sampler.draw(u, adapts=True)["W"])
    assert torch.equal(*drawn) and not torch.equal(drawn[0], u["W"])
