"""Tasks as callers have them (labelled rows, a table, lists, one array): arrays of each task, or a complaint.

A helper of `data/tasks.py`, which brings the arrays to model units.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Sized
from typing import TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from .._utils.types import TableLike, VectorLike
from .columns import as_frame, as_numbers, check_order, in_order, row_names, text_columns, without_na
from .ordered_categories import words_of
from .read import unmasked

__all__ = [
    "check",
    "check_finite",
    "column",
    "full_labels",
    "is_flat",
    "numbers",
    "separate",
    "table_inputs",
    "task_labels",
]

_WORDS = 3  # of levels, that a message shows
Argument = TypeVar("Argument")
TasksLike: TypeAlias = "TableLike | VectorLike | Sequence[TableLike] | Sequence[VectorLike]"


def full_labels(task: VectorLike) -> np.ndarray:
    """The tasks that rows belong to, as an array.

    Parameters
    ----------
    task : array_like (row,)

    Raises
    ------
    ValueError
        A row has no task, or two tasks have names that read alike.
    """
    labels = np.asarray(task, dtype=object).ravel()
    missing = pd.isna(labels)  # an array of text would say "nan"
    if missing.any():
        raise ValueError(f"task: row {int(missing.argmax())} has no task; drop it or name its task")
    read: dict[str, object] = {}
    for label in pd.unique(pd.Series(labels, dtype=object)):
        if (earlier := read.setdefault(str(label), label)) is not label:
            raise ValueError(f"task: {earlier!r} and {label!r} read alike; give all labels one type")
    return np.asarray(task)


def task_labels(task: VectorLike) -> list[str]:
    """Names of the tasks that rows belong to; `full_labels` as text."""
    return [str(label) for label in pd.Series(full_labels(task).ravel())]


def separate(
    X: TasksLike, y: TasksLike | str, task: VectorLike | Hashable, wanted: list[str] | None
) -> tuple[list[np.ndarray], list[np.ndarray], list[str], list[str]]:
    """Inputs and targets of each task, names of tasks and features.

    Parameters
    ----------
    X, y, task
        As in `as_tasks`.
    wanted : list of str, optional
        Columns to read of a DataFrame, and names of an array's.
    """
    features: list[str] = []
    X = [as_frame(of_task) for of_task in X] if isinstance(X, (list, tuple)) else as_frame(X)
    if task is None and getattr(X, "ndim", 0) == getattr(y, "ndim", 0) == 2:
        return _by_column(X, y, wanted)
    if isinstance(X, pd.DataFrame):
        if task is None:
            raise ValueError(
                "task: a DataFrame has one row per sample; give the column that names the task, or a table y "
                "with a column for each"
            )
        for name, argument in (("y", y), ("task", task)):
            check_order(name, row_names(argument), row_names(X))
        y, table = column(text_columns(X), y, "y", is_number=True)
        task, table = column(table, task, "task")
        X, features = table_inputs(table, wanted)
    for name, argument in (("y", y), ("task", task)):
        if isinstance(argument, str):
            raise TypeError(
                f"{name}: {argument!r} would name a column, and X is not a DataFrame; give an array"
            )
    if task is not None:
        xs, ys, names = _by_label(numbers(X, "X"), numbers(y, "y").astype(float), task)
    elif isinstance(X, (list, tuple)):
        if not isinstance(y, (list, tuple, np.ndarray, Tensor)) or len(y) != len(X):
            got = f"{len(cast(Sized, y))} tasks" if hasattr(y, "__len__") else type(y).__name__
            raise ValueError(
                f"y: got {got}, X is a list of {len(X)} tasks; give one array of targets per task"
            )
        for t, (of_task, target) in enumerate(zip(X, y, strict=True)):
            check_order(f"y[{t}]", row_names(target), row_names(of_task), f"X[{t}]")
        if X and all(isinstance(of_task, pd.DataFrame) for of_task in X):
            tables = [table_inputs(of_task, wanted or [str(c) for c in X[0].columns]) for of_task in X]
            X, features = [x for x, _ in tables], tables[0][1]
        xs = [numbers(of_task, f"X[{t}]") for t, of_task in enumerate(X)]
        ys = [numbers(target, f"y[{t}]").astype(float) for t, target in enumerate(y)]
        names = _numbered(len(xs))
    else:
        inputs, targets = numbers(X, "X"), numbers(y, "y").astype(float)
        if targets.ndim != 2 or inputs.ndim < 3 or inputs.shape[:2] != targets.shape:
            raise ValueError(
                f"X: got {inputs.shape} with y {targets.shape} and no task; want X (task, sample, ...) and "
                "y (task, sample), or one row per sample and `task`"
            )
        xs, ys, names = list(inputs), list(targets), _numbered(len(inputs))
    if xs and xs[0].ndim == 2 and not features:
        features = wanted or [f"x{j + 1}" for j in range(xs[0].shape[1])]
    return xs, ys, names, features


def _numbered(n: int) -> list[str]:
    return [f"task {t + 1}" for t in range(n)]


def _by_column(
    X: TableLike, y: TableLike, wanted: list[str] | None
) -> tuple[list[np.ndarray], list[np.ndarray], list[str], list[str]]:
    """One table of inputs for all tasks, each a column of y: the rows where that is observed."""
    check_order("y", row_names(y), row_names(X))
    if isinstance(X, pd.DataFrame):
        inputs, features = table_inputs(X, wanted)
    else:
        inputs, features = (
            numbers(X, "X"),
            wanted or [f"x{j + 1}" for j in range(np.shape(cast(npt.ArrayLike, X))[1])],
        )
    targets = numbers(y, "y").astype(float)
    if len(targets) != len(inputs):
        raise ValueError(f"y: got {len(targets)} rows, X has {len(inputs)}; want one target row for each")
    names = [str(name) for name in y.columns] if isinstance(y, pd.DataFrame) else _numbered(targets.shape[1])
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(f"y: column {repeated[0]!r} occurs {names.count(repeated[0])} times; rename it")
    observed = ~np.isnan(targets.T)
    return (
        [inputs[rows] for rows in observed],
        [target[rows] for target, rows in zip(targets.T, observed, strict=True)],
        names,
        features,
    )


def _by_label(
    inputs: np.ndarray, targets: np.ndarray, task: VectorLike
) -> tuple[list[np.ndarray], list[np.ndarray], list[str]]:
    """Rows of each task, the tasks sorted, whatever the order of the rows."""
    labels = task_labels(task)
    if inputs.ndim < 2 or targets.ndim != 1 or not len(labels) == len(inputs) == len(targets):
        raise ValueError(
            f"task: got {len(labels)} labels for X {inputs.shape} and y {targets.shape}; want one label and "
            "one target per row"
        )
    names = list(dict.fromkeys(str(label) for label in in_order(task)[1]))  # as text two labels may be one
    codes = pd.Categorical(labels, names).codes
    where = [np.flatnonzero(codes == t) for t in range(len(names))]
    return [inputs[rows] for rows in where], [targets[rows] for rows in where], names


def column(
    table: pd.DataFrame, argument: Argument, name: str, is_number: bool = False
) -> tuple[Argument | np.ndarray | pd.Series, pd.DataFrame]:
    """The column of that name and the table without it, or what was given and the table.

    Parameters
    ----------
    table : DataFrame
        Its columns called by text.
    argument : label of a column, or array_like
    name : str
        Of the argument, for messages.
    is_number : bool
        Whether the column has to be one.

    Raises
    ------
    ValueError, TypeError
        There is no such column, or it is no number.
    """
    if not pd.api.types.is_scalar(argument):
        return argument, table
    if str(argument) not in table:
        raise ValueError(f"{name}: X has no column {argument!r}; it has {list(table.columns)[:8]}")
    values = table[str(argument)]
    if is_number:
        _refuse_levels(values, name)
        read = as_numbers(values.to_frame(), name)
        values = read.iloc[:, 0].to_numpy(dtype=float, na_value=np.nan)
    return values, table.drop(columns=str(argument))


def table_inputs(table: pd.DataFrame, wanted: list[str] | None) -> tuple[np.ndarray, list[str]]:
    """A table's columns as numbers, and their names; `wanted` ones in that order, if there are any."""
    table = text_columns(table)
    if wanted:
        absent = [name for name in wanted if name not in table]
        if absent:
            raise ValueError(f"X: it has no column {absent[0]!r}; want the columns {wanted[:8]} of the fit")
        table = table[wanted]
    table = as_numbers(table)
    return table.to_numpy(dtype=float, na_value=np.nan), list(table.columns)


