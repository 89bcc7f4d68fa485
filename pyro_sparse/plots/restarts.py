"""Did the restarts find the same answer? Their ELBO over time, and how alike their loadings are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..graphs.alignment import agreement_matrix
from ..posterior.arviz import get_group
from ..posterior.edge_table import compared_runs
from ._style import colours, new_axes, styled, table_edges

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from .._utils.types import ArvizData
    from ..inference.table.result import Fit
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["plot_agreement", "plot_elbo"]

_CRITERIA = ("heldout_elbo", "log_marginal")  # by which runs are compared: of tables, of programs


@styled
def plot_elbo(fit: Fit | TransitionFit, *, ax: Axes | None = None) -> Axes:
    """Held-out ELBO of every restart over the steps, nats per row or sequence; the best restart stands out.

    Parameters
    ----------
    fit : Fit or TransitionFit
        Its `history` has columns `step`, `restart`, `elbo`, `heldout_elbo` and, if stages are to be marked,
        `stage`.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        The training ELBO is drawn where no held-out one was recorded. The steep first steps are cut off.

    Raises
    ------
    TypeError
        This is no fit, or its history has no ELBO (that of tasks).
    """
    if not hasattr(fit, "history"):
        raise TypeError(
            f"fit: want what pyro_sparse.fit returned, got {type(fit).__name__}; give that itself"
        )
    history, c = fit.history, colours()
    if "heldout_elbo" not in history:
        raise TypeError(
            f"fit: the history of a {type(fit).__name__} has no ELBO but {list(history.columns)}; draw these "
            "with fit.history.plot"
        )
    column = "heldout_elbo" if history["heldout_elbo"].notna().any() else "elbo"
    history = history[["step", "restart", column] + ["stage"] * ("stage" in history)].dropna(subset=[column])
    history = history.assign(step=history.groupby("restart")["step"].transform(_in_a_row))
    ax = new_axes(ax, 6.4, 3.4)
    best = int(fit.best)
    for restart, path in history.groupby("restart"):
        chosen = restart == best
        ax.plot(
            path["step"],
            path[column],
            color=c["best"] if chosen else c["muted"],
            linewidth=2.2 if chosen else 1.1,
            alpha=1.0 if chosen else 0.7,
            zorder=3 if chosen else 2,
            label=f"restart {restart} (best)" if chosen else None,
        )
    if len(history):
        late = history.loc[history["step"] >= history["step"].quantile(0.2), column]
        low, high = late.min(), history[column].max()
        margin = 0.06 * (high - low) or 0.5
        ax.set_ylim(low - margin, high + margin)
    if "stage" in history:
        starts = history.groupby("stage")["step"].min().sort_values()
        for stage, step in starts.items() if len(starts) > 1 else ():
            if step > history["step"].min():
                ax.axvline(step, color=c["line"], linewidth=1, zorder=0)
            ax.annotate(str(stage), (step, 1.0), xycoords=("data", "axes fraction"), xytext=(3, 3),
                        textcoords="offset points", fontsize=8.5, color=c["muted"])  # fmt: skip
    others = fit.n_restarts - 1
    if others:
        ax.plot([], [], color=c["muted"], label=f"{others} other restart{'s' * (others > 1)}")
    ax.legend(loc="lower right")
    ax.set_xlabel("step")
    ax.set_ylabel("nats per sequence" if hasattr(fit, "sequences") else "nats per row")
    ax.set_title(("Held-out" if column == "heldout_elbo" else "Training") + " ELBO per restart", pad=20)
    return ax


def _in_a_row(steps: pd.Series) -> pd.Series:
    """Steps that go on where a stage begins to count anew."""
    return steps + steps.shift().where(steps.diff() < 0, 0).cumsum()


@styled
def plot_agreement(idata: ArvizData, *, ax: Axes | None = None) -> Axes:
    """How alike the loadings of every two restarts (or chains) are, the best first.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Entries are those of `pyro_sparse.graphs.alignment.agreement_matrix`: 1 means the same factors.

    Raises
    ------
    TypeError
        The edges are not those of a table.
    """
    from matplotlib.colors import LinearSegmentedColormap

    table_edges(idata)
    weights = (
        get_group(idata, "posterior")["weight"]
        .mean("draw")
        .transpose("chain", "feature", "factor")
        .to_numpy()
    )
    stats = get_group(idata, "sample_stats")
    best = stats["best"].to_numpy()
    criterion = next((stats[name].to_numpy() for name in _CRITERIA if name in stats), best)
    order = np.lexsort((-np.nan_to_num(criterion.astype(float), nan=-np.inf), ~best))
    table = agreement_matrix(weights)[np.ix_(order, order)]
    n, c = len(table), colours()
    ax = new_axes(ax, 2.0 + 0.36 * min(n, 16), 1.6 + 0.36 * min(n, 16))
    ramp = LinearSegmentedColormap.from_list("agreement", [c["zero"], c["negative"]])
    image = ax.imshow(table, vmin=0, vmax=1, cmap=ramp)
    if n <= 12:
        for row, column in np.ndindex(table.shape):
            value = table[row, column]
            text = "–" if np.isnan(value) else f"{value:.2f}".lstrip("0")
            ink = c["zero"] if value > 0.55 else None
            ax.text(column, row, text, ha="center", va="center", fontsize=8.5, color=ink)
    names = [f"{r}*" if best[r] else str(r) for r in order]
    step = 1 + n // 20
    ax.set_xticks(range(0, n, step), names[::step])
    ax.set_yticks(range(0, n, step), names[::step])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    run = compared_runs(idata)
    ax.set_xlabel(f"{run}, {'those of the best restart' if run == 'chain' else 'best'} (*) first")
    ax.set_title(f"Agreement between {run}s")
    if n > 12:
        ax.figure.colorbar(image, ax=ax, shrink=0.8).outline.set_visible(False)
    return ax
