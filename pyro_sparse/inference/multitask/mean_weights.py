"""The model that predictions go by: weights at their posterior means, all else at its mode given these.

The mode under a narrow spike is exactly 0 where the rows of a task say little of a weight: of sixty yes/no
answers a weight has to gain some five nats over the spike. Its posterior mean is not.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..._utils.torch_state import undisturbed
from ...posterior import arviz as _arviz
from .bilevel import samples
from .inner import moments
from .outcomes import centred, levels_given, likelihood_step
from .task_run import raw_latents

if TYPE_CHECKING:
    from ..._utils.types import ArvizData
    from ...models.multitask import MultiTaskRegression
    from .task_result import MultiTaskFit

__all__ = ["at_mean_weights"]

_ROUNDS = 3  # of intercepts, and the likelihood's own parameters


@torch.no_grad()
def at_mean_weights(fit: MultiTaskFit, edges: ArvizData) -> MultiTaskRegression:
    """A copy of the best restart's model with the mean weights of an edge posterior.

    Parameters
    ----------
    fit : MultiTaskFit
        With rows.
    edges : InferenceData or DataTree
        Its `edge_posterior`.

    Returns
    -------
    MultiTaskRegression
        Its intercepts, and what the likelihood has as parameters of its own, are at their modes given the
        weights.
    """
    with undisturbed():
        model = copy.deepcopy(fit.model)
    means = _arviz.get_group(edges, "edge_posterior")["weight"].transpose("task", "latent").to_numpy()
    order, sign = fit.alignment["permutation"][fit.best], fit.alignment["sign"][fit.best]
    weights = np.empty_like(means)
    weights[:, order] = means / fit.tasks.target_scale[:, None] * sign
    model.weights[0] = torch.as_tensor(weights).to(model.weights)
    data = fit.tasks.batch(model.turn.device, model.turn.dtype)
    f = ((raw_latents(model, data) - model.centre) / model.spread).double()
    if model.likelihood is None:
        scatter = moments(f, data.y.unsqueeze(-1), data.mask)
        model.intercept.copy_(scatter.intercept(model.weights[0].unsqueeze(-1))[:, 0])
        return model
    there = samples(data)
    within = centred(f, there)
    for _ in range(_ROUNDS):
        model.level.copy_(levels_given(model, data, within))
        likelihood_step(model, data, within)
    model.level.copy_(levels_given(model, data, within))
    mean = (f * there.unsqueeze(-1)).sum(1) / there.sum(1, keepdim=True)
    model.intercept.copy_(model.level - (model.weights[0] * mean.to(model.weights)).sum(1))
    return model
