r"""Frames to come: draws of the last latents, of the graph and of the noise, carried through the transition.

.. math:: z_{T} \sim q(z_T \mid x), \quad G \sim q(G), \quad
          z_{T+h,i} \sim N\big(m_i(G_i \odot (z_{T+h-1}, \ldots, a_{T+h})), s_i^2\big), \quad
          x_{T+h} \sim \mathrm{likelihood}(f(z_{T+h}))

One draw carries all three through to the last step, so that draws of different steps belong together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import xarray as xr
from torch import Tensor

from ..._utils.checks import check_whole
from ..._utils.torch_state import undisturbed
from ..._utils.types import TableLike
from ...data.columns import as_frame, text_columns
from ...data.sequences import SequenceBatch, Sequences, as_sequences
from ...models.latent_transition import LatentTransition
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
    short = sequences.lengths < model.lags
    if short.any():
        first = int(short.argmax())
        raise ValueError(
            f"X: sequence {sequences.sequence_names[first]!r} has {int(sequences.lengths[first])} frame(s), "
            f"wanted at least the {model.lags} that lead to the next"
        )
    actions = _future(fit.sequences, sequences, steps, future_actions)
    draws = drawn_ahead(model, sequences, actions, steps, num_draws, seed)
    return xr.DataArray(
        draws * fit.sequences.scale + fit.sequences.centre,
        dims=("draw", "sequence", "step", "feature"),
        coords={
            "sequence": sequences.sequence_names,
            "step": np.arange(1, steps + 1),
            "feature": fit.feature_names,
        },
    )


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


def _future(like: Sequences, past: Sequences, steps: int, actions: TableLike | None) -> np.ndarray | None:
    """Actions to come in the fit's units, (sequence, step, action)."""
    if (actions is None) != (like.actions is None):
        had = "without actions; leave them out"
        if like.actions is not None:
            had = f"with actions {like.action_names}; give those that lead to each step"
        raise ValueError(f"future_actions: the model was fitted {had}")
    if actions is None:
        return None
    columns = like.action_names
    wanted = (len(past), steps, len(columns))
    actions = as_frame(actions)
    if isinstance(actions, pd.DataFrame):
        split = _by_sequence(actions, like, past, steps)
    else:
        split = (
            [as_frame(table) for table in cast(list[TableLike], actions)]
            if hasattr(actions, "__len__")
            else []
        )
        if len(split) == wanted[0] == 1 and np.ndim(split[0]) < 2 and steps > 1:
            split = [actions]  # (step, action) for the only sequence
        shapes = [_shape(table) for table in split]
        odd = next((i for i, shape in enumerate(shapes) if shape != wanted[1:]), None)
        if len(split) != wanted[0] or odd is not None:
            if not isinstance(actions, list | tuple):
                got = f"shape {np.shape(cast(npt.ArrayLike, actions))}"
            else:
                got = f"{len(split)} sequence(s)" if odd is None else f"{shapes[odd]} in sequence {odd}"
            raise ValueError(
                f"future_actions: want (sequence, step, action) = {wanted}, got {got}; give for every "
                f"sequence the actions {columns} that lead to each of the {steps} step(s)"
            )
    blank = np.zeros((len(past), steps, len(like.feature_names)))
    try:
        future = as_sequences(blank, actions=split, like=like, lag=0)
    except (TypeError, ValueError) as error:
        raise type(error)(f"future_{error}" if str(error).startswith("actions: ") else str(error)) from None
    assert future.actions is not None
    if future.linked is not None:
        s, h = np.argwhere(~future.linked)[0]
        raise ValueError(
            f"future_actions: an action is missing in sequence {past.sequence_names[s]!r}, step {h + 1} "
            f"({int((~future.linked).sum())} such step(s)); say what it will be"
        )
    return future.actions


def _shape(actions: TableLike) -> tuple[int, ...] | None:
    """Of one sequence's actions, (step, action); None of what is ragged."""
    try:
        shape = np.shape(cast(npt.ArrayLike, actions))
    except ValueError:
        return None
    return (*shape, 1) if len(shape) == 1 else shape


def _by_sequence(table: pd.DataFrame, like: Sequences, past: Sequences, steps: int) -> list[pd.DataFrame]:
    """The actions of each sequence in a long table with the fit's columns: rows by time, if it has that."""
    id, time, columns = like.roles.get("id"), like.roles.get("time"), like.action_names
    names = [name for name in (id, time, *columns) if name is not None]
    table = text_columns(table.reset_index([n for n in table.index.names if n is not None and n in names]))
    absent = [str(name) for name in (id, *columns) if name is not None and str(name) not in table]
    if absent:
        raise ValueError(
            f"future_actions: has no column {absent[0]!r}; want those of the fit: {names}, one row for every "
            "sequence and step"
        )
    if time is not None and str(time) in table:
        table = table.sort_values(str(time), kind="stable")
    rows = np.zeros(len(table), str) if id is None else table[str(id)].astype(str).to_numpy()
    wanted = [""] if id is None else past.sequence_names
    if len(wanted) != len(past):  # the fit's table was one sequence, X are arrays of several
        raise ValueError(f"future_actions: is one table, X has {len(past)} sequences; give an array for each")
    places = pd.Index(wanted).get_indexer(rows)
    counts = np.bincount(places[places >= 0], minlength=len(wanted))
    if (counts != steps).any():
        s = int((counts != steps).argmax())
        raise ValueError(
            f"future_actions: has {counts[s]} row(s) of sequence {past.sequence_names[s]!r} "
            f"({int((counts != steps).sum())} such sequence(s)), want {steps}, one for each step"
        )
    return [table.loc[places == s, columns] for s in range(len(wanted))]
