"""Variance explained, views by factors, as tiles with numbers: where each factor is active, in each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
import pandas as pd

from ..posterior.variance import ACTIVE, TOTAL, variance_explained
from ._style import colours, new_axes, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from .._utils.types import ArvizData

__all__ = ["plot_variance_explained"]

_SURE = 0.95  # probability at which a factor is called active, as an edge is called present


@overload
def plot_variance_explained(
    idata: ArvizData,
    views: Mapping[str, Sequence[str]] | None = None,
    *,
    groups: None = None,
    active: float = ACTIVE,
    ax: Axes | None = None,
) -> Axes: ...


@overload
def plot_variance_explained(
    idata: ArvizData,
    views: Mapping[str, Sequence[str]] | None = None,
    *,
    groups: Any,
    active: float = ACTIVE,
    ax: Sequence[Axes] | None = None,
) -> NDArray[np.object_]: ...


@styled
def plot_variance_explained(
    idata: ArvizData,
    views: Mapping[str, Sequence[str]] | None = None,
    *,
    groups: Any = None,
    active: float = ACTIVE,
    ax: Axes | Sequence[Axes] | None = None,
) -> Axes | NDArray[np.object_]:
    """Per cent of each view's variance that goes with each factor; framed where the factor is surely active.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table.
    views : mapping of str to sequence of str, optional
        As in `variance_explained`.
    groups : Series, categorical or array (row,), optional
        As in `variance_explained`: a panel for each group, all with one scale of colours.
    active : float
        Share from which a factor is active in a view.
    ax : Axes, optional
        With `groups` one for each, in a sequence.

    Returns
    -------
    matplotlib Axes, or with `groups` ndarray of Axes (group,)

    Raises
    ------
    TypeError, ValueError
        As `variance_explained`; not as many axes as groups.
    """
    table = variance_explained(idata, views, groups=groups, active=active)
    largest = max(float(table.loc[table["factor"] != TOTAL, "variance"].max()), 1e-9)
    names, factors = list(dict.fromkeys(table["view"])), list(dict.fromkeys(table["factor"]))
    width, height = 2.2 + 0.75 * len(factors), 1.3 + 0.45 * len(names)
    if groups is None:
        ax = new_axes(cast("Axes | None", ax), width, height)
        _draw(ax, table, names, factors, largest)
        ax.set_title("Variance explained, per cent")
        return ax
    by_group = dict(list(table.groupby("group", sort=False)))
    if ax is None:
        height = 0.3 + (height + 0.3) * len(by_group)
        panels = new_figure(width, height).subplots(len(by_group), 1, squeeze=False)
    else:
        panels = np.array(ax, dtype=object)
    if panels.size != len(by_group):
        raise ValueError(f"ax: has {panels.size} axes, wanted one for each of the {len(by_group)} groups")
    for panel, (group, of_group) in zip(panels.flat, by_group.items(), strict=True):
        _draw(panel, of_group, names, factors, largest)
        panel.set_title(f"{shorten([str(group)])[0]}: variance explained, per cent")
    flat: NDArray[np.object_] = panels.reshape(-1)
    return flat


def _draw(ax: Axes, table: pd.DataFrame, names: list[str], factors: list[str], largest: float) -> None:
    """Tiles of one group, coloured against the largest share of any factor."""
    from matplotlib.patches import Rectangle

    c, shape = colours(), (len(names), len(factors))
    share = table["variance"].to_numpy().reshape(shape)
    sure = table["p_active"].to_numpy().reshape(shape) >= _SURE
    for i, k in np.ndindex(*shape):
        x = k + 0.25 * (factors[k] == TOTAL)  # apart from the others
        if np.isnan(share[i, k]):
            ax.annotate("?", (x, i), ha="center", va="center", fontsize=9, color=c["muted"])
            continue
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
