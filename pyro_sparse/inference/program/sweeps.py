"""Sweeps of chains over a program: edges, the other blocks, and the axes, in turn.

The warm-up has three parts. In the first spikes begin wide, every block climbs by Newton steps with noise, and
rotations are frequent: chains look for the axes. In the second every step is the one of later, while its
proposals are tuned. What counts comes after.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .recorded import EdgeTerms, Position, RecordedDensity
from .axes import AxisSampler
from .blocks import BlockSampler, cholesky
from .weights import GateSampler, WeightSampler, edge_prob

__all__ = ["ProgramChains"]

_CLIMB = 1 / 3  # of the warm-up
_HEAT = 10.0  # of the spikes in the first sweep; they are as the program says after half of the climb
_ROTATE_EVERY, _ROTATE_EVERY_LATER = 2, 5  # sweeps: while chains look for axes, and afterwards
_MOST_LAPLACE = 100  # numbers of a row
_SELDOM = 25  # sweeps, where rotations ask the data and were never taken


class ProgramChains:
    """Chains over all latent sites of a program, all in one pass.

    Parameters
    ----------
    density : RecordedDensity
    u : dict of Tensor
        Where they begin, real numbers, chain first.
    warm_up : int
        Sweeps that tune.
    climbing : int, optional
        Sweeps at the begin of the warm-up that look for a mode; default a third. None where chains begin at
        draws of the posterior.

    Attributes
    ----------
    position : dict of Tensor
    samplers : dict
        By block.
    """

    def __init__(self, density: RecordedDensity, u: Position, warm_up: int, climbing: int | None = None):
        self.density, self.position, self.warm_up = density, dict(u), warm_up
        self.climbing = int(_CLIMB * warm_up) if climbing is None else climbing
        kinds = {site.name: site.kind for site in density.layout.edges}
        samplers = {"edges": WeightSampler, "gates": GateSampler, "": BlockSampler}
        self.samplers = {
            name: samplers[kinds.get(name, "")](density, block, self.position) for name, block in density.blocks.items()
        }
        self.axes = AxisSampler(density, self.position)
        self.done = 0

    def sweep(self) -> None:
        """Every block once."""
        climbs, adapts = self.done < self.climbing, self.done < self.warm_up
        if self.climbing:
            progress = min(1.0, 2 * self.done / max(1, self.climbing))
            self.density.heat(_HEAT ** (1 - progress) if climbs else 1.0)
        for sampler in self.samplers.values():
            self.position = sampler.ascend(self.position) if climbs else sampler.draw(self.position, adapts)
        if self.axes.useful:
            self._move_axes(climbs, adapts)
        self.done += 1
        if self.done == self.warm_up:
            for sampler in self.samplers.values():
                sampler.settle()

    def _move_axes(self, climbs: bool, adapts: bool) -> None:
        every = _ROTATE_EVERY if climbs else _ROTATE_EVERY_LATER
        if not adapts and self.axes.asks_data and self.axes.rotated < 1e-3:
            every = _SELDOM
        if self.axes.n_factors > 1 and self.done % every == 0:
            moved, transform = self.axes.rotate(self.position)
            for name, sampler in self.samplers.items():
                if getattr(sampler, "centre", None) is not None:
                    block = self.density.blocks[name]
                    sampler.centre = self.axes.turned(block, sampler.centre, self.position, transform)
            self.position = moved
        if not climbs:
            for _ in range(self.axes.n_factors):
                self.position = self.axes.stretch(self.position, adapts)

    def state(self) -> dict[str, Any]:
        """All that the next sweeps depend on, but for random numbers."""
        samplers = {name: sampler.state() for name, sampler in self.samplers.items()}
        axes = {name: getattr(self.axes, name) for name in ("acceptance", "step", "rotated")} if self.axes.useful else {}
        return {"position": self.position, "done": self.done, "samplers": samplers, "axes": axes}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        self.position, self.done = dict(saved["position"]), saved["done"]
        for name, sampler in self.samplers.items():
            sampler.load(saved["samplers"][name])
        for name, value in saved["axes"].items():
            setattr(self.axes, name, value)

    def edges(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Of each site of edges their weights and probabilities given these, (chain, feature, factor) each."""
        terms: dict[str, EdgeTerms] = self.density.edges(self.position)
        seen = {}
        for site in self.density.layout.edges:
            sampler = self.samplers[site.name]
            weight = self.density.pack(self.density.blocks[site.name], self.position)
            if isinstance(sampler, GateSampler):
                seen[site.name] = (weight, sampler.prob)
            else:
                seen[site.name] = (weight, edge_prob(weight, terms[site.name], self.density.families[site.name]))
        return seen

    def log_marginal(self) -> Tensor:
        r"""Log density of all sites outside of the rows, latent rows integrated out by Laplace, (chain,).

        With :math:`t_n` the terms of row n, g their gradient and P their negative Hessian at a point m,

        .. math:: \log \int e^{t_n(z)} dz \approx t_n(m) + \tfrac12 g^\top P^{-1} g + \tfrac D2 \log 2\pi
                  - \tfrac12 \log |P|,

        exactly where rows are normal given the rest. The joint density itself compares nothing: a feature whose
        noise vanishes has as much of it as one likes. Where rows have too many numbers for a Hessian it is the
        joint nevertheless.
        """
        joint = self.density.joint(self.position)
        sampler = self.samplers.get("rows")
        if sampler is None or sampler.block.size > _MOST_LAPLACE:
            return joint
        at = self.density.pack(sampler.block, self.position)
        centre = at if sampler.centre is None else sampler.centre
        gradient, precision = self.density.curvature(sampler.block, centre, self.position)
        root = cholesky(precision)
        half = torch.linalg.solve_triangular(root, gradient[..., None], upper=False)[..., 0]
        volume = 0.5 * sampler.block.size * math.log(2 * math.pi) - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        integral = self.density.total(sampler.block, centre, self.position) + 0.5 * half.square().sum(-1) + volume
        return joint + (integral - self.density.total(sampler.block, at, self.position)).sum(-1)
