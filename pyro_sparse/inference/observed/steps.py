"""From sequences to a regression: the steps that have a past, their inputs and their targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data.sequences import Sequences

__all__ = ["LEAST_STEPS", "Steps", "cells_to_fill", "imputed", "observed_values", "steps_of"]

LEAST_STEPS = 20
_SWEEPS = 8  # of the imputation, over all variables
_RIDGE = 1.0  # as many steps as the prior of a coefficient counts for


class Steps(NamedTuple):
    """Steps to learn from.

    Attributes
    ----------
    inputs : ndarray (step, candidate)
        Variables one step back, two steps back, …, then actions.
    targets : ndarray (step, variable)
        NaN where the cell was not seen.
    n_blank : int
        Steps left out because nothing was seen of a frame that they would need.
    n_filled : int
        Steps with an input that was imputed.
    covariates : ndarray (step, column) or None
        Trend, season and covariates of the targets' frames.
    at : ndarray of int (step, 2)
        Sequence and frame of each target.
    """

    inputs: NDArray[np.float64]
    targets: NDArray[np.float64]
    n_blank: int
    n_filled: int
    covariates: NDArray[np.float64] | None
    at: NDArray[np.intp]


def observed_values(sequences: Sequences) -> NDArray[np.float64]:
    """Variables (sequence, time, variable), NaN where not seen and at padding.

    Parameters
    ----------
    sequences : Sequences
    """
    x = sequences.x.astype(float)
    if sequences.mask is not None:
        x = np.where(sequences.mask, x, np.nan)
    if sequences.present is not None:
        x = np.where(sequences.present[..., None], x, np.nan)
    return x


def steps_of(
    sequences: Sequences, values: NDArray[np.float64], lags: int, filled_targets: bool = False
) -> Steps:
    """The steps with `lags` frames before them that belong to their past.

    Parameters
    ----------
    sequences : Sequences
        Read with a lag of 1.
    values : ndarray (sequence, time, variable)
        `observed_values`, the missing cells of frames that were seen in part imputed.
    lags : int
    filled_targets : bool
        Whether imputed cells are targets, too, and not left out.
    """
    observed = observed_values(sequences)
    n, frames, d = observed.shape
    if frames <= lags:
        return Steps(np.zeros((0, 0)), np.zeros((0, d)), 0, 0, None, np.zeros((0, 2), int))
    has_past = np.ones((n, frames), bool) if sequences.linked is None else sequences.linked.copy()
    if sequences.present is not None:
        has_past &= sequences.present
    if sequences.gap is not None:
        for back in range(lags):
            has_past[:, back:] &= ~sequences.gap[:, : frames - back]
    has_past = has_past[:, lags:]
    seen = np.asarray((~np.isnan(observed)).any(-1))
    whole = np.asarray((~np.isnan(observed)).all(-1))
    before = [slice(lags - back, frames - back) for back in range(1, lags + 1)]
    of_inputs = np.stack([seen[:, part] for part in before]).all(0)
    use = has_past & of_inputs & seen[:, lags:]
    filled = use & ~np.stack([whole[:, part] for part in before]).all(0)
    parts = [values[:, part][use] for part in before]
    if sequences.actions is not None:
        parts.append(sequences.actions[:, lags:][use])
    covariates = None if sequences.covariates is None else sequences.covariates[:, lags:][use]
    n_blank, n_filled = int((has_past & ~use).sum()), int(filled.sum())
    targets = (values if filled_targets else observed)[:, lags:][use]
    at = np.argwhere(use)
    at[:, 1] += lags
    return Steps(np.concatenate(parts, 1), targets, n_blank, n_filled, covariates, at)


def cells_to_fill(sequences: Sequences) -> NDArray[np.bool_]:
    """Missing cells of frames of which something was seen, (sequence, time, variable).

    Parameters
    ----------
    sequences : Sequences
    """
    missing = np.isnan(observed_values(sequences))
    return np.asarray(missing & ~missing.all(-1, keepdims=True))


def imputed(sequences: Sequences, rng: np.random.Generator) -> NDArray[np.float64]:
    """A draw of the missing cells given the others: each by a regression on its frame and its neighbours.

    Chained equations: a variable is regressed on the other variables of its frame, on all variables of the
    frames before and after, and on actions and covariates; coefficients and noise are drawn. Frames of which
    nothing was seen stay missing.

    Parameters
    ----------
    sequences : Sequences
    rng : Generator

    References
    ----------
    van Buuren (2018), Flexible Imputation of Missing Data, 2nd edition, section 4.5.
    """
    observed = observed_values(sequences)
    seen = ~np.isnan(observed)
    to_fill = ~seen & seen.any(-1, keepdims=True)
    if not to_fill.any():
        return observed
    x = np.where(seen, observed, 0.0)  # standardised: 0 is the mean
    frame = np.asarray(seen.any(-1))
    for _ in range(_SWEEPS):
        for j in np.flatnonzero(to_fill.any((0, 1))):
            beside = np.delete(x, j, axis=-1)
            edge = np.zeros_like(x[:, :1])
            parts = [np.ones_like(x[..., :1]), beside]
            parts += [np.concatenate([edge, x[:, :-1]], 1), np.concatenate([x[:, 1:], edge], 1)]
            parts += [a for a in (sequences.actions, sequences.covariates) if a is not None]
            design = np.concatenate(parts, -1)
            known, wanted = seen[..., j] & frame, to_fill[..., j]
            a, y = design[known], x[..., j][known]
            precision = a.T @ a + _RIDGE * np.eye(a.shape[1])
            mean = np.linalg.solve(precision, a.T @ y)
            freedom = max(len(y) - 1, 1)
            variance = float(((y - a @ mean) ** 2).sum()) / rng.chisquare(freedom)
            root = np.linalg.cholesky(np.linalg.inv(precision))
            weights = mean + np.sqrt(variance) * root @ rng.normal(size=len(mean))
            x[..., j][wanted] = design[wanted] @ weights + np.sqrt(variance) * rng.normal(size=wanted.sum())
    return np.where(frame[..., None], x, np.nan)
