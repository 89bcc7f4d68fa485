"""Straighter latents: frames and sparse networks trained together, then axes once more.

A dense transition of many inputs is learned slowly, and as long as its error is large nothing tells a latent
from a curved version of itself. Networks of the few inputs that the graph leaves learn fast. They also let
latents drift where the graph cannot hold them (a triangular graph stays triangular in sheared latents), so
afterwards a dense transition is fitted to the new latents, and the axes are found again.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ...data.sequences import SequenceBatch
from ...models.latent_transition import LatentTransition
from .transition_axes import FoundAxes, find_axes, fold
from .transition_run import EdgeRun, PolishRun, RefitRun
from .transition_schedule import TransitionSchedule

__all__ = ["polish"]

_AROUND = 600  # steps of the networks before, and of the dense transition after; at most as many as between


def polish(
    model: LatentTransition,
    answers: list[FoundAxes],
    train: SequenceBatch,
    schedule: TransitionSchedule,
    seed: int = 0,
    heldout: SequenceBatch | None = None,
) -> list[FoundAxes]:
    """Polish a dense fit's latents with its graph, and find its axes again; Ctrl-C leaves the fit as it was.

    Parameters
    ----------
    model : LatentTransition
        After the dense fit, with one restart; ends as a dense fit of better latents.
    answers : list of FoundAxes
        Its axes.
    train : SequenceBatch
    schedule : TransitionSchedule
        Its `polish_steps` and `polish_rate`.
    seed : int
        Of the second search.
    heldout : SequenceBatch, optional
        Held-out sequences: what makes these less probable is undone.

    Returns
    -------
    list of FoundAxes
        Axes of the polished latents.
    """
    assert schedule.polish_steps is not None, "decide on the steps first: decided"
    around = min(_AROUND, schedule.polish_steps)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    permitted, must = model.allowed.clone(), model.must.clone()
    try:
        fold(model, answers)
        graph = torch.as_tensor(answers[0].graph, dtype=torch.bool, device=must.device)
        model.allowed.copy_(graph)
        model.must.copy_(graph)
        EdgeRun(model, train, heldout, replace(schedule, edge_steps=around).of_edges()).finish()
        PolishRun(model, train, heldout, schedule.of_polish(schedule.polish_steps)).finish()
        model.allowed.copy_(permitted)
        model.must.copy_(must)
        model.dense = True
        RefitRun(model, train, heldout, schedule.of_polish(around)).finish()
        return find_axes(model, train, seed, heldout)
    except KeyboardInterrupt:
        model.load_state_dict(before)
        model.dense = True
        raise
