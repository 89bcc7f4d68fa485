"""Enrichment of sets: counts and odds ratios by hand from draws; a planted set; what is refused, and why."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom

import pyro_sparse as ps
from pyro_sparse.findings.finding import Finding
from pyro_sparse.posterior.tables import to_arviz
from tests._fake_fit import fake_fit


def posterior(edge, kept=None, pool_weight=None, findings=()):
    """Draws (chain, draw, feature, factor) of edges as an edge posterior; features are called a, b, c, …"""
    edge = np.asarray(edge)
    chains, _, g, k = edge.shape
    fit = fake_fit(n_features=g, n_factors=k, n_active=k, n_restarts=2)
    fit.feature_names = [chr(ord("a") + j) for j in range(g)] if g < 27 else [f"f{j}" for j in range(g)]
    return to_arviz(
        fit, edge=edge.astype(np.int8), weight=np.broadcast_to(0.5, edge.shape),
        probability=edge.mean((0, 1)), restart_probability=edge.mean(1), chain_restart=[0] * chains,
        kept=np.ones(chains, bool) if kept is None else kept, method="mcmc", is_score=False, note="made up",
        chain_stats={} if pool_weight is None else {"pool_weight": pool_weight}, findings=findings,
    )  # fmt: skip


def log_odds_ratio(edges, members):
    """From one draw of one factor's edges, feature by feature."""
    n = len(edges)
    if sum(edges) in (0, n):
        return 0.0
    counts = {(i, j): 0.0 for i in (0, 1) for j in (0, 1)}
    for edge, member in zip(edges, members, strict=True):
        counts[int(edge), int(member)] += 1
    for i, j in counts:
        share_edge = sum(e == i for e in edges) / n
        share_member = sum(m == j for m in members) / n
        counts[i, j] += 2 * share_edge * share_member
    return np.log(counts[1, 1] * counts[0, 0] / counts[1, 0] / counts[0, 1])


@pytest.fixture(scope="module")
def drawn():
    edge = np.random.default_rng(0).random((2, 15, 7, 2)) < np.linspace(0.05, 0.9, 14).reshape(7, 2)
    return posterior(edge), edge.reshape(30, 7, 2)


SETS = {"first": ["a", "b", "c"], "last": ["f", "g", "nobody"], "odd": ["a", "c", "e", "g"]}


def test_against_counts_by_hand(drawn):
    idata, edge = drawn
    table = ps.enrichment(idata, SETS).set_index(["factor", "set"])
    assert len(table) == 6
    for k, factor in enumerate(("factor 1", "factor 2")):
        for name, some in SETS.items():
            members = np.isin(list("abcdefg"), some)
            theta = np.array([log_odds_ratio(draw, members) for draw in edge[:, :, k].astype(int)])
            inside, total = edge[:, members, k].sum(1), edge[:, :, k].sum(1)
            row = table.loc[(factor, name)]
            assert row["n_members"] == members.sum() and row["n_left_out"] == (name == "last")
            assert row["expected_edges"] == pytest.approx(inside.mean())
            assert row["log_odds_ratio"] == pytest.approx(theta.mean())
            ends = np.quantile(theta, [0.05, 0.95], method="inverted_cdf")
            assert (row["eti90_lb"], row["eti90_ub"]) == pytest.approx(tuple(ends))
            assert row["probability"] == pytest.approx((theta > 1e-12).mean())
            assert row["p_odds_ratio_2"] == pytest.approx((theta > np.log(2) + 1e-12).mean())
            tails = hypergeom.sf(inside - 1, 7, total, members.sum())
            assert row["by_chance"] == pytest.approx(tails.mean())
            halves = (theta > 1e-12).reshape(2, 15).mean(1)
            assert row["gap"] == pytest.approx(abs(halves[0] - halves[1]))


def test_every_graph_of_four_features():
    """All 16 sets of edges once each: by symmetry an odds ratio is as often above 1 as below."""
    graphs = np.array([[(g >> j) & 1 for j in range(4)] for g in range(16)])
    row = ps.enrichment(posterior(graphs[None, :, :, None]), {"s": ["a", "b"]}).iloc[0]
    theta = [log_odds_ratio(graph, [1, 1, 0, 0]) for graph in graphs]
    # Edges in the set against edges outside: 5 of the 16 graphs have more, 5 fewer, 6 as many.
    assert row["probability"] == 5 / 16 == np.mean(np.array(theta) > 1e-12)
    assert row["log_odds_ratio"] == pytest.approx(0, abs=1e-12)
    assert row["expected_edges"] == 1


