"""The search for sparse axes: many maps at once go down a smooth count of edges, each at its own rate.

Transitions and decoders (`jacobian_axes.py`) and tasks (`multitask/task_axes.py`) count other things.
"""

from __future__ import annotations

from typing import Protocol

import torch

__all__ = ["Slope", "descend"]


class Slope(Protocol):
    """What the descent asks of a problem."""

    def gradient(self, maps: torch.Tensor, kind: str, epsilon: float) -> torch.Tensor:
        """Of the number of edges ("count"), or of the sum of logarithms ("log"), by the maps."""


def descend(
    problem: Slope,
    maps: torch.Tensor,
    kind: str,
    epsilon: float,
    steps: int,
    rate: torch.Tensor | float,
    barrier: float | None = None,
) -> torch.Tensor:
    """Adam on rotations (tangents are skew matrices) or, with a barrier, on maps with unit rows.

    Parameters
    ----------
    problem : Slope
    maps : Tensor (restart, d, d)
        To begin with.
    kind : {"log", "count"}
    epsilon : float
        Smoothing constant.
    steps : int
    rate : Tensor (restart, 1, 1) or float
        Of the first step; it falls to zero.
    barrier : float, optional
        What a determinant smaller by a factor e costs.

    Returns
    -------
    Tensor (restart, d, d)
    """
    mean = torch.zeros_like(maps)
    square = torch.zeros_like(maps)
    for step in range(steps):
        slope = problem.gradient(maps, kind, epsilon)
        if barrier is not None:
            if barrier:
                # less the slope of log|det|
                slope = slope - barrier * torch.linalg.inv(maps).mT
            # rows have length 1: no step along them
            slope = slope - (slope * maps).sum(-1, keepdim=True) * maps
        else:
            slope = slope @ maps.mT
            slope = slope - slope.mT
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope**2
        size = (square / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
        move = -rate * (1 - step / steps) * (mean / (1 - 0.9 ** (step + 1))) / size
        maps = (
            torch.nn.functional.normalize(maps + move, dim=-1)
            if barrier is not None
            else torch.linalg.matrix_exp(move) @ maps
        )
    return maps
