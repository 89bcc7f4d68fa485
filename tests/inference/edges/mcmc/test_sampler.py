"""Markov chains as a user meets it: what it finds, what it says of itself, what it refuses."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.stores import open_rows
from pyro_sparse.findings.finding import findings_of
from pyro_sparse.graphs.chain_groups import pool_chains
from pyro_sparse.inference.edges import DecoderPrior
from pyro_sparse.inference.edges.mcmc import diagnostics, linear, plan, running, sampler
from pyro_sparse.inference.edges.mcmc.initialise import has_cells
from pyro_sparse.inference.edges.mcmc.plan import chain_plan
from pyro_sparse.inference.edges.mcmc.running import run_chains
from pyro_sparse.inference.edges.mcmc.stopping import Thinned
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.posterior.arviz import arviz
from pyro_sparse.posterior.verdicts import concluded
from pyro_sparse.rivals import VAE

pytestmark = pytest.mark.usefixtures("hurried_module")


EDGES = np.array([[1, 0], [0, 1], [1, 0], [1, 1], [0, 1], [0, 0], [1, 0], [0, 1]], dtype=bool)
FAST = {"sweeps": 120, "num_draws": 40}


def table(n=150, seed=0, likelihood="normal"):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    f = z @ (EDGES * rng.choice([-1.0, 1.0], EDGES.shape)).T
    if likelihood == "poisson":
        return rng.poisson(np.exp(0.5 + 0.7 * f)).astype(float)
    if likelihood == "bernoulli":
        return (rng.random(f.shape) < 1 / (1 + np.exp(-2 * f))).astype(float)
    return f + 0.5 * rng.standard_normal(f.shape)


def fitted(x, restarts=1, **settings):
    own = {"decoder": "linear", "anchors": {0: 0, 1: 1}, "hidden": 6, **settings}
    own.setdefault("prior", ps.priors.SpikeSlabLasso(lambda0=20.0, b=2.0))
    model = ps.models.SparseDecoder(x.shape[1], 2, **own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ps.fit(model, x, restarts=restarts, steps=150, seed=0, progress=False)


@pytest.fixture(scope="module")
def fit():
    return fitted(table(), restarts=2)


def probability(idata):
    return ps.edge_prob(idata).to_numpy()


@pytest.mark.parametrize(
    ("likelihood", "decoder", "missing"),
    [
        ("normal", "linear", True),
        pytest.param("normal", "mlp", False, marks=pytest.mark.slow),
        ("poisson", "linear", False),
        pytest.param("bernoulli", "linear", True, marks=pytest.mark.slow),
        pytest.param("bernoulli", "mlp", False, marks=pytest.mark.slow),
        pytest.param("negative_binomial", "linear", False, marks=pytest.mark.slow),
        pytest.param("multinomial", "linear", False, marks=pytest.mark.slow),
    ],
)
def test_plain_edges_are_found_under_every_likelihood(likelihood, decoder, missing):
    counts = likelihood in ("negative_binomial", "multinomial")
    x = table(300 if likelihood == "bernoulli" else 120, likelihood="poisson" if counts else likelihood)
    if missing:
        x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    idata = fitted(x, likelihood=likelihood, decoder=decoder).edge_posterior("mcmc", sweeps=80, num_draws=20)
    p = probability(idata)
    assert ((p >= 0) & (p <= 1)).all() and np.isfinite(p).all()
    assert idata.attrs["is_score"] == 0 and idata.attrs["edge_method"] == "mcmc"
    if likelihood != "multinomial":  # where a row's total hides what all its counts share
        assert p[EDGES].mean() > p[~EDGES].mean() + 0.4


def test_the_object_holds_draws_of_every_chain(fit):
    idata = fit.edge_posterior("mcmc", sweeps=150, num_draws=40, chains=3)
    draws = idata["posterior"]
    assert draws["edge"].dims == ("chain", "draw", "feature", "factor")
    assert draws["edge"].shape == (3, 40, 8, 2) and set(np.unique(draws["edge"])) <= {0, 1}
    edges, stats = idata["edge_posterior"], idata["sample_stats"]
    assert stats["dense"].to_numpy().tolist() == [False, True, False]
    assert stats["restart"].to_numpy()[0] == fit.best and len(stats["log_joint"]) == 3
    by_chain, kept = edges["restart_probability"].to_numpy(), stats["kept"].to_numpy()
    np.testing.assert_allclose(edges["probability"], by_chain[kept].mean(0))
    np.testing.assert_allclose(edges["gap"], np.ptp(by_chain[kept], axis=0))
    drawn = draws["edge"].to_numpy()[kept].mean((0, 1))  # what the average of conditionals must agree with
    np.testing.assert_allclose(drawn, edges["probability"], atol=0.2)
    signs = np.sign(edges["weight"].to_numpy())[EDGES]
    np.testing.assert_array_equal(signs, np.sign(fit.weights[fit.best])[EDGES])
    assert any(word in idata.attrs["verdict"] for word in ("disputed", "disagree", "sweeps"))
    table = ps.summary(idata)
    assert "probability" in table and {"gap", "unresolved", "q_value"} <= set(table)


@pytest.mark.parametrize("decoder", ["linear", "mlp"])
@pytest.mark.slow
def test_effects_come_from_the_chains_as_the_weights_do(decoder):
    """The shares of variance of the program that made the table, also of edges that the fit does not have."""
    fit = fitted(table(n=400), decoder=decoder)
    fit = replace(fit, effects=np.zeros_like(fit.effects))
    idata = fit.edge_posterior("mcmc", sweeps=120, num_draws=40, chains=2)
    effect = idata["edge_posterior"]["effect"].to_numpy()
    np.testing.assert_allclose(effect, EDGES / (EDGES.sum(1, keepdims=True) + 0.25), atol=0.12)
    kept = idata["sample_stats"]["kept"].to_numpy()
    drawn = idata["posterior"]["weight"].to_numpy()[kept]
    np.testing.assert_allclose(effect, (drawn**2).mean((0, 1)))


@pytest.mark.slow(hurried=True)
def test_same_seed_same_draws(fit):
    first, again, other = (fit.edge_posterior("mcmc", seed=s, **FAST) for s in (3, 3, 4))
    assert first["posterior"].equals(again["posterior"])
    assert not first["posterior"].equals(other["posterior"])


def test_anchors_keep_their_factor(fit):
    idata = fit.edge_posterior("mcmc", **FAST)
    np.testing.assert_array_equal(probability(idata)[:2], np.eye(2))
    assert np.argwhere(idata["edge_posterior"]["given"].to_numpy()).tolist() == [[0, 0], [1, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("empty", [[], [1], [0, 1]])
def test_chains_that_begin_with_factors_turned_round_come_back_in_one_frame(empty):
    """Also where the fit has left factors empty, so that its loadings do not say which is which."""
    x = table()
    fit = fitted(x, anchors=None)
    state_fit = replace(fit)
    restarts, dense = chain_plan(state_fit, 2)
    kernel, state = sampler.chains_of(fit, fit.table, restarts, dense, DecoderPrior(), 0)
    turned = state._replace(
        weight=np.stack([state.weight[0], -state.weight[1][:, ::-1]]),
        edge=np.stack([state.edge[0], state.edge[1][:, ::-1]]),
    )
    run = {"sweeps": 600, "warm_up": 50, "held": 0, "dense": [False, False], "seed": 1, "num_draws": 20}
    pivot = fit.weights[fit.best].copy()
    pivot[:, empty] = 0
    found = run_chains(kernel, turned, pivot=pivot, groups=[np.arange(2)], **run)
    np.testing.assert_allclose(found.prob[0], found.prob[1], atol=0.25)
    np.testing.assert_allclose(found.weight[0].mean(0), found.weight[1].mean(0), atol=0.1)


def test_the_verdict_says_where_chains_left_the_axes_of_the_fit():
    own = np.array([[0.9, 0.0], [0.8, 0.1], [0.0, 0.7], [0.1, 0.8]])
    names = ["factor 1", "factor 2"]
    fit = SimpleNamespace(weights=own[None], effects=own[None] ** 2, best=0, factor_names=names)
    fit.model = SimpleNamespace(decoder_kind="linear")
    assert diagnostics._other_axes(fit, own * [1, -1]) == []
    turned = own.copy()
    turned[:, 1] += turned[:, 0]
    said = diagnostics._other_axes(fit, turned)
    cosine = own[:, 1] @ turned[:, 1] / np.linalg.norm(own[:, 1]) / np.linalg.norm(turned[:, 1])
    assert [str(finding) for finding in said] == [
        f"The chains see factor 2 in other axes than the fit (congruence {cosine:.2f}): go by their "
        "loadings, or pin it with an anchor"
    ]
    [both] = diagnostics._other_axes(fit, own @ [[1, 1], [-1, 1]])
    assert "see factor 1, factor 2 in other axes" in both.message and " to " in both.message
    assert both.factors == tuple(names) and "pin each" in both.remedy
    assert diagnostics._other_axes(fit, turned * [1, 0]) == []  # nothing to compare
    fit.model.decoder_kind = "mlp"
    assert diagnostics._other_axes(fit, turned) == []


def test_small_fits_have_four_chains_and_large_ones_two(monkeypatch):
    curved = fitted(table(60), decoder="mlp")
    short = {"sweeps": 20, "warm_up": 5, "num_draws": 5}
    assert curved.edge_posterior("mcmc", **short)["posterior"].sizes["chain"] == 4
    monkeypatch.setattr(sampler, "_SMALL", 1e-6)
    assert curved.edge_posterior("mcmc", **short, seed=1)["posterior"].sizes["chain"] == 2


@pytest.mark.slow(hurried=True)
def test_auto_says_what_it_chose_and_why(fit, tmp_path):
    assert fit.edge_posterior(num_draws=5, sweeps=60).attrs["edge_method"] == "mcmc"
    lasso = fitted(table(), prior=ps.priors.SpikeSlabNormal(spike_scale=0.05))
    assert lasso.edge_posterior("auto", sweeps=60).attrs["edge_method"] == "mcmc"
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    said = r"edge_posterior took 'score': a loaded fit holds no data; fit.edge_posterior\(X=X\), .* gives"
    with pytest.warns(RuntimeWarning, match=said):
        found = loaded.edge_posterior(num_draws=5)
    assert found.attrs["edge_method"] == "score" and "(X=X)" in found.attrs["chosen_because"]
    with pytest.warns(RuntimeWarning, match=said + ".*; of no use to 'score': learn_scales, time_budget"):
        loaded.edge_posterior(num_draws=5, learn_scales=True, time_budget=60)
    assert loaded.edge_posterior(num_draws=5, X=table(), sweeps=60).attrs["edge_method"] == "mcmc"


def test_a_certificate_of_a_loaded_fit_can_be_had_as_its_message_says(fit, tmp_path):
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    with (
        pytest.warns(RuntimeWarning, match="edge_posterior took 'score'"),
        pytest.raises(
            ValueError, match=r"scores, .* fit.edge_posterior\(X=X\), .* identify .* take as idata="
        ),
    ):
        ps.identify(loaded)
    found = ps.identify(loaded, idata=loaded.edge_posterior(X=table(), sweeps=60, num_draws=20))
    assert len(found.table) == loaded.weights.shape[-1]


def test_asking_again_costs_nothing(fit):
    first = fit.edge_posterior("score", num_draws=3)
    assert fit.edge_posterior("score", num_draws=3) is first
    assert fit.edge_posterior("score", num_draws=4) is not first


def test_a_time_budget_ends_the_chains(fit):
    idata = fit.edge_posterior("mcmc", sweeps=100_000, warm_up=20, num_draws=100_000, time_budget=0.5)
    assert running.LEAST_KEPT <= idata.attrs["sweeps"] < idata.attrs["sweeps_wanted"] == 99_980
    assert idata.attrs["stopped_by"] == "time" and "time budget ended the chains" in idata.attrs["verdict"]
    assert 100_000 > idata["posterior"].sizes["draw"] == idata.attrs["sweeps"]


@pytest.mark.parametrize(("tolerance", "sweeps"), [(10.0, 40), (0.0, 80)])
def test_chains_that_have_told_enough_end(fit, tolerance, sweeps):
    idata = fit.edge_posterior("mcmc", sweeps=120, warm_up=40, num_draws=10, tolerance=tolerance)
    assert idata.attrs["sweeps"] == sweeps and idata["posterior"].sizes["draw"] == 10
    assert idata.attrs["stopped_by"] == "" and idata.attrs["interrupted"] == 0
    assert "time budget" not in idata.attrs["verdict"]


def test_a_budget_shorter_than_the_warm_up_is_said_and_resolves_nothing(fit):
    with pytest.warns(
        RuntimeWarning, match="time_budget=0.001 is less than the warm-up takes, some "
    ) as said:
        idata = fit.edge_posterior("mcmc", sweeps=100, warm_up=50, num_draws=20, time_budget=1e-3)
    assert said[0].filename == __file__ and "for 50 sweeps of" in str(said[0].message)
    assert "so 4 sweeps warm up" in str(said[0].message)
    assert idata.attrs["sweeps"] == running.LEAST_KEPT


@pytest.mark.parametrize(
    ("blocks", "gap"), [(0, 0.2), pytest.param(2, 0.4, marks=pytest.mark.slow), (4, 0.4)]
)
def test_chains_go_on_while_they_differ_by_chance(monkeypatch, fit, blocks, gap):
    """Asked every half of what was wanted, for at most 80 sweeps more; the gaps are written here."""
    monkeypatch.setitem(sampler._SWEEPS, "exact", (60, 20, 5))
    monkeypatch.setitem(sampler._LONGER, "exact", 80)
    asked = []

    def mean_gap(tally):
        asked.append(tally.done)
        there = gap if blocks == 4 or len(asked) <= blocks else 0.0
        tally.total[0], tally.total[1:] = 0.0, there * tally.done
        return is_unsettled(tally)

    is_unsettled = running.Tally.is_unsettled
    monkeypatch.setattr(running.Tally, "is_unsettled", mean_gap)
    idata = fit.edge_posterior(num_draws=10, scores=True)  # asked of an option, so that no answer is kept
    assert idata.attrs["sweeps"] == 40 + 20 * blocks
    assert asked == [40 + 20 * k for k in range(min(blocks, 3) + 1)]
    asked.clear()
    assert fit.edge_posterior(sweeps=60, warm_up=20, num_draws=10).attrs["sweeps"] == 40
    assert not asked


@pytest.mark.filterwarnings("ignore:edge_posterior")
@pytest.mark.parametrize(
    ("decoder", "sweeps"), [pytest.param("linear", 120, marks=pytest.mark.slow), ("mlp", 40)]
)
def test_only_lines_go_on_whatever_the_likelihood(monkeypatch, decoder, sweeps):
    """Chains of one graph that never agree: three times as many sweeps, though they would stop early."""
    monkeypatch.setitem(sampler._SWEEPS, "small", (60, 20, 5))
    monkeypatch.setitem(sampler._LONGER, "small", 80)
    monkeypatch.setattr(running.Tally, "is_unsettled", lambda tally: True)
    answers = fitted(table(60, likelihood="bernoulli"), decoder=decoder, likelihood="bernoulli")
    assert answers.edge_posterior("mcmc", num_draws=5, chains=2).attrs["sweeps"] == sweeps


@pytest.mark.parametrize(
    ("gap", "done", "goes_on"),
    [
        (0.05, 100, False),
        (0.2, 100, False),
        (0.2, 900, True),
        (0.1, 900, False),
        (0.4, 100, True),
        (0.9, 100, True),
        (0.4, 900, True),
        (0.9, 900, False),
    ],
)
def test_far_apart_is_another_graph_only_after_many_sweeps(gap, done, goes_on):
    tally = tallied(gap, done, np.random.default_rng(0).normal(size=(100, 2, 3, 1)))
    assert tally.is_unsettled() == goes_on


def tallied(gap, done, loadings):
    """A tally of two chains whose edges differ by `gap`, with draws of loadings (draw, chain, 3, 1)."""
    tally = object.__new__(running.Tally)
    tally.done, tally.total, tally.draws = done, np.zeros((2, 3, 1)), Thinned(100)
    tally.total[1] = gap * done
    for loading in loadings:
        tally.draws.add((loading != 0, loading, None, {}))
    return tally


@pytest.mark.parametrize(("done", "gap", "goes_on"), [(499, 0.1, False), (500, 0.1, True), (500, 0.8, False)])
def test_chains_of_one_graph_go_on_while_they_differ_in_a_loading(done, gap, goes_on):
    """Means .8 standard deviations apart, which is much by ArviZ's R-hat; one loading never varies."""
    loadings = np.random.default_rng(0).normal(size=(100, 2, 3, 1))
    loadings[:, 1, 2], loadings[:, :, 0] = loadings[:, 1, 2] + 0.8, 0.0
    assert float(np.ravel(arviz().rhat(loadings[:, :, 2, 0].T))[0]) > 1.1
    assert tallied(gap, done, loadings).is_unsettled() == goes_on
    loadings[:, 1, 2] -= 0.8
    assert float(np.ravel(arviz().rhat(loadings[:, :, 2, 0].T))[0]) < 1.1
    assert not tallied(0.1, done, loadings).is_unsettled()


