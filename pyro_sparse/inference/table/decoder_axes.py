r"""Sparse axes of a decoder: the rotation of a dense fit's latents in which its Jacobian has most zeros.

With C the covariance of the latents over rows and J the Jacobian of the linear predictor, the search
(`rotation/jacobian_axes.py`) sees of each feature the share :math:`S_j = C^{1/2} E[J_j^\top J_j]\, C^{1/2}`,
divided by its trace. The strength of an edge is then

.. math:: r_{jk}^2 = E[(\partial f_j / \partial z_k)^2]\,\mathrm{Var}(z_k) \Big/
          \sum_l E[(\partial f_j / \partial z_l)^2]\,\mathrm{Var}(z_l),

between 0 and 1, whatever the units of features and latents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._utils.torch_state import undisturbed
from ...data.read import Batch
from ..rotation.axes import SILENT
from ..rotation.jacobian_axes import jacobian_axes

if TYPE_CHECKING:
    from ...models.base import FactorModel

__all__ = ["DecoderAxes", "decoder_axes", "decoder_jacobian", "second_moments", "strengths"]

MOST_ROWS = 2000
_CELLS = 100_000  # whose derivatives are taken at once


class AxisSearch(TypedDict, total=False):
    """Settings of the search that a caller may choose, as of `jacobian_axes`.

    Attributes
    ----------
    n_starts, steps, max_hops : int
    floor : float
    """

    n_starts: int
    steps: int
    max_hops: int
    floor: float


class DecoderAxes(NamedTuple):
    """Axes of one restart.

    Parameters
    ----------
    map : ndarray (factor, factor)
        ``z_old = map @ z_new``, new latents white.
    objective : float
        Smooth number of edges.
    found : float
        Share of the search's starts that ended at its optimum.
    """

    map: NDArray[np.float64]
    objective: float
    found: float


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
) -> list[DecoderAxes]:
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
    list of DecoderAxes
    """
    settings: AxisSearch = {"floor": 1e-9, **options}  # strengths of a decoder are graded: none passes for 0
    answers = []
    for cov, moment in zip(*second_moments(model, batch), strict=True):
        values, vectors = torch.linalg.eigh(cov)
        values = values.clamp_min(1e-8 * values[-1].clamp_min(1e-12))
        root = (vectors * values.sqrt()) @ vectors.mT
        share = root @ moment @ root
        total = share.diagonal(dim1=-2, dim2=-1).sum(-1)
        loud = total > SILENT * total.max()
        stack = (share[loud] / total[loud, None, None]).cpu().numpy()
        with undisturbed(threads=1):
            axes = jacobian_axes(
                actions=(stack + stack.transpose(0, 2, 1)) / 2, orthogonal=True, seed=seed, **settings
            )
        turn = root.cpu().numpy() @ axes.map.T
        answers.append(DecoderAxes(turn, axes.objective, axes.agreement / axes.n_starts))
    return answers


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
