r"""The run of a decoder: AdamW, the exact proximal map of W, and what happens to its edges between the steps.

After each step the weights are shrunk by a lasso (while the axes are sought) or by the prior's proximal map
with Adam's own preconditioned step; then come the prior's closed-form EM, the late arrivals of
`directions.py` and the deletions of `deletions.py`. The prior's ladder is climbed before the step. On an
accelerator most steps are graphs (`captured_steps.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...data.read import Batch
from ...priors.em import soft_threshold
from ..training.adamw import AdamW
from ..training.loop import ProximalOptimiser
from .captured_steps import CapturedSteps
from .decoder_run import DecoderRun
from .deletions import prune
from .directions import admit, release
from .latent_penalty import LatentPenalty
from .schedule import Schedule
from .screening import cell_information, pull
from .sparse_elbo import SparseElbo, can_be_captured, has_closed_form, total

__all__ = ["SparseRun"]

DECAYED = ("decoder.trunk.weight", "decoder.head")
_LEARNING = ("lasso", "sparse")  # stages in which the prior's hyper-parameters follow the weights
NEAR = 5.0  # step sizes: a loading nearer to zero may be on its way there


class SparseRun(DecoderRun):
    """A `Run` of a `FactorModel`, sparse or not.

    Parameters
    ----------
    model : FactorModel
        Set up and started.
    train, heldout : Batch
        Rows to learn from, and held-out rows (None: none).
    schedule : Schedule
    first_restart : int
        Number of the group's first restart, for the history.
    dependency : LatentPenalty, optional
        What is added to the negative ELBO of a row; no reported ELBO contains it.
    """

    def __init__(
        self,
        model: Any,
        train: Batch,
        heldout: Batch | None,
        schedule: Schedule,
        first_restart: int = 0,
        dependency: LatentPenalty | None = None,
    ):
        prior = getattr(model, "prior", None)
        self.encoder_parameters = list(model.encoder.parameters())
        shrunk = None if prior is None else prior.prox(model.weights.detach().clone(), 1 / train.total)
        self.proximal = shrunk is not None
        self.closed_form = SparseElbo(model) if has_closed_form(model) else None
        super().__init__(model, train, heldout, schedule, first_restart, dependency)
        in_units = model.likelihood.standardise or model.likelihood.noise_sd() is not None
        self.information = None if in_units or not self._linear else cell_information(model, self.train)
        self.captured = CapturedSteps(self) if self._capturable() else None

    # ---- one step ------------------------------------------------------------------------------------------
    def _before_step(self, batch: Batch) -> None:
        prior = getattr(self.model, "prior", None)
        if prior is not None:
            with torch.no_grad():
                prior.anneal(self.schedule.ladder(self.step))

    def _replayed(self, batch: Batch, rate: float) -> Tensor | None:
        if self.captured is None:
            return None
        with self._naming_the_step():
            elbo = self.captured(batch, rate)
        return None if elbo is None else elbo / self.train.total

    def _capturable(self) -> bool:
        """Whether steps may be graphs: on an accelerator, with nothing in them that is the caller's own."""
        model = self.model
        barred = self.closed_form is None or self.dependency is not None or model.total_correlation
        if barred or model.weights.device.type != "cuda" or not can_be_captured(model):
            return False
        n_rows = min(self.schedule.batch_size, self.train.total)
        return not model.in_chunks(model.weights.new_empty(()).expand(model.n_restarts, n_rows, 1))

    def kind(self) -> tuple[Any, ...] | None:
        """What decides of which operations the next step is made; None if it is not one to record."""
        schedule, step, stage, skip = self.schedule, self.step, self._stage(), self._skipped()
        apart = step == 0 or schedule.admits(step) or schedule.releases(step) or schedule.prunes(step)
        if apart or self.ranks.size > 1 or not skip:
            return None
        due = stage in _LEARNING and step % schedule.em_every == 0
        past = step >= schedule.relax_lasso_from * schedule.steps, step / schedule.steps > 0.1
        return stage, due, past, bool(self._held())

    def captured_step(self, batch: Batch, rate: Tensor) -> dict[str, Tensor]:
        """A step without a look at its numbers, which are to stay on the accelerator.

        Parameters
        ----------
        batch : Batch
        rate : Tensor ()
            Step size; the optimiser's own is this tensor, too.

        Returns
        -------
        dict of Tensor (restart,)
            The terms of the ELBO.
        """
        assert self.closed_form is not None
        with self._rounding():
            terms, gradients = self.closed_form.terms(batch, self._skipped(), -1 / self.train.total)
        self._hand_out(gradients)
        for parameter in self._held():
            parameter.grad = None
        self.optimiser.step()
        self._after_step(batch, rate)
        return terms

    @contextmanager
    def _rounding(self) -> Iterator[None]:
        """Gradients of a rounded run are rounded, not what is judged between steps."""
        if not self.rounded:
            yield
            return
        self.model.rounded = True
        try:
            yield
        finally:
            self.model.rounded = False

    def _hand_out(self, gradients: list[Tensor]) -> None:
        assert self.closed_form is not None
        for parameter, gradient in zip(self.closed_form.parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.requires_grad else None

    def _learn(self, batch: Batch) -> Tensor:
        """As the base class; where nothing but the ELBO counts, without a trace (the first step checks).

        Ranks that share the rows draw for each other's, which sites know how to do.
        """
        bound, skip = self.closed_form, self._skipped()
        more = self._dependency_weight() or self.model.total_correlation or self.ranks.size > 1
        alone = self.step > 0 and not more
        with self._rounding():
            if bound is None or not alone or not bound.covers(batch, skip):
                return super()._learn(batch)
            terms, gradients = bound.terms(batch, skip, -1 / self.train.total)
        self._hand_out(gradients)
        return total(terms)

    optimiser: ProximalOptimiser

    def _optimiser(self) -> ProximalOptimiser:
        named = dict(self.model.named_parameters())
        heavy = [named.pop(name) for name in DECAYED if name in named]
        groups = [{"params": list(named.values()), "weight_decay": 0.0}]
        if heavy:
            groups.append({"params": heavy, "weight_decay": self.schedule.weight_decay})
        return AdamW(groups, lr=self.schedule.learning_rate, betas=self.schedule.betas)

    def _held(self) -> list[torch.nn.Parameter]:
        holding = (
            self.model.data_start and self.step < self.schedule.encoder_frozen_until * self.schedule.steps
        )
        return self.encoder_parameters if holding else []

    def _n_edges(self) -> list[int]:
        weights = getattr(self.model, "weights", None)
        return super()._n_edges() if weights is None else (weights != 0).sum((1, 2)).tolist()

    def _skipped(self) -> tuple[str, ...]:
        """Sites whose density the gradient leaves out: W where it has a proximal map, or before its turn."""
        prior = getattr(self.model, "prior", None)
        if prior is None:
            return ()
        left_out = self.proximal or self._stage() in ("start", "dense", "lasso")
        return (prior.site, prior.hyper_site) if left_out else ()

    def _extra_loss(self) -> Tensor | float:
        """A prior's own parameters learn from W when others' buffers do, wherever W's site is left out."""
        loss = super()._extra_loss()
        prior = getattr(self.model, "prior", None)
        if prior is None or not self._skipped() or self._stage() not in _LEARNING:
            return loss
        if not any(p.requires_grad for p in prior.parameters()):
            return loss
        density = prior.log_density(self.model.weights.detach()) + prior.log_hyper()
        return loss - density.sum() / self.train.total

    def _stage(self) -> str:
        return self.schedule.stage(self.step)

    @torch.no_grad()
    def _after_step(self, batch: Batch, rate: float | Tensor) -> None:
        model, schedule, step = self.model, self.schedule, self.step
        prior = getattr(model, "prior", None)
        if prior is None:
            model.after_step(batch, step / schedule.steps)
            return
        stage, weights = self._stage(), model.weights
        lasso = schedule.screening(self._linear) * prior.screening_rate() / self.train.total
        if stage == "lasso" and lasso > 0:
            strength = pull(self.information, self.unit) if self._linear else 1.0  # an MLP has heads for that
            shrink = self._preconditioner(rate) * lasso * strength
            if self._linear and step >= schedule.relax_lasso_from * schedule.steps:
                shrink = torch.where(weights.abs() > NEAR * rate, 0.0, shrink)
            weights.copy_(torch.where(model.must, weights, soft_threshold(weights, shrink)))
        elif stage == "sparse" and self.proximal:
            shrunk = prior.prox(weights, self._preconditioner(rate) / self.train.total)
            weights.copy_(torch.where(model.must, weights, shrunk))
        if stage in _LEARNING and step % schedule.em_every == 0:
            prior.update(weights)
        model.after_step(batch, step / schedule.steps)
        if schedule.admits(step):
            admit(model, self.train)
        if schedule.releases(step):
            release(model)
        if schedule.prunes(step):
            prune(model, self.train, ranks=self.ranks)

    @property
    def _linear(self) -> bool:
        return getattr(self.model, "decoder_kind", None) == "linear"

    def _record(self) -> None:
        super()._record()
        if hasattr(self.model, "closed_form"):
            counts = self.model.closed_form(min(self.schedule.batch_size, self.train.total))
            for row, count in zip(self.history[-len(counts) :], counts, strict=True):
                row["closed_form"] = count

    def _preconditioner(self, rate: float | Tensor) -> Tensor:
        """The optimiser's step for each weight, so that gradient and proximal map move in the same metric."""
        return self.optimiser.preconditioner(self.model.weights, rate)
