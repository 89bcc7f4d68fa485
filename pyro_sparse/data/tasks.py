"""From a caller's tasks (arrays with task labels, lists, DataFrames) to what a multi-task model reads.

A *task* is a regression of its own: some rows, each with inputs and one target. Tasks share inputs' meaning,
not their rows; they may have different numbers of rows. `Tasks` pads them to one array and knows the names
and the way back to the caller's units; `TaskBatch` is some of them as tensors.
Every complaint about tasks that does not depend on the model is made here, or in `data/task_arrays.py`, which
reads the forms that callers have.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .._utils.types import TableLike, VectorLike
from ..findings.finding import Finding
from .columns import as_frame, check_magnitude
from .task_arrays import TasksLike, check, check_finite, is_flat, numbers, separate, table_inputs

__all__ = ["TaskBatch", "Tasks", "as_tasks"]


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Tasks on the device.

    Attributes
    ----------
    x : Tensor (task, sample, ...)
        Standardised inputs; images of whole numbers stay so until `inputs`.
    y : Tensor (task, sample)
        Targets in standard deviations of their task, 0 where missing.
    mask : Tensor of bool (task, sample) or None
        False at padding and where the target is missing; None when all were seen.
    index : Tensor of int (task,)
        Places of these tasks among all.
    centre, scale : Tensor
        What `inputs` still takes off `x` and divides by.
    total : int
        Tasks in the full data: the plate scales the minibatch by ``total / len(x)``.
    weight : Tensor (task,) or None
        How much each counts in learning what all share, with mean 1 over the full data; None: all alike.
    spread : Tensor (task,) or None
        `relative_spread` of the targets, before they were scaled; None: 0.
    """

    x: Tensor
    y: Tensor
    mask: Tensor | None
    index: Tensor
    centre: Tensor
    scale: Tensor
    total: int
    weight: Tensor | None = None
    spread: Tensor | None = None

    def __len__(self) -> int:
        return self.y.shape[0]

    @property
    def inputs(self) -> Tensor:
        """Standardised inputs (task, sample, ...) in the dtype of the targets."""
        return (self.x.to(self.y.dtype) - self.centre) / self.scale

    def rows(self, index: Tensor) -> TaskBatch:
        """The minibatch with these tasks, still scaled to `total`."""
        mask = None if self.mask is None else self.mask[index]
        weight = None if self.weight is None else self.weight[index]
        spread = None if self.spread is None else self.spread[index]
        x, y, places = self.x[index], self.y[index], self.index[index]
        return replace(self, x=x, y=y, mask=mask, index=places, weight=weight, spread=spread)

    def whole(self) -> TaskBatch:
        """The same tasks seen as a data set of their own (no scaling up)."""
        return replace(self, total=len(self), index=torch.arange(len(self), device=self.y.device))


