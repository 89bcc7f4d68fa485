r"""The graph for other programs: a `networkx.DiGraph`, or a file that they read.

An edge goes from what causes to what is caused: factor to feature, latent to task, source or action to
target. Two nodes of a file never have one name: where a factor is called as a feature is, " (factor)" and
" (feature)" are added, and `label` is the name alone. Names come from the user's table, so each format
escapes them by its own rules.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from .._utils.atomic import write_atomically
from .._utils.escaping import csv_bytes, printable
from .._utils.paths import file_to_write
from . import arviz as _arviz
from .tables import summary

if TYPE_CHECKING:
    import networkx as nx

    from .._utils.types import ArvizData

__all__ = ["to_networkx", "write_graph"]

# By kind of edge posterior: columns of `summary` that hold the two ends.
_ENDS = {
    "": ("factor", "feature"),
    "dictionaries": ("factor", "feature"),
    "tasks": ("latent", "task"),
    "transition": ("source", "target"),
}
_ABOUT = ("edge_method", "is_score", "note", "fdr")
_NO_TEXT = re.compile("[\ud800-\udfff\ufffe\uffff]")  # half a character, and what XML 1.0 forbids
# Those of `plots`: they stay apart for every common kind of colour blindness.
_COLOURS = {"rises": (196, 81, 27), "falls": (36, 104, 173), "unsigned": (110, 116, 125)}
_NONE = "no edge is selected at this rate"


class _Node(NamedTuple):
    """A node by what it is; `lag` is 0 but of a latent's past where there are several lags."""

    kind: str
    label: str
    lag: int = 0

    @property
    def text(self) -> str:
        return f"{self.label}, lag {self.lag}" if self.lag else self.label


class _Graph(NamedTuple):
    """Nodes by their keys, edges between keys, what is said of the whole, and whether weights have a sign."""

    nodes: dict[str, _Node]
    edges: list[tuple[str, str, dict[str, Any]]]
    about: dict[str, Any]
    signed: bool

    @property
    def number(self) -> str:
        """What the number of an edge is called."""
        return "score" if self.about["is_score"] else "probability"


def to_networkx(idata: ArvizData, fdr: float = 0.1, selected_only: bool = True) -> nx.DiGraph:
    """The graph of an edge posterior as a `networkx.DiGraph`.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    fdr : float
        Bayesian false-discovery rate at which edges are selected, in [0, 1].
    selected_only : bool
        Leave out edges that are not selected, and nodes without an edge.

    Returns
    -------
    networkx.DiGraph
        Edges go from factor to feature; of tasks from latent to task; of a transition from source, or action,
        to target. With several lags each lag of a source is a node of its own, such as "latent 1, lag 2",
        since two nodes have one edge at most.

        Of a node: `kind` ("factor", "feature", "latent", "task" or "action"), `label` (its name) and, with
        several lags, `lag`. A node is its name; where a factor has that of a feature, " (factor)" and
        " (feature)" are added. Of an edge, as in `summary`: `probability` (or `score`), `weight` (signed; of
        a transition the strength, which has no sign), `q_value`, `verdict`, `unresolved` and `selected`. Of
        the graph: `edge_method`, `is_score`, `note`, `fdr`.

    Raises
    ------
    ModuleNotFoundError
        networkx is not installed.
    ValueError, TypeError
        As `summary`.
    """
    return _in_networkx(_graph_of(idata, fdr, selected_only, lambda name: name), _networkx())


