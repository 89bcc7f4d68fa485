r"""The gradient of a solution with respect to its problem, by the implicit function theorem.

At a solution W* of a penalised problem the coordinates that are not zero satisfy :math:`\rho(W^*, F) = 0`, the
others stay zero. Hence, with H the derivative of :math:`\rho` on the active coordinates A,

.. math:: \frac{\partial L}{\partial F} = - u^\top \frac{\partial \rho}{\partial F}, \qquad
          H_{AA}\, u_A = \Big(\frac{\partial L}{\partial W}\Big)_A, \quad u = 0 \text{ elsewhere}.

The caller writes :math:`\rho` as a differentiable tensor at fixed W*; what it depends on (features, targets,
the penalty) then has its gradient. For the lasso this is the closed form of Lachapelle et al. (2023).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["attach", "solve_active"]


def attach(
    solution: Tensor, residual: Tensor, gram: Tensor, active: Tensor, bend: Tensor | None = None
) -> Tensor:
    """The solution, with a gradient.

    Parameters
    ----------
    solution : Tensor (task, feature, output)
        Where the problem is solved.
    residual : Tensor (task, feature, output)
        The stationarity condition at `solution`, differentiable in what the problem depends on.
    gram : Tensor (task, feature, feature)
        Curvature of the smooth part, the same for every output.
    active : Tensor of bool (task, feature)
        Where the solution is not held at zero.
    bend : Tensor (task, feature, output, output), optional
        Curvature of the penalty.

    Returns
    -------
    Tensor (task, feature, output)
        Equal to `solution`.
    """
    if not residual.requires_grad:
        return solution
    return _Attached.apply(residual, solution, gram.detach(), active, bend)  # type: ignore[no-any-return]


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, solution: Tensor, gram: Tensor, active: Tensor, bend: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(gram, active, bend)
        return solution.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        gram, active, bend = ctx.saved_tensors
        return -solve_active(gram, grad, active, bend), None, None, None, None


def solve_active(gram: Tensor, right: Tensor, active: Tensor, bend: Tensor | None = None) -> Tensor:
    """Solve on the active coordinates of every task; zero elsewhere.

    Parameters
    ----------
    gram : Tensor (task, feature, feature)
    right : Tensor (task, feature, output)
    active : Tensor of bool (task, feature)
    bend : Tensor (task, feature, output, output), optional
        Added to the diagonal blocks.

    Returns
    -------
    Tensor (task, feature, output)
        Where the matrix is singular (two equal columns, say) the shortest least-squares solution.
    """
    n_active = int(active.sum(1).max()) if len(active) else 0
    answer = torch.zeros_like(right)
    if n_active == 0:
        return answer
    # the active coordinates first, in as few columns as the largest support needs
    index = active.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :n_active]
    used = active.gather(1, index)
    tasks = torch.arange(len(gram), device=gram.device)[:, None]
    matrix = gram[tasks[:, :, None], index[:, :, None], index[:, None, :]] * (
        used[:, :, None] & used[:, None, :]
    )
    matrix = matrix + torch.diag_embed((~used).to(gram))
    known = right[tasks, index] * used.unsqueeze(-1)
    if bend is None:
        found = _solve(matrix, known)
    else:
        n_outputs = right.shape[-1]
        eye = torch.eye(n_outputs, dtype=gram.dtype, device=gram.device)
        blocks = torch.einsum("tij,op->tiojp", matrix, eye)
        place = torch.arange(n_active, device=gram.device)
        blocks[:, place, :, place] += (bend[tasks, index] * used[:, :, None, None]).transpose(0, 1)
        size = n_active * n_outputs
        found = _solve(blocks.reshape(-1, size, size), known.reshape(-1, size, 1)).reshape(known.shape)
    return answer.scatter_(1, index.unsqueeze(-1).expand_as(found), found * used.unsqueeze(-1))


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(matrix)
    diagonal = factor.diagonal(dim1=1, dim2=2)
    least = matrix.diagonal(dim1=1, dim2=2) * (16 * torch.finfo(matrix.dtype).eps * matrix.shape[-1])
    singular = (info > 0) | (diagonal**2 <= least).any(1)
    found = torch.cholesky_solve(right, factor)
    if bool(singular.any()):
        found = found.clone()
        found[singular] = torch.linalg.pinv(matrix[singular], hermitian=True) @ right[singular]
    return found
