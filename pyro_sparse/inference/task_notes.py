"""What a fit of tasks says of itself: restarts that disagree, latents that tasks mix up or leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..findings import Finding
from ..graphs.alignment import SAME_LATENTS
from .restarts import only_restart

__all__ = ["doubts", "mixed", "of_agreement", "unused"]


def doubts(agreement: pd.DataFrame, best: int) -> list[Finding]:
    """Why the latents may not be the ones: no other restart has them all.

    Parameters
    ----------
    agreement : DataFrame
        Of the fit.
    best : int
        Restart.
    """
    others = agreement.drop(index=best)
    if len(others) and others["least"].max() < SAME_LATENTS:
        nearest = others["least"].max()
        message = (
            f"no other restart agrees: in the nearest, some latent has a correlation of only {nearest:.2f}"
        )
        return [Finding("restarts", message, severity="doubt", size=float(nearest))]
    return []


def mixed(block: np.ndarray) -> list[Finding]:
    """What to say of latents that the tasks do not tell apart.

    Parameters
    ----------
    block : ndarray of int (latent,)
        Latents of one number are a block.
    """
    sets = [np.flatnonzero(block == which) for which in np.unique(block)]
    return [
        Finding(
            "axes",
            f"latents {', '.join(str(k + 1) for k in members)}: the tasks do not tell them apart; their axes "
            "rest on independence, or on nothing",
            severity="doubt",
            factors=tuple(f"latent {k + 1}" for k in members),
        )
        for members in sets
        if len(members) > 1
    ]


def unused(model: Any) -> list[Finding]:
    """What to say of latents without a task (the best restart's own frame is everyone's).

    Parameters
    ----------
    model : MultiTaskRegression
        Trained.
    """
    idle = (~(model.weights[0] != 0).any(0)).nonzero()[:, 0].tolist()
    names = ", ".join(f"latent {k + 1}" for k in idle)
    if not idle:
        return []
    remedy = "lower n_latents, or give more tasks and rows"
    return [Finding("size", f"{names}: used by no task", remedy, factors=tuple(names.split(", ")))]


def of_agreement(agreement: pd.DataFrame, best: int, inner: str) -> list[Finding]:
    """Doubts, what `inner` leaves open, and whether there was another restart to ask.

    Parameters
    ----------
    agreement : DataFrame
        Of the fit.
    best : int
        Restart.
    inner : str
        The setting of the fit.
    """
    notes = doubts(agreement, best) if inner != "ridge" else []
    if inner == "ridge":
        message = "inner='ridge' fixes the latents up to a linear map only: single latents mean nothing"
        notes.append(Finding("axes", message, severity="doubt"))
    return [*notes, *only_restart(len(agreement))]
