"""What speaks against a graph of observed variables: a lag too few, effects within a step, cells not seen."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding

__all__ = ["missing_cells", "missing_lags", "noise_correlation", "within_step"]

_SURE = 0.95  # probability of an edge at a lag that the model does not have, from which it is reported
_NAMED = 3
_CORRELATED = 0.3  # correlation of two noises that is worth a word
_CHANCE = 0.01  # of all pairs together


def missing_lags(
    further: NDArray[np.float64], lags: int, names: list[str], sources: list[str]
) -> list[Finding]:
    """Edges one lag further back than the model goes.

    Parameters
    ----------
    further : ndarray (target, variable)
        Their probabilities.
    lags : int
    names : list of str
        Of the variables.
    sources : list of str
        Of all candidates at any lag, and of the actions.
    """
    edges = np.argwhere(further >= _SURE)
    if not len(edges):
        return []
    edges = edges[np.argsort(-further[tuple(edges.T)], kind="stable")]
    shown = [f"{names[j]} -> {names[i]} (P = {further[i, j]:.2f})" for i, j in edges[:_NAMED]]
    more = f" and {len(edges) - _NAMED} more" if len(edges) > _NAMED else ""
    targets = sorted({names[i] for i, _ in edges}, key=names.index)
    return [
        Finding(
            "lags",
            f"the step {lags + 1} back still predicts, given the {lags} step(s) of the model: "
            f"{', '.join(shown)}{more}; edges into {', '.join(targets)} may stand in for it",
            f'set lags={lags + 1}, or lags="auto" with max_lags={lags + 1} or more',
            "doubt",
            "data",
            edges=tuple((target, source) for target in targets for source in dict.fromkeys(sources)),
            size=float(further.max()),
        )
    ]


def cut_off(far: NDArray[np.intp], names: list[str]) -> list[Finding]:
    """What is said of cells far out, which enter at four robust standard deviations.

    Parameters
    ----------
    far : ndarray of int (variable,)
        `terms.far_cells`.
    names : list of str
        Of the variables.
    """
    columns = tuple(names[j] for j in np.flatnonzero(far))
    if not columns:
        return []
    return [
        Finding(
            "cells",
            f"{int(far.sum())} cells of {', '.join(columns[:_NAMED])} lie more than eight robust standard "
            "deviations from the middle, and enter as if they were at four",
            "correct them, or leave them empty; of a skewed variable take the logarithm",
            source="data",
            columns=columns,
            size=float(far.sum()),
        )
    ]


def noise_correlation(residual: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Correlations of what the past leaves of the variables within a step, and how many steps each is of.

    Parameters
    ----------
    residual : ndarray (step, variable)
        NaN where not seen.
    """
    frame = pd.DataFrame(residual)
    correlation = frame.corr(min_periods=3).fillna(0.0).to_numpy().copy()
    np.fill_diagonal(correlation, 1.0)
    seen = (~np.isnan(residual)).astype(int)
    return correlation, seen.T @ seen


def within_step(
    correlation: NDArray[np.float64], counts: NDArray[np.intp], names: list[str]
) -> list[Finding]:
    """Whether noises go together by more than chance, and by much.

    Parameters
    ----------
    correlation : ndarray (variable, variable)
    counts : ndarray of int (variable, variable)
        Steps that each is of.
    names : list of str
    """
    first, second = np.triu_indices(len(names), 1)
    r, n = correlation[first, second], np.maximum(counts[first, second], 4)
    p = 2 * stats.norm.sf(np.abs(np.arctanh(r.clip(-0.999999, 0.999999))) * np.sqrt(n - 3))
    large = np.flatnonzero((np.abs(r) >= _CORRELATED) & (p * max(len(r), 1) < _CHANCE))
    if not len(large):
        return []
    large = large[np.argsort(-np.abs(r[large]), kind="stable")]
    shown = [f"{names[first[k]]} and {names[second[k]]} ({r[k]:.2f})" for k in large[:_NAMED]]
    more = f" and {len(large) - _NAMED} more pairs" if len(large) > _NAMED else ""
    return [
        Finding(
            "noise",
            f"what the past leaves of {', '.join(shown)}{more} is correlated within a step: effects faster "
            "than a step, or a cause that was not measured, which edges between steps do not show",
            "measure at shorter steps, or add what drives both",
            columns=tuple(dict.fromkeys(names[i] for k in large for i in (first[k], second[k]))),
            size=float(np.abs(r[large]).max()),
        )
    ]


def missing_cells(
    n_missing: int, n_cells: int, n_filled: int, n_steps: int, draws: int, seldom: list[str]
) -> Finding:
    """How missing cells were dealt with.

    Parameters
    ----------
    n_missing, n_cells : int
        Cells not seen, and all.
    n_filled, n_steps : int
        Steps whose inputs were drawn, and all.
    draws : int
        Imputations.
    seldom : list of str
        Variables that were seen in less than half of the frames of which anything was.
    """
    remedy = ""
    if seldom:
        named = ", ".join(seldom[:_NAMED]) + (f" and {len(seldom) - _NAMED} more" * (len(seldom) > _NAMED))
        remedy = (
            f"of {named}, seen in less than half of the frames, look at the gap of edges between chains, and "
            "where it is large give more imputations="
        )
    return Finding(
        "missing",
        f"{n_missing} of {n_cells} cells are missing; for what they lead to, in "
        f"{n_filled} of {n_steps} steps, they were drawn {draws} times by each chain, with the model itself, "
        "as if they were missing at random",
        remedy,
        source="data",
        columns=tuple(seldom),
        size=n_missing / n_cells,
    )
