"""Sparse axes of the decoder of a dense fit, for each restart by itself: the search of `function_axes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor

from ...data.read import Batch
from ..rotation.jacobian_axes import AxisSearch
from .function_axes import SparseAxes, axes_of_moments

if TYPE_CHECKING:
    from ...models.base import FactorModel

__all__ = ["decoder_axes", "decoder_jacobian", "second_moments", "strengths"]

MOST_ROWS = 2000
_CELLS = 100_000  # whose derivatives are taken at once


def decoder_jacobian(model: FactorModel, z: Tensor) -> Tensor:
    """Jacobian of the linear predictor at given latents, (restart, row, feature, factor).

    Parameters
    ----------
    model : FactorModel
    z : Tensor (restart, row, factor)
    """
    with torch.enable_grad():  # u'J is linear in u, and its derivative by u is J: one pass for each column
        z = z.detach().requires_grad_(True)
        predictor = model.decode(z, getattr(model, "weights", None))
        u = torch.zeros_like(predictor, requires_grad=True)
        (pulled,) = torch.autograd.grad(predictor, z, u, create_graph=True)
        columns = [
            torch.autograd.grad(pulled[..., k].sum(), u, retain_graph=True)[0] for k in range(z.shape[-1])
        ]
    return torch.stack(columns, -1).detach()


@torch.no_grad()
def second_moments(model: FactorModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """Covariance of the latents (restart, factor, factor); E[J_j' J_j] (restart, feature, factor, factor)."""
    location, _ = model.encode(batch)
    centred = (location - location.mean(1, keepdim=True)).double()
    cov = centred.mT @ centred / max(len(batch), 1)
    rows = location[:, :MOST_ROWS]
    rows_at_once = max(1, _CELLS // (len(rows) * model.n_features))
    moment = torch.zeros((), dtype=torch.float64, device=rows.device)
    for chunk in rows.split(rows_at_once, 1):  # a decoder may hold a hundred units for each cell
        jacobian = decoder_jacobian(model, chunk).double()
        moment = moment + torch.einsum("rnja,rnjb->rjab", jacobian, jacobian)
    return cov, moment / rows.shape[1]


def decoder_axes(
    model: FactorModel, batch: Batch, seed: int = 0, **options: Unpack[AxisSearch]
) -> list[SparseAxes]:
    """Sparse axes of each restart of a dense fit.

    Parameters
    ----------
    model : FactorModel
        With a differentiable decoder.
    batch : Batch
        The rows it was fitted to.
    seed : int
        Of the search.
    **options
        Passed to `jacobian_axes`.

    Returns
    -------
    list of SparseAxes
    """
    moments = zip(*second_moments(model, batch), strict=True)
    return [axes_of_moments(cov, moment, seed, **options) for cov, moment in moments]


@torch.no_grad()
def strengths(model: FactorModel, batch: Batch) -> Tensor:
    """Strength of every edge in the model's own axes, (restart, feature, factor), in [0, 1].

    Parameters
    ----------
    model : FactorModel
    batch : Batch
    """
    cov, moment = second_moments(model, batch)
    squared = moment.diagonal(dim1=-2, dim2=-1) * cov.diagonal(dim1=-2, dim2=-1).unsqueeze(1)
    return (squared / squared.sum(-1, keepdim=True).clamp_min(1e-12)).sqrt()
