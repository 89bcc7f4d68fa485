"""The order of events for tasks: a representation, its axes, sparse training, weights; a `MultiTaskFit`.

`pyro_sparse.fit` comes here with a `MultiTaskRegression`. Every restart learns a representation of its own
with ridge regressions inside, is turned to the axes in which the tasks' weights are sparsest, and is trained
on with sparse regressions inside. That restarts end with the same latents is the evidence that neither is an
accident.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import pandas as pd
import torch

from ..._utils.torch_state import first_rows
from ..._utils.version import __version__
from ...data.tasks import TaskBatch, Tasks
from ...findings.finding import Finding
from ..training import checkpoint as files
from ..training.interrupt import stopped_between_steps
from ..training.loop import Run
from ..training.parts import renumbered, split
from ..training.ranks import ALONE
from ..training.restarts import child_seeds
from .bilevel import INNER, samples
from .inner import moments
from .task_axes import TaskAxes, independent_blocks, task_axes
from .task_result import MultiTaskFit
from .task_run import TaskRun, raw_latents, ridge_rows, settle
from .task_schedule import TaskSchedule

if TYPE_CHECKING:
    from ...models.multitask import MultiTaskRegression

__all__ = ["TaskGroup", "TaskJob", "fold"]

_LEAST_STEPS = 50  # of a representation that is worth looking at
_BRIEF: _Search = {"n_starts": 8, "steps": 50}  # a search that Ctrl-C cut short
_BRIEF_TASKS = 50  # that tell restarts apart for somebody who waits no longer


class _Search(TypedDict, total=False):
    """Settings of `task_axes` that cut a search short."""

    n_starts: int
    steps: int


class TaskJob:
    """The fit of tasks: what all its restarts share, what trains one, the `MultiTaskFit` of those trained.

    Parameters
    ----------
    model : MultiTaskRegression
    tasks : Tasks
    inner : {"lasso", "ridge", "outer", "ssl"}
        What is inside the training that follows the axes, by default "ssl". "ridge" ends before the axes: its
        latents are known up to a linear map only.
    restarts, seed, schedule, holdout, device, dtype
        As in `pyro_sparse.fit`.

    Attributes
    ----------
    n_restarts : int
    fingerprint : str
        What must agree for a file with restarts to belong to this fit.

    Raises
    ------
    ValueError, TypeError
        The tasks do not fit the model, or leave too little to learn from; the prior is not one that `inner`
        knows.
    """

    def __init__(
        self,
        model: MultiTaskRegression,
        tasks: Tasks,
        *,
        inner: str | None = None,
        restarts: int = 2,
        seed: int = 0,
        schedule: TaskSchedule | None = None,
        holdout: float = 0.1,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        self.inner = inner or "ssl"
        self.schedule = (schedule or TaskSchedule()).for_encoder(model.kind)
        _check(model, tasks, self.inner)
        self.model, self.tasks, self.n_restarts = model, tasks, restarts
        self.device, self.dtype = device, dtype
        self.data = tasks.batch(device, dtype)
        self.train, self.heldout = _split(self.data, holdout, seed)
        if self.inner != "ridge" and self.schedule.axes:
            _check_axes(self.train, model.n_latents)
        self.seeds = child_seeds(seed, restarts)
        self.plan = [(self.schedule, self.inner)]
        if self.schedule.axes and self.inner != "ridge":
            self.plan = [(self.schedule, "ridge"), (self.schedule.of_sparse(), self.inner)]
        self.ranks = ALONE
        self.n_steps = restarts * sum(schedule.steps or 0 for schedule, _ in self.plan)
        self.record = {
            "seed": seed,
            "holdout": holdout,
            "inner": self.inner,
            "dtype": str(dtype).removeprefix("torch."),
            **self.schedule.as_dict(),
        }
        if tasks.weight is not None:
            self.record["task_weight"] = dict(zip(tasks.task_names, tasks.weight.tolist(), strict=True))

    @cached_property
    def fingerprint(self) -> str:
        """What must agree for a file to belong to this fit; images of all tasks take a while to read."""
        return files.fingerprint(
            self.model,
            {
                **self.record,
                "restarts": self.n_restarts,
                "data": files.digest(self.tasks.x, self.tasks.y, self.tasks.mask),
                "made": files.made(self.model),
                "version": __version__,
            },
        )

    def pieces(self, n_jobs: int) -> list[range]:
        """Restarts to train in each of so many processes."""
        return split([range(self.n_restarts)], n_jobs)

    def groups(self) -> list[range]:
        """Restarts are trained one by one."""
        return [range(number, number + 1) for number in range(self.n_restarts)]

    def make(self, group: range) -> TaskGroup:
        """A restart at its start."""
        return TaskGroup(self.fresh(group.start), group.start, self)

    def status(self, run: Run) -> str:
        """What the bar says of a run."""
        heldout = run.history[-1]["heldout_elbo"]
        return "" if np.isnan(heldout) else f"left-out error {-heldout:.3f}"

    def conclude(self, trained: list[TaskGroup], notes: list[str]) -> MultiTaskFit:
        """The fit of trained restarts."""
        return self.result(
            [group.model for group in trained],
            [group.share_of_starts for group in trained],
            [group.block for group in trained],
            [row for group in trained for row in group.rows],
            notes,
        )

    def fresh(self, number: int) -> MultiTaskRegression:
        """A restart's model with its first parameters."""
        model = copy.deepcopy(self.model)
        torch.manual_seed(self.seeds[number])
        model.setup(n_tasks=len(self.tasks))
        return model.to(device=self.device, dtype=self.dtype)

    def part(self, restarts: range) -> dict[str, Any]:
        """Train restarts, one after the other; each has its own random numbers."""
        trained: dict[str, list[Any]] = {"states": [], "found": [], "blocks": [], "history": []}
        for number in restarts:
            group = TaskGroup(self.fresh(number), number, self)
            group.finish(lambda run: None)
            settle(group.model, self.data, self.inner, self.schedule.ridge)
            trained["states"].append(group.model.state_dict())
            trained["found"].append(float(group.share_of_starts))
            trained["blocks"].append([int(k) for k in group.block])
            trained["history"] += group.rows
        return {"restarts": list(restarts), **trained}

    def merge(self, trained_parts: list[dict[str, Any]], notes: list[str]) -> MultiTaskFit:
        """The fit of restarts that were trained in parts, in the order of their numbers."""
        numbers = [r for trained in trained_parts for r in trained["restarts"]]
        models = []
        for number, state in zip(
            numbers, (s for trained in trained_parts for s in trained["states"]), strict=True
        ):
            models.append(self.fresh(number).eval())
            models[-1].load_state_dict(state)
        shares, blocks = (
            [of_restart for trained in trained_parts for of_restart in trained[name]]
            for name in ("found", "blocks")
        )
        history = renumbered([row for trained in trained_parts for row in trained["history"]], numbers)
        return self.result(models, shares, blocks, history, notes)

    def result(
        self,
        models: list[MultiTaskRegression],
        shares: list[float],
        blocks: list[list[int]],
        history: list[dict[str, Any]],
        notes: list[str],
    ) -> MultiTaskFit:
        """The `MultiTaskFit` of trained restarts; Ctrl-C lets few tasks judge them.

        Parameters
        ----------
        models : list of MultiTaskRegression
        shares : list of float
            Share of the search's starts that ended at the same axes.
        blocks : list of list of int
            Which latents the tasks tell apart.
        history : list of dict
        notes : list of str
            Warnings so far.
        """
        names = {"elbo": "objective", "heldout_elbo": "heldout"}
        table = pd.DataFrame(history, columns=["step", "restart", *names, "edges", "stage"])
        settings = {
            "model": type(self.model).__name__,
            "n_latents": self.model.n_latents,
            "restarts": len(models),
            "heldout": self.heldout is not None,
            "tasks": len(self.tasks),
            "device": self.device,
            **self.record,
        }

        def judged_by(judged: TaskBatch, notes: list[str]) -> MultiTaskFit:
            return MultiTaskFit.build(
                models,
                self.tasks,
                judged=judged,
                found=np.array(shares),
                blocks=np.array(blocks),
                inner=self.inner,
                history=table.rename(columns=names),
                settings=settings,
                findings=[Finding("training", note) for note in notes],
            )

        judged = self.train if self.heldout is None else self.heldout
        try:
            return judged_by(judged, notes)
        except KeyboardInterrupt:
            pass
        note = (
            f"interrupted when the trained restarts were judged: {_BRIEF_TASKS} tasks at most told them apart"
        )
        return judged_by(first_rows(judged, _BRIEF_TASKS), [*notes, note])


