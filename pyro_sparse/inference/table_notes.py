"""What a reader of a table's fit should know of its weights and its columns: sentences for `fit.warnings`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data import Table
from .restarts import told_edges
from .weight_scores import has_zeros

__all__ = ["of_copies", "of_units", "of_weights"]

_UNITS = 0.2, 8.0  # standard deviations of columns that prior, least noise and steps are made for


def of_weights(model: Any, best: int, caps: np.ndarray) -> list[str]:
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
            "no edge was left to find: every edge is forbidden; leave some open if the data should decide"
        ]
    if not (edges & ~told).any() and (permitted & ~told).any():
        more = " but those it was told" if told.any() else ""
        return [
            f"the best restart has no edge{more}: the data support no shared factor, or the prior is too "
            "strong"
        ]
    n_active = int(edges.any(0).sum())
    notes = []
    if n_active == model.n_factors > 1:
        more = (
            "more may be hidden, try a larger n_factors"
            if (caps < model.n_factors).any()
            else "no restart tried fewer: there may be too many (more restarts try fewer), or too few"
        )
        notes.append(f"all {model.n_factors} factors are in use; {more}")
    prior, weights = model.prior, model.weights.detach()
    lasso = prior.edge_log_odds(weights) is None and has_zeros(prior, weights)
    if lasso and bool((weights[best] != 0)[model.permitted].all()):
        notes.append(
            f"no weight is zero: {type(prior).__name__} is too weak for so many rows to leave any edge out; "
            "raise its rate, or take a spike and slab"
        )
    return notes


def of_units(model: Any, table: Table) -> list[str]:
    """A sentence where columns are in units that prior, least noise and steps are not made for.

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
        f"columns have standard deviations from {sd.min():.2g} to {sd.max():.2g}: prior, least noise and "
        "steps are made for about 1, and edges may be lost; standardise, or give them in other units"
    ]


def of_copies(model: Any, table: Table) -> list[str]:
    """A sentence where columns repeat another one but for its units: a factor without noise of its own.

    Parameters
    ----------
    model : FactorModel
        Trained.
    table : Table
        What it was fitted to.
    """
    if model.likelihood.noise_sd() is None or not len(table.inputs):  # a table read by rows keeps none
        return []
    first: dict[bytes, str] = {}
    copies = []
    for name, column in zip(table.feature_names, table.inputs.T, strict=True):
        column = np.round(column / np.linalg.norm(column), 6)
        key = (column * np.sign(column[np.abs(column).argmax()]) + 0.0).tobytes()
        if first.setdefault(key, name) != name:
            copies.append(f"{name!r} repeats {first[key]!r}")
    if not copies:
        return []
    more = f" ({len(copies)} such columns)" if len(copies) > 1 else ""
    return [f"column {copies[0]} but for units{more}: the two make a factor of their own; drop one of them"]
