"""The runs of a latent transition: which parts of the two programs are trained, and by what.

`TransitionRun` trains the dense program; `EdgeRun` the edges and their networks, in frozen latents. Between
them the latents may be polished (`transition_polish.py`): `PolishRun` trains frames and networks with the
gates fixed, and `RefitRun` then fits the dense transition to the new latents.

Networks that overfit a few sequences lose the held-out ones by hundreds of nats. So a run remembers
its best state on those, and ends with it where the last one is worse by more than a standard error; among
many sequences the last is the best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._utils.optimisers import eager
from ..._utils.torch_state import undisturbed
from ...data.sequences import SequenceBatch
from ...models.latent_transition import LatentTransition
from ..training.elbo import rowwise_elbo
from ..training.loop import Run
from ..training.soap import SOAP
from .constraint import BernoulliKL, SparsityControl
from .transition_elbo import has_closed_form, transition_elbo
from .transition_schedule import TransitionSchedule

__all__ = ["EdgeRun", "PolishRun", "RefitRun", "TransitionRun"]

UNDONE = "undone"  # stage of the history's entries whose state was given up for an earlier one
_MANY = 1000  # held-out sequences whose mean needs one draw of each only


class TransitionRun(Run):
    """A `Run` of the dense program of a `LatentTransition`.

    Parameters
    ----------
    model : LatentTransition
        Set up.
    train, heldout : SequenceBatch
        Sequences to learn from, and held-out sequences (None: none).
    schedule : TransitionSchedule
    first_restart : int
        Number of the group's first restart, for the history.
    """

    model: LatentTransition
    train: SequenceBatch
    trains: tuple[str, ...] = ("frames", "dense")

    def __init__(
        self,
        model: LatentTransition,
        train: SequenceBatch,
        heldout: SequenceBatch | None,
        schedule: TransitionSchedule,
        first_restart: int = 0,
    ):
        self.trained = [p for name in self.trains for p in model.part(name)]
        self.of_frames = tuple(model.likelihood.priors())  # sites of the likelihood's own quantities
        trained_ids = {id(p) for p in self.trained}
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in trained_ids)
        schedule = schedule.decided(model.lags, train.total)
        super().__init__(model, train, heldout, schedule, first_restart)
        self.kept: dict[str, Any] | None = None  # the best state of each restart, and the last one's rows

    def _bound(self, batch: SequenceBatch) -> Tensor:
        if not has_closed_form(self.model):
            return super()._bound(batch)
        return transition_elbo(self.model, batch, self._skipped())

    def _judged(self) -> np.ndarray:
        rows = rowwise_elbo(self.model, self.heldout, 4 if len(self.heldout) < _MANY else 1)
        self._keep(rows)
        return rows.mean(-1).cpu().numpy()

    def _optimiser(self) -> torch.optim.Optimizer:
        return SOAP(self.trained, lr=self.schedule.learning_rate)

    # ---- the best state ------------------------------------------------------------------------------------
    @property
    def keeps(self) -> bool:
        """Whether earlier states can be compared with the last."""
        return self.heldout is not None

    @torch.no_grad()
    def _keep(self, rows: Tensor) -> None:
        """Remember the state at hand where it is the best so far; `rows` (restart, row) judge it."""
        if not self.keeps:
            return
        if self.kept is None:
            copies = [p.detach().clone() for p in self.trained]
            self.kept = {"step": [self.step] * len(rows), "rows": rows.clone(), "parts": copies}
        self.kept["last"] = rows
        now, before = rows.mean(-1), self.kept["rows"].mean(-1)
        for r in ((now > before) | before.isnan()).nonzero()[:, 0].tolist():
            self.kept["step"][r] = self.step
            self.kept["rows"][r] = rows[r]
            for best, parameter in zip(self.kept["parts"], self.trained, strict=True):
                best[r] = parameter[r]

    @torch.no_grad()
    def settle(self) -> None:
        """Go back to the best state of each restart whose last one is worse by more than a standard error."""
        if self.kept is None:
            return
        kept, self.kept = self.kept, None
        lost = kept["rows"] - kept["last"]
        for r in (lost.mean(-1) > lost.std(-1) / lost.shape[-1] ** 0.5).nonzero()[:, 0].tolist():
            for best, parameter in zip(kept["parts"], self.trained, strict=True):
                parameter[r] = best[r]
            for row in self.history:
                if row["restart"] == self.first_restart + r and row["step"] > kept["step"][r]:
                    row["stage"] = UNDONE

    def finish(self, report: Callable[[Run], None] | None = None) -> None:
        """Advance to the end, calling `report` after every step, and `settle`."""
        if self.step == 0 and self.keeps:
            with undisturbed(seed=0, threads=None):
                self._judged()
        super().finish(report)
        self.settle()

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs, as tensors and plain values."""
        return {**super().state(), "kept": self.kept}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        super().load(state)
        kept, place = state.get("kept"), self.train.x.device  # from a file, and so on the processor
        if kept is not None:
            tensors = {name: kept[name].to(place) for name in ("rows", "last")}
            copies = [tensor.to(place) for tensor in kept["parts"]]
            kept = {**tensors, "parts": copies, "step": list(kept["step"])}
        self.kept = kept


