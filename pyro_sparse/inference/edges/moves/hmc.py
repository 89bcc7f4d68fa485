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

    position: Tensor
    accept: Tensor


def hmc(
    energy: Callable[[Tensor], tuple[Tensor, Tensor]],
    position: Tensor,
    step: Tensor,
    n_steps: int,
    rng: np.random.Generator,
) -> Moved:
    """One trajectory for each element of the batch.

    Parameters
    ----------
    energy : callable
        Positions to U, of the batch's shape, and its gradient, of the positions'; elements must not depend on
        one another.
    position : Tensor (*batch, dimension)
    step : Tensor of the batch's shape
        Leapfrog step sizes.
    n_steps : int
    rng : numpy.random.Generator

    Returns
    -------
    Moved
    """
    e = step.unsqueeze(-1)
    p = torch.as_tensor(rng.standard_normal(position.shape, dtype=np.float32)).to(position)
    before, gradient = energy(position)
    start = before + 0.5 * p.square().sum(-1)
    at = position
    p = p - 0.5 * e * gradient
    for i in range(n_steps):
        at = at + e * p
        after, gradient = energy(at)
        p -= (e if i + 1 < n_steps else 0.5 * e) * gradient
    gain = start - after - 0.5 * p.square().sum(-1)
    accept = gain.clamp(max=0).exp().nan_to_num(0.0).to(position)  # no number where the trajectory diverged
    yes = torch.as_tensor(rng.random(tuple(step.shape))).to(accept) < accept
    return Moved(torch.where(yes.unsqueeze(-1), at, position), accept)


def adapted(step: Tensor, accept: Tensor, wanted: float = 0.8, speed: float = 0.15) -> Tensor:
    """Step sizes moved towards the wanted acceptance rate; for the warm-up only."""
    return (step * torch.exp(speed * (accept - wanted))).clamp(1e-5, 2.0)
