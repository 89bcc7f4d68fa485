r"""Sweeps and Newton steps for many sparse regressions at once, in tensors: for any device, without numba.

Row j of every task moves to its minimum at once, in a batch,

.. math:: W_{j:} \leftarrow \Big(1 - \frac{\lambda_j}{\lVert V_j \rVert}\Big)_+ \frac{V_j}{G_{jj}},
          \qquad V_j = (Q - GW)_{j:} + G_{jj} W_{j:},

then Newton steps solve the equations on the support, as in `_compiled.py`. Finished tasks leave the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .implicit import solve_flagged

__all__ = ["ROUNDING", "TINY", "curve", "descend", "gap"]

ROUNDING = 1e-13  # relative gap that rounding leaves
TINY = 1e-300  # in place of zero where it divides
_SWEEPS, _FINISHES = 4, 8  # of a round
_SHARES = (0.03, 0.1, 0.3, 1.0)  # of a Newton step


def gap(moment: Tensor, square: Tensor, penalty: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    """Primal minus dual value; gradient is moment - gram @ weight."""
    fitted, left = (moment * weight).sum((1, 2)), (gradient * weight).sum((1, 2))
    residual, along = square - fitted - left, square - fitted
    pull = gradient.norm(dim=-1)
    limit = torch.where(pull > 0, penalty / pull, torch.inf).amin(1)
    scale = torch.minimum(limit, torch.where(residual > 0, (along / residual).clamp(min=0), 1.0))
    norms = (penalty * weight.norm(dim=-1)).sum(1)
    return (residual / 2 + norms - scale * along + scale**2 * residual / 2).clamp(min=0)


def descend(
    gram: Tensor, moment: Tensor, square: Tensor, penalty: Tensor, weight: Tensor, tol: float, max_sweeps: int
) -> tuple[Tensor, Tensor]:
    """Sweeps and finishes of all unfinished tasks, in place; what has finished leaves the batch."""
    gaps, lowest = torch.zeros_like(square), torch.full_like(square, torch.inf)
    sweeps = torch.zeros(len(square), dtype=torch.int64, device=square.device)
    weight[square <= 0] = 0
    open_ = (square > 0).nonzero()[:, 0]
    sweep = 0
    while len(open_) and sweep < max_sweeps:
        g, q, s, lam, w = gram[open_], moment[open_], square[open_], penalty[open_], weight[open_]
        for _ in range(_SWEEPS):
            _sweep(g, q, lam, w)
        sweep += _SWEEPS
        for _ in range(_FINISHES):
            w = _finish(g, q, s, lam, w)
        gradient = q - g @ w
        missing, value = gap(q, s, lam, w, gradient), _value(q, lam, w, gradient)
        fell = value < lowest[open_]
        weight[open_], gaps[open_], sweeps[open_], lowest[open_] = w, missing, sweep, value
        open_ = open_[(missing > tol * s / 2) | fell & ~_settled(g, q, lam, w, gradient)]
    return gaps, sweeps


def _value(moment: Tensor, penalty: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    """The objective, up to half the square."""
    return (penalty * weight.norm(dim=-1)).sum(1) - 0.5 * ((moment + gradient) * weight).sum((1, 2))


def _settled(gram: Tensor, moment: Tensor, penalty: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    """Whether no row outside of the support wants to enter, to rounding."""
    column_norm, norm = gram.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt(), weight.norm(dim=-1)
    slack = ROUNDING * (moment.norm(dim=-1) + column_norm * (column_norm * norm).sum(1, keepdim=True))
    return ((norm > 0) | (gradient.norm(dim=-1) <= penalty + slack)).all(1)


def _sweep(gram: Tensor, moment: Tensor, penalty: Tensor, weight: Tensor) -> None:
    """Every row in turn to its minimum, in place."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    safe = diagonal.clamp(min=TINY)
    for j in range(weight.shape[1]):
        free = moment[:, j] - (gram[:, j].unsqueeze(1) @ weight)[:, 0] + diagonal[:, j, None] * weight[:, j]
        norm = free.norm(dim=-1)
        factor = (1 - penalty[:, j] / norm.clamp(min=TINY)).clamp(min=0) / safe[:, j]
        weight[:, j] = torch.where(
            (diagonal[:, j] > 0)[:, None], factor[:, None] * free, torch.zeros_like(free)
        )


def _finish(gram: Tensor, moment: Tensor, square: Tensor, penalty: Tensor, weight: Tensor) -> Tensor:
    """A Newton step on the support, or as much of it as lowers the objective.

    With one output it leads to the optimum there or to the first change of a sign. Where columns depend on
    each other so that no step solves the equations, what it leaves of them is a direction in which only the
    penalty changes: down, until one weight is zero.
    """
    gradient = moment - gram @ weight
    active, unit, bend = curve(weight, penalty)
    wanted = (gradient - penalty.unsqueeze(-1) * unit) * active.unsqueeze(-1)
    step, singular = solve_flagged(gram, wanted, active, bend)
    if bend is None:
        missing = (wanted - gram @ step) * active.unsqueeze(-1)
        stuck = (missing.abs().amax((1, 2)) > 1e-9 * penalty.amax(1)) & singular
        stuck = stuck.reshape(-1, 1, 1)
        step = torch.where(stuck, missing, step)
        towards = weight * step < 0
        share = torch.where(towards, -weight / torch.where(towards, step, 1.0), torch.inf)
        least = torch.minimum(share.amin((1, 2), keepdim=True), torch.where(stuck, torch.inf, 1.0))
        least = torch.where(least.isfinite(), least, 0.0)
        trials = [torch.where(towards & (share <= least), 0.0, weight + least * step)]
    else:
        trials = [weight + share * step for share in _SHARES]
    best, value, slack = weight, _value(moment, penalty, weight, gradient), ROUNDING * square
    for trial in trials:
        after = _value(moment, penalty, trial, moment - gram @ trial)
        fine = after <= value + slack
        best = torch.where(fine.reshape(-1, 1, 1), trial, best)
        value = torch.where(fine, after, value)
    return best


def curve(weight: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The support, the gradient of the norms there, and with several outputs the penalty's curvature."""
    if weight.shape[-1] == 1:
        return (weight != 0)[..., 0], weight.sign(), None
    norm = weight.norm(dim=-1, keepdim=True)
    length = torch.where(norm > 0, norm, torch.ones_like(norm))
    unit = weight / length
    across = torch.eye(weight.shape[-1]).to(weight) - unit.unsqueeze(-1) * unit.unsqueeze(-2)
    return norm[..., 0] > 0, unit, (penalty.unsqueeze(-1) / length).unsqueeze(-1) * across
