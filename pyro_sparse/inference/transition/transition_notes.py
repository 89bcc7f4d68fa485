"""What a reader of a fit of sequences should know before believing its graph: its warnings, in sentences."""

from __future__ import annotations

import pandas as pd

from ...findings.finding import Finding
from .transition_run import UNDONE

__all__ = ["fell"]


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
    rows = history[(history["restart"] == best) & history["heldout_elbo"].notna()].set_index("step")
    edges = rows["stage"] == "edges"
    back = ", so the fit went back" if (rows["stage"] == UNDONE).any() else ""
    notes = []
    for path, of, advice in (
        (rows[~edges], "", f"{back}; fewer steps, or smaller hidden and units"),
        (rows[edges], " of the edges' networks", "; fewer edge_steps, or smaller gated_units"),
    ):
        elbo = path["heldout_elbo"]
        if len(elbo) and elbo.max() - elbo.iloc[-1] > least:
            best_state = f"{elbo.max():.0f} at step {elbo.idxmax()}"
            last_state = f"{elbo.iloc[-1]:.0f} at step {elbo.index[-1]}"
            message = f"held-out ELBO{of} fell from {best_state} to {last_state}: overfit{advice}"
            notes.append(Finding("overfit", message, size=float(elbo.max() - elbo.iloc[-1])))
    dense = rows.loc[rows["stage"] == "dense", "heldout_elbo"].max()
    if dense - reported > least:
        message = (
            f"held-out ELBO, {reported:.0f}, is that of the edges' networks, and was {dense:.0f} in the "
            "dense program: compare no other fit by it; more edge_steps may help"
        )
        notes.append(Finding("overfit", message, size=float(dense - reported)))
    return notes