class TaskGroup:
    """One restart under way: the stage it is in, and what the stages before it left.

    `find_axes` stands between the dense stage and the sparse one; a plan of one stage has none.
    """

    def __init__(self, model: MultiTaskRegression, number: int, job: TaskJob):
        self.model, self.number, self.job, self.plan = model, number, job, job.plan
        self.stage, self.share_of_starts = 0, float("nan")
        self.before: list[dict[str, Any]] = []
        self.block = list(range(model.n_latents))
        self.run = self._run()

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state, in its stage."""
        self.stage, self.share_of_starts, self.before = saved["stage"], saved["found"], saved["before"]
        self.block = saved["block"]
        self.run = self._run()
        self.run.load(saved["run"])

    def _run(self) -> TaskRun:
        schedule, inner = self.plan[self.stage]
        return TaskRun(self.model, self.job.train, self.job.heldout, schedule, inner, self.number)

    def finish(self, show: Callable[[Run], None]) -> None:
        """Go through the stages that are left."""
        while True:
            with stopped_between_steps(show) as between:
                self.run.finish(between)
            if self.stage + 1 == len(self.plan):
                return
            self.find_axes()
            settle(self.model, self.job.data, self.plan[-1][1], self.run.schedule.ridge, noise=False)
            self.before, self.stage = self.rows, self.stage + 1
            self.run = self._run()

    def find_axes(self, **search: Unpack[_Search]) -> None:
        """Turn the latents to the sparse axes, if the plan has them and they are not found yet."""
        if len(self.plan) > 1 and np.isnan(self.share_of_starts):
            answer = fold(self.model, self.job.train, self.run.schedule.ridge, self.number, **search)
            self.share_of_starts, self.block = answer.agreement / answer.n_starts, answer.block.tolist()

    def conclude(self, notes: list[str], alone: bool, show: Callable[[Run], None]) -> bool:
        """Find the axes, if there are none yet, and settle the latents in them.

        For a restart `alone` Ctrl-C makes the search a brief one; the next stops that, too.
        """

        def settled(**search: Unpack[_Search]) -> None:
            self.find_axes(**search)
            settle(self.model, self.job.data, self.job.inner, self.job.schedule.ridge)

        if not (notes and self.searching):
            try:
                settled()
                return True
            except KeyboardInterrupt:
                notes.append(f"interrupted {self.place}")
        if alone:
            settled(**_BRIEF)
        return alone

    @property
    def step(self) -> int:
        """Steps of the stages that have ended."""
        return self.stage * (self.job.schedule.steps or 0)

    @property
    def is_early(self) -> bool:
        """Whether there is no representation yet that is worth looking at."""
        return self.stage == 0 and self.run.step < _LEAST_STEPS

    @property
    def searching(self) -> bool:
        """Whether the dense stage has ended and the axes are not found yet."""
        return len(self.plan) > 1 and self.run.done and bool(np.isnan(self.share_of_starts))

    @property
    def place(self) -> str:
        """Where it is."""
        step = f"at step {self.run.step} of {self.run.schedule.steps}"
        return f"{'in the search for the axes' if self.searching else step} of restart {self.number}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its history."""
        name = {"stage": "sparse"} if self.stage else {}
        return [*self.before, *({**row, **name} for row in self.run.history)]

    def state(self) -> dict[str, Any]:
        """What a resumed restart needs."""
        return {
            "stage": self.stage,
            "found": self.share_of_starts,
            "block": self.block,
            "before": self.before,
            "run": self.run.state(),
        }


