"""Sequences as people have them: arrays, lists of different lengths, long tables with ids and times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ._cases import Case, require_hypothesis
from ._fuzz_cells import odd_cells

if TYPE_CHECKING:
    from .._utils.types import VectorLike

__all__ = ["draw_sequences"]

_USUAL = 4  # times as likely as each other kind: accepted input is to be tried, too


def draw_sequences(draw: Callable[..., Any], max_sequences: int, max_frames: int) -> Case:
    """One case.

    Parameters
    ----------
    draw : callable
        Hypothesis' own.
    max_sequences, max_frames : int
    """
    st = require_hypothesis()
    usual = draw(st.integers(0, 9)) < 9
    count = draw(st.integers(2, max_sequences) if usual else st.sampled_from([0, 1]))
    d = draw(st.integers(2, 3) if usual else st.sampled_from([0, 1]))
    most = draw(st.integers(6, max_frames) if usual else st.sampled_from([0, 1, 2]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    same = draw(st.booleans())
    lengths = [most if same else int(rng.integers((most + 1) // 2, most + 1)) for _ in range(count)]
    cells, done = odd_cells(draw, np.cumsum(rng.normal(size=(sum(lengths), d)), 0) * 0.5, most=1)
    split = np.split(cells, np.cumsum(lengths)[:-1]) if count else []
    form = draw(st.sampled_from(["long table", "list", "stacked", "no sequences"]))
    if form == "long table" and cells.size:
        return _long(draw, split, done)
    if form == "stacked" and count and same:
        return _stacked(draw, split, done)
    if form == "no sequences":
        return _no_sequences(draw, split, done)
    return _list(draw, split, done)


def _actions(draw: Callable[..., Any], split: list[np.ndarray]) -> tuple[Any, str, str]:
    """Actions of a list of sequences, how they were made, and why they have to be refused."""
    st = require_hypothesis()
    kind = draw(st.sampled_from([*["none"] * _USUAL, *_ACTIONS]))
    make, why = _ACTIONS.get(kind, (lambda x, i: None, ""))
    return (None if kind == "none" else [make(x, i) for i, x in enumerate(split)]), f"actions: {kind}", why


def _numbers_of(x: np.ndarray, i: int) -> np.ndarray:
    return np.random.default_rng(i).normal(size=(len(x), 1))


def _words_of(x: np.ndarray, i: int) -> np.ndarray:
    return np.array(["left", "right"], dtype=object)[np.random.default_rng(i).integers(0, 2, len(x))]


def _with_hole(values: np.ndarray, hole: float | None) -> np.ndarray:
    if len(values):
        values[0] = hole
    return values


_ACTIONS: dict[str, tuple[Callable[[np.ndarray, int], Any], str]] = {
    "numbers": (_numbers_of, ""),
    "numbers in a vector": (lambda x, i: _numbers_of(x, i).ravel(), ""),
    "two": (lambda x, i: np.random.default_rng(i).normal(size=(len(x), 2)), ""),
    "words": (_words_of, ""),
    "words, one missing": (lambda x, i: _with_hole(_words_of(x, i), None), ""),
    "a missing number": (lambda x, i: _with_hole(_numbers_of(x, i), np.nan), ""),
    "True and False": (lambda x, i: _numbers_of(x, i).ravel() > 0, ""),
    "categories": (lambda x, i: pd.Categorical(_words_of(x, i)), ""),
    "a frame": (lambda x, i: pd.DataFrame({"do": _numbers_of(x, i).ravel()}), ""),
    "infinite": (lambda x, i: _with_hole(_numbers_of(x, i), np.inf), "an action is infinite"),
    "all the same": (lambda x, i: np.ones((len(x), 1)), "an action says nothing"),
    "one level": (lambda x, i: np.full(len(x), "go", dtype=object), "an action has one level"),
    "one too few": (lambda x, i: _numbers_of(x, i)[1:], "actions are no frames'"),
    "no column": (lambda x, i: np.zeros((len(x), 0)), "no action"),
    "a number": (lambda x, i: 1.0, "no actions"),
    "dates": (lambda x, i: pd.date_range("2020", periods=len(x)).to_numpy(), "an action of dates"),
    "complex": (lambda x, i: _numbers_of(x, i) * 1j, "complex numbers"),
    "levels 1 and '1'": (lambda x, i: np.array([1, "1"] * len(x), dtype=object)[: len(x)], ""),
}  # fmt: skip


def _beside(draw: Callable[..., Any], split: list[np.ndarray]) -> tuple[dict[str, Any], list[str], str]:
    actions, words, why = _actions(draw, split)
    return ({} if actions is None else {"actions": actions}), [words], why if split else ""


def _list(draw: Callable[..., Any], split: list[np.ndarray], done: list[str]) -> Case:
    st = require_hypothesis()
    beside, words, why = _beside(draw, split)
    kind = draw(
        st.sampled_from(["arrays", "frames", "float32", "masked", "nested lists", "tuple", "mixed widths"])
    )
    read, features = split, None
    data: Any = list(split)
    if kind == "frames":
        features = [f"f{j}" for j in range(split[0].shape[1])] if split else None
        data = [pd.DataFrame(x, columns=features) for x in split]
    elif kind == "float32":
        with np.errstate(all="ignore"):
            data = [x.astype(np.float32) for x in split]
        read = [x.astype(float) for x in data]
    elif kind == "masked":
        data = [np.ma.masked_invalid(x) for x in split]
        read = [np.where(np.isfinite(x), x, np.nan) for x in split]
    elif kind == "nested lists":
        data = [x.tolist() for x in split]
    elif kind == "tuple":
        data = tuple(split)
    elif kind == "mixed widths" and split:
        data[-1] = np.hstack([split[-1], split[-1]])
        why = why or ("sequences of different widths" if len(split) > 1 and split[0].shape[1] else "")
        read = data
    return Case(
        {"X": data, **beside}, read, features=features, done=(*done, f"a list: {kind}", *words), refuse=why
    )


def _stacked(draw: Callable[..., Any], split: list[np.ndarray], done: list[str]) -> Case:
    st = require_hypothesis()
    beside, words, why = _beside(draw, split)
    x = np.stack(split)
    if (
        draw(st.booleans())
        and beside
        and all(np.shape(a) == np.shape(beside["actions"][0]) for a in beside["actions"])
    ):
        beside["actions"] = np.stack([np.asarray(a) for a in beside["actions"]])
        words.append("actions stacked")
    if len(split) == 1 and draw(st.booleans()):
        x, beside = x[0], {name: value[0] for name, value in beside.items()}
    return Case({"X": x, **beside}, split, done=(*done, "stacked", *words), refuse=why)


_NO_SEQUENCES: dict[str, tuple[str, Callable[[list[np.ndarray]], Any]]] = {
    "a vector": ("one dimension", lambda split: np.arange(20.0)),
    "a list of vectors": ("no features", lambda split: [np.arange(20.0)] * 3),
    "four dimensions": ("four dimensions", lambda split: np.ones((2, 3, 4, 5))),
    "an empty list": ("nothing", lambda split: []),
    "None": ("nothing", lambda split: None),
    "text": ("text", lambda split: "sequences.csv"),
    "a number": ("a number", lambda split: 3.0),
    "a dict": ("a dict", lambda split: {"a": split}),
    "a list of text": ("text", lambda split: ["a", "b"]),
    "arrays of text": ("text", lambda split: [np.full((12, 2), "a")] * 3),
    "None among them": ("None in the list", lambda split: [np.ones((12, 2)), None]),
    "a list of numbers": ("numbers", lambda split: [1.0, 2.0]),
    "complex": ("complex numbers", lambda split: np.ones((3, 12, 2)) * 1j),
    "an array of objects": ("text as objects", lambda split: np.full((3, 12, 2), "a", dtype=object)),
    "a generator": ("a generator", lambda split: (x for x in split)),
    "different depth": ("different dimensions", lambda split: [np.ones((12, 2)), np.ones(12)]),
}  # fmt: skip


def _no_sequences(draw: Callable[..., Any], split: list[np.ndarray], done: list[str]) -> Case:
    kind = draw(require_hypothesis().sampled_from(list(_NO_SEQUENCES)))
    why, make = _NO_SEQUENCES[kind]
    return Case({"X": make(split)}, None, done=(*done, kind), refuse=why)


# ---- long tables -------------------------------------------------------------------------------------------
_TIMES: dict[str, Callable[[np.ndarray], Any]] = {
    "whole numbers": lambda t: t,
    "floats": lambda t: 0.1 * t,
    "days": lambda t: pd.Timestamp("2020-01-30") + pd.to_timedelta(t, "D"),
    "months": lambda t: pd.PeriodIndex(pd.Period("2020-01", "M") + t),
    "month starts": lambda t: pd.PeriodIndex(pd.Period("2020-01", "M") + t).to_timestamp(),
    "zoned hours": lambda t: pd.Timestamp("2021-03-27", tz="Europe/Berlin") + pd.to_timedelta(t, "h"),
    "durations": lambda t: pd.to_timedelta(t, "min"),
    "nullable": lambda t: pd.array(t, dtype="Int64"),
    "objects": lambda t: pd.Series(t.tolist(), dtype=object),
    "uint8": lambda t: t.astype(np.uint8),
    "negative": lambda t: t - 100,
    "large": lambda t: t + 2**40,
    "float32": lambda t: t.astype(np.float32),
}
_NO_TIMES: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "text": (
        "times as text",
        lambda t: pd.Index(pd.Timestamp("2020-01-30") + pd.to_timedelta(t, "D")).astype(str),
    ),
    "bool": ("times of True and False", lambda t: t % 2 == 0),
    "missing": ("a time is missing", lambda t: np.where(np.arange(len(t)) == 1, np.nan, t)),
    "infinite": ("a time is infinite", lambda t: np.where(np.arange(len(t)) == 1, np.inf, t)),
    "twice": ("two rows at one time", lambda t: np.zeros(len(t), dtype=int)),
    "off the grid": ("a time off the grid", lambda t: t + 0.37 * (np.arange(len(t)) == 1)),
    "complex": ("complex times", lambda t: t * 1j),
    "categories": ("times of categories", lambda t: pd.Categorical(t)),
    "objects of both": ("times of several kinds", lambda t: pd.Series([*t[:-1], "later"], dtype=object)),
}
_IDS: dict[str, Callable[[int], list[Any]]] = {
    "whole numbers": lambda n: list(range(n)),
    "text with numbers": lambda n: [f"s{i + 8}" for i in range(n)],  # s8, s9, s10: not in the order of text
    "floats": lambda n: [i / 2 for i in range(n)],
    "dates": lambda n: list(pd.date_range("2020", periods=n)),
    "unicode": lambda n: [chr(0x4E00 + i) for i in range(n)],
    "True and False": lambda n: [False, True, *range(2, n)][:n],
}


def _column_of(values: VectorLike) -> pd.Series:
    return pd.Series(values).reset_index(drop=True)


def _long(draw: Callable[..., Any], split: list[np.ndarray], done: list[str]) -> Case:
    """A table with a row for each frame, its rows in any order."""
    st = require_hypothesis()
    lengths = [len(x) for x in split]
    owner = np.repeat(np.arange(len(split)), lengths)
    d = split[0].shape[1]
    features = [f"f{j}" for j in range(d)]
    frame, why, words = pd.DataFrame(np.concatenate(split), columns=features), "", list(done)
    beside: dict[str, Any] = {}
    read = split
    groups: list[str] | None = ["0"]
    kind = draw(st.sampled_from([*["whole numbers"] * 2, *_IDS, "none", "one missing"]))
    if kind == "none":
        read = [np.concatenate(split)]
    else:
        ids = _IDS.get(kind, _IDS["whole numbers"])(len(split))
        column = [ids[i] for i in owner]
        groups = [str(label) for label in ids]
        if kind == "one missing":
            column[0], why = None, "an id is missing"
        frame.insert(0, "who", _column_of(column))
        beside["id"] = "who"
        if kind == "True and False" and len(split) > 2:  # 0 and False, 1 and True are one label to pandas
            groups = None
    when = draw(st.sampled_from([*["none"] * 3, *["whole numbers"] * 3, *_TIMES, *_NO_TIMES]))
    ordered = when == "none"
    if not ordered:
        clock = np.concatenate([np.arange(n) for n in lengths]) if "id" in beside else np.arange(len(frame))
        if len(clock) and draw(st.booleans()):
            clock = np.where((clock > 2) & (owner == 0), clock + 3, clock) if "id" in beside else clock
            words.append("a gap")
        bad, make = _NO_TIMES.get(when, ("", _TIMES.get(when, _TIMES["whole numbers"])))
        frame.insert(len(frame.columns), "t", _column_of(make(clock)))
        why = why or (bad if len(frame) > 2 else "")
        beside["time"] = "t"
    acts = draw(st.sampled_from([*["none"] * _USUAL, "numbers", "words", "absent", "as features"]))
    if acts in ("numbers", "words"):
        make_action = _numbers_of if acts == "numbers" else _words_of
        frame["do"] = np.ravel(make_action(np.zeros((len(frame), 1)), 0))
        beside["actions"] = draw(st.sampled_from([["do"], "do", ("do",)]))
    elif acts == "absent":
        beside["actions"], why = ["nowhere"], why or "no such column"
    elif acts == "as features":
        frame["do"] = _words_of(np.zeros((len(frame), 1)), 0)
        why = why or "a feature of text"
    if not ordered and draw(st.booleans()):
        frame = frame.sample(frac=1, random_state=draw(st.integers(0, 9)))
        words.append("rows shuffled")
    if beside and draw(st.integers(0, 4)) == 0:
        levels = [beside[name] for name in ("id", "time") if name in beside]
        frame = frame.set_index(levels) if levels else frame
        words.append("id and time in the index")
    return Case(
        {"X": frame, **beside}, read, features=features, groups=groups, refuse=why,
        done=(*words, f"a long table, id: {kind}, time: {when}, actions: {acts}"),
    )  # fmt: skip
