"""The graph for other programs: what the files hold when read back, names escaped, whole files or none."""

from __future__ import annotations

import builtins
import io
import json
import re
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.posterior import export
from pyro_sparse.posterior.tasks import task_to_arviz
from tests._fake_fit import fake_fit
from tests.plots.test_transition import transition

SUFFIXES = (".graphml", ".json", ".dot", ".csv", ".tikz", ".tex")
# Half of a character; since pandas 3 a frame's text is UTF-8, which has none.
HALF = "\ud800" if pd.Series(["a"]).dtype == object else "\ufffe"
# A feature called as a factor is, what TeX, DOT, XML, CSV and terminals act on, and two that look alike.
NASTY = ['a"b', "<b>&amp; x", "100 % of $5_{x}^2", "factor 1", "back\\slash \\N", "~#", "=1+1", "\x1b[31mred",
         "-- dash", "naïve\nline", HALF, "x|y`"]  # fmt: skip


@pytest.fixture(scope="module")
def idata():
    return fake_fit(n_restarts=3).edge_posterior("score", num_draws=2)


@pytest.fixture(scope="module")
def nasty():
    return fake_fit(n_restarts=3, feature_names=NASTY).edge_posterior("score", num_draws=2)


def of_table(table, number="score", weight="weight"):
    """Edges of `summary` by their ends."""
    return {
        (row["factor"], row["feature"]): (row[number], row[weight], row["q_value"], row["verdict"])
        for _, row in table.iterrows()
    }


def of_graph(graph, number="score"):
    return {
        (u, v): (e[number], e["weight"], e["q_value"], e["verdict"]) for u, v, e in graph.edges(data=True)
    }


@pytest.mark.parametrize("selected_only", [True, False])
def test_edges_are_those_of_the_summary(idata, selected_only):
    graph = ps.to_networkx(idata, 0.05, selected_only)
    table = ps.summary(idata, 0.05, selected_only=selected_only)
    assert of_graph(graph) == of_table(table) and len(table)
    assert {e["selected"] for *_, e in graph.edges(data=True)} == set(table["selected"])
    kinds = nx.get_node_attributes(graph, "kind")
    assert {n for n, kind in kinds.items() if kind == "factor"} == set(table["factor"])
    assert {n for n, kind in kinds.items() if kind == "feature"} == set(table["feature"])
    assert list(graph)[0] == "factor 1"  # in the order of the fit, factors first
    assert graph.graph["is_score"] is True and graph.graph["fdr"] == 0.05
    assert nx.is_directed(graph) and nx.is_bipartite(graph)


def test_two_nodes_never_have_one_name(nasty):
    graph = ps.to_networkx(nasty)
    assert graph.nodes["factor 1 (factor)"] == {"kind": "factor", "label": "factor 1"}
    assert graph.nodes["factor 1 (feature)"] == {"kind": "feature", "label": "factor 1"}
    assert "factor 1" not in graph
    taken = [export._Node("factor", "a"), export._Node("feature", "a"), export._Node("feature", "a (factor)")]
    assert export._keys(taken) == ["a (factor)'", "a (feature)", "a (factor)"]


def test_a_transition_with_and_without_lags():
    one = transition(d=3, lags=1)
    table, graph = ps.summary(one, selected_only=True), ps.to_networkx(one)
    wanted = {(r["source"], r["target"]): (r["probability"], r["strength"]) for _, r in table.iterrows()}
    assert {(u, v): (e["probability"], e["weight"]) for u, v, e in graph.edges(data=True)} == wanted
    assert graph.has_edge("latent 1", "latent 1")
    assert set(nx.get_node_attributes(graph, "kind").values()) <= {"latent", "action"}
    two = ps.to_networkx(transition(d=3, lags=2), selected_only=False)
    assert two.number_of_edges() == 3 * 3 * 2 + 3 * 2  # no edge in place of another
    assert two.nodes["latent 2, lag 2"] == {"kind": "latent", "label": "latent 2", "lag": 2}
    assert two.nodes["push"]["kind"] == "action"