@torch.no_grad()
def fold(
    model: MultiTaskRegression, data: TaskBatch, ridge: float, seed: int = 0, **search: Unpack[_Search]
) -> TaskAxes:
    """Turn a model's latents to the sparse axes of its tasks' weights.

    Parameters
    ----------
    model : MultiTaskRegression
        Trained with ridge regressions inside; its `turn` is changed.
    data : TaskBatch
    ridge : float
    seed : int
        Of the search.
    **search
        As for `task_axes`.

    Returns
    -------
    TaskAxes
    """
    model.eval()
    raw = raw_latents(model, data).double()
    rows, white = ridge_rows(model, raw, data, ridge)
    weight = None if data.weight is None else data.weight.double().cpu().numpy()
    axes = task_axes(rows.cpu().numpy(), task_weight=weight, seed=seed, **search)
    turn = torch.as_tensor(axes.map).to(white) @ white
    centred = moments(raw @ turn.mT, data.y.unsqueeze(-1).double(), data.mask).features[samples(data)]
    turn = torch.as_tensor(independent_blocks(centred.cpu().numpy(), axes.block, seed)).to(turn) @ turn
    # unit variance, so that a step of the optimiser means the same for every latent
    turn = turn / (raw[samples(data)] @ turn.mT).std(0).unsqueeze(1)
    model.turn.copy_((turn @ model.turn.double()).to(model.turn))
    return axes


