r"""The one training loop: minibatch steps on the ELBO of all restarts at once, with work between the steps.

A step is one differentiable ELBO (`elbo.py`), one Adam update and, where the prior has one, the exact
proximal map of W with Adam's own preconditioned step. Between steps come the model's updates, the prior's
closed-form EM and ladder, the late arrivals of `directions.py` and the deletions of `support.py`. The state
of a run is a `Run`; a run stopped anywhere and resumed gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import torch
from torch import Tensor

from .._torch import load_random_state, random_state, undisturbed
from ..data import Batch
from ..priors import Prior
from ..priors.em import soft_threshold
from .directions import admit, release
from .elbo import elbo_by_restart, rowwise_elbo
from .schedule import Schedule
from .support import prune

__all__ = ["Run"]

DECAYED = ("decoder.trunk.weight", "decoder.head")


class Run:
    """One group of restarts under way: model, optimiser, order of rows, history.

    Parameters
    ----------
    model : FactorModel
        Set up and started.
    train, heldout : Batch
        Rows to learn from, and rows kept aside (None: none).
    schedule : Schedule
    first_restart : int
        Number of the group's first restart, for the history.
    """

    def __init__(
        self, model: Any, train: Batch, heldout: Batch | None, schedule: Schedule, first_restart: int = 0
    ):
        self.model, self.train, self.heldout, self.schedule = model, train, heldout, schedule
        self.first_restart = first_restart
        self.step = 0
        self.order, self.position = torch.randperm(train.total), 0
        self.history: list[dict[str, Any]] = []
        self.smooth: Tensor | None = None
        self.best_heldout = -np.inf
        self.stale = 0
        self.encoder_parameters = list(model.encoder.parameters())
        prior = getattr(model, "prior", None)
        self.proximal = prior is not None and type(prior).prox is not Prior.prox
        self.optimiser = self._optimiser()

    def _optimiser(self) -> torch.optim.Optimizer:
        named = dict(self.model.named_parameters())
        weights = named.pop("weights", None)
        heavy = [named.pop(name) for name in DECAYED if name in named]
        groups = [{"params": list(named.values()), "weight_decay": 0.0}]
        if heavy:
            groups.append({"params": heavy, "weight_decay": self.schedule.weight_decay})
        if weights is not None:
            groups.append({"params": [weights], "weight_decay": 0.0})
        return torch.optim.AdamW(groups, lr=self.schedule.learning_rate, fused=True)

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
        with pyro.validation_enabled(step == 0):
            try:
                elbo = elbo_by_restart(
                    model.model, model.guide, batch, model.n_restarts, skip=self._skipped()
                )
            except FloatingPointError as error:
                raise FloatingPointError(
                    f"step {step}: {error}; lower learning_rate, or look for extreme values in the data"
                ) from error
        self.optimiser.zero_grad(set_to_none=True)
        (-elbo.sum() / self.train.total).backward()
        if step < schedule.hold_encoder * schedule.steps:
            for parameter in self.encoder_parameters:
                parameter.grad = None
        self.optimiser.step()
        self._after_step(batch, rate)
        found = elbo.detach() / self.train.total
        self.smooth = found if self.smooth is None else 0.95 * self.smooth + 0.05 * found
        self.step += 1
        if self.step % schedule.evaluate_every == 0 or self.step == schedule.steps:
            self._record()

    def _next_batch(self) -> Batch:
        size = min(self.schedule.batch_size, self.train.total)
        if self.position + size > self.train.total:
            self.order, self.position = torch.randperm(self.train.total), 0
        index = self.order[self.position : self.position + size]
        self.position += size
        return self.train.rows(index.to(self.train.x.device))

    def _skipped(self) -> tuple[str, ...]:
        """Sites whose density the gradient leaves out: W where it has a proximal map, or before its turn."""
        prior = getattr(self.model, "prior", None)
        if prior is None:
            return ()
        return (prior.site,) if self.proximal or self._stage() in ("start", "dense", "screen") else ()

    def _stage(self) -> str:
        return self.schedule.stage(self.step)

    @torch.no_grad()
    def _after_step(self, batch: Batch, rate: float) -> None:
        model, schedule, step = self.model, self.schedule, self.step
        if getattr(model, "prior", None) is not None:
            stage = self._stage()
            model.prior.anneal(self.schedule.ladder(step))
            lasso = schedule.screen * model.prior.screening_rate() / self.train.total
            if stage == "screen" and lasso > 0:
                shrink = self._preconditioner(rate) * lasso
                model.weights.copy_(
                    torch.where(model.must, model.weights, soft_threshold(model.weights, shrink))
                )
            elif stage == "sparse" and self.proximal:
                shrunk = model.prior.prox(model.weights, self._preconditioner(rate) / self.train.total)
                model.weights.copy_(torch.where(model.must, model.weights, shrunk))
            if stage in ("screen", "sparse") and step % schedule.em_every == 0:
                model.prior.update(model.weights)
        model.after_step(batch, step / schedule.steps)
        if getattr(model, "prior", None) is not None:
            if schedule.admits(step):
                admit(model, self.train)
            if schedule.releases(step):
                release(model)
            if schedule.prunes(step):
                prune(model, self.train)

    def _preconditioner(self, rate: float) -> Tensor:
        """Adam's step for each weight, so that gradient and proximal map move in the same metric."""
        state = self.optimiser.state[self.model.weights]
        return rate / ((state["exp_avg_sq"] / (1 - 0.999 ** state["step"])).sqrt() + 1e-8)

    # ---- record --------------------------------------------------------------------------------------------
    def _record(self) -> None:
        model = self.model
        heldout = np.full(model.n_restarts, np.nan)
        if self.heldout is not None:
            with undisturbed(seed=0, threads=None):
                heldout = rowwise_elbo(model, self.heldout, n_draws=4).mean(-1).cpu().numpy()
            if np.nanmax(heldout) > self.best_heldout + 1e-3:
                self.best_heldout, self.stale = float(np.nanmax(heldout)), 0
            elif self.step > self.schedule.settled:
                self.stale += 1
        weights = getattr(model, "weights", None)
        edges = (weights != 0).sum((1, 2)).tolist() if weights is not None else [0] * model.n_restarts
        assert self.smooth is not None
        for r, (elbo, held, n_edges) in enumerate(zip(self.smooth.tolist(), heldout, edges, strict=True)):
            self.history.append(
                {
                    "step": self.step,
                    "restart": self.first_restart + r,
                    "elbo": elbo,
                    "heldout_elbo": float(held),
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
        self.smooth, self.history = state["smooth"], list(state["history"])
        self.best_heldout, self.stale = state["best_heldout"], state["stale"]
        load_random_state(state["random"])