@dataclass(frozen=True, eq=False)
class Tasks:
    """Tasks in model units, with the way back to the caller's.

    Attributes
    ----------
    x : ndarray (task, sample, ...)
        Inputs, in the caller's units; padded with the task's first row.
    y : ndarray (task, sample)
        Targets, centred and scaled in every task (a single one by the median scale of the others); 0 where
        missing. Outcomes that are not normal are in the units of their likelihood, and its filler where
        missing.
    mask : ndarray of bool (task, sample) or None
    centre, scale : ndarray
        Of the inputs: one number per feature, or one in all for images.
    target_centre, target_scale : ndarray (task,)
        ``y = (original - target_centre) / target_scale``.
    task_names, feature_names : list of str
        An image has no feature names.
    lengths : ndarray of int (task,)
        Rows of each task, with a target or without; what follows is padding.
    checks : tuple of Finding
        What was found against a model of these tasks before it was fitted.
    weight : ndarray (task,) or None
        How much each counts in learning what all share, with mean 1 over the tasks of a fit; None: all alike.
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
    lengths: np.ndarray
    checks: tuple[Finding, ...] = ()
    weight: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def findings(self) -> list[Finding]:
        """What a reader of a fit to these tasks should know of them."""
        return list(self.checks)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample's inputs."""
        return tuple(self.x.shape[2:])

    @property
    def sizes(self) -> np.ndarray:
        """Targets seen in each task."""
        return np.full(len(self), self.y.shape[1]) if self.mask is None else self.mask.sum(1)

    def batch(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> TaskBatch:
        """All tasks as tensors."""
        whole = self.x.dtype == np.uint8  # images: four bytes for one only where they are read
        x = torch.as_tensor(self.x, device=device) if whole else self.standardised(self.x, device, dtype)
        centre, scale = (self.centre, self.scale) if whole else (0.0, 1.0)
        return TaskBatch(
            x=x,
            y=torch.as_tensor(self.y, dtype=dtype, device=device),
            mask=None if self.mask is None else torch.as_tensor(self.mask, device=device),
            index=torch.arange(len(self), device=device),
            centre=torch.as_tensor(centre, dtype=dtype, device=device),
            scale=torch.as_tensor(scale, dtype=dtype, device=device),
            total=len(self),
            weight=None if self.weight is None else torch.as_tensor(self.weight, dtype=dtype, device=device),
            spread=torch.as_tensor(relative_spread(self.target_scale), dtype=dtype, device=device),
        )

    def standardised(
        self, x: np.ndarray, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Inputs in the caller's units as standardised tensors."""
        return torch.as_tensor((x - self.centre) / self.scale, dtype=dtype, device=device)

    def inputs(self, X: TableLike) -> np.ndarray:
        """A caller's rows as an array, one sample per row: a DataFrame's columns are found by their names.

        Raises
        ------
        ValueError, TypeError
            Another shape than these tasks', a column that is not there or no number, NaN or infinity.
        """
        X = as_frame(X)
        if isinstance(X, pd.DataFrame):
            X, _ = table_inputs(X, self.feature_names)
        x = numbers(X, "X")
        if x.ndim != 1 + len(self.shape) or x.shape[1:] != self.shape:
            raise ValueError(f"X: got {x.shape}, want one row per sample and inputs of shape {self.shape}")
        check_finite(x, "X", self.feature_names)
        return x

    def rows(self, index: slice | list[int] | np.ndarray) -> Tasks:
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
            lengths=self.lengths[index],
            weight=None if self.weight is None else self.weight[index],
        )


def as_tasks(
    X: TasksLike,
    y: TasksLike | str,
    task: VectorLike | Hashable = None,
    *,
    standardise: bool = True,
    like: Tasks | None = None,
    units: Callable[[list[str], np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
    filler: float = 0.0,
) -> Tasks:
    """Check a caller's tasks and bring them to model units.

    Parameters
    ----------
    X, y : of one of these forms
        X (row, ...) and y (row,) with `task`; both a list of arrays, one for each task; X (task, sample, ...)
        and y (task, sample); X (row, feature) and y (row, task), each of whose columns is a task; or X a
        DataFrame and y an array or the name of its column. X holds numbers or images (channel, row, column),
        and NaN in it is an error; NaN in y is a missing target, such rows of a (row, task) are left out.
    task : array_like (row,) or name of a column of X, optional
        Which task a row belongs to; tasks are sorted by it: categories in their own order, text by the
        numbers in it ("site 2" before "site 10"). Without it see the other forms.
    standardise : bool
        z-score the inputs over all rows (images: one centre and scale in all). Targets always are, in
        each task, so that no task outweighs the others; a single target by the scale of the other tasks.
    like : Tasks, optional
        Use these tasks' features, centre and scale (new tasks for a fitted model); one task is enough then.
    units : callable, optional
        Of names and targets (sample, task), NaN where missing, gives centre and scale of each task's targets;
        targets need not vary then. Default: they are z-scored.
    filler : float
        What `y` holds where a target is missing.

    Returns
    -------
    Tasks

    Raises
    ------
    ValueError, TypeError
        Names the argument, what was seen, what is wanted and the fix.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> tasks = as_tasks(X, [1, 2, 3, 5, 8, 13], task=["a", "a", "b", "b", "b", "b"])
    >>> tasks.task_names, tasks.sizes.tolist(), tasks.x.shape
    (['a', 'b'], [2, 4], (2, 4, 2))
    """
    xs, ys, names, features = separate(X, y, task, None if like is None else like.feature_names)
    check(xs, ys, names, features, None if like is None else like.shape, constant=units is not None)
    width = max(len(targets) for targets in ys)
    x = np.empty((len(xs), width, *xs[0].shape[1:]), dtype=np.result_type(*{inputs.dtype for inputs in xs}))
    target, mask = np.full((len(xs), width), filler), np.zeros((len(xs), width), dtype=bool)
    if units is not None:
        cells = np.full((width, len(ys)), np.nan)
        for t, values in enumerate(ys):
            cells[: len(values), t] = values
        centres, scales = units(names, cells)
    else:
        targets = [values[~np.isnan(values)] for values in ys]
        centres, scales = (np.array([of(values) for values in targets]) for of in (np.mean, np.std))
        single = np.array([len(values) == 1 for values in targets])
        if single.any():  # one target has no spread: it is in units of the other tasks
            scales[single] = np.median(scales[~single] if like is None else like.target_scale)
    for t, (rows, values) in enumerate(zip(xs, ys, strict=True)):
        observed = ~np.isnan(values)
        # padding with a row of the task: an encoder never meets inputs that do not occur
        x[t, : len(rows)], x[t, len(rows) :] = rows, rows[0]
        target[t, : len(rows)] = np.where(observed, (values - centres[t]) / scales[t], filler)
        mask[t, : len(rows)] = observed
    if like is not None:
        centre, scale = like.centre, like.scale
    else:
        centre, scale = _units(xs, features, standardise)
    if x.dtype.kind == "f":
        axes = (0, 1) if features else None
        ends = (np.stack([x.min(axes), x.max(axes)]) - centre) / scale
        check_magnitude(features or ["pixel"], ends, "X: feature")
    lengths = np.array([len(targets) for targets in ys])
    full = None if mask.all() else mask
    return Tasks(x, target, full, centre, scale, centres, scales, names, features, lengths)


def relative_spread(target_scale: np.ndarray) -> np.ndarray:
    """Log variances of tasks' targets, of these standard deviations (..., task), less their mean."""
    log_variance = 2 * np.log(np.asarray(target_scale, dtype=float))
    return np.asarray(log_variance - log_variance.mean(-1, keepdims=True))


def _units(xs: list[np.ndarray], features: list[str], standardise: bool) -> tuple[np.ndarray, np.ndarray]:
    vectors = xs[0].ndim == 2
    if not standardise:
        width = xs[0].shape[1:] if vectors else ()
        return np.zeros(width), np.ones(width)
    axis = 0 if vectors else None
    n = sum(len(x) for x in xs) if vectors else sum(x.size for x in xs)
    with np.errstate(over="ignore", invalid="ignore"):
        centre = sum(x.sum(axis, dtype=float) for x in xs) / n
        square = sum(((x - centre) ** 2).sum(axis, dtype=float) for x in xs) / n
    scale = np.sqrt(square)
    varies = np.max([x.max(axis) for x in xs], 0) > np.min([x.min(axis) for x in xs], 0)
    extreme = np.atleast_1d(~(np.isfinite(centre) & np.isfinite(scale)) | (varies & (scale == 0)))
    if extreme.any():
        subject = f"feature {features[int(extreme.argmax())]!r}" if vectors else "an image"
        raise ValueError(
            f"X: {subject} has inputs so large or so small that their standard deviation cannot be computed; "
            "give them in other units"
        )
    flat = np.atleast_1d(is_flat(scale, centre))
    if flat.any():
        subject = f"feature {features[int(flat.argmax())]!r} is" if vectors else "all inputs are"
        raise ValueError(f"X: {subject} constant; drop it, or ps.fit(..., standardise=False)")
    return np.asarray(centre), np.asarray(scale)
