r"""Frames to come: draws of the last latents, of the graph and of the noise, carried through the transition.

.. math:: z_{T} \sim q(z_T \mid x), \quad G \sim q(G), \quad
          z_{T+h,i} \sim N\big(m_i(G_i \odot (z_{T+h-1}, \ldots, a_{T+h})), s_i^2\big), \quad
          x_{T+h} \sim \mathrm{likelihood}(f(z_{T+h}))

One draw carries all three through to the last step, so that draws of different steps belong together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from ..._utils.checks import check_whole
from ..._utils.torch_state import undisturbed
from ..._utils.types import TableLike
from ...data.actions_ahead import actions_ahead
from ...data.sequences import SequenceBatch, Sequences
from ...models.latent_transition import LatentTransition
from ..training.forecasts import check_long_enough, labelled
from ..training.restarts import pick

if TYPE_CHECKING:
    from .transition_result import TransitionFit

__all__ = ["carry", "drawn_ahead", "forecast", "gated_program"]


def forecast(
    fit: TransitionFit,
    sequences: Sequences,
    steps: int,
    future_actions: TableLike | None,
    num_draws: int,
    seed: int,
) -> xr.DataArray:
    """Draws (draw, sequence, step, feature) of the frames after the last; see `TransitionFit.forecast`.

    Parameters
    ----------
    fit : TransitionFit
    sequences : Sequences
        Read by the fit.
    steps, future_actions, num_draws, seed
        As in `TransitionFit.forecast`.
    """
    check_whole(1, steps=steps, num_draws=num_draws)
    check_whole(0, seed=seed)
    model = gated_program(fit)
    check_long_enough(sequences, model.lags)
    actions = actions_ahead(fit.sequences, sequences, steps, future_actions)
    draws = drawn_ahead(model, sequences, actions, steps, num_draws, seed)
    return labelled(draws, fit.sequences, sequences)


def gated_program(fit: TransitionFit) -> LatentTransition:
    """The best restart, with its edges."""
    model = pick(fit.model, [fit.best])
    model.dense = False
    return model


def drawn_ahead(
    model: LatentTransition,
    sequences: Sequences,
    actions: np.ndarray | None,
    steps: int,
    num_draws: int,
    seed: int,
) -> np.ndarray:
    """Draws (draw, sequence, step, feature) of the frames after the last, in the fit's units.

    Parameters
    ----------
    model : LatentTransition
        `gated_program` of a fit.
    sequences : Sequences
        In the fit's units.
    actions : ndarray (sequence, step, action) or None
        Those that lead to each step, likewise.
    steps, num_draws, seed : int
    """
    like = model.axes
    batch = sequences.batch(like.device, like.dtype)
    ahead = None if actions is None else torch.as_tensor(actions, dtype=like.dtype, device=like.device)
    draws = []
    with undisturbed(seed=seed), torch.no_grad():
        q = model.posterior(batch)
        for _ in range(num_draws):
            z = carry(model, _last(q.rsample()[0], batch, model.lags), ahead, steps)
            f = model.decode(z.flatten(0, 1).unsqueeze(0))
            x = model.likelihood.observation(f).sample()[0].unflatten(0, z.shape[:2])
            draws.append(x.double().cpu().numpy())
    return np.stack(draws)


def carry(model: LatentTransition, past: Tensor, actions: Tensor | None, steps: int) -> Tensor:
    """One draw of the latents to come, (sequence, step, latent), under one draw of the graph.

    Parameters
    ----------
    model : LatentTransition
        Of one restart, with its gated program.
    past : Tensor (sequence, lag, latent)
        The latest frame first.
    actions : Tensor (sequence, step, action), optional
    steps : int
    """
    gates = torch.bernoulli(model.edge_probability)
    latents = []
    for h in range(steps):
        inputs = past.flatten(1) if actions is None else torch.cat([past.flatten(1), actions[:, h]], 1)
        mean, log_sd = model.gated(inputs.unsqueeze(0), model.by_input(gates))
        z = (mean + log_sd.exp() * torch.randn_like(mean))[0]
        latents.append(z)
        past = torch.cat([z.unsqueeze(1), past], 1)[:, : model.lags]
    return torch.stack(latents, 1)


def _last(z: Tensor, batch: SequenceBatch, lags: int) -> Tensor:
    """The last frames of each sequence, the latest first: (sequence, lag, latent)."""
    n, t = z.shape[:2]
    lengths = torch.full((n,), t, device=z.device) if batch.present is None else batch.present.sum(1)
    at = lengths.unsqueeze(1) - 1 - torch.arange(lags, device=z.device)
    return z[torch.arange(n, device=z.device).unsqueeze(1), at]
