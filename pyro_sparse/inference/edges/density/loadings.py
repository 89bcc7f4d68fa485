r"""The log-likelihood of a feature's loading on one factor, all else held: what moves ask of it.

Under normal noise it is a parabola, and integrals over slab and spike are in closed form (`Parabola`). Under
any other likelihood three looks at the cells, at the mode and three standard deviations to either side, give
values, slopes and bends, and these a polynomial of degree eight (Hermite's interpolation), right to some
thousandths between them (`Curve`); beyond, it goes on as a parabola. The slab is integrated over a grid, as a
piecewise linear density, from which loadings can be drawn; the spike, which is narrow, under the parabola at
its place. Either is a proposal whose density is known: what it lacks is `excess`.

Units: the slab's scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .cells import Cells
from .weight import Slabs

__all__ = ["Curve", "LoadingLikelihood", "Parabola", "Shape", "projected", "slopes_along"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
ENDS = 3.0  # standard deviations from the mode to where cells are looked at
NODES = np.linspace(-6.0, 6.0, 31)  # standard deviations from the mode: where the slab is integrated
LEAST_BEND = 0.01  # of the bend at the mode, so that a spike's parabola has an integral
WIDE = 1 / 9  # precision, in the slab's units, that keeps the mode within sight of the slab
TINY = 1e-300  # added to what is divided by, or has a logarithm
FARTHEST = 3.0  # that a step towards the mode moves the predictor of a cell


def projected(f: Tensor, z: Tensor, unit: Tensor | float) -> Tensor:
    """What all that is predicted (chain, feature, row) loads on a factor (chain, row): (chain, feature)."""
    square = z.double().square().sum(-1, keepdim=True).clamp(min=1e-30)
    return torch.linalg.vecdot(f, z.to(f).unsqueeze(-2)) / (square * _of_features(unit, f))


def slopes_along(slope: Tensor, bend: Tensor, z: Tensor, unit: Tensor | float) -> tuple[Tensor, Tensor]:
    """Slope and minus the second derivative in loadings, of those in f (chain, feature, row), float64."""
    by, scale = z.to(slope).unsqueeze(-2), _of_features(unit, slope)
    vecdot = torch.linalg.vecdot
    return vecdot(slope, by) * scale, vecdot(bend.to(by), by.square()) * scale**2


def _of_features(unit: Tensor | float, like: Tensor) -> Tensor:
    return torch.as_tensor(unit, device=like.device).double().reshape(-1)


class LoadingLikelihood(Protocol):
    """What a move that sums out loadings of one factor asks of their likelihood.

    Loadings are ``u - shift``: `shift` (any, chain, feature) moves the origin, for instance with an angle.
    """

    def log_norms(self, shift: Array, density: Slabs) -> tuple[Array, Array]:
        """log of the integrals of slab and spike under the likelihood, of the shape of `shift`."""
        ...

    def draw(self, shift: Array, edge: Bools, density: Slabs, rng: np.random.Generator) -> Array:
        """Loadings given the edges, `shift` (chain, feature)."""
        ...

    def excess(self, shift: Array, loading: Array, log_odds: Array, density: Slabs) -> Array | float:
        """log of likelihood and prior, less what `log_norms` integrate and `draw` draws from."""
        ...

    def translated(self, shift: Array) -> LoadingLikelihood:
        """The same of loadings whose origin has moved by this."""
        ...


class Parabola(NamedTuple):
    """exp(-a u^2 / 2 + b u), both (chain, feature)."""

    a: Array
    b: Array

    def log_norms(self, shift: Array, density: Slabs) -> tuple[Array, Array]:
        """As in `LoadingLikelihood`."""
        a, b = self
        slab, spike = density.log_norms(a, b - shift * a)
        level = shift * (b - 0.5 * shift * a)
        return slab + level, spike + level

    def draw(self, shift: Array, edge: Bools, density: Slabs, rng: np.random.Generator) -> Array:
        """As in `LoadingLikelihood`."""
        return density.draw(self.a, self.b - shift * self.a, edge, rng)

    def excess(self, shift: Array, loading: Array, log_odds: Array, density: Slabs) -> float:
        """Nothing: integrals and draws are exact."""
        return 0.0

    def translated(self, shift: Array) -> Parabola:
        """As in `LoadingLikelihood`."""
        return Parabola(self.a, self.b - shift * self.a)


@dataclass(frozen=True, eq=False)
class Shape:
    """A log-likelihood about its mode.

    Parameters
    ----------
    sd : ndarray (chain, feature)
        Where the grid lies.
    power : ndarray (9, chain, feature)
        Coefficients of the polynomial in (u - mode) / (3 sd).
    end : ndarray (3, side, chain, feature)
        Value, slope and bend at -1 and 1.
    """

    sd: Array
    power: Array
    end: Array

    @cached_property
    def likelihood(self) -> Array:
        """At the nodes, (chain, feature, node)."""
        slope, bend = self.end[1:, (NODES > 0).astype(np.intp)]  # (node, chain, feature)
        level = np.tensordot(_INSIDE, self.power, 1) + _BEYOND * (slope - 0.5 * bend * _BEYOND)
        return np.exp(np.minimum(np.moveaxis(level, 0, -1), 50.0))

    def expanded(self, away: Array) -> tuple[Array, Array, Array]:
        """Value, slope and bend so far from the mode (any, chain, feature)."""
        width = ENDS * self.sd
        t = away / width
        inside = np.clip(t, -1.0, 1.0)
        value, slope, half_bend = np.zeros_like(t), np.zeros_like(t), np.zeros_like(t)
        for coefficient in self.power[::-1]:
            half_bend = half_bend * inside + slope
            slope = slope * inside + value
            value = value * inside + coefficient
        beyond = t - inside
        bend = -2 * half_bend
        if beyond.any():
            _, end_slope, end_bend = (np.where(t > 0, self.end[n, 1], self.end[n, 0]) for n in range(3))
            value = value + beyond * (end_slope - 0.5 * end_bend * beyond)
            slope = np.where(beyond == 0, slope, end_slope - end_bend * beyond)
            bend = np.where(beyond == 0, bend, end_bend)
        return value, slope / width, bend / width**2


@dataclass(frozen=True, eq=False)
class Curve:
    """A likelihood of any shape that has a mode.

    Parameters
    ----------
    mode : ndarray (chain, feature)
    shape : Shape
    """

    mode: Array
    shape: Shape

    @classmethod
    def along(
        cls, cells: Cells, f: Tensor, terms: tuple[Tensor, ...], noise: Tensor, z: Tensor, loading: Array,
        unit: Tensor | float,
    ) -> Curve:  # fmt: skip
        """Of the loadings of a factor.

        Parameters
        ----------
        cells : Cells
        f : Tensor (chain, feature, row)
            Predictors now.
        terms : tuple of Tensor (chain, feature, row)
            log p of every cell at f, its slope and minus its second derivative.
        noise : Tensor (chain, feature)
        z : Tensor (chain, row)
            The factor.
        loading : ndarray (chain, feature)
            Now, in units of the slab.
        unit : Tensor (feature, 1) or float
            The slab's scale.
        """
        along = (unit * z.unsqueeze(1)).to(f)  # chain, feature or 1, row
        # Moves of a loading and of angles go from it to it, so that a density of it may keep the mode near.
        projection = projected(f, z, unit)

        def totals(terms: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
            return terms[0].sum(-1, dtype=torch.float64), *slopes_along(terms[1], terms[2], z, unit)

        def at(step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return totals(cells.expanded(torch.addcmul(f, step.unsqueeze(-1).to(f), along), noise))

        largest = along.abs().amax(-1).double()
        step, (_, slope, bend) = torch.zeros_like(projection), totals(terms)
        for _ in range(2):  # from wherever the loading is, so that the curve hardly depends on it
            newton = (slope - WIDE * (projection + step)) / (bend + WIDE)
            step = step + newton / (newton.abs() * largest / FARTHEST).clamp(min=1.0)
            middle = at(step)
            _, slope, bend = middle
        sd = (bend + WIDE).rsqrt()
        width = ENDS * sd
        sides = at(step - width), middle, at(step + width)
        values, slopes, bends = (torch.stack(each) for each in zip(*sides, strict=True))
        values = values - values[1]
        jets = torch.stack([values, slopes * width, -bends * width**2]).flatten(0, 1)
        power = torch.einsum("pj,j...->p...", torch.as_tensor(HERMITE).to(jets), jets)
        end = torch.stack([values, slopes * width, bends * width**2])[:, [0, 2]]
        shape = Shape(sd.cpu().numpy(), power.cpu().numpy(), end.cpu().numpy())
        return cls(loading + step.cpu().numpy(), shape)

    def log_likelihood(self, u: Array) -> Array:
        """Of loadings (any, chain, feature), up to a constant."""
        return self.shape.expanded(u - self.mode)[0]

    def log_norms(self, shift: Array, density: Slabs) -> tuple[Array, Array]:
        """As in `LoadingLikelihood`."""
        heights = self._slab_heights(shift, density)
        slab = np.log(heights @ WEIGHTS) + np.log(self.shape.sd)
        level, a, b = self._at_spike(shift)
        return slab, level + density.log_norms(a, b)[1]

    def draw(self, shift: Array, edge: Bools, density: Slabs, rng: np.random.Generator) -> Array:
        """As in `LoadingLikelihood`."""
        heights = self._slab_heights(shift, density)
        masses = np.cumsum(heights[..., :-1] + heights[..., 1:], -1)
        target = masses[..., -1:] * rng.random((*shift.shape, 1))
        interval = np.minimum((masses < target).sum(-1, keepdims=True), len(NODES) - 2)
        left, right = (np.take_along_axis(heights, interval + side, -1)[..., 0] for side in (0, 1))
        y = rng.random(shift.shape)  # of a density that goes from left to right in a straight line
        share = y * (left + right) / (left + np.sqrt(left**2 + y * (right**2 - left**2)))
        t = NODES[interval[..., 0]] + share * _STEP
        _, a, b = self._at_spike(shift)
        narrow = density.draw(a, b, np.zeros_like(edge), rng)
        return np.where(edge, self.mode + t * self.shape.sd - shift, narrow)

    def excess(self, shift: Array, loading: Array, log_odds: Array, density: Slabs) -> Array:
        """As in `LoadingLikelihood`."""
        yes, no = -np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds)
        u = loading + shift
        heights = self._slab_heights(shift, density)
        t = (u - self.mode) / self.shape.sd
        place = np.clip((t - NODES[0]) / _STEP, 0, len(NODES) - 1 - 1e-9)
        whole = place.astype(np.intp)[..., None]
        left, right = (np.take_along_axis(heights, whole + side, -1)[..., 0] for side in (0, 1))
        share = place - whole[..., 0]
        height = np.where(np.abs(t) <= NODES[-1], left + share * (right - left), 0.0)
        level, a, b = self._at_spike(shift)
        with np.errstate(divide="ignore"):
            drawn_slab = yes + np.log(height)
        spike = density.log_spike(loading)
        drawn_spike = no + spike + level + b * loading - 0.5 * a * loading**2
        prior = np.logaddexp(yes + density.log_density(loading), no + spike)
        excess: Array = self.log_likelihood(u) + prior - np.logaddexp(drawn_slab, drawn_spike)
        return excess

    def translated(self, shift: Array) -> Curve:
        """As in `LoadingLikelihood`."""
        return replace(self, mode=self.mode - shift)

    def _slab_heights(self, shift: Array, density: Slabs) -> Array:
        """Likelihood times slab at the nodes, (any, chain, feature, node); above zero."""
        loading = (self.mode - shift)[..., None] + NODES * self.shape.sd[..., None]
        return self.shape.likelihood * np.exp(density.log_density(loading)) + TINY

    def _at_spike(self, shift: Array) -> tuple[Array, Array, Array]:
        """Level, A and B of the parabola about a loading of zero."""
        level, slope, bend = self.shape.expanded(shift - self.mode)
        return level, np.maximum(bend, LEAST_BEND / self.shape.sd**2), slope


_STEP = float(NODES[1] - NODES[0])
WEIGHTS = np.full(len(NODES), _STEP)
WEIGHTS[[0, -1]] /= 2


# Of the nodes, in units of the ends: powers up to an end, and how far beyond it they are.
_INSIDE = np.clip(NODES / ENDS, -1.0, 1.0)[:, None] ** np.arange(9)
_BEYOND = (NODES / ENDS - np.clip(NODES / ENDS, -1.0, 1.0)).reshape(-1, 1, 1)


def _hermite() -> Array:
    """Coefficients of a polynomial of degree 8 from values, slopes and second derivatives at -1, 0, 1."""
    t, powers = np.array([-1.0, 0.0, 1.0]), np.arange(9)
    value = t[:, None] ** powers
    slope = powers * t[:, None] ** np.maximum(powers - 1, 0)
    second = powers * (powers - 1) * t[:, None] ** np.maximum(powers - 2, 0)
    inverse: Array = np.linalg.inv(np.concatenate([value, slope, second]))
    return inverse


HERMITE = _hermite()
