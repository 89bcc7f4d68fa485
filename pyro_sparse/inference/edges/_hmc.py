r"""Hamiltonian Monte Carlo for many independent targets at once, each with its own step size.

.. math:: p(x) \propto e^{-U(x)}, \qquad \dot x = p,\ \dot p = -\nabla U(x)

One call is one proposal for every element of the batch: leapfrog steps, then each is accepted or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Moved", "adapted", "hmc"]


class Moved(NamedTuple):
    """New positions, and the acceptance probability (batch) of each."""

    position: list[Tensor]
    accept: Tensor


def hmc(
    energy: Callable[[list[Tensor]], Tensor],
    position: list[Tensor],
    step: Tensor,
    n_steps: int,
    rng: np.random.Generator,
) -> Moved:
    """One trajectory for each element of the batch.

    Parameters
    ----------
    energy : callable
        Positions to U, of the batch's shape; elements must not depend on one another.
    position : list of Tensor
        Leading dimensions are the batch's.
    step : Tensor of the batch's shape
        Leapfrog step sizes.
    n_steps : int
    rng : numpy.random.Generator

    Returns
    -------
    Moved
    """
    n_batch = step.ndim
    batch = step.shape
    wide = [step.reshape(*batch, *[1] * (x.ndim - n_batch)) for x in position]

    def slope(at: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(True) for x in at]
            u = energy(leaves)
            return u.detach(), list(torch.autograd.grad(u.sum(), leaves))

    def kinetic(p: list[Tensor]) -> Tensor:
        return sum((q.reshape(*batch, -1) ** 2).sum(-1) for q in p) / 2  # type: ignore[return-value]

    momentum = [torch.as_tensor(rng.standard_normal(x.shape, dtype=np.float32)).to(x) for x in position]
    before, gradient = slope(position)
    start = before + kinetic(momentum)
    at = list(position)
    for _ in range(n_steps):
        momentum = [p - 0.5 * e * g for p, e, g in zip(momentum, wide, gradient, strict=True)]
        at = [x + e * p for x, e, p in zip(at, wide, momentum, strict=True)]
        after, gradient = slope(at)
        momentum = [p - 0.5 * e * g for p, e, g in zip(momentum, wide, gradient, strict=True)]
    gain = start - after - kinetic(momentum)
    accept = gain.clamp(max=0).exp().nan_to_num(0.0)
    yes = torch.as_tensor(rng.random(tuple(batch))).to(accept) < accept
    new = [
        torch.where(yes.reshape(*batch, *[1] * (x.ndim - n_batch)), moved, x)
        for x, moved in zip(position, at, strict=True)
    ]
    return Moved(new, accept)


def adapted(step: Tensor, accept: Tensor, wanted: float = 0.8, speed: float = 0.15) -> Tensor:
    """Step sizes moved towards the wanted acceptance rate; for the warm-up only."""
    return (step * torch.exp(speed * (accept - wanted))).clamp(1e-5, 2.0)