def test_even_margins_give_the_half_of_haldane_and_anscombe():
    edge = np.array([1, 1, 1, 0, 1, 0, 0, 0])  # 3 of 4 members, 1 of 4 others
    row = ps.enrichment(posterior(edge[None, None, :, None]), {"s": list("abcd")}).iloc[0]
    assert row["log_odds_ratio"] == pytest.approx(np.log(3.5 * 3.5 / (1.5 * 1.5)))


def test_a_set_without_an_edge_is_not_enriched():
    """A half added to each cell would say 2.25; and where there is no edge at all, nothing can be told."""
    edge = np.zeros((1, 4, 1000, 2), dtype=int)
    edge[:, :, 100:120, 0] = 1
    table = ps.enrichment(posterior(edge), {"s": [f"f{j}" for j in range(10)]}).set_index("factor")
    assert table.loc["factor 1", "log_odds_ratio"] < 0
    assert table.loc["factor 2", "log_odds_ratio"] == 0
    assert (table["probability"] == 0).all() and (table["by_chance"] == 1).all()


def test_a_planted_set_is_first_and_random_ones_are_said_to_be_chance():
    rng = np.random.default_rng(1)
    p = np.full((120, 3), 0.05)
    p[:15, 1] = 0.8
    edge = rng.random((2, 100, 120, 3)) < p
    sets = {"planted": [f"f{j}" for j in range(18)]}
    sets |= {f"random {i}": [f"f{j}" for j in rng.choice(120, 18, replace=False)] for i in range(40)}
    table = ps.enrichment(posterior(edge), sets)
    assert tuple(table.loc[0, ["factor", "set"]]) == ("factor 2", "planted")
    assert table["probability"].is_monotonic_decreasing
    assert table.loc[0, "probability"] == 1 and table.loc[0, "by_chance"] < 1e-4
    assert table.loc[0, "expected_edges"] == pytest.approx(15 * 0.8 + 3 * 0.05, abs=0.3)
    assert table.loc[0, "eti90_lb"] > 2 and (table.loc[1:, "by_chance"] > 0.01).all()


def test_the_q_value_is_the_mean_chance_of_being_wrong_down_to_the_row(drawn):
    table = ps.enrichment(drawn[0], SETS)
    for i, row in table.iterrows():
        named = table["probability"] >= row["probability"]
        assert row["q_value"] == pytest.approx((1 - table.loc[named, "probability"]).mean()), i


def test_chains_count_as_in_the_probabilities_of_edges():
    """Of three chains one was dropped, and one of the others holds a graph of small share."""
    edge = np.zeros((3, 10, 6, 1), dtype=int)
    edge[0, :, :2], edge[1, :, 3:5], edge[2, :, :2] = 1, 1, 1
    idata = posterior(edge, kept=np.array([True, True, False]), pool_weight=np.array([0.1, 0.9, 0.0]))
    row = ps.enrichment(idata, {"s": ["a", "b", "c"]}).iloc[0]
    assert row["probability"] == pytest.approx(0.1) and row["expected_edges"] == pytest.approx(0.2)
    low = log_odds_ratio([0, 0, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0])
    assert row["eti90_lb"] == pytest.approx(low) and row["eti90_ub"] == pytest.approx(-low)
    assert row["gap"] == 1


def test_background_restricts_both_sides(drawn):
    idata, edge = drawn
    table = ps.enrichment(idata, {"s": ["a", "b", "g"]}, background=["a", "b", "c", "d", "elsewhere"])
    row = table.set_index("factor").loc["factor 1"]
    theta = [log_odds_ratio(draw, [1, 1, 0, 0]) for draw in edge[:, :4, 0].astype(int)]
    assert row["log_odds_ratio"] == pytest.approx(np.mean(theta))
    assert (row["n_members"], row["n_left_out"], table.attrs["n_background"]) == (2, 1, 4)


