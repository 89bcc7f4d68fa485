"""The certificate of a table: verdicts against the theorems' own words, draws, doubts, assumptions, words."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from benchmarks import certificates
from benchmarks.certificates import compare, table_idata
from pyro_sparse.certificates.table import criteria_of
from pyro_sparse.certificates.table_checks import agreement_of, curves_of
from pyro_sparse.findings.finding import (
    Finding,
    confirmed_by_chains,
    replaced_in_rivals,
    write_findings,
)
from pyro_sparse.inference.table.folded import folded
from pyro_sparse.posterior.draws import graph_draws, pooled
from tests._fake_fit import fake_fit

pytestmark = pytest.mark.usefixtures("hurried_module")

ANCHORED = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1]])
CYCLE = np.tile([[1, 1, 0], [0, 1, 1], [1, 0, 1]], (3, 1))
NESTED = np.array([[1, 1], [1, 1], [0, 1], [0, 1]])


def sure(graph, chains=1, draws=4, **options):
    """A graph without any doubt."""
    return table_idata(np.broadcast_to(graph, (chains, draws, *np.shape(graph))), **options)


@pytest.mark.parametrize(
    "theorem",
    ["anchors", "zeros", "structural sparsity", "diversity", "set algebra (support)", "set algebra (paper)"],
)
@pytest.mark.parametrize("n_graphs", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_verdicts_are_the_theorems(theorem, n_graphs):
    rng = np.random.default_rng(11)
    figures = [compare(theorem, rng) for _ in range(n_graphs)]
    assert all(ours == list(theirs) for ours, theirs in figures)
    share = np.mean([one for _, theirs in figures for one in theirs])
    assert 0.1 < share < 0.9


def test_the_criterion_that_asks_least_is_named():
    anchored = ps.identify(sure(ANCHORED))
    assert anchored.table["verdict"].tolist() == ["identified"] * 2
    assert anchored.table["by"].tolist() == ["anchors"] * 2
    assert "factor 1: identified by anchors (P = 1.00)" in str(anchored)
    thrice = ps.identify(sure(CYCLE))
    assert thrice.table["by"].tolist() == ["zeros"] * 3
    assert thrice.all_identified == 1
    once = ps.identify(sure(np.vstack([CYCLE[:3], np.ones((1, 3))])))
    assert once.table["by"].tolist() == ["structural sparsity"] * 3
    assert any("was assumed, not checked" in note for note in once.caution)
    np.testing.assert_array_equal(once.criteria, [[0, 0, 1]] * 3)


def test_a_linear_decoder_is_told_what_it_cannot_know():
    once = np.vstack([CYCLE[:3], np.ones((1, 3))])
    found = ps.identify(sure(once, decoder="linear"))
    assert "structural sparsity" not in found.criteria
    assert found.table["verdict"].tolist() == ["mixed"] * 3
    assert any("every rotation" in note for note in found.caution)
    found = ps.identify(sure(ANCHORED, decoder="linear"), mode="paper")
    assert found.table["by"].tolist() == ["anchors"] * 2
    assert any("diversity wants" in note for note in found.caution)


def test_a_dense_decoder_turned_to_zeros_is_not_believed():
    """Any three factors can be turned until each has two zeros: no evidence for their axes."""
    turned = np.ones((9, 3), dtype=int)
    turned[[0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2]] = 0
    found = ps.identify(sure(turned, decoder="linear"))
    assert found.table["verdict"].tolist() == ["mixed"] * 3
    assert found.table["would_help"].iloc[0] == "two features that depend on factor 1 only"
    assert ps.identify(sure(turned)).table["by"].tolist() == ["structural sparsity"] * 3


def test_one_column_inside_another_is_mixed_unless_the_paper_is_believed():
    found = ps.identify(sure(NESTED))
    assert found.table["verdict"].tolist() == ["mixed", "identified"]
    assert found.table["mixed_with"].tolist() == [["factor 2"], []]
    assert found.table["would_help"].iloc[0] == "one more feature that depends on factor 1 only"
    paper = ps.identify(sure(NESTED), mode="paper")
    assert paper.table["by"].tolist() == ["diversity", "zeros"]
    same = ps.identify(sure(np.ones((3, 2))), mode="paper")
    assert same.table["mixed_with"].tolist() == [["factor 2"], ["factor 1"]]


@pytest.mark.slow(hurried=True)
def test_the_advice_mends_it():
    rng = np.random.default_rng(12)
    helped = 0
    for _ in range(25):
        graph = (rng.random((6, 4)) < 0.5).astype(int)
        for decoder in ("mlp", "linear"):
            table = ps.identify(sure(graph, draws=1, decoder=decoder)).table
            for k, name in enumerate(table.index):
                if table.at[name, "verdict"] == "mixed":
                    assert name in table.at[name, "would_help"]
                    n = 2 if table.at[name, "would_help"].startswith("two") else 1
                    more = np.vstack([graph, *[np.eye(4, dtype=int)[[k]]] * n])
                    again = ps.identify(sure(more, draws=1, decoder=decoder)).table
                    assert again.at[name, "verdict"] in ("identified", "alone"), (graph, name)
                    helped += 1
    assert helped > 40


def test_empty_factors_and_noise_are_no_factors():
    graph = np.zeros((6, 4), dtype=int)
    graph[:3, 0], graph[3:5, 1], graph[5, 2] = 1, 1, 1
    found = ps.identify(sure(graph))
    assert found.table["verdict"].tolist() == ["identified", "identified", "mixed", "empty"]
    assert found.table["mixed_with"].tolist() == [[], [], ["the noise of x6"], []]
    assert found.table["probability"].tolist() == [1, 1, 0, 0]
    assert found.all_identified == 0  # not of the third
    assert ps.identify(sure(graph[:5])).all_identified == 1
    # A factor of one feature is that feature's noise, and takes no anchor from the others.
    graph[0, 3] = 1
    assert ps.identify(sure(graph)).table["by"].iloc[0] == "anchors"
    assert ps.identify(sure(np.ones((3, 1)))).table["verdict"].tolist() == ["alone"]
    assert ps.identify(sure([[1], [0]])).table["verdict"].tolist() == ["mixed"]
    one = np.zeros((4, 2), dtype=int)
    one[:, 0] = 1
    assert ps.identify(sure(one)).table["verdict"].tolist() == ["alone", "empty"]
    nothing = ps.identify(sure(np.zeros((4, 2), dtype=int)))
    assert nothing.table["verdict"].tolist() == ["empty"] * 2
    assert nothing.all_identified == 0


def test_an_uncertain_edge_makes_an_uncertain_verdict():
    """Factor 1 is inside factor 2 where its fifth feature is not its own: as probable as that edge."""
    rng = np.random.default_rng(13)
    draws = np.broadcast_to(NESTED, (2, 300, 4, 2)).copy()
    draws[:, :, 0, 1] = rng.random((2, 300)) < 0.6
    found = ps.identify(table_idata(draws))
    share = 1 - pooled(graph_draws(table_idata(draws)), 500)[:, 0, 1].mean()
    assert share == pytest.approx(1 - draws[:, :, 0, 1].mean(), abs=0.02)
    assert found.table["probability"].tolist() == [pytest.approx(share), 1]
    assert found.table["verdict"].tolist() == ["unresolved", "identified"]
    assert found.all_identified == pytest.approx(share)
    assert found.table["mixed_with"].iloc[0] == ["factor 2"]
    # There or not: neither identified nor mixed with anybody, and more rows would tell.
    draws = np.broadcast_to(ANCHORED, (2, 300, 5, 2)).copy()
    draws[:, :90, :, 0] = 0
    found = ps.identify(table_idata(draws))
    assert found.table["verdict"].tolist() == ["unresolved", "identified"]
    assert found.table["mixed_with"].tolist() == [[], []]
    assert found.table["would_help"].iloc[0].startswith("more rows, or")


def test_only_kept_chains_count_and_long_runs_are_thinned():
    draws = np.stack([np.broadcast_to(ANCHORED, (2000, 5, 2)), np.ones((2000, 5, 2))])
    idata = table_idata(draws)
    idata.sample_stats["kept"][:] = [True, False]
    assert pooled(graph_draws(idata)).shape == (2000, 5, 2)
    assert pooled(graph_draws(idata), 10).shape == (10, 5, 2)
    assert ps.identify(idata).table["verdict"].tolist() == ["identified"] * 2


@pytest.mark.slow
def test_each_criterion_implies_the_next():
    rng = np.random.default_rng(14)
    draws = rng.random((400, 8, 4)) < rng.uniform(0.2, 0.6, (400, 1, 1))
    for directions in (1, np.inf, rng.integers(1, 4, 8)):
        alone = list(criteria_of(draws, directions, "paper").alone.values())
        for weaker, stronger in zip(alone[1:], alone[:-1], strict=True):
            assert not (stronger & ~weaker).any()
    assert len(alone) == 3  # diversity is not asked where some features do not bend


# ---- what a fit shows --------------------------------------------------------------------------------------
def curved_fit(graph, functions, restarts=3, noise=0.3, cov=None):
    """A fit whose decoder adds a function of each factor: functions[feature][factor]."""
    g, k = graph.shape
    fit = fake_fit(g, k, k, restarts, feature_names=[f"x{j + 1}" for j in range(g)])
    fit.weights = np.broadcast_to(graph, (restarts, g, k)).astype(float).copy()
    fit.factor_cov = np.eye(k) if cov is None else np.asarray(cov)
    fit.noise_sd = np.full(g, noise)
    fit.alignment["congruence"] = np.ones((restarts, k))
    fit.inverse_transform = lambda z: np.stack(
        [sum(functions[j][i](z[:, i]) for i in range(k) if graph[j, i]) + 0 * z[:, 0] for j in range(g)], 1
    )
    return fit


def bent(u):
    return u + 0.5 * u**2


def straight(u):
    return 2 * u


def identity(u):
    return u


def test_a_decoder_without_an_edge_is_not_called_straight():
    graph = np.zeros((4, 2), dtype=int)
    for decoder in ("mlp", "linear"):
        found = ps.identify(curved_fit(graph, [[None] * 2] * 4), idata=sure(graph, decoder=decoder))
        assert ("structural sparsity" in found.criteria) == (decoder == "mlp")
        assert any("the decoder is linear" in note for note in found.caution) == (decoder == "linear")


def test_slopes_are_those_of_the_function():
    graph = np.array([[1, 0], [1, 1], [0, 0]])
    fit = curved_fit(graph, [[bent, None], [straight, np.sin], [None, None]], cov=[[4, 1], [1, 1]])
    fit.edge_score = fit.edge_score[:, :3]
    mean, slope = curves_of(fit)
    assert mean.shape == (200, 3) and slope.shape == (200, 3, 2)
    assert not slope[:, 2].any() and not slope[:, 0, 1].any()
    # 2 z1 + sin z2 with sd 2 and 1: slopes 4 and cos z2, over the feature's own sd
    ratio = slope[:, 1, 1] / slope[:, 1, 0]
    assert np.abs(ratio).max() <= 0.25 + 1e-3 and ratio.std() > 0.05
    total = np.sqrt((slope[:, 0, 0] ** 2).mean())
    z = np.random.default_rng(0).normal(scale=2, size=100_000)
    expected = 2 * np.sqrt(((1 + z) ** 2).mean()) / np.sqrt(bent(z).var() + 0.09)
    assert total == pytest.approx(expected, rel=0.15)


def test_a_fit_is_asked_whether_it_bends():
    once = np.vstack([CYCLE[:3], np.ones((1, 3), dtype=int)])
    idata = sure(once, chains=2)
    curves = [[bent, np.sin, np.tanh]] * 4
    found = ps.identify(curved_fit(once, curves), idata=idata)
    assert found.table["by"].tolist() == ["structural sparsity"] * 3
    assert found.assumptions.at["enough nonlinearity", "holds"] is True
    assert not any("trust" in note for note in found.caution)
    flat = ps.identify(curved_fit(once, [[straight] * 3] * 4), idata=idata)
    assert flat.table["verdict"].tolist() == ["mixed"] * 3
    assert flat.assumptions.at["enough nonlinearity", "holds"] is False
    assert "structural sparsity" not in flat.criteria
    assert any("every rotation" in note for note in flat.caution)
    # One feature that does not bend: two of three factors may still be pinned down, or none.
    some = ps.identify(curved_fit(once, [[straight] * 3, *curves[1:]]), idata=idata)
    assert some.assumptions.at["enough nonlinearity", "figure"].startswith("3 of 4 features")
    assert (some.table["probability"] <= found.table["probability"]).all()


def test_assumptions_of_anchors_decide_who_is_named():
    idata = sure(ANCHORED, chains=2)
    one = [[straight, straight]] * 4
    good = ps.identify(curved_fit(ANCHORED, [*one, [identity, identity]], noise=2.0), idata=idata)
    state = good.assumptions
    assert state.at["anchors answer alike", "holds"] is True
    assert "correlates 1.00 for factor" in state.at["anchors answer alike", "figure"]
    assert state.at["anchors are steep enough", "holds"] is False  # noise makes the sum relatively steep
    assert good.table["by"].tolist() == ["zeros"] * 2
    steep = ps.identify(curved_fit(ANCHORED, [*one, [lambda u: 0.1 * u] * 2], noise=2.0), idata=idata)
    assert steep.assumptions.at["anchors are steep enough", "holds"] is True
    assert steep.table["by"].tolist() == ["anchors"] * 2
    given = curved_fit(ANCHORED, [*one, [identity, identity]], noise=2.0)
    given.model = SimpleNamespace(anchors={0: 0, 1: 0, 2: 1, 3: 1})
    assert ps.identify(given, idata=idata).table["by"].tolist() == ["anchors"] * 2
    unlike = [[straight, straight], [lambda u: u**2, None], *one[2:], [lambda u: 0.1 * u] * 2]
    other = ps.identify(curved_fit(ANCHORED, unlike), idata=idata)
    assert other.assumptions.at["anchors answer alike", "holds"] is False
    assert " for factor 1, the lowest" in other.assumptions.at["anchors answer alike", "figure"]
    assert other.table["by"].tolist() == ["zeros"] * 2
    close = curved_fit(ANCHORED, [*one, [lambda u: 0.1 * u] * 2], noise=2.0, cov=[[1, 0.97], [0.97, 1]])
    found = ps.identify(close, idata=idata)
    assert found.assumptions.at["factors are not collinear", "holds"] is False
    assert (
        "largest correlation 0.97, rank 2 of 2" in found.assumptions.at["factors are not collinear", "figure"]
    )
    assert found.table["by"].tolist() == ["zeros"] * 2
    two = found.assumptions.loc["three features for every factor"]
    assert two["holds"] is True and two["figure"].startswith("3 for factor 1")
    fewer = curved_fit(ANCHORED[:4], one)
    few = ps.identify(fewer, idata=sure(ANCHORED[:4], chains=2)).assumptions
    assert few.at["three features for every factor", "holds"] is None


def test_restarts_that_found_something_else_make_a_doubt():
    idata = sure(ANCHORED, chains=2)
    one = [[straight, straight]] * 5
    fit = curved_fit(ANCHORED, one)
    fit.elbo[:] = fit.heldout_elbo[:] = -1.0
    assert ps.identify(fit, idata=idata).table["verdict"].tolist() == ["identified"] * 2
    fit.alignment["congruence"][2, 1] = 0.5  # as good, and another factor in its place
    found = ps.identify(fit, idata=idata)
    assert found.table["verdict"].tolist() == ["identified", "unresolved"]
    assert found.table["by"].tolist() == ["zeros", ""]
    assert "another factor in its place" in found.table["would_help"].iloc[1]
    assert found.assumptions.at["restarts agree", "holds"] is False
    fit.heldout_elbo[2] = -2.0  # far worse, and another restart found it
    assert ps.identify(fit, idata=idata).table["verdict"].tolist() == ["identified"] * 2
    fit.heldout_elbo[1], fit.alignment["congruence"][1, 1] = -2.0, 0.5
    assert "no other restart" in ps.identify(fit, idata=idata).table["would_help"].iloc[1]
    fit.weights[1:, :, 1] = 0.0  # restarts with fewer factors could not have found it
    found = ps.identify(fit, idata=idata)
    assert found.table["verdict"].tolist() == ["identified"] * 2
    assert found.assumptions.at["restarts agree", "holds"] is None
    single = curved_fit(ANCHORED, one, restarts=1)
    assert "one only" in ps.identify(single, idata=idata).assumptions.at["restarts agree", "figure"]


def test_a_doubt_of_restarts_that_chains_dispelled_is_none_in_a_certificate():
    idata = sure(ANCHORED, chains=2)
    fit = curved_fit(ANCHORED, [[straight, straight]] * 5)
    fit.elbo[:] = fit.heldout_elbo[:] = -1.0
    fit.alignment["congruence"][2, 1] = 0.5
    doubts, names = [replaced_in_rivals(["factor 2"], "an anchor")], ["factor 1", "factor 2"]
    for confirmed, verdict in ((names[:1], "unresolved"), (names, "identified")):
        idata.attrs["findings"] = write_findings(confirmed_by_chains(doubts, confirmed, names))
        found = ps.identify(fit, idata=idata)
        assert found.table["verdict"].tolist() == ["identified", verdict]
        agree = found.assumptions.loc["restarts agree"]
        assert agree["holds"] == (verdict == "identified")
        assert ("chains that began in other axes came back" in agree["figure"]) == agree["holds"]


def test_a_factor_that_looks_folded_makes_a_doubt():
    fit = curved_fit(ANCHORED, [[bent, bent]] * 5)
    idata = table_idata(np.broadcast_to(ANCHORED, (2, 20, 5, 2)))
    assert ps.identify(fit, idata=idata).table["verdict"].tolist() == ["identified"] * 2
    fit.model = SimpleNamespace(skewness=torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    fit.alignment["permutation"] = np.array([[1, 0], [0, 1], [0, 1]])  # the model's first is the fit's second
    fit.findings = folded(fit)
    found = ps.identify(fit, idata=idata).table
    assert found["verdict"].tolist() == ["identified", "unresolved"]
    assert "end in a cliff (skewness 0.50)" in found["would_help"].iloc[1]


def test_chains_that_turn_a_factor_into_another_make_a_doubt():
    draws, own = np.broadcast_to(ANCHORED, (3, 20, 5, 2)), {"edge_method": "mcmc"}
    doubt = Finding(
        "chains", "factor 2: the chains do not agree on it", "", "doubt", "chains", factors=("factor 2",)
    )
    idata = table_idata(draws, findings=write_findings([doubt]), **own)
    found = ps.identify(idata)
    assert found.table["verdict"].tolist() == ["identified", "unresolved"]
    assert "the chains do not agree" in found.table["would_help"].iloc[1]
    assert found.assumptions.at["chains agree", "holds"] is False
    both = np.array([True, True])
    same = agreement_of(None, table_idata(draws, **own), both)
    assert same.chains_agree is True and same.restarts_agree is None
    assert "one chain only" in agreement_of(None, table_idata(draws[:1], **own), both).chains


def test_where_chains_are_restarts_it_says_so():
    draws = np.broadcast_to(ANCHORED, (2, 20, 5, 2))
    found = ps.identify(table_idata(draws, edge_method="jacobian")).assumptions
    assert found.at["restarts agree on edges", "figure"].startswith("2 restarts, largest gap")
    assert not found["figure"].str.contains("chain").any() and "chains agree" not in found.index
    alone = agreement_of(None, table_idata(draws[:1], edge_method="jacobian"), np.array([True, True]))
    assert alone.chains == "there is one restart only"


def test_warnings_of_the_fit_and_of_the_chains_come_first():
    fit = curved_fit(ANCHORED, [[bent, bent]] * 5)
    fit.findings = [Finding("rows", "few rows")]
    doubt = Finding("chains", "Two chains disagree on factor 1", "run more", "doubt", "chains")
    idata = sure(ANCHORED, chains=2, findings=write_findings([doubt]))
    found = ps.identify(fit, idata=idata)
    assert found.caution == ["Two chains disagree on factor 1: run more", "few rows"]
    assert str(found).startswith("Caution:\n  Two chains")
    assert set(found.table["verdict"]) == {"unresolved"}


@pytest.mark.slow
def test_a_real_fit_end_to_end():
    rng = np.random.default_rng(1000)
    graph = np.repeat(np.eye(2), 4, axis=0)
    x = rng.normal(size=(300, 2)) @ graph.T + 0.3 * rng.normal(size=(300, 8))
    model = ps.models.SparseDecoder(8, 2, decoder="linear")
    fit = ps.fit(model, x, restarts=2, steps=200, progress=False, seed=1000)
    idata = fit.edge_posterior("mcmc", num_draws=40, sweeps=80, warm_up=30)
    found = ps.identify(fit, idata=idata)
    assert found.table["verdict"].tolist() == ["identified"] * 2
    assert found.assumptions.at["two anchors for every factor", "holds"] is True
    assert any("every rotation" in note for note in found.caution)
    assert certificates.called(found, fit.transform(x), fit.transform(x))["right"] == 2
    alone = ps.identify(idata)  # the edge posterior knows that the decoder is linear
    assert "structural sparsity" not in alone.criteria


def test_refusals():
    with pytest.raises(ValueError, match=r'mode: got .both., wanted "support" or "paper"'):
        ps.identify(sure(ANCHORED), mode="both")
    with pytest.raises(ValueError, match="scores, not probabilities; no data$"):
        ps.identify(sure(ANCHORED, is_score=1, chosen_because="no data"))
    with pytest.raises(ValueError, match="sure: got 1"):
        ps.identify(sure(ANCHORED), sure=1)


def test_an_edge_posterior_of_another_fit_is_refused():
    """Columns in another order gave a wrong certificate without a word, other numbers an obscure error."""
    fit = curved_fit(ANCHORED, [[bent, bent]] * 5)
    own = sure(ANCHORED, chains=2)
    assert ps.identify(fit, idata=own).table["verdict"].tolist() == ["identified"] * 2
    fit.feature_names = fit.feature_names[::-1]
    with pytest.raises(ValueError, match=r"features are not .* order, number 1 is 'x1' and in the fit 'x5'"):
        ps.identify(fit, idata=own)
    fit.feature_names = ["a", "b", "x3", "x4", "x5"]
    with pytest.raises(
        ValueError, match=r"idata only: 'x1', 'x2'; in the fit only: 'a', 'b'\); give what edge_posterior"
    ):
        ps.identify(fit, idata=own)
    fewer = curved_fit(CYCLE[:5], [[bent] * 3] * 5)
    with pytest.raises(ValueError, match=r"its factors are not this one's \(in the fit only: 'factor 3'\)"):
        ps.identify(fewer, idata=own)
    many = curved_fit(np.ones((9, 2), dtype=int), [[bent] * 2] * 9)
    with pytest.raises(ValueError, match=r"in the fit only: 'x6', 'x7', 'x8' and 1 more\)"):
        ps.identify(many, idata=own)
    with pytest.raises(TypeError, match="idata: holds the edges of tasks, and the fit is a FakeFit; give"):
        ps.identify(fewer, idata=certificates.task_idata(np.ones((2, 3))))
