r"""The one training loop: minibatch steps on the ELBO of all restarts at once, with work between the steps.

A step is one differentiable ELBO (`elbo.py`) and one update of the optimiser. What comes between the steps,
and which optimiser it is, the subclass says: `table/sparse_run.py` for decoders with a sparse prior,
`transition/transition_run.py` for latent transitions, `multitask/task_run.py` for tasks. The state of a run
is a `Run`; a run stopped anywhere and resumed gives the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import numpy as np
import pyro
import torch
from torch import Tensor

from ..._utils.torch_state import load_random_state, no_subnormals, random_state, undisturbed
from .elbo import elbo_by_restart, rowwise_elbo
from .ranks import ALONE, Ranks

if TYPE_CHECKING:
    from ...models.base import FactorModel
    from ...models.latent_transition import LatentTransition
    from ._families import Minibatch, Trainable

__all__ = ["Optimiser", "Plan", "ProximalOptimiser", "Run", "possible_stops", "stopped_at"]

_BETTER = 1e-3  # nats per row by which a held-out ELBO must improve to count


class Plan(Protocol):
    """What the loop asks of a schedule; a number that one may leave open has been decided by then."""

    @property
    def steps(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def evaluate_every(self) -> int: ...
    @property
    def patience(self) -> int | None: ...
    @property
    def settled(self) -> int: ...
    def rate(self, step: int, /) -> float: ...
    def kl_weight(self, step: int, /) -> float: ...
    def stage(self, step: int, /) -> str: ...


class Optimiser(Protocol):
    """What the loop asks of an optimiser, torch's or of this folder."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...
    def step(self) -> object: ...
    def zero_grad(self, set_to_none: bool = ...) -> object: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> object: ...


class ProximalOptimiser(Optimiser, Protocol):
    """One whose metric a proximal map can share."""

    def preconditioner(self, parameter: Tensor, rate: float | Tensor) -> Tensor: ...


ModelT = TypeVar("ModelT", bound="Trainable")
BatchT = TypeVar("BatchT", bound="Minibatch")
PlanT = TypeVar("PlanT", bound=Plan)


def _with_level(best: float, stale: int, level: float, settled: bool) -> tuple[float, int]:
    """The best held-out ELBO so far, and for how many entries none was better, after one more entry.

    Parameters
    ----------
    best, stale : float, int
        Before it.
    level : float
        Held-out ELBO of the best restart, in nats per row.
    settled : bool
        Whether entries without a gain count: while the objective still changes they do not.
    """
    if level > best + _BETTER:
        return level, 0
    return best, stale + settled


