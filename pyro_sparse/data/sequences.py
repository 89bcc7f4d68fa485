"""From a caller's sequences (arrays, lists, long DataFrame) to what a transition model reads.

A `Sequences` knows its names, which cells are missing, which frames exist, which of them may be predicted
from the frames before them (`linked`), and how features and actions were standardised. A `SequenceBatch` is
its tensors.
Every complaint about sequences that does not depend on the model is made here, those about actions and their
levels in `data/action_columns.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .._utils.checks import check_whole
from ..findings.finding import Finding
from .action_columns import FittedActions, encode, n_columns, orient
from .columns import as_frame, check_magnitude, check_scales, match_features, read_names
from .long_table import Frames, TimeStep, as_in_the_fit, check_finite, read_long, roles_of
from .sequence_arrays import SequencesLike, read_arrays

if TYPE_CHECKING:
    from ..likelihoods import Likelihood
    from .frame_design import FrameDesign

__all__ = ["SequenceBatch", "Sequences", "as_sequences"]

_LEAST_STEPS = 10
_DECIMALS = 12  # of standardised actions: codings that differ by rounding are then the same to the bit


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Sequences on the device.

    Attributes
    ----------
    x : Tensor (sequence, time, feature)
        Values; missing cells and padding hold the likelihood's `filler`, 0 without one.
    mask : Tensor of bool (sequence, time, feature) or None
        True where a cell was seen; None when all were.
    present : Tensor of bool (sequence, time) or None
        False where the sequence has already ended; None when all have the same length.
    linked : Tensor of bool (sequence, time) or None
        True where the frame may be predicted from the frames before it and its action: not at padding, nor
        where one of the last `lag` steps is a gap in time, nor where an action is missing. The first `lag`
        frames are judged by what there is of their past (frame 0: its action only): what to do with them is
        for the model to say. None when all are True.
    actions : Tensor (sequence, time, column) or None
        Standardised, 0 where missing; ``actions[:, t]`` leads to frame t. A categorical action of more than
        two levels has several columns.
    total : int
        Sequences in the full data: the plate scales the minibatch by ``total / len(x)``.
    """

    x: Tensor
    mask: Tensor | None
    present: Tensor | None
    linked: Tensor | None
    actions: Tensor | None
    total: int

    def __len__(self) -> int:
        return self.x.shape[0]

    def rows(self, index: Tensor) -> SequenceBatch:
        """The minibatch with these sequences, still scaled to `total`."""
        return replace(self, **_pick(self, index))

    @property
    def seen(self) -> Tensor:
        """Frames of which anything was seen, (sequence, time)."""
        if self.mask is not None:
            return self.mask.any(-1)
        everywhere = torch.ones(self.x.shape[:2], dtype=torch.bool, device=self.x.device)
        return everywhere if self.present is None else self.present

    def steps(self, lags: int) -> Tensor:
        """Steps to learn from, (sequence, time - lags): linked frames, seen like the `lags` before them.

        Of a blank frame nothing is known but its prior, which is no evidence of what leads to it or follows.
        """
        observed = self.seen
        if lags >= observed.shape[1]:
            return observed[:, :0]
        use = observed.unfold(1, lags + 1, 1).all(-1)
        return use if self.linked is None else use & self.linked[:, lags:]

    def whole(self) -> SequenceBatch:
        """The same sequences seen as a data set of their own (no scaling up)."""
        return replace(self, total=len(self))


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences in model units, with the way back to the caller's units.

    Attributes
    ----------
    x, mask, present, linked, actions : ndarray
        As in `SequenceBatch`.
    centre, scale : ndarray (feature,)
        ``x = (original - centre) / scale``.
    action_centre, action_scale : ndarray (column,)
        The same for `actions`; empty where there are none. A scale may be negative.
    feature_names, action_names, sequence_names : list of str
        An action has one name, however many columns it takes.
    action_levels : dict of str to list
        Levels of each categorical action, in their order.
    level_order : dict of str to list of int
        By which contrasts those of more than two levels are coded (`data/action_columns.py`).
    gap : ndarray of bool (sequence, time) or None
        True where more than one step of time leads to the frame; None if none does, or no past counts.
    time : ndarray (sequence, time) or None
        The caller's time stamps; NaN or NaT at padding.
    step : number, Timedelta or None
        The regular difference of time stamps; in months for stamps that are months apart.
    jitter : float
        By how much of a step time stamps are off whole steps, at most.
    index : MultiIndex or None
        Of a DataFrame with ids: id and time of each frame, one sequence after the other.
    roles : dict of str to label or list of labels
        Columns of a DataFrame by the argument they were given as: "id", "time", "actions".
    checks : tuple of Finding
        What was found against a model of these sequences before it was fitted.
    covariates : ndarray (sequence, time, column) or None
        Trend, season and covariates of every frame, 0 at padding.
    design : FrameDesign or None
        How those are made.
    """

    x: np.ndarray
    mask: np.ndarray | None
    present: np.ndarray | None
    linked: np.ndarray | None
    actions: np.ndarray | None
    centre: np.ndarray
    scale: np.ndarray
    action_centre: np.ndarray
    action_scale: np.ndarray
    feature_names: list[str]
    action_names: list[str]
    sequence_names: list[str]
    action_levels: dict[str, list]
    level_order: dict[str, list[int]] = field(default_factory=dict)
    gap: np.ndarray | None = None
    time: np.ndarray | None = None
    step: TimeStep | None = None
    jitter: float = 0.0
    index: pd.MultiIndex | None = None
    roles: dict[str, Any] = field(default_factory=dict)
    checks: tuple[Finding, ...] = ()
    covariates: np.ndarray | None = None
    design: FrameDesign | None = None

    def __len__(self) -> int:
        return len(self.x)

    def content(self) -> tuple[np.ndarray | None, ...]:
        """Arrays that tell these sequences from others."""
        beside = () if self.covariates is None else (self.covariates,)
        return self.x, self.mask, self.present, self.linked, self.actions, *beside

    @property
    def missing(self) -> bool:
        """Whether any cell of a frame is."""
        if self.mask is None:
            return False
        return not self.mask.all() if self.present is None else not self.mask[self.present].all()

    @property
    def lengths(self) -> np.ndarray:
        """Frames of each sequence."""
        return np.full(len(self), self.x.shape[1]) if self.present is None else self.present.sum(1)

    @property
    def n_frames(self) -> int:
        """Frames of all sequences together."""
        return int(self.lengths.sum())

    @property
    def findings(self) -> list[Finding]:
        """What a reader of a fit to these sequences should know of them."""
        notes = []
        if self.jitter:
            uneven = (
                f"time stamps are up to {self.jitter:.0%} of a step ({self.step}) off whole steps, and are "
                "taken for whole ones"
            )
            notes.append(Finding("stamps", uneven, "resample to a regular grid", source="data"))
        if self.gap is None:
            return [*notes, *self.checks]
        message = (
            f"{int(self.gap.sum())} of {self.n_frames - len(self)} steps are unlinked by gaps, more than the "
            f"regular step ({self.step}) lies between their frames"
        )
        remedy = "if none is missing there (weekends), give the frames' numbers as time"
        return [*notes, Finding("gaps", message, remedy, source="data"), *self.checks]

    @property
    def action_widths(self) -> list[int]:
        """Columns that each action takes in `actions`."""
        return n_columns(self.action_names, self.action_levels)

    def batch(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> SequenceBatch:
        """All sequences as tensors."""

        def tensor(array: np.ndarray | None) -> Tensor | None:
            kind = dtype if array is not None and array.dtype != bool else None
            return None if array is None else torch.as_tensor(array, dtype=kind, device=device)

        return SequenceBatch(
            x=cast(Tensor, tensor(self.x)),
            mask=tensor(self.mask),
            present=tensor(self.present),
            linked=tensor(self.linked),
            actions=tensor(self.actions),
            total=len(self),
        )

    def rows(self, index: slice | list[int] | np.ndarray) -> Sequences:
        """The sequences with these indices only."""
        index = np.arange(len(self))[index]
        names = [self.sequence_names[i] for i in index]
        time, gap, covariates = (
            None if a is None else a[index] for a in (self.time, self.gap, self.covariates)
        )
        ends, rows = np.cumsum(self.lengths), None
        if self.index is not None:
            rows = self.index[np.concatenate([np.arange(ends[i] - self.lengths[i], ends[i]) for i in index])]
        return replace(
            self, sequence_names=names, time=time, gap=gap, index=rows, covariates=covariates,
            **_pick(self, index),
        )  # fmt: skip

    def framed(self, values: np.ndarray, names: list[str]) -> np.ndarray | pd.DataFrame:
        """Values (sequence, time, name) by id and time where the caller gave a table; else as they are."""
        if self.index is None:
            return values
        flat = values.reshape(-1, len(names)) if self.present is None else values[self.present]
        return pd.DataFrame(flat, index=self.index, columns=names)


def as_sequences(
    X: SequencesLike,
    *,
    actions: SequencesLike | Sequence[Hashable] | None = None,
    id: Hashable = None,
    time: Hashable = None,
    time_step: TimeStep | None = None,
    likelihood: Likelihood | None = None,
    standardise: bool = True,
    lag: int = 1,
    feature_names: list[str] | None = None,
    action_names: list[str] | None = None,
    like: Sequences | None = None,
) -> Sequences:
    """Check a caller's sequences and bring them to model units.

    Features and numeric actions are z-scored over the cells that were seen. An action of labels (category,
    text, bool or object) stays one action: of two levels it is z-scored 0/1; of L levels L - 1 contrasts,
    centred and divided by one number, so that their variances add to one (`data/action_columns.py`). Of an
    action of two values, text or numbers, the one that is met first is the negative one.

    Parameters
    ----------
    X : array_like (sequence, time, feature) or (time, feature), list of (time, feature), or DataFrame
        A list may hold sequences of different lengths. A DataFrame has one row per frame. NaN marks a missing
        cell; a frame of nothing but NaN is a missing frame and keeps its place in time.
    actions : array_like (sequence, time, action) or (sequence, time), list of such, or list of column names
        ``actions[:, t]`` leads to frame t. NaN or None is a missing action. For a DataFrame: its columns.
    id : label, optional
        Column (or index level) of a DataFrame that says which sequence a row belongs to. Sequences come
        sorted by it: categories in their own order, text by the numbers in it ("s2" before "s10").
    time : label, optional
        Column (or index level) of a DataFrame to sort by: numbers, dates, datetimes or periods.
    time_step : number or time difference, optional
        Time from one frame to the next, by default the most common difference. A larger difference is a gap;
        one that is not a multiple of it is an error. Where a step is given, differences may be off whole
        steps by a quarter of it, as of a clock that is not exact, and a finding says so. Datetimes that all
        lie whole months apart are counted in months.
    likelihood : Likelihood, optional
        Its `check` has the last word on values; its `standardise` says whether features are z-scored.
    standardise : bool
        False leaves features and actions as they are.
    lag : int
        Frames of the past that a frame may depend on: a gap unlinks that many frames after it.
    feature_names : list of str, optional
        Names for an array; for a DataFrame the columns to use, by default all others.
    action_names : list of str, optional
        Names for an array of actions.
    like : Sequences, optional
        Use these sequences' features, levels, step, centres and scales (new sequences for a fitted model).
        They may then be few and short. Of a DataFrame `id`, `time` and `actions` are by default the columns
        that the fit was given.

    Returns
    -------
    Sequences

    Raises
    ------
    ValueError, TypeError
        Names the argument, what was seen, what is wanted and the fix.

    Examples
    --------
    >>> table = pd.DataFrame({"day": [1, 2, 3, 6, 7], "do": list("aabbb"), "u": [1.0, 2, 3, 4, 5]})
    >>> table = pd.concat([table.assign(who=who) for who in ("Ann", "Bo", "Cy")])
    >>> data = as_sequences(table, id="who", time="day", actions=["do"])
    >>> data.x.shape, data.action_names, data.linked[0]
    ((3, 5, 1), ['do'], array([ True,  True,  True, False,  True]))
    """
    check_whole(0, lag=lag)
    feature_names, action_names = read_names(feature_names), read_names(action_names, "action_names")
    X = as_frame(X)
    if like is not None and isinstance(X, pd.DataFrame):
        id, time, actions = as_in_the_fit(X, like.roles, {"id": id, "time": time, "actions": actions})
    if like is not None and (actions is None) != (like.actions is None):
        had = "without actions" if like.actions is None else f"with actions {like.action_names}"
        raise ValueError(f"actions: the model was fitted {had}; give new sequences likewise")
    if actions is None and lag == 0:
        raise ValueError("lag=0: without actions nothing drives the latents; give actions=, or lag=1 or more")
    if isinstance(X, pd.DataFrame):
        frames = _from_table(X, actions, id, time, time_step, feature_names, action_names, like)
    else:
        misplaced = [n for n, v in {"id": id, "time": time, "time_step": time_step}.items() if v is not None]
        if misplaced:
            raise ValueError(f"{misplaced[0]}: is for a DataFrame, X is {type(X).__name__}; leave it out")
        frames = read_arrays(X, actions, feature_names, action_names)
        if like is not None and frames.actions is not None and action_names is None:
            if len(frames.actions) == len(like.action_names):  # an array has no names: by position
                named = dict(zip(like.action_names, frames.actions.values(), strict=True))
                frames = frames._replace(actions=named)
    x, names = _features(frames, like)
    if likelihood is not None:
        likelihood.check(x, names)
    present = np.arange(frames.lengths.max()) < frames.lengths[:, None]
    fitted_actions = None
    if like is not None:
        fitted_actions = FittedActions(like.action_names, like.action_levels, like.level_order)
    encoded = None if frames.actions is None else encode(frames, fitted_actions)
    linked = _links(present, frames.broken, None if encoded is None else encoded[0], lag)
    if like is None:
        _check_enough(frames, x, linked, lag)

    scaled = standardise and (likelihood is None or likelihood.standardise)
    centre, scale = _scales(x, names, "X: column", scaled) if like is None else (like.centre, like.scale)
    action_centre, action_scale = np.zeros(0), np.zeros(0)
    values, (names_of_actions, levels, level_order) = encoded or (None, FittedActions([], {}, {}))
    widths = n_columns(names_of_actions, levels)
    column_owners = [name for name, width in zip(names_of_actions, widths, strict=True) for _ in range(width)]
    if like is not None:
        action_centre, action_scale = like.action_centre, like.action_scale
    elif values is not None:
        action_centre, action_scale = _scales(values, column_owners, "actions: column", standardise)
        if standardise:
            action_scale = orient(_pooled(action_scale, widths), values, widths)
    observed = _fold(~np.isnan(x), present, False)
    filler = 0.0 if likelihood is None else likelihood.filler
    cells = np.nan_to_num((x - centre) / scale, nan=filler)
    check_magnitude(names, cells)
    acts = None if values is None else np.nan_to_num((values - action_centre) / action_scale)
    if acts is not None:
        acts = acts.round(_DECIMALS) + 0.0
    if acts is not None:
        check_magnitude(column_owners, acts, "actions: column")
    return Sequences(
        x=_fold(cells, present, filler),
        mask=None if observed.all() else observed,
        present=None if present.all() else present,
        linked=None if linked.all() else linked,
        actions=None if acts is None else _fold(acts, present, 0.0),
        centre=centre,
        scale=scale,
        action_centre=action_centre,
        action_scale=action_scale,
        feature_names=names,
        action_names=names_of_actions,
        sequence_names=frames.sequence_names,
        action_levels=levels,
        level_order=level_order,
        gap=_fold(frames.broken, present, False) if lag and frames.broken.any() else None,
        time=None if frames.time is None else _fold_time(frames.time, present),
        step=frames.step,
        jitter=frames.jitter,
        index=frames.index,
        roles=roles_of(id, time, cast("Sequence[Hashable] | None", actions))
        if isinstance(X, pd.DataFrame)
        else {},
    )


def _pick(of: SequenceBatch | Sequences, index: np.ndarray | Tensor) -> dict[str, Any]:
    arrays = {name: getattr(of, name) for name in ("x", "mask", "present", "linked", "actions")}
    return {name: None if array is None else array[index] for name, array in arrays.items()}


def _fold(flat: np.ndarray, present: np.ndarray, fill: object) -> np.ndarray:
    """Frames one after the other as (sequence, time, ...), padded at the end."""
    folded = np.full((*present.shape, *flat.shape[1:]), fill, dtype=flat.dtype)
    folded[present] = flat
    return folded


def _fold_time(stamps: np.ndarray, present: np.ndarray) -> np.ndarray:
    if stamps.dtype.kind in "iu":
        stamps = stamps if present.all() else stamps.astype(float)
        return _fold(stamps, present, 0 if present.all() else np.nan)
    return _fold(
        stamps, present, np.nan if stamps.dtype.kind == "f" else pd.NaT if stamps.dtype == object else "NaT"
    )


def _links(present: np.ndarray, broken: np.ndarray, actions: np.ndarray | None, lag: int) -> np.ndarray:
    gap = _fold(broken, present, False)
    linked = present.copy()
    for later in range(min(lag, present.shape[1])):
        linked[:, later:] &= ~gap[:, : present.shape[1] - later]
    if actions is not None:
        linked &= _fold(~np.isnan(actions).any(1), present, False)
    return linked


def _from_table(
    X: pd.DataFrame,
    actions: SequencesLike | Sequence[Hashable] | None,
    id: Hashable,
    time: Hashable,
    step: TimeStep | None,
    feature_names: list[str] | None,
    action_names: list[str] | None,
    like: Sequences | None,
) -> Frames:
    if isinstance(actions, str):
        actions = [actions]
    if actions is not None and (not isinstance(actions, list | tuple | pd.Index) or not len(actions)):
        raise ValueError(
            f"actions: is {type(actions).__name__} {np.shape(cast(Any, actions))}, X is a DataFrame; "
            "give a list of its columns"
        )
    if action_names is not None:
        raise ValueError("action_names: is for arrays, X is a DataFrame; rename its columns")
    if like is not None:
        feature_names = like.feature_names if feature_names is None else feature_names
        step = like.step if step is None and time is not None else step
    return read_long(X, id, time, step, None if actions is None else list(actions), feature_names)


def _features(frames: Frames, like: Sequences | None) -> tuple[np.ndarray, list[str]]:
    x, width = frames.x, frames.x.shape[1]
    if width == 0:
        raise ValueError("X: has 0 features; wanted at least one")
    if like is not None:
        x, names = x[:, match_features(width, frames.feature_names, like.feature_names)], like.feature_names
    else:
        names = frames.feature_names or [f"x{j + 1}" for j in range(width)]
    if len(names) != width:
        raise ValueError(
            f"feature_names: has {len(names)} names, X has {width} features; give one per feature"
        )
    _check_unique(names, "feature_names")
    check_finite(x, names, frames, "X")
    return x, names


def _scales(
    values: np.ndarray, names: list[str], prefix: str, standardise: bool
) -> tuple[np.ndarray, np.ndarray]:
    empty = np.isnan(values).all(0)
    if empty.any():
        raise ValueError(f"{prefix} {names[int(empty.argmax())]!r} has no observed value; drop it")
    constant = np.nanmax(values, 0) == np.nanmin(values, 0)
    if constant.any():
        j = int(constant.argmax())
        raise ValueError(
            f"{prefix} {names[j]!r} is constant at {np.nanmax(values[:, j]):g}; "
            "nothing can be learned of it, drop it"
        )
    if not standardise:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        centre, scale = np.nanmean(values, 0), np.nanstd(values, 0)
    check_scales(names, (centre,), (scale,), prefix)
    return centre, scale


def _pooled(scale: np.ndarray, widths: list[int]) -> np.ndarray:
    """One scale for all columns of an action, with which their variances add to one.

    A categorical action is then as large as a numeric one, and rotating its contrasts changes nothing.
    """
    pooled = scale.copy()  # of one column to the bit what it was
    for start, width in zip(np.cumsum(widths) - widths, widths, strict=True):
        if width > 1:
            pooled[start : start + width] = np.sqrt((scale[start : start + width] ** 2).sum())
    return pooled


def _check_unique(names: list[str], argument: str) -> None:
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ValueError(
            f"{argument}: {repeated[0]!r} occurs {names.count(repeated[0])} times; give unique names"
        )


def _check_enough(frames: Frames, x: np.ndarray, linked: np.ndarray, lag: int) -> None:
    lengths, names = frames.lengths, frames.sequence_names
    if frames.actions is None:
        if lengths.max() == 1:
            raise ValueError(
                "X: T=1, every sequence has one frame, and there are no actions: nothing drives the latents; "
                "give actions=, longer sequences, or fit a SparseDecoder"
            )
        if lengths.min() < lag + 1:
            raise ValueError(
                f"X: sequence {names[lengths.argmin()]!r} has {lengths.min()} frame(s) "
                f"({int((lengths < lag + 1).sum())} such sequence(s)), wanted at least lag+1={lag + 1} "
                "where only the past drives it; drop it, lower lag, or give actions="
            )
        linked = linked[:, lag:]
    elif lengths.max() <= lag:
        raise ValueError(
            f"X: sequences have {lengths.max()} frame(s) at most, so that none follows from {lag} before it; "
            "set lags=0, where only actions drive, or give longer sequences"
        )
    blank = np.add.reduceat(~np.isnan(x).all(1), np.cumsum(lengths) - lengths, dtype=int) == 0
    if blank.any():
        raise ValueError(
            f"X: sequence {names[int(blank.argmax())]!r} has no observed value "
            f"({int(blank.sum())} such sequence(s)); drop it"
        )
    if linked.sum() < _LEAST_STEPS:
        raise ValueError(
            f"X: has {int(linked.sum())} linked step(s) in {len(lengths)} sequence(s), wanted at least "
            f"{_LEAST_STEPS} to learn from; give longer or more sequences, with fewer gaps or missing actions"
        )
