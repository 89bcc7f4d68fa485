r"""Frames to come of observed variables: draws of terms, effects and noise, carried on step by step.

.. math:: \sigma_i^2 \mid \gamma, y, \quad \beta_i \mid \sigma_i^2, \gamma, y, \quad
          (\alpha_i, \delta_i) \mid \beta_i, \sigma_i^2, y, \qquad
          x_{T+h,i} = \alpha_i + d_{T+h}^\top \delta_i + \sum_k \beta_{ik} f_k(\cdot) + \sigma_i \varepsilon

The sets of terms are draws of the fit. Noises of one step are correlated as those that were left in the fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..._utils.checks import check_whole
from ...data.actions_ahead import actions_ahead
from ...data.frame_covariates import future_columns
from ...data.sequences import Sequences
from ..training.checkpoint import digest
from .effects import Effects, Prepared, draw_effects, prepared
from .posterior import candidates_of, classes_of
from .steps import imputed, observed_values, steps_of
from .terms import term_map

if TYPE_CHECKING:
    from ..._utils.types import TableLike
    from .observed_result import ObservedFit

__all__ = ["check_own_sequences", "drawn_ahead", "drawn_effects", "forecast"]

_MOST_CELLS = 10_000_000  # of terms that are computed at once
_FILLED = 5  # different imputations of the last frames, where cells are missing


def forecast(
    fit: ObservedFit,
    sequences: Sequences,
    steps: int,
    future_actions: TableLike | None,
    future_covariates: Any,
    num_draws: int,
    seed: int,
) -> xr.DataArray:
    """Draws (draw, sequence, step, feature) of the frames after the last; see `ObservedFit.forecast`.

    Parameters
    ----------
    fit : ObservedFit
    sequences : Sequences
        In the fit's units.
    steps, future_actions, future_covariates, num_draws, seed
        As in `ObservedFit.forecast`.
    """
    check_whole(1, steps=steps, num_draws=num_draws)
    check_whole(0, seed=seed)
    check_own_sequences(fit)
    actions = actions_ahead(fit.sequences, sequences, steps, future_actions)
    covariates = future_columns(sequences, steps, future_covariates, "future_covariates")
    draws = drawn_ahead(fit, sequences, actions, covariates, steps, num_draws, seed)
    return xr.DataArray(
        draws * fit.sequences.scale + fit.sequences.centre,
        dims=("draw", "sequence", "step", "feature"),
        coords={
            "sequence": sequences.sequence_names,
            "step": np.arange(1, steps + 1),
            "feature": fit.feature_names,
        },
    )


def check_own_sequences(fit: ObservedFit) -> None:
    """Complain unless the fit has the sequences that it was made from.

    Parameters
    ----------
    fit : ObservedFit

    Raises
    ------
    ValueError
        The fit was loaded without its sequences, or has others.
    """
    if not len(fit.sequences):
        raise ValueError(
            "X: forecasts follow from the steps of the fit, which a loaded one has not: use "
            "fit.with_data(X, ...) with its own sequences first"
        )
    if digest(*fit.sequences.content()) != fit.settings["data"]:
        raise ValueError(
            "X: the fit has other sequences than it was made from: use fit.with_data(X, ...) with those, and "
            "give the ones to go on from to forecast"
        )


def drawn_ahead(
    fit: ObservedFit,
    past: Sequences,
    actions: NDArray[np.float64] | None,
    covariates: NDArray[np.float64] | None,
    steps: int,
    num_draws: int,
    seed: int,
) -> NDArray[np.float64]:
    """Draws (draw, sequence, step, feature) of the frames after the last, in the fit's units.

    Parameters
    ----------
    fit : ObservedFit
    past : Sequences
    actions, covariates : ndarray (sequence, step, column) or None
        Of the frames to come.
    steps, num_draws, seed : int
    """
    rng = np.random.default_rng(seed)
    effects = drawn_effects(fit, num_draws, rng)
    last = _last_frames(past, fit.lags, num_draws, rng)  # (draw, sequence, lag, variable)
    root = _root(fit.noise_correlation)
    n, d = len(past), len(fit.feature_names)
    ahead = np.zeros((num_draws, n, steps, d))
    for h in range(steps):
        inputs = last.reshape(num_draws, n, -1)
        if actions is not None:
            now = np.broadcast_to(actions[:, h], (num_draws, n, actions.shape[-1]))
            inputs = np.concatenate([inputs, now], -1)
        noise = rng.normal(size=(num_draws, n, d)) @ root.T
        frame = np.zeros((num_draws, n, d))
        for i, mean in enumerate(_means(effects, inputs)):
            frame[..., i] = mean + effects[i].noise_sd[:, None] * noise[..., i]
            if covariates is not None:
                frame[..., i] += effects[i].covariates @ covariates[:, h].T
        ahead[:, :, h] = frame
        last = np.concatenate([frame[:, :, None], last], 2)[:, :, : fit.lags]
    return ahead


def drawn_effects(fit: ObservedFit, num_draws: int, rng: np.random.Generator) -> list[Effects]:
    """Draws of the effects on every target, given sets of terms that the fit drew.

    Parameters
    ----------
    fit : ObservedFit
        With the sequences that it was fitted to.
    num_draws : int
    rng : Generator
    """
    filled = imputed(fit.sequences, np.random.default_rng([fit.settings["seed"], 1]))
    steps = steps_of(fit.sequences, filled, fit.lags)
    candidates = candidates_of(fit.sequences, fit.lags)
    of_column = np.repeat(np.arange(candidates.total), candidates.widths)
    sets = fit.sets.reshape(-1, *fit.sets.shape[2:])
    at = rng.choice(len(sets), num_draws, replace=num_draws > len(sets))
    shared: dict[bytes, Prepared] = {}
    effects = []
    for i, column in enumerate(steps.targets.T):
        seen = ~np.isnan(column)
        inputs, key = steps.inputs[seen], seen.tobytes()
        if key not in shared:
            terms = term_map(inputs, fit.model.curves, fit.model.products, of_column)
            beside = None if steps.covariates is None else steps.covariates[seen]
            shared[key] = prepared(terms, inputs, beside)
        slab = fit.slab[classes_of(shared[key].terms, i, candidates)]
        effects.append(draw_effects(shared[key], column[seen], sets[at, i], slab, rng))
    return effects


def _means(effects: list[Effects], inputs: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Intercepts and sums of terms, (draw, sequence) of every target; maps that targets share once."""
    n_draws, n, width = inputs.shape
    means = [np.repeat(one.intercept[:, None], n, 1) for one in effects]
    maps = {id(one.terms): one.terms for one in effects}
    for key, terms in maps.items():
        targets = [i for i, one in enumerate(effects) if id(one.terms) == key]
        at_once = max(1, _MOST_CELLS // (n * len(terms.kind)))
        for first in range(0, n_draws, at_once):
            part = slice(first, first + at_once)
            columns = terms.columns(inputs[part].reshape(-1, width)).reshape(-1, n, len(terms.kind))
            for i in targets:
                means[i][part] += np.einsum("rnt,rt->rn", columns, effects[i].weights[part])
    return means


def _last_frames(past: Sequences, lags: int, num_draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """The last frames of each sequence, the latest first, missing cells drawn: (draw, sequence, lag, d)."""
    short = past.lengths < lags
    if short.any():
        first = int(short.argmax())
        raise ValueError(
            f"X: sequence {past.sequence_names[first]!r} has {int(past.lengths[first])} frame(s), wanted at "
            f"least the {lags} that lead to the next"
        )
    at = past.lengths[:, None] - 1 - np.arange(lags)
    chain = np.arange(len(past))[:, None]
    blank = np.asarray(np.isnan(observed_values(past)[chain, at]).all(-1))
    if blank.any():
        first = int(blank.any(1).argmax())
        raise ValueError(
            f"X: of sequence {past.sequence_names[first]!r} one of the last {lags} frame(s), which lead to "
            "the next, has nothing that was seen; cut the sequence off before it"
        )
    partly = bool(np.isnan(observed_values(past)[chain, at]).any())
    filled = np.stack([imputed(past, rng)[chain, at] for _ in range(_FILLED if partly else 1)])
    return filled[np.arange(num_draws) % len(filled)]


def _root(correlation: NDArray[np.float64]) -> NDArray[np.float64]:
    """A root of a correlation matrix, which pairs with missing cells may have left with negative roots."""
    value, vector = np.linalg.eigh(correlation)
    root = vector * np.sqrt(value.clip(0))
    return np.asarray(root / np.sqrt((root**2).sum(1, keepdims=True)))
