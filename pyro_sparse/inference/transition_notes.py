"""What a reader of a fit of sequences should know before believing its graph: its warnings, in sentences."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..findings import Finding
from ..graphs.alignment import SAME_LATENTS
from .restarts import only_restart
from .transition_axes import BENT
from .transition_run import UNDONE

__all__ = ["doubts", "fell", "of_agreement"]

GUESS = 0.7  # a gap below a factor of two
SPANNED = 0.5  # on tuning sets fits spanned .69 and more of what their edges need, with linear dynamics .04


def doubts(agreement: pd.DataFrame, best: int) -> list[Finding]:
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
        times = float(np.exp(agreement["gap"][best]))
        message = f"the weakest edge is only {times:.1f} times the strongest zero: the graph is a guess"
        notes.append(Finding("gap", message, severity="doubt", size=times))
    if agreement["influence"][best] < SPANNED:
        unseen = agreement.get("beyond_linear", {best: np.nan})[best] < BENT  # old files do not say
        why = "the dynamics are nearly linear"
        if unseen:
            why = "the held-out sequences do not show that the dynamics bend"
        share = float(agreement["influence"][best])
        message = (
            f"its influences span {share:.0%} of the directions that its edges need: {why}, and other axes "
            "may be as sparse"
        )
        notes.append(Finding("influence", message, severity="doubt", size=share))
    others = agreement.drop(index=best)
    if len(others):
        other = others.sort_values(["edges_differing", "recovered"], ascending=[True, False]).iloc[0]
        if other["recovered"] < SAME_LATENTS or other["edges_differing"]:
            message = (
                f"no other restart agrees: the nearest recovers the latents to R = {other['recovered']:.2f} "
                f"and has {int(other['edges_differing'])} other edge(s)"
            )
            notes.append(Finding("restarts", message, severity="doubt", size=float(other["recovered"])))
    return notes


def fell(history: pd.DataFrame, best: int, reported: float, least: float) -> list[Finding]:
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
            message = f"held-out ELBO{of} fell from {best_state} to {last_state}: overfit{advice}"
            notes.append(Finding("overfit", message, size=float(held.max() - held.iloc[-1])))
    dense = own.loc[own["stage"] == "dense", "heldout_elbo"].max()
    if dense - reported > least:
        message = (
            f"held-out ELBO, {reported:.0f}, is that of the edges' networks, and was {dense:.0f} in the "
            "dense program: compare no other fit by it; more edge_steps may help"
        )
        notes.append(Finding("overfit", message, size=float(dense - reported)))
    return notes


def of_agreement(agreement: pd.DataFrame, best: int) -> list[Finding]:
    """Its doubts, and whether there was another restart to ask.

    Parameters
    ----------
    agreement : DataFrame
        Of the fit.
    best : int
        Restart.
    """
    return [*doubts(agreement, best), *only_restart(len(agreement))]
