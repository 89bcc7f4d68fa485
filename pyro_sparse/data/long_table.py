"""A long table (one row per frame; columns for sequence, time, actions, features) as sorted, checked frames.

Time stamps become whole multiples of one regular step. A longer step is a gap: the frame after it cannot be
predicted from the frame before. A step that is not a multiple of the regular one is refused, not guessed at,
unless the caller says what the step is: stamps of a clock that is not exact may then be off it.
"""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd
from pandas.api import types as kinds

from .columns import as_numbers, in_order, text_columns
from .read import read_array

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Frames", "as_in_the_fit", "check_finite", "read_long", "roles_of"]

TimeStep: TypeAlias = "float | str | timedelta | np.timedelta64 | pd.Timedelta"
_TOLERANCE = 1e-3  # of a step: time stamps that are floats do not add up exactly
# Of a step that the caller gave: halfway to where it would be unclear whether it is one step or two.
_JITTER = 0.25


class Frames(NamedTuple):
    """Frames of all sequences, one sequence after the other.

    Parameters
    ----------
    x : ndarray of shape (frame, feature)
        NaN where missing.
    feature_names : list of str or None
    actions : dict of str to Series, or None
        A column per action, as the caller gave it.
    sequence_names : list of str
    lengths : ndarray of int of shape (sequence,)
        Frames of each sequence.
    broken : ndarray of bool of shape (frame,)
        True where more than one step of time leads to the frame.
    time : ndarray of shape (frame,) or None
        The caller's time stamps.
    step : number, Timedelta or None
        The regular difference of time stamps; in months for stamps that are months apart.
    jitter : float
        By how much of a step differences are off whole steps, at most; 0 where they are exact.
    index : MultiIndex or None
        The caller's id of each frame, and its time, or its number where there is no time.
    """

    x: np.ndarray
    feature_names: list[str] | None
    actions: dict[str, pd.Series] | None
    sequence_names: list[str]
    lengths: np.ndarray
    broken: np.ndarray
    time: np.ndarray | None = None
    step: TimeStep | None = None
    jitter: float = 0.0
    index: Any = None  # typed as a MultiIndex it would clash with the tuple's own `index`


def read_long(
    table: pd.DataFrame,
    id: Hashable,
    time: Hashable,
    step: TimeStep | None,
    actions: list[Hashable] | None,
    features: list[str] | None,
) -> Frames:
    """Sort the rows of a long table into sequences, and find the gaps.

    Parameters
    ----------
    table : DataFrame
    id, time : label or None
        Columns or index levels; without `id` all rows are one sequence, without `time` they are in order, as
        dates in the index have to be.
        Sequences are sorted by id (`in_order`), whatever the order of the rows.
    step : number, time difference or None
        The regular step; by default the most common difference. Of a step that is given, differences may be
        off by a quarter.
    actions : list of str or None
    features : list of str or None
        By default every other column.

    Returns
    -------
    Frames

    Raises
    ------
    ValueError, TypeError
        If a column is absent, repeated, or used twice; the index has several levels and none is the id; a
        feature is not numeric; an id or a time stamp is missing; two rows have one time; a difference of
        times is not a multiple of the step; or there is no `time`, and dates in the index go back.
    """
    if id is None and table.index.nlevels > 1:
        levels = ", ".join(map(repr, table.index.names))
        raise ValueError(
            f"id: got none, and the index of X has levels {levels}; give id=, time= (names of levels or "
            "columns), or reset_index() first if all rows are one sequence"
        )
    roles: dict[str, list[Any]] = {
        "id": [id],
        "time": [time],
        "actions": actions or [],
        "feature_names": features or [],
    }
    table = _with_index(table, [name for names in roles.values() for name in names if name is not None])
    role_of: dict[str, str] = {}
    for role, names in roles.items():
        for name in (str(n) for n in names if n is not None):
            if name not in table.columns:
                fix = f"; give one of {list(table.columns)[:8]}"
                raise ValueError(f"{role}: X has no column {name!r}{fix}")
            if name in role_of:
                raise ValueError(f"{role}: column {name!r} is already in {role_of[name]}; use it once")
            role_of[name] = role
    if features is None:
        features = [name for name in table.columns if name not in role_of]
    _check_features(table, features)
    if len(table) == 0:
        raise ValueError("X: has no rows; wanted one row per frame")

    sequence, names = np.zeros(len(table), dtype=int), ["0"]
    if id is not None:
        sequence, labels = in_order(table[str(id)])
        names = [str(label) for label in labels]
        if (sequence < 0).any():
            raise ValueError(
                f"id: column {str(id)!r} is missing in row {int((sequence < 0).argmax())} "
                f"({int((sequence < 0).sum())} such row(s)); say which sequence it belongs to, or drop it"
            )
    order, broken, stamps = np.argsort(sequence, kind="stable"), np.zeros(len(table), dtype=bool), None
    jitter = 0.0
    if time is not None:
        table = table.assign(**{str(time): _with_dtype(table[str(time)])})
        order, broken, stamps, step, jitter = _sort(table[str(time)], sequence, names, step)
    elif step is not None:
        raise ValueError(f"time_step={step!r}: there is no time column to measure; give time= as well")
    else:
        _check_dates(table.index, sequence)
    table, index = table.iloc[order], None
    if id is not None:
        number = pd.Series(sequence[order]).groupby(sequence[order]).cumcount().rename("frame")
        index = pd.MultiIndex.from_arrays([table[str(id)], number if time is None else table[str(time)]])
    return Frames(
        x=read_array(table[features])[0],
        feature_names=features,
        actions=None if actions is None else {str(a): table[str(a)].reset_index(drop=True) for a in actions},
        sequence_names=names,
        lengths=np.bincount(sequence),
        broken=broken,
        time=stamps,
        step=step,
        jitter=jitter,
        index=index,
    )


