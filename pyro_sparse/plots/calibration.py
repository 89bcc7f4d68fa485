"""Are the probabilities what they say? The reliability curve, and the ranks of simulation-based calibration.

Bands show what a calibrated method would do by chance; what leaves them is drawn in the colour of attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._style import colours, new_axes, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..calibrate.reliability import Reliability
    from ..calibrate.sbc import SBC

__all__ = ["plot_reliability", "plot_sbc"]

_STRIP = 0.16  # height of the histogram below the curve


@styled
def plot_reliability(result: Reliability, ax: Axes | None = None) -> Axes:
    """How often edges exist against the probability they were given, and how many there are of each.

    Parameters
    ----------
    result : Reliability
        From `pyro_sparse.calibrate.reliability`.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Dots are bins; the band behind each is where a calibrated forecast would have it. Dots outside are
        orange. The strip at the bottom counts edges, on a square-root scale.
    """
    _refuse_other(result, "curve", "Reliability", "reliability")
    curve, c = result.curve, colours()
    ax = new_axes(ax, 4.6, 4.8)
    x, y = curve["mean_probability"].to_numpy(), curve["frequency"].to_numpy()
    low, high = curve["band_low"].to_numpy(), curve["band_high"].to_numpy()
    outside = (y < low) | (y > high)
    left, width = curve["low"].to_numpy(), (curve["high"] - curve["low"]).to_numpy()
    ax.plot([0, 1], [0, 1], color=c["muted"], linewidth=0.9, zorder=1)
    ax.bar(left, np.maximum(high - low, 0.006), width, bottom=np.minimum(low, high - 0.003), align="edge",
           color=c["muted"], alpha=0.3, linewidth=0, zorder=0,
           label=f"if calibrated ({result.prob:.0%} of the time)")  # fmt: skip
    ax.plot(x, y, color=c["negative"], linewidth=1.3, zorder=2)
    for some, colour, label in (
        (~outside, c["negative"], "inside its band"),
        (outside, c["positive"], "outside"),
    ):
        if some.any():
            ax.plot(x[some], y[some], "o", color=colour, markersize=5.5, zorder=3, label=label)
    count = np.sqrt(curve["count"].to_numpy())
    floor = -_STRIP - 0.05
    ax.bar(left, _STRIP * count / count.max(), 0.85 * width, bottom=floor, align="edge", color=c["muted"],
           alpha=0.6, linewidth=0)  # fmt: skip
    ax.axhline(-0.025, color=c["line"], linewidth=0.8)
    ax.set(xlim=(-0.02, 1.02), ylim=(floor, 1.03), ylabel="share of edges that exist")
    ax.set_xlabel(f"probability given to {result.n_edges:,} edges")
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.set_title(result.verdict.capitalize(), pad=22)
    ax.annotate(f"ECE {result.ece:.3f}, {result.ece_null:.3f} by chance", (0, 1), xycoords="axes fraction",
                xytext=(0, 6), textcoords="offset points", fontsize=9, color=c["muted"])  # fmt: skip
    ax.legend(loc="upper left")
    return ax


@styled
def plot_sbc(result: SBC, axes: np.ndarray | None = None) -> np.ndarray:
    """Distribution function of each statistic's ranks less that of uniform ranks, with the simultaneous band.

    Parameters
    ----------
    result : SBC
        From `pyro_sparse.calibrate.sbc`.
    axes : ndarray of Axes, optional
        At least one for each statistic; flattened.

    Returns
    -------
    ndarray of matplotlib Axes, shape (statistic,)
        A hill: the truth lies below its draws; a valley: above. A hill and then a valley: draws too sure; a
        valley and then a hill: not sure enough.

    Raises
    ------
    ValueError
        If there are fewer axes than statistics.
    """
    _refuse_other(result, "statistics", "SBC", "sbc")
    c, n = colours(), len(result.statistics)
    if axes is None:
        across = min(4, n)
        down = -(-n // across)
        figure = new_figure(max(2.6 * across + 0.3, 5.0), 2.1 * down + 0.7)
        panels = np.atleast_1d(figure.subplots(down, across, sharex=True)).ravel()
        figure.suptitle(_headline(result), fontsize=11, fontweight="bold", ha="left", x=0.01)
        for ax in panels[n:]:
            ax.set_axis_off()
    else:
        panels = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        if len(panels) < n:
            raise ValueError(f"axes: want one for each of the {n} statistics, got {len(panels)}")
    x = np.concatenate([[0], result.points, [1]])
    low, high = (
        np.concatenate([[0], end - result.points, [0]]) for end in (result.band_low, result.band_high)
    )
    for ax, name, ecdf, inside in zip(panels, result.statistics, result.ecdf, result.inside, strict=False):
        ax.axhline(0, color=c["muted"], linewidth=0.9, zorder=1)
        ax.fill_between(x, low, high, color=c["muted"], alpha=0.25, linewidth=0, zorder=0)
        difference = np.concatenate([[0], ecdf - result.points, [0]])
        ax.plot(x, difference, color=c["negative"] if inside else c["positive"], linewidth=1.6, zorder=2)
        ax.set_xlim(0, 1)
        ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
        ax.set_title(*shorten([name if inside else f"{name}: outside"], 24), fontsize=9.5, pad=5)
    for ax in panels[max(0, n - 4) : n]:
        ax.set_xlabel(f"rank of the truth / {result.num_draws + 1}")
        ax.tick_params(labelbottom=True)
    panels[0].set_ylabel("share below, less uniform")
    return panels[:n]


def _refuse_other(result: object, has: str, wanted: str, maker: str) -> None:
    if not hasattr(result, has):
        raise TypeError(f"result: want a {wanted}, got {type(result).__name__}; calibrate.{maker} makes one")


def _headline(result: SBC) -> str:
    outside = int((~result.inside).sum())
    verdict = "all inside their bands" if result.passes else f"{outside} of {len(result.statistics)} outside"
    return f"Ranks of {result.n_data_sets} truths among {result.num_draws} draws: {verdict}"
