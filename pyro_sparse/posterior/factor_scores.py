"""Scores of rows on the factors, with all that Markov chains do not know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from . import arviz as _arviz
from .draw_table import draw_table
from .draws import of_kept_chains
from .edge_table import check_is_of_table

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
    TypeError
        The object is not of a table.
    ValueError
        The chains were not asked to keep scores, or are of a program, which keep none.
    """
    check_is_of_table(idata, "its rows have scores")
    if "scores" not in _arviz.group_names(idata):
        raise ValueError(
            "idata: holds no scores; wanted fit.edge_posterior(scores=True) of a SparseDecoder, whose chains "
            "keep draws of them"
        )
    draws = _arviz.get_group(idata, "scores")["z"].transpose("chain", "draw", "sample", "factor")
    draws = of_kept_chains(idata, draws)
    known = draws.notnull().all(("chain", "draw", "sample")).to_numpy()
    table = draw_table(draws.isel(factor=known), prob, kind)
    rows, factors = draws["sample"].to_numpy(), draws["factor"].to_numpy()
    every = pd.DataFrame({"sample": rows.repeat(len(factors)), "factor": np.tile(factors, len(rows))})
    # by position: names of rows may repeat
    return every.join(table.iloc[:, 2:].set_axis(every.index[np.tile(known, len(rows))]))