def _with_index(table: pd.DataFrame, wanted: list[Hashable]) -> pd.DataFrame:
    """The table with its columns called by text, and the index levels that are asked for among them."""
    levels = [n for n in table.index.names if n is not None and n in wanted and n not in table.columns]
    return text_columns(table.reset_index(level=levels) if levels else table)


def _check_dates(index: pd.Index, sequence: np.ndarray) -> None:
    """Complain where dates in an index that is not `time` go back within a sequence, as newest first do."""
    if not isinstance(index, pd.DatetimeIndex | pd.PeriodIndex):
        return
    order = np.argsort(sequence, kind="stable")
    later = index.factorize(sort=True)[0][order]
    back = np.flatnonzero((np.diff(later) < 0) & (np.diff(sequence[order]) == 0))
    if len(back):
        first, second = index[order[back[0]]], index[order[back[0] + 1]]
        name = "date" if index.name is None else index.name
        named = "" if index.name is not None else f"X = X.rename_axis({name!r}) and "
        raise ValueError(
            f"time: got none, and the dates in the index of X go back ({second} comes after {first}), while "
            f"rows are read in their order; give {named}time={name!r}, or X.sort_index()"
        )


def _check_features(table: pd.DataFrame, features: list[str]) -> None:
    if not features:
        raise ValueError("X: no column is left for features; leave some out of id, time and actions")
    as_numbers(table[features], fix="name it in id=, time= or actions=, or drop it")


