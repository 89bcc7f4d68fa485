"""What sequences show before any fit: columns that count frames, means that move with time, a lag too few.

Each of these breaks what a transition model takes for granted: that the same transition leads to every frame,
and that the last `lags` frames and the actions hold all of the past that matters. Each check reads values
alone, takes a second or so, and files a `Finding` that names the columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from ...findings.finding import Finding
from ..sequences import Sequences
from .frames import frame_findings

if TYPE_CHECKING:
    from ...models.latent_transition import LatentTransition

__all__ = ["counter_columns", "missing_lag", "moving_means", "sequence_findings"]

_NAMED = 5  # columns that a sentence lists before it counts the rest
_EVEN = 1e-6  # relative spread of differences that are one number up to rounding
_LEAST_RISES = 30  # steps, all of them rises: by chance once in 2^30

# Of a column's variance: clean tuning sets at rest had .013 at most.
_SHARE_MOVED = 0.05
# Of what the frame before leaves unexplained: of a start far from rest next to nothing.
_SHARE_LEFT = 0.005
_SHARE_DOUBTED = 0.25  # of it: from here on a common driver is as large as the latents' own dynamics
_CHANCE = 1e-6  # p-value, of each column
_LEAST_PANEL = 20  # sequences whose frames are compared by their number
_LEAST_TIMES = 4
_LEAST_TREND = 6  # times of which a line and the slope of a decay can be told apart
_LASTING = (
    0.8  # of the earlier slope is left in the later half: of 200 tuning sets two had so much by a decay
)
_LEAST_FRAMES = 6  # in a sequence, of which a start far from rest may take the first third
_LEAST_LONG = 60  # frames of a sequence that is looked at alone
_MOST_LONG = 20
_STANDARD_ERRORS = 6.0  # of a slope, with autocorrelated errors
_SHARE_STEADY = 0.5  # of it, that the halves of sequences have; of jumps between two levels it is near 0
_SHARE_LINE = 0.1  # of a column's variance in one period, and how far it stands above the periods around it
_LINE = 30.0
_AROUND = 20

_GAIN = 0.04  # share of the error that one frame more removes: of clean tuning sets it was .02 at most
# Of the variance, which levels that change inflate; clean tuning sets (1000 to 1399) stayed below zero.
_LEAST_GAIN = 0.01
_LEAST_STEPS = 300
_MOST_STEPS = 6000  # that regressions are made of: a check takes a second or so
_WAVES = 300  # random features of the frames that the model reads
_MORE_WAVES = 60  # and of the one before
_RIDGES = 1e-3, 1e-2, 1e-1  # of features of unit mean square; held-out steps choose


def sequence_findings(sequences: Sequences, model: LatentTransition) -> list[Finding]:
    """All that sequences show against a fit of this model to them.

    Parameters
    ----------
    sequences : Sequences
    model : LatentTransition
        Its `lags`, `n_latents` and likelihood.

    Returns
    -------
    list of Finding
        Of source "data".
    """
    counters = counter_columns(sequences)
    counted = [name for finding in counters for name in finding.columns]
    columns = [j for j, name in enumerate(sequences.feature_names) if name not in counted]
    of_frames = frame_findings(sequences, columns) if model.likelihood.standardise else []
    findings = [*counters, *moving_means(sequences, columns)]
    # A season looks like memory, and so does the noise of counts; a trend does not, but memory like a trend.
    if {finding.kind for finding in findings} <= {"trend"} and model.likelihood.standardise:
        findings += missing_lag(sequences, model.lags, model.n_latents, columns)
    return [*findings, *of_frames]


def counter_columns(sequences: Sequences) -> list[Finding]:
    """Features that count or stand still: frame numbers, time stamps, properties of a whole sequence.

    Parameters
    ----------
    sequences : Sequences
    """
    x = sequences.x * sequences.scale + sequences.centre
    observed = _seen(sequences)
    broken = np.zeros(x.shape[:2], bool) if sequences.gap is None else sequences.gap
    even, rising, still = [], [], []
    for j, name in enumerate(sequences.feature_names):
        steps, lengths = _steps(x[:, :, j], observed[:, :, j], broken)
        if (lengths == 1).sum() < _LEAST_RISES:
            continue
        if not steps.any():
            still.append(name)
            continue
        size = np.abs(steps).max()
        if np.ptp(steps / lengths) <= _EVEN * size + 1e-9 * np.abs(x[:, :, j]).max():
            even.append(name)
        elif (steps > 0).all() or (steps < 0).all():
            rising.append(name)
    findings = []
    if still:
        findings.append(
            Finding(
                "columns",
                f"{_listed(still)} stays the same from frame to frame in every sequence: a property of a "
                "whole sequence, or its name, which no latent drives",
                "leave it out, or give it as an action",
                "doubt",
                "data",
                columns=tuple(still),
                size=1.0,
            )
        )
    if even:
        findings.append(
            Finding(
                "columns",
                f"{_listed(even)} changes by the same amount in every step: a counter or a time stamp, which "
                "no latent drives",
                "give it as time=, or leave it out",
                "doubt",
                "data",
                columns=tuple(even),
                size=1.0,
            )
        )
    if rising:
        findings.append(
            Finding(
                "columns",
                f"{_listed(rising)} goes one way in every step of every sequence: a time stamp, or a sum "
                "that accumulates",
                "give a time stamp as time=, and of a sum its differences",
                "doubt",
                "data",
                columns=tuple(rising),
                size=1.0,
            )
        )
    return findings


def moving_means(
    sequences: Sequences, columns: list[int] | None = None, remedies: Mapping[str, str] | None = None
) -> list[Finding]:
    """Features whose mean moves with time: a trend, a season, or anything else that frames share.

    Sequences that are many are compared frame by frame, after their first third (a start far from rest is no
    trend); long ones are looked at one by one, for a straight line and for a single period. What actions
    explain is taken off before.

    Parameters
    ----------
    sequences : Sequences
    columns : list of int, optional
        Features to look at; default all.
    remedies : mapping of str to str, optional
        By kind, where the model has better ones; `{period}` is the season's.
    """
    columns = list(range(len(sequences.feature_names))) if columns is None else columns
    if not columns:
        return []
    values = _without_actions(sequences)[:, :, columns]
    n, frames = values.shape[:2]
    moved: list[_Moved] = []
    if frames >= _LEAST_FRAMES:
        for clock in _clocks(sequences):
            moved += _moved_by_clock(values, clock)
    if not moved and frames >= _LEAST_LONG:
        moved += _moved_within(values)
    names = [sequences.feature_names[j] for j in columns]
    findings = []
    for how in dict.fromkeys(movement.how for movement in moved):
        movements = [movement for movement in moved if movement.how == how]
        share = max(movement.share for movement in movements)
        named = [
            names[movement.column] for movement in sorted(movements, key=lambda movement: -movement.share)
        ]
        period = stats.mode([round(movement.period, 1) for movement in movements]).mode
        predicate, remedy = _WORDS[how]
        remedy = (remedies or {}).get(how, remedy)
        findings.append(
            Finding(
                how,
                f"the mean of {_listed(named)} {predicate.format(period=period)} ({share:.0%} of the "
                "variance): something that all frames share drives it, and latents that follow it look like "
                "each other's causes",
                remedy.format(period=period),
                "doubt" if share >= _SHARE_DOUBTED else "note",
                "data",
                columns=tuple(named),
                size=share,
            )
        )
    return findings


_WORDS = {
    "trend": ("moves with time in one direction", "subtract the trend, or give time as an action"),
    "season": (
        "repeats every {period:g} frames",
        "subtract the mean of each phase, or give the phase (sine and cosine) as actions",
    ),
    "means": (
        "differs from frame to frame, in all sequences alike",
        "subtract each frame's mean, or give what the sequences share as an action",
    ),
}


class _Moved(NamedTuple):
    column: int
    how: str
    share: float
    period: float


def missing_lag(
    sequences: Sequences, lags: int, n_latents: int, columns: list[int] | None = None
) -> list[Finding]:
    r"""Whether the frame before the last `lags` ones still predicts, given those and the actions.

    Frames are reduced to principal components u. The error of :math:`u_t` given
    :math:`u_{t-1}, \ldots, u_{t-L}` and the actions is compared, on held-out steps, with that given
    :math:`u_{t-L-1}` too; both regressions are ridge regressions on random Fourier features (Rahimi and Recht
    2007), so that a curved transition does not pass for memory. Noise of the frames leaves memory, too, since
    then one frame does not determine its latents: .07 of the error where a fifth of each cell is noise.

    Parameters
    ----------
    sequences : Sequences
    lags : int
        That the model reads.
    n_latents : int
    columns : list of int, optional
        Features to look at; default all.
    """
    columns = list(range(len(sequences.feature_names))) if columns is None else columns
    steps = _lagged(sequences, columns, lags + 1, n_latents)
    if steps is None:
        return []
    target, past, extra, group = steps
    half = np.random.default_rng(0).permutation(group.max() + 1) % 2 == 0
    first = half[group]
    without = with_it = total = 0.0
    for learn in (first, ~first):
        if learn.all() or not learn.any():
            return []
        centre = target[learn].mean(0)
        total += ((target[~learn] - centre) ** 2).sum()
        base = _waves(past, _WAVES, 1)
        more = np.concatenate([base, _waves(extra, _MORE_WAVES, 2)[:, 1:]], 1)
        without += _least_error(base, target, learn)
        with_it += _least_error(more, target, learn)
    gain = 1 - with_it / without
    if gain < _GAIN or (without - with_it) / total < _LEAST_GAIN:
        return []
    ago = f"frame t-{lags + 1}"
    condition = "the actions" if not lags else "frame t-1" if lags == 1 else f"the {lags} frames between"
    return [
        Finding(
            "lags",
            f"{ago} still predicts frame t, given {condition}: it removes {gain:.0%} of the error, so that "
            f"edges of lag {max(lags, 1)} stand in for earlier frames",
            f"set lags={lags + 1}"
            + (
                ", or smoother=True where the frames are noisy, because noise leaves such traces, too"
                if lags
                else ""
            ),
            "doubt",
            "data",
            size=float(gain),
        )
    ]


# ---- helpers -----------------------------------------------------------------------------------------------
def _listed(names: list[str]) -> str:
    quoted = ", ".join(repr(name) for name in names[:_NAMED])
    return quoted if len(names) <= _NAMED else f"{quoted} and {len(names) - _NAMED} more columns"


def _seen(sequences: Sequences) -> np.ndarray:
    """Cells that were seen, (sequence, time, feature)."""
    if sequences.mask is not None:
        return sequences.mask
    whole = np.ones(sequences.x.shape, dtype=bool)
    return whole if sequences.present is None else whole & sequences.present[:, :, None]


def _steps(x: np.ndarray, observed: np.ndarray, broken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Differences of successive cells that were seen, and how many frames each spans.

    Over missing cells, too: 1, 2, missing, 1, 2, missing, … goes up by 1 from frame to frame, and counts
    nothing.

    Parameters
    ----------
    x, observed : ndarray (sequence, time)
    broken : ndarray of bool (sequence, time)
        Frames that do not follow from the one before.
    """
    steps, lengths = [], []
    stretch = np.cumsum(broken, 1)  # no difference is taken over a gap in time
    for values, seen, number in zip(x, observed, stretch, strict=True):
        at = np.flatnonzero(seen)
        together = number[at[1:]] == number[at[:-1]]
        steps.append(np.diff(values[at])[together])
        lengths.append(np.diff(at)[together])
    return np.concatenate(steps), np.concatenate(lengths)


