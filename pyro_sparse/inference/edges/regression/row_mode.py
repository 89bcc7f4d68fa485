r"""The mode of sparse linear rows under the spike-and-slab lasso, the spike's rate coming up a ladder.

.. math:: \max_{W, \eta, \sigma^2}\; \log p(y \mid W, \sigma^2) + \log p(\eta) + \log p(\sigma^2)
          + \sum_{tj} \log[\eta \psi_{\lambda_1}(w_{tj}) + (1 - \eta) \psi_{\lambda_0}(w_{tj})]

by turns: one sweep over the weights (`inner/ssl.py`), the inclusion rates (EM), the noise variances. The
objective has many modes; low rates of the spike, where there are few, lead to a good one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....priors import em
from ...multitask.inner.moments import Moments
from ...multitask.inner.ssl import ssl_sweeps
from .noise_levels import first_noise_prior
from .rows import RowPrior

__all__ = ["LADDER", "ROUNDS", "Mode", "first_mode", "row_mode"]

LADDER = 5
"""Rates of the spike, the last one being the prior's."""
ROUNDS = 25
"""Of weights, inclusion rates and noise, at each of them."""
_RIDGE = 0.0025  # of a feature's variance: enough for more features than samples


class Mode(NamedTuple):
    """A point, and how far it moved last.

    Attributes
    ----------
    weight, eta : Tensor (..., task, feature)
    noise : Tensor (..., task)
        Variances.
    change : Tensor (..., task, feature)
        How far the weights moved in the last round.
    """

    weight: Tensor
    eta: Tensor
    noise: Tensor
    change: Tensor


def first_mode(data: Moments, dof: Tensor, prior: RowPrior, eta: Tensor | None, noise: Tensor | None) -> Mode:
    """Where to begin: all edges, by a little ridge, the prior's mean rate, the targets' variance.

    Parameters
    ----------
    data : Moments
        With one output, all axes before the features' in one.
    dof : Tensor (..., task)
        Samples, less one if there is an intercept.
    prior : RowPrior
    eta, noise : Tensor (..., task, feature) and (..., task), or None
        If known.
    """
    m = data.gram.shape[-1]
    diagonal = data.gram.diagonal(dim1=1, dim2=2)
    loose = data.gram + torch.diag_embed(torch.where(diagonal > 0, _RIDGE * diagonal, 1.0))
    weight = torch.linalg.solve(loose, data.moment)[..., 0].reshape(*dof.shape, m)
    if eta is None:
        a, b = prior.eta_prior
        eta = torch.full_like(weight, a / (a + b))
    if noise is None:
        noise = data.square.reshape(dof.shape).clamp(min=torch.finfo(weight.dtype).tiny ** 0.5)
    return Mode(weight, eta, noise, torch.full_like(weight, torch.inf))


def row_mode(data: Moments, samples: Tensor, dof: Tensor, prior: RowPrior, start: Mode) -> Mode:
    """A joint mode of weights, inclusion rates and noise variances (those that the prior does not know).

    Parameters
    ----------
    data : Moments
        With one output, all axes before the features' in one.
    samples, dof : Tensor (..., task)
        Samples, and these less one if there is an intercept.
    prior : RowPrior
        With a Laplace slab and a spike of some width.
    start : Mode
        Known rates and variances are taken from it.
    """
    weight, eta, noise, change = start
    shape = weight.shape
    low = torch.as_tensor(1 / np.asarray(prior.slab_scale, dtype=float)).broadcast_to(shape)
    top = torch.full_like(low, 1 / prior.spike_scale)
    foot = torch.minimum(2 * low, top)  # a spike half as wide as the slab: there are few modes
    (a, b), (c, d) = prior.eta_prior, first_noise_prior(prior)
    flat = (-1, shape[-1])
    for share in np.linspace(0, 1, LADDER):
        rate = foot ** (1 - share) * top**share
        for _ in range(ROUNDS):
            new = ssl_sweeps(
                data,
                weight.reshape(flat),
                (noise / samples).flatten(),
                eta.reshape(flat),
                low.reshape(flat),
                rate.reshape(flat),
                sweeps=1,
            )
            change = (new.reshape(shape) - weight).abs()
            weight = new.reshape(shape)
            if prior.eta is None:
                eta = _rates(em.edge_probability(weight, eta, low, rate), a, b, prior.eta_over)
            if prior.noise_variance is None:
                pull = (data.gram @ new[..., None] - 2 * data.moment)[..., 0]
                left = (data.square + (pull * new).sum(-1)).clamp(min=0).reshape(noise.shape)
                noise = (d + samples * left / 2) / (c + dof / 2 + 1)
    return Mode(weight, eta, noise, change)


def _rates(p: Tensor, a: float, b: float, over: str) -> Tensor:
    """The M step for the edges that share a rate, for each of them."""
    if over == "row":
        return em.eta_step(p.unsqueeze(-1), a, b)[..., 0].expand_as(p)
    return em.eta_step(p, a, b, shared=over == "all").expand_as(p)
