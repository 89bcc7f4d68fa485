"""The run of a multi-task model: AdamW on the encoder, the tasks' regressions solved anew in every step.

`TaskRun` maximises minus the bilevel loss (`bilevel.py`), or with inner="ssl" the ELBO of the Pyro program,
whose weights follow the latents by exact coordinate descent and whose eta follows the weights by its M-step.
`settle` ends a fit: units of the latents, then weights, noise and eta of all tasks at their mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...data.tasks import TaskBatch
from ..training.adamw import AdamW
from ..training.loop import Run
from .bilevel import left_out_error, mode_step, outer_loss, samples
from .inner import moments, ridge_weights
from .inner.moments import Moments
from .outcomes import (
    centred,
    dense_weights,
    likelihood_step,
    outcome_loss,
    outcome_mode_step,
)
from .task_means import mean_error
from .task_schedule import TaskSchedule

if TYPE_CHECKING:
    from ...models.multitask import MultiTaskRegression

__all__ = ["TaskRun", "in_chunks", "raw_latents", "ridge_rows", "settle", "solve_tasks"]

_SAMPLES = 2048  # encoded at once outside of the steps
_LIKELIHOOD_ROUNDS = 3  # of weights, and the likelihood's own parameters, before the ladder
_STILL, _ON_THE_WAY = 1e-5, 1e-3  # moves of a weight at which a mode is reached: at the end, on the ladder


class TaskRun(Run):
    """A `Run` of a `MultiTaskRegression`.

    Parameters
    ----------
    model : MultiTaskRegression
        Set up.
    train, heldout : TaskBatch
        Tasks to learn from, and held-out tasks (None: none).
    schedule : TaskSchedule
    inner : {"lasso", "ridge", "outer", "ssl"}
    first_restart : int
        Number of the restart, for the history.
    """

    model: MultiTaskRegression
    train: TaskBatch

    def __init__(
        self,
        model: MultiTaskRegression,
        train: TaskBatch,
        heldout: TaskBatch | None,
        schedule: TaskSchedule,
        inner: str,
        first_restart: int = 0,
    ):
        self.inner = inner
        model.train()
        super().__init__(model, train, heldout, schedule, first_restart)

    def _optimiser(self) -> AdamW:
        # Behind a linear layer the turn has nothing to add, but it carries the axes.
        groups = [
            {"params": list(self.model.encoder.parameters()), "weight_decay": self.schedule.weight_decay},
            {"params": [self.model.turn], "weight_decay": 0.0},
        ]
        if self.model.likelihood is not None and any(True for _ in self.model.likelihood.parameters()):
            groups.append({"params": list(self.model.likelihood.parameters()), "weight_decay": 0.0})
        return AdamW(groups, lr=self.schedule.learning_rate)

    def _skipped(self) -> tuple[str, ...]:
        beside = "variance" if self.model.likelihood is None else "intercept"
        return (self.model.prior.site, beside)  # at their modes: no gradient passes through them

    def _bound(self, batch: TaskBatch) -> Tensor:
        if self.inner == "ssl":
            return super()._bound(batch)
        settings, f = self.schedule, self.model.latents(batch)
        if self.model.likelihood is not None:
            loss = outcome_loss(self.model, batch, f, settings.ridge)
        else:
            loss = outer_loss(
                f,
                batch.y,
                batch.mask,
                inner=self.inner,
                penalty=settings.penalty,
                ridge=settings.ridge,
                task_weight=batch.weight,
            )
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError("the outer loss is not finite")
        return -loss.unsqueeze(0) * self.train.total

    def _next_batch(self) -> TaskBatch:
        batch: TaskBatch = super()._next_batch()
        if self.inner == "ssl":
            with torch.no_grad():
                f = self.model.latents(batch)
                if self.model.likelihood is None:
                    mode_step(self.model, batch, moments(f, batch.y.unsqueeze(-1), batch.mask))
                else:
                    outcome_mode_step(self.model, batch, f)
        return batch

    def _after_step(self, batch: TaskBatch, rate: float) -> None:
        if self.inner == "ssl" and self.step % 10 == 0:
            self.model.prior.update(self.model.weights)

    def _judged(self) -> np.ndarray:
        self.model.encoder.eval()
        settings = self.schedule
        error = in_chunks(
            lambda batch: left_out_error(self.model, batch, self.inner, settings.penalty, settings.ridge),
            self.heldout,
        )
        self.model.encoder.train()
        return -np.array([mean_error(error, self.heldout.weight)])

    def _n_edges(self) -> list[int]:
        odds = self.model.prior.edge_log_odds(self.model.weights)
        return [int((self.model.weights != 0 if odds is None else odds > 0).sum())]


def in_chunks(function: Callable[[TaskBatch], Tensor], batch: TaskBatch) -> Tensor:
    """`function` of a few tasks at a time, joined: images of all tasks need not fit in memory at once.

    Parameters
    ----------
    function : callable
        Of a TaskBatch, to a tensor with a row per task.
    batch : TaskBatch
    """
    places = torch.arange(len(batch), device=batch.y.device)
    size = max(1, _SAMPLES // batch.y.shape[1])
    return torch.cat([function(batch.rows(chunk)) for chunk in places.split(size)])


@torch.no_grad()
def raw_latents(model: MultiTaskRegression, data: TaskBatch) -> Tensor:
    """Raw latents of every sample, (task, sample, latent)."""
    return in_chunks(lambda batch: model.encode(batch.inputs), data)


@torch.no_grad()
def ridge_rows(
    model: MultiTaskRegression, raw: Tensor, data: TaskBatch, ridge: float
) -> tuple[Tensor, Tensor]:
    """Ridge weights of every task in white latents, and the map that whitens.

    Parameters
    ----------
    model : MultiTaskRegression
        Whose likelihood the outcomes have.
    raw : Tensor (task, sample, latent)
        Raw latents of `data`.
    data : TaskBatch
    ridge : float

    Returns
    -------
    weights : Tensor (task, latent)
    white : Tensor (latent, latent)
        ``white @ raw`` has unit covariance within tasks.
    """
    raw = raw.double()
    scatter = moments(raw, data.y.unsqueeze(-1).double(), data.mask)
    values, vectors = torch.linalg.eigh(scatter.gram.mean(0))
    # A direction that the encoder does not use has no variance to divide by.
    white = (vectors / values.clamp(min=1e-8 * values[-1]).sqrt()).mT
    if model.likelihood is not None:
        return dense_weights(model, data, centred(raw @ white.mT, samples(data)), ridge).weight, white
    turned = moments(raw @ white.mT, data.y.unsqueeze(-1).double(), data.mask)
    return ridge_weights(turned, ridge)[..., 0], white


@torch.no_grad()
def solve_tasks(
    model: MultiTaskRegression,
    data: TaskBatch,
    inner: str,
    ridge: float,
    raw: Tensor | None = None,
    learn: bool = True,
    noise: bool = True,
    levels: int = 10,
    rounds: int = 60,
) -> None:
    """Bring weights, intercepts and noise of all tasks to their mode, given units and encoder.

    Parameters
    ----------
    model : MultiTaskRegression
        Its buffers are changed.
    data : TaskBatch
        All its tasks.
    inner : str
        "ridge" keeps ridge weights; all else ends at the spike-and-slab lasso's mode.
    ridge : float
    raw : Tensor (task, sample, latent), optional
        Raw latents of `data`, where they are known.
    learn : bool
        Whether eta follows the weights, and the noise's prior the residuals.
    noise : bool
        Whether the noise ends at its mode under that prior; without, as it was while the weights' mode was
        sought, where the next stage of training begins.
    levels, rounds : int
        Steps of the prior's ladder, and most EM rounds on each.
    """
    model.eval()
    data = data.whole()
    raw = raw_latents(model, data) if raw is None else raw
    f = ((raw - model.centre) / model.spread).double()
    if model.likelihood is not None:
        _solve_outcomes(model, data, f, inner, ridge, learn, levels, rounds)
        return
    scatter = moments(f, data.y.unsqueeze(-1), data.mask)
    weight = ridge_weights(scatter, ridge)
    n = samples(data).sum(1).to(f)
    dense_square = _squares(scatter, weight, n)
    model.weights[0] = weight[..., 0]
    model.variance.copy_(model.noise_mode(dense_square, n, model.mode_noise_prior()))
    for level in range(0 if inner == "ridge" else levels):
        model.prior.anneal((level + 1) / levels)
        still = _STILL if level == levels - 1 else _ON_THE_WAY
        for _ in range(rounds):
            before = model.weights.clone()
            mode_step(model, data, scatter)
            if learn:
                model.prior.update(model.weights)
            if float((model.weights - before).abs().max()) < still:
                break
    weight = model.weights[0].unsqueeze(-1)
    model.intercept.copy_(scatter.intercept(weight)[:, 0])
    if noise:
        if learn and model.learns_noise:
            model.learn_noise(dense_square, n - 1 - model.n_latents, data.spread)
        square = _squares(scatter, weight.to(f), n)
        model.variance.copy_(model.noise_mode(square, n, model.noise_prior(data.spread)))


def _squares(scatter: Moments, weight: Tensor, n: Tensor) -> Tensor:
    """Sums of squared residuals (task,) of weights (task, latent, 1)."""
    return n * (scatter.share * (scatter.targets - scatter.features @ weight) ** 2).sum((1, 2))


def _solve_outcomes(
    model: MultiTaskRegression,
    data: TaskBatch,
    latents: Tensor,
    inner: str,
    ridge: float,
    learn: bool,
    levels: int,
    rounds: int,
) -> None:
    """`solve_tasks` where outcomes are not normal: the same ladder, by Newton steps."""
    f = centred(latents, samples(data))
    for _ in range(_LIKELIHOOD_ROUNDS):
        weight, level = dense_weights(model, data, f, ridge)
        model.weights[0], model.level[:] = weight.to(model.weights), level.to(model.level)
        likelihood_step(model, data, f)
    for rung in range(0 if inner == "ridge" else levels):
        model.prior.anneal((rung + 1) / levels)
        still = _STILL if rung == levels - 1 else _ON_THE_WAY
        for _ in range(rounds):
            before = model.weights.clone()
            outcome_mode_step(model, data, f)
            if learn:
                model.prior.update(model.weights)
            if float((model.weights - before).abs().max()) < still:
                break
        likelihood_step(model, data, f)
    there = samples(data).unsqueeze(-1)
    mean = (latents * there).sum(1) / there.sum(1)
    model.intercept.copy_(model.level - (model.weights[0] * mean.to(model.weights)).sum(1))


@torch.no_grad()
def settle(model: MultiTaskRegression, data: TaskBatch, inner: str, ridge: float, noise: bool = True) -> None:
    """Give latents their units, and all tasks their weights; the model is in its evaluation mode then.

    Parameters
    ----------
    model : MultiTaskRegression
        Trained.
    data : TaskBatch
        All tasks.
    inner, ridge, noise
        As for `solve_tasks`.
    """
    model.eval()
    raw = raw_latents(model, data)
    latents = raw[samples(data)]
    model.centre.copy_(latents.mean(0))
    model.spread.copy_(latents.std(0, correction=0).clamp(min=1e-8))
    solve_tasks(model, data, inner, ridge, raw, noise=noise)
