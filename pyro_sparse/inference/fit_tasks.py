"""The order of events for tasks: a representation, its axes, sparse training, weights; a `MultiTaskFit`.

`pyro_sparse.fit` comes here with a `MultiTaskRegression`. Every restart learns a representation of its own
with ridge regressions inside, is turned to the axes in which the tasks' weights are sparsest, and is trained
on with sparse regressions inside. That restarts end with the same latents is the evidence that neither is an
accident.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from .._version import __version__
from ..priors import SpikeSlabLasso
from ..tasks import TaskBatch, Tasks
from . import checkpoint as files
from .bilevel import INNER, samples
from .inner import moments
from .interrupt import Stopped, stopped_between_steps
from .restarts import child_seeds
from .task_axes import TaskAxes, independent_blocks, task_axes
from .task_result import MultiTaskFit
from .task_run import TaskRun, raw_latents, ridge_rows, settle
from .task_schedule import TaskSchedule

__all__ = ["fit_tasks"]

_LEAST_STEPS = 50  # of a representation that is worth looking at


def fit_tasks(
    model: Any,
    tasks: Tasks,
    *,
    inner: str | None = None,
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
    inner : {"lasso", "ridge", "outer", "ssl"}, optional
        What is inside the training that follows the axes, by default "ssl". "ridge" ends before the axes: its
        latents are known up to a linear map only.
    restarts, seed, schedule, holdout, progress, checkpoint, checkpoint_every, device, dtype
        As in `pyro_sparse.fit`.

    Returns
    -------
    MultiTaskFit

    Raises
    ------
    ValueError, TypeError
        The tasks do not fit the model, or leave too little to learn from; the prior is not one that `inner`
        knows.
    """
    inner = inner or "ssl"
    schedule = (schedule or TaskSchedule()).for_encoder(model.kind)
    assert schedule.steps is not None
    _check(model, tasks, inner)
    data = tasks.batch(device, dtype)
    train, heldout = _split(data, holdout, seed)
    if inner != "ridge" and schedule.axes and len(train) < model.n_latents:
        raise ValueError(
            f"n_latents: {len(train)} tasks to learn from cannot fix {model.n_latents} axes; want at least "
            "as many tasks as latents"
        )
    seeds = child_seeds(seed, restarts)
    plan = [(schedule, inner)]
    if schedule.axes and inner != "ridge":
        plan = [(schedule, "ridge"), (schedule.of_sparse(), inner)]
    settings = {
        "seed": seed,
        "holdout": holdout,
        "inner": inner,
        "dtype": str(dtype).removeprefix("torch."),
        **schedule.as_dict(),
    }
    print_ = files.fingerprint(
        model,
        {
            **settings,
            "restarts": restarts,
            "data": files.digest(tasks.x, tasks.y, tasks.mask) if checkpoint is not None else "",
            "made": files.made(model),
            "version": __version__,
        },
    )
    finished, under_way = files.read_run(checkpoint, print_)
    saved = [*finished, *([] if under_way is None else [under_way])]
    parts: list[Any] = []
    found: list[float] = []
    blocks: list[list[int]] = []
    history: list[dict[str, Any]] = []
    notes: list[str] = []
    bar = tqdm(total=restarts * sum(s.steps or 0 for s, _ in plan), disable=not progress, unit="step")
    for number in range(restarts):
        part = copy.deepcopy(model)
        torch.manual_seed(seeds[number])
        part.setup(len(tasks))
        part.to(device=device, dtype=dtype)
        one = _Restart(part, number, plan, train, heldout, saved[number] if number < len(saved) else None)
        bar.update(one.stage * schedule.steps)

        def report(run: Any, one: _Restart = one) -> None:
            _show(bar, run)
            if checkpoint is not None and run.step % checkpoint_every == 0:
                files.write_run(checkpoint, print_, finished, one.state)

        try:
            one.finish(data, report)
        except KeyboardInterrupt as reason:
            if checkpoint is not None and isinstance(reason, Stopped):
                files.write_run(checkpoint, print_, finished, one.state)
            if one.early and not parts:
                raise
            notes.append(
                f"interrupted at step {one.run.step} of {one.run.schedule.steps} of restart {number}"
            )
            if one.early:
                break
            one.find_axes()
        else:
            if checkpoint is not None and number >= len(finished):
                finished.append(copy.deepcopy(one.state))
                files.write_run(checkpoint, print_, finished, None)
        settle(part, data, inner, schedule.ridge)
        parts.append(part)
        found.append(one.found)
        blocks.append(one.block)
        history += one.rows
        if notes:
            break
    bar.close()
    names = {"elbo": "objective", "heldout_elbo": "heldout"}
    table = pd.DataFrame(history, columns=["step", "restart", *names, "edges", "stage"]).rename(columns=names)
    return MultiTaskFit.build(
        parts,
        tasks,
        judged=train if heldout is None else heldout,
        found=np.array(found),
        blocks=np.array(blocks),
        inner=inner,
        history=table,
        settings={
            "model": type(model).__name__,
            "n_latents": model.n_latents,
            "restarts": len(parts),
            "heldout": heldout is not None,
            "tasks": len(tasks),
            "device": device,
            **settings,
        },
        notes=notes,
    )