def test_chains_that_take_minutes_say_so_before_they_begin(monkeypatch):
    curved = fitted(table(60), decoder="mlp")
    short = {"sweeps": 20, "warm_up": 5, "num_draws": 5}
    monkeypatch.setattr(running, "_LONG", 1e-6)
    with pytest.warns(RuntimeWarning, match="20 sweeps over 60 rows may take some 1 second") as said:
        curved.edge_posterior("mcmc", **short)
    assert said[0].filename == __file__
    curved.edge_posterior("mcmc", **short, seed=1, time_budget=60.0)  # who gave a budget knows


def test_all_rows_are_used_unless_a_sweep_would_take_long(monkeypatch):
    curved = fitted(table(60), decoder="mlp")
    assert plan.row_limit(curved, False, 2) > 1000 * 60
    seconds = plan.seconds_of(curved, 2)
    assert plan.seconds_of(curved, 4) == pytest.approx(2 * seconds)
    monkeypatch.setattr(plan, "_SLOW", 700 * seconds)
    assert plan.row_limit(curved, False, 2) == 700
    assert plan.row_limit(curved, True, 2) == 100_000


@pytest.mark.parametrize("done", [10, 30])
def test_few_sweeps_resolve_nothing(done):
    fit = SimpleNamespace(weights=np.ones((1, 3, 1)), feature_names=list("abc"), factor_names=["factor 1"])
    fit.model = SimpleNamespace(decoder_kind="linear")
    edge = np.ones((2, 4, 3, 1), np.int8)
    chains = SimpleNamespace(edge=edge, weight=edge * 0.5, sweeps=done)
    chains.prob = edge.mean(1).astype(float)
    kept = pool_chains(chains.prob, 0 * chains.prob, np.zeros(2), 1.0)
    gap = np.zeros((3, 1))
    findings = diagnostics._agreement(fit, chains, kept, gap, False)
    few = "Only 10 sweeps count, too few to say that no edge is disputed between the chains: want 30"
    assert [str(finding)[: len(few)] for finding in findings] == ([few] if done == 10 else [])
    said = concluded([], findings, gap, "chain")
    assert ("No edge is disputed between the chains." in said) == (done == 30)