def _slope_of_halves(stack: np.ndarray) -> np.ndarray:
    """Slope in the direction of the mean slope that half of the sequences' halves reach, (feature,).

    Frames that jump once between two levels have a slope as a whole, and none before and after.
    """
    frames = stack.shape[1]
    halves = np.concatenate([stack[:, : frames // 2], stack[:, frames - frames // 2 :]])
    time = np.arange(frames // 2) * 2.0 / (frames - 1)
    time = time - time.mean()
    slopes = (halves * time[:, None]).sum(1) / (time**2).sum()
    whole = np.linspace(-1.0, 1.0, frames)
    direction = np.sign((stack * whole[:, None]).sum((0, 1)))
    reached = slopes * direction
    return np.asarray(np.median(reached, 0) if len(stack) > 2 else reached.min(0))


def _without_actions(sequences: Sequences) -> np.ndarray:
    """Features, NaN where not seen, less what actions, and covariates, of this frame and the last explain."""
    values = np.where(_seen(sequences), sequences.x, np.nan)
    given = [array for array in (sequences.actions, sequences.covariates) if array is not None]
    if not given:
        return values
    now = np.concatenate(given, -1)
    before = np.concatenate([np.zeros_like(now[:, :1]), now[:, :-1]], 1)
    design = np.concatenate([np.ones_like(now[..., :1]), now, before], -1).reshape(
        now.shape[0] * now.shape[1], -1
    )
    flat = values.reshape(len(design), -1)
    for column in flat.T:
        ok = ~np.isnan(column)
        column[ok] -= design[ok] @ np.linalg.lstsq(design[ok], column[ok], rcond=None)[0]
    return flat.reshape(values.shape)


def _clocks(sequences: Sequences) -> list[np.ndarray]:
    """Integer time of every frame, by its number in the sequence and by the caller's stamp."""
    n, frames = sequences.x.shape[:2]
    number = np.broadcast_to(np.arange(frames), (n, frames)).copy()
    absent = np.zeros((n, frames), bool) if sequences.present is None else ~sequences.present
    number[absent] = -1
    clocks = [number]
    if sequences.time is not None:
        codes = pd.factorize(pd.Series(np.asarray(sequences.time).ravel()), sort=True)[0].reshape(n, frames)
        codes = np.where(absent, -1, codes)
        if not np.array_equal(codes, number):
            clocks.append(codes)
    return clocks


def _moved_by_clock(values: np.ndarray, clock: np.ndarray) -> list[_Moved]:
    """Columns whose means differ between times, of sequences that are many at each.

    So do the means of sequences that start far from rest, until the dynamics have brought them there. What
    these explain is no trend: the means have to differ given the frame before, or go on in a straight line.
    """
    clock = np.where(np.arange(values.shape[1]) >= values.shape[1] // 3, clock, -1)
    left = _given_last(values)
    movements, lines, trends = [], [], []
    for j in range(values.shape[2]):
        when, mean, share = _between(values[:, :, j], clock)
        if share < _SHARE_MOVED:
            continue
        movement = _moved(j, when, mean, share)
        if _between(left[:, :, j], clock)[2] >= _SHARE_LEFT:
            movements.append(movement)
        elif movement.how == "trend":  # which the frame before may foretell, if it moves, too
            trends.append(movement)
            lines.append((when, mean))
        elif _stays(when, mean):  # a season that the frame before foretells: of two frames its opposite
            movements.append(movement)
    return [*movements, *trends] if _lasting(lines) else movements


def _stays(when: np.ndarray, mean: np.ndarray) -> bool:
    """Whether means of times go on differing as much in the later half as in the earlier one."""
    if len(when) < 2 * _LEAST_TREND:
        return False
    half = len(when) // 2
    return bool(mean[half:].std() >= _LASTING * mean[:half].std())


def _lasting(lines: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether trends go on: in the later half of the times nearly as steeply as in the earlier one."""
    early = late = 0.0
    for when, mean in lines:
        if len(when) < _LEAST_TREND:
            continue
        whole = np.polyfit(when, mean, 1)[0]
        half = len(when) // 2
        early += np.sign(whole) * np.polyfit(when[: half + 1], mean[: half + 1], 1)[0]
        late += np.sign(whole) * np.polyfit(when[half:], mean[half:], 1)[0]
    return early > 0 and late >= _LASTING * early or late > early


def _given_last(values: np.ndarray) -> np.ndarray:
    """What all features of the frame before leave of each, by least squares; NaN where one is missing."""
    last = np.concatenate([np.full_like(values[:, :1], np.nan), values[:, :-1]], 1)
    flat, design = values.reshape(-1, values.shape[2]), last.reshape(-1, values.shape[2])
    whole = ~np.isnan(design).any(1) & ~np.isnan(flat).any(1)
    left = np.full(flat.shape, np.nan)
    if whole.sum() > 2 * values.shape[2]:
        x = np.insert(design[whole], 0, 1.0, axis=1)
        left[whole] = flat[whole] - x @ np.linalg.lstsq(x, flat[whole], rcond=None)[0]
    return left.reshape(values.shape)


def _between(values: np.ndarray, clock: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Times with enough sequences, the means there, their share of the variance (0 if chance may be it)."""
    use = ~np.isnan(values) & (clock >= 0)
    codes, y = clock[use], values[use]
    counts = np.bincount(codes) if len(codes) else np.zeros(0, int)
    full = np.flatnonzero(counts >= _LEAST_PANEL)
    if len(full) < _LEAST_TIMES:
        return full, np.zeros(len(full)), 0.0
    keep = np.isin(codes, full)
    codes, y = codes[keep], y[keep]
    mean = np.bincount(codes, y)[full] / counts[full]
    total = ((y - y.mean()) ** 2).sum()
    between = (counts[full] * (mean - y.mean()) ** 2).sum()
    k, m = len(full), len(y)
    within = max((total - between) / max(m - k, 1), 1e-300)
    if stats.f.sf(between / (k - 1) / within, k - 1, m - k) > _CHANCE:
        return full, mean, 0.0
    return full, mean, float((between - (k - 1) * within) / total)


def _moved(column: int, when: np.ndarray, mean: np.ndarray, share: float) -> _Moved:
    """What the means of successive times look like: a line, a period, or neither."""
    away = mean - mean.mean()
    line = np.polynomial.Polynomial.fit(when, away, 1)(when)
    if (line**2).sum() >= 0.5 * (away**2).sum():
        return _Moved(column, "trend", float(share), 0.0)
    power, periods = _periodogram(away[:, None])
    best = int(power[:, 0].argmax()) if len(power) else 0
    if len(power) and power[best, 0] >= 0.5 * power[:, 0].sum() and periods[best] <= len(when) / 2:
        return _Moved(column, "season", float(share), float(periods[best]))
    return _Moved(column, "means", float(share), 0.0)


def _periodogram(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Power (frequency, column) and the periods, without the mean."""
    power = np.abs(np.fft.rfft(values - values.mean(0), axis=0))[1:] ** 2
    return power, len(values) / np.arange(1, len(power) + 1)


def _moved_within(values: np.ndarray) -> list[_Moved]:
    """Columns of long sequences with a trend or one period, sequences weighed alike."""
    whole = ~np.isnan(values).any(-1)
    long = [sequence[ok] for sequence, ok in zip(values, whole, strict=True) if ok.sum() >= _LEAST_LONG][
        :_MOST_LONG
    ]
    if not long:
        return []
    frames = min(len(sequence) for sequence in long)
    stack = np.stack([sequence[:frames] for sequence in long])
    stack = stack - stack.mean(1, keepdims=True)
    variance = (stack**2).mean((0, 1))
    time = np.linspace(-1, 1, frames)
    slope = (stack * time[:, None]).sum(1) / (time**2).sum()
    level = slope[:, None] * time[:, None]
    detrended = stack - level
    rho = np.clip(
        (detrended[:, 1:] * detrended[:, :-1]).sum((0, 1)) / (detrended[:, :-1] ** 2).sum((0, 1)), 0, 0.999
    )
    # a first-order autoregression of the errors makes a slope's variance (1 + rho) / (1 - rho) times as large
    error = np.sqrt((detrended**2).mean((0, 1)) / (time**2).sum() * (1 + rho) / (1 - rho) / len(stack))
    movements = []
    share = (level**2).mean((0, 1)) / variance
    common = np.abs(slope.mean(0)) / error
    steady = _slope_of_halves(stack) >= _SHARE_STEADY * np.abs(slope.mean(0))
    for j in np.flatnonzero((share >= 2 * _SHARE_MOVED) & (common >= _STANDARD_ERRORS) & steady).tolist():
        movements.append(_Moved(j, "trend", float(share[j]), 0.0))
    power = np.mean([_periodogram(sequence)[0] for sequence in detrended], 0)
    periods = frames / np.arange(1, len(power) + 1)
    for j in range(values.shape[2]):
        best = int(power[:, j].argmax())
        near = np.arange(max(0, best - _AROUND), min(len(power), best + _AROUND + 1))
        background = np.median(power[near[np.abs(near - best) > 2], j])
        line = power[max(0, best - 1) : best + 2, j].sum() / power[:, j].sum()
        cycles = frames / periods[best]
        if line >= _SHARE_LINE and cycles >= 4 and power[best, j] >= _LINE * background:
            movements.append(_Moved(j, "season", float(line), float(periods[best])))
    return movements


def _lagged(
    sequences: Sequences, columns: list[int], lags: int, n_latents: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Frames' components now, those the model reads (with actions), those of one lag more, and groups."""
    n, frames = sequences.x.shape[:2]
    if frames <= lags or not columns:
        return None
    whole = _seen(sequences)[:, :, columns].all(-1)
    use = np.lib.stride_tricks.sliding_window_view(whole, lags + 1, axis=1).all(-1)
    if sequences.linked is not None:
        use = use & sequences.linked[:, lags:]
        for back in range(1, lags):  # the frames between follow from each other, too
            use = use & sequences.linked[:, lags - back : frames - back]
    at = np.argwhere(use)
    if len(at) < _LEAST_STEPS:
        return None
    if len(at) > _MOST_STEPS:
        at = at[np.sort(np.random.default_rng(0).choice(len(at), _MOST_STEPS, replace=False))]
    s, t = at[:, 0], at[:, 1] + lags
    x = sequences.x[:, :, columns]
    sample = x[whole]
    centre = sample.mean(0)
    _, values, axes = np.linalg.svd((sample - centre)[:_MOST_STEPS], full_matrices=False)
    keep = min(len(axes), 2 * n_latents, 10)
    keep = max(1, min(keep, int((values > 1e-6 * values[0]).sum())))
    scale = values[0] / np.sqrt(min(len(sample), _MOST_STEPS))
    reduced = (x - centre) @ axes[:keep].T / scale  # the least components are noise, and stay small
    past = [reduced[s, t - back] for back in range(1, lags)]
    if sequences.actions is not None:
        past.append(sequences.actions[s, t])
    read = np.concatenate(past, 1) if past else np.zeros((len(s), 0))
    # half of these are learned from: whole sequences, or, of few, 25 frames in a row
    groups = (
        s
        if n >= _LEAST_PANEL
        else np.unique(np.stack([s, t // 25], 1), axis=0, return_inverse=True)[1].ravel()
    )
    return reduced[s, t], read, reduced[s, t - lags], np.unique(groups, return_inverse=True)[1]


def _waves(inputs: np.ndarray, n_waves: int, seed: int) -> np.ndarray:
    """The inputs, a constant, their products two by two, and random cosines of three widths."""
    rng = np.random.default_rng(seed)
    d = inputs.shape[1]
    features = [np.ones((len(inputs), 1)), inputs]
    if d:
        i, j = np.triu_indices(min(d, 12))
        features.append(inputs[:, i] * inputs[:, j])
        width = rng.choice([0.3, 0.7, 1.5], n_waves) / np.sqrt(d)
        features.append(
            np.cos(inputs @ (rng.normal(size=(d, n_waves)) * width) + rng.uniform(0, 2 * np.pi, n_waves))
        )
    return np.concatenate(features, 1)


def _least_error(design: np.ndarray, target: np.ndarray, learn: np.ndarray) -> float:
    """Squared error of the steps that were not learned from, of the ridge that suits them best."""
    x, centre = design[learn], target[learn].mean(0)
    scale = np.maximum(np.sqrt((x**2).mean(0)), 1e-12)
    x, held_out = x / scale, design[~learn] / scale
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    moment = vectors.T @ (x.T @ (target[learn] - centre) / len(x))
    held_out, wanted = held_out @ vectors, target[~learn] - centre
    return min(
        float(((wanted - held_out @ (moment / (np.maximum(values, 0) + ridge)[:, None])) ** 2).sum())
        for ridge in _RIDGES
    )
