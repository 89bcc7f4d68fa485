r"""The face of the simplices that a dual point of the group-lasso SVM lies on: Newton's steps along it.

Within its face the point moves by :math:`Z = \sum_k z_k (e_{i_k l_k} - e_{i_k t_{i_k}})` over free entries
k: those that are positive, but for the largest of its row, t. The dual's curvature there is

.. math:: \langle Z, X J[X^\top Z] \rangle, \qquad J = \tfrac{1}{\lambda_2} \, \partial S(V) / \partial V ,

one small positive semidefinite system per episode. A first-order method is slow to find the face, and the
point on it; with this system `face_steps` finishes its work, and `svm_gradient.py` differentiates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .svm_dual import SVMDual, simplex

__all__ = ["Curvature", "curvature", "face_steps", "on_the_face"]

# Share of the largest diagonal entry added to all. Least squares where the face has directions without
# curvature; along them the cost is linear and the step, being long, ends where an entry becomes zero.
_DAMPING = 1e-10
_SMALL_STEP = 1e-13  # of entries that add up to 1: what moves less is rounding
_ZERO = 1e-11  # a smaller entry is rounding, not a direction to move in


class Curvature(NamedTuple):
    r"""J, one block per feature: :math:`J_j = \mathrm{straight}_j I + \mathrm{bent}_j u_j u_j^\top`.

    Attributes
    ----------
    unit : Tensor (episode, feature, class)
        :math:`u_j = V_j / \|V_j\|`; zero for features that are not used.
    straight, bent : Tensor (episode, feature, 1)
        Zero for them too.
    """

    unit: Tensor
    straight: Tensor
    bent: Tensor

    def __call__(self, direction: Tensor) -> Tensor:
        """J of a direction (episode, feature, class)."""
        onto = (self.unit * direction).sum(-1, keepdim=True)
        return self.straight * direction + self.bent * onto * self.unit


def curvature(problem: SVMDual, dual: Tensor) -> Curvature:
    """Derivative of block soft-thresholding at V, divided by l2."""
    v, l1, l2 = problem.correlation(dual), problem.l1[:, None, None], problem.l2[:, None, None]
    size = v.norm(dim=-1, keepdim=True)
    on = size > l1
    safe = torch.where(on, size, 1.0)
    return Curvature(
        torch.where(on, v / safe, 0.0),
        torch.where(on, (1 - l1 / safe) / l2, 0.0),
        torch.where(on, l1 / safe / l2, 0.0),
    )


def face_steps(problem: SVMDual, dual: Tensor, steps: int = 5) -> Tensor:
    """Newton's steps on the face, which shrinks where an entry reaches zero; the cost never rises.

    Parameters
    ----------
    problem : SVMDual
    dual : Tensor (episode, example, class)
        Feasible.
    steps : int
        At most so many.

    Returns
    -------
    Tensor (episode, example, class)
        Feasible.
    """
    for _ in range(steps):
        z = on_the_face(problem.x, dual, curvature(problem, dual), -problem.gradient(dual))
        room = torch.where(z < 0, dual / torch.where(z < 0, -z, 1.0), torch.inf)
        length = room.amin((-1, -2), keepdim=True).clamp_max(1.0)
        up_to_the_edge = torch.where(room <= length, 0.0, (dual + length * z).clamp_min(0))
        best, cost = dual, problem.cost(dual)
        for point in (up_to_the_edge, simplex(dual + z), dual + 0.1 * (up_to_the_edge - dual)):
            its = problem.cost(point)
            best = torch.where((its < cost)[:, None, None], point, best)
            cost = torch.minimum(its, cost)
        if float((best - dual).abs().max()) < _SMALL_STEP:
            break
        dual = best
    return dual


def on_the_face(x: Tensor, dual: Tensor, j: Curvature, right: Tensor) -> Tensor:
    r"""Z on the face of `dual` with :math:`X J[X^\top Z]` equal to `right` along it.

    Parameters
    ----------
    x : Tensor (episode, example, feature)
    dual, right : Tensor (episode, example, class)
    j : Curvature

    Returns
    -------
    Tensor (episode, example, class)
    """
    n_classes = dual.shape[-1]
    top = dual.argmax(-1, keepdim=True)
    free = (dual > _ZERO).scatter(-1, top, False).flatten(1)
    width = int(free.sum(-1).max())
    if width == 0:
        return torch.zeros_like(dual)
    entry = free.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[:, :width]
    is_free = free.gather(-1, entry).to(x.dtype)
    example, klass = entry // n_classes, entry % n_classes
    identity = torch.eye(n_classes, dtype=x.dtype, device=x.device)
    toward = identity[klass] - identity[top[..., 0].gather(-1, example)]
    toward = toward * is_free[..., None]  # (episode, free entry, class); padding is zero
    rows = x.gather(1, example[..., None].expand(-1, -1, x.shape[-1]))
    along = rows * (toward @ j.unit.mT)
    system = (rows * j.straight.mT) @ rows.mT * (toward @ toward.mT) + (along * j.bent.mT) @ along.mT
    damping = _DAMPING * system.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    padded = system + torch.diag_embed(1 - is_free)
    factor = torch.linalg.cholesky(
        padded + torch.diag_embed(torch.where(damping > 0, damping, 1.0).expand_as(is_free))
    )
    index = example[..., None].expand(-1, -1, n_classes)
    wanted = (right.gather(1, index) * toward).sum(-1, keepdim=True)
    z = torch.cholesky_solve(wanted, factor)
    z = z + torch.cholesky_solve(wanted - padded @ z, factor)  # where it can be, the damping is undone
    return torch.zeros_like(dual).scatter_add_(1, index, z * toward)
