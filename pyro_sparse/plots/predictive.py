"""Posterior predictive check: does data simulated from the fit look like the data it was fitted to?

One panel compares all correlations between features, which is what factors are there to explain; the others
compare the distributions of single features, the worst reproduced first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data.design import features_of
from ..data.ordered_categories import labels_of
from ..data.read import read_like
from ._style import colours, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .._utils.types import TableLike
    from ..inference.table.result import Fit

__all__ = ["plot_predictive"]

_MAX_SIMULATED = 4000  # rows: a distribution function of so many is within .022 of the fit's, 19 times in 20


@styled
def plot_predictive(
    fit: Fit,
    X: TableLike,
    *,
    features: Sequence[str] | None = None,
    max_panels: int = 8,
    seed: int = 0,
    fig: Figure | None = None,
) -> Figure:
    """Data beside rows simulated from the fit: pairwise correlations, then feature by feature.

    Parameters
    ----------
    fit : Fit
    X : array_like of shape (sample, feature)
        The data, in original units; NaN is missing. Columns of a DataFrame are found by name.
    features : sequence of str, optional
        Which features to show. Default: those whose distributions differ most (largest Kolmogorov-Smirnov
        distance).
    max_panels : int
        Number of panels, the one of correlations included.
    seed : int
        Seed of the simulation.
    fig : Figure, optional
        Drawn into; it should have no axes yet.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        If X has other columns than the fit, or a name in `features` is unknown.
    TypeError
        If `fit` is not that of a table.
    """
    if not hasattr(fit, "sample"):
        raise TypeError(
            f"fit: want the fit of a table, whose rows can be simulated, got a {type(fit).__name__}; of "
            "tasks compare y with fit.predict()"
        )
    names = list(fit.feature_names)
    data = read_like(features_of(X, fit.table.taken), names, labels_of(fit.model))
    unknown = [name for name in features or () if name not in names]
    if unknown:
        raise ValueError(f"features: {unknown} are not among the fit's features {names[:5]}…")
    simulated = np.asarray(fit.sample(min(max(len(data), 500), _MAX_SIMULATED), seed=seed), dtype=float)
    distance = np.array([_ks_distance(data[:, j], simulated[:, j]) for j in range(len(names))])
    if features is None:
        shown = np.argsort(-distance, kind="stable")[: max(max_panels - 1, 0)]
    else:
        shown = np.array([names.index(name) for name in features], dtype=int)
    panels = len(shown) + 1
    across = min(4, panels)
    down = -(-panels // across)
    if fig is None:
        fig = new_figure(2.4 * across + 0.3, 2.15 * down + 0.7)
        # Numbers at the ends of neighbouring axes would read as one.
        fig.set_layout_engine("constrained", w_pad=0.1)
    axes = np.atleast_1d(fig.subplots(down, across)).ravel()
    _draw_correlations(axes[0], data, simulated)
    for ax, j in zip(axes[1:], shown, strict=False):
        _draw_feature(ax, data[:, j], simulated[:, j], shorten([names[j]], 24)[0])
    for ax in axes[panels:]:
        ax.set_axis_off()
    fig.suptitle(
        "Data (filled) and rows simulated from the fit (line)",
        fontsize=11,
        fontweight="bold",
        ha="left",
        x=0.01,
    )
    return fig


def _ks_distance(a: NDArray, b: NDArray) -> float:
    """Largest distance between two empirical distribution functions; NaN ignored."""
    from scipy.stats import ks_2samp

    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    # the p-value, which this method makes cheap, is not looked at
    return float(ks_2samp(a, b, method="asymp").statistic) if len(a) and len(b) else 0.0


def _draw_correlations(ax: Axes, data: NDArray, simulated: NDArray) -> None:
    c = colours()
    observed, predicted = (pd.DataFrame(values).corr().to_numpy() for values in (data, simulated))
    upper = np.triu_indices_from(observed, 1)
    ax.plot([-1, 1], [-1, 1], color=c["line"], linewidth=1.2, zorder=0)
    dots = len(upper[0])
    ax.plot(predicted[upper], observed[upper], "o", color=c["negative"], markeredgewidth=0, alpha=0.55,
            markersize=3.5 if dots < 2000 else 1.5, rasterized=dots > 2000)  # fmt: skip
    correlations = np.concatenate([observed[upper], predicted[upper]])
    correlations = correlations[np.isfinite(correlations)]
    if correlations.size:
        pad = 0.05 * (correlations.max() - correlations.min() + 0.1)
        ax.set(
            xlim=(correlations.min() - pad, correlations.max() + pad),
            ylim=(correlations.min() - pad, correlations.max() + pad),
        )
    ax.set_xlabel("simulated")
    ax.set_ylabel("data")
    ax.set_title("All correlations", fontsize=9.5, pad=5)


def _draw_feature(ax: Axes, data: NDArray, simulated: NDArray, name: str) -> None:
    c = colours()
    data, simulated = data[np.isfinite(data)], simulated[np.isfinite(simulated)]
    ax.set_title(name, fontsize=9.5, pad=5)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    if not len(data) or not len(simulated):
        return
    ends = np.concatenate([np.quantile(values, [0.005, 0.995]) for values in (data, simulated)])
    low, high = min(ends.min(), data.min()), max(ends.max(), np.quantile(data, 0.995))
    if np.array_equal(data, np.round(data)) and high - low <= 30:  # whole numbers: one bar each
        bins = np.arange(np.floor(low) - 0.5, np.ceil(high) + 1)
    else:
        bins = np.linspace(low, high if high > low else low + 1, int(np.clip(np.sqrt(len(data)), 10, 30)))
    edges = list(bins)
    ax.hist(data, edges, density=True, color=c["muted"], alpha=0.45, linewidth=0)
    ax.hist(simulated, edges, density=True, histtype="step", color=c["positive"], linewidth=1.6)
    ax.locator_params(axis="x", nbins=4)
