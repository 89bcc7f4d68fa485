r"""Lasso, elastic net and group lasso of many tasks at once, to a duality gap that is returned.

.. math:: \min_W\; \tfrac12 \langle W, (G + \kappa I) W \rangle - \langle Q, W \rangle + \tfrac12 s
          + \sum_j \lambda_j \lVert W_{j:} \rVert_2

in the moments of `moments.py`, one problem per task; with one output the norm is an absolute value. Blocks are
minimised in turn, exactly; with one output the equations on a settled support are then solved directly, so
that support and weights are exact. `_compiled.py` does the same task by task. The solution is differentiable
(`implicit.py`).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from . import _compiled
from .implicit import attach, solve_active
from .moments import Moments

__all__ = ["SparseWeights", "check_penalty", "duality_gap", "largest_penalty", "sparse_weights"]


class SparseWeights(NamedTuple):
    """Solutions of one batch of tasks.

    Attributes
    ----------
    weight : Tensor (task, feature, output)
        With exact zeros.
    gap : Tensor (task,)
        Primal minus dual value: the objective is at most this far above its minimum.
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
    given = torch.as_tensor(penalty, dtype=data.gram.dtype, device=data.gram.device)
    shape = data.moment.shape[:2]
    if given.dim() == 1 and len(given) == shape[0]:
        given = given.unsqueeze(1)
    if given.dim() > 2 or any(a not in (1, b) for a, b in zip(given.shape[::-1], shape[::-1], strict=False)):
        raise ValueError(
            f"penalty: got shape {tuple(given.shape)}, want (), (task,) or (task, feature) {shape}"
        )
    given = given.expand(shape)
    # where a task's targets are constant, its own largest penalty is 0, and so are its weights
    bad = ~(given > 0) & (data.square > 0).unsqueeze(1)
    if bool(bad.any()) or not bool(torch.isfinite(given).all()):
        raise ValueError(
            f"penalty: want finite and > 0, got {float(given[bad].min() if bad.any() else given.max())}; "
            "without a penalty use ridge_weights"
        )
    return given


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
        Largest relative gap.
    max_sweeps : int
        Sweeps over the coordinates; what has not converged then is said in a warning.
    compiled : bool, optional
        Use numba (CPU; the extra "fast"). Default: where it is installed.

    Returns
    -------
    SparseWeights
        `weight` has gradients with respect to features, targets, the penalty and the ridge.

    Raises
    ------
    ValueError
        A penalty that is not positive, shapes that do not fit, `compiled` where there is no numba.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.inference.inner import moments, sparse_weights
    >>> F = torch.randn(3, 50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> W = torch.tensor([[1., 0, 0, -2], [0, 3, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    >>> found = sparse_weights(moments(F, (F @ W.unsqueeze(-1))), penalty=0.1)
    >>> found.active.int()
    tensor([[1, 0, 0, 1],
            [0, 1, 0, 0],
            [0, 0, 0, 0]], dtype=torch.int32)
    """
    given = check_penalty(penalty, data)
    kappa = torch.as_tensor(ridge, dtype=data.gram.dtype, device=data.gram.device)
    if not bool((kappa >= 0).all()) or kappa.dim() > 1:
        raise ValueError(f"ridge: want >= 0, shape () or (task,), got {ridge!r}")
    with torch.no_grad():
        curvature = data.gram
        if bool((kappa > 0).any()):
            curvature = curvature.clone()
            curvature.diagonal(dim1=1, dim2=2).add_(kappa.reshape(-1, 1))
        problem = [part.detach().to(torch.float64) for part in (curvature, data.moment, data.square, given)]
        weight = torch.zeros_like(problem[1]) if start is None else start.detach().to(torch.float64).clone()
        if weight.shape != problem[1].shape:
            raise ValueError(f"start: got {tuple(weight.shape)}, want {tuple(problem[1].shape)}")
        on_cpu = data.gram.device.type == "cpu"
        if compiled and not (_compiled.AVAILABLE and on_cpu):
            raise ValueError(
                "compiled: numba is not installed or the data is not on the CPU; pip install numba"
            )
        if compiled or (compiled is None and _compiled.AVAILABLE and on_cpu):
            arrays = [part.contiguous().numpy() for part in (*problem, weight)]
            gaps, counts = _compiled.descend(*arrays, tol, max_sweeps)
            gap, sweeps = torch.as_tensor(gaps), torch.as_tensor(counts)
            weight = torch.as_tensor(arrays[-1])
        else:
            weight, gap, sweeps = _descend(*problem, weight, tol, max_sweeps)
        relative = 2 * gap / problem[2].clamp(min=torch.finfo(torch.float64).tiny)
    _complain(relative, tol, max_sweeps)
    weight = _with_gradient(weight.to(data.moment), curvature, data, given, kappa)
    return SparseWeights(weight, gap.to(data.square), relative.to(data.square), sweeps)


def _complain(relative: Tensor, tol: float, max_sweeps: int) -> None:
    short = int((relative > max(tol, 1e-13)).sum())
    if short:
        warnings.warn(
            f"{short} of {len(relative)} tasks did not converge in {max_sweeps} sweeps: largest relative "
            f"duality gap {float(relative.max()):.2e}, wanted {tol:.2e}; raise the penalty or max_sweeps",
            RuntimeWarning,
            stacklevel=3,
        )


def _with_gradient(
    weight: Tensor, curvature: Tensor, data: Moments, penalty: Tensor, ridge: Tensor
) -> Tensor:
    norm = weight.norm(dim=-1, keepdim=True)
    active = norm[..., 0] > 0
    length = torch.where(norm > 0, norm, torch.ones_like(norm))
    unit = weight / length
    residual = data.residual(weight) + ridge.reshape(-1, 1, 1) * weight + penalty.unsqueeze(-1) * unit
    bend = None
    if weight.shape[-1] > 1:
        across = torch.eye(weight.shape[-1]).to(weight) - unit.unsqueeze(-1) * unit.unsqueeze(-2)
        bend = (penalty.detach().unsqueeze(-1) / length).unsqueeze(-1) * across
    return attach(weight, residual, curvature, active, bend)


def duality_gap(gram: Tensor, moment: Tensor, square: Tensor, penalty: Tensor, weight: Tensor) -> Tensor:
    r"""Primal minus dual value of every task.

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
    """
    gradient = moment - gram @ weight
    fitted, left = (moment * weight).sum((1, 2)), (gradient * weight).sum((1, 2))
    rest, along = square - fitted - left, square - fitted
    pull = gradient.norm(dim=-1)
    limit = torch.where(pull > penalty, penalty / pull.clamp(min=1e-300), torch.ones_like(pull)).amin(1)
    scale = torch.where(rest > 0, torch.minimum(limit, (along / rest.clamp(min=1e-300)).clamp(min=0)), limit)
    norms = (penalty * weight.norm(dim=-1)).sum(1)
    return (rest / 2 + norms - scale * along + scale**2 * rest / 2).clamp(min=0)


def _descend(
    gram: Tensor, moment: Tensor, square: Tensor, penalty: Tensor, weight: Tensor, tol: float, max_sweeps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Block coordinate descent over all unfinished tasks; what has finished leaves the batch."""
    gaps = torch.zeros_like(square)
    sweeps = torch.zeros(len(square), dtype=torch.int64, device=square.device)
    weight[square <= 0] = 0
    open_ = (square > 0).nonzero()[:, 0]
    scalar = moment.shape[-1] == 1
    every = 4 if scalar else 10
    sweep = 0
    while len(open_) and sweep < max_sweeps:
        g, q, s, lam, w = gram[open_], moment[open_], square[open_], penalty[open_], weight[open_]
        for _ in range(every):
            _sweep(g, q, lam, w)
        sweep += every
        if scalar:
            w = _finish(g, q, lam, w)
        gap = duality_gap(g, q, s, lam, w)
        weight[open_], gaps[open_] = w, gap
        sweeps[open_] = sweep
        open_ = open_[gap > max(tol, 1e-13) * s / 2]
    return weight, gaps, sweeps


def _sweep(gram: Tensor, moment: Tensor, penalty: Tensor, weight: Tensor) -> None:
    """Every block in turn to its minimum, in place."""
    own = gram.diagonal(dim1=1, dim2=2)
    safe = own.clamp(min=1e-300)
    for j in range(weight.shape[1]):
        free = moment[:, j] - (gram[:, j].unsqueeze(1) @ weight)[:, 0] + own[:, j, None] * weight[:, j]
        norm = free.norm(dim=-1)
        factor = (1 - penalty[:, j] / norm.clamp(min=1e-300)).clamp(min=0) / safe[:, j]
        weight[:, j] = torch.where((own[:, j] > 0)[:, None], factor[:, None] * free, torch.zeros_like(free))


def _finish(gram: Tensor, moment: Tensor, penalty: Tensor, weight: Tensor) -> Tensor:
    """The optimum on the present signs where it keeps them, else as far towards it as they allow."""
    sign = weight.sign()
    target = solve_active(gram, moment - penalty.unsqueeze(-1) * sign, (sign != 0)[..., 0])
    crossing = (sign != 0) & (target * sign <= 0)
    share = torch.where(
        crossing, weight / torch.where(crossing, weight - target, torch.ones_like(weight)), 1.0
    )
    step = share.amin((1, 2), keepdim=True).clamp(0, 1)
    moved = weight + step * (target - weight)
    return torch.where(crossing & (share <= step), torch.zeros_like(moved), moved)
