"""What a reader of a table's fit should know of its weights and the units of its columns: findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...data.read import Table
from ...findings.finding import Finding
from ...posterior.rival_restarts import prescribed_edges
from .weight_scores import has_zeros

if TYPE_CHECKING:
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["of_units", "of_weights"]

_UNITS = 0.2, 8.0  # standard deviations of columns that prior, least noise and steps are made for


def of_weights(model: SparseDecoder, best: int) -> list[Finding]:
    """What the numbers of edges and factors of a fit with a prior should tell a reader.

    Parameters
    ----------
    model : SparseDecoder
        Trained, with a prior on its weights.
    best : int
        Restart.
    """
    edges = (model.weights[best] != 0).cpu().numpy()
    prescribed = prescribed_edges(model)
    permitted = model.permitted.cpu().numpy()
    if not permitted.any():
        message = "no edge was left to find: every edge is forbidden"
        return [Finding("size", message, "leave some open if the data should decide")]
    if not (edges & ~prescribed).any() and (permitted & ~prescribed).any():
        more = " but those it was given" if prescribed.any() else ""
        message = (
            f"the best restart has no edge{more}: the data support no shared factor, or the prior is too "
            "strong"
        )
        return [Finding("size", message)]
    notes = []
    prior, weights = model.prior, model.weights.detach()
    lasso = prior.edge_log_odds(weights) is None and has_zeros(prior, weights)
    if lasso and bool((weights[best] != 0)[model.permitted].all()):
        name = type(prior).__name__
        message = f"no weight is zero: {name} is too weak, with so many rows, to set any weight to zero"
        notes.append(Finding("prior", message, "raise its rate, or take a spike and slab"))
    return notes


def of_units(model: FactorModel, table: Table) -> list[Finding]:
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
    message = (
        f"columns have standard deviations from {sd.min():.2g} to {sd.max():.2g}: prior, least noise and "
        "steps are made for about 1, and edges may be lost"
    )
    return [Finding("columns", message, "standardise, or give them in other units", source="data")]
