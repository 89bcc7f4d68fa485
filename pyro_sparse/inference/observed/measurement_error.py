"""Whether variables are measured with error, so that others which know more of them seem to drive them.

What is seen of a state is not all that the past says of the next one: older frames, and other variables, then
still predict. More lags look the same for some frames, so that the two are weighed: an autoregression of one
lag that is seen with error, and those of up to four lags that are not (`state_space.py`).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ..._utils.wording import listed
from ...data.sequences import Sequences
from ...findings.finding import Finding
from .state_space import ErrorModel, Pieces, autoregression_score, error_model
from .steps import observed_values, steps_of
from .terms import winsorised

__all__ = ["measurement_error"]

_LAGS = 4  # of autoregressions, one more than lags="auto" looks for
# Tuning seeds 1000 to 1019 of eight kinds without error (straight and curved effects, true second lags,
# walks, t(3) and correlated noise, rounding to half a standard deviation): none of 160 had more than 1 and 0.
_NATS = 2.0  # over one lag without error
_NATS_OVER_LAGS = 2.0  # over whatever lags explain the frames best
_LEAST_SHARE = 0.1  # of a variable's variance
_LEAST_FRAMES, _PER_PARAMETER = 100, 5
_MOST_VARIABLES, _MOST_INPUTS, _MOST_FRAMES = 5, 20, 2000  # six take 4 s, four 2 s
_LEAST_VALUES = 20  # different ones: levels and counts have noise of their own
_NAMED = 3


def measurement_error(sequences: Sequences, values: NDArray[np.float64]) -> list[Finding]:
    """The doubt about variables that look measured with error.

    Parameters
    ----------
    sequences : Sequences
    values : ndarray (sequence, time, variable)
        From `imputed`; only frames that were seen whole count.
    """
    d = len(sequences.feature_names)
    if d > _MOST_VARIABLES:
        return []
    pieces = _pieces(sequences, values)
    if pieces is None:
        return []
    may_err = _numbers(values)
    n, width = int(pieces.counted.sum()), pieces.inputs.shape[2]
    if not may_err.any() or n < max(_LEAST_FRAMES, _PER_PARAMETER * (d * (d + width + 1) + d)):
        return []
    one_lag, any_lags = (autoregression_score(pieces, lags) for lags in (1, _LAGS))
    wanted = max(one_lag + _NATS, any_lags + _NATS_OVER_LAGS)
    model = error_model(pieces, may_err, wanted)
    if model is None or model.score < wanted:
        return []
    share = model.errors / pieces.y.numpy()[pieces.counted].var(0).clip(1e-12)
    return [_finding(share, model, sequences)] if (share >= _LEAST_SHARE).any() else []


def _numbers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Variables of many values."""
    flat = values.reshape(-1, values.shape[2])
    return np.array([len(np.unique(column[~np.isnan(column)])) >= _LEAST_VALUES for column in flat.T])


def _pieces(sequences: Sequences, values: NDArray[np.float64]) -> Pieces | None:
    """Runs of frames that were seen whole, each with its past; None where there are none, or too many."""
    steps = steps_of(sequences, values, 1)
    whole = np.asarray((~np.isnan(observed_values(sequences))).all(-1))
    at = steps.at[whole[tuple(steps.at.T)] & whole[steps.at[:, 0], steps.at[:, 1] - 1]]
    if not len(at) or len(at) > _MOST_FRAMES:
        return None
    starts = np.flatnonzero(np.r_[True, (np.diff(at[:, 0]) != 0) | (np.diff(at[:, 1]) != 1)])
    runs = [
        (int(run[0, 0]), int(run[0, 1]) - 1, len(run) + 1) for run in np.split(at, starts[1:])
    ]  # sequence, first frame, frames
    parts = [a for a in (sequences.actions, sequences.covariates) if a is not None]
    inputs = np.concatenate([np.ones((*values.shape[:2], 1)), *parts], 2)
    if inputs.shape[2] > _MOST_INPUTS:
        return None
    longest = max(length for *_, length in runs)
    y = np.zeros((len(runs), longest, values.shape[2]))
    u = np.zeros((len(runs), longest, inputs.shape[2]))
    counted = np.zeros((len(runs), longest), dtype=bool)
    frames = np.concatenate([values[s, t : t + length] for s, t, length in runs])
    frames = winsorised(_within(frames, np.repeat([s for s, *_ in runs], [length for *_, length in runs])))
    end = 0
    for k, (s, t, length) in enumerate(runs):
        y[k, :length], u[k, :length] = frames[end : end + length], inputs[s, t : t + length]
        counted[k, _LAGS:length] = True
        end += length
    return Pieces(torch.as_tensor(y), torch.as_tensor(u), counted)


def _within(frames: NDArray[np.float64], sequence: NDArray[np.intp]) -> NDArray[np.float64]:
    """Frames less the mean of their sequence: levels that are not in the model would pass for a state."""
    member = np.unique(sequence, return_inverse=True)[1]
    means = np.stack([np.bincount(member, column) / np.bincount(member) for column in frames.T], 1)
    return np.asarray(frames - means[member])


def _finding(share: NDArray[np.float64], model: ErrorModel, sequences: Sequences) -> Finding:
    """What is said of it."""
    names = sequences.feature_names
    order = [int(j) for j in np.argsort(-share, kind="stable") if share[j] >= _LEAST_SHARE]
    shown = listed([f"{names[j]} ({share[j]:.0%} of its variance)" for j in order[:_NAMED]])
    more = f" and {len(order) - _NAMED} more" if len(order) > _NAMED else ""
    driven = np.asarray(
        model.edges[:, order].any(axis=1)
    )  # what drives the one with error seems to drive these
    driven[order] = True
    sources = [*names, *sequences.action_names]
    into = [(names[i], source) for i in np.flatnonzero(driven) for source in sources]
    out_of = [(target, names[j]) for target in names for j in order]
    return Finding(
        "measurement",
        f"{shown}{more} look measured with error, or moved by something unmeasured: errors beside one lag "
        f"explain the frames better than up to {_LAGS} lags without error; variables that tell more of them "
        "than one frame then seem to drive them, and older frames to act",
        "average repeated measurements, or fit a model of states behind them (LatentTransition); "
        "otherwise take these edges for associations",
        "doubt",
        "data",
        edges=tuple(dict.fromkeys([*into, *out_of])),
        columns=tuple(names[j] for j in order),
        size=float(share.max()),
    )
