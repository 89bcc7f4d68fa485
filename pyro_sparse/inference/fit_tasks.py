"""The order of events for tasks: a representation, its axes, sparse training, weights; a `MultiTaskFit`.

`pyro_sparse.fit` comes here with a `MultiTaskRegression`. Every restart learns a representation of its own
with ridge regressions inside, is turned to the axes in which the tasks' weights are sparsest, and is trained
on with sparse regressions inside. That restarts end with the same latents is the evidence that neither is an
accident.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from .._version import __version__
from ..tasks import TaskBatch, Tasks
from . import checkpoint as files
from .bilevel import INNER
from .interrupt import Stopped, stopped_between_steps
from .restarts import child_seeds
from .task_axes import TaskAxes, independent_blocks, task_axes
from .task_result import MultiTaskFit
from .task_run import TaskRun, in_chunks, raw_latents, ridge_rows, settle
from .task_schedule import TaskSchedule

__all__ = ["fit_tasks"]

_LEAST_STEPS = 50  # of a representation that is worth looking at


def fit_tasks(
    model: Any,
    tasks: Tasks,
    *,
    inner: str = "ssl",
    restarts: int = 2,
    seed: int = 0,
    schedule: TaskSchedule | None = None,
    holdout: float = 0.1,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 250,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> MultiTaskFit:
    """Fit a `MultiTaskRegression` to checked tasks; `pyro_sparse.fit` describes the arguments.

    Parameters
    ----------
    model : MultiTaskRegression
    tasks : Tasks
    inner : {"lasso", "ridge", "outer", "ssl"}
        What is inside the training that follows the axes. "ridge" ends before the axes: its latents are known
        up to a linear map only.
    restarts, seed, schedule, holdout, progress, checkpoint, checkpoint_every, device, dtype
        As in `pyro_sparse.fit`.

    Returns
    -------
    MultiTaskFit

    Raises
    ------
    ValueError
        The tasks do not fit the model, or leave too little to learn from.
    """
    schedule = schedule or TaskSchedule()
    if inner not in INNER:
        raise ValueError(f"inner: want one of {list(INNER)}, got {inner!r}")
    if tasks.shape != model.shape:
        raise ValueError(
            f"X: one sample has shape {tasks.shape}, the model was made for n_features={model.n_features}; "
            "make "
            "the model for these tasks"
        )
    data = tasks.batch(device, dtype)
    train, heldout = _split(data, holdout, seed)
    if inner != "ridge" and schedule.axes and len(train) < model.n_latents:
        raise ValueError(
            f"n_latents: {len(train)} tasks to learn from cannot fix {model.n_latents} axes; want at least "
            "as many "
            "tasks as latents"
        )
    seeds = child_seeds(seed, restarts)
    print_ = files.fingerprint(
        model,
        {
            "seed": seed,
            "restarts": restarts,
            "holdout": holdout,
            "inner": inner,
            "dtype": str(dtype),
            "data": files.digest(tasks.x, tasks.y, tasks.mask),
            "made": files.made(model),
            "version": __version__,
            **schedule.as_dict(),
        },
    )
    finished, under_way = files.read_run(checkpoint, print_)
    n_resumed = len(finished)
    first = inner if not schedule.axes else "ridge"
    parts: list[Any] = []
    answers: list[TaskAxes | None] = []
    history: list[dict[str, Any]] = []
    notes: list[str] = []
    further = (schedule.sparse_steps or 0) if schedule.axes and inner != "ridge" else 0
    bar = tqdm(total=restarts * (schedule.steps + further), disable=not progress, unit="step")
    for number in range(restarts):
        part = copy.deepcopy(model)
        torch.manual_seed(seeds[number])
        part.setup(len(tasks))
        part.to(device=device, dtype=dtype)
        run = TaskRun(part, train, heldout, schedule, first, first_restart=number)
        resumed = finished[number] if number < n_resumed else under_way if number == n_resumed else None
        if resumed is not None:
            run.load(resumed)
        bar.update(run.step)

        def report(run: Any) -> None:
            _show(bar, run)
            if checkpoint is not None and run.step % checkpoint_every == 0 and not run.done:
                files.write_run(checkpoint, print_, finished, run.state())

        try:
            with stopped_between_steps(report) as between:
                run.finish(between)
        except KeyboardInterrupt as reason:
            if checkpoint is not None and isinstance(reason, Stopped):
                files.write_run(checkpoint, print_, finished, run.state())
            if run.step < _LEAST_STEPS and not parts:
                raise
            notes.append(f"interrupted at step {run.step} of {schedule.steps} of restart {number}")
            if run.step < _LEAST_STEPS:
                break
        else:
            if checkpoint is not None and number >= n_resumed:
                finished.append(copy.deepcopy(run.state()))
                files.write_run(checkpoint, print_, finished, None)
        history += run.history
        answer = None
        if first == "ridge" and inner != "ridge":
            answer = fold(part, train, schedule.ridge, seed=number)
        try:
            if further and not notes:
                settle(part, data, inner, schedule.ridge)
                sparse = TaskRun(part, train, heldout, schedule.of_sparse(), inner, first_restart=number)
                sparse.finish(lambda run: _show(bar, run))
                history += [{**row, "stage": "sparse"} for row in sparse.history]
        except KeyboardInterrupt:
            notes.append(f"interrupted after the dense fit of restart {number}")
        settle(part, data, inner, schedule.ridge)
        parts.append(part.eval())
        answers.append(answer)
        if notes:
            break
    bar.close()
    judged = train if heldout is None else heldout
    return MultiTaskFit.build(
        parts,
        tasks,
        judged=judged,
        answers=answers,
        inner=inner,
        history=pd.DataFrame(
            history, columns=["step", "restart", "elbo", "heldout_elbo", "edges", "stage"]
        ).rename(columns={"elbo": "objective", "heldout_elbo": "heldout"}),
        settings={
            "model": type(model).__name__,
            "n_latents": model.n_latents,
            "inner": inner,
            "restarts": len(parts),
            "seed": seed,
            "holdout": holdout,
            "heldout": heldout is not None,
            "tasks": len(tasks),
            "device": device,
            "dtype": str(dtype).removeprefix("torch."),
            **schedule.as_dict(),
        },
        notes=notes,
    )


@torch.no_grad()
def fold(model: Any, data: TaskBatch, ridge: float, seed: int = 0) -> TaskAxes:
    """Turn a model's latents to the sparse axes of its tasks' weights.

    Parameters
    ----------
    model : MultiTaskRegression
        Trained with ridge regressions inside; its `turn` is changed.
    data : TaskBatch
    ridge : float
    seed : int
        Of the search.

    Returns
    -------
    TaskAxes
    """
    rows, white = ridge_rows(model, data, ridge)
    found = task_axes(rows.cpu().numpy(), seed=seed)
    model.turn.copy_(torch.as_tensor(found.map).to(model.turn) @ white.to(model.turn) @ model.turn)
    seen = torch.ones_like(data.y, dtype=torch.bool) if data.mask is None else data.mask
    centred = in_chunks(model.latents, data)[seen]
    within = independent_blocks(centred.double().cpu().numpy(), found.block, seed)
    model.turn.copy_(torch.as_tensor(within).to(model.turn) @ model.turn)
    # unit variance, so that a step of the optimiser means the same for every latent
    model.turn.div_(raw_latents(model, data)[seen].std(0).unsqueeze(1))
    return found


def _split(data: TaskBatch, holdout: float, seed: int) -> tuple[TaskBatch, TaskBatch | None]:
    n = len(data)
    aside = int(round(holdout * n))
    order = np.random.default_rng(seed).permutation(n)
    if not aside:
        return data, None
    if n - aside < 2:
        raise ValueError(f"holdout: {holdout!r} of {n} tasks leaves {n - aside} to learn from; lower it")

    def part(index: np.ndarray) -> TaskBatch:
        return replace(data.rows(torch.as_tensor(np.sort(index), device=data.y.device)), total=len(index))

    return part(order[aside:]), part(order[:aside])


def _show(bar: tqdm, run: Any) -> None:
    bar.update(1)
    if run.history and run.step % run.schedule.evaluate_every == 0:
        row = run.history[-1]
        bar.set_postfix_str(f"left-out error {-row['heldout_elbo']:.3f}", refresh=False)
