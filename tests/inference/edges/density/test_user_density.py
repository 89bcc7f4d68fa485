"""Spike and slabs of one's own in the chains: against quadrature, scipy and the densities in closed form."""

from __future__ import annotations

import re

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit, logit

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.mixture import MixtureDensity
from pyro_sparse.inference.edges.density.user_density import UserDensity, density_of
from pyro_sparse.priors import SpikeSlabPrior

pytestmark = pytest.mark.usefixtures("hurried_module")

SLAB, SPIKE = 0.8, 0.06


class Own(SpikeSlabPrior):
    """Two densities by their makers."""

    def __init__(self, slab, spike, **rates):
        super().__init__(**rates)
        self.parts = slab, spike

    def components(self):
        return tuple(make() for make in self.parts)


def student(scale):
    return lambda: dist.StudentT(3.0, 0.0, scale)


def sides():
    """Half of the slab's mass on either side, little around zero."""
    return dist.MixtureSameFamily(
        dist.Categorical(torch.ones(2)), dist.Normal(torch.tensor([-1.5, 1.5]), 0.4)
    )


def disguised(scale):
    """A Laplace density that does not say that it is one."""
    return lambda: dist.MixtureSameFamily(
        dist.Categorical(torch.ones(1)), dist.Laplace(torch.zeros(1), scale)
    )


def frozen(name):
    """Density, and scipy's slab and spike."""
    if name == "student":
        prior = Own(student(SLAB), student(SPIKE))
        return density_of(prior), stats.t(3, scale=SLAB).pdf, stats.t(3, scale=SPIKE).pdf
    one = stats.norm(1.5, 0.4)
    pdf = lambda w: (one.pdf(w) + one.pdf(-w)) / 2  # noqa: E731
    return density_of(Own(sides, lambda: dist.Normal(0.0, SPIKE))), pdf, stats.norm(0, SPIKE).pdf


def integrals(pdf, a, b, unit):
    """Of 1, u and u squared under exp(-a u^2/2 + b u) and the density of w = unit * u."""
    size = np.geomspace(1e-9, 1e4, 40_001)
    w = np.concatenate([-size[::-1], [0], size])
    mass = pdf(w) * np.exp(-a * (w / unit) ** 2 / 2 + b * w / unit)
    return [integrate.trapezoid(mass * (w / unit) ** n, w) for n in range(3)]


def test_known_families_keep_their_closed_forms():
    assert density_of(Own(lambda: dist.Laplace(0.0, 2.0), lambda: dist.Laplace(0.0, 0.1))) == MixtureDensity(
        True, 2.0, 0.1
    )
    assert density_of(Own(lambda: dist.Normal(0.0, 2.0), lambda: dist.Normal(0.0, 0.1))) == MixtureDensity(
        False, 2.0, 0.1
    )
    assert isinstance(
        density_of(Own(lambda: dist.Laplace(0.0, 2.0), lambda: dist.Normal(0.0, 0.1))), UserDensity
    )


def test_the_ladder_is_climbed_before_anything_is_read():
    class Annealed(Own):
        def anneal(self, progress):
            self.progress = progress

        def components(self):
            return dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1 if self.progress == 1 else 1.0)

    prior = Annealed(None, None)
    prior.anneal(0.3)
    assert density_of(prior) == MixtureDensity(False, 1.0, 0.1)
    assert prior.progress == 0.3


def test_quantiles_and_draws_are_those_of_the_densities():
    density, _, _ = frozen("student")
    np.testing.assert_allclose(
        density.slab_nodes(200), SLAB * stats.t(3).ppf((np.arange(200) + 0.5) / 200), rtol=1e-3
    )
    edge = np.arange(8000).reshape(2, -1) % 2 == 0
    w = density.drawn(edge, np.random.default_rng(0))
    assert stats.kstest(w[edge] / SLAB, stats.t(3).cdf).pvalue > 1e-3
    assert stats.kstest(w[~edge] / SPIKE, stats.t(3).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["student", "sides"])
def test_densities_and_their_slopes(name):
    density, slab, spike = frozen(name)
    w = np.linspace(-3, 3, 60).reshape(2, 30)
    at, odds, must = torch.as_tensor(w), torch.tensor(0.4), torch.zeros(2, 30, dtype=torch.bool)
    share = expit(0.4)
    mixed = share * slab(w) + (1 - share) * spike(w)
    seen = mixed > 1e-30
    found = density.log_prob(at, odds, must).numpy()
    np.testing.assert_allclose(found[seen], np.log(mixed)[seen], rtol=1e-5)
    np.testing.assert_allclose(
        density.edge(at, odds).numpy()[seen], (share * slab(w) / mixed)[seen], atol=1e-6
    )
    edge = np.abs(w) > 0.3
    level, slope = density.energy(at, torch.as_tensor(edge))
    np.testing.assert_allclose(level.numpy(), -np.log(np.where(edge, slab(w), spike(w))), rtol=1e-5)
    up, down = (density.energy(at + h, torch.as_tensor(edge))[0] for h in (1e-5, -1e-5))
    np.testing.assert_allclose(slope.numpy(), ((up - down) / 2e-5).numpy(), rtol=1e-3, atol=1e-3)
    units = density.in_slabs()
    u = w / units.unit
    np.testing.assert_allclose(
        units.log_prob(u, np.full(u.shape, 0.4)), found + np.log(units.unit), rtol=1e-5
    )
    assert density.log_slab(torch.tensor([np.nan, np.inf])).isnan().all()