def test_chains_with_other_loadings_and_sizes_are_said():
    """Of factor 2 the second chain has other loadings; of factor 1 its weights are a third smaller."""
    rng = np.random.default_rng(0)
    weight = np.zeros((2, 40, 4, 2))
    weight[:, :, :2, 0] = 0.8
    weight[1, :, :2, 0] = 0.55
    weight[0, :, 2:, 1] = 0.7
    weight[1, :, 1:3, 1] = 0.7
    weight += 0.02 * rng.normal(size=weight.shape)
    names = ["factor 1", "factor 2"]
    linear, curved = (SimpleNamespace(decoder_kind=kind) for kind in ("linear", "mlp"))
    fit = SimpleNamespace(weights=weight[:, 0], feature_names=list("abcd"), factor_names=names, model=linear)
    (lost,) = diagnostics._lost_in_chains(fit, weight)
    assert lost.is_doubt and lost.factors == ("factor 2",)
    probability = np.zeros((2, 4, 2))
    probability[:, :2, 0] = 1.0
    chains = SimpleNamespace(weight=weight, prob=probability)
    (uneven,) = diagnostics._uneven_weights(fit, chains, np.array([True, True]))
    assert uneven.factors == ("factor 1",) and not uneven.is_doubt and "2 weights" in str(uneven)
    weight[1, :, :2, 0] = weight[0, ::-1, :2, 0]
    assert diagnostics._uneven_weights(fit, chains, np.array([True, True])) == []
    weight[1, :, 2:, 1] = weight[0, :, 2:, 1] * [-1, 1]  # of an even feature either sign is right
    weight[1, :, 1, 1] = weight[0, :, 1, 1]
    assert diagnostics._lost_in_chains(fit, weight)
    fit.model = curved
    assert diagnostics._lost_in_chains(fit, weight) == []


