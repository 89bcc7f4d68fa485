"""The certificate: verdicts from draws, words, assumptions, refusals."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.certificates import identify
from pyro_sparse.certificates.facts import _only_if
from pyro_sparse.datasets import transition_data
from pyro_sparse.findings.finding import Finding, sentences
from pyro_sparse.inference.transition.transition_checks import AxisChecks, graph_findings
from pyro_sparse.posterior.rival_restarts import only_restart
from pyro_sparse.posterior.transitions import GraphDraws, transition_to_arviz


def fake_fit(restarts=2, d=3, lags=1, recovered=0.99, differing=0, gap=3.0, influence=1.0):
    columns = {"recovered": recovered, "edges_differing": differing, "gap": gap, "influence": influence}
    agreement = pd.DataFrame(columns, index=range(restarts))
    little_noise = AxisChecks(np.eye(d), np.zeros(d), np.zeros((d, d)))
    findings = [*graph_findings(agreement, 0, little_noise), *only_restart(restarts)]
    if restarts > 1 and (recovered < 0.95 or differing):
        findings.append(Finding("restarts", "no other restart agrees", severity="doubt"))
    return SimpleNamespace(
        n_restarts=restarts,
        best=0,
        elbo=np.zeros(restarts),
        heldout_elbo=np.zeros(restarts),
        agreement=agreement,
        findings=findings,
        warnings=sentences(findings),
        alignment={"permutation": np.tile(np.arange(d), (restarts, 1)), "sign": np.ones((restarts, d))},
        latent_names=[f"latent {k + 1}" for k in range(d)],
        action_names=["push", "pull"],
        settings={},
        model=SimpleNamespace(lags=lags),
    )


def idata_of(draws, is_score=False, fit=None, name="action"):
    """Draws (chain, draw, target, source) as an ArviZ object."""
    fit = fit or fake_fit(len(draws), draws.shape[2])
    p = draws.mean(1)
    graphs = {name: GraphDraws(draws, p[0], p, p)}
    return transition_to_arviz(fit, graphs, method="parent_sets", is_score=is_score, note="made up")


def draws_of(probability, n=400, chains=2):
    rng = np.random.default_rng(0)
    return (rng.random((chains, n, *np.shape(probability))) < np.asarray(probability)).astype(np.int8)


def test_verdicts_follow_the_criterion():
    """Latent 1 is driven by push alone, 2 by both, 3 by pull alone: 2 may leak into the others."""
    found = identify(idata_of(draws_of([[1, 0], [1, 1], [0, 1]])))
    assert list(found.table["verdict"]) == ["mixed", "identified", "mixed"]
    assert found.table["mixed_with"].tolist() == [["latent 2"], [], ["latent 2"]]
    assert (
        found.table["would_help"].iloc[0]
        == "an action or a past latent that drives latent 1 and not latent 2"
    )
    assert found.all_identified == 0
    assert "latent 1: mixed with latent 2 (P = 0.00)" in str(found)
    assert "cannot be checked" in str(found)


def test_a_verdict_says_that_an_assumption_fails():
    found = identify(idata_of(draws_of(np.eye(2))))
    assert "assumptions below hold" not in str(found) and found.fails == []
    holds = found.assumptions.copy()
    holds["holds"] = [False, *[None] * (len(holds) - 1)]
    doubted = replace(found, assumptions=holds)
    assert "latent 1: identified (P = 1.00) (if the assumptions below hold; 1 FAILS)" in str(doubted)
    assert doubted.fails == [holds.index[0]]
    assert _only_if(doubted)[0].startswith(f"of the assumptions below 1 fails ({holds.index[0]})")
    assert replace(doubted, set_aside=(holds.index[0],)).fails == []
    assert replace(doubted, table=found.table.assign(verdict="mixed")).fails == []


def test_an_uncertain_edge_makes_an_uncertain_verdict():
    """Latent 2 is one's double unless pull drives it: as probable as that edge."""
    draws = draws_of([[1, 0], [1, 0.6]])
    found = identify(idata_of(draws))
    share = draws[0, :, 1, 1].mean()
    assert found.table["verdict"].tolist() == ["mixed", "unresolved"]
    assert found.table["probability"].iloc[1] == pytest.approx(share)
    assert found.all_identified == 0
    assert identify(idata_of(draws), sure=0.55).table["verdict"].iloc[1] == "identified"


def test_restarts_that_disagree_are_a_caution():
    draws = draws_of(np.eye(2))
    assert identify(idata_of(draws)).caution == []
    far = fake_fit(2, 2, recovered=0.5)
    found = identify(idata_of(draws, fit=far))
    assert "no other restart" in found.caution[0]
    assert found.table["verdict"].tolist() == ["unresolved"] * 2  # of which latents, it is not known
    assert identify(idata_of(draws)).table["verdict"].tolist() == ["identified"] * 2
    assert "one restart" in identify(idata_of(draws[:1])).caution[0]


