"""From graphs of several refits to one edge posterior: what is read of it, and what it warns of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.findings.finding import findings_of
from pyro_sparse.posterior.arviz import get_group

from ._pairs import graph_of


def refits(n_refits=3, shape=(14, 16), seed=0, lost=0.0):
    """Graphs of one truth, each with errors of its own; a refit loses a share of the edges."""
    rng = np.random.default_rng(seed)
    truth = rng.random(shape) < 0.2
    truth[np.arange(shape[0]), np.arange(shape[0]) % shape[1]] = True
    made = []
    for _ in range(n_refits):
        there = truth & (rng.random(shape) >= lost)
        size = np.where(there, rng.uniform(0.4, 1, shape), 0.005 * np.abs(rng.normal(size=shape)))
        made.append(graph_of(size))
    return truth, made


def kinds(idata):
    return {finding.kind: finding for finding in findings_of(idata=idata)}


def test_the_posterior_of_three_refits_is_read_by_the_package():
    truth, graphs = refits()
    idata = ps.edge_posterior(graphs, num_draws=100)
    table = ps.summary(idata, fdr=0.1)
    assert set(table.index[table["selected"]]) == {
        f"out {i} -> in {j}" for i, j in zip(*np.nonzero(truth), strict=True)
    }
    p = ps.edge_prob(idata)
    np.testing.assert_array_equal(p.to_numpy() > 0.5, truth)
    draws = ps.graph_draws(idata)
    assert draws.shape == (4, 100, 14, 16)
    np.testing.assert_allclose(draws.mean(("chain", "draw")), p, atol=0.13)
    assert ps.plots.plot_graph(idata).get_title(loc="left").startswith("The selected graph")
    assert len(ps.to_networkx(idata).edges) == truth.sum()
    assert idata.attrs["n_refits"] == 3 and "another refit shows" in idata.attrs["note"]
    weight = get_group(idata, "posterior")["weight"]
    assert (weight.to_numpy()[draws.to_numpy() == 0] == 0).all()


def test_same_seed_same_numbers_and_files(tmp_path):
    from pyro_sparse.posterior.arviz import from_netcdf, to_netcdf

    _, graphs = refits()
    one, again = (ps.edge_posterior(graphs, num_draws=20, seed=3) for _ in range(2))
    np.testing.assert_array_equal(ps.graph_draws(one), ps.graph_draws(again))
    back = from_netcdf(to_netcdf(one, tmp_path / "edges.nc"))
    np.testing.assert_array_equal(ps.edge_prob(back), ps.edge_prob(one))
    assert ps.summary(back).equals(ps.summary(one))


def test_edges_that_a_refit_often_loses_are_never_called_sure():
    """Each refit shows four fifths of the edges, all of them clearly: no edge has .95 in the next."""
    _, graphs = refits(shape=(30, 40), lost=0.2, seed=1)
    alone = ps.edge_prob(ps.edge_posterior(graphs[0])).to_numpy()
    p = ps.edge_prob(ps.edge_posterior(graphs)).to_numpy()
    everywhere = np.all([g.strength.toarray() > 0.2 for g in graphs], axis=0)
    assert (alone[everywhere] > 0.98).mean() > 0.8
    assert 0.7 < p[everywhere].mean() < 0.9


def test_of_one_graph_every_verdict_is_open_and_the_finding_says_why():
    truth, graphs = refits()
    idata = ps.edge_posterior(graphs[0])
    assert (
        kinds(idata)["refits"].is_doubt and "conditional on these two dictionaries" in idata.attrs["verdict"]
    )
    table = ps.summary(idata)
    assert set(table["verdict"]) == {"open"} and not table["selected"].any()
    assert ps.summary(idata, include_doubted=True)["selected"].sum() == truth.sum()
    np.testing.assert_array_equal(ps.edge_prob(idata).to_numpy() > 0.5, truth)
    assert ps.graph_draws(idata).sizes["chain"] == 1


@pytest.mark.slow
def test_latents_that_one_refit_has_are_left_out_and_counted():
    _, graphs = refits()
    other = np.linalg.qr(np.random.default_rng(2).normal(size=(16, 16)))[0]
    lonely = graphs[2].directions_in.copy()
    lonely[:6] = other[:6]
    rate = graphs[0].rate_in.copy()
    rate[3] = 0.001  # of 1000 rows
    changed = [replace(graphs[0], rate_in=rate), graphs[1], replace(graphs[2], directions_in=lonely)]
    idata = ps.edge_posterior(changed)
    number = get_group(idata, "refits")["number_in"].to_numpy()
    assert (number[:, 0] != 3).all() and (number[:, 2] >= 6)[number[:, 2] >= 0].all()
    finding = kinds(idata)["latents"]
    assert not finding.is_doubt and "15 input latents are in at least 2 of 3 refits" in finding.message
    shown = get_group(idata, "refits")["probability"].to_numpy()
    np.testing.assert_array_equal(np.isnan(shown[2]).all(0), number[:, 2] < 0)
    reordered = replace(
        graphs[1],
        strength=graphs[1].strength[::-1][:, ::-1],
        directions_in=graphs[1].directions_in[::-1],
        directions_out=graphs[1].directions_out[::-1],
    )
    same, turned = (ps.edge_prob(ps.edge_posterior([graphs[0], g])) for g in (graphs[1], reordered))
    np.testing.assert_allclose(same, turned, atol=0.1)


@pytest.mark.slow
def test_few_latents_and_strengths_without_a_gap_are_doubts():
    _, graphs = refits(shape=(6, 8))
    assert kinds(ps.edge_posterior(graphs))["latents"].is_doubt
    rng = np.random.default_rng(0)
    smooth = [graph_of(np.exp(rng.normal(-2, 1, (20, 20)))) for _ in range(3)]
    doubt = kinds(ps.edge_posterior(smooth))["strengths"]
    assert doubt.is_doubt and "no gap" in doubt.message
    assert "strengths" not in kinds(ps.edge_posterior(refits()[1]))


def test_the_certificate_names_latents_that_refits_share():
    _, graphs = refits()
    directions = graphs[2].directions_in.copy()
    directions[0] = -directions[0]
    certificate = ps.identify(ps.edge_posterior([*graphs[:2], replace(graphs[2], directions_in=directions)]))
    assert certificate.table.at["in 0", "probability"] == pytest.approx(2 / 3)
    assert certificate.table.at["in 1", "probability"] == 1 and len(certificate.table) == 30
    assert set(certificate.table["verdict"]) == {"identified"} and "refits" in certificate.theorem
    alone = ps.identify(ps.edge_posterior(graphs[0]))
    assert set(alone.table["verdict"]) == {"unresolved"}


def test_bad_graphs_are_refused():
    _, graphs = refits()
    with pytest.raises(ValueError, match="graphs: got none"):
        ps.edge_posterior([])
    with pytest.raises(TypeError, match="graphs: a int has no strength"):
        ps.edge_posterior([graphs[0], 3])
    with pytest.raises(ValueError, match=r"graphs: got effects \['ablation', 'slope'\]"):
        ps.edge_posterior([graphs[0], replace(graphs[1], effect="ablation")])
    with pytest.raises(ValueError, match="graphs: 0 input and 0 output latents are active"):
        ps.edge_posterior(graphs[0], least_fires=2000)
    with pytest.raises(ValueError, match="directions: number 1 has shape"):
        ps.edge_posterior([graphs[0], graph_of(np.ones((5, 7)))])
