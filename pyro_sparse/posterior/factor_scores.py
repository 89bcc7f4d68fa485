"""Scores of rows on the factors, with all that Markov chains do not know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from . import arviz as _arviz
from .draws import of_kept_chains

if TYPE_CHECKING:
    from .._utils.types import ArvizData

__all__ = ["factor_scores"]


def factor_scores(idata: ArvizData, *, prob: float = 0.9, kind: _arviz.IntervalKind = "eti") -> pd.DataFrame:
    """Posterior of each row's factors, loadings and axes as unsure as they are.

    Standard deviations of `Fit.transform(return_std=True)` are given the loadings of the fit. With little
    noise these decide: the place of a row is then known far better than the axis that it is measured along.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior(scores=True)`.
    prob : float
        Probability inside the interval.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.

    Returns
    -------
    DataFrame
        One row per sample and factor: `sample`, `factor`, `mean`, `sd`, and the ends of the interval,
        `eti90_lb` and `eti90_ub` (named by kind and prob). NaN of factors that the chains did not run over.

    Raises
    ------
    ValueError
        The chains were not asked to keep scores.
    """
    if "scores" not in _arviz.group_names(idata):
        raise ValueError(
            "idata: holds no scores; wanted fit.edge_posterior(scores=True), whose chains keep draws of them"
        )
    draws = _arviz.get_group(idata, "scores")["z"].transpose("chain", "draw", "sample", "factor")
    draws, names = of_kept_chains(idata, draws), draws["factor"]
    draws = draws.isel(factor=draws.notnull().all(("chain", "draw", "sample")).to_numpy())
    ends = _arviz.interval(draws, prob, kind)
    moments = draws.mean(("chain", "draw")), draws.std(("chain", "draw"))
    mean, sd, lower, upper = (values.reindex(factor=names) for values in (*moments, *ends))
    name = f"{kind}{100 * prob:g}"
    columns = {"mean": mean, "sd": sd, f"{name}_lb": lower, f"{name}_ub": upper}
    return pd.DataFrame(
        {
            "sample": mean["sample"].to_numpy().repeat(mean.sizes["factor"]),
            "factor": list(mean["factor"].to_numpy()) * mean.sizes["sample"],
            **{
                column: values.transpose("sample", "factor").to_numpy().ravel()
                for column, values in columns.items()
            },
        }
    )
