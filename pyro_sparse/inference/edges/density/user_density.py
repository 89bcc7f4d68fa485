r"""Spike and slab of a prior of one's own: any two densities around zero, known by their logarithms only.

.. math:: w_{jk} \sim \eta_k\, p_1 + (1 - \eta_k)\, p_0

Chains propose from a *stand-in*, two Laplace densities whose weights have the same median sizes, for which
everything is in closed form (`weight.py`), and a Metropolis step puts right what the two differ in. Only
what is asked seldom (the evidence of an anchor or of a forbidden edge) is integrated on a grid.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import integrate
from scipy.special import expit, logsumexp
from torch import Tensor
from torch.distributions import Distribution, Laplace, Normal

from ...._utils.torch_state import default_dtype
from .mixture import MixtureDensity, WeightDensity
from .weight import Component, SpikeSlab, Tilted, blended

if TYPE_CHECKING:
    from ....priors import SpikeSlabPrior

__all__ = ["UserDensity", "UserSlabs", "density_of"]

Array = NDArray[np.float64]

_LOG_SIZES = np.linspace(-69, 69, 16_001)  # of a weight, 1e-30 to 1e30, where its density is tabulated
_SEEN = -600.0  # log densities below are zero
_EVEN = 1e-4  # largest difference of log densities at w and -w
_LOST = 1e-3  # mass that may be missing from the table
_NODES = 300  # quantiles at which a density is integrated
_DIFFERENCE = 1e-4  # share of a weight, or of the spike's scale, between two values that a slope is taken of
_AROUND = np.linspace(-8, 8, 81)  # and places around the likelihood's mode, in its standard deviations
_BETWEEN = np.linspace(0, 1, 102)[1:-1]  # and on the way there from zero


def density_of(prior: SpikeSlabPrior) -> MixtureDensity | UserDensity:
    """The density of a prior's weights at the end of its ladder, from its `components`.

    Raises
    ------
    ValueError
        A component has parameters that differ between weights, is not symmetric around zero, or does not
        integrate to one.
    """
    final = copy.deepcopy(prior)
    final.anneal(1.0)
    with torch.no_grad(), default_dtype(torch.float64):
        components = cast("tuple[Distribution, Distribution]", final.components())
        named = dict(zip(("slab", "spike"), components, strict=True))
        for name, component in named.items():
            if component.batch_shape.numel() != 1:
                raise ValueError(
                    f"prior: the {name} of {type(prior).__name__}.components() has shape "
                    f"{tuple(component.batch_shape)}; Markov chains want the same two densities for all "
                    "weights"
                )
        for family in (Laplace, Normal):
            if all(isinstance(component, family) and not component.mean.any() for component in components):
                return MixtureDensity(
                    family is Laplace,
                    *(cast("Laplace | Normal", component).scale.item() for component in components),
                )
        tables = [
            _Table.of(component, f"{name} of {type(prior).__name__}") for name, component in named.items()
        ]
    return UserDensity(*tables)


@dataclass(frozen=True, eq=False)
class _Table:
    """A density of a number, symmetric around zero, and the distribution of its size."""

    component: Distribution
    below: Array  # P(|w| < size), at the sizes of the table

    @classmethod
    def of(cls, distribution: Distribution, name: str) -> _Table:
        size = np.exp(_LOG_SIZES)
        right, left = (_log_prob(distribution, sign * torch.as_tensor(size)).numpy() for sign in (1, -1))
        positive = np.maximum(right, left) > _SEEN
        if (
            not np.isfinite(right[positive]).all()
            or not (np.abs(right[positive] - left[positive]) < _EVEN).all()
        ):
            raise ValueError(f"prior: the {name} is not symmetric around zero, which Markov chains count on")
        mass = 2 * np.exp(right) * size
        below = integrate.cumulative_simpson(mass, x=_LOG_SIZES, initial=0)
        if abs(below[-1] - 1) > _LOST:
            raise ValueError(
                f"prior: the {name} has a total mass of {below[-1]:.4g}, wanted a density of mass 1 and no "
                "point at zero"
            )
        return cls(distribution, np.clip(np.maximum.accumulate(below) / below[-1], 0, 1))

    def log_prob(self, w: Tensor) -> Tensor:
        return _log_prob(self.component, w)

    def quantile(self, p: Array) -> Array:
        """Of w, not of its size."""
        upper = np.maximum(p, 1 - p)
        first = np.concatenate([[True], np.diff(self.below) > 0])
        log_size = np.interp(2 * upper - 1, self.below[first], _LOG_SIZES[first])
        return np.sign(p - 0.5) * np.exp(log_size)


def _log_prob(distribution: Distribution, w: Tensor) -> Tensor:
    """NaN for weights that a step has sent away, of which a density would complain."""
    here = torch.isfinite(w)
    flat = torch.where(here, w, 0.0).reshape(-1, *[1] * len(distribution.batch_shape))
    return torch.where(here, distribution.log_prob(flat).reshape(w.shape), torch.nan)


@dataclass(frozen=True, eq=False)
class UserDensity(WeightDensity):
    """Two tabulated densities.

    Attributes
    ----------
    slab_table, spike_table : _Table
        Slab and spike.
    """

    slab_table: _Table
    spike_table: _Table

    @cached_property
    def stand_in(self) -> MixtureDensity:
        # The median size of a Laplace weight is log 2 times its scale.
        slab, spike = (
            float(t.quantile(np.array(0.75))) / np.log(2) for t in (self.slab_table, self.spike_table)
        )
        return MixtureDensity(True, slab, spike)

    def log_slab(self, w: Tensor) -> Tensor:
        return self.slab_table.log_prob(w)

    def log_spike(self, w: Tensor) -> Tensor:
        return self.spike_table.log_prob(w)

    def energy(self, w: Tensor, edge: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            at = w.detach().requires_grad_()
            level = -torch.where(edge, self.log_slab(at), self.log_spike(at))
            (slope,) = torch.autograd.grad(level.sum(), at)
        return level.detach().to(w), slope

    def in_slabs(self) -> UserSlabs:
        return UserSlabs(self)

    def slab_nodes(self, n: int) -> Array:
        return self.slab_table.quantile((np.arange(n) + 0.5) / n)

    def spike_nodes(self, n: int) -> Array:
        return self.spike_table.quantile((np.arange(n) + 0.5) / n)

    def drawn(self, edge: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        p = rng.random(edge.shape)
        return np.where(edge, self.slab_table.quantile(p), self.spike_table.quantile(p))


@dataclass(frozen=True, eq=False)
class UserSlabs:
    """The same two, in units of the stand-in's slab, with the methods of `SpikeSlab`."""

    density: UserDensity

    @cached_property
    def stand_in(self) -> SpikeSlab:
        return self.density.stand_in.in_slabs()

    @property
    def unit(self) -> float:
        return self.density.stand_in.slab

    @property
    def laplace(self) -> bool:
        return self.stand_in.laplace

    @property
    def ratio(self) -> Array:
        return self.stand_in.ratio

    def log_density(self, u: Array) -> Array:
        """log density of the slab."""
        return self._log(self.density.slab_table, u)

    def log_spike(self, u: Array) -> Array:
        """log density of the spike."""
        return self._log(self.density.spike_table, u)

    def log_prob(self, u: Array, log_odds: Array) -> Array:
        slab = self.log_density(u) - np.logaddexp(0, -log_odds)
        return np.logaddexp(slab, self.log_spike(u) - np.logaddexp(0, log_odds))

    def sloped(self, u: Array, log_odds: Array) -> tuple[Array, Array]:
        """log of the mixture, and about its derivative: a slope for proposals."""
        step = _DIFFERENCE * (np.abs(u) + float(np.max(self.ratio)))
        rise = self.log_prob(u + step, log_odds) - self.log_prob(u - step, log_odds)
        return self.log_prob(u, log_odds), rise / (2 * step)

    def excess(self, u: Array, log_odds: Array) -> Array:
        """log of the mixture, less that of the stand-in's."""
        return self.log_prob(u, log_odds) - self.stand_in.log_prob(u, log_odds)

    def stepped(
        self, a: Array, b: Array, log_odds: Array, now: Array, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_], Array]:
        """A proposal of the stand-in, taken or not."""
        new, _, _ = self.stand_in.stepped(a, b, log_odds, now, rng)
        gain = self.excess(new, log_odds) - self.excess(now, log_odds)
        accept = np.exp(np.minimum(gain, 0))
        u = np.where(rng.random(a.shape) < accept, new, now)
        stay, go, p = (
            expit(log_odds + self.log_density(w) - self._log(self.density.spike_table, w))
            for w in (now, new, u)
        )
        return u, rng.random(a.shape) < p, (1 - accept) * stay + accept * go

    @property
    def closed_form(self) -> bool:
        """No: integrals are sums over a grid."""
        return False

    def log_norms(self, a: Array, b: Array) -> tuple[Array, Array]:
        slab, spike = self.density.slab_table, self.density.spike_table
        return self._integrated(slab, a, b).log_norm, self._integrated(spike, a, b).log_norm

    def slab(self, a: Array, b: Array) -> Component:
        return self._integrated(self.density.slab_table, a, b)

    def tilted(self, a: Array, b: Array, log_odds: Array) -> Tilted:
        nonzero, zero = (
            self._integrated(table, a, b) for table in (self.density.slab_table, self.density.spike_table)
        )
        return blended(nonzero, zero, log_odds)

    def draw(self, a: Array, b: Array, edge: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        """Weights given the edges, up to the grid's fineness."""
        u = rng.random(edge.shape)
        slab, spike = (
            self._inverse(table, a, b, u) for table in (self.density.slab_table, self.density.spike_table)
        )
        return np.where(edge, slab, spike)

    def _log(self, table: _Table, u: Array) -> Array:
        with torch.no_grad():
            log_density = table.log_prob(torch.as_tensor(u * self.unit)).numpy()
        return log_density + np.log(self.unit)

    def _grid(self, table: _Table, a: Array, b: Array) -> tuple[Array, Array]:
        """Points (..., point) and the log of density and likelihood there."""
        a, b = np.broadcast_arrays(np.maximum(a, 1e-9), b)
        fixed = table.quantile((np.arange(_NODES) + 0.5) / _NODES) / self.unit
        tail = table.quantile(np.array([1e-8, 1e-6, 1e-4, 1 - 1e-4, 1 - 1e-6, 1 - 1e-8])) / self.unit
        mode = (b / a)[..., None]
        near, between = mode + _AROUND / np.sqrt(a)[..., None], mode * _BETWEEN
        far = np.broadcast_to(np.concatenate([fixed, tail]), (*a.shape, _NODES + len(tail)))
        point = np.sort(np.concatenate([near, between, far], -1), -1)
        return point, self._log(table, point) - 0.5 * a[..., None] * point**2 + b[..., None] * point

    def _integrated(self, table: _Table, a: Array, b: Array) -> Component:
        point, level = self._grid(table, a, b)
        step = np.diff(point, axis=-1)
        ends = np.concatenate([step[..., :1], step[..., 1:] + step[..., :-1], step[..., -1:]], -1)
        with np.errstate(divide="ignore"):
            weight = level + np.log(ends / 2)
        log_norm = logsumexp(weight, axis=-1)
        share = np.exp(weight - log_norm[..., None])
        mean = (share * point).sum(-1)
        return Component(log_norm, mean, (share * (point - mean[..., None]) ** 2).sum(-1))

    def _inverse(self, table: _Table, a: Array, b: Array, u: Array) -> Array:
        point, level = self._grid(table, a, b)
        height = np.exp(level - level.max(-1, keepdims=True))
        below = integrate.cumulative_trapezoid(height, point, axis=-1, initial=0)
        wanted = u * below[..., -1]
        after = np.clip((below < wanted[..., None]).sum(-1), 1, point.shape[-1] - 1)[..., None]
        (x0, x1), (c0, c1) = (
            (np.take_along_axis(v, after - 1, -1)[..., 0], np.take_along_axis(v, after, -1)[..., 0])
            for v in (point, below)
        )
        return x0 + (x1 - x0) * (wanted - c0) / np.maximum(c1 - c0, 1e-300)