def _check(model: MultiTaskRegression, tasks: Tasks, inner: str) -> None:
    if inner not in INNER:
        raise ValueError(f"inner: want one of {', '.join(INNER)}, got {inner!r}")
    if model.likelihood is not None and inner not in ("ridge", "ssl"):
        raise ValueError(
            f"inner: {inner!r} is for normal outcomes, and these are {model.likelihood.name}; want 'ssl' or "
            "'ridge'"
        )
    if inner != "ridge" and model.prior.rates() is None:
        raise TypeError(
            f"prior: a {type(model.prior).__name__} has no exact mode here; want a SpikeSlabLasso, or "
            "inner='ridge'"
        )
    if tasks.shape != model.shape:
        raise ValueError(
            f"X: one sample has shape {tasks.shape}, the model was made for n_features={model.n_features}; "
            "make the model for these tasks"
        )


def _check_axes(train: TaskBatch, n_latents: int) -> None:
    """Complain of too few tasks that say anything; where all rows have one outcome there are no weights."""
    seen = torch.ones_like(train.y, dtype=torch.bool) if train.mask is None else train.mask
    spread = train.y.masked_fill(~seen, -torch.inf).amax(1) - train.y.masked_fill(~seen, torch.inf).amin(1)
    n_varying = int((spread > 0).sum())
    if n_varying < n_latents:
        tasks = f"{n_varying} task{'' if n_varying == 1 else 's'} to learn from"
        if n_varying < len(train):
            same = len(train) - n_varying
            tasks += f" ({same} more {'has' if same == 1 else 'have'} the same outcome in all rows)"
        raise ValueError(
            f"n_latents: {tasks} cannot fix {n_latents} axes; want at least as many tasks as latents"
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
        rows = replace(data.rows(torch.as_tensor(np.sort(index), device=data.y.device)), total=len(index))
        return rows if rows.weight is None else replace(rows, weight=rows.weight / rows.weight.mean())

    return part(order[aside:]), part(order[:aside])
