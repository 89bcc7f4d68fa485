"""Models of one's own, sampled by the engine: their probabilities, what they are told, what is refused."""

from __future__ import annotations

import copy
import types
from types import SimpleNamespace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.findings.finding import findings_of, found_by_one_restart
from pyro_sparse.graphs.chain_groups import pool_chains
from pyro_sparse.inference.edges.mcmc import running
from pyro_sparse.inference.edges.mcmc.density_check import OtherProgram
from pyro_sparse.inference.edges.program import model_edges
from pyro_sparse.inference.edges.program.findings import chain_findings, loose_factors
from pyro_sparse.inference.edges.program.model_edges import _unlike_prior, _without_constraints
from pyro_sparse.inference.edges.program.model_program import model_program, refuse_other_density
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.likelihoods import Bernoulli
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.models import SparseDecoder
from pyro_sparse.priors import SpikeSlabNormal

pytestmark = pytest.mark.usefixtures("hurried_module")

G, K, N = 6, 2, 60
FAST = {"sweeps": 30, "warm_up": 10, "num_draws": 8, "chains": 2}
PRIOR_SCALES = {"slab_scale": 1.0, "spike_scale": 0.1}
PRIOR = {"decoder": "linear", "prior": SpikeSlabNormal(**PRIOR_SCALES)}


class Bent(SparseDecoder):
    """Means that saturate."""

    def decode(self, z, weights):
        return 1.5 * (super().decode(z, weights) / 1.5).tanh()


class Gain(SparseDecoder):
    """A parameter of which nothing says what is believed."""

    def build(self, feature_names):
        super().build(feature_names)
        self.gain = torch.nn.Parameter(torch.ones(self.n_restarts, 1, 1))

    def decode(self, z, weights):
        return self.gain * super().decode(z, weights)


class Tied(SparseDecoder):
    """Factors with a given correlation."""

    def factor_prior(self):
        cov = 0.6 + 0.4 * torch.eye(self.n_factors).to(self.factor_cov)
        return dist.MultivariateNormal(self.factor_cov.new_zeros(self.n_restarts, 1, self.n_factors), cov)


class Shared(Bernoulli):
    """Cells that look at one another's predictors."""

    def observation(self, f, mask=None, per_row=NOTHING):
        return super().observation(f - f.mean(-1, keepdim=True), mask, per_row)


class Squared(SpikeSlabNormal):
    """Rates squared."""

    @property
    def inclusion(self):
        return self.eta**2


class Still(SpikeSlabNormal):
    """Rates that stay."""

    def update(self, weights, prob=None):
        self.eta.fill_(0.5)


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    weight = (rng.random((G, K)) < 0.5) * rng.normal(0, 0.8, (G, K))
    return rng.standard_normal((N, K)) @ weight.T + 0.5 * rng.standard_normal((N, G))


def fitted(model, x):
    return ps.fit(model, x, restarts=2, steps=10, seed=0, progress=False, holdout=0.0)


@pytest.fixture(scope="module")
def bent(x):
    return fitted(Bent(G, K, **PRIOR), x)


@pytest.mark.slow
def test_auto_takes_the_engine_and_says_why(bent):
    idata = bent.edge_posterior(**FAST)
    assert idata.attrs["edge_method"] == "program" and int(idata.attrs["is_score"]) == 0
    assert idata.attrs["chosen_because"].startswith("Bent.decode is not the decode")
    assert "chains of 20 sweeps over the program of Bent" in idata.attrs["note"]
    assert idata["posterior"]["eta"].shape == (2, 8, K)
    table = ps.summary(idata)
    assert not table.attrs["is_score"] and len(table) == G * K
    with pytest.raises(ValueError, match="loading"):
        ps.salient_edges(idata)