@pytest.mark.parametrize(
    ("edge", "verdict"),
    [
        (("latent 1", "push"), ["unresolved", "identified"]),  # without it latent 1 may hold some of latent 2
        (("latent 2", "push"), ["unresolved", "identified"]),  # with it, too: latent 2 has all that drives 1
        (("latent 3", "push"), ["identified", "identified"]),  # is of another latent
    ],
)
def test_an_edge_in_doubt_is_as_likely_as_not_to_the_certificate(edge, verdict):
    """Its probability is 1 or 0 in all draws; a verdict must hold with and without it."""
    fit = fake_fit(2, 2)
    fit.findings = [Finding("gap", "which edges are there is a guess", severity="doubt", edges=(edge,))]
    found = identify(idata_of(draws_of(np.eye(2)), fit=fit))
    assert found.table["verdict"].tolist() == verdict
    assert found.caution == ["which edges are there is a guess"]


@pytest.mark.parametrize("doubt", [{"differing": 1}, {"gap": 0.1}, {"influence": 0.3}, {"recovered": 0.5}])
def test_an_edge_posterior_knows_what_its_fit_doubts(doubt):
    fit = fake_fit(2, 2, **doubt)
    idata = idata_of(draws_of(np.eye(2)), fit=fit)
    found = identify(idata)
    assert found.table["verdict"].tolist() == ["unresolved"] * 2
    assert found.caution == fit.warnings != []


def test_no_edge_is_called_present_where_the_fit_is_in_doubt():
    """All draws have the edge, in every restart: but of which latents?"""
    draws = draws_of(np.eye(2))
    table = ps.summary(idata_of(draws))
    assert set(table["verdict"]) == {"present", "absent"} and table.attrs["note"] == "made up"
    fit = fake_fit(2, 2, gap=0.1)
    table = ps.summary(idata_of(draws, fit=fit))
    assert (table["verdict"] == "open").all() and not table["selected"].any()
    assert ps.summary(idata_of(draws, fit=fit), include_doubted=True)["selected"].sum() == 2
    assert fit.warnings[0] in table.attrs["note"]


@pytest.fixture(scope="module")
def fitted(hurried_module):
    data = transition_data("ActionTimeDiag", n=300, d_z=2, d_x=4, T=3, seed=1003)
    x, _, a = data.part("train")
    model = ps.models.LatentTransition(4, 2, n_actions=2, hidden=16, units=16, gated_units=4)
    few = {"steps": 200, "polish_steps": 20, "edge_steps": 20, "batch_size": 64}
    return ps.fit(model, x, actions=a, restarts=2, progress=False, **few)


def test_a_fit_is_asked_for_its_assumptions(fitted):
    idata = fitted.edge_posterior(num_draws=50, max_rows=100)
    found = identify(fitted, idata=idata)
    assert {"sufficient influence (time)", "sufficient influence (actions)"} <= set(found.assumptions.index)
    assert found.assumptions["holds"].iloc[0] in (True, False)
    assert found.caution == fitted.warnings
    doubted = {name for finding in fitted.findings if finding.is_doubt for name in finding.factors}
    assert not doubted & set(found.table.index[found.table["verdict"] == "identified"])
    assert list(found.table.index) == ["latent 1", "latent 2"]


def test_a_loaded_fit_says_what_it_cannot_check(fitted, tmp_path):
    idata = fitted.edge_posterior(num_draws=50, max_rows=100)
    fitted.save(tmp_path / "fit.pt")
    own, loaded = (identify(fit, idata=idata).assumptions for fit in (fitted, ps.load(tmp_path / "fit.pt")))
    assert list(loaded.index) == list(own.index)
    influence = loaded[loaded.index.str.startswith("sufficient influence")]
    assert len(influence) and influence["holds"].isna().all()
    assert (influence["figure"] == "not checked: the fit was loaded without its data").all()


def test_edges_of_another_transition_are_refused(fitted):
    draws = draws_of(np.eye(2))
    message = r"its actions are not .* only: 'push', 'pull'; in the fit only: 'a1'"
    with pytest.raises(ValueError, match=message):
        identify(fitted, idata=idata_of(draws, fit=fake_fit(2, 2)))
    with pytest.raises(ValueError, match=r"its latents are not this one's \(in idata only: 'latent 3'\)"):
        identify(fitted, idata=idata_of(draws_of(np.ones((3, 2))), fit=fake_fit(2, 3)))


