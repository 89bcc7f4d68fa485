"""Means over tasks, to which each may contribute by a weight (`ps.fit(..., task_weight=)`)."""

from __future__ import annotations

from torch import Tensor

__all__ = ["mean_error", "weighted_mean"]


def weighted_mean(of_tasks: Tensor, task_weight: Tensor | None) -> Tensor:
    """Mean over tasks of what each has (task,), times its weight.

    It is not divided by the weights of these tasks: they have mean 1 over all, so that the mean over random
    minibatches is that over all tasks.

    Parameters
    ----------
    of_tasks : Tensor (task,)
    task_weight : Tensor (task,) or None
    """
    return of_tasks.mean() if task_weight is None else (task_weight.to(of_tasks) * of_tasks).mean()


def mean_error(error: Tensor, task_weight: Tensor | None) -> float:
    """Weighted mean of the tasks' errors, without those that are NaN; NaN if all are.

    Parameters
    ----------
    error : Tensor (task,)
    task_weight : Tensor (task,) or None
    """
    if task_weight is None:
        return float(error.nanmean())
    known = ~error.isnan()
    weight = task_weight[known].to(error)
    return float((weight * error[known]).sum() / weight.sum())
