"""What a reader of a table's fit should know of its weights and the units of its columns: findings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data import Table
from ..findings import Finding
from .restarts import told_edges
from .weight_scores import has_zeros

__all__ = ["of_units", "of_weights"]

_UNITS = 0.2, 8.0  # standard deviations of columns that prior, least noise and steps are made for


def of_weights(model: Any, best: int, caps: np.ndarray) -> list[Finding]:
    """What the numbers of edges and factors of a fit with a prior should tell a reader.

    Parameters
    ----------
    model : FactorModel
        Trained, with a prior on its weights.
    best : int
        Restart.
    caps : ndarray (restart,)
        Factors that each restart might use.
    """
    edges = (model.weights[best] != 0).cpu().numpy()
    told = told_edges(model)
    permitted = model.permitted.cpu().numpy()
    if not permitted.any():
        return [
            Finding(
                "weights",
                "no edge was left to find: every edge is forbidden",
                "leave some open if the data should decide",
            )
        ]
    if not (edges & ~told).any() and (permitted & ~told).any():
        more = " but those it was told" if told.any() else ""
        return [
            Finding(
                "weights",
                f"the best restart has no edge{more}: the data support no shared factor, or the prior is too "
                "strong",
            )
        ]
    n_active = int(edges.any(0).sum())
    findings = []
    if n_active == model.n_factors > 1:
        more = (
            "more may be hidden, try a larger n_factors"
            if (caps < model.n_factors).any()
            else "no restart tried fewer: there may be too many (more restarts try fewer), or too few"
        )
        findings.append(Finding("weights", f"all {model.n_factors} factors are in use; {more}"))
    prior, weights = model.prior, model.weights.detach()
    lasso = prior.edge_log_odds(weights) is None and has_zeros(prior, weights)
    if lasso and bool((weights[best] != 0)[model.permitted].all()):
        findings.append(
            Finding(
                "weights",
                f"no weight is zero: {type(prior).__name__} is too weak for so many rows to leave any "
                "edge out",
                "raise its rate, or take a spike and slab",
            )
        )
    return findings


def of_units(model: Any, table: Table) -> list[Finding]:
    """A finding where columns are in units that prior, least noise and steps are not made for.

    Parameters
    ----------
    model : FactorModel
        Trained.
    table : Table
        What it was fitted to.
    """
    sd = table.input_scale / table.scale
    if model.likelihood.noise_sd() is None or (sd.min() >= _UNITS[0] and sd.max() <= _UNITS[1]):
        return []
    return [
        Finding(
            "units",
            f"columns have standard deviations from {sd.min():.2g} to {sd.max():.2g}: prior, least noise and "
            "steps are made for about 1, and edges may be lost",
            "standardise, or give them in other units",
            source="data",
        )
    ]
