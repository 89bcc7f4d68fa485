r"""Lasso, elastic net and group lasso of many tasks at once, to a duality gap that is returned.

.. math:: \min_W\; \tfrac12 \langle W, (G + \kappa I) W \rangle - \langle Q, W \rangle + \tfrac12 s
          + \sum_j \lambda_j \lVert W_{j:} \rVert_2

in the moments of `moments.py`, one problem per task; with one output the norm is an absolute value. Rows are
minimised in turn; Newton steps on the settled support then make weights exact, and the support with them.
`_tensors.py` does this in batches, `_compiled.py` task by task; `implicit.py` differentiates the solution.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from . import _compiled, _tensors
from .implicit import attach
from .moments import Moments

__all__ = [
    "SparseWeights",
    "check_penalty",
    "check_ridge",
    "duality_gap",
    "largest_penalty",
    "solve",
    "sparse_weights",
]


class SparseWeights(NamedTuple):
    """Solutions of one batch of tasks.

    Attributes
    ----------
    weight : Tensor (task, feature, output)
        With exact zeros.
    gap : Tensor (task,)
        Primal minus dual value, float64: the objective is at most this far above its minimum.
    relative_gap : Tensor (task,)
        The gap in units of the objective at W = 0.
    sweeps : Tensor of int (task,)
    """

    weight: Tensor
    gap: Tensor
    relative_gap: Tensor
    sweeps: Tensor

    @property
    def active(self) -> Tensor:
        """True where a feature is used, shape (task, feature)."""
        return (self.weight != 0).any(-1)


def largest_penalty(data: Moments) -> Tensor:
    """The penalty from which on all weights are zero: the largest norm of a row of Q, shape (task,).

    Parameters
    ----------
    data : Moments
    """
    return data.moment.norm(dim=-1).amax(-1)


def check_penalty(penalty: float | Tensor, data: Moments) -> Tensor:
    """The penalty as a tensor (task, feature), or a complaint.

    Parameters
    ----------
    penalty : float or Tensor
        One number, or shape (task,) or (task, feature).
    data : Moments
    """
    penalties = torch.as_tensor(penalty, dtype=data.gram.dtype, device=data.gram.device)
    shape = data.moment.shape[:2]
    if penalties.shape == shape[:1]:
        penalties = penalties.unsqueeze(1)
    elif penalties.dim() not in (0, 2) or any(
        a not in (1, b) for a, b in zip(penalties.shape, shape, strict=False)
    ):
        raise ValueError(
            f"penalty: got shape {tuple(penalties.shape)}, want (), (task,) or (task, feature) {tuple(shape)}"
        )
    # where a task's targets are constant, its own largest penalty is 0, and so are its weights
    fine = (penalties > 0) & penalties.isfinite() | (penalties == 0) & (data.square == 0).unsqueeze(1)
    if not bool(fine.all()):
        wrong = float(penalties.expand(fine.shape)[~fine][0])
        raise ValueError(f"penalty: want finite and > 0, got {wrong}; without a penalty use ridge_weights")
    return penalties.expand(shape)


def check_ridge(ridge: float | Tensor, data: Moments) -> Tensor:
    """The ridge as a tensor of shape () or (task,), or a complaint.

    Parameters
    ----------
    ridge : float or Tensor
    data : Moments
    """
    ridges = torch.as_tensor(ridge, dtype=data.gram.dtype, device=data.gram.device)
    if ridges.shape not in ((), data.square.shape) or not bool(((ridges >= 0) & ridges.isfinite()).all()):
        raise ValueError(
            f"ridge: want finite and >= 0, shape () or (task,) {tuple(data.square.shape)}, got {ridge!r}"
        )
    return ridges


def sparse_weights(
    data: Moments,
    penalty: float | Tensor,
    ridge: float | Tensor = 0.0,
    *,
    start: Tensor | None = None,
    tol: float = 1e-10,
    max_sweeps: int = 10_000,
    compiled: bool | None = None,
) -> SparseWeights:
    r"""Minimise the penalised squared loss of every task.

    Parameters
    ----------
    data : Moments
    penalty : float or Tensor
        :math:`\lambda`, shape (), (task,) or (task, feature); above 0. A tensor may ask for a gradient.
    ridge : float or Tensor
        :math:`\kappa \ge 0`, shape () or (task,).
    start : Tensor (task, feature, output), optional
        Weights to begin at (a path of penalties: the last solution).
    tol : float
        Largest relative gap; rounding allows no less than 1e-13.
    max_sweeps : int
        Sweeps over the coordinates; what has not converged then is said in a warning.
    compiled : bool, optional
        Use numba (CPU; the extra "fast"). Default: where it is installed.

    Returns
    -------
    SparseWeights
        `weight` has gradients with respect to features, targets, the penalty and the ridge. Where columns
        depend on each other there is more than one solution, and this is one of them.

    Raises
    ------
    ValueError
        A penalty that is not positive, a negative ridge, a start that is not finite, shapes that do not fit,
        a negative tolerance, `compiled` where there is no numba.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.inference.multitask.inner import moments, sparse_weights
    >>> F = torch.randn(3, 50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> W = torch.tensor([[1., 0, 0, -2], [0, 3, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    >>> solution = sparse_weights(moments(F, (F @ W.unsqueeze(-1))), penalty=0.1)
    >>> solution.active.int()
    tensor([[1, 0, 0, 1],
            [0, 1, 0, 0],
            [0, 0, 0, 0]], dtype=torch.int32)
    """
    penalties, kappa = check_penalty(penalty, data), check_ridge(ridge, data)
    weight, gap, relative, sweeps, curvature = solve(data, penalties, kappa, start, tol, max_sweeps, compiled)
    short = int((relative > max(tol, _tensors.ROUNDING)).sum())
    if short:
        warnings.warn(
            f"{short} of {len(relative)} tasks did not converge in {max_sweeps} sweeps: largest relative "
            f"duality gap {float(relative.max()):.2e}, wanted {tol:.2e}; raise the penalty or max_sweeps",
            RuntimeWarning,
            stacklevel=2,
        )
    weight = _with_gradient(weight, curvature, data, penalties, kappa)
    return SparseWeights(weight.to(data.dtype), gap, relative, sweeps)


@torch.no_grad()
def solve(
    data: Moments,
    penalty: Tensor,
    ridge: Tensor,
    start: Tensor | None,
    tol: float,
    max_sweeps: int,
    compiled: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weights, gap, relative gap, sweeps, and the Gram matrix with its ridge; without gradient or warning.

    Parameters
    ----------
    data : Moments
    penalty : Tensor (task, feature)
    ridge : Tensor () or (task,)
    start, tol, max_sweeps, compiled
        As in `sparse_weights`.
    """
    if not tol >= 0 or max_sweeps < 1:
        raise ValueError(f"tol: want >= 0, got {tol}; max_sweeps: want >= 1, got {max_sweeps}")
    n_tasks, d, _ = data.moment.shape
    if data.gram.shape != (n_tasks, d, d) or data.square.shape != (n_tasks,):
        raise ValueError(
            f"data: gram {tuple(data.gram.shape)} and square {tuple(data.square.shape)} do not fit moment "
            f"{tuple(data.moment.shape)}; make it with moments()"
        )
    curvature = data.gram
    if bool((ridge > 0).any()):
        curvature = curvature.clone()
        curvature.diagonal(dim1=1, dim2=2).add_(ridge.reshape(-1, 1))
    weight = torch.zeros_like(data.moment) if start is None else start.detach().to(data.moment, copy=True)
    if weight.shape != data.moment.shape or not bool(weight.isfinite().all()):
        raise ValueError(
            f"start: want finite, of shape {tuple(data.moment.shape)}, got {tuple(weight.shape)}"
        )
    if start is not None:  # a column of zeros is never moved
        weight[curvature.diagonal(dim1=1, dim2=2) <= 0] = 0
    usable = _compiled.usable(curvature)
    if compiled and not usable:
        raise ValueError("compiled: numba is not installed or the data is not on the CPU; pip install numba")
    lam, tol = penalty.detach().contiguous(), max(tol, _tensors.ROUNDING)
    if usable and compiled is not False:
        gram, moment, square = (
            tensor.contiguous().numpy() for tensor in (curvature, data.moment, data.square)
        )
        counts = _compiled.descend(gram, moment, square, lam.numpy(), weight.numpy(), tol, max_sweeps)
        gap, sweeps = (torch.as_tensor(count) for count in counts)
    else:
        gap, sweeps = _tensors.descend(curvature, data.moment, data.square, lam, weight, tol, max_sweeps)
    return weight, gap, 2 * gap / data.square.clamp(min=_tensors.TINY), sweeps, curvature


def _with_gradient(
    weight: Tensor, curvature: Tensor, data: Moments, penalty: Tensor, ridge: Tensor
) -> Tensor:
    if not any(tensor.requires_grad for tensor in (data.features, data.targets, penalty, ridge)):
        return weight
    active, unit, bend = _tensors.curve(weight, penalty.detach())
    residual = data.residual(weight) + ridge.reshape(-1, 1, 1) * weight + penalty.unsqueeze(-1) * unit
    return attach(weight, residual, curvature, active, bend)


def duality_gap(gram: Tensor, moment: Tensor, square: Tensor, penalty: Tensor, weight: Tensor) -> Tensor:
    r"""Primal minus dual value of every task, of any weights.

    The dual point is the residual, scaled into :math:`\lVert F_j^\top \theta \rVert \le \lambda_j` and to the
    best length there.

    Parameters
    ----------
    gram, moment, square : Tensor
        As in `Moments`; the ridge is part of `gram`.
    penalty : Tensor (task, feature)
    weight : Tensor (task, feature, output)

    Returns
    -------
    Tensor (task,)

    Raises
    ------
    ValueError
        Shapes do not fit.
    """
    if penalty.shape != moment.shape[:2] or weight.shape != moment.shape:
        raise ValueError(
            f"penalty {tuple(penalty.shape)} and weight {tuple(weight.shape)}: want (task, feature) and "
            f"(task, feature, output), {tuple(moment.shape)}"
        )
    return _tensors.gap(moment, square, penalty, weight, moment - gram @ weight)
