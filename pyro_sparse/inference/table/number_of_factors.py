r"""How many factors: eigenvalues beside noise, what graphs of each number are worth, is it settled?

Of a table that a graph explains exactly, the criterion that chose among graphs (`graph_search.py`) is about a
log evidence, and gives the numbers their probabilities. No real table is exact. There parallel analysis
bounds the number, which may tip with a few rows, without a word from probabilities that are given it. How
probable other numbers are is therefore asked of the eigenvalues, and which factors the best graph of such a
number has others for: these are in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from ..._utils.wording import listed
from ...data.large_table import LargeTable
from ...findings.finding import Finding
from ...graphs.alignment import SAME_FACTOR, similarity
from ...posterior.rival_restarts import criterion_of
from .cell_correlations import cell_eigenvalues
from .factor_likelihood import FactorFit, Moments
from .graph_search import best_graphs
from .linear_maximum import any_edge_is_possible, graph_worth, no_factor, row_moments
from .parallel_analysis import Eigenvalues, number_probabilities

if TYPE_CHECKING:
    from ...models.sparse_decoder import SparseDecoder
    from .result import Fit

__all__ = ["kept_factors", "number_findings", "number_of_factors"]

Array = NDArray[np.float64]
# Probability of other numbers from which a factor that they do not have cannot be surer than `present` asks.
_UNSETTLED = 0.05
# An upper bound says that there are no more, and anchors that there are no fewer.
_SETTLED_BY = {
    "fewer": "more rows, or an anchor for each factor that theory gives",
    "more": "more rows, or no more factors than theory gives (n_factors)",
}
_FURTHER = 1  # eigenvalues after those of all factors offered


def number_of_factors(fit: Fit) -> pd.DataFrame:
    """Eigenvalues, criterion and probability of each number of factors: see `Fit.number_of_factors`.

    Parameters
    ----------
    fit : Fit
    """
    if isinstance(fit.table, LargeTable) or not len(fit.table.x):
        raise ValueError(
            "number_of_factors: wants the rows of the fit, and this one has none in memory (it was read from "
            "a file, or its table is read by rows); ask the fit before it is saved, or fit a part of the rows"
        )
    mean, moments = row_moments(fit.table, np.arange(len(fit.table.x)))
    eigenvalues = cell_eigenvalues(fit, mean, moments)
    offered, kept = int(fit.model.n_factors), kept_factors(fit)
    size = min(len(eigenvalues.value), max(offered, kept) + _FURTHER)
    criterion, restarts = np.full(size + 1, -np.inf), np.zeros(size + 1, dtype=int)
    used = (np.asarray(fit.weights) != 0).any(1).sum(1)
    np.add.at(restarts, used, 1)
    if {"graph_level", "correlations"} & set(fit.settings):
        np.maximum.at(criterion, used, criterion_of(fit)[0])
    searched = "graph_level" in fit.settings and any_edge_is_possible(cast("SparseDecoder", fit.model))
    if searched:
        worth = graph_worth(fit.table, mean, moments)
        criterion[0] = max(criterion[0], worth(no_factor(moments)))
        for graph in best_graphs(moments, offered, fit.model.learn_factor_cov):
            k = graph.edge.shape[1]
            criterion[k] = max(criterion[k], worth(graph))
    probability = np.full(size + 1, np.nan)
    if fit.settings.get("supported_factors"):
        bounded = _bounded(fit, eigenvalues)
        probability[:] = 0.0
        probability[1 : len(bounded) + 1] = bounded
    elif searched or _has_neighbours(criterion, offered):
        probability = softmax(criterion)
    first, tried = np.array([np.nan]), np.where(np.isfinite(criterion), criterion, np.nan)
    return pd.DataFrame(
        {
            "eigenvalue": np.concatenate([first, eigenvalues.value[:size]]),
            "sd": np.concatenate([first, eigenvalues.sd[:size]]),
            "noise": np.concatenate([first, eigenvalues.noise[:size]]),
            "above": np.concatenate([first, eigenvalues.above[:size]]),
            "criterion": tried - np.max(tried, where=~np.isnan(tried), initial=-np.inf),
            "restarts": restarts,
            "probability": probability,
            "kept": np.arange(size + 1) == kept,
        },
        index=pd.RangeIndex(size + 1, name="factors"),
    )


class _Other(NamedTuple):
    """Numbers of factors on one side of the number kept."""

    probability: float
    n_factors: int  # the nearest
    side: str  # fewer or more


def number_findings(fit: Fit) -> list[Finding]:
    """Doubts about factors that the best graph with one factor more, or fewer, has others for.

    Where parallel analysis bounds the number, and others have a probability of .05 or more.

    Parameters
    ----------
    fit : Fit
        With its rows.

    Returns
    -------
    list of Finding
        At most one of fewer factors and one of more; notes where all factors would be the same.
    """
    kept = kept_factors(fit)
    if not fit.settings.get("supported_factors") or not kept:
        return []
    mean, moments = row_moments(fit.table, np.arange(len(fit.table.x)))
    eigenvalues = cell_eigenvalues(fit, mean, moments)
    worth = graph_worth(fit.table, mean, moments)
    probability = _bounded(fit, eigenvalues)
    others = [
        _Other(float(probability[: kept - 1].sum()), kept - 1, "fewer"),
        _Other(float(probability[kept:].sum()), kept + 1, "more"),
    ]
    return [_finding(fit, moments, worth, other) for other in others if other.probability >= _UNSETTLED]


def _finding(fit: Fit, moments: Moments, worth: Callable[[FactorFit], float], other: _Other) -> Finding:
    """Of numbers on one side of the kept one: a doubt about factors that the best graph there lacks."""
    best = int(fit.best)
    used = np.flatnonzero((np.asarray(fit.weights)[best] != 0).any(0))
    loadings = np.asarray(fit.weights, dtype=float)[best][:, used]
    loadings = loadings / fit.table.unit(fit.model.likelihood)[:, None]
    graphs = best_graphs(moments, other.n_factors, fit.model.learn_factor_cov)
    graphs = [graph for graph in graphs if graph.edge.shape[1] == other.n_factors]
    same = np.zeros(len(used), dtype=bool)
    if graphs:
        same = np.abs(similarity(loadings, max(graphs, key=worth).loadings)).max(1) >= SAME_FACTOR
    names = [fit.factor_names[k] for k in used[~same]]
    message = (
        f"the number of factors is not settled: by parallel analysis there are {other.side} than "
        f"{len(used)} with a probability of {other.probability:.2f}"
    )
    if not names:
        return Finding("number", f"{message}, and these are among them", size=other.probability)
    return Finding(
        "number",
        f"{message}; then there {'is another' if len(names) == 1 else 'are others'} in place of "
        f"{listed(names)}",
        f"{_SETTLED_BY[other.side]}; fit.number_of_factors() has the figures",
        "doubt",
        factors=tuple(names),
        size=other.probability,
    )


def _bounded(fit: Fit, eigenvalues: Eigenvalues) -> Array:
    """Probabilities of 1, 2, ... factors by parallel analysis, up to those that likelihood makes."""
    offered = int(fit.model.n_factors)
    likeliest = int(fit.settings.get("likeliest_factors", offered))
    return number_probabilities(eigenvalues.above, max(min(likeliest, offered), kept_factors(fit), 1))


def kept_factors(fit: Fit) -> int:
    """Factors with an edge in the best restart.

    Parameters
    ----------
    fit : Fit
    """
    return int((np.asarray(fit.weights)[int(fit.best)] != 0).any(0).sum())


def _has_neighbours(criterion: Array, offered: int) -> bool:
    """Whether the numbers beside the best one were tried, as far as they were offered."""
    best = int(criterion.argmax())
    return bool(np.isfinite(criterion[max(best - 1, 0) : min(best + 1, offered) + 1]).all())
