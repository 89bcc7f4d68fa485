"""Who shares what with whom, as an UpSet picture: a column for each region of the Venn diagram.

Dots below say which sets a region is in, and no other; the stack above holds what is in it, each piece as
high as it is probable and what is unlikely in one pale piece, so that its height is the expected number. A
Venn diagram proper can be drawn for three sets; this one can be read for ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..graphs._draws import feature_graphs
from ..graphs.index_sets import names_of
from ..graphs.venn import AtomProbability, Groups, atom_probability
from ..posterior.arviz import get_group
from ..posterior.draws import MOST_DRAWS, graph_draws, pooled
from ._style import colours, new_axes, shorten, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from .._utils.types import ArvizData

__all__ = ["plot_sets"]

_LEAST = 0.1  # regions with fewer expected members are left out
_NAMED = 40  # members beyond which pieces are too thin for their names
_PIECES = 200  # members beyond which stacks are drawn whole
_LIKELY = (
    0.4  # probability from which a member is a piece of its own, with its name; the others are one pale top
)


@styled
def plot_sets(
    graph: ArrayLike | pd.DataFrame | ArvizData,
    groups: Groups | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    factor_names: Sequence[str] | None = None,
    max_regions: int = 14,
    ax: Axes | None = None,
) -> Axes:
    """Draw which factors groups of features share, or which features factors share.

    Parameters
    ----------
    graph : array_like, DataFrame, InferenceData or DataTree
        0/1 edges of shape (feature, factor), draws of shape (..., feature, factor), or what
        `fit.edge_posterior()` returns for a table.
    groups : mapping of name to features, or sequence of features, optional
        Regions are then of *factors*: those that exactly these groups depend on (`graphs.atoms`). Without
        groups they are of *features*: those that depend on exactly these factors; with a single factor, its
        anchors.
    feature_names, factor_names : sequence of str, optional
        Default: those of the object or DataFrame; else x1, x2, … and z1, z2, …
    max_regions : int
        Beyond it only the largest are drawn, and the title says so.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Orange: of one set only; blue: shared. Members likely to be there are pieces of their own, the others
        make up the pale top. Bars mark one posterior standard deviation of the number.

    Raises
    ------
    TypeError, ValueError
        If `graph` is none of these, or holds something else than 0 and 1; or as in `graphs.atoms`.
    """
    from matplotlib.patches import Patch

    if max_regions < 1:
        raise ValueError(f"max_regions: want at least 1, got {max_regions}")
    draws, features, factors = _edges(graph, feature_names, factor_names)
    regions: AtomProbability | None = None
    if groups is not None:
        regions, members = atom_probability(draws, groups, feature_names=features), factors
        title = "Which factors the groups share"
    else:
        members, title = features, "Which features depend on which factors"
        sets = {factors[k]: [k] for k in np.flatnonzero(draws.any(axis=1).mean(axis=0) > 0.5)}
        if sets:
            regions = atom_probability(draws.swapaxes(-1, -2), sets)
    if regions is None:
        ax = new_axes(ax, 4.0, 1.5)
        ax.set_axis_off()
        ax.set_title(title)
        ax.text(0.5, 0.5, "no factor reaches a feature", ha="center", va="center", transform=ax.transAxes)
        return ax
    shown = _shown(regions, max_regions)
    n_sets, n = len(regions.groups), len(shown)
    tallest = max(1.0, float((regions.expected_size + regions.size_sd)[shown].max(initial=1.0)))
    # One unit of height is a member above the line and a set below it: neither may be too thin to read.
    unit = float(np.clip(4.0 / tallest, 0.04, 0.5))
    row = 0.26 / unit
    named = len(members) <= _NAMED and unit > 0.12
    sizes = regions.expected_size @ regions.inside
    labels = [
        f"{name}  {_number(size)}" for name, size in zip(shorten(regions.groups, 22), sizes, strict=True)
    ]
    width = max(1.6 + (1.05 if named else 0.6) * n, 3.8 + 0.07 * max(map(len, labels)))
    ax = new_axes(ax, width, 1.4 + unit * tallest + 0.26 * n_sets)
    _stacks(ax, regions, shown, shorten(members, 14), named)
    _dots(ax, regions, shown, row)
    places = -row * (np.arange(n_sets) + 0.8)
    ax.set_yticks(places, labels)
    ax.tick_params(length=0)
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    ax.set(xlim=(-0.6, max(n, 2) - 0.4), ylim=(places[-1] - 0.6 * row, tallest + 0.7 / unit * 0.26))
    left = len(regions.inside) - n
    if left:
        kept = regions.expected_size[shown].sum() / regions.expected_size.sum()
        title += f"\n{n} of {len(regions.inside)} regions, {100 * kept:.0f} % of all"
    ax.set_title(title)
    c = colours()
    keys = [("positive", "of one only"), ("negative", "shared"), ("muted", "of none")]
    handles = [Patch(color=c[name], alpha=0.85, label=label) for name, label in keys]
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3)
    return ax


def _edges(
    graph: ArrayLike | pd.DataFrame | ArvizData,
    feature_names: Sequence[str] | None,
    factor_names: Sequence[str] | None,
) -> tuple[NDArray[np.bool_], list[str], list[str]]:
    """Draws (draw, feature, factor) and the names."""
    if hasattr(graph, "attrs") and not hasattr(graph, "columns") and not hasattr(graph, "shape"):
        edges = get_group(graph, "edge_posterior")
        if not {"feature", "factor"} <= set(edges.dims):
            raise TypeError("graph: holds no edges of a table; want its draws, or a graph (feature, factor)")
        draws = pooled(graph_draws(graph), MOST_DRAWS)
        feature_names = feature_names or [str(n) for n in edges["feature"].to_numpy()]
        factor_names = factor_names or [str(n) for n in edges["factor"].to_numpy()]
    else:
        draws = feature_graphs(graph)
    g, k = draws.shape[-2:]
    features = names_of(graph, feature_names, g, "index", "feature_names")
    factors = names_of(graph, factor_names, k, "columns", "factor_names")
    return (
        draws.reshape(-1, g, k),
        features or [f"x{j + 1}" for j in range(g)],
        factors or [f"z{i + 1}" for i in range(k)],
    )


def _shown(regions: AtomProbability, limit: int) -> NDArray[np.intp]:
    """Regions to draw: those of one set first, then those of two …, none last."""
    size, degree = regions.expected_size, regions.inside.sum(axis=1)
    keep = np.flatnonzero(size >= _LEAST)
    keep = keep[np.argsort(-size[keep], kind="stable")[:limit]]
    first = np.where(regions.inside.any(axis=1), regions.inside.argmax(axis=1), 0)
    return keep[np.lexsort((keep, first[keep], np.where(degree[keep] == 0, np.inf, degree[keep])))]


def _stacks(
    ax: Axes, regions: AtomProbability, shown: NDArray[np.intp], members: list[str], named: bool
) -> None:
    c = colours()
    for x, atom in enumerate(shown):
        degree = int(regions.inside[atom].sum())
        colour = c["muted"] if degree == 0 else c["positive"] if degree == 1 else c["negative"]
        p = np.asarray(regions.probability[atom], dtype=float)
        total = float(regions.expected_size[atom]) if len(members) > _PIECES else float(p[p >= 0.01].sum())
        likely = [m for m in np.argsort(-p, kind="stable") if p[m] >= _LIKELY and len(members) <= _PIECES]
        base = 0.0
        for member in likely:
            height = float(p[member])
            alpha = 0.25 + 0.6 * height
            ax.bar(
                x, height, 0.8, base, color=colour, alpha=alpha, edgecolor=ax.get_facecolor(), linewidth=0.8
            )
            if named:
                ax.text(x, base + height / 2, members[member], ha="center", va="center", fontsize=7.5)
            base += height
        if total > base:
            pale = 0.85 if len(members) > _PIECES else 0.25
            ax.bar(x, total - base, 0.8, base, color=colour, alpha=pale)
        sd = float(regions.size_sd[atom])
        if sd > 0.05:
            ax.vlines(x + 0.44, max(total - sd, 0.0), total + sd, color=c["muted"], linewidth=1.2)
        ax.annotate(_number(total), (x, total), (0, 3), textcoords="offset points", ha="center", fontsize=9)


def _dots(ax: Axes, regions: AtomProbability, shown: NDArray[np.intp], row: float) -> None:
    c = colours()
    n_sets = len(regions.groups)
    y = -row * (np.arange(n_sets) + 0.8)
    for i in range(0, n_sets, 2):
        ax.axhspan(y[i] - row / 2, y[i] + row / 2, color=c["zero"], zorder=0)
    for x, atom in enumerate(shown):
        on = regions.inside[atom]
        ax.scatter(
            np.full(n_sets, x), y, s=48, color=[c["muted"] if here else c["line"] for here in on], zorder=3
        )
        if on.sum() > 1:
            ax.vlines(x, y[on].min(), y[on].max(), color=c["muted"], linewidth=2, zorder=2)


def _number(value: float) -> str:
    """Whole numbers without a decimal."""
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"
