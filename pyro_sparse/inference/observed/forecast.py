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
from ..training.forecasts import check_long_enough, labelled
from .effects import Effects, draw_effects, prepared
from .posterior import candidates_of, classes_of
from .steps import cells_to_fill, imputed, observed_values, steps_of
from .terms import term_map

if TYPE_CHECKING:
    from ..._utils.types import TableLike
    from .observed_result import ObservedFit

__all__ = ["check_own_sequences", "drawn_ahead", "forecast"]

_MOST_CELLS = 10_000_000  # of terms that are computed at once


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
    return labelled(draws, fit.sequences, sequences)


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
    root = _root(fit.noise_correlation)
    parts = []
    for filling, of_filling in enumerate(np.array_split(np.arange(num_draws), len(fit.filled))):
        if not len(of_filling):
            continue
        values = observed_values(fit.sequences)
        values[cells_to_fill(fit.sequences)] = fit.filled[filling]
        effects = _drawn_effects(fit, filling, values, len(of_filling), rng)
        if past is not fit.sequences:
            values = imputed(past, rng)
        last = np.repeat(_last_frames(past, values, fit.lags)[None], len(of_filling), 0)
        parts.append(_carried(effects, last, actions, covariates, steps, root, rng))
    return np.concatenate(parts)


def _carried(
    effects: list[Effects],
    last: NDArray[np.float64],
    actions: NDArray[np.float64] | None,
    covariates: NDArray[np.float64] | None,
    steps: int,
    root: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """The frames that follow the last ones (draw, sequence, lag, variable)."""
    n_draws, n, lags, d = last.shape
    ahead = np.zeros((n_draws, n, steps, d))
    for h in range(steps):
        inputs = last.reshape(n_draws, n, -1)
        if actions is not None:
            now = np.broadcast_to(actions[:, h], (n_draws, n, actions.shape[-1]))
            inputs = np.concatenate([inputs, now], -1)
        noise = rng.normal(size=(n_draws, n, d)) @ root.T
        frame = np.zeros((n_draws, n, d))
        for i, mean in enumerate(_means(effects, inputs)):
            frame[..., i] = mean + effects[i].noise_sd[:, None] * noise[..., i]
            if covariates is not None:
                frame[..., i] += effects[i].covariates @ covariates[:, h].T
        ahead[:, :, h] = frame
        last = np.concatenate([frame[:, :, None], last], 2)[:, :, :lags]
    return ahead


def _drawn_effects(
    fit: ObservedFit, filling: int, values: NDArray[np.float64], num_draws: int, rng: np.random.Generator
) -> list[Effects]:
    """Draws of the effects on every target, given sets of terms that the fit drew."""
    steps = steps_of(fit.sequences, values, fit.lags, filled_targets=True)
    candidates = candidates_of(fit.sequences, fit.lags)
    of_column = np.repeat(np.arange(candidates.total), candidates.widths)
    terms = term_map(steps.inputs, fit.model.curves, fit.model.products, of_column)
    of_steps = prepared(terms, steps.inputs, steps.covariates)
    sets = fit.sets[filling]
    at = rng.choice(len(sets), num_draws, replace=num_draws > len(sets))
    return [
        draw_effects(of_steps, target, sets[at, i], fit.slab[filling][classes_of(terms, i, candidates)], rng)
        for i, target in enumerate(steps.targets.T)
    ]


def _means(effects: list[Effects], inputs: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Intercepts and sums of terms, (draw, sequence) of every target; maps that targets share once."""
    n_draws, n, width = inputs.shape
    means = [np.repeat(of_target.intercept[:, None], n, 1) for of_target in effects]
    maps = {id(of_target.terms): of_target.terms for of_target in effects}
    for key, terms in maps.items():
        targets = [i for i, of_target in enumerate(effects) if id(of_target.terms) == key]
        at_once = max(1, _MOST_CELLS // (n * len(terms.kind)))
        for first in range(0, n_draws, at_once):
            draws = slice(first, first + at_once)
            columns = terms.columns(inputs[draws].reshape(-1, width)).reshape(-1, n, len(terms.kind))
            for i in targets:
                means[i][draws] += np.einsum("rnt,rt->rn", columns, effects[i].weights[draws])
    return means


def _last_frames(past: Sequences, values: NDArray[np.float64], lags: int) -> NDArray[np.float64]:
    """The last frames of each sequence, the latest first: (sequence, lag, variable)."""
    check_long_enough(past, lags)
    at = past.lengths[:, None] - 1 - np.arange(lags)
    chain = np.arange(len(past))[:, None]
    blank = np.asarray(np.isnan(values[chain, at]).all(-1))
    if blank.any():
        first = int(blank.any(1).argmax())
        raise ValueError(
            f"X: of sequence {past.sequence_names[first]!r} one of the last {lags} frame(s), which lead to "
            "the next, has nothing that was seen; cut the sequence off before it"
        )
    return np.asarray(values[chain, at])


def _root(correlation: NDArray[np.float64]) -> NDArray[np.float64]:
    """A root of a correlation matrix, which pairs with missing cells may have left with negative roots."""
    value, vector = np.linalg.eigh(correlation)
    root = vector * np.sqrt(value.clip(0))
    return np.asarray(root / np.sqrt((root**2).sum(1, keepdims=True)))