def test_chains_of_curves_are_near_one_another_within_what_their_volume_is_known_to(fit):
    curved = SimpleNamespace(model=SimpleNamespace(n_factors=6, decoder_kind="mlp"))
    prob = np.array([[[1.0]], [[1.0]], [[0.0]], [[0.0]]])
    level = np.array([0.0, 0.0, -200.0, -400.0])[:, None] * np.ones((4, 40))
    chains = SimpleNamespace(prob=prob, prob_error=0 * prob, log_joint=level, weight=np.ones((4, 40, 1, 1)))
    assert sampler._pooled(curved, chains, 1000).keep.tolist() == [True, True, True, True]  # one graph
    chains.prob = prob + np.array([0.0, 0.0, 0.0, 0.5])[:, None, None]
    assert sampler._pooled(curved, chains, 1000).keep.tolist() == [True, True, True, False]
    assert sampler._pooled(curved, chains, 10).keep.tolist() == [True, True, False, False]
    assert sampler._pooled(fit, chains, 1000).keep.tolist() == [True, True, False, False]


def test_chains_of_lines_are_near_one_another_within_what_their_draws_vary_by():
    counts = SimpleNamespace(likelihood=ps.likelihoods.Poisson(), n_factors=2, decoder_kind="linear")
    prob, level = np.zeros((4, 100, 2)), np.array([0.0, 0.0, -35.0, -45.0])[:, None] * np.ones((4, 3))
    prob[2, 0], prob[3, 1] = 1.0, 1.0
    weight = np.ones((4, 3, 100, 2))  # too few draws to know a volume: three roots of 200 are 42
    chains = SimpleNamespace(prob=prob, prob_error=0 * prob, log_joint=level, weight=weight)
    pool = sampler._pooled(SimpleNamespace(model=counts), chains, 1000)
    assert pool.keep.tolist() == [True, True, True, False]