def write_graph(
    idata: ArvizData, path: str | os.PathLike[str], fdr: float = 0.1, selected_only: bool = True
) -> Path:
    r"""Write the graph of an edge posterior to a file, whole or not at all, in the format of its suffix.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    path : path
        File to write; its folder is made where there is none. ``.graphml`` is for Cytoscape, Gephi, yEd and
        igraph (networkx writes it); ``.json`` is networkx's node-link format, for D3 and
        ``networkx.node_link_graph(data, edges="edges")``; ``.dot`` is for Graphviz; ``.csv`` has the columns
        source, target, probability (or score), weight and verdict; ``.tikz`` is a tikzpicture to
        ``\input`` where the package tikz is loaded, and ``.tex`` a document of that picture alone.
    fdr, selected_only
        As for `to_networkx`.

    Returns
    -------
    Path

    Raises
    ------
    ValueError
        The suffix is none of these; or as `summary`.
    ModuleNotFoundError
        networkx is not installed, and the file is GraphML.
    OSError
        The file cannot be written. One that was there before is untouched.

    Notes
    -----
    Nodes and edges have the attributes that `to_networkx` gives. Control characters in names are written out,
    as ``\x1b``. In DOT the weight is called `edge_weight`, since Graphviz takes `weight` for the pull of an
    edge on the layout. In pictures (DOT, TikZ) a line is as wide as its edge is probable, orange where the
    weight is positive, blue where it is negative, and dashed where restarts or chains disagree. LaTeX
    wants LuaLaTeX or XeLaTeX, and a font that has them, for names in other scripts than Latin.
    """
    wanted = Path(path).suffix.lower()
    if wanted not in _WRITERS:
        raise ValueError(
            f"path: got {str(path)!r}, which ends in {wanted or 'no suffix'}; the suffix says the format: "
            f"wanted one of {', '.join(_WRITERS)}"
        )
    content = _WRITERS[wanted](_graph_of(idata, fdr, selected_only, _clean))
    return write_atomically(file_to_write(path, "graph.json"), content)


# ---- what the graph is -------------------------------------------------------------------------------------
def _graph_of(idata: ArvizData, fdr: float, selected_only: bool, spell: Callable[[str], str]) -> _Graph:
    """The graph whose edges `summary` lists, its nodes in the order of the fit, names as `spell` has them."""
    table = summary(idata, fdr, selected_only=selected_only)
    kind = str(idata.attrs.get("kind", ""))
    source, target = _ENDS[kind]
    rows = table.to_dict("records")
    ends = []
    for row in rows:
        if kind == "transition":
            cause = _source_of(row, spell)
            effect = _Node("latent", spell(str(row["target"])))
        else:
            cause = _Node(source, spell(str(row[source])))
            effect = _Node(target, spell(str(row[target])))
        ends.append((cause, effect))
    linked = {node for pair in ends for node in pair}
    nodes = [node for node in _all_nodes(idata, kind, spell) if node in linked]
    key = dict(zip(nodes, _keys(nodes), strict=True))
    edges = [
        (key[cause], key[effect], _attributes(row)) for (cause, effect), row in zip(ends, rows, strict=True)
    ]
    about = {name: table.attrs[name] for name in _ABOUT}
    about["note"] = spell(about["note"])
    return _Graph({text: node for node, text in key.items()}, edges, about, "strength" not in table)


def _source_of(row: Mapping[Any, Any], spell: Callable[[str], str]) -> _Node:
    """The cause of an edge of a transition."""
    if row["graph"] == "action":
        return _Node("action", spell(str(row["source"])))
    return _Node("latent", spell(str(row["source"])), int(row.get("lag", 0)))


def _all_nodes(idata: ArvizData, kind: str, spell: Callable[[str], str]) -> list[_Node]:
    """All nodes that an edge could have, causes first, in the order of the fit."""
    edges = _arviz.get_group(idata, "edge_posterior")
    if kind != "transition":
        return [_Node(end, spell(str(name))) for end in _ENDS[kind] for name in edges[end].to_numpy()]
    latents = [spell(str(name)) for name in edges["target"].to_numpy()]
    past = edges["probability_time"] if "probability_time" in edges else edges["target"]
    lags = past["lag"].to_numpy().tolist() if "lag" in past.dims else []
    actions = edges["action"].to_numpy() if "action" in edges.dims else []
    return [
        *(_Node("action", spell(str(name))) for name in actions),
        *(_Node("latent", name, int(lag)) for lag in lags for name in latents),
        *(_Node("latent", name) for name in latents),
    ]


