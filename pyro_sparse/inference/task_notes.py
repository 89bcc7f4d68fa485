"""What a fit of tasks says of itself: restarts that disagree, latents that tasks mix up or leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..graphs.alignment import SAME_LATENTS

__all__ = ["doubts", "mixed", "of_agreement", "unused"]


def doubts(agreement: pd.DataFrame, best: int) -> list[str]:
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
        return [
            f"no other restart agrees: in the nearest, some latent has a correlation of only {nearest:.2f}"
        ]
    return []


def mixed(block: np.ndarray) -> list[str]:
    """What to say of latents that the tasks do not tell apart.

    Parameters
    ----------
    block : ndarray of int (latent,)
        Latents of one number are a block.
    """
    sets = [np.flatnonzero(block == which) for which in np.unique(block)]
    return [
        f"latents {', '.join(str(k + 1) for k in own)}: the tasks do not tell them apart; their axes rest on "
        "independence, or on nothing"
        for own in sets
        if len(own) > 1
    ]


def unused(model: Any) -> list[str]:
    """What to say of latents without a task (the best restart's own frame is everyone's).

    Parameters
    ----------
    model : MultiTaskRegression
        Trained.
    """
    idle = (~(model.weights[0] != 0).any(0)).nonzero()[:, 0].tolist()
    names = ", ".join(f"latent {k + 1}" for k in idle)
    return [f"{names}: used by no task; lower n_latents, or give more tasks and rows"] if idle else []


def of_agreement(agreement: pd.DataFrame, best: int, inner: str) -> list[str]:
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
    notes = []
    if inner == "ridge":
        notes.append("inner='ridge' fixes the latents up to a linear map only: single latents mean nothing")
    if len(agreement) == 1:
        notes.append("one restart only: nothing here says whether another start would agree")
    return notes