def test_sets_that_have_no_odds_ratio_come_last_with_the_reason(drawn):
    sets = {"small": ["a", "nobody"], "all": list("abcdefg"), **SETS}
    table = ps.enrichment(drawn[0], sets, prob=0.5)
    left = table.iloc[6:]
    assert set(left["note"]) == {"fewer than 2 members", "every feature is a member"}
    assert left[["log_odds_ratio", "eti50_lb", "probability", "q_value", "by_chance"]].isna().all(axis=None)
    assert (table["note"].iloc[:6] == "").all()
    others = ps.enrichment(drawn[0], SETS, prob=0.5)
    pd.testing.assert_frame_equal(table.iloc[:6], others)


def test_a_table_of_memberships_and_a_gmt_file_are_sets_too(drawn, tmp_path):
    path = tmp_path / "sets.gmt"
    path.write_text("\n".join("\t".join([name, "", *some]) for name, some in SETS.items()))
    wanted = ps.enrichment(drawn[0], SETS)
    pd.testing.assert_frame_equal(ps.enrichment(drawn[0], ps.priors.read_gmt(path)), wanted)
    frame = pd.DataFrame({name: [float(f in some) for f in "abcdefg"] for name, some in SETS.items()},
                         index=list("abcdefg"))  # fmt: skip
    of_frame = ps.enrichment(drawn[0], frame)
    pd.testing.assert_frame_equal(of_frame.drop(columns="n_left_out"), wanted.drop(columns="n_left_out"))


def test_doubts_of_the_fit_are_beside_the_numbers():
    edge = np.random.default_rng(0).random((2, 5, 6, 2)) < 0.5
    doubt = Finding("restarts", "no other found it", severity="doubt", factors=("factor 2",))
    table = ps.enrichment(posterior(edge, findings=[doubt]), {"s": ["a", "b", "c"]}).set_index("factor")
    assert table["doubted"].to_dict() == {"factor 1": 0.0, "factor 2": 1.0}


def test_salient_edges_can_be_asked_for():
    edge = np.ones((2, 4, 5, 1), dtype=int)
    idata = posterior(edge)
    assert ps.enrichment(idata, {"s": ["a", "b"]})["expected_edges"].iloc[0] == 2
    assert ps.enrichment(ps.salient_edges(idata, 0.6), {"s": ["a", "b"]})["expected_edges"].iloc[0] == 0


def test_many_sets_are_computed_in_parts(drawn, monkeypatch):
    wanted = ps.enrichment(drawn[0], SETS)
    monkeypatch.setattr("pyro_sparse.posterior.enrichment._AT_A_TIME", 2)
    pd.testing.assert_frame_equal(ps.enrichment(drawn[0], SETS), wanted)


def test_what_is_refused(drawn):
    idata = drawn[0]
    with pytest.raises(
        ValueError, match="idata: it holds scores, which rank edges .* wanted draws with prob"
    ):
        ps.enrichment(fake_fit().edge_posterior("score", num_draws=3), SETS)
    with pytest.raises(TypeError, match="idata: want an ArviZ object"):
        ps.enrichment(fake_fit(), SETS)
    with pytest.raises(TypeError, match="sets: wanted members by the name"):
        ps.enrichment(idata, {})
    with pytest.raises(TypeError, match="sets: 's' is the text 'abc', wanted a list of names"):
        ps.enrichment(idata, {"s": "abc"})
    with pytest.raises(ValueError, match=r"sets: none has two members .*\(features begin \['a', 'b', 'c'\]"):
        ps.enrichment(idata, {"s": ["A", "B"]})
    with pytest.raises(ValueError, match="background: none of its 2 names is a feature"):
        ps.enrichment(idata, SETS, background=["A", "B"])
    with pytest.raises(TypeError, match="background: got the text 'abc'"):
        ps.enrichment(idata, SETS, background="abc")
    with pytest.raises(ValueError, match="prob: got 90, wanted a probability"):
        ps.enrichment(idata, SETS, prob=90)
    edge = np.zeros((2, 3, 12, 4))
    tasks = to_arviz(
        fake_fit(n_restarts=2), edge=edge, weight=edge, probability=edge[0, 0], method="ep",
        is_score=False, note="", attrs={"kind": "tasks"},
    )  # fmt: skip
    with pytest.raises(TypeError, match="idata: got the posterior of tasks, wanted that of a table"):
        ps.enrichment(tasks, SETS)
