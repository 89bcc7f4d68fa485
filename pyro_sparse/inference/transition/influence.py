"""How much of what its graph needs the Jacobian of a fitted transition spans.

The theory behind sparse axes wants the derivatives along the edges to vary in as many ways as there are edges
(`graphs.identifiability.sufficient_influence`). Of a fitted transition that is asked up to the error of its
Jacobian, which shows in the entries that should be zero. Linear dynamics span next to nothing, and then many
axes are as sparse as the true ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ...graphs.identifiability import SufficientInfluence, sufficient_influence

__all__ = ["FittedInfluence", "fitted_influence", "share_spanned"]


class FittedInfluence(NamedTuple):
    """Sufficient influence of the past latents or of the actions.

    Parameters
    ----------
    influence : SufficientInfluence
        With the Jacobian's relative error as its tolerance.
    error : float
        Root mean square of the entries off the graph.
    """

    influence: SufficientInfluence
    error: float


def fitted_influence(
    jacobian: np.ndarray,
    graph: np.ndarray,
    n_latents: int,
    lags: int,
    action_widths: Sequence[int] | None = None,
) -> dict[Literal["time", "actions"], FittedInfluence]:
    """Sufficient influence by kind of input: "time" (of one lag) and "actions".

    Parameters
    ----------
    jacobian : ndarray (step, latent, input)
        Along the fitted axes; inputs are each lag's latents, then the actions' columns.
    graph : ndarray of int (latent, parent)
        Parents are each lag's latents, then actions.
    n_latents, lags : int
    action_widths : sequence of int, optional
        Columns of each action, default 1. What an action can do is what its columns span together.

    Returns
    -------
    dict
        Without a kind that has no input, fewer steps than edges, or more than one lag.
    """
    past = lags * n_latents
    influences: dict[Literal["time", "actions"], FittedInfluence] = {}
    slices: dict[Literal["time", "actions"], slice] = {"time": slice(0, past), "actions": slice(past, None)}
    for kind, columns in slices.items():
        values, edges = jacobian[:, :, columns], graph[:, columns] == 1
        if kind == "actions" and action_widths is not None:
            values = _by_action(values, action_widths)
        if not edges.any() or len(values) < edges.sum() or (kind == "time" and lags > 1):
            continue
        error = float(np.sqrt((values[:, ~edges] ** 2).mean())) if (~edges).any() else 0.0
        scale = float(np.sqrt((values[:, edges] ** 2).mean()))
        # At least rounding; a direction of half the largest counts however large the error is.
        tolerance = float(np.clip(error / max(scale, 1e-12), 1e-6, 0.5))
        influences[kind] = FittedInfluence(sufficient_influence(values, edges, kind, tolerance), error)
    return influences


def _by_action(jacobian: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    """Derivatives by each action's columns as samples of one action, (sample, latent, action).

    Narrower actions have zeros, which span nothing; sums of squares over samples, divided by their number,
    are as before.
    """
    most = max(widths, default=1)
    if most == 1:
        return jacobian
    stacked = np.zeros((most, *jacobian.shape[:2], len(widths)))
    for action, start in enumerate(np.cumsum(widths) - widths):
        for column in range(widths[action]):
            stacked[column, :, :, action] = jacobian[:, :, start + column] * np.sqrt(most)
    return stacked.reshape(-1, *stacked.shape[2:])


def share_spanned(influences: Mapping[Literal["time", "actions"], FittedInfluence]) -> float:
    """Smallest share, over the kinds, of the directions asked for that are there; 1 where none is asked.

    Parameters
    ----------
    influences : dict
        From `fitted_influence`.
    """
    shares = [f.influence.rank.sum() / f.influence.dimension.sum() for f in influences.values()]
    return float(min(shares, default=1.0))