def _keys(nodes: list[_Node]) -> list[str]:
    """A name of its own for each node: as it is where it occurs once."""
    count = Counter(node.text for node in nodes)
    keys: dict[str, None] = {}
    for node in nodes:
        key = node.text if count[node.text] == 1 else f"{node.text} ({node.kind})"
        while key in keys or (key != node.text and key in count):
            key += "'"
        keys[key] = None
    return list(keys)


def _attributes(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Numbers and words of an edge, as Python's own, which all formats can write."""
    number = "score" if "score" in row else "probability"
    return {
        number: float(row[number]),
        "weight": float(row["strength"] if "strength" in row else row["weight"]),
        "q_value": float(row["q_value"]),
        "verdict": str(row["verdict"]),
        "unresolved": bool(row["unresolved"]),
        "selected": bool(row["selected"]),
    }


def _clean(name: str) -> str:
    """A name in one line of characters that every format can hold."""
    written_out = _NO_TEXT.sub(lambda match: match[0].encode("unicode_escape").decode(), name)
    return printable(written_out, one_line=True)


def _of_node(node: _Node) -> dict[str, Any]:
    return {"kind": node.kind, "label": node.label, **({"lag": node.lag} if node.lag else {})}


# ---- formats -----------------------------------------------------------------------------------------------
def _networkx() -> ModuleType:
    try:
        import networkx
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "networkx is not installed, and to_networkx() and files in GraphML need it; run: "
            "pip install networkx (.json, .dot, .csv, .tikz and .tex do without)"
        ) from error
    module: ModuleType = networkx
    return module


def _in_networkx(graph: _Graph, networkx: ModuleType) -> nx.DiGraph:
    made = networkx.DiGraph(**graph.about)
    made.add_nodes_from((key, _of_node(node)) for key, node in graph.nodes.items())
    made.add_edges_from(graph.edges)
    return made


def _graphml(graph: _Graph) -> bytes:
    networkx, content = _networkx(), io.BytesIO()
    networkx.write_graphml_xml(_in_networkx(graph, networkx), content)  # the one that needs no lxml
    return content.getvalue()


def _json(graph: _Graph) -> bytes:
    nodes = [{"id": key, **_of_node(node)} for key, node in graph.nodes.items()]
    edges = [
        {"source": source, "target": target, **{name: _finite(value) for name, value in about.items()}}
        for source, target, about in graph.edges
    ]
    whole = {"directed": True, "multigraph": False, "graph": graph.about, "nodes": nodes, "edges": edges}
    return (json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(graph: _Graph) -> bytes:
    columns = [graph.number, "weight", "verdict"]
    rows = [[source, target, *(about[name] for name in columns)] for source, target, about in graph.edges]
    return csv_bytes(pd.DataFrame(rows, columns=["source", "target", *columns]), index=False)


def _dot(graph: _Graph) -> bytes:
    lines = ["digraph {", "    rankdir=LR;"]
    for key, node in graph.nodes.items():
        shape = "ellipse" if node.kind in ("factor", "latent") else "box"
        about = {"label": _dot_label(key), "kind": node.kind, "shape": shape}
        lines.append(f"    {_dot_id(key)} [{_dot_list(about)}];")
    for source, target, edge in graph.edges:
        about = {
            graph.number: f"{edge[graph.number]:.6g}",
            "edge_weight": f"{edge['weight']:.6g}",
            "q_value": f"{edge['q_value']:.6g}",
            "verdict": edge["verdict"],
            "penwidth": f"{_width(graph, edge):.2f}",
            "color": "#{:02x}{:02x}{:02x}".format(*_COLOURS[_sign(graph, edge)]),
            "style": "dashed" if edge["unresolved"] else "solid",
        }
        lines.append(f"    {_dot_id(source)} -> {_dot_id(target)} [{_dot_list(about)}];")
    return "\n".join([*lines, "}", ""]).encode()


def _dot_list(values: Mapping[str, str]) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in values.items())