@pytest.mark.slow(hurried=True)
def test_chains_that_began_at_a_restart_began_with_its_weights(x, monkeypatch):
    """So that they are evidence for factors which the restart has not, and for no other."""
    asked = {}

    def first(loading, began, fitted, pool):
        asked.update(began=began, fitted=fitted)
        return np.array([True, False])

    monkeypatch.setattr(model_edges, "came_back", first)
    fit = fitted(SparseDecoder(G, K, **PRIOR), x)
    fit.findings = [found_by_one_restart(fit.factor_names, "fit more")]
    idata = fit.edge_posterior("program", **FAST)
    turned = idata["sample_stats"]["turned"].to_numpy()
    assert turned.tolist() == [False, True]
    np.testing.assert_array_equal(asked["began"][0], fit.weights[fit.best])
    assert not np.array_equal(asked["began"][1], fit.weights[fit.best])
    np.testing.assert_array_equal(asked["fitted"], fit.weights[fit.best])
    found = [finding for finding in findings_of(fit, idata) if finding.kind == "unconfirmed"]
    assert [(f.is_doubt, f.factors) for f in found] == [(True, ("factor 2",)), (False, ("factor 1",))]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer_and_the_callers_generator_stays(bent):
    state = torch.random.get_rng_state()
    first, second = (bent.edge_posterior("program", seed=3, **FAST) for _ in range(2))
    np.testing.assert_array_equal(*(ps.edge_prob(idata).to_numpy() for idata in (first, second)))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.slow
def test_what_stays_at_the_fits_values_is_said(x):
    for model, name in (
        (Gain(G, K, **PRIOR), "gain"),
        (SparseDecoder(G, K, decoder="linear", prior=Still()), "prior.eta"),
        (Tied(G, K, **PRIOR), "factor_cov"),
    ):
        idata = fitted(model, x).edge_posterior(**FAST)
        assert idata.attrs["edge_method"] == "program"
        messages = [f.message for f in findings_of(idata=idata) if f.kind == "parameters"]
        assert len(messages) == 1 and f"take {name} as the fit left it" in messages[0]
    plain = fitted(SparseDecoder(G, K, **PRIOR), x).edge_posterior("program", **FAST)
    assert not [f for f in findings_of(idata=plain) if f.kind == "parameters"]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["normal", "bernoulli", "poisson", "negative_binomial"])
@pytest.mark.parametrize("settings", [PRIOR, {"hidden": 3, "activation": "tanh"}, {"hidden": 3}])
def test_every_density_of_the_package_is_that_of_its_own_program(x, likelihood, settings):
    data = {"normal": x.copy(), "bernoulli": (x > 0) * 1.0}.get(likelihood, np.round(np.exp(x)))
    data[0, :2] = np.nan
    fit = fitted(SparseDecoder(G, K, likelihood=likelihood, forbidden=[(0, 1)], **settings), data)
    made = model_program(pick(fit.model, [fit.best]), fit.table)
    density = RecordedDensity(made.program, ps.Data(np.asarray(fit.table.x, dtype=float)), 2)
    refuse_other_density(made, fit.model, fit.best, fit.table, density)
    assert made.held == []
    assert {"W", "z", "x", "eta", "intercept", "correlation"} <= set(density.layout.sites)


def test_a_density_that_is_not_what_is_asked_for_is_noticed(bent):
    made = model_program(pick(bent.model, [bent.best]), bent.table)
    density = RecordedDensity(made.program, ps.Data(np.asarray(bent.table.x, dtype=float)), 2)
    refuse_other_density(made, bent.model, bent.best, bent.table, density)
    for change, words in (
        (lambda m: setattr(m, "decode", types.MethodType(doubled, m)), "`observation` says"),
        (lambda m: setattr(m, "factor_prior", types.MethodType(wide, m)), "`factor_prior` says"),
        (lambda m: setattr(m.prior, "slab_scale", 3.0), "mixture of slab and spike that its prior says"),
    ):
        model = copy.deepcopy(bent.model)
        change(model)
        with pytest.raises(OtherProgram, match=words):
            refuse_other_density(made, model, bent.best, bent.table, density)


def doubled(model, z, weights):
    return 2 * model.decoder(z, weights)


def wide(model):
    cov = model.factor_cov
    return dist.MultivariateNormal(cov.new_zeros(len(cov), 1, K), 4 * torch.eye(K).to(cov))


class Ridge(SparseDecoder):
    def model(self, batch):
        super().model(batch)
        pyro.factor("ridge", -self.weights.square().sum((1, 2)))


class Clamped(SparseDecoder):
    def project(self):
        super().project()


def test_what_no_chains_can_sample_gets_scores_and_the_reason(x):
    binary = (x > 0) * 1.0
    for model, data, words in (
        (Ridge(G, K, **PRIOR), x, "Ridge.model is not the model"),
        (Clamped(G, K, **PRIOR), x, "Clamped.project is not the project"),
        (SparseDecoder(G, K, decoder="linear", likelihood=Shared()), binary, "no chains can sample it"),
    ):
        with pytest.warns(RuntimeWarning, match="took 'score': .*of no use to 'score': chains, sweeps"):
            idata = fitted(model, data).edge_posterior(**FAST)
        assert int(idata.attrs["is_score"]) == 1 and words in idata.attrs["verdict"]
    with pytest.raises(OtherProgram, match="Ridge.model is not what the program of a model is made of"):
        fitted(Ridge(G, K, **PRIOR), x).edge_posterior("program", **FAST)


