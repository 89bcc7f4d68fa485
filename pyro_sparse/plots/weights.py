"""What each factor consists of: its strongest features, with the intervals of their weights, a panel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..posterior.arviz import IntervalKind, get_group
from ..posterior.edge_table import weights_vary
from ..posterior.tables import summary
from ._style import colours, new_figure, shorten, styled, table_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .._utils.types import ArvizData

__all__ = ["plot_top_weights"]

_ACROSS = 3  # panels beside each other, but of four two
_NAMED = 22  # characters of a feature's name


@styled
def plot_top_weights(
    idata: ArvizData,
    factor: str | int | Sequence[str | int] | None = None,
    n: int = 10,
    *,
    fdr: float = 0.1,
    prob: float = 0.9,
    kind: IntervalKind = "hdi",
    axes: np.ndarray | None = None,
) -> np.ndarray:
    """The strongest features of each factor, one panel a factor: weights, intervals, probabilities.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table or of tasks; tasks and latents then stand for features and
        factors.
    factor : str, int or sequence of these, optional
        Names or positions of the factors to draw. Default: all that have a selected edge (all, if none has).
    n : int
        Features of each factor at most, those that it explains best (`effect`); of tasks those of the largest
        weights. What has a weight of exactly 0 is left out.
    fdr : float
        Edges not selected at this Bayesian false-discovery rate are drawn hollow.
    prob : float
        Probability inside the interval of the weight.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.
    axes : ndarray of Axes, optional
        At least one for each factor; flattened. Default: a new figure.

    Returns
    -------
    ndarray of matplotlib Axes, shape (factor,)
        The strongest feature is at the top, and all panels have one scale. The numbers at the right are
        probabilities (or scores), with a "?" where the edge is unresolved (gap between restarts or chains
        above .25).

    Raises
    ------
    TypeError
        The edges are those of a transition, whose strengths have no sign and no interval.
    ValueError
        There is no such factor, `n` is below 1, or there are fewer axes than factors.
    """
    if n < 1:
        raise ValueError(f"n: got {n}, wanted at least 1 feature of each factor")
    of_tasks = getattr(idata, "attrs", {}).get("kind") == "tasks"
    group = get_group(idata, "edge_posterior") if of_tasks else table_edges(idata)
    row, column = ("task", "latent") if of_tasks else ("feature", "factor")
    names = [str(name) for name in group[column].to_numpy()]
    table = summary(idata, fdr, prob=prob, kind=kind)
    lower, upper = (table[f"{kind}{100 * prob:g}_{end}"] for end in ("lb", "ub"))
    table = table.assign(
        size=table["effect" if "effect" in table else "weight"].abs(), lower=lower, upper=upper
    )
    used = [name for name in names if table.loc[table[column] == name, "selected"].any()] or names
    shown = used if factor is None else _named(factor, names)
    tops = [_strongest(table[table[column] == name], n) for name in shown]
    panels = _new_panels(len(shown), max(map(len, tops))) if axes is None else _given_panels(axes, len(shown))
    for ax, name, top in zip(panels, shown, tops, strict=True):
        _draw(ax, top, row, "score" if table.attrs["is_score"] else "probability")
        ax.set_title(*shorten([name], 30), fontsize=9.5, pad=5)
        ax.set_ylim(max(max(map(len, tops)), 1) - 0.4, -1.3)
    _one_scale(panels, pd.concat(tops))
    label = "standardised loading" if "salient" in table.attrs else "weight"
    if table.attrs["is_score"] or weights_vary(idata):
        over = " over restarts" if table.attrs["is_score"] else ""
        label += f"\n(bar: {100 * prob:g} % {kind.upper()}{over})"
    for ax in panels[-_across(len(shown)) :]:
        ax.set_xlabel(label)
    if axes is None:
        left_out = len(names) - len(used) if factor is None else 0
        more = f"\n{left_out} {column}{'s' * (left_out > 1)} without a selected edge left out"
        title = f"The strongest {row}s{more * bool(left_out)}"
        panels[0].figure.suptitle(title, fontsize=11, fontweight="bold", ha="left", x=0.01)
    return panels


def _named(factor: str | int | Sequence[str | int], names: list[str]) -> list[str]:
    """Names of the factors that are asked for."""
    wanted = [factor] if isinstance(factor, str | int) else list(factor)
    chosen = [names[f] if not isinstance(f, str) and f in range(len(names)) else str(f) for f in wanted]
    for asked, name in zip(wanted, chosen, strict=True):
        if name not in names:
            raise ValueError(
                f"factor: got {asked!r}, wanted a name or a position from 0 to {len(names) - 1}; the names "
                f"are {', '.join(map(repr, names[:6]))}{' …' if len(names) > 6 else ''}"
            )
    if not chosen:
        raise ValueError("factor: got an empty list, wanted a factor; leave it out to draw all")
    return chosen


def _strongest(edges: pd.DataFrame, n: int) -> pd.DataFrame:
    """Edges of a factor by size, without those of no weight."""
    there = edges[(edges["weight"] != 0) | (edges["size"] > 0)]
    return there.iloc[np.argsort(-there["size"].to_numpy(), kind="stable")[:n]]


def _new_panels(count: int, rows: int) -> np.ndarray:
    across = _across(count)
    down = -(-count // across)
    figure = new_figure(3.7 * across + 0.4, (1.1 + 0.24 * max(rows, 2)) * down + 0.5)
    # Numbers at the right of a panel are beside the names at the left of the next.
    figure.set_layout_engine("constrained", w_pad=0.1)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for ax in panels[count:]:
        ax.set_axis_off()
    return panels[:count]


def _across(count: int) -> int:
    return 2 if count == 4 else min(_ACROSS, count)


def _given_panels(axes: np.ndarray, count: int) -> np.ndarray:
    panels = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(panels) < count:
        raise ValueError(f"axes: got {len(panels)}, wanted one for each of the {count} factors")
    return panels[:count]


def _draw(ax: Axes, edges: pd.DataFrame, row: str, number: str) -> None:
    """Weights of one factor, a row each from 0 on, and their numbers at the right."""
    c, y = colours(), np.arange(len(edges))
    ax.spines["left"].set_visible(False)
    if not len(edges):
        ax.set_yticks([])
        ax.text(0.5, 0.5, "no weight", ha="center", va="center", transform=ax.transAxes)
        return
    colour = np.where(edges["weight"] < 0, c["negative"], c["positive"])
    ax.axvline(0, color=c["muted"], linewidth=1, zorder=0)
    ax.hlines(y, edges["lower"], edges["upper"], color=colour, linewidth=2.2, alpha=0.55)
    face = np.where(edges["selected"], colour, c["zero"])
    ax.scatter(edges["weight"], y, s=30, c=face, edgecolors=colour, linewidths=1.3, zorder=3)
    ax.set_yticks(y, shorten(list(edges[row]), _NAMED))
    ax.tick_params(axis="y", length=0)
    numbers: list[tuple[int, str, str | None]] = [(-1, number, c["muted"])]
    for place, (p, disputed) in enumerate(zip(edges[number], edges["unresolved"], strict=True)):
        numbers.append((place, f"{p:.2f}{' ?' * disputed}", c["alert"] if disputed else None))
    for place, text, shade in numbers:
        ax.annotate(
            text,
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=shade,
            annotation_clip=False,
        )


def _one_scale(panels: np.ndarray, edges: pd.DataFrame) -> None:
    values = edges[["weight", "lower", "upper"]].to_numpy(dtype=float)
    low, high = (end(values[np.isfinite(values)], initial=0.0) for end in (np.min, np.max))
    pad = 0.06 * (high - low) or 1.0
    for ax in panels:
        ax.set_xlim(low - pad, high + pad)