def test_few_rows_are_said(fit):
    idata = fit.edge_posterior("mcmc", max_rows=40, **FAST)
    assert idata.attrs["rows_used"] == 40 and idata.attrs["interrupted"] == 0
    every = len(fit.sample_names)
    assert idata.attrs["verdict"].startswith(f"The chains used 40 of {every} rows")
    assert "more rows" not in idata.attrs["verdict"] and f"max_rows={every}" in idata.attrs["verdict"]
    assert "rows" not in {finding.kind for finding in findings_of(idata=fit.edge_posterior(**FAST))}


def test_interrupted_chains_give_what_there_is(fit, monkeypatch):
    real, calls = linear.LinearChains.sweep, []

    def sweep(self, *arguments):
        calls.append(0)
        if len(calls) == 80:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(linear.LinearChains, "sweep", sweep)
    with pytest.warns(RuntimeWarning, match="stopped after 39 of 80 sweeps"):
        found = fit.edge_posterior("mcmc", sweeps=120, warm_up=40)
    assert found.attrs["sweeps"] == 39 and found.attrs["sweeps_wanted"] == 80
    assert found.attrs["interrupted"] == 1 and found.attrs["stopped_by"] == "interrupt"
    calls.clear()
    calls.extend([0] * 60)
    with pytest.raises(KeyboardInterrupt):
        fit.edge_posterior("mcmc", sweeps=120, warm_up=40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 1}, "chains: want a whole number of at least 2"),
        ({"sweeps": 3}, "sweeps: want a whole number of at least 10, got 3"),
        ({"sweeps": 40, "warm_up": 35}, "warm_up: leaves 5 of sweeps=40"),
        ({"candidates": 0}, "candidates: want"),
        ({"num_draws": 0}, "num_draws: want"),
        ({"max_rows": 2}, "max_rows: want a whole number of at least 10"),
        ({"time_budget": 0.0}, "time_budget: want a positive number of seconds"),
        ({"tolerance": -0.1}, "tolerance: want a share of a variance, 0 or more, got -0.1"),
        ({"X": np.zeros((20, 3))}, "X: has 3 feature"),
        ({"seed": -1}, "seed: want a whole number of at least 0, got -1"),
        ({"decoder_prior": 3}, "decoder_prior: want a DecoderPrior, got 3"),
    ],
)
def test_bad_options_are_refused(fit, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit.edge_posterior("mcmc", **options)


def test_priors_without_spike_and_slab_are_refused():
    fit = fitted(table(), prior=ps.priors.Laplace())
    with pytest.raises(ValueError, match="of spike and slabs only, and this is Laplace"):
        fit.edge_posterior("mcmc")
    with pytest.raises(ValueError, match="head: want a positive number, got -1"):
        DecoderPrior(head=-1)


class Robust(ps.likelihoods.Normal):
    """Calls itself normal, and is not."""

    def forward(self, f, per_row=NOTHING):
        normal = super().forward(f, per_row)
        return dist.StudentT(2.0, normal.loc, normal.scale)


class RobustRows(ps.likelihoods.Normal):
    """Says of rows what `Robust` says of cells."""

    def observation(self, f, mask=None, per_row=NOTHING):
        cells = dist.StudentT(2.0, f, self._sd())
        return (cells if mask is None else cells.mask(mask.bool())).to_event(1)


class HalfRows(ps.likelihoods.Normal):
    def log_prob(self, f, x, mask=None, per_row=NOTHING):
        return 0.5 * super().log_prob(f, x, mask, per_row)


class TemperedShares(ps.likelihoods.Multinomial):
    def log_prob(self, f, x, mask=None, per_row=NOTHING):
        return 0.5 * super().log_prob(f, x, mask, per_row)


class Doubtful(ps.priors.SpikeSlabLasso):
    """Calls itself a spike-and-slab lasso, and sees no edge."""

    def edge_log_odds(self, weights):
        return torch.full_like(weights, -20.0)


class Unchanged(ps.priors.SpikeSlabLasso):
    """Other defaults, the same density."""

    def __init__(self):
        super().__init__(lambda0=20.0, b=2.0)


@pytest.mark.parametrize("make", [ps.models.DependencyVAE, VAE])
@pytest.mark.parametrize(
    ("method", "message"), [("mcmc", "the model has none"), ("score", "no edges to|no prior on weights")]
)
def test_models_without_a_prior_on_weights_are_refused(make, method, message):
    found = ps.fit(make(8, 2), table(), steps=5, restarts=1, progress=False)
    with pytest.raises(ValueError, match=message):
        found.edge_posterior(method)


@pytest.mark.slow
def test_a_subclass_that_says_something_else_is_taken_at_its_word():
    x = table()
    x[np.random.default_rng(1).random(x.shape) < 0.03] += 25
    p = probability(fitted(x, likelihood=Robust()).edge_posterior("mcmc", **FAST))
    assert p[EDGES].mean() > p[~EDGES].mean() + 0.4  # outliers would hide them from a normal
    assert fitted(table(), prior=Doubtful()).edge_posterior().attrs["edge_method"] == "score"
    assert fitted(table(), prior=Unchanged()).edge_posterior(**FAST).attrs["edge_method"] == "mcmc"


def test_shares_that_are_weighed_otherwise_are_no_multinomial():
    assert has_cells(ps.likelihoods.Categorical()) and not has_cells(TemperedShares())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RobustRows, HalfRows])
