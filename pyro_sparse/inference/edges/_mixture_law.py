r"""Spike and slab of a decoder's weights, in torch: densities, P(slab | w), draws.

.. math:: w_{jk} \sim \eta_k\, \psi_1 + (1 - \eta_k)\, \psi_0

Both Laplace or both normal, the spike narrow. `_weight.py` has the same two in units of the slab, with what a
normal likelihood makes of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import logsigmoid

from ._weight import SpikeSlab

__all__ = ["MixtureLaw"]


@dataclass(frozen=True)
class MixtureLaw:
    """Spike and slab of a weight: Laplace or normal, with these scales."""

    laplace: bool
    slab: float
    spike: float

    def log_density(self, w: Tensor, scale: float) -> Tensor:
        """log of the density with this scale."""
        u = w / scale
        if self.laplace:
            return -u.abs() - math.log(2 * scale)
        return -0.5 * u**2 - math.log(scale * math.sqrt(2 * math.pi))

    def log_prob(self, w: Tensor, log_odds: Tensor, must: Tensor) -> Tensor:
        """log of the mixture; of the slab where there must be an edge."""
        slab = self.log_density(w, self.slab)
        spike = self.log_density(w, self.spike) + logsigmoid(-log_odds)
        return torch.where(must, slab, torch.logaddexp(slab + logsigmoid(log_odds), spike))

    def edge(self, w: Tensor, log_odds: Tensor, must: Tensor | None = None) -> Tensor:
        """P(slab | w); 1 where there must be an edge."""
        p = torch.sigmoid(log_odds + self.log_density(w, self.slab) - self.log_density(w, self.spike))
        return p if must is None else p.masked_fill(must, 1.0)

    def in_slabs(self) -> SpikeSlab:
        """The same two, in units of the slab's scale."""
        return SpikeSlab(self.laplace, np.array(self.spike / self.slab))

    def quantiles(self, n: int) -> np.ndarray:
        """Midpoints of n equally likely intervals, scale 1."""
        p = (np.arange(n) + 0.5) / n
        return stats.laplace.ppf(p) if self.laplace else stats.norm.ppf(p)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws with scale 1."""
        return rng.laplace(size=shape) if self.laplace else rng.standard_normal(shape)