def test_a_slip_is_said_before_the_work(bent):
    for options, words in (
        ({"chains": 1}, "chains"),
        ({"sweeps": 30, "warm_up": 25}, "leaves 5"),
        ({"max_rows": 9}, "max_rows"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            bent.edge_posterior("program", **options)


@pytest.mark.slow
def test_chains_that_take_minutes_say_so_first(bent, monkeypatch):
    monkeypatch.setattr(running, "_LONG", 0.0)
    with pytest.warns(RuntimeWarning, match=r"30 sweeps over 60 rows may take .*fewer sweeps or time_budget"):
        bent.edge_posterior("program", **FAST)


def test_an_axis_is_open_where_draws_have_none_in_common():
    """One factor the same in all draws, one of random direction, one that is not in use."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((200, 5, 3))
    weight[..., 0] = np.arange(5) + 0.1 * rng.standard_normal((200, 5))
    probability = np.full((5, 3), 0.5) * [1, 1, 0.1]
    loose = loose_factors(weight, probability)
    assert list(loose) == [1] and loose[1] < 0.3


@pytest.mark.parametrize("has_axes", [True, False])
def test_only_axes_that_may_rotate_are_called_open(has_axes):
    rng = np.random.default_rng(0)
    weight, prob = rng.standard_normal((2, 20, 5, 2)), np.full((2, 5, 2), 0.5)
    draws = SimpleNamespace(
        weight=weight, prob=prob, sweeps=100, stopped_by="", sites={}, methods={}, prob_error=0 * prob
    )
    pool = pool_chains(prob, 0 * prob + 0.01, np.zeros(2), None, 15.0)
    names = SimpleNamespace(feature_names=list("abcde"), factor_names=["factor 1", "factor 2"])
    findings = chain_findings(names, draws, pool, 100, has_axes)
    assert [f.factors[0] for f in findings if f.kind == "axes"] == (names.factor_names if has_axes else [])


# ---- against other computations ----------------------------------------------------------------------------
def simulated(kind):
    """Two factors with a correlation of .3 and edges of middling size."""
    rng = np.random.default_rng(1001)
    weight = (rng.random((10, 2)) < 0.5) * rng.normal(0, 0.7, (10, 2))
    z = rng.standard_normal((200, 2)) @ np.linalg.cholesky([[1, 0.3], [0.3, 1]]).T
    f = z @ weight.T
    if kind == "bent":
        f = 1.5 * np.tanh(f / 1.5)
    return f + 0.6 * rng.standard_normal(f.shape)


@pytest.mark.slow
@pytest.mark.parametrize("constraints", [{}, {"forbidden": [(0, 0), (1, 1)], "required": [(2, 1)]}])
def test_edges_of_the_packages_model_are_those_of_the_special_chains(constraints):
    fit = ps.fit(SparseDecoder(10, 2, **PRIOR, **constraints), simulated("line"), restarts=4, progress=False)
    special, engine = (fit.edge_posterior(method) for method in ("mcmc", "program"))
    apart = np.abs(ps.edge_prob(special).to_numpy() - ps.edge_prob(engine).to_numpy())
    assert apart.mean() < 0.015 and apart.max() < 0.1
    loadings = [idata["edge_posterior"]["weight"].to_numpy() for idata in (special, engine)]
    np.testing.assert_allclose(*loadings, atol=0.08)
    rates = [idata["posterior"]["eta"].to_numpy().mean((0, 1)) for idata in (special, engine)]
    np.testing.assert_allclose(*rates, atol=0.03)


@pytest.mark.slow
def test_edges_of_a_subclass_are_those_of_the_same_program_written_out():
    model = Bent(10, 2, **PRIOR, factor_cov=False)
    fit = ps.fit(model, simulated("bent"), restarts=4, progress=False)
    ours = fit.edge_posterior(sweeps=1600)

    def program(d):
        k = torch.ones(d.n_factors)
        b = torch.as_tensor(fit.model.prior.b.double()).reshape(-1)
        eta = ps.sample("eta", dist.Beta(k, b * k).to_event(1), each="factor")
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            W = ps.edges("W", log_odds=torch.logit(eta), slab=slab, spike=spike, to=d.factors)
            c = pyro.sample("c", dist.Normal(0.0, 1.0))
            variance = pyro.sample("variance", dist.InverseGamma(1.5, 0.015))
        with d.rows:
            z = ps.factors("z", dist.Normal(0 * k, 1.0))
        with d.rows, d.features:
            mean = 1.5 * ((z @ W.mT + c) / 1.5).tanh()
            pyro.sample("x", dist.Normal(mean, variance.sqrt()), obs=d.x)

    written = ps.fit(ps.Program(program, 2), ps.Data(np.asarray(fit.table.x, dtype=float)), progress=False)
    theirs = written.edge_posterior(sweeps=1600)
    assert not [finding for finding in findings_of(idata=theirs) if "failed" in finding.message]
    p, q = ps.edge_prob(ours).to_numpy(), ps.edge_prob(theirs).to_numpy()
    orders = [[0, 1], [1, 0]]
    apart = min((np.abs(p - q[:, order]) for order in orders), key=np.sum)
    assert apart.mean() < 0.02 and apart.max() < 0.15


# ---- scales of the prior ---------------------------------------------------------------------------------
def drawn(scale, rate=0.4, chains=2, looks=40, size=(30, K)):
    """Weights from slabs of one scale, and a pool that keeps all chains."""
    rng = np.random.default_rng(0)
    shape = (chains, looks, *size)
    edge = rng.random(size) < rate
    weight = rng.normal(0, np.where(edge, scale, 0.1), size) + 0.01 * rng.standard_normal(shape)
    sites = {"eta": np.full((chains, looks, size[1]), rate)}
    return SimpleNamespace(weight=weight, sites=sites), SimpleNamespace(counts=np.ones(chains, bool))


@pytest.mark.parametrize(("scale", "says"), [(1.0, False), (12.0, True)])
def test_weights_unlike_their_prior_are_said(scale, says):
    fit = fitted(SparseDecoder(30, K, **PRIOR), np.random.default_rng(1).standard_normal((40, 30)))
    findings = _unlike_prior(fit, *drawn(scale))
    assert bool(findings) is says
    if says:
        assert findings[0].kind == "scales" and findings[0].size < 0.01


def test_no_scales_are_looked_at_where_rates_are_others_than_the_priors(x):
    fit = fitted(SparseDecoder(G, K, decoder="linear", prior=Squared(**PRIOR_SCALES)), x)
    assert _unlike_prior(fit, *drawn(12.0, size=(G, K))) == []
    draws, pool = drawn(12.0, size=(G, K))
    draws.sites.clear()
    assert _unlike_prior(fitted(SparseDecoder(G, K, **PRIOR), x), draws, pool) == []


# ---- constraints -----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_wrong_anchor_is_named_and_right_ones_are_not():
    rng = np.random.default_rng(0)
    edges = np.array([[1, 0], [0, 1], [1, 0], [1, 1], [0, 1], [0, 0], [1, 0], [0, 1]])
    table = np.tanh(rng.standard_normal((200, 2)) @ edges.T) * 1.5 + 0.3 * rng.standard_normal((200, 8))
    prior = SpikeSlabNormal(slab_scale=1.0, spike_scale=0.1, b=2.0)

    def findings(anchors):
        fit = fitted(Bent(8, 2, decoder="linear", prior=prior, anchors=anchors), table)
        idata = fit.edge_posterior(sweeps=150, warm_up=70, num_draws=8, chains=2)
        assert idata.attrs["edge_method"] == "program"
        return [f.message for f in findings_of(idata=idata) if f.kind == "constraints"]

    assert findings({0: 0, 1: 1}) == []
    against = findings({0: 0, 1: 1, 3: 0})
    assert len(against) == 1 and "would have edges to" in against[0]


@pytest.mark.slow(hurried=True)
def test_asking_beyond_constraints_leaves_the_random_stream_alone(x):
    fit = fitted(SparseDecoder(G, K, forbidden=[(0, 1)], **PRIOR), x)
    made = model_program(pick(fit.model, [fit.best]), fit.table)
    density = RecordedDensity(made.program, ps.Data(np.asarray(fit.table.x, dtype=float)), 2, seed=3)
    torch.manual_seed(7)
    state, seed = torch.random.get_rng_state(), torch.initial_seed()
    assert _without_constraints(fit, density, fit.table, density.start, None) is not None
    assert torch.equal(torch.random.get_rng_state(), state) and torch.initial_seed() == seed
