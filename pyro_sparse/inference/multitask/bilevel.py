r"""The bilevel objective: regressions inside, solved exactly in every task, the representation outside.

.. math:: \min_\theta \frac1T \sum_t \frac{1}{2n} \lVert y_t - F_t \hat w_t \rVert^2, \qquad
          \hat w_t = \arg\min_w \frac{1}{2n} \lVert y_t - F_t w \rVert^2 + \text{penalty}(w), \quad
          F_t = f_\theta(X_t)

"lasso" and "ridge" name the inner penalty; "outer" puts the lasso's penalty on least-squares weights into the
outer loss instead (Lachapelle, Deleu et al. 2023, equations 4 and 60). "ssl" is the Pyro program: weights at
their mode under the spike-and-slab lasso, and the gradient that of the likelihood there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ...data.tasks import TaskBatch
from .inner import moments, ridge_weights, sparse_weights
from .inner.lasso import largest_penalty
from .inner.moments import Moments
from .inner.ssl import ssl_sweeps
from .outcomes import left_out_ratio
from .task_means import weighted_mean

if TYPE_CHECKING:
    from ...models.multitask import MultiTaskRegression
    from ...priors import SpikeSlabPrior

__all__ = ["INNER", "left_out_error", "mode_step", "outer_loss", "samples"]

INNER = ("lasso", "ridge", "outer", "ssl")


def outer_loss(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    inner: str = "lasso",
    penalty: float = 0.05,
    ridge: float = 1e-3,
    task_weight: Tensor | None = None,
) -> Tensor:
    r"""Mean over tasks of half the mean squared error at the inner solution.

    Parameters
    ----------
    features : Tensor (task, sample, latent)
        Normalised; may ask for a gradient, which is exact.
    targets : Tensor (task, sample)
    mask : Tensor of bool (task, sample), optional
    inner : {"lasso", "ridge", "outer"}
    penalty : float
        Share of each task's largest useful penalty. Nothing is differentiated through that, as published.
    ridge : float
        :math:`\kappa` of "ridge" and "outer".
    task_weight : Tensor (task,), optional
        What each task's error is multiplied by, with mean 1 over all tasks. The inner solutions are the same.

    Returns
    -------
    Tensor of shape ()

    Raises
    ------
    ValueError
        `inner` is something else.
    """
    data = moments(features, targets.unsqueeze(-1), mask)
    if inner == "lasso":
        weight = _lasso(data, penalty)
    elif inner in ("ridge", "outer"):
        weight = ridge_weights(data, ridge)
    else:
        raise ValueError(f"inner: want lasso, ridge or outer, got {inner!r}")
    error = data.targets - data.features @ weight.to(data.features)
    loss = 0.5 * (data.share * error**2).sum((1, 2))
    if inner == "outer":
        loss = loss + penalty * largest_penalty(data).detach() * weight.abs().sum((1, 2))
    return weighted_mean(loss, task_weight)


def _lasso(data: Moments, penalty: float) -> Tensor:
    return sparse_weights(data, (penalty * largest_penalty(data)).detach()).weight


@torch.no_grad()
def left_out_error(
    model: MultiTaskRegression, batch: TaskBatch, inner: str, penalty: float, ridge: float
) -> Tensor:
    """Mean squared error of every second sample of each task, from weights fitted to the others.

    Parameters
    ----------
    model : MultiTaskRegression
    batch : TaskBatch
    inner : {"lasso", "ridge", "outer", "ssl"}
        The last two are judged by a ridge and by a lasso.
    penalty, ridge : float
        As for `outer_loss`.

    Returns
    -------
    Tensor (task,)
        In variances of the task's target; NaN for a task with fewer than two samples in either half. Of
        outcomes that are not normal `outcomes.left_out_ratio`, which is the same of normal ones.
    """
    f = model.latents(batch)
    present = samples(batch)
    second = present.cumsum(1) % 2 == 0
    first, second = present & ~second, present & second
    enough = (first.sum(1) > 1) & (second.sum(1) > 1)
    answer = torch.full_like(batch.y[:, 0], torch.nan)
    if not bool(enough.any()):
        return answer
    if model.likelihood is not None:
        some = batch.rows(enough.nonzero()[:, 0])
        ratio = left_out_ratio(model, some, f[enough], first[enough], second[enough], ridge)
        answer[enough] = ratio.to(answer)
        return answer
    f, y = f[enough].double(), batch.y[enough].double().unsqueeze(-1)
    data = moments(f, y, first[enough])
    weight = _lasso(data, penalty) if inner in ("lasso", "ssl") else ridge_weights(data, ridge)
    error = (y - f @ weight)[..., 0] - data.intercept(weight)
    judged = second[enough]
    answer[enough] = ((error**2 * judged).sum(1) / judged.sum(1)).to(answer)
    return answer


@torch.no_grad()
def mode_step(model: MultiTaskRegression, batch: TaskBatch, data: Moments, sweeps: int = 2) -> None:
    """Bring the weights of a batch's tasks, and their noise, towards the mode given the latents.

    Exact coordinate descent with the global proximal map of the spike-and-slab lasso, then the noise's mode.

    Parameters
    ----------
    model : MultiTaskRegression
        Its `weights` and `variance` are changed.
    batch : TaskBatch
    data : Moments
        Of its latents and targets.
    sweeps : int

    Raises
    ------
    TypeError
        The prior is not a spike-and-slab lasso.
    """
    prior = model.prior
    rates = prior.rates()
    if rates is None:
        raise TypeError(f"prior: inner='ssl' wants a SpikeSlabLasso, got a {type(prior).__name__}")
    n = samples(batch).sum(1).to(data.features)
    weight = ssl_sweeps(
        data,
        model.weights[0, batch.index],
        model.variance[batch.index] / n,
        cast("SpikeSlabPrior", prior).eta[0, 0],
        *rates,
        sweeps=sweeps,
    )
    error = data.targets - data.features @ weight.to(data.features).unsqueeze(-1)
    square = n * (data.share * error**2).sum((1, 2))
    model.weights[0, batch.index] = weight.to(model.weights)
    noise = model.noise_mode(square, n, model.mode_noise_prior())
    model.variance[batch.index] = noise.to(model.variance)


def samples(batch: TaskBatch) -> Tensor:
    """Where there is a sample with a target, bool (task, sample)."""
    return torch.ones_like(batch.y, dtype=torch.bool) if batch.mask is None else batch.mask
