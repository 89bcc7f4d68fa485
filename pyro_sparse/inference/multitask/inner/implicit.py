r"""The gradient of a solution with respect to its problem, by the implicit function theorem.

At a solution W* of a penalised problem the coordinates that are not zero satisfy :math:`\rho(W^*, F) = 0`,
the others stay zero. Hence, with H the derivative of :math:`\rho` on the active coordinates A,

.. math:: \frac{\partial L}{\partial F} = - u^\top \frac{\partial \rho}{\partial F}, \qquad
          H_{AA}\, u_A = \Big(\frac{\partial L}{\partial W}\Big)_A, \quad u = 0 \text{ elsewhere}.

The caller writes :math:`\rho` as a differentiable tensor at fixed W*; what it depends on (features, targets,
the penalty) then has its gradient. For the lasso this is the closed form of Lachapelle et al. (2023).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _compiled

__all__ = ["GradientContext", "attach", "solve_active"]


class GradientContext(Protocol):
    """What autograd keeps of a call until its gradient is wanted."""

    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep these for the gradient."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which answers have no gradient."""


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
    return _Attached.apply(residual, solution, gram.detach(), active, bend)


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: GradientContext,
        residual: Tensor,
        solution: Tensor,
        gram: Tensor,
        active: Tensor,
        bend: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(gram, active, bend)
        return solution.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: GradientContext, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
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

    Raises
    ------
    ValueError
        Shapes do not fit.
    """
    return solve_flagged(gram, right, active, bend)[0]


def solve_flagged(gram: Tensor, right: Tensor, active: Tensor, bend: Tensor | None) -> tuple[Tensor, Tensor]:
    """As `solve_active`, and where the matrix was singular: bool, shape (task,).

    Parameters
    ----------
    gram, right, active, bend : Tensor
        As in `solve_active`.
    """
    n_tasks, d, n_outputs = right.shape
    wanted = {"gram": (n_tasks, d, d), "active": (n_tasks, d), "bend": (n_tasks, d, n_outputs, n_outputs)}
    for name, tensor in (("gram", gram), ("active", active), ("bend", bend)):
        if tensor is not None and tensor.shape != wanted[name]:
            raise ValueError(
                f"{name}: got {tuple(tensor.shape)}, want {wanted[name]} for right {tuple(right.shape)}"
            )
    if bend is None and gram.dtype == right.dtype == torch.float64 and _compiled.usable(gram):
        answer = torch.zeros_like(right, memory_format=torch.contiguous_format)
        arrays = [tensor.detach().contiguous().numpy() for tensor in (gram, right, active)]
        singular = torch.as_tensor(_compiled.solve_supports(*arrays, answer.numpy()))
        if bool(singular.any()):
            answer[singular] = _solve_batch(gram[singular], right[singular], active[singular], None)[0]
        return answer, singular
    return _solve_batch(gram, right, active, bend)


def _solve_batch(gram: Tensor, right: Tensor, active: Tensor, bend: Tensor | None) -> tuple[Tensor, Tensor]:
    n_active = int(active.sum(1).max()) if len(active) else 0
    answer = torch.zeros_like(right)
    if n_active == 0:
        return answer, active.new_zeros(len(active))
    # the active coordinates first, in as few columns as the largest support needs
    index = active.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :n_active]
    used = active.gather(1, index)
    tasks = torch.arange(len(gram), device=gram.device)[:, None]
    matrix = gram[tasks[:, :, None], index[:, :, None], index[:, None, :]]
    matrix = matrix * (used[:, :, None] & used[:, None, :])
    largest = matrix.diagonal(dim1=1, dim2=2).amax(1)
    padding = torch.where(largest > 0, largest, torch.ones_like(largest))
    matrix = matrix + torch.diag_embed(padding.unsqueeze(1) * ~used)
    active_right = right[tasks, index] * used.unsqueeze(-1)
    if bend is None:
        solved, singular = _solve(matrix, active_right)
    else:
        n_outputs = right.shape[-1]
        eye = torch.eye(n_outputs, dtype=gram.dtype, device=gram.device)
        blocks = torch.einsum("tij,op->tiojp", matrix, eye)
        place = torch.arange(n_active, device=gram.device)
        blocks[:, place, :, place] += (bend[tasks, index] * used[:, :, None, None]).transpose(0, 1)
        size = n_active * n_outputs
        solved, singular = _solve(blocks.reshape(-1, size, size), active_right.reshape(-1, size, 1))
        solved = solved.reshape(active_right.shape)
    return answer.scatter_(1, index.unsqueeze(-1).expand_as(solved), solved * used.unsqueeze(-1)), singular


def _solve(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    factor, info = torch.linalg.cholesky_ex(matrix)
    diagonal = factor.diagonal(dim1=1, dim2=2)
    # a pivot that is no more than rounding
    least = matrix.diagonal(dim1=1, dim2=2) * (16 * torch.finfo(matrix.dtype).eps * matrix.shape[-1])
    singular = (info > 0) | (diagonal**2 <= least).any(1)
    solution = torch.cholesky_solve(right, factor)
    if bool(singular.any()):
        solution = solution.clone()
        # eigenvalues that a factor could not tell from rounding count as none
        rtol = 1e4 * torch.finfo(matrix.dtype).eps
        solution[singular] = torch.linalg.pinv(matrix[singular], rtol=rtol, hermitian=True) @ right[singular]
    return solution, singular
