r"""Spike and slab of a decoder's weights, in torch: densities, P(slab | w), draws.

.. math:: w_{jk} \sim \eta_k\, \psi_1 + (1 - \eta_k)\, \psi_0

Both Laplace or both normal, the spike narrow (`MixtureDensity`), or any two (`user_density.py`). `weight.py`
has the same two in units of the slab, with what a normal likelihood makes of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import logsigmoid

from .weight import Slabs, SpikeSlab

__all__ = ["MixtureDensity", "WeightDensity"]


class WeightDensity:
    """A spike and a slab, as chains ask for them; `stand_in` are the two that they propose from."""

    @property
    def stand_in(self) -> MixtureDensity:
        raise NotImplementedError

    def log_slab(self, w: Tensor) -> Tensor:
        """log density of the slab."""
        raise NotImplementedError

    def log_spike(self, w: Tensor) -> Tensor:
        """log density of the spike."""
        raise NotImplementedError

    def log_prob(self, w: Tensor, log_odds: Tensor, must: Tensor) -> Tensor:
        """log of the mixture; of the slab where there must be an edge."""
        slab = self.log_slab(w)
        spike = self.log_spike(w) + logsigmoid(-log_odds)
        return torch.where(must, slab, torch.logaddexp(slab + logsigmoid(log_odds), spike))

    def edge(self, w: Tensor, log_odds: Tensor, must: Tensor | None = None) -> Tensor:
        """P(slab | w); 1 where there must be an edge."""
        p = torch.sigmoid(log_odds + self.log_slab(w) - self.log_spike(w))
        return p if must is None else p.masked_fill(must, 1.0)

    def energy(self, w: Tensor, edge: Tensor) -> tuple[Tensor, Tensor]:
        """Minus log density given the edges, up to a constant, and its slope."""
        raise NotImplementedError

    def in_slabs(self) -> Slabs:
        """The same two, in units of the stand-in's slab."""
        raise NotImplementedError

    def slab_nodes(self, n: int) -> np.ndarray:
        """Midpoints of n equally likely intervals of the slab."""
        raise NotImplementedError

    def spike_nodes(self, n: int) -> np.ndarray:
        """Of the spike."""
        raise NotImplementedError

    def drawn(self, edge: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A weight for each of these edges (bool)."""
        raise NotImplementedError


@dataclass(frozen=True)
class MixtureDensity(WeightDensity):
    """Spike and slab of a weight: Laplace or normal, with these scales."""

    laplace: bool
    slab: float
    spike: float

    @property
    def stand_in(self) -> MixtureDensity:
        return self

    def log_density(self, w: Tensor, scale: float) -> Tensor:
        """log of the density with this scale."""
        u = w / scale
        if self.laplace:
            return -u.abs() - math.log(2 * scale)
        return -0.5 * u**2 - math.log(scale * math.sqrt(2 * math.pi))

    def log_slab(self, w: Tensor) -> Tensor:
        return self.log_density(w, self.slab)

    def log_spike(self, w: Tensor) -> Tensor:
        return self.log_density(w, self.spike)

    def energy(self, w: Tensor, edge: Tensor) -> tuple[Tensor, Tensor]:
        scale = torch.where(edge, self.slab, self.spike).to(w)
        unit = w / scale
        energy, pull = (unit.abs(), unit.sign()) if self.laplace else (0.5 * unit**2, unit)
        return energy, pull / scale

    def in_slabs(self) -> SpikeSlab:
        return SpikeSlab(self.laplace, np.array(self.spike / self.slab))

    def slab_nodes(self, n: int) -> np.ndarray:
        return self.slab * self._quantiles(n)

    def spike_nodes(self, n: int) -> np.ndarray:
        return self.spike * self._quantiles(n)

    def drawn(self, edge: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.draw(edge.shape, rng) * np.where(edge, self.slab, self.spike)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws with scale 1."""
        return rng.laplace(size=shape) if self.laplace else rng.standard_normal(shape)

    def _quantiles(self, n: int) -> np.ndarray:
        p = (np.arange(n) + 0.5) / n
        return stats.laplace.ppf(p) if self.laplace else stats.norm.ppf(p)
