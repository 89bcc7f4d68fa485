"""Variance explained, views by factors, as tiles with numbers: where each factor is active."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..posterior.variance import ACTIVE, TOTAL, variance_explained
from ._style import colours, new_axes, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .._utils.types import ArvizData

__all__ = ["plot_variance_explained"]

_SURE = 0.95  # probability at which a factor is called active, as an edge is called present


@styled
def plot_variance_explained(
    idata: ArvizData,
    views: Mapping[str, Sequence[str]] | None = None,
    *,
    active: float = ACTIVE,
    ax: Axes | None = None,
) -> Axes:
    """Per cent of each view's variance that goes with each factor; framed where the factor is surely active.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table.
    views : mapping of str to sequence of str, optional
        As in `variance_explained`.
    active : float
        Share from which a factor is active in a view.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        As `variance_explained`.
    """
    from matplotlib.patches import Rectangle

    table, c = variance_explained(idata, views, active=active), colours()
    names, factors = list(dict.fromkeys(table["view"])), list(dict.fromkeys(table["factor"]))
    shape = len(names), len(factors)
    share = table["variance"].to_numpy().reshape(shape)
    sure = table["p_active"].to_numpy().reshape(shape) >= _SURE
    ax = new_axes(ax, 2.2 + 0.75 * shape[1], 1.3 + 0.45 * shape[0])
    largest = max(float(share[:, :-1].max(initial=0.0)), 1e-9)
    for i, k in np.ndindex(*shape):
        x = k + 0.25 * (factors[k] == TOTAL)  # apart from the others
        strength = share[i, k] / (largest if factors[k] != TOTAL else 1.0)
        tile = Rectangle(
            (x - 0.46, i - 0.42), 0.92, 0.84, facecolor=c["positive"], alpha=0.08 + 0.72 * min(strength, 1.0),
            linewidth=0,
        )  # fmt: skip
        ax.add_patch(tile)
        if sure[i, k] and factors[k] != TOTAL:
            ax.add_patch(
                Rectangle((x - 0.46, i - 0.42), 0.92, 0.84, fill=False, edgecolor=c["muted"], linewidth=1.2)
            )
        ax.annotate(f"{100 * share[i, k]:.1f}", (x, i), ha="center", va="center", fontsize=9)
    ax.set(xlim=(-0.6, shape[1] - 0.1), ylim=(shape[0] - 0.5, -0.6))
    places = [k + 0.25 * (factor == TOTAL) for k, factor in enumerate(factors)]
    many = shape[1] > 7
    ax.set_xticks(places, shorten(factors, 18), rotation=45 if many else 0, ha="left" if many else "center")
    ax.xaxis.tick_top()
    ax.set_yticks(range(shape[0]), shorten(names))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title("Variance explained, per cent")
    return ax