@pytest.mark.parametrize("name", ["student", "sides"])
def test_integrals_on_the_grid(name):
    density, slab, spike = frozen(name)
    units = density.in_slabs()
    a = np.repeat([0.5, 4.0, 200.0], 3)
    b = a * np.tile([0.0, 0.3, 2.0], 3)
    one, zero = (
        [integrals(pdf, *pair, units.unit) for pair in zip(a, b, strict=True)] for pdf in (slab, spike)
    )
    found = units.tilted(a, b, np.full(a.shape, 0.4))
    for part, wanted in ((found.slab, np.array(one)), (found.spike, np.array(zero))):
        mean = wanted[:, 1] / wanted[:, 0]
        np.testing.assert_allclose(part.log_norm, np.log(wanted[:, 0]), atol=5e-3)
        np.testing.assert_allclose(part.mean, mean, atol=5e-3)
        np.testing.assert_allclose(part.var, wanted[:, 2] / wanted[:, 0] - mean**2, rtol=2e-2)
    odds = np.exp(0.4) * np.array(one)[:, 0] / np.array(zero)[:, 0]
    np.testing.assert_allclose(found.prob, odds / (1 + odds), atol=2e-3)
    drawn = units.draw(
        np.full(4000, 4.0), np.full(4000, 1.2), np.ones(4000, dtype=bool), np.random.default_rng(1)
    )
    grid = np.linspace(-6, 6, 20_001)
    mass = slab(grid * units.unit) * np.exp(-2 * grid**2 + 1.2 * grid)
    cdf = integrate.cumulative_trapezoid(mass, grid, initial=0)
    assert stats.kstest(drawn, lambda u: np.interp(u, grid, cdf / cdf[-1])).pvalue > 1e-3


@pytest.mark.parametrize("name", ["student", "sides"])
def test_steps_come_to_rest_at_the_posterior(name):
    """Of one weight under a parabola, begun far away; and where there must be an edge."""
    density, slab, spike = frozen(name)
    units, rng = density.in_slabs(), np.random.default_rng(0)
    a, b, odds = np.full((2, 3000), 6.0), np.full((2, 3000), 3.0), np.full((2, 3000), 0.4)
    odds[1] = np.inf
    u, total = np.full(a.shape, 4.0), np.zeros(a.shape)
    for sweep in range(60):
        u, edge, p = units.stepped(a, b, odds, u, rng)
        total += p * (sweep >= 30)
    one, zero = integrals(slab, 6.0, 3.0, units.unit), integrals(spike, 6.0, 3.0, units.unit)
    wanted = np.exp(0.4) * one[0] / (np.exp(0.4) * one[0] + zero[0])
    assert abs((total[0] / 30).mean() - wanted) < 0.01
    assert abs(edge[0].mean() - wanted) < 0.04
    assert (total[1] == 30).all() and edge[1].all()
    mean = wanted * one[1] / one[0] + (1 - wanted) * zero[1] / zero[0]
    assert abs(u[0].mean() - mean) < 0.04 and abs(u[1].mean() - one[1] / one[0]) < 0.04


# ---------------------------------------------------------------------------------------------- whole fits

EDGES = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1], [1, 0], [0, 0], [0, 1]], dtype=bool)


def fitted(prior, decoder="linear", **rest):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((60, 2))
    x = z @ (EDGES * rng.uniform(0.7, 1.2, EDGES.shape)).T + 0.8 * rng.standard_normal((60, 8))
    model = ps.models.SparseDecoder(
        8, 2, decoder=decoder, prior=prior, anchors={0: 0, 2: 1}, factor_cov=False, **rest
    )
    return ps.fit(model, x, steps=300, restarts=2, seed=0, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["linear", "mlp"])