class PolishRun(TransitionRun):
    """A `Run` of the gated program with frames and networks trained; the caller fixes the gates."""

    trains = ("frames", "gated")


class RefitRun(TransitionRun):
    """A `Run` of the dense program with its transition alone trained."""

    trains = ("dense",)

    def _skipped(self) -> tuple[str, ...]:
        return ("x", *self.of_frames)


class EdgeRun(TransitionRun):
    """A `Run` of the gated program: the edges and their networks, in latents that no longer change.

    Parameters
    ----------
    model : LatentTransition
        Folded to its axes.
    train, heldout : SequenceBatch
        As for `TransitionRun`.
    schedule : TransitionSchedule
        Its `of_edges`.
    control : SparsityControl, optional
        How many edges there may be, beside what the Bernoulli prior says.
    first_restart : int
        Number of the group's first restart, for the history.
    """

    # The latents stay: a prototype that trained them under a penalty took right ones from MCC .994 to .912.
    trains = ("gated", "edges")

    def __init__(
        self,
        model: LatentTransition,
        train: SequenceBatch,
        heldout: SequenceBatch | None,
        schedule: TransitionSchedule,
        control: SparsityControl | None = None,
        first_restart: int = 0,
    ):
        self.control = control
        if control is not None:
            possible, required = int(model.allowed.sum()), int(model.must.sum())
            control.setup(possible, required, model.n_restarts, train.total)
        super().__init__(model, train, heldout, schedule, first_restart)

    @property
    def keeps(self) -> bool:
        """Only where all gates are fixed: free ones have a temperature and a control that move on."""
        return super().keeps and not bool((self.model.allowed & ~self.model.must).any())

    def _optimiser(self) -> torch.optim.Optimizer:
        return eager(torch.optim.Adam)(self.trained, lr=self.schedule.learning_rate, fused=True)

    def _skipped(self) -> tuple[str, ...]:
        counted = ("G",) if isinstance(self.control, BernoulliKL) else ()  # by the control instead
        return ("x", *self.of_frames, *counted)

    def _extra_loss(self) -> Tensor | float:
        if self.control is None:
            return 0.0
        return self.control.loss(self.model.edge_probability).sum() / self.train.total

    def _after_step(self, batch: SequenceBatch, rate: float) -> None:
        progress = self.step / self.schedule.steps
        self.model.temperature = self.schedule.temperature(self.step)
        self.model.after_step(batch, progress)
        if self.control is not None:
            self.control.after_step(self.model.edge_probability.detach(), progress)

    def _n_edges(self) -> list[int]:
        return (self.model.edge_probability > 0.5).sum((1, 2)).tolist()