def test_tasks():
    rng, shape = np.random.default_rng(0), (1, 4, 6, 2)
    fit = SimpleNamespace(
        n_restarts=1, best=0, error=np.zeros(1), findings=[], settings={}, unsure=False,
        tasks=SimpleNamespace(target_scale=np.ones(6)), task_names=[f"firm {t}" for t in range(6)],
        latent_names=["latent 1", "latent 2"],
        alignment={"permutation": np.array([[0, 1]]), "sign": np.ones((1, 2))},
    )  # fmt: skip
    idata = task_to_arviz(
        fit, edge=np.ones(shape, np.int8), weight=rng.normal(size=shape), probability=rng.random((1, 6, 2)),
        eta=None, method="ep", is_score=False, note="made up",
    )  # fmt: skip
    graph = ps.to_networkx(idata, selected_only=False)
    table = ps.summary(idata)
    assert graph.number_of_edges() == len(table) == 12
    for _, row in table.iterrows():
        edge = graph.edges[row["latent"], row["task"]]
        assert (edge["probability"], edge["weight"]) == (row["probability"], row["weight"])
    assert set(nx.get_node_attributes(graph, "kind").values()) == {"latent", "task"}


def same(one, other):
    """Nodes, edges and attributes; of the graph itself GraphML adds defaults."""
    about = one.graph.items() <= other.graph.items() or other.graph.items() <= one.graph.items()
    return one.adj == other.adj and one.nodes == other.nodes and list(one) == list(other) and about


@pytest.mark.parametrize("selected_only", [True, False])
def test_graphml_and_json_come_back_as_they_were(idata, tmp_path, selected_only):
    wanted = ps.to_networkx(idata, 0.1, selected_only)
    graphml = nx.read_graphml(ps.write_graph(idata, tmp_path / "g.graphml", 0.1, selected_only))
    data = json.loads(ps.write_graph(idata, tmp_path / "g.json", 0.1, selected_only).read_text())
    for graph in (graphml, nx.node_link_graph(data, edges="edges")):
        assert same(graph, wanted)
        assert {type(e["selected"]) for *_, e in graph.edges(data=True)} == {bool}


def test_any_name_is_read_back_from_graphml_and_json(nasty, tmp_path):
    graphml = nx.read_graphml(ps.write_graph(nasty, tmp_path / "g.graphml"))
    data = json.loads(ps.write_graph(nasty, tmp_path / "g.json").read_text(encoding="utf-8"))
    graph = nx.node_link_graph(data, edges="edges")
    assert same(graph, graphml)
    labels = set(nx.get_node_attributes(graph, "label").values()) - {"factor 2", "factor 3"}
    assert labels == {*NASTY} - {"\x1b[31mred", "naïve\nline", HALF} | {
        "\\x1b[31mred", "naïve\\nline", f"\\u{ord(HALF):x}"
    }  # fmt: skip


def test_csv_has_the_edges_and_no_formula(nasty, tmp_path):
    text = ps.write_graph(nasty, tmp_path / "g.csv").read_text()
    read = pd.read_csv(io.StringIO(text))
    table = ps.summary(nasty, selected_only=True)
    assert list(read.columns) == ["source", "target", "score", "weight", "verdict"]
    assert read["score"].to_list() == pytest.approx(table["score"].to_list())
    assert read["weight"].to_list() == pytest.approx(table["weight"].to_list())
    assert {"'=1+1", "'-- dash", "\\x1b[31mred"} <= set(read["target"])
    assert not read["target"].str.match("[=+@-]").any()
    probable = ps.write_graph(transition(), tmp_path / "t.csv")
    assert pd.read_csv(probable).columns[2] == "probability"


def test_dot_is_escaped(nasty, tmp_path):
    text = ps.write_graph(nasty, tmp_path / "g.dot").read_text(encoding="utf-8")
    quoted = r'"((?:[^"\\]|\\.)*)"'
    nodes = dict(re.findall(rf"^    {quoted} \[label={quoted}, kind", text, re.M))
    edges = re.findall(rf"^    {quoted} -> {quoted} \[score=", text, re.M)
    graph = ps.to_networkx(nasty)
    assert len(nodes) == len(graph) and len(edges) == graph.number_of_edges()
    assert {end for edge in edges for end in edge} == set(nodes)
    assert nodes[r"a\"b"] == r"a\"b" and nodes[r"back\\slash \\N"] == r"back\\slash \\N"
    assert nodes["<b>&amp; x"] == "<b>&amp;amp; x"  # Graphviz reads entities in a label
    # Nothing is left beside statements of these forms, so no name has broken out of its quotes.
    rest = re.sub(quoted, "Q", text).splitlines()
    edge = re.compile(r"    Q -> Q \[\w+=Q(, \w+=Q)+\];")
    assert {r for r in rest if not edge.fullmatch(r)} == {
        "digraph {", "    rankdir=LR;", "    Q [label=Q, kind=Q, shape=Q];", "}",
    }  # fmt: skip
    dashed = [line for line in text.splitlines() if "dashed" in line]
    assert len(dashed) == 1 and '-> "a\\"b"' in dashed[0]  # the disputed edge


