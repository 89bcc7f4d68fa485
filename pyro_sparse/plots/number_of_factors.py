"""How many factors? Eigenvalues of the correlations beside those of noise: a scree plot with uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import ndtri

from ._style import colours, new_axes, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..inference.table.result import Fit

__all__ = ["plot_number_of_factors"]

_LEVEL = 0.9  # of the intervals
_LEAST_SHOWN = 0.005  # probability that is written above its eigenvalue


@styled
def plot_number_of_factors(fit: Fit | pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Eigenvalues beside those of noise, the number of factors kept, and how probable the numbers are.

    Parameters
    ----------
    fit : Fit or DataFrame
        Of a table whose rows it has; or what its `number_of_factors()` returned.
    ax : Axes, optional

    Returns
    -------
    matplotlib Axes
        Figures are those of `fit.number_of_factors()`. Lines through the eigenvalues are 90 % intervals of
        those of the population.

    Raises
    ------
    TypeError
        This is neither.
    ValueError
        The fit has no rows in memory.

    References
    ----------
    Cattell (1966), The scree test for the number of factors, Multivariate Behavioral Research 1(2); Horn
    (1965), A rationale and test for the number of factors in factor analysis, Psychometrika 30(2)
    """
    every = fit if isinstance(fit, pd.DataFrame) else getattr(fit, "number_of_factors", lambda: None)()
    if every is None or not {"eigenvalue", "noise", "probability", "kept"} <= set(every.columns):
        raise TypeError(
            "fit: want what pyro_sparse.fit returned for a table of features, or its number_of_factors(), "
            f"got {type(fit).__name__}"
        )
    kept, table, c = int(every.index[every["kept"]].max()), every.loc[1:], colours()
    ax = new_axes(ax, 4.6 + 0.14 * len(table), 3.4)
    ax.plot(table.index, table["noise"], color=c["muted"], linestyle="--", label="tables of noise")
    half = ndtri(0.5 + _LEVEL / 2) * table["sd"]
    in_use = table.index <= kept
    for chosen, color, label in ((in_use, c["best"], "kept"), (~in_use, c["negative"], "not kept")):
        if chosen.any():
            ax.errorbar(
                table.index[chosen],
                table["eigenvalue"][chosen],
                half[chosen],
                fmt="o",
                color=color,
                linewidth=1.6,
                markersize=5.5,
                label=label,
            )
    top = (table["eigenvalue"] + half).to_numpy()
    for k, probability in table["probability"].items():
        if probability >= _LEAST_SHOWN:
            ax.annotate(f"P = {probability:.2f}".replace("0.", "."), (k, top[k - 1]), xytext=(0, 5),
                        textcoords="offset points", ha="center", fontsize=8.5)  # fmt: skip
    ax.set_ylim(0, 1.15 * max(top.max(), float(table["noise"].max())))
    ax.set_xticks(np.arange(1, len(table) + 1, 1 + len(table) // 20))
    ax.set_xlim(0.4, len(table) + 0.6)
    ax.legend(loc="upper right")
    has_probabilities = bool((table["probability"] >= _LEAST_SHOWN).any())
    ax.set_xlabel("factors (P: probability of the number)" if has_probabilities else "factors")
    ax.set_ylabel("eigenvalue of the correlations")
    ax.set_title(f"{kept} factor{'s' * (kept != 1)} kept")
    return ax