def test_rows_that_are_more_than_their_cells_are_refused(kind):
    fit = fitted(table(), likelihood=kind())
    with pytest.raises(
        ValueError, match=f"ask `forward` for the density of each cell, and {kind.__name__} says"
    ):
        fit.edge_posterior("mcmc", **FAST)
    found = (
        fit.edge_posterior(sweeps=14, warm_up=3, num_draws=5).attrs
        if kind is RobustRows
        else fit.edge_posterior().attrs
    )
    assert found["edge_method"] == ("program" if kind is RobustRows else "score")  # the engine asks for rows
    assert kind.__name__ in found["chosen_because"]


class DoubleExponential(ps.likelihoods.Likelihood):
    """Its logarithm has a corner and no bend."""

    standardise = True

    def forward(self, f, per_row=NOTHING):
        return dist.Laplace(f, torch.full_like(f, 0.4))

    def mean(self, f, per_row=NOTHING):
        return f


@pytest.mark.parametrize("decoder", ["linear", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_likelihood_without_a_bend(decoder):
    idata = fitted(table(), likelihood=DoubleExponential(), decoder=decoder).edge_posterior("mcmc", **FAST)
    p = probability(idata)
    none = ~EDGES & EDGES.any(1, keepdims=True)  # a column of noise is wider than this density allows
    assert p[EDGES].min() > 0.8 and p[none].mean() < 0.4


def test_a_loaded_fit_wants_its_data(fit, tmp_path):
    fit.save(tmp_path / "fit.pt")
    with pytest.raises(ValueError, match="X: a loaded fit holds no data"):
        ps.load(tmp_path / "fit.pt").edge_posterior("mcmc")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (table()[:9], r"X: has 9 row\(s\), wanted at least 10 to learn from"),
        (np.full((40, 8), np.nan), r"X: row 0 has no observed value \(40 such row\(s\)\); drop it"),
        (np.where(np.arange(40)[:, None] == 7, np.nan, table(40)), "X: row 7 has no observed value"),
        (open_rows(table()[:9]), r"X: has 9 row\(s\), wanted at least 10"),
    ],
)
def test_rows_that_chains_cannot_learn_from(fit, x, message):
    with pytest.raises(ValueError, match=message):
        fit.edge_posterior("mcmc", X=x, sweeps=20)


@pytest.mark.parametrize("decoder", ["linear", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_multinomial_row_without_a_count_does_no_harm(decoder):
    x = table(40, likelihood="poisson")
    x[3] = 0
    fit = fitted(x, likelihood="multinomial", decoder=decoder)
    idata = fit.edge_posterior("mcmc", sweeps=20, num_draws=5)
    assert np.isfinite(probability(idata)).all()
    assert np.isfinite(idata["sample_stats"]["log_joint"]).all()