def _refuse_levels(values: pd.Series, name: str) -> None:
    """Complain of ordered categories among outcomes, whose words a fit to tasks does not keep."""
    words = words_of(values.dtype)
    if words:
        raise TypeError(
            f"{name}: holds ordered categories ({', '.join(map(repr, words[:_WORDS]))}"
            f"{', …' if len(words) > _WORDS else ''}), wanted numbers of levels; give .cat.codes with NaN "
            'for -1, and likelihood="ordinal"'
        )


def numbers(values: TableLike | VectorLike, name: str) -> np.ndarray:
    """Floats as they are, bytes (images) too; all other numbers as float64."""
    if isinstance(values, pd.Series | pd.DataFrame):
        if isinstance(values, pd.Series) and name != "X":
            _refuse_levels(values, name)
        frame = values.to_frame(name) if isinstance(values, pd.Series) else values
        values = as_numbers(frame, name).to_numpy(dtype=float, na_value=np.nan).reshape(values.shape)
    try:
        if isinstance(values, Tensor):
            array = values.detach().cpu().numpy()
        else:
            array = without_na(np.asarray(unmasked(values)))
        cells = array.flat if array.dtype.kind in "SUO" else ()
        text = next((str(cell) for cell in cells if isinstance(cell, str | bytes)), None)
        if text is not None or array.dtype.kind not in "biufO":  # NumPy makes numbers of dates and some text
            raise TypeError(f"it holds {array.dtype if text is None else f'text, {text!r}'}")
        return array if array.dtype in (np.float32, np.float64, np.uint8) else array.astype(float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: want numbers ({error}); ragged tasks go in as a list of arrays") from None


def check(
    xs: list[np.ndarray],
    ys: list[np.ndarray],
    names: list[str],
    features: list[str],
    shape: tuple[int, ...] | None,
    constant: bool = False,
) -> None:
    """Complain about tasks that do not fit together, or not the `shape` of a fit's inputs.

    Targets that do not vary are refused unless `constant`: of yes/no answers or counts they say something.
    """
    if not xs:
        raise ValueError("X: got no task, want at least one")
    for name, x, y in zip(names, xs, ys, strict=True):
        if x.ndim < 2:
            raise ValueError(
                f"X: {name} has shape {x.shape}, want (sample, ...); if X has one row per sample, give `task`"
            )
        if x.shape[1:] != xs[0].shape[1:]:
            raise ValueError(
                f"X: {name} has inputs of shape {x.shape[1:]}, the first task {xs[0].shape[1:]}; want the "
                "same features in every task, one row per sample"
            )
        if y.ndim != 1 or len(y) != len(x):
            raise ValueError(f"y: {name} has targets of shape {y.shape} for {len(x)} rows; want one per row")
        check_finite(x, f"X: {name!r}", features)
        if np.isinf(y).any():
            raise ValueError(f"y: {name} has an infinite target; drop it or set it to NaN")
    if 0 in xs[0].shape[1:]:
        raise ValueError(f"X: one sample has shape {xs[0].shape[1:]}, no inputs; want at least one feature")
    if shape is not None and xs[0].shape[1:] != shape:
        raise ValueError(
            f"X: one sample has shape {xs[0].shape[1:]}, those of the fit {shape}; give the same features"
        )
    targets = [y[~np.isnan(y)] for y in ys]
    if empty := [n for n, y in zip(names, targets, strict=True) if not len(y)]:
        raise ValueError(f"y: {_some(empty)} has no target, want at least 1; drop the task")
    single = np.array([len(y) == 1 for y in targets])
    if single.all() and shape is None and not constant:
        raise ValueError(
            "y: every task has 1 target, and one has no standard deviation to be divided by; want at least 2 "
            "in some tasks"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        centres, scales = (np.array([of(y) for y in targets]) for of in (np.mean, np.std))
    same = np.array([y.min() == y.max() for y in targets])
    extreme = ~same & ~(np.isfinite(centres) & np.isfinite(scales) & (scales > 0))
    if extreme.any():
        far = [name for name, is_extreme in zip(names, extreme, strict=True) if is_extreme]
        raise ValueError(
            f"y: {_some(far)} has targets so large or so small that their standard deviation cannot be "
            "computed; give them in other units"
        )
    still = (same | is_flat(scales, centres)) & ~single  # one target takes the scale of the other tasks
    flat = [n for n, is_still in zip(names, still, strict=True) if is_still]
    if flat and not constant:
        raise ValueError(f"y: {_some(flat)} has a constant target, which says nothing; drop the task")


def is_flat(sd: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Whether numbers of this standard deviation and mean are all the same but for rounding, in any units."""
    return sd <= 1e-12 * np.abs(mean)  # rounding makes an sd of some 1e-16 of the mean


def _some(names: Iterable[str]) -> str:
    """The first name, and how many more."""
    first, *others = names
    return f"{first!r} (and {len(others)} more)" if others else repr(first)


def check_finite(x: np.ndarray, name: str, features: list[str]) -> None:
    """Complain of the first cell of X that is missing or infinite."""
    if np.issubdtype(x.dtype, np.floating) and not (fine := np.isfinite(x)).all():
        where = f" in {features[int((~fine).any(0).argmax())]!r}" if x.ndim == 2 and features else ""
        raise ValueError(
            f"{name} has NaN or infinite inputs{where}; impute or drop those rows (only y may miss; tasks of "
            "different sizes go in as a list)"
        )