class _Restart:
    """One restart under way: the stage it is in, and what the stages before it left.

    `find_axes` stands between the dense stage and the sparse one; a plan of one stage has none.
    """

    def __init__(
        self,
        model: Any,
        number: int,
        plan: list[tuple[TaskSchedule, str]],
        train: TaskBatch,
        heldout: TaskBatch | None,
        saved: dict[str, Any] | None = None,
    ):
        self.model, self.number, self.plan, self.train, self.heldout = model, number, plan, train, heldout
        self.saved = saved
        start = saved or {"stage": 0, "found": np.nan, "block": list(range(model.n_latents)), "before": []}
        self.stage, self.found, self.before = start["stage"], start["found"], start["before"]
        self.block: list[int] = start["block"]
        self.run = self._run()

    def _run(self) -> TaskRun:
        schedule, inner = self.plan[self.stage]
        return TaskRun(self.model, self.train, self.heldout, schedule, inner, self.number)

    def finish(self, data: TaskBatch, report: Callable[[Any], None]) -> None:
        """Go through the stages that are left."""
        if self.saved is not None:
            self.run.load(self.saved["run"])
        while True:
            with stopped_between_steps(report) as between:
                self.run.finish(between)
            if self.stage + 1 == len(self.plan):
                return
            self.find_axes()
            settle(self.model, data, self.plan[-1][1], self.run.schedule.ridge)
            self.before, self.stage = self.rows, self.stage + 1
            self.run = self._run()

    def find_axes(self) -> None:
        """Turn the latents to the sparse axes, if the plan has them and they are not found yet."""
        if len(self.plan) > 1 and np.isnan(self.found):
            answer = fold(self.model, self.train, self.run.schedule.ridge, seed=self.number)
            self.found, self.block = answer.agreement / answer.n_starts, answer.block.tolist()

    @property
    def early(self) -> bool:
        """Whether there is no representation yet that is worth looking at."""
        return self.stage == 0 and self.run.step < _LEAST_STEPS

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its history."""
        name = {"stage": "sparse"} if self.stage else {}
        return [*self.before, *({**row, **name} for row in self.run.history)]

    @property
    def state(self) -> dict[str, Any]:
        """What a resumed restart needs."""
        return {
            "stage": self.stage,
            "found": self.found,
            "block": self.block,
            "before": self.before,
            "run": self.run.state(),
        }


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
    model.eval()
    raw = raw_latents(model, data).double()
    rows, white = ridge_rows(raw, data, ridge)
    found = task_axes(rows.cpu().numpy(), seed=seed)
    turn = torch.as_tensor(found.map).to(white) @ white
    centred = moments(raw @ turn.mT, data.y.unsqueeze(-1).double(), data.mask).features[samples(data)]
    turn = torch.as_tensor(independent_blocks(centred.cpu().numpy(), found.block, seed)).to(turn) @ turn
    # unit variance, so that a step of the optimiser means the same for every latent
    turn = turn / (raw[samples(data)] @ turn.mT).std(0).unsqueeze(1)
    model.turn.copy_((turn @ model.turn.double()).to(model.turn))
    return found


def _check(model: Any, tasks: Tasks, inner: str) -> None:
    if inner not in INNER:
        raise ValueError(f"inner: want one of {', '.join(INNER)}, got {inner!r}")
    if inner != "ridge" and not isinstance(model.prior, SpikeSlabLasso):
        raise TypeError(
            f"prior: a {type(model.prior).__name__} has no exact mode here; want a SpikeSlabLasso, or "
            "inner='ridge'"
        )
    if tasks.shape != model.shape:
        raise ValueError(
            f"X: one sample has shape {tasks.shape}, the model was made for n_features={model.n_features}; "
            "make the model for these tasks"
        )


def _split(data: TaskBatch, holdout: float, seed: int) -> tuple[TaskBatch, TaskBatch | None]:
    n = len(data)
    aside = int(holdout * n + 1e-9)  # of nine tasks none is spared for a tenth
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
        heldout = run.history[-1]["heldout_elbo"]
        bar.set_postfix_str("" if np.isnan(heldout) else f"left-out error {-heldout:.3f}", refresh=False)
