"""The graph as a table of tiles (`plot_edges`), and its surest edges one by one (`plot_forest`).

A tile has two messages, so it has two channels: its *area* is the probability (or score) of the edge, its
*colour* the signed strength. A small strong tile is a strong edge that may not be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..posterior.arviz import IntervalKind, get_group
from ..posterior.edge_table import compared_runs, weights_vary
from ..posterior.salience import SALIENT, salience_column
from ..posterior.tables import summary
from ._style import Edges, colours, diverging, new_axes, shorten, styled, table_edges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from .._utils.types import ArvizData

__all__ = ["plot_edges", "plot_forest"]

_COLUMN = 58  # points from one column of numbers to the next: "probability" and a gap


@styled
def plot_edges(
    idata: ArvizData,
    *,
    fdr: float = 0.1,
    max_features: int = 60,
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Features by factors (tasks by latents): tile area is the edge's probability, colour its strength.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    fdr : float
        Edges selected at this Bayesian false-discovery rate are framed; a "?" marks unresolved ones
        (gap between restarts or chains above .25).
    max_features : int
        Beyond it only the features with the surest edges are drawn, and the title says so.
    colorbar : bool
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Strength is sign(weight) times the root of the share of variance due to the factor: it reads like a
        loading. Of a task it is the share that the latent has of its squared weights.

    Raises
    ------
    TypeError
        The edges are those of a transition.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import Normalize

    edges, c = Edges(idata, fdr), colours()
    rows = edges.shown(max_features)
    n, k = len(rows), len(edges.factors)
    names = shorten([edges.features[j] for j in rows])
    # At least the title beside the names, and the label of the colours beside the tiles.
    width = max(2.6 + min(0.62 * k, 3.0 + 0.26 * k) + 0.9 * colorbar, 4.1 + 0.07 * max(map(len, names)))
    ax = new_axes(ax, width, max(1.5 + 0.235 * n, 2.8 if k <= 6 else 3.4))
    y, x = np.indices((n, k))
    half = 0.46 * np.sqrt(edges.probability[rows]) * (edges.probability[rows] > 0.02)
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    squares = np.stack([x, y], -1)[:, :, None] + half[:, :, None, None] * corners
    selected = edges.selected[rows].ravel()
    tiles = PolyCollection(
        squares.reshape(-1, 4, 2),
        array=edges.loading[rows].ravel(),
        cmap=diverging(),
        norm=Normalize(-1, 1),
        linewidths=np.where(selected, 1.0, 0.4),
        edgecolors=[c["muted"] if chosen else c["line"] for chosen in selected],
    )
    ax.add_collection(tiles)
    for row, column in zip(*np.nonzero(edges.unresolved[rows]), strict=True):
        ax.annotate("?", (column, row), ha="center", va="center", fontsize=10, fontweight="bold")
    home = edges.home[rows]
    linked = edges.selected[rows].any(axis=1)
    for row in range(1, n):
        if home[row] != home[row - 1] or linked[row] != linked[row - 1]:
            ax.axhline(row - 0.5, color=c["line"], linewidth=0.8, zorder=0)
    ax.set(xlim=(-0.6, k - 0.3), ylim=(n - 0.4, -0.6))
    ax.set_xticks(
        range(k), shorten(edges.factors, 18), rotation=0 if k <= 6 else 45, ha="center" if k <= 6 else "left"
    )
    ax.xaxis.tick_top()
    ax.set_yticks(range(n), names)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_aspect("auto")
    rows_are, share = ("tasks", "weight") if edges.of_tasks else ("features", "variance")
    asked = "task uses which latent" if edges.of_tasks else "feature depends on which factor"
    title = f"Which {asked}\n(tile area = {edges.word})"
    if n < len(edges.features):
        title += f"\n{n} of {len(edges.features)} {rows_are}, those with the surest edges"
    ax.set_title(title)
    if colorbar:
        bar = ax.figure.colorbar(tiles, ax=ax, shrink=min(1.0, 3.2 / (0.235 * n + 0.5)), aspect=18, pad=0.02)
        bar.set_ticks([-1, -0.5, 0, 0.5, 1])
        bar.set_label(f"signed root of the\nshare of {share}")
        bar.outline.set_visible(False)
    return ax


def _at_the_right(
    ax: Axes, place: int, title: str, texts: Sequence[str], colour: Sequence[str | None]
) -> None:
    """A column of words beside the axes, a row each from 0 on, under a title."""
    rows = [(-1, title, colours()["muted"]), *zip(range(len(texts)), texts, colour, strict=True)]
    for row, text, shade in rows:
        ax.annotate(
            text,
            (1.0, row),
            xycoords=("axes fraction", "data"),
            xytext=(6 + _COLUMN * place, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=shade,
            annotation_clip=False,
        )


@styled
def plot_forest(
    idata: ArvizData,
    *,
    top: int = 25,
    fdr: float = 0.1,
    prob: float = 0.9,
    kind: IntervalKind = "hdi",
    salient: float = SALIENT,
    ax: Axes | None = None,
) -> Axes:
    """The surest edges one below another: the weight, that of each other restart or chain, its interval.

    Parameters
    ----------
    idata : InferenceData or DataTree
    top : int
        How many edges, by probability and then by effect.
    fdr : float
        Edges not selected at this rate are drawn hollow.
    prob : float
        Probability inside the interval.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.
    salient : float
        Size of a standardised loading, as for `summary`.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Edges are grouped by factor. Dots are the best restart, small marks the other kept ones; of Markov
        chains dots are the mean over those kept, marks each of them. The numbers at the right are the edge's
        probability (or score) and, where there are draws of it, the probability that the loading is at least
        `salient` in size, which dotted lines mark. Edges of a `DependencyVAE` by strengths have no interval
        (see `summary`).

    Raises
    ------
    TypeError
        The edges are not those of a table.
    """
    if top < 1:
        raise ValueError(f"top: want at least 1 edge, got {top}")
    factors = [str(name) for name in table_edges(idata)["factor"].to_numpy()]
    table, c = summary(idata, fdr, prob=prob, kind=kind, salient=salient), colours()
    word = "score" if table.attrs["is_score"] else "probability"
    shown = table.head(top)
    rank = shown["factor"].map(factors.index)
    shown = shown.iloc[np.lexsort((-shown["weight"], rank))]
    lower, upper = (shown[f"{kind}{100 * prob:g}_{end}"].to_numpy() for end in ("lb", "ub"))
    stats = get_group(idata, "sample_stats")
    marked, chains = stats["kept"].to_numpy(), compared_runs(idata) == "chain"
    if not chains:
        marked = marked & ~stats["best"].to_numpy()
    weights = get_group(idata, "posterior")["weight"].isel(chain=np.flatnonzero(marked)).mean("draw")
    ax = new_axes(ax, 7.2, 1.3 + 0.25 * len(shown))
    y = np.arange(len(shown))
    ax.axvline(0, color=c["muted"], linewidth=1, zorder=0)
    colour = np.where(shown["weight"] < 0, c["negative"], c["positive"])
    ax.hlines(y, lower, upper, color=colour, linewidth=2.2, alpha=0.55)
    for row, (feature, factor) in enumerate(zip(shown["feature"], shown["factor"], strict=True)):
        others = weights.sel(feature=feature, factor=factor).to_numpy()
        ax.plot(others, np.full(len(others), row), "|", color=c["muted"], markersize=7, zorder=2)
    face = np.where(shown["selected"], colour, c["zero"])
    ax.scatter(shown["weight"], y, s=38, c=face, edgecolors=colour, linewidths=1.4, zorder=3)
    flags = [c["alert"] if flag else None for flag in shown["unresolved"]]
    sure = [f"{p:.2f}{'' if colour is None else ' ?'}" for p, colour in zip(shown[word], flags, strict=True)]
    _at_the_right(ax, 0, word, sure, flags)
    column = salience_column(salient)
    if column in shown:
        for end in (-salient, salient):
            ax.axvline(end, color=c["muted"], linewidth=1, linestyle=":", zorder=0)
        _at_the_right(ax, 1, f"size ≥ {salient:g}", [f"{p:.2f}" for p in shown[column]], flags)
    factor = shown["factor"].to_numpy()
    for below in np.flatnonzero(factor[1:] != factor[:-1]):
        ax.axhline(below + 0.5, color=c["line"], linewidth=0.8, zorder=0)
    labels = zip(shorten(list(shown["feature"]), 26), shorten(list(factor), 14), strict=True)
    ax.set_yticks(y, [f"{left}  ·  {right}" for left, right in labels])
    ax.set_ylim(len(shown) - 0.4, -1.4)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    marks = "each chain" if chains else "other restarts"
    span = "spread over restarts" if table.attrs["is_score"] else "posterior"
    bar = f"bar: {100 * prob:g} % {kind.upper()}, {span}; "
    has_bar = table.attrs["is_score"] or weights_vary(idata)
    what = "standardised loading" if "salient" in table.attrs else "weight"
    ax.set_xlabel(f"{what}  ({bar if has_bar else ''}marks: {marks})")
    ax.set_title(f"The {len(shown)} surest edges")
    return ax