@pytest.mark.parametrize("method", ["parent_sets", "gate_probability"])
def test_edges_of_a_fit(fitted, method):
    options = {"max_rows": 100} if method == "parent_sets" else {}
    idata = fitted.edge_posterior(method, num_draws=50, seed=3, **options)
    again = fitted.edge_posterior(method, num_draws=50, seed=3, **options)
    assert dict(idata.posterior["edge_time"].sizes) == {"chain": 2, "draw": 50, "target": 2, "source": 2}
    assert dict(idata.posterior["edge_action"].sizes) == {"chain": 2, "draw": 50, "target": 2, "action": 2}
    np.testing.assert_array_equal(idata.posterior["edge_time"], again.posterior["edge_time"])
    table = ps.summary(idata, fdr=0.2)
    name = "score" if method == "gate_probability" else "probability"
    assert len(table) == 8
    assert (table[name].diff().dropna() <= 1e-12).all()
    row = table[(table["graph"] == "action") & (table["source"] == "a1") & (table["target"] == "latent 2")]
    value = float(idata.edge_posterior["probability_action"].sel(target="latent 2", action="a1"))
    assert row[name].iloc[0] == value
    assert len(ps.summary(idata, fdr=0.2, selected_only=True)) == table["selected"].sum()
    assert table.attrs["is_score"] is (method == "gate_probability")


def test_lags_have_their_own_dimension_and_a_union():
    draws = np.zeros((1, 10, 2, 3, 3), np.int8)
    draws[:, :, 0, 0, 1] = 1
    draws[:, :5, 1, 0, 1] = 1
    draws[:, :5, 1, 2, 2] = 1
    idata = idata_of(draws, fit=fake_fit(1, 3, lags=2), name="time")
    union = ps.graph_draws(idata)
    assert union.dims == ("chain", "draw", "target", "source") and union.shape == (1, 10, 3, 3)
    assert union[..., 0, 1].mean() == 1
    assert union[..., 2, 2].mean() == 0.5
    assert ps.edge_prob(idata).to_numpy().tolist() == union.mean(("chain", "draw")).to_numpy().tolist()
    with pytest.raises(ValueError, match=r"graph: got 'action', want one of \['time'\]"):
        ps.graph_draws(idata, "action")
    table = ps.summary(idata)
    assert set(table["lag"]) == {1, 2}
    assert len(table) == 18
    assert table.index.is_unique
    assert table.loc["latent 2, lag 1 -> latent 1", "probability"] == 1
    assert table.loc["latent 2, lag 2 -> latent 1", "probability"] == 0.5


def test_pictures_of_tables_say_that_they_are():
    for plot in (ps.plots.plot_edges, ps.plots.plot_forest, ps.plots.plot_graph, ps.plots.plot_agreement):
        with pytest.raises(TypeError, match="plot_transition"):
            plot(idata_of(draws_of(np.eye(2))))


def test_edge_probabilities_of_a_graph(fitted):
    idata = fitted.edge_posterior(num_draws=50, max_rows=100)
    with pytest.raises(ValueError, match=r"graph: got None, want one of \['time', 'action'\]"):
        ps.edge_prob(idata)
    numbers = idata.edge_posterior
    for graph, columns in (("time", "source"), ("action", "action")):
        table = ps.edge_prob(idata, graph)
        assert (table.index.name, table.columns.name) == ("target", columns)
        wanted = numbers[f"probability_{graph}"].sel(target="latent 2").isel({columns: 0})
        assert table.iloc[1, 0] == float(wanted)
        assert table.attrs["edge_method"] == "parent_sets" and not table.attrs["is_score"]
    alone = ps.edge_prob(idata_of(draws_of([[1, 0], [1, 1]])))  # it has one graph
    assert alone.loc["latent 1"].tolist() == [1, 0] and alone.columns.tolist() == ["push", "pull"]
    with pytest.raises(ValueError, match=r"graph: got 'time', want one of \['action'\]"):
        ps.edge_prob(idata_of(draws_of(np.eye(2))), graph="time")


def test_refusals(fitted):
    draws = draws_of(np.eye(2))
    with pytest.raises(TypeError, match="positional argument"):
        identify(fitted, idata_of(draws))
    for name, value in (("prob", 0.5), ("kind", "eti")):
        with pytest.raises(TypeError, match=f"{name}: got {value!r}, and edges of a latent transition"):
            ps.summary(idata_of(draws), **{name: value})
    with pytest.raises(ValueError, match="sure: got 0.4"):
        identify(idata_of(draws), sure=0.4)
    with pytest.raises(ValueError, match="scores, not probabilities"):
        identify(idata_of(draws, is_score=True))
    with pytest.raises(TypeError, match="result: got a dict"):
        identify({})
    with pytest.raises(TypeError, match="result: got a SimpleNamespace, wanted a fit of a table"):
        identify(SimpleNamespace(edge_posterior=print))
    with pytest.raises(ValueError, match='mode: got .paper. for transition, wanted "support"'):
        identify(idata_of(draws), mode="paper")
    with pytest.raises(ValueError, match="method: want one of"):
        fitted.edge_posterior("bootstrap")
    with pytest.raises(ValueError, match="num_draws"):
        fitted.edge_posterior("gate_probability", num_draws=0)
