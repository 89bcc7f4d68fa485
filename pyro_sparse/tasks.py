"""From a caller's tasks (arrays with task labels, lists, DataFrames) to what a multi-task model reads.

A *task* is a regression of its own: some rows, each with inputs and one target. Tasks share inputs' meaning,
not their rows; they may have different numbers of rows. `Tasks` pads them to one array and knows the names
and the way back to the caller's units; `TaskBatch` is some of them as tensors.
Every complaint about tasks that does not depend on the model is made here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

__all__ = ["TaskBatch", "Tasks", "as_tasks"]

_LEAST_ROWS = 2


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Tasks on the device.

    Attributes
    ----------
    x : Tensor (task, sample, ...)
        Inputs as they were stored: whole numbers stay so until `inputs`.
    y : Tensor (task, sample)
        Targets in standard deviations of their task, 0 where missing.
    mask : Tensor of bool (task, sample) or None
        False at padding and where the target is missing; None when all were seen.
    index : Tensor of int (task,)
        Places of these tasks among all.
    centre, scale : Tensor
        Of the inputs.
    total : int
        Tasks in the full data: the plate scales the minibatch by ``total / len(x)``.
    """

    x: Tensor
    y: Tensor
    mask: Tensor | None
    index: Tensor
    centre: Tensor
    scale: Tensor
    total: int

    def __len__(self) -> int:
        return self.y.shape[0]

    @property
    def inputs(self) -> Tensor:
        """Standardised inputs (task, sample, ...) in the dtype of the targets."""
        return (self.x.to(self.y.dtype) - self.centre) / self.scale

    def rows(self, index: Tensor) -> TaskBatch:
        """The minibatch with these tasks, still scaled to `total`."""
        mask = None if self.mask is None else self.mask[index]
        return replace(self, x=self.x[index], y=self.y[index], mask=mask, index=self.index[index])

    def whole(self) -> TaskBatch:
        """The same tasks seen as a data set of their own (no scaling up)."""
        return replace(self, total=len(self), index=torch.arange(len(self), device=self.y.device))


@dataclass(frozen=True, eq=False)
class Tasks:
    """Tasks in model units, with the way back to the caller's.

    Attributes
    ----------
    x : ndarray (task, sample, ...)
        Inputs, in the caller's units and dtype; padding 0.
    y : ndarray (task, sample)
        Targets, centred and scaled in every task; 0 where missing.
    mask : ndarray of bool (task, sample) or None
    centre, scale : ndarray
        Of the inputs: one number per feature, or one in all for images.
    target_centre, target_scale : ndarray (task,)
        ``y = (original - target_centre) / target_scale``.
    task_names, feature_names : list of str
        An image has no feature names.
    """

    x: np.ndarray
    y: np.ndarray
    mask: np.ndarray | None
    centre: np.ndarray
    scale: np.ndarray
    target_centre: np.ndarray
    target_scale: np.ndarray
    task_names: list[str]
    feature_names: list[str]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample's inputs."""
        return tuple(self.x.shape[2:])

    @property
    def sizes(self) -> np.ndarray:
        """Targets seen in each task."""
        return np.full(len(self), self.y.shape[1]) if self.mask is None else self.mask.sum(1)

    def batch(self, device: Any = "cpu", dtype: torch.dtype = torch.float32) -> TaskBatch:
        """All tasks as tensors."""
        floating = np.issubdtype(self.x.dtype, np.floating)
        return TaskBatch(
            x=torch.as_tensor(self.x, dtype=dtype if floating else None, device=device),
            y=torch.as_tensor(self.y, dtype=dtype, device=device),
            mask=None if self.mask is None else torch.as_tensor(self.mask, device=device),
            index=torch.arange(len(self), device=device),
            centre=torch.as_tensor(self.centre, dtype=dtype, device=device),
            scale=torch.as_tensor(self.scale, dtype=dtype, device=device),
            total=len(self),
        )

    def rows(self, index: Any) -> Tasks:
        """The tasks with these indices only."""
        index = np.arange(len(self))[index]
        return replace(
            self,
            x=self.x[index],
            y=self.y[index],
            mask=None if self.mask is None else self.mask[index],
            target_centre=self.target_centre[index],
            target_scale=self.target_scale[index],
            task_names=[self.task_names[i] for i in index],
        )


