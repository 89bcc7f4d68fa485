"""The pages of sequences and tasks say what tables and certificate say, and take no orders from names."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.findings.finding import Finding, findings_of, sentences
from pyro_sparse.pages.of_latents import gather
from pyro_sparse.posterior.arviz import get_group
from tests._fake_fit import fake_fit
from tests._tasks import quick_fit, tasks_on_latents
from tests.inference._transitions import SMALL, model_of
from tests.pages.test_of_table import Page

pytestmark = pytest.mark.usefixtures("hurried_module")


pytest.importorskip("jinja2")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def sequences():
    rng = np.random.default_rng(0)
    z = np.zeros((30, 10, 2))
    u = rng.normal(size=(30, 10, 1))
    for t in range(1, 10):
        z[:, t] = np.tanh(z[:, t - 1]) + u[:, t] + 0.2 * rng.normal(size=(30, 2))
    x = z @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(30, 10, 5))
    fit = ps.fit(model_of(x, 2, n_actions=1), x, actions=u, restarts=2, seed=0, **SMALL)
    # so short a fit is in doubt, and a page that names no edge would test little
    fit = replace(fit, findings=[Finding("training", "a note <of the fit>")])
    return fit, fit.edge_posterior(num_draws=50)


@pytest.fixture(scope="module")
def tasks():
    x, y, *_ = tasks_on_latents(t=20, k=2, g=4)
    fit = quick_fit(x, y, n_latents=2, restarts=2, steps=40, sparse_steps=10)
    return fit, fit.edge_posterior()


def test_a_page_of_sequences(sequences, tmp_path):
    fit, idata = sequences
    page = Page(ps.report(fit, tmp_path / "new" / "report.html", idata=idata, fdr=0.2).read_text())
    table = ps.summary(idata, fdr=0.2)
    assert "Which latent drives which" in page.text
    said = page.text.replace("1 edge of", "1 edges of")
    assert f"{table['selected'].sum()} edges of {len(table)} possible" in said
    assert "30 sequences, 300 frames, 5 features, 1 action;" in page.text
    assert all(warning[1:] in page.text for warning in fit.warnings)
    assert "mechanism sparsity" in page.text and "is driven by" in page.text
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 2
    assert not [a for _, a in page.tags if a.get("src", a.get("href", "")).startswith("http")]


def test_a_page_of_tasks(tasks, tmp_path):
    fit, idata = tasks
    odd = replace(fit, tasks=replace(fit.tasks, task_names=["<b>x</b>", *fit.task_names[1:]]))
    page = Page(ps.report(odd, tmp_path / "report.html").read_text())
    assert "Which task uses which latent" in page.text and "20 tasks" in page.text
    assert "<b>x</b>" in page.text and len([tag for tag, _ in page.tags if tag == "img"]) == 2
    facts = gather(fit, idata, 0.1)
    table = ps.summary(idata)
    rows = [row for row in facts["edges"]["rows"] if "selected" in row["state"].split()]
    assert len(rows) == table["selected"].sum() == facts["n_edges"]
    wanted = table[table["selected"]].groupby("latent", sort=False)["task"].apply(set).to_dict()
    for name in fit.latent_names:
        assert {row["head"].text for row in rows if row["group"] == name} == wanted[name]
    verdicts = {word: int(figure) for figure, word, _ in facts["tiles"][1:4]}
    assert verdicts == {"absent": 0, **table["verdict"].value_counts().to_dict()}
    assert [row["name"] for row in facts["certificate"]["rows"]] == fit.latent_names


def test_what_it_says_of_trust(sequences):
    fit, idata = sequences
    sure = fit.agreement.assign(recovered=1.0, edges_differing=0, gap=3.0, influence=1.0)
    assert gather(replace(fit, agreement=sure, findings=[]), idata, 0.2)["verdict"]["level"] == "good"
    noted = replace(fit, agreement=sure, findings=[Finding("rows", "few")])
    assert gather(noted, idata, 0.2)["verdict"]["level"] == "mixed"
    doubted = replace(fit, findings=[Finding("gap", "a guess", severity="doubt")])
    edges = doubted.edge_posterior(num_draws=50)
    assert gather(doubted, edges, 0.2)["verdict"]["title"] == "The latents are in doubt"
    assert gather(doubted, edges, 0.2)["n_edges"] == 0
    alone = replace(fit, agreement=sure.iloc[:1], gap=fit.gap[:1], best=0)
    assert gather(alone, idata, 0.2)["verdict"]["level"] == "unknown"
    score = gather(fit, fit.edge_posterior("gate_probability", num_draws=5), 0.0)
    assert score["word"] == "score" and score["certificate"] is None and len(score["tiles"]) == 2
    assert score["n_edges"] == 0 and score["verdict"]["title"] == "No edge stands out"


def test_an_edge_posterior_says_what_it_comes_to(sequences, tasks):
    """As that of a table does."""
    for fit, idata in (sequences, tasks):
        said = idata.attrs["verdict"]
        assert said.startswith(gather(fit, idata, 1.0)["verdict"]["title"])
        assert said.splitlines()[1:] == sentences(findings_of(fit, idata))
    score = sequences[0].edge_posterior("gate_probability", num_draws=5)
    assert score.attrs["verdict"].startswith("Scores, no probabilities")


def test_what_is_of_tables_is_refused(tasks, sequences, tmp_path):
    beside = {"X": np.zeros((2, 2)), "groups": [["a"]], "salient": 0.4, "salient_only": True}
    for name, value in beside.items():
        with pytest.raises(TypeError, match=f"{name}: is for a table's fit, not for a MultiTaskFit"):
            ps.report(tasks[0], tmp_path / "report.html", **{name: value})
    for _, idata in (tasks, sequences):
        with pytest.raises(TypeError, match="idata: got the posterior of .* have a common scale"):
            ps.summary(idata, salient=0.4)
    with pytest.raises(TypeError, match="idata: holds the edges of"):
        ps.report(tasks[0], tmp_path / "report.html", idata=sequences[1])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("which", ["sequences", "tasks"])
def test_a_fit_writes_its_page_and_computes_its_edges_once(
    which, request, tmp_path, no_pictures, monkeypatch
):
    fit, _ = request.getfixturevalue(which)
    module = importlib.import_module("pyro_sparse.pages.of_latents")
    monkeypatch.setattr(module, "_drawings", lambda *args: {})
    methods = {
        "sequences": (
            "pyro_sparse.inference.edges.parents.transitions",
            "TRANSITION_METHODS",
            "parent_sets",
        ),
        "tasks": ("pyro_sparse.inference.edges.regression.tasks", "TASK_METHODS", "ep"),
    }
    where, table, name = methods[which]
    own = getattr(importlib.import_module(where), table)
    calls, compute = [], own[name]
    monkeypatch.setitem(own, name, lambda *args, **given: (calls.append(given), compute(*args, **given))[1])
    fresh = replace(fit)  # whatever the fit was asked before
    first = fresh.edge_posterior()
    assert fresh.edge_posterior(name, 500, 0) is first and len(calls) == 1
    page = fresh.report(tmp_path / "page.html", fdr=0.2)
    assert page == tmp_path / "page.html"
    assert page.read_bytes() == ps.report(fit, tmp_path / "other.html", fdr=0.2).read_bytes()
    calls.clear()
    fresh.summary()
    ps.identify(fresh)
    assert not calls
    fresh.edge_posterior(seed=1)
    assert len(calls) == 1
    assert replace(fresh)._edges == {}


def test_one_code_reads_the_edges_of_all_kinds(sequences, tasks):
    table = fake_fit()
    for fit, idata in (sequences, tasks, (table, table.edge_posterior(num_draws=5))):
        stats, edges = get_group(idata, "sample_stats"), get_group(idata, "edge_posterior")
        assert stats["restart"].to_numpy().tolist() == list(range(fit.n_restarts))
        assert stats["kept"].to_numpy()[stats["best"].to_numpy()].tolist() == [True]
        kept = np.flatnonzero(stats["kept"].to_numpy())
        for name in [name for name in get_group(idata, "posterior") if name.startswith("edge")]:
            of = name.removeprefix("edge")
            draws = get_group(idata, "posterior")[name].isel(chain=kept)
            assert (ps.graph_draws(idata, of.removeprefix("_") or None) == draws).all()
            p = edges[f"restart_probability{of}"]
            assert p.dims == ("chain", *edges[f"probability{of}"].dims)
            for what in ("given", "q_value", "gap"):
                assert edges[f"{what}{of}"].dims == p.dims[1:]
    of_tasks = get_group(tasks[1], "posterior")["eta"]
    assert of_tasks.dims == ("chain", "draw", "latent") and ((of_tasks > 0) & (of_tasks < 1)).all()
    weight = get_group(tasks[1], "posterior")["weight"].isel(chain=tasks[0].best).mean("draw")
    np.testing.assert_allclose(get_group(tasks[1], "edge_posterior")["weight"], weight)
