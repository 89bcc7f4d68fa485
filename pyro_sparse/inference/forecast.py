r"""Frames to come: draws of the last latents, of the graph and of the noise, carried through the transition.

.. math:: z_{T} \sim q(z_T \mid x), \quad G \sim q(G), \quad
          z_{T+h,i} \sim N\big(m_i(G_i \odot (z_{T+h-1}, \ldots, a_{T+h})), s_i^2\big), \quad
          x_{T+h} \sim \mathrm{likelihood}(f(z_{T+h}))

One draw carries all three through to the last step, so that draws of different steps belong together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from .._torch import undisturbed
from .._whole import check_whole
from ..sequences import SequenceBatch, Sequences, as_sequences
from .restarts import pick

if TYPE_CHECKING:
    from .transition_result import TransitionFit

__all__ = ["carry", "forecast"]


def forecast(
    fit: TransitionFit, own: Sequences, steps: int, future_actions: Any, num_draws: int, seed: int
) -> xr.DataArray:
    """Draws (draw, sequence, step, feature) of the frames after the last; see `TransitionFit.forecast`.

    Parameters
    ----------
    fit : TransitionFit
    own : Sequences
        Read by the fit.
    steps, future_actions, num_draws, seed
        As in `TransitionFit.forecast`.
    """
    check_whole(1, steps=steps, num_draws=num_draws)
    check_whole(0, seed=seed)
    model = pick(fit.model, [fit.best])
    model.dense = False
    short = own.lengths < model.lags
    if short.any():
        first = int(short.argmax())
        raise ValueError(
            f"X: sequence {own.sequence_names[first]!r} has {int(own.lengths[first])} frame(s), "
            f"wanted at least the {model.lags} that lead to the next"
        )
    like = fit.model.axes
    batch = own.batch(like.device, like.dtype)
    actions = _future(fit.sequences, len(own), steps, future_actions)
    ahead = None if actions is None else torch.as_tensor(actions, dtype=like.dtype, device=like.device)
    with torch.no_grad(), undisturbed(seed=seed):
        q = model.posterior(batch)
        found = []
        for _ in range(num_draws):
            z = carry(model, _last(q.rsample()[0], batch, model.lags), ahead, steps)
            f = model.decode(z.flatten(0, 1).unsqueeze(0))
            x = model.likelihood.observation(f).sample()[0].unflatten(0, z.shape[:2])
            found.append(x.double().cpu().numpy() * fit.sequences.scale + fit.sequences.centre)
    return xr.DataArray(
        np.stack(found),
        dims=("draw", "sequence", "step", "feature"),
        coords={
            "sequence": own.sequence_names,
            "step": np.arange(1, steps + 1),
            "feature": fit.feature_names,
        },
    )


def carry(model: Any, past: Tensor, actions: Tensor | None, steps: int) -> Tensor:
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
    found = []
    for h in range(steps):
        inputs = past.flatten(1) if actions is None else torch.cat([past.flatten(1), actions[:, h]], 1)
        mean, log_sd = model.gated(inputs.unsqueeze(0), gates)
        z = (mean + log_sd.exp() * torch.randn_like(mean))[0]
        found.append(z)
        past = torch.cat([z.unsqueeze(1), past], 1)[:, : model.lags]
    return torch.stack(found, 1)


def _last(z: Tensor, batch: SequenceBatch, lags: int) -> Tensor:
    """The last frames of each sequence, the latest first: (sequence, lag, latent)."""
    n, t = z.shape[:2]
    lengths = torch.full((n,), t, device=z.device) if batch.present is None else batch.present.sum(1)
    at = lengths.unsqueeze(1) - 1 - torch.arange(lags, device=z.device)
    return z[torch.arange(n, device=z.device).unsqueeze(1), at]


def _future(like: Sequences, n: int, steps: int, actions: Any) -> np.ndarray | None:
    """Actions to come in the fit's units, (sequence, step, action)."""
    if (actions is None) != (like.actions is None):
        had = "without actions; leave them out"
        if like.actions is not None:
            had = f"with actions {like.action_columns}; give those that lead to each step"
        raise ValueError(f"future_actions: the model was fitted {had}")
    if actions is None:
        return None
    blank = np.zeros((n, steps, len(like.feature_names)))
    found = as_sequences(blank, actions=actions, like=like, lag=0).actions
    assert found is not None
    return found