def as_tasks(
    X: Any,
    y: Any,
    task: Any = None,
    *,
    standardise: bool = True,
    like: Tasks | None = None,
) -> Tasks:
    """Check a caller's tasks and bring them to model units.

    Parameters
    ----------
    X : array_like (row, ...) with `task`, (task, sample, ...) without, list of arrays, or DataFrame
        Inputs, one row per sample: numbers, or images (channel, row, column). NaN is an error.
    y : array_like (row,) or (task, sample), list of arrays, or name of a column of X
        Targets; NaN is a missing one.
    task : array_like (row,) or name of a column of X, optional
        Which task a row belongs to. Without it X is a list, or has a dimension for tasks.
    standardise : bool
        z-score the inputs over all rows (images: one centre and scale in all). Targets always are, in
        each task, so that no task outweighs the others.
    like : Tasks, optional
        Use these tasks' features, centre and scale (new tasks for a fitted model).

    Returns
    -------
    Tasks

    Raises
    ------
    ValueError, TypeError
        Names the argument, what was seen, what is wanted and the mend.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> tasks = as_tasks(X, [1, 2, 3, 5, 8, 13], task=["a", "a", "b", "b", "b", "b"])
    >>> tasks.task_names, tasks.sizes.tolist(), tasks.x.shape
    (['a', 'b'], [2, 4], (2, 4, 2))
    """
    xs, ys, names, features = _separate(X, y, task, like)
    _check(xs, ys, names)
    width = max(len(one) for one in ys)
    x = np.zeros((len(xs), width, *xs[0].shape[1:]), dtype=xs[0].dtype)
    target, mask = np.zeros((len(xs), width)), np.zeros((len(xs), width), dtype=bool)
    centres, scales = np.zeros(len(xs)), np.ones(len(xs))
    for t, (rows, values) in enumerate(zip(xs, ys, strict=True)):
        seen = ~np.isnan(values)
        centres[t], spread = values[seen].mean(), values[seen].std()
        scales[t] = spread if spread > 1e-12 * max(1.0, abs(centres[t])) else 1.0
        x[t, : len(rows)] = rows
        target[t, : len(rows)] = np.where(seen, (values - centres[t]) / scales[t], 0.0)
        mask[t, : len(rows)] = seen
    if like is not None:
        centre, scale = like.centre, like.scale
    else:
        centre, scale = _units(xs, features, standardise)
    return Tasks(x, target, None if mask.all() else mask, centre, scale, centres, scales, names, features)