def test_a_disguised_law_has_the_edges_of_the_one_in_closed_form(decoder):
    how = {"sweeps": 900, "warm_up": 150} if decoder == "linear" else {"sweeps": 960, "warm_up": 240}
    plain = fitted(ps.priors.SpikeSlabLasso(lambda1=1.0, lambda0=20.0, b=2.0), decoder)
    own = Own(disguised(1.0), disguised(0.05), b=2.0)
    own.setup(8, 2, 2, allowed=plain.model.prior.allowed)
    own.eta = plain.model.prior.eta.clone()
    disguise = ps.fit(plain.model, plain.table.x, steps=1, restarts=2, progress=False)
    disguise.model.load_state_dict(plain.model.state_dict())
    disguise.model.prior = own
    assert isinstance(density_of(own), UserDensity)
    p, q = (
        f.edge_posterior("mcmc", seed=1, **how)["edge_posterior"]["probability"] for f in (plain, disguise)
    )
    assert np.abs(p.to_numpy() - q.to_numpy()).max() < (0.06 if decoder == "linear" else 0.15)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("likelihood", "decoder"),
    [
        ("normal", "linear"),
        pytest.param("normal", "mlp", marks=pytest.mark.slow),
        pytest.param("bernoulli", "linear", marks=pytest.mark.slow(hurried=True)),
    ],
)
def test_probabilities_are_what_edge_posterior_gives(likelihood, decoder):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 2)) @ (1.5 * EDGES).T + 0.5 * rng.standard_normal((200, 8))
    x = (x > 0).astype(float) if likelihood == "bernoulli" else x
    model = ps.models.SparseDecoder(
        8,
        2,
        likelihood=likelihood,
        decoder=decoder,
        prior=Own(student(0.8), student(0.02)),
        anchors={0: 0, 2: 1},
    )
    fit = ps.fit(model, x, steps=300, restarts=1, progress=False)
    idata = fit.edge_posterior(sweeps=100, warm_up=40)
    assert idata.attrs["edge_method"] == "mcmc" and idata.attrs["is_score"] == 0
    assert np.isnan(idata.attrs["prior_p_value"]) and np.isnan(idata.attrs["prior_scales"]).all()
    p = idata["edge_posterior"]["probability"].to_numpy()
    assert p[EDGES].mean() > p[~EDGES].mean() + 0.5
    with pytest.raises(ValueError, match="learn_scales: the scales that can be learned are those of Laplace"):
        fit.edge_posterior("mcmc", learn_scales=True)


def test_simulated_tables_come_from_the_prior():
    model = ps.models.SparseDecoder(
        40, 2, decoder="linear", prior=Own(student(0.8), student(0.02), expected_size=20), factor_cov=False
    )
    simulate, _ = ps.calibrate.experiment(model, 20)
    edge, size = [], []
    for seed in range(30):
        truth, _ = simulate(np.random.default_rng(seed))
        edge.append(truth["edge"].mean())
        size.append(np.abs(truth["weight"][truth["edge"] == 1]).mean())
    assert abs(np.mean(edge) - 0.5) < 0.15 and np.mean(size) > 0.3


class Learned(Own):
    def allocate(self):
        super().allocate()
        self.log_scale = torch.nn.Parameter(torch.zeros(self.n_restarts, 1, 1))


class Said(Own):
    def edge_log_odds(self, weights):
        return super().edge_log_odds(weights) + 1


class OnlyPrior(ps.priors.Prior):
    def distribution(self):
        return dist.StudentT(3.0, 0.0, 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (
            Own(lambda: dist.Normal(0.2, 1.0), lambda: dist.Normal(0.0, 0.1)),
            "slab of Own is not symmetric around",
        ),
        (
            Own(student(1.0), lambda: dist.Delta(torch.tensor(0.0))),
            "spike of Own has a total mass of 0, wanted",
        ),
        (
            Own(student(1.0), lambda: dist.Normal(torch.zeros(8, 1), 0.1)),
            r"the spike of Own.components\(\) has shape",
        ),
        (
            Said(student(1.0), student(0.1)),
            "Said.edge_log_odds is not the edge_log_odds that the chains sample",
        ),
        (OnlyPrior(), "this is OnlyPrior; for probabilities derive it from SpikeSlabPrior"),
    ],
)
def test_what_chains_cannot_take_is_said(prior, message):
    fit = fitted(ps.priors.SpikeSlabLasso())
    fit.model.prior = prior
    prior.setup(8, 2, 2)
    with pytest.raises(ValueError, match=message):
        fit.edge_posterior("mcmc")
    if prior.edge_log_odds(fit.model.weights) is not None:
        found = fit.edge_posterior()
        assert found.attrs["edge_method"] == "score" and re.search(message, found.attrs["chosen_because"])


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_learned_parameters_are_not_drawn():
    fit = fitted(Learned(student(1.0), student(0.1)))
    found = fit.edge_posterior(sweeps=14, warm_up=3, num_draws=5)
    assert found.attrs["edge_method"] == "program" and found.attrs["is_score"] == 0
    assert "Learned learns parameters (nn.Parameter)" in found.attrs["chosen_because"]
    name = next(name for name, _ in fit.model.prior.named_parameters())
    assert f"The chains take prior.{name} as the fit left it" in found.attrs["verdict"]


@pytest.mark.slow
def test_probabilities_of_draws_are_calibrated():
    """Weights seen with noise: an edge of probability p is there in a share p of cases."""
    density, slab, spike = frozen("sides")
    units, rng = density.in_slabs(), np.random.default_rng(5)
    share, a = 0.3, 10.0
    edge = rng.random(20_000) < share
    w = density.drawn(edge, rng)
    y = w / units.unit + rng.standard_normal(len(w)) / np.sqrt(a)
    p = units.tilted(np.full(len(w), a), a * y, np.full(len(w), logit(share))).prob
    bins = np.digitize(p, [0.1, 0.3, 0.6, 0.9])
    for k in np.unique(bins):
        own = bins == k
        assert abs(p[own].mean() - edge[own].mean()) < 4 * np.sqrt(0.25 / own.sum())
