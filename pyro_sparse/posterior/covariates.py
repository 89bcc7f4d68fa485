"""Effects of covariates and groups as a table: what Markov chains say of each, with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import arviz as _arviz
from .draw_table import draw_table
from .draws import of_kept_chains

if TYPE_CHECKING:
    import pandas as pd

    from .._utils.types import ArvizData

__all__ = ["covariate_effects"]

_SITE = "covariate_effect"


def covariate_effects(
    idata: ArvizData, *, prob: float = 0.9, kind: _arviz.IntervalKind = "hdi"
) -> pd.DataFrame:
    """Posterior of the effect of each covariate on each feature, in the chains that were kept.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a fit with `covariates` or `groups`.
    prob : float
        Probability inside the interval.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.

    Returns
    -------
    DataFrame
        One row per covariate and feature: `covariate`, `feature`, `mean`, `sd`, and the ends of the interval,
        `hdi90_lb` and `hdi90_ub` (named by kind and prob). Of a number the effect of its unit, of a category
        that of each level against the average row, all else equal; in the caller's units under normal noise,
        else on the scale of the linear predictor.

    Raises
    ------
    ValueError
        The fit had no covariates, or its edges are not from Markov chains that draw their effects.
    """
    posterior = _arviz.get_group(idata, "posterior")
    if _SITE not in posterior:
        raise ValueError(
            "idata: holds no effects of covariates; wanted fit.edge_posterior(), from Markov chains, of a "
            "fit with covariates= or groups="
        )
    kept = _arviz.get_group(idata, "sample_stats")["kept"].to_numpy().astype(bool)
    draws = posterior[_SITE].isel(chain=kept).transpose("chain", "draw", "covariate", "feature")
    draws = of_kept_chains(idata, draws)
    return draw_table(draws, prob, kind)