def _separate(
    X: Any, y: Any, task: Any, like: Tasks | None
) -> tuple[list[np.ndarray], list[np.ndarray], list[str], list[str]]:
    """Inputs and targets of each task, names of tasks and features."""
    features: list[str] = []
    if isinstance(X, pd.DataFrame):
        table = X
        y, table = _column(table, y, "y")
        task, table = _column(table, task, "task")
        features = [str(c) for c in table.columns]
        text = [c for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
        if text:
            raise TypeError(
                f"X: column {text[0]!r} is not a number; encode it (pandas.get_dummies) or drop it"
            )
        X = table.to_numpy(dtype=float)
        if task is None:
            raise ValueError("task: a DataFrame has one row per sample; give the column that names the task")
    if isinstance(X, (list, tuple)) and task is None:
        xs = [_numbers(one, f"X[{t}]") for t, one in enumerate(X)]
        ys = [_numbers(one, f"y[{t}]").astype(float) for t, one in enumerate(y)]
        names = [f"task {t + 1}" for t in range(len(xs))]
        if len(xs) != len(ys):
            raise ValueError(f"y: got {len(ys)} tasks, X has {len(xs)}; give one array of targets per task")
    else:
        inputs, targets = _numbers(X, "X"), _numbers(y, "y").astype(float)
        if task is None:
            if targets.ndim != 2 or inputs.ndim < 3 or inputs.shape[:2] != targets.shape:
                raise ValueError(
                    f"X: got {inputs.shape} with y {targets.shape} and no task; want X (task, sample, ...) "
                    "and "
                    "y (task, sample), or one row per sample and `task`"
                )
            xs, ys = list(inputs), list(targets)
            names = [f"task {t + 1}" for t in range(len(xs))]
        else:
            labels = pd.Series(np.asarray(task).ravel())
            if not len(labels) == len(inputs) == len(targets) or targets.ndim != 1:
                raise ValueError(
                    f"task: got {len(labels)} labels for X {inputs.shape} and y {targets.shape}; want one "
                    "label and "
                    "one target per row"
                )
            if labels.isna().any():
                raise ValueError(
                    f"task: row {int(labels.isna().argmax())} has no task; drop it or name its task"
                )
            codes, levels = pd.factorize(labels)
            xs = [inputs[codes == t] for t in range(len(levels))]
            ys = [targets[codes == t] for t in range(len(levels))]
            names = [str(level) for level in levels]
    if xs and xs[0].ndim == 2 and not features:
        features = [f"x{j + 1}" for j in range(xs[0].shape[1])] if like is None else like.feature_names
    return xs, ys, names, features


def _column(table: pd.DataFrame, given: Any, name: str) -> tuple[Any, pd.DataFrame]:
    if not isinstance(given, str):
        return given, table
    if given not in table:
        raise ValueError(f"{name}: X has no column {given!r}; it has {list(table.columns)[:8]}")
    return table[given].to_numpy(), table.drop(columns=given)


def _numbers(values: Any, name: str) -> np.ndarray:
    array = values.numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype == object or not (
        np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.bool_)
    ):
        try:
            array = array.astype(float)
        except (TypeError, ValueError):
            raise TypeError(
                f"{name}: want numbers, got {array.dtype}; ragged tasks go in as a list"
            ) from None
    return array.astype(float) if array.dtype == bool else array


def _check(xs: list[np.ndarray], ys: list[np.ndarray], names: list[str]) -> None:
    if not xs:
        raise ValueError("X: got no task, want at least one")
    for name, x, y in zip(names, xs, ys, strict=True):
        if x.ndim < 2 or x.shape[1:] != xs[0].shape[1:]:
            raise ValueError(
                f"X: {name} has inputs of shape {x.shape[1:]}, the first task {xs[0].shape[1:]}; want the "
                "same "
                "features in every task, one row per sample"
            )
        if y.ndim != 1 or len(y) != len(x):
            raise ValueError(f"y: {name} has targets of shape {y.shape} for {len(x)} rows; want one per row")
        if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
            raise ValueError(
                f"X: {name} has NaN or infinite inputs; impute or drop those rows (only y may miss)"
            )
        if np.isinf(y).any():
            raise ValueError(f"y: {name} has an infinite target; drop it or set it to NaN")
        if (~np.isnan(y)).sum() < _LEAST_ROWS:
            raise ValueError(
                f"y: {name} has {int((~np.isnan(y)).sum())} sample(s) with a target, want at least "
                f"{_LEAST_ROWS}; drop "
                "the task"
            )


def _units(xs: list[np.ndarray], features: list[str], standardise: bool) -> tuple[np.ndarray, np.ndarray]:
    vectors = xs[0].ndim == 2
    if not standardise:
        width = xs[0].shape[1:] if vectors else ()
        return np.zeros(width), np.ones(width)
    axis = 0 if vectors else None
    n = sum(len(x) for x in xs) if vectors else sum(x.size for x in xs)
    centre = sum(x.sum(axis, dtype=float) for x in xs) / n
    square = sum(((x - centre) ** 2).sum(axis) for x in xs) / n
    scale = np.sqrt(square)
    flat = np.atleast_1d(scale <= 1e-12 * np.maximum(1.0, np.abs(centre)))
    if flat.any():
        what = f"feature {features[int(flat.argmax())]!r} is" if vectors else "all inputs are"
        raise ValueError(f"X: {what} constant; drop it, or standardise=False")
    return np.asarray(centre), np.asarray(scale)