def _dot_id(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dot_label(name: str) -> str:
    r"""Text within quotes, where \N is the name of the node, \n a new line and &lt; a character of HTML."""
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")


_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
        "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
        ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
        '"': r"{\char34}",  # languages of babel give the character itself a meaning
    }
)  # fmt: skip


def _tex(name: str) -> str:
    """A name as LaTeX sets it letter by letter."""
    return re.sub("-(?=-)", "-{}", name.translate(_TEX))  # two hyphens would be a dash


def _tikz(graph: _Graph) -> bytes:
    # A latent of a transition that is both cause and effect stands in both columns.
    has_effects = {source for source, _, _ in graph.edges}
    causes = [key for key in graph.nodes if key in has_effects]
    effects = _by_strongest(graph, causes)
    cause_at, effect_at = ({key: i + 1 for i, key in enumerate(column)} for column in (causes, effects))
    lines = [
        r"\begin{tikzpicture}[",
        "    x=1cm, y=-0.6cm,",
        *(
            f"    {name}/.style={{draw={{rgb,255:red,{red};green,{green};blue,{blue}}}}},"
            for name, (red, green, blue) in _COLOURS.items()
        ),
        r"    cause/.style={anchor=east, font=\bfseries}, effect/.style={anchor=west}]",
    ]
    for letter, style, column, x in (("s", "cause", causes, 0), ("t", "effect", effects, 4)):
        apart = max(1.0, max(len(causes), len(effects)) / max(len(column), 1))
        for i, key in enumerate(column):
            y = (i + 0.5) * apart
            lines.append(rf"    \node[{style}] ({letter}{i + 1}) at ({x},{y:.2f}) {{{_tex(key)}}};")
    if not graph.edges:
        lines.append(rf"    \node {{{_NONE}}};")
    for source, target, edge in graph.edges:
        about = [
            _sign(graph, edge),
            f"line width={_width(graph, edge):.2f}pt",
            *(["dashed"] if edge["unresolved"] else []),
        ]
        ends = rf"(s{cause_at[source]}.east) to[out=0, in=180] (t{effect_at[target]}.west)"
        lines.append(rf"    \draw[{', '.join(about)}] {ends};")
    return "\n".join([*lines, r"\end{tikzpicture}", ""]).encode()


def _by_strongest(graph: _Graph, causes: list[str]) -> list[str]:
    """Effects in the order of their strongest causes, so that few lines cross."""
    place = {key: i for i, key in enumerate(causes)}
    best: dict[str, tuple[float, int, float]] = {}
    for source, target, edge in graph.edges:
        rank = (edge[graph.number] * abs(edge["weight"]), -place[source], edge["weight"])
        best[target] = max(best.get(target, rank), rank)
    return sorted(best, key=lambda target: (-best[target][1], -best[target][2]))


def _document(graph: _Graph) -> bytes:
    preamble = "\\documentclass[tikz, border=4pt]{standalone}\n\\usepackage[T1]{fontenc}\n"
    return (preamble + "\\begin{document}\n").encode() + _tikz(graph) + b"\\end{document}\n"


def _width(graph: _Graph, edge: Mapping[str, Any]) -> float:
    return 0.4 + 2.0 * float(edge[graph.number])


def _sign(graph: _Graph, edge: Mapping[str, Any]) -> str:
    if not graph.signed:
        return "unsigned"
    return "rises" if edge["weight"] >= 0 else "falls"


_WRITERS: dict[str, Callable[[_Graph], bytes]] = {
    ".graphml": _graphml,
    ".json": _json,
    ".dot": _dot,
    ".csv": _csv,
    ".tikz": _tikz,
    ".tex": _document,
}
