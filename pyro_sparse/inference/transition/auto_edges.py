"""`sparsity="auto"`: how many edges, and which, by what held-out sequences lose without them.

The latents are frozen, so a level of the path (`edge_path.py`) costs a few hundred steps of gated networks
alone, with gates fixed at 0 or 1. An edge's strength is the held-out log-density that flipping its gate
costs; the weights behind a closed gate rest where they were, so a removed edge can be asked too and return.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..._utils.torch_state import undisturbed
from ...data.sequences import SequenceBatch
from ...models.latent_transition import LatentTransition
from .edge_path import Path, decreasing_path
from .transition_run import EdgeRun
from .transition_schedule import TransitionSchedule

__all__ = ["choose_edges", "flip_gains", "transition_density"]


@torch.no_grad()
def transition_density(model: LatentTransition, batch: SequenceBatch, gates: Tensor) -> Tensor:
    """Log-density of every latent of every sequence given its past, summed over time, (sequence, latent).

    Parameters
    ----------
    model : LatentTransition
        Folded, with one restart.
    batch : SequenceBatch
        One draw of the posterior is taken for each frame, always the same.
    gates : Tensor (1, latent, parent)
    """
    with undisturbed(seed=0, threads=None):  # the same draw each time: it cancels in differences
        z = model.posterior(batch).rsample()
    chain = model.chain(batch, gates)
    loc, log_sd = chain.moments(z)
    term = -0.5 * ((z - loc) * (-log_sd).exp()) ** 2 - log_sd - 0.5 * np.log(2 * np.pi)
    return (term * chain.present.unsqueeze(-1)).sum(2)[0]


def flip_gains(model: LatentTransition, batch: SequenceBatch, edges: np.ndarray) -> np.ndarray:
    """What each edge is worth, in nats per sequence: with it minus without it, (latent, parent).

    Parameters
    ----------
    model : LatentTransition
        Folded, with one restart.
    batch : SequenceBatch
    edges : ndarray of bool (latent, parent)
        Gates that are open.
    """
    gates = torch.as_tensor(edges, dtype=model.logits.dtype, device=model.logits.device)[None]
    now = transition_density(model, batch, gates).mean(0)
    gains = np.zeros(edges.shape)
    for j in range(
        edges.shape[1]
    ):  # targets have networks of their own: one input is flipped for all of them
        flipped = gates.clone()
        flipped[..., j] = 1 - flipped[..., j]
        change = (now - transition_density(model, batch, flipped).mean(0)).double().cpu().numpy()
        gains[:, j] = np.where(edges[:, j], change, -change)
    return gains


def choose_edges(
    model: LatentTransition, train: SequenceBatch, heldout: SequenceBatch, schedule: TransitionSchedule
) -> Path:
    """Walk the path of ever fewer edges; the model keeps the networks and the edges of the chosen level.

    Parameters
    ----------
    model : LatentTransition
        Folded, with one restart.
    train, heldout : SequenceBatch
        Sequences to learn from, and sequences to judge by.
    schedule : TransitionSchedule
        Its `edge_steps` are those of the first level; later ones take a fifth.

    Returns
    -------
    Path
    """
    permitted, must = model.allowed.clone(), model.must.clone()

    def fit(
        edges: np.ndarray, state: dict[str, Tensor] | None
    ) -> tuple[dict[str, Tensor], np.ndarray, np.ndarray]:
        # Fewer where the networks begin as the level before left them.
        steps = schedule.edge_steps if state is None else -(-schedule.edge_steps // 5)
        open_ = torch.as_tensor(edges, device=permitted.device)
        model.allowed.copy_(open_)
        model.must.copy_(open_)
        if state is not None:
            model.gated.load_state_dict(state)
        plan = replace(schedule, edge_steps=max(steps, 1)).of_edges()
        EdgeRun(model, train, None, plan).finish()
        gates = open_.to(model.logits)[None]
        scores = transition_density(model, heldout, gates).sum(-1).double().cpu().numpy()
        return copy.deepcopy(model.gated.state_dict()), scores, flip_gains(model, heldout, edges)

    try:
        path = decreasing_path(fit, permitted.cpu().numpy(), must.cpu().numpy())
    finally:  # Ctrl-C too leaves the caller's constraints
        model.allowed.copy_(permitted)
        model.must.copy_(must)
    best = path.checkpoints[path.chosen]
    model.gated.load_state_dict(best.state)
    with torch.no_grad():  # as `transition_axes.fold` lets a graph begin
        model.logits.copy_(3.0 * (2.0 * torch.as_tensor(best.edges).to(model.logits)[None] - 1))
    return path