def test_names_in_tex_are_set_letter_by_letter(nasty, tmp_path):
    text = ps.write_graph(nasty, tmp_path / "g.tikz").read_text(encoding="utf-8")
    for name in (
        r"{a{\char34}b}", r"{\textless{}b\textgreater{}\&amp; x}",
        r"{100 \% of \$5\_\{x\}\textasciicircum{}2}",
        r"{back\textbackslash{}slash \textbackslash{}N}", r"{\textasciitilde{}\#}", r"{-{}- dash}",
        r"{x\textbar{}y\textasciigrave{}}", r"{naïve\textbackslash{}nline}",
    ):  # fmt: skip
        assert name in text
    # Braces match in every line, and what TeX acts on stands only behind a backslash.
    for line in text.splitlines():
        bare = re.sub(r"\\[&%$#_{}]", "", line)
        assert not re.search('[&%$#_^~"|`]', bare), line
    unescaped = re.sub(r"\\[{}]", "", text)
    assert unescaped.count("{") == unescaped.count("}")


def test_tikz_draws_each_edge_between_its_nodes(idata, tmp_path):
    text = ps.write_graph(idata, tmp_path / "g.tikz").read_text()
    node = dict(re.findall(r"\\node\[\w+\] \((\w+)\) at \(.*?\) \{(.*)\};", text))
    drawn = re.findall(
        r"\\draw\[(\w+), line width=([\d.]+)pt(, dashed)?\] \((\w+)\.east\).*\((\w+)\.west\)", text
    )
    table = ps.summary(idata, selected_only=True)
    wanted = {(r["factor"], r["feature"]): r for _, r in table.iterrows()}
    assert {(node[s], node[t]) for *_, s, t in drawn} == set(wanted) and len(drawn) == len(wanted)
    for style, width, dashed, s, t in drawn:
        row = wanted[node[s], node[t]]
        assert style == ("falls" if row["weight"] < 0 else "rises") and bool(dashed) == row["unresolved"]
        assert float(width) == pytest.approx(0.4 + 2 * row["score"], abs=0.006)
    whole = ps.write_graph(idata, tmp_path / "g.tex").read_text()
    assert text in whole and whole.startswith("\\documentclass[tikz") and whole.endswith("\\end{document}\n")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_edge_is_a_file_too(suffix, tmp_path):
    idata = transition(d=2, action=[[[0.1, 0.1]] * 2] * 2, time=[[[0.1, 0.1]] * 2] * 2)
    path = ps.write_graph(idata, tmp_path / f"new folder/g{suffix.upper()}")
    assert path.is_file()
    assert ps.to_networkx(idata).number_of_nodes() == 0


def test_without_networkx_only_what_needs_it_fails(idata, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "networkx":
            raise ModuleNotFoundError("No module named 'networkx'", name="networkx")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for suffix in SUFFIXES[1:]:
        assert ps.write_graph(idata, tmp_path / f"g{suffix}").stat().st_size > 100
    for need in (lambda: ps.to_networkx(idata), lambda: ps.write_graph(idata, tmp_path / "g.graphml")):
        with pytest.raises(ModuleNotFoundError, match="networkx is not installed.*pip install networkx"):
            need()
    assert not (tmp_path / "g.graphml").exists()


def test_whole_or_not_at_all(idata, tmp_path, monkeypatch):
    path = tmp_path / "g.json"
    path.write_text("what was there")
    monkeypatch.setattr(
        "os.replace", lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="path: .*could not be written .*make room"):
        ps.write_graph(idata, path)
    assert path.read_text() == "what was there" and list(tmp_path.iterdir()) == [path]


def test_what_is_refused(idata, tmp_path):
    for name, ending in (("g.png", ".png"), ("graph", "no suffix")):
        with pytest.raises(ValueError, match=f"path: .*ends in {ending}; .*one of .graphml, .json, .dot"):
            ps.write_graph(idata, tmp_path / name)
    (tmp_path / "g.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        ps.write_graph(idata, tmp_path / "g.csv")
    with pytest.raises(ValueError, match="fdr: want a rate in"):
        ps.write_graph(idata, tmp_path / "h.json", fdr=10)
    with pytest.raises(TypeError, match="idata: want an ArviZ object"):
        ps.to_networkx(fake_fit())
    assert {path.name for path in tmp_path.iterdir()} == {"g.csv"}
