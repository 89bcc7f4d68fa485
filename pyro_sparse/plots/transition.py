"""What drives which latent, as a drawing: the past and the actions left, the latents they lead to right.

A line has the width of its edge's probability and is the paler the weaker the effect. Where restarts differ
it is dashed; an edge that they dispute and that is not selected is a dashed hairline. No other edge is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..posterior.arviz import get_group
from ..posterior.tables import summary
from ._style import colours, new_axes, shorten, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from .._utils.types import ArvizData

__all__ = ["plot_transition"]

_APART = 0.9  # extra room above a further lag, and above the actions
_DASHES = (0, (2.2, 1.3))
_HAIRLINE = 0.8

_Node = tuple[str, int, str]  # graph, lag (0: an action), name


@styled
def plot_transition(
    idata: ArvizData, *, fdr: float = 0.1, include_doubted: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw the graph of a transition: edge width = probability, colour = own past, other latent or action.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a fit of sequences.
    fdr : float
        Bayesian false-discovery rate at which edges are selected, over all graphs together.
    include_doubted : bool
        Select edges by their probability alone, as in `pyro_sparse.summary`; the title says so.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Unresolved edges (between-restart gap above .25) are dashed, and hairlines where not selected. Names
        of what drives nothing are grey.

    Raises
    ------
    TypeError
        The edges are not those of a transition.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if getattr(idata, "attrs", {}).get("kind") != "transition":
        raise TypeError(
            f"idata: got a {type(idata).__name__} that holds no transition, wanted edge_posterior() of a fit "
            "of sequences; draw the edges of a table with plot_graph"
        )
    c, table = colours(), summary(idata, fdr, include_doubted=include_doubted)
    word = "score" if table.attrs["is_score"] else "probability"
    left, right = _places(idata)
    bottom = max([*left.values(), *right.values()])
    ax = new_axes(ax, 6.4, 1.9 + 0.34 * bottom)
    ax.set_axis_off()
    noun = "variable" if idata.attrs.get("nodes") == "variables" else "latent"
    ax.set_title(f"What drives which {noun}" + "\n(edges in doubt, too)" * include_doubted)
    strongest = table.groupby("graph")["strength"].transform("max").clip(lower=1e-12)
    table = table.assign(ink=0.4 + 0.55 * np.sqrt(table["strength"] / strongest))
    table["node"] = _nodes(table)
    shown = table[table["selected"] | table["unresolved"]].sort_values(["selected", word])
    colour = {"action": c["positive"], f"another {noun}'s past": c["negative"], "own past": c["muted"]}
    thick = 3.2 * min(1.0, max(0.45, np.sqrt(25 / max(1, table["selected"].sum()))))  # thinner in a crowd
    kinds = []
    for row in shown.to_dict("records"):
        start, end = left[row["node"]], right[row["target"]]
        kind = _kind(row, noun)
        kinds.append(kind)
        bend = Path([(0.03, start), (0.4, start), (0.6, end), (0.965, end)], [1, 4, 4, 4])
        ax.add_patch(
            PathPatch(
                bend,
                facecolor="none",
                edgecolor=colour[kind],
                linewidth=0.4 + thick * row[word] if row["selected"] else _HAIRLINE,
                linestyle=_DASHES if row["unresolved"] else "-",
                alpha=row["ink"] if row["selected"] else 0.9,
                capstyle="butt",
            )
        )
    if not table["selected"].any():
        ax.text(0.5, -0.3, "no edge is selected at this rate", ha="center", va="bottom")
    driving, driven = (set(table.loc[table["selected"], end]) for end in ("node", "target"))
    names = shorten([_label(*node) for node in left], 20)
    for (node, place), name in zip(left.items(), names, strict=True):
        fill = c["positive"] if node[0] == "action" else c["muted"]
        ax.scatter([0], [place], s=46, marker="s" if node[0] == "action" else "o", color=fill, zorder=3)
        grey: dict[str, Any] = {} if node in driving else {"color": c["muted"]}
        ax.text(-0.05, place, name, ha="right", va="center", fontsize=9.5, **grey)
    for (latent, place), name in zip(right.items(), shorten(list(right), 20), strict=True):
        ax.scatter([1], [place], s=46, color=c["muted"], zorder=3)
        grey = {} if latent in driven else {"color": c["muted"]}
        ax.text(1.05, place, name, ha="left", va="center", fontsize=9.5, fontweight="bold", **grey)
    ax.set(xlim=(-0.5, 1.42), ylim=(bottom + 0.5, -0.9))
    keys = [Line2D([], [], color=colour[k], linewidth=3, label=k) for k in colour if k in kinds]
    if shown["unresolved"].any():
        keys.append(Line2D([], [], color=c["muted"], linewidth=2, linestyle=_DASHES, label="unresolved"))
    if keys:
        ax.legend(
            handles=keys,
            loc="upper center",
            bbox_to_anchor=(0.48, 0.0),
            ncols=len(keys),
            columnspacing=1.4,
            handlelength=1.8,
            title=f"width = {word}",
        )
    return ax


def _places(idata: ArvizData) -> tuple[dict[_Node, float], dict[str, float]]:
    """Height of every node, downwards from 0: past latents by lag and actions left, latents right."""
    edges = get_group(idata, "edge_posterior")
    latents = [str(name) for name in edges["target"].to_numpy()]
    groups: list[list[_Node]] = []
    if "probability_time" in edges:
        lags = edges["lag"].to_numpy() if "lag" in edges["probability_time"].dims else [1]
        groups += [[("time", int(lag), name) for name in latents] for lag in lags]
    if "probability_action" in edges:
        groups.append([("action", 0, str(name)) for name in edges["action"].to_numpy()])
    left: dict[_Node, float] = {}
    place = 0.0
    for group in groups:
        for node in group:
            left[node] = place
            place += 1
        place += _APART
    n, span = len(latents), max(*left.values(), len(latents) - 1.0)
    if groups[0][0][0] == "action":
        left = dict(zip(left, _even(len(left), span), strict=True))
    elif len(left) <= 2 * n:  # level with their own past
        span = n - 1.0
    return left, dict(zip(latents, _even(n, span), strict=True))


def _even(n: int, span: float) -> list[float]:
    """Even heights from 0 to `span`, or inside it where there is more room than `n` nodes need."""
    inside = n - 1 < span
    return (np.linspace(0, span, n + 2)[1:-1] if inside else np.linspace(0, span, n)).tolist()


def _nodes(table: pd.DataFrame) -> list[_Node]:
    lags = table["lag"] if "lag" in table else [1] * len(table)
    return [
        (graph, int(lag) if graph == "time" else 0, str(source))
        for graph, source, lag in zip(table["graph"], table["source"], lags, strict=True)
    ]


def _label(graph: str, lag: int, name: str) -> str:
    return name if graph == "action" else f"{name}, t \N{MINUS SIGN} {lag}"


def _kind(row: Mapping[str, object], noun: str) -> str:
    if row["graph"] == "action":
        return "action"
    return "own past" if row["source"] == row["target"] else f"another {noun}'s past"