class Run(Generic[ModelT, BatchT, PlanT]):
    """One group of restarts under way: model, optimiser, order of rows, history.

    Parameters
    ----------
    model : Module
        Set up and started.
    train, heldout : Batch or SequenceBatch
        Rows to learn from, and held-out rows (None: none).
    schedule : Schedule or TransitionSchedule
    first_restart : int
        Number of the group's first restart, for the history.
    """

    ranks: Ranks = ALONE  # who shares the rows of each minibatch
    heldout: BatchT  # or None: then nothing asks what held-out rows say

    def __init__(
        self, model: ModelT, train: BatchT, heldout: BatchT | None, schedule: PlanT, first_restart: int = 0
    ):
        self.model, self.train, self.schedule = model, train, schedule
        self.heldout = cast("BatchT", heldout)
        self.first_restart = first_restart
        self.step = 0
        self.order, self.position = self._shuffled(), 0
        self.history: list[dict[str, Any]] = []
        self.smooth: Tensor | None = None
        self.best_heldout = -np.inf
        self.stale = 0
        self.optimiser = self._optimiser()

    # ---- what a subclass says ------------------------------------------------------------------------------
    def _optimiser(self) -> Optimiser:
        raise NotImplementedError

    def _shuffled(self) -> Tensor:
        """Order of the rows in the next epoch."""
        return torch.randperm(self.train.total)

    def _bound(self, batch: BatchT) -> Tensor:
        """What is maximised, (restart,), differentiable and scaled to all rows: the ELBO."""
        model = self.model
        return elbo_by_restart(model.model, model.guide, batch, model.n_restarts, skip=self._skipped())

    def _judged(self) -> np.ndarray:
        """What the held-out rows say, (restart,); larger is better."""
        model = cast("FactorModel | LatentTransition", self.model)  # runs of tasks judge otherwise
        rows = rowwise_elbo(model, self.heldout, num_draws=4, ranks=self.ranks)
        return rows.mean(-1).cpu().numpy()

    def _skipped(self) -> tuple[str, ...]:
        """Sites whose density the gradient leaves out."""
        return ()

    def _held(self) -> list[torch.nn.Parameter]:
        """Parameters that stay where they are in this step."""
        return []

    def _before_step(self, batch: BatchT) -> None:
        """Work before a step."""

    def _replayed(self, batch: BatchT, rate: float) -> Tensor | None:
        """The ELBO of a row (restart,) where the whole step was done another way, as a graph; else None."""
        return None

    def _after_step(self, batch: BatchT, rate: float) -> None:
        """Work after a step."""

    def _n_edges(self) -> list[int]:
        """Edges of each restart, for the history."""
        return [0] * self.model.n_restarts

    def _extra_loss(self) -> Tensor | float:
        """What is added to the negative ELBO per row."""
        return 0.0

    # ---- one step ------------------------------------------------------------------------------------------
    def advance(self) -> None:
        """One minibatch step and the work after it.

        Raises
        ------
        FloatingPointError
            A site's log-density is not finite: the message names step, site and restart.
        """
        model, schedule, step = self.model, self.schedule, self.step
        batch = self._next_batch()
        rate = schedule.rate(step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        model.kl_weight = schedule.kl_weight(step)
        self._before_step(batch)
        with pyro.validation_enabled(step == 0):
            elbo = self._replayed(batch, rate)
            if elbo is None:
                with self._naming_the_step(), self.ranks.sites(batch):
                    elbo = self._learn(batch) / self.train.total
                self._move(elbo, batch, rate)
        self.smooth = elbo if self.smooth is None else self.smooth.lerp(elbo, 0.05)
        self.step += 1
        if self.step % schedule.evaluate_every == 0 or self.step == schedule.steps:
            self._record()

    def _move(self, elbo: Tensor, batch: BatchT, rate: float) -> None:
        """Move the parameters along their gradients, and do the work after it."""
        model = self.model
        for parameter in self._held():
            parameter.grad = None
        gradients = (p.grad for p in model.parameters() if p.grad is not None)
        self.ranks.mean(chain([elbo], gradients), batch)
        with no_subnormals():
            self.optimiser.step()
        self._after_step(batch, rate)

    @contextmanager
    def _naming_the_step(self) -> Iterator[None]:
        """A complaint about numbers in a step also says which it is and what helps."""
        try:
            yield
        except FloatingPointError as error:
            raise FloatingPointError(
                f"step {self.step}: {error}; lower learning_rate, or look for extreme values in the data"
            ) from error

    def _learn(self, batch: BatchT) -> Tensor:
        """Leave the gradients of the loss of a row in the parameters; returns the ELBO (restart,)."""
        elbo = self._bound(batch)
        self.optimiser.zero_grad(set_to_none=True)
        (self._extra_loss() - elbo.sum() / self.train.total).backward()
        return elbo.detach()

    def _next_batch(self) -> BatchT:
        size = min(self.schedule.batch_size, self.train.total)
        if self.position + size > self.train.total:
            self.order, self.position = self._shuffled(), 0
        index = self.order[self.position : self.position + size]
        self.position += size
        return self.ranks.rows(self.train, index.to(self.train.x.device))

    # ---- record --------------------------------------------------------------------------------------------
    def _record(self) -> None:
        model = self.model
        self.ranks.level(model)
        heldout = np.full(model.n_restarts, np.nan)
        if self.heldout is not None:
            with undisturbed(seed=0, threads=None):
                heldout = self._judged()
            best = float(np.where(np.isnan(heldout), -np.inf, heldout).max())
            settled = self.step > self.schedule.settled
            self.best_heldout, self.stale = _with_level(self.best_heldout, self.stale, best, settled)
        assert self.smooth is not None
        rows = zip(self.smooth.tolist(), heldout, self._n_edges(), strict=True)
        for r, (elbo, heldout_elbo, n_edges) in enumerate(rows):
            self.history.append(
                {
                    "step": self.step,
                    "restart": self.first_restart + r,
                    "elbo": elbo,
                    "heldout_elbo": float(heldout_elbo),
                    "edges": int(n_edges),
                    "stage": self.schedule.stage(self.step - 1),
                }
            )

    @property
    def done(self) -> bool:
        """All steps taken, or nothing improves any more."""
        patience = self.schedule.patience
        return self.step >= self.schedule.steps or (patience is not None and self.stale >= patience)

    def finish(self, report: Callable[[Run], None] | None = None) -> None:
        """Advance to the end, calling `report` after every step."""
        while not self.done:
            self.advance()
            if report is not None:
                report(self)

    def ended(self) -> dict[str, Tensor]:
        """The model's state if the run were to stop here."""
        return copy.deepcopy(self.model.state_dict())

    # ---- state ---------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs, as tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "order": self.order,
            "position": self.position,
            "step": self.step,
            "smooth": self.smooth,
            "best_heldout": float(self.best_heldout),
            "stale": self.stale,
            "history": self.history,
            "random": random_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.order, self.position, self.step = state["order"], state["position"], state["step"]
        smooth = state["smooth"]  # from a file, and so on the processor
        self.smooth = None if smooth is None else smooth.to(self.train.x.device)
        self.history = list(state["history"])
        self.best_heldout, self.stale = state["best_heldout"], state["stale"]
        load_random_state(state["random"])


def possible_stops(schedule: Plan) -> list[int]:
    """Steps before the last at which a run may stop because nothing improves any more.

    Parameters
    ----------
    schedule : Schedule or DependencySchedule
    """
    if schedule.patience is None:
        return []
    interval = schedule.evaluate_every
    first = (schedule.settled // interval + max(schedule.patience, 1)) * interval
    return list(range(first, schedule.steps, interval))


def stopped_at(history: list[dict[str, Any]], schedule: Plan) -> int:
    """The step at which a run of all these restarts together would have stopped.

    Parameters
    ----------
    history : list of dict
        Of its restarts, each to the end.
    schedule : Schedule or DependencySchedule
    """
    best, stale = -np.inf, 0
    for step in sorted({row["step"] for row in history}):
        heldout = [row["heldout_elbo"] for row in history if row["step"] == step]
        top = max((value for value in heldout if not np.isnan(value)), default=-np.inf)
        best, stale = _with_level(best, stale, top, step > schedule.settled)
        if schedule.patience is not None and stale >= schedule.patience and step < schedule.steps:
            return step
    return int(schedule.steps)
