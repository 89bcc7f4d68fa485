"""Log-likelihoods of loadings on one factor under any noise but normal, compiled where that is possible."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...._utils.arrays import COMPILED
from ....likelihoods._compiled_cells import loading_jets
from ._compiled_curve import drawn, interpolated, log_integrals
from .cells import Cells
from .loadings import ENDS, FARTHEST, HERMITE, LEAST_BEND, NODES, TINY, WEIGHTS, WIDE, Curve, Shape
from .weight import Slabs, SpikeSlab

__all__ = ["CompiledCurve", "loading_curve"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def loading_curve(
    cells: Cells, f: Tensor, terms: tuple[Tensor, ...], noise: Tensor, z: Tensor, loading: Array,
    unit: Tensor | float,
) -> Curve:  # fmt: skip
    """`Curve.along`, whose four looks at the cells are one call of levels of a logistic response."""
    cuts = cells.logistic_cuts
    if cuts is not None and f.device.type == "cpu":
        by = unit * z.unsqueeze(1)
        _, slope, bend = terms
        projection = (f * by).sum(-1).double() / by.square().sum(-1).double().clamp(min=1e-30)
        begun = (slope * by).double().sum(-1).numpy(), (bend * by.square()).double().sum(-1).numpy()
        jets = loading_jets(
            cells.whole(f), cells.x, cells.mask, cuts, begun, by.double().numpy(), projection.numpy(), WIDE,
            FARTHEST, ENDS,
        )  # fmt: skip
        if jets is not None:
            return _curve(*jets, loading)
    curve = Curve.along(cells, f, terms, noise, z, loading, unit)
    return _in_order(curve.mode, curve.shape) if COMPILED else curve


def _curve(step: Array, sd: Array, jets: Array, loading: Array) -> CompiledCurve:
    """Of values, slopes and bends (derivative, place, chain, feature) below, at and above the mode."""
    width = ENDS * sd
    values, slopes, bends = jets[0] - jets[0, 1], jets[1] * width, jets[2] * width**2
    known = np.concatenate([values, slopes, -bends])
    power = (HERMITE @ known.reshape(len(known), -1)).reshape(-1, *sd.shape)
    return _in_order(loading + step, Shape(sd, power, np.stack([values, slopes, bends])[:, [0, 2]]))


def _in_order(mode: Array, shape: Shape) -> CompiledCurve:
    """With arrays in one order of memory, so that code is compiled once, and for what is fast."""
    ordered = Shape(*(np.ascontiguousarray(array) for array in (shape.sd, shape.power, shape.end)))
    return CompiledCurve(np.ascontiguousarray(mode), ordered)


@dataclass(frozen=True, eq=False)
class CompiledCurve(Curve):
    """A `Curve` whose integrals and draws under built-in slabs are one call each."""

    @cached_property
    def likelihood(self) -> Array:
        """At the nodes, (chain, feature, node)."""
        return np.ascontiguousarray(self.shape.likelihood)

    def log_norms(self, shift: Array, density: Slabs) -> tuple[Array, Array]:
        """As in `LoadingLikelihood`."""
        if not isinstance(density, SpikeSlab) or not np.any(density.ratio):
            return super().log_norms(shift, density)
        shape = self.shape
        slab, spike = log_integrals(
            np.ascontiguousarray(shift), self.mode, shape.sd, shape.power, shape.end, self.likelihood,
            density.laplace, float(np.max(density.ratio)), LEAST_BEND, NODES, WEIGHTS, TINY, ENDS,
        )  # fmt: skip
        return slab, spike

    def draw(self, shift: Array, edge: Bools, density: Slabs, rng: np.random.Generator) -> Array:
        """As in `LoadingLikelihood`."""
        if not isinstance(density, SpikeSlab):
            return super().draw(shift, edge, density, rng)
        shape, target = self.shape, rng.random((*shift.shape, 1))[..., 0]
        t = drawn(
            np.ascontiguousarray(shift), self.mode, shape.sd, self.likelihood, density.laplace, NODES,
            TINY, target, rng.random(shift.shape),
        )  # fmt: skip
        _, a, b = self._at_spike(shift)
        narrow = density.draw(a, b, np.zeros_like(edge), rng)
        return np.where(edge, self.mode + t * shape.sd - shift, narrow)

    def excess(self, shift: Array, loading: Array, log_odds: Array, density: Slabs) -> Array:
        """As in `LoadingLikelihood`."""
        if not isinstance(density, SpikeSlab):
            return super().excess(shift, loading, log_odds, density)
        shape = self.shape
        log_likelihood, height, level, b, bend = interpolated(
            np.ascontiguousarray(shift), np.ascontiguousarray(loading), self.mode, shape.sd,
            shape.power, shape.end, self.likelihood, density.laplace,
            NODES, TINY, ENDS,
        )  # fmt: skip
        yes, no = -np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds)
        spike = density.log_spike(loading)
        drawn_spike = no + spike + level + b * loading - 0.5 * self._least(bend) * loading**2
        prior = np.logaddexp(yes + density.log_density(loading), no + spike)
        with np.errstate(divide="ignore"):
            excess: Array = log_likelihood + prior - np.logaddexp(yes + np.log(height), drawn_spike)
        return excess

    def _least(self, bend: Array) -> Array:
        """The bend of the parabola under which the spike is integrated."""
        return np.maximum(bend, LEAST_BEND / self.shape.sd**2)
