"""How much each task counts, as callers say it: an array in the order of the tasks, or a complaint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from .._utils.types import TaskWeights

__all__ = ["read_task_weight"]

_LEAST = 1e-12  # over the largest: below, single precision would lose the task
_NAMED = 8  # tasks that a message lists


def read_task_weight(task_weight: TaskWeights | None, names: Sequence[str]) -> np.ndarray | None:
    """Weights (task,) with mean 1, in the order of the tasks; None where none were given.

    Parameters
    ----------
    task_weight : mapping or Series by names of tasks, or array_like (task,), optional
    names : sequence of str
        Of the tasks.

    Raises
    ------
    ValueError
        A task is missing or none of these, another number of weights, one that is not positive and finite.
    TypeError
        No numbers, or nothing that holds one for each task.

    Examples
    --------
    >>> read_task_weight({"b": 3, "a": 1}, ["a", "b"]).tolist()
    [0.5, 1.5]
    """
    if task_weight is None:
        return None
    if isinstance(task_weight, Mapping):
        task_weight = _by_name([*task_weight], [*task_weight.values()], names)
    elif isinstance(task_weight, pd.Series):
        task_weight = _by_name([*task_weight.index], [*task_weight], names)
    weight = _numbers(task_weight, names)
    if weight.shape != (len(names),):
        raise ValueError(
            f"task_weight: got shape {weight.shape}, wanted ({len(names)},), one number per task; give them "
            f"in the order of the tasks ({_listed(names)}), or a mapping by their names"
        )
    bad = ~(np.isfinite(weight) & (weight > 0))
    if bad.any():
        t = int(bad.argmax())
        raise ValueError(
            f"task_weight: got {weight[t]:g} for task {names[t]!r}, wanted positive finite numbers; leave "
            "out the rows of a task that is not to count"
        )
    relative = weight / weight.max()
    if relative.min() < _LEAST:
        t = int(relative.argmin())
        raise ValueError(
            f"task_weight: got {weight[t]:g} for task {names[t]!r} beside {weight.max():g}, wanted at least "
            f"{_LEAST:g} of the largest; leave out the rows of a task that is not to count"
        )
    return relative / relative.mean()


def _by_name(keys: list[Any], values: list[Any], names: Sequence[str]) -> list[Any]:
    """Values in the order of the tasks."""
    given: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        if str(key) in given:
            raise ValueError(f"task_weight: got {str(key)!r} twice, wanted every task once; drop one of them")
        given[str(key)] = value
    known = set(names)
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise ValueError(
            f"task_weight: got {unknown!r}, which names no task, wanted names of the tasks "
            f"({_listed(names)}); rename it, or give an array in this order"
        )
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(
            f"task_weight: got none for {len(missing)} of {len(names)} tasks ({_listed(missing)}), wanted "
            "one for each; give 1 for a task that counts as usual"
        )
    return [given[name] for name in names]


def _numbers(values: object, names: Sequence[str]) -> np.ndarray:
    try:
        array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
        text = array.dtype.kind == "O" and any(isinstance(cell, str | bytes) for cell in array.flat)
        if array.ndim and array.dtype.kind in "biufO" and not text:
            return array.astype(float)
    except (TypeError, ValueError):  # cells that are no numbers, rows of several lengths
        pass
    raise TypeError(
        f"task_weight: got {values!r:.80}, wanted one number for each of {len(names)} tasks; give a mapping "
        f"by names of tasks ({_listed(names)}), or an array in this order"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