def _sort(
    stamps: pd.Series, sequence: np.ndarray, names: list[str], step: TimeStep | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, TimeStep | None, float]:
    """Order of the rows, where a gap leads to the frame, stamps in that order, the step, and the jitter."""
    missing = stamps.isna().to_numpy()
    if missing.any():
        raise ValueError(
            f"time: column {stamps.name!r} is missing in row {int(missing.argmax())} "
            f"({int(missing.sum())} such row(s)); give every row its time, or drop it"
        )
    clock, step, unit = cast("tuple[np.ndarray, float | None, str]", _clock(stamps, step))
    order = np.lexsort((clock, sequence))
    clock, sequence, stamps = clock[order], sequence[order], stamps.iloc[order].to_numpy()
    inner = np.flatnonzero(np.diff(sequence) == 0) + 1  # frames with a frame before them
    steps = clock[inner] - clock[inner - 1]

    def where(frame: int) -> str:
        return f"sequence {names[sequence[frame]]!r}"

    if (steps == 0).any():
        first = int(inner[(steps == 0).argmax()])
        raise ValueError(
            f"time: {where(first)} has two rows at {stamps[first]} ({int((steps == 0).sum())} such pair(s)); "
            "give one row per id and time"
        )
    broken, jitter, tolerance = np.zeros(len(clock), dtype=bool), 0.0, _JITTER
    if len(steps):
        if step is None:
            tolerance = _TOLERANCE
            # floats that should be equal are not: compare to a thousandth of the smallest
            _, kind, count = np.unique(
                np.round(steps / steps.min(), 3), return_inverse=True, return_counts=True
            )
            step = cast(float, steps[kind == count.argmax()][0])
        ratio = steps / step
        off = np.abs(ratio - np.rint(ratio))
        odd = (off > tolerance) | (np.rint(ratio) == 0)
        if odd.any():
            t = int(inner[odd.argmax()])
            raise ValueError(
                f"time: {where(t)} goes from {stamps[t - 1]} to {stamps[t]}, {ratio[odd.argmax()]:.4g} "
                f"steps of {_in_words(step, unit)} ({int(odd.sum())} such pair(s)); wanted whole steps: "
                "give time_step= (stamps may be off by a quarter of it), resample to a regular grid, or "
                "split the sequence there by id"
            )
        broken[inner] = np.rint(ratio) > 1
        jitter = float(off.max()) if off.max() > _TOLERANCE else 0.0
    if step is not None:
        step = (
            pd.Timedelta(int(step), unit="ns")
            if unit == "ns"
            else step.item()
            if hasattr(step, "item")
            else step
        )
    return order, broken, stamps, step, jitter


def _with_dtype(stamps: pd.Series) -> pd.Series:
    """Objects as what all of them are: dates, and decimal numbers, as databases give them."""
    stamps = stamps.infer_objects()
    if not kinds.is_object_dtype(stamps.dtype):
        return stamps
    kind = kinds.infer_dtype(stamps, skipna=True)
    if kind in ("date", "datetime"):
        try:
            return pd.to_datetime(stamps)
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"time: column {stamps.name!r} holds {kind} values that are no time stamps of pandas "
                f"({error}); give periods (pandas.PeriodIndex(…, freq='D')), which have no such "
                "limits, or numbers"
            ) from error
    if kind != "decimal":
        return stamps
    if stamps.notna().all() and all(stamp.is_finite() and stamp == int(stamp) for stamp in stamps):
        return stamps.map(int).infer_objects()  # every digit: floats have 16 of them
    return pd.to_numeric(stamps)


def _in_words(step: float, unit: str) -> str:
    return str(pd.Timedelta(int(step), unit="ns")) if unit == "ns" else f"{step:g}{unit and ' '}{unit}"


def _clock(stamps: pd.Series, step: TimeStep | None) -> tuple[np.ndarray, TimeStep | None, str]:
    """Time stamps as numbers, a given step in the same unit, and what the unit is."""
    kind = stamps.dtype
    if isinstance(step, np.timedelta64) or not isinstance(step, numbers.Real | None):  # numpy's is a Real too
        try:
            step = pd.Timedelta(step)
        except (TypeError, ValueError) as error:
            wanted = "wanted a number or a time difference, such as '1D'"
            raise ValueError(f"time_step={step!r}: {error}; {wanted}") from error
    if step is not None and not cast(Any, step) > (0 if isinstance(step, numbers.Real) else pd.Timedelta(0)):
        raise ValueError(f"time_step={step!r}: wanted more than 0")
    is_date = kinds.is_datetime64_any_dtype(kind)
    if is_date or kinds.is_timedelta64_dtype(kind):
        months = _months(stamps) if is_date and not isinstance(step, pd.Timedelta) else None
        if months is not None:
            return months, step, "month(s)"
        if isinstance(step, numbers.Real):
            raise ValueError(
                f"time_step={step!r}: a number counts months, and the time stamps do not lie whole months "
                "apart; wanted a time difference such as '1D'"
            )
        since = pd.DatetimeIndex(_without_zone(stamps)) if is_date else pd.TimedeltaIndex(stamps)
        return (
            since.as_unit("ns").asi8,
            None if step is None else cast(pd.Timedelta, step).as_unit("ns").value,
            "ns",
        )
    if isinstance(step, pd.Timedelta):
        raise ValueError(
            f"time_step={str(step)!r}: time holds {kind}; wanted a number in the unit of that column "
            "(for periods: how many)"
        )
    if isinstance(kind, pd.PeriodDtype):
        return stamps.astype("int64").to_numpy(), step, kind.freq.rule_code
    if not kinds.is_numeric_dtype(kind) or kinds.is_bool_dtype(kind):
        cells = kinds.infer_dtype(stamps)  # of text the dtype depends on the version of pandas
        holds = "text" if cells == "string" else f"{cells} values" if kinds.is_object_dtype(kind) else kind
        raise TypeError(
            f"time: column {stamps.name!r} holds {holds}; wanted numbers, datetimes or periods "
            "(pandas.to_datetime reads text)"
        )
    clock = stamps.to_numpy(dtype="int64" if kinds.is_integer_dtype(kind) else float)
    if not np.isfinite(clock).all():
        row = int((~np.isfinite(clock)).argmax())
        raise ValueError(f"time: column {stamps.name!r} is {clock[row]} in row {row}; wanted finite numbers")
    return clock, step, ""


