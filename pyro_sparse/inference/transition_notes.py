"""What a reader of a fit of sequences should know before believing its graph: its warnings, in sentences."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..graphs.alignment import SAME_LATENTS
from .transition_axes import BENT
from .transition_run import UNDONE

__all__ = ["doubts", "fell", "of_agreement"]

GUESS = 0.7  # a gap below a factor of two
SPANNED = 0.5  # on tuning sets fits spanned .69 and more of what their edges need, with linear dynamics .04


def doubts(agreement: pd.DataFrame, best: int) -> list[str]:
    """Reasons to distrust the graph of the best restart.

    Parameters
    ----------
    agreement : DataFrame
        Of the fit.
    best : int
        Restart.
    """
    notes = []
    if agreement["gap"][best] < GUESS:
        notes.append(
            f"the weakest edge is only {np.exp(agreement['gap'][best]):.1f} times the strongest zero: "
            "the graph is a guess"
        )
    if agreement["influence"][best] < SPANNED:
        unseen = agreement.get("beyond_linear", {best: np.nan})[best] < BENT  # old files do not say
        why = "the dynamics are nearly linear"
        if unseen:
            why = "the held-out sequences do not show that the dynamics bend"
        notes.append(
            f"its influences span {agreement['influence'][best]:.0%} of the directions that its edges need: "
            f"{why}, and other axes may be as sparse"
        )
    others = agreement.drop(index=best)
    if len(others):
        other = others.sort_values(["edges_differing", "recovered"], ascending=[True, False]).iloc[0]
        if other["recovered"] < SAME_LATENTS or other["edges_differing"]:
            notes.append(
                f"no other restart agrees: the nearest recovers the latents to R = {other['recovered']:.2f} "
                f"and has {int(other['edges_differing'])} other edge(s)"
            )
    return notes


def fell(history: pd.DataFrame, best: int, reported: float, least: float) -> list[str]:
    """What to say where the held-out ELBO fell by more than `least`, during training or with the edges.

    Parameters
    ----------
    history : DataFrame
        Of the fit.
    best : int
        Restart.
    reported : float
        Its ELBO as the fit has it, nats per sequence.
    least : float
        Nats per sequence that count as a fall.
    """
    own = history[(history["restart"] == best) & history["heldout_elbo"].notna()].set_index("step")
    edges = own["stage"] == "edges"
    back = ", so the fit went back" if (own["stage"] == UNDONE).any() else ""
    notes = []
    for path, of, advice in (
        (own[~edges], "", f"{back}; fewer steps, or smaller hidden and units"),
        (own[edges], " of the edges' networks", "; fewer edge_steps, or smaller gated_units"),
    ):
        held = path["heldout_elbo"]
        if len(held) and held.max() - held.iloc[-1] > least:
            best_state = f"{held.max():.0f} at step {held.idxmax()}"
            last_state = f"{held.iloc[-1]:.0f} at step {held.index[-1]}"
            notes.append(f"held-out ELBO{of} fell from {best_state} to {last_state}: overfit{advice}")
    dense = own.loc[own["stage"] == "dense", "heldout_elbo"].max()
    if dense - reported > least:
        notes.append(
            f"held-out ELBO, {reported:.0f}, is that of the edges' networks, and was {dense:.0f} in the "
            "dense program: compare no other fit by it; more edge_steps may help"
        )
    return notes


def of_agreement(agreement: pd.DataFrame, best: int) -> list[str]:
    """Its doubts, and whether there was another restart to ask.

    Parameters
    ----------
    agreement : DataFrame
        Of the fit.
    best : int
        Restart.
    """
    alone = "one restart only: nothing here says whether another start would agree"
    return [*doubts(agreement, best), *([alone] if len(agreement) == 1 else [])]
