"""Tasks as people have them: lists, one array, rows with labels, a data frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ._cases import Case, require_hypothesis
from ._fuzz_cells import odd_cells

__all__ = ["draw_tasks"]


def draw_tasks(draw: Callable[..., Any], max_tasks: int, max_rows: int) -> Case:
    """One case.

    Parameters
    ----------
    draw : callable
        Hypothesis' own.
    max_tasks, max_rows : int
    """
    st = require_hypothesis()
    usual = draw(st.integers(0, 9)) < 9
    count = draw(st.integers(2, max_tasks) if usual else st.sampled_from([0, 1]))
    d = draw(st.integers(2, 3) if usual else st.sampled_from([0, 1]))
    most = draw(st.integers(6, max_rows) if usual else st.sampled_from([1, 2, 3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    same = draw(st.booleans())
    lengths = [most if same else int(rng.integers((most + 1) // 2, most + 1)) for _ in range(count)]
    cells, done = odd_cells(draw, rng.normal(size=(sum(lengths), d)), most=1)
    y = rng.normal(size=sum(lengths))
    targets = draw(st.sampled_from([*["plain"] * 6, *_TARGETS]))
    with np.errstate(all="ignore"):
        y = _TARGETS[targets](y) if targets in _TARGETS and len(y) else y
    done = [*done, f"targets: {targets}"]
    ends = np.cumsum(lengths)[:-1]
    xs, ys = (np.split(cells, ends), np.split(y, ends)) if count else ([], [])
    form = draw(st.sampled_from(["list", "labels", "frame", "stacked", "a column for each task", "no tasks"]))
    if form == "stacked" and same and count:
        return Case({"X": np.stack(xs), "y": np.stack(ys)}, xs, ys, done=(*done, form))
    if form == "labels" and len(y):
        return _labelled(draw, xs, ys, done)
    if form == "frame" and len(y):
        return _framed(draw, xs, ys, done)
    if form == "a column for each task" and same and count > 1 and cells.size:
        return _columned(draw, xs, ys, done)
    if form == "no tasks":
        kind = draw(st.sampled_from(list(_NO_TASKS)))
        why, make = _NO_TASKS[kind]
        return Case(make(xs, ys), None, done=(*done, kind), refuse=why)
    return Case({"X": xs, "y": ys}, xs, ys, done=(*done, "a list"))


def _first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda y: np.where(np.arange(len(y)) == 0, value, y)


_TARGETS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one missing": _first(np.nan),
    "one infinite": _first(np.inf),
    "one huge": _first(1e300),
    "one far": _first(1e6),
    "all missing": lambda y: y * np.nan,
    "all the same": lambda y: y * 0 + 3,
    "two values": lambda y: (y > 0).astype(float),
    "counts": lambda y: np.rint(np.exp(y)),
    "huge": lambda y: y * 1e200,
    "tiny": lambda y: y * 1e-200,
    "far from 0": lambda y: y + 1e12,
    "some missing": lambda y: np.where(np.arange(len(y)) % 3 == 0, np.nan, y),
}
_INPUTS, _OUTCOMES = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9.0)
_NO_TASKS: dict[str, tuple[str, Callable[..., dict[str, Any]]]] = {
    "no y": ("no targets", lambda xs, ys: {"X": xs}),
    "y of fewer tasks": ("targets of other tasks", lambda xs, ys: {"X": [*xs, _INPUTS], "y": ys}),
    "y of other rows": (
        "targets of other rows",
        lambda xs, ys: {"X": [_INPUTS] * 2, "y": [np.arange(8.0)] * 2},
    ),
    "a matrix and no task": ("no tasks", lambda xs, ys: {"X": _INPUTS, "y": _OUTCOMES}),
    "an empty list": ("nothing", lambda xs, ys: {"X": [], "y": []}),
    "None": ("nothing", lambda xs, ys: {"X": None, "y": None}),
    "text": ("text", lambda xs, ys: {"X": "a.csv", "y": "b"}),
    "names without a table": ("names without a table", lambda xs, ys: {"X": _INPUTS, "y": "y", "task": "t"}),
    "None among them": ("None in the list", lambda xs, ys: {"X": [_INPUTS, None], "y": [_OUTCOMES] * 2}),
    "vectors": ("no inputs", lambda xs, ys: {"X": [_OUTCOMES] * 2, "y": [_OUTCOMES] * 2}),
    "text in X": ("text", lambda xs, ys: {"X": [np.full((9, 2), "a")] * 2, "y": [_OUTCOMES] * 2}),
    "text in y": ("text", lambda xs, ys: {"X": [_INPUTS] * 2, "y": [["a"] * 9] * 2}),
    "numbers": ("numbers", lambda xs, ys: {"X": [1.0, 2.0], "y": [1.0, 2.0]}),
    "complex": ("complex numbers", lambda xs, ys: {"X": [_INPUTS * 1j] * 2, "y": [_OUTCOMES] * 2}),
    "a matrix of tasks as text": (
        "labels of another length",
        lambda xs, ys: {"X": _INPUTS, "y": _OUTCOMES, "task": ["a"] * 8},
    ),
    "y of a dict": ("a dict", lambda xs, ys: {"X": [_INPUTS] * 2, "y": {"a": 1}}),
    "dates in y": (
        "dates",
        lambda xs, ys: {"X": _INPUTS, "y": pd.date_range("2020", periods=9), "task": ["a"] * 9},
    ),
    "a Series": ("a vector", lambda xs, ys: {"X": pd.Series(_OUTCOMES), "y": _OUTCOMES, "task": [1] * 9}),
}


def _names(draw: Callable[..., Any], count: int) -> tuple[list[Any], str]:
    kind = draw(require_hypothesis().sampled_from(["whole numbers", "text", "floats", "unicode", "dates"]))
    makers: dict[str, list[Any]] = {
        "whole numbers": list(range(count)),
        "text": [f"site {t + 8}" for t in range(count)],  # 8, 9, 10: not in the order of text
        "floats": [t / 2 for t in range(count)],
        "unicode": [chr(0x4E00 + t) for t in range(count)],
        "dates": list(pd.date_range("2020", periods=count)),
    }
    return makers[kind], f"tasks called by {kind}"


def _rows(draw: Callable[..., Any], xs: list[np.ndarray], ys: list[np.ndarray]) -> Any:
    """Inputs, targets and tasks of all rows, in an order that leaves those of a task in theirs."""
    owner = np.repeat(np.arange(len(xs)), [len(y) for y in ys])
    order = np.arange(len(owner))
    if draw(require_hypothesis().booleans()):  # tasks interleaved, each task's rows in their own order
        order = np.lexsort((owner, np.concatenate([np.arange(len(y)) for y in ys])))
    return np.concatenate(xs)[order], np.concatenate(ys)[order], owner[order]


def _labelled(draw: Callable[..., Any], xs: list[np.ndarray], ys: list[np.ndarray], done: list[str]) -> Case:
    st = require_hypothesis()
    x, y, owner = _rows(draw, xs, ys)
    names, words = _names(draw, len(xs))
    labels: Any = [names[t] for t in owner]
    why = ""
    kind = draw(st.sampled_from(["list", "array", "Series", "categories", "one missing", "short"]))
    if kind == "array":
        labels = pd.Series(labels).to_numpy()
    elif kind == "Series":
        labels = pd.Series(labels)
    elif kind == "categories":
        labels = pd.Series(pd.Categorical(labels, categories=names))
    elif kind == "one missing":
        labels, why = [None, *labels[1:]], "a row has no task"
    elif kind == "short":
        labels, why = labels[1:], "a label is missing"
    X: Any = draw(st.sampled_from(["array", "frame", "list"]))
    X = (
        pd.DataFrame(x, columns=[f"f{j}" for j in range(x.shape[1])])
        if X == "frame"
        else x.tolist()
        if X == "list"
        else x
    )
    features = list(X.columns) if isinstance(X, pd.DataFrame) else None
    arguments = {"X": X, "y": y.tolist() if draw(st.booleans()) else y, "task": labels}
    task_names = [str(name) for name in names]
    return Case(arguments, xs, ys, features, task_names, done=(*done, f"labels: {kind}", words), refuse=why)


def _framed(draw: Callable[..., Any], xs: list[np.ndarray], ys: list[np.ndarray], done: list[str]) -> Case:
    st = require_hypothesis()
    x, y, owner = _rows(draw, xs, ys)
    names, words = _names(draw, len(xs))
    features = [f"f{j}" for j in range(x.shape[1])]
    frame = pd.DataFrame(x, columns=features).assign(y=y, task=[names[t] for t in owner])
    arguments: dict[str, Any] = {"X": frame, "y": "y", "task": "task"}
    kind = draw(
        st.sampled_from(
            ["plain", "plain", "no such target", "no such task", "text target", "text input", "nullable"]
        )
    )
    why = ""
    if kind == "no such target":
        arguments["y"], why = "outcome", "no such column"
    elif kind == "no such task":
        arguments["task"], why = "site", "no such column"
    elif kind == "text target":
        arguments["X"], why = frame.assign(y="a"), "a target of text"
    elif kind == "text input":
        arguments["X"], why = frame.assign(note="a"), "an input of text"
    elif kind == "nullable":
        arguments["X"] = frame.assign(y=frame["y"].astype("Float64"))
    task_names = [str(name) for name in names]
    return Case(arguments, xs, ys, features, task_names, done=(*done, f"a frame: {kind}", words), refuse=why)


def _columned(draw: Callable[..., Any], xs: list[np.ndarray], ys: list[np.ndarray], done: list[str]) -> Case:
    """X (row, feature) and y (row, task): tasks share rows, but for those without a target."""
    x, table = xs[0], np.stack(ys, 1)
    framed = draw(require_hypothesis().booleans())
    names = [f"t{t}" for t in range(table.shape[1])]
    X: Any = pd.DataFrame(x, columns=[f"f{j}" for j in range(x.shape[1])]) if framed else x
    y: Any = pd.DataFrame(table, columns=names) if framed else table
    observed = ~np.isnan(table.T)
    return Case(
        {"X": X, "y": y},
        [x[rows] for rows in observed],
        [target[rows] for target, rows in zip(table.T, observed, strict=True)],
        list(X.columns) if framed else None,
        names if framed else None,
        done=(*done, "a column for each task"),
    )
