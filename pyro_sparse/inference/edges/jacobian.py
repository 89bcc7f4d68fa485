r"""Edges of a `DependencyVAE` by the strengths of its decoder's Jacobian: a mixture of errors and of edges.

Given the axes that a restart found, each strength :math:`r_{jk}` is either an edge's or the error of the axis
k (`inference/rotation/_strength_mixture.py`). One chain per restart, aligned: what restarts do not agree on
shows as the gap between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..._utils.checks import check_whole
from ..._utils.types import ArvizData, TableLike
from ...graphs.alignment import Alignment, apply_alignment
from ...posterior.tables import to_arviz
from ..rotation._strength_mixture import strength_mixture
from .density.requirements import lacks_for_strengths

if TYPE_CHECKING:
    from ..table.result import Fit

__all__ = ["jacobian_edges"]

_NOTE = (
    "Probabilities given the axes each restart found, from the sizes of the decoder's slopes; that another "
    "restart found other axes shows in the gap."
)
_SCORES = (
    "These numbers are scores, not probabilities: they come from the sizes of the decoder's slopes, and the "
    "model says otherwise what its decoder's output means."
)


def jacobian_edges(fit: Fit, num_draws: int = 500, seed: int = 0, X: TableLike | None = None) -> ArvizData:
    """Edge probabilities of a `DependencyVAE` from the strengths of its slopes.

    Parameters
    ----------
    fit : Fit
        Of a `DependencyVAE` whose axes were found.
    num_draws : int
        Draws per restart, at least 1.
    seed : int
        Child generators are spawned per restart.
    X : array_like (row, feature), optional
        The data, to be stored in `observed_data` when it is small.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        See `pyro_sparse.posterior.tables.to_arviz`; `weight` is that of the fit, zero where a draw has no
        edge.

    Raises
    ------
    ValueError
        The model has no strengths, or `num_draws` is below 1.
    """
    unaligned = getattr(fit.model, "strength", None)
    if unaligned is None:
        raise ValueError(
            f"fit: a {type(fit.model).__name__} has no strengths; wanted a fit of a DependencyVAE, or "
            "another method"
        )
    check_whole(1, num_draws=num_draws)
    why = lacks_for_strengths(fit.model)
    strength = apply_alignment(unaligned.cpu().double().numpy(), Alignment(**fit.alignment), signed=False)
    children = np.random.SeedSequence(seed).spawn(len(strength))
    mixtures = [
        strength_mixture(s, num_draws, seed=child) for s, child in zip(strength, children, strict=True)
    ]
    edge = np.stack([f.edge for f in mixtures])
    rate = np.stack([f.rate for f in mixtures])
    answer = to_arviz(
        fit,
        edge=edge,
        weight=np.where(edge, np.asarray(fit.weights)[:, None], 0.0),
        eta=np.broadcast_to(rate[..., None], (*rate.shape, strength.shape[-1])),
        probability=mixtures[int(fit.best)].probability,
        restart_probability=np.stack([f.probability for f in mixtures]),
        method="jacobian",
        is_score=bool(why),
        note=_SCORES if why else _NOTE,
        X=X,
        attrs={"seed": int(seed)},
    )
    if why:
        answer.attrs["verdict"] += f"\nWhy scores: {why[0]}."
    return answer