def _without_zone(stamps: pd.Series) -> pd.Series:
    """Wall-clock time if every stamp has the same time of day (days across a clock change), else UTC."""
    if stamps.dt.tz is None:
        return stamps
    wall = stamps.dt.tz_localize(None)
    same = (wall - wall.dt.normalize()).nunique() == 1
    return wall if same else stamps.dt.tz_convert("UTC").dt.tz_localize(None)


def _months(stamps: pd.Series) -> np.ndarray | None:
    """Months since year 0 if all stamps share day of month and time of day, or are ends of months."""
    wall = stamps.dt.tz_localize(None)
    same_time = (wall - wall.dt.normalize()).nunique() == 1
    if not same_time or not (wall.dt.day.nunique() == 1 or wall.dt.is_month_end.all()):
        return None
    return (wall.dt.year * 12 + wall.dt.month).to_numpy(dtype="int64")


def check_finite(values: np.ndarray, names: list[str], frames: Frames, argument: str) -> None:
    """Complain of the first infinite cell of values (frame, column), by its sequence and frame."""
    infinite = np.isinf(values)
    if infinite.any():
        i, j = np.argwhere(infinite)[0]
        ends = np.cumsum(frames.lengths)
        s = int(np.searchsorted(ends, i, side="right"))
        raise ValueError(
            f"{argument}: column {names[j]!r} has {values[i, j]} in sequence {frames.sequence_names[s]!r}, "
            f"frame {i - ends[s] + frames.lengths[s]}; wanted finite numbers (use NaN for what is missing)"
        )


def roles_of(id: Hashable, time: Hashable, actions: Iterable[Hashable] | None) -> dict[str, Any]:
    """The columns of a table that are no features, by argument; labels as a file can hold them.

    Parameters
    ----------
    id, time, actions
        Of `as_sequences`.
    """

    def plain(label: Hashable) -> str | int:
        return label if isinstance(label, str | int) else str(label)

    roles: dict[str, Any] = {
        name: plain(label) for name, label in (("id", id), ("time", time)) if label is not None
    }
    if actions is not None:
        roles["actions"] = [plain(label) for label in ([actions] if isinstance(actions, str) else actions)]
    return roles


def as_in_the_fit(X: pd.DataFrame, roles: dict[str, Any], arguments: dict[str, Any]) -> list[Any]:
    """id, time and actions of a new table: as given, else the columns that the fit was given.

    Parameters
    ----------
    X : DataFrame
    roles : dict
        From `roles_of`, of the fit.
    arguments : dict
        The three, None where left out.

    Raises
    ------
    ValueError
        The table lacks a column that the fit was given.
    """
    here = {str(name) for name in (*X.columns, *X.index.names)}
    left_out = {name: of for name, of in roles.items() if arguments[name] is None}
    for name, of in left_out.items():
        absent = [label for label in (of if isinstance(of, list) else [of]) if str(label) not in here]
        if absent:
            had = ", ".join(f"{n}={v!r}" for n, v in left_out.items())
            raise ValueError(
                f"{name}: the fit was given {had}, and X has no column {absent[0]!r}; give them, or a list "
                "of arrays (time, feature), one for each sequence, its frames in order"
            )
    return list((arguments | left_out).values())
