"""The selected edges as a drawing: factors left, features right, lines as wide as the edge is probable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ._style import Edges, colours, new_axes, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .._utils.types import ArvizData

__all__ = ["plot_graph"]


def _spread(wanted: NDArray, gap: float) -> NDArray:
    """Places as near to the wanted ones as keeps neighbours `gap` apart, in the same order."""
    from sklearn.isotonic import isotonic_regression

    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(wanted))
    places = np.empty(len(wanted))
    places[order] = isotonic_regression(wanted[order] - steps) + steps
    return places


@styled
def plot_graph(idata: ArvizData, *, fdr: float = 0.1, max_features: int = 50, ax: Axes | None = None) -> Axes:
    """Draw the selected graph: nodes are factors and features (latents and tasks), width is probability.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    fdr : float
        Bayesian false-discovery rate at which edges are selected.
    max_features : int
        Beyond it only the features with the surest edges are drawn, and the title says so.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Unresolved edges (gap between restarts or chains above .25) are dashed. Features without an edge are
        left out. Strengths between dictionaries have no sign, and one colour.

    Raises
    ------
    TypeError
        The edges are those of a transition.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    edges, c = Edges(idata, fdr), colours()
    linked = np.asarray(edges.selected.any(axis=1))
    rows = edges.shown(max_features, linked)
    ax = new_axes(ax, 6.2, max(2.2, 1.4 + 0.235 * len(rows)))
    ax.set_axis_off()
    title = "The selected graph"
    if len(rows) < linked.sum():
        rows_are = "tasks" if edges.of_tasks else "features" if edges.signed else "latents"
        title += f" ({len(rows)} of {linked.sum()} {rows_are} with an edge)"
    ax.set_title(title)
    if not len(rows):
        ax.text(
            0.5, 0.5, "no edge is selected at this rate", ha="center", va="center", transform=ax.transAxes
        )
        return ax
    height = np.arange(len(rows), dtype=float)
    columns = np.flatnonzero(edges.selected[rows].any(axis=0))
    # A factor stands level with the features it explains best, and only then with the others it reaches.
    at_home = edges.home[rows][:, None] == np.arange(len(edges.factors))
    mass = np.where(edges.selected[rows], np.abs(edges.loading[rows]) + 1e-9, 0.0) * np.where(
        at_home, 1.0, 1e-6
    )
    mass = mass[:, columns]
    centre = _spread(mass.T @ height / mass.sum(axis=0), gap=min(1.6, len(rows) / len(columns)))

    def colour_of(weight: float) -> str:
        if not edges.signed:
            return c["muted"]
        return c["negative"] if weight < 0 else c["positive"]

    for i, j in enumerate(rows):
        for place, k in zip(centre, columns, strict=True):
            if not edges.selected[j, k]:
                continue
            bend = Path([(0.04, place), (0.45, place), (0.5, height[i]), (0.985, height[i])], [1, 4, 4, 4])
            ax.add_patch(
                PathPatch(
                    bend,
                    facecolor="none",
                    edgecolor=colour_of(edges.weight[j, k]),
                    linewidth=0.4 + 3.0 * edges.probability[j, k],
                    linestyle=(0, (2, 1.2)) if edges.unresolved[j, k] else "-",
                    alpha=0.35 + 0.6 * min(1.0, abs(edges.loading[j, k])),
                    capstyle="butt",
                )
            )
    ax.scatter(np.zeros(len(columns)), centre, s=170, color=c["muted"], zorder=3)
    ax.scatter(np.ones(len(rows)), height, s=16, color=c["muted"], zorder=3)
    for place, name in zip(centre, shorten([edges.factors[k] for k in columns], 18), strict=True):
        ax.text(-0.06, place, name, ha="right", va="center", fontsize=10, fontweight="bold")
    for place, name in zip(height, shorten([edges.features[j] for j in rows]), strict=True):
        ax.text(1.03, place, name, ha="left", va="center", fontsize=9)
    ax.set(xlim=(-0.36, 1.5), ylim=(max(height[-1], centre.max()) + 0.8, min(0.0, centre.min()) - 0.8))
    source = "latent" if edges.of_tasks else "factor"
    keys = [
        Line2D([], [], color=c["positive"], linewidth=3, label=f"rises with the {source}"),
        Line2D([], [], color=c["negative"], linewidth=3, label="falls"),
    ] * edges.signed
    if edges.unresolved[rows].any():
        keys.append(
            Line2D([], [], color=c["muted"], linewidth=3, linestyle=(0, (2, 1.2)), label="unresolved")
        )
    ax.legend(
        handles=keys,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=max(1, len(keys)),
        title=f"width = {edges.word}",
    )
    return ax
