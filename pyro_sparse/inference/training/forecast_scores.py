"""How good were forecasts? Frames that are known are forecast from those before them (rolling origin).

Each sequence is cut at several origins; what follows an origin is forecast from what came before, and scored.
Beside it stands what needs no model: the last frame plus changes over as many steps, drawn from those of the
sequences of the fit (persistence).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pandas as pd

from ..._utils.checks import check_whole
from ...data.sequences import Sequences
from ...metrics import crps

__all__ = ["forecast_scores"]

# (past, actions ahead, covariates ahead, steps, draws, seed) to draws (draw, sequence, step, feature)
Ahead: TypeAlias = Callable[[Sequences, np.ndarray | None, np.ndarray | None, int, int, int], np.ndarray]


def forecast_scores(
    of_fit: Sequences,
    draw_ahead: Ahead,
    lags: int,
    sequences: Sequences,
    steps: int,
    origins: int,
    interval: float,
    num_draws: int,
    seed: int,
) -> pd.DataFrame:
    """One row for each step and feature; see `TransitionFit.forecast_scores`.

    Parameters
    ----------
    of_fit : Sequences
        That the model was fitted to.
    draw_ahead : callable
        From (past, actions ahead, covariates ahead, steps, draws, seed) to draws in the fit's units.
    lags : int
        Frames that lead to the next.
    sequences : Sequences
        Read by the fit.
    steps, origins, interval, num_draws, seed
        As in `TransitionFit.forecast_scores`.
    """
    check_whole(1, steps=steps, origins=origins)
    check_whole(0, seed=seed)
    check_whole(2, num_draws=num_draws)
    if not 0 < interval < 1:
        raise ValueError(f"interval: want a probability between 0 and 1, got {interval!r}; .9 is usual")
    least = lags + steps
    if not (sequences.lengths >= least).any():
        raise ValueError(
            f"X: the longest sequence has {int(sequences.lengths.max())} frame(s), wanted {least} or more: "
            f"{lags} to forecast from and steps={steps} to compare with"
        )
    rng = np.random.default_rng(seed)
    changes = _changes(of_fit, steps)
    cells = []
    for back in range(origins):
        origin = sequences.lengths - steps - back
        kept = np.flatnonzero(origin >= max(lags, 1))
        if not len(kept):
            break
        some = sequences.rows(kept)
        cells.append(_scored(draw_ahead, some, origin[kept], changes, steps, interval, num_draws, rng))
    table = pd.concat(cells)
    scale = of_fit.scale[table["feature"]]
    table["crps"] *= scale
    table["crps_persistence"] *= scale
    table["feature"] = np.array(of_fit.feature_names)[table["feature"]]
    by = table.groupby(["step", "feature"], sort=False)
    means = by[["covered", "crps", "crps_persistence"]].mean()
    return means.rename(columns={"covered": "coverage"}).assign(n=by.size()).reset_index()


def _scored(
    draw_ahead: Ahead, sequences: Sequences, origin: np.ndarray, changes: list[np.ndarray | None],
    steps: int, interval: float, num_draws: int, rng: np.random.Generator,
) -> pd.DataFrame:  # fmt: skip
    """One row for each observed cell after an origin (sequence,), in the fit's units."""
    past = _until(sequences, origin)
    at = origin[:, None] + np.arange(steps)
    chain = np.arange(len(origin))[:, None]
    actions, covariates = (
        None if array is None else array[chain, at] for array in (sequences.actions, sequences.covariates)
    )
    draws = draw_ahead(past, actions, covariates, steps, num_draws, int(rng.integers(2**31)))
    truth, usable = sequences.x[chain, at], np.ones(at.shape, dtype=bool)
    if sequences.linked is not None:  # not beyond a gap
        usable = np.logical_and.accumulate(sequences.linked[chain, at], axis=1)
    seen = np.broadcast_to(usable[..., None], truth.shape)
    if sequences.mask is not None:
        seen = seen & sequences.mask[chain, at]
    low, high = np.quantile(draws, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    last = _last_seen(sequences, origin)
    unknown = np.full((num_draws, *last.shape), np.nan)
    drawn = [
        unknown if change is None else change[rng.integers(len(change), size=(num_draws, len(origin)))]
        for change in changes
    ]
    persistence = last[:, None] + np.stack(drawn, 2)
    _, step, feature = np.nonzero(seen)
    return pd.DataFrame(
        {
            "step": step + 1,
            "feature": feature,
            "covered": ((low <= truth) & (truth <= high))[seen].astype(float),
            "crps": crps(draws, truth)[seen],
            "crps_persistence": crps(persistence, truth)[seen],
        }
    )


def _until(sequences: Sequences, origin: np.ndarray) -> Sequences:
    """The first `origin` frames of each sequence."""
    longest = int(origin.max())
    present = np.arange(longest) < origin[:, None]
    x = sequences.x[:, :longest]
    mask, linked, actions, covariates = (
        None if array is None else array[:, :longest]
        for array in (sequences.mask, sequences.linked, sequences.actions, sequences.covariates)
    )
    if not present.all():
        mask = np.broadcast_to(present[..., None], x.shape) if mask is None else mask & present[..., None]
        linked = present if linked is None else linked & present
    return replace(
        sequences, x=x, mask=mask, linked=linked, actions=actions, covariates=covariates, index=None,
        gap=None, present=None if present.all() else present,
    )  # fmt: skip


def _last_seen(sequences: Sequences, origin: np.ndarray) -> np.ndarray:
    """The last value of each feature before the origin, (sequence, feature); 0, the mean, without any."""
    last = np.zeros((len(origin), sequences.x.shape[-1]))
    for t in range(int(origin.max())):
        now = np.broadcast_to((t < origin)[:, None], last.shape)
        if sequences.mask is not None:
            now = now & sequences.mask[:, t]
        last = np.where(now, sequences.x[:, t], last)
    return last


def _changes(sequences: Sequences, steps: int) -> list[np.ndarray | None]:
    """Changes of whole frames over 1, 2, … linked steps, (change, feature); None where there are none."""
    changes: list[np.ndarray | None] = []
    for h in range(1, steps + 1):
        change = sequences.x[:, h:] - sequences.x[:, :-h]
        usable = np.ones(change.shape[:2], dtype=bool)
        if sequences.mask is not None:
            usable &= (sequences.mask[:, h:] & sequences.mask[:, :-h]).all(-1)
        if sequences.linked is not None:
            for later in range(1, h + 1):
                usable &= sequences.linked[:, later : sequences.x.shape[1] - h + later]
        changes.append(change[usable] if usable.any() else None)
    return changes
