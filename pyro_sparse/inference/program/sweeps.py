"""Sweeps of chains over a program: edges, the other blocks, and the axes, in turn.

The warm-up has two parts. In the first spikes begin wide, every block climbs by Newton steps with noise, and
rotations are frequent: chains look for the axes. In the second every step is the one of later, while its
proposals are tuned. What counts comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .axes import AxisSampler
from .blocks import BlockSampler, Sampler
from .collapsed import CollapsedSampler, RowIntegral
from .edge_densities import edge_prob
from .gates import GateSampler
from .layout import PARAMETER
from .parameters import ParameterSampler
from .recorded import Block, EdgeTerms, Position, RecordedDensity
from .transport import TransportSampler
from .weights import WeightSampler

__all__ = ["ProgramChains"]

_CLIMB = 1 / 3  # of the warm-up
_HEAT = 10.0  # of the spikes in the first sweep; they are as the program says after half of the climb
_ROTATE_EVERY, _ROTATE_EVERY_LATER = 2, 5  # sweeps: while chains look for axes, and afterwards
_COLLAPSED_EVERY = 4  # sweeps between two steps with the rows integrated out
_SELDOM = 25  # sweeps, where rotations ask the data and were never taken
_AXES = ("acceptance", "step", "rotated", "obliquely", "oblique_step")  # of an `AxisSampler`, when resumed


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
    heated : sequence of bool, optional
        Chains whose spikes begin wide; default all. One that begins at a mode has no need of it.
    table_of : sequence of int, optional
        Of each chain: those with one number share what they learn of parameters. Default one each.
    reorients : bool
        Whether three factors are rotated at once. Not where sweeps are averaged into one answer: other axes
        that are as likely would blur it.

    Attributes
    ----------
    position : dict of Tensor
    samplers : dict
        By block.
    """

    def __init__(
        self,
        density: RecordedDensity,
        u: Position,
        warm_up: int,
        climbing: int | None = None,
        heated: Sequence[bool] | None = None,
        table_of: Sequence[int] | None = None,
        reorients: bool = True,
    ):
        self.density, self.position, self.warm_up = density, dict(u), warm_up
        self.reorients = reorients
        self.climbing = int(_CLIMB * warm_up) if climbing is None else climbing
        kinds = {site.name: site.kind for site in [*density.layout.edges, *density.layout.parameters]}
        shared = torch.as_tensor(
            list(range(density.n_chains) if table_of is None else table_of), device=density.device
        )
        makers: dict[str, Callable[[RecordedDensity, Block, Position], Sampler]] = {
            "edges": WeightSampler, "gates": GateSampler, "": BlockSampler,
            PARAMETER: partial(ParameterSampler, table_of=shared),
        }  # fmt: skip
        self.samplers = {
            name: makers[kinds.get(name, "")](density, block, self.position)
            for name, block in density.blocks.items()
        }
        self.heated = torch.tensor(
            [True] * density.n_chains if heated is None else list(heated), device=density.device
        )
        rows = self.samplers.get("rows")
        self.integral = RowIntegral(density, rows if isinstance(rows, BlockSampler) else None)
        self.collapsed = CollapsedSampler(density, self.integral, self.position, warm_up - self.climbing)
        self.transport = TransportSampler(density, self.integral, self.position, warm_up - self.climbing)
        self.axes = AxisSampler(density, self.position)
        self.done = 0

    def sweep(self) -> None:
        """Every block once."""
        climbs, adapts = self.done < self.climbing, self.done < self.warm_up
        if self.climbing:
            progress = min(1.0, 2 * self.done / max(1, self.climbing))
            self.density.heat(torch.where(self.heated, _HEAT ** (1 - progress), 1.0) if climbs else 1.0)
        for sampler in self.samplers.values():
            self.position = sampler.ascend(self.position) if climbs else sampler.draw(self.position, adapts)
        if self.axes.useful:
            self._move_axes(climbs, adapts)
        if self.collapsed.useful and not climbs:
            if self.done % (_COLLAPSED_EVERY // 2 if adapts else _COLLAPSED_EVERY) == 0:
                self.position = self.collapsed.draw(self.position, adapts)
            if adapts:
                self.collapsed.learn(self.position)
        elif self.transport.possible and not climbs:
            self._move_with_rows(adapts)
        self.done += 1
        if self.done == self.warm_up:
            for sampler in self.samplers.values():
                sampler.settle()
            if self.collapsed.useful:
                self.collapsed.settle()
            elif self.transport.possible:
                self.transport.settle()

    def _move_with_rows(self, adapts: bool) -> None:
        if self.transport.pause and self.done % self.transport.pause == 0:
            self.position = self.transport.draw(self.position, adapts)
        if adapts and self.transport.learn(self.position):
            # Where noise and rows have let go of each other, means of before are no places to propose from.
            for sampler in self.samplers.values():
                if isinstance(sampler, BlockSampler | WeightSampler):
                    sampler.tuned = 0

    def _move_axes(self, climbs: bool, adapts: bool) -> None:
        pause = _ROTATE_EVERY if climbs else _ROTATE_EVERY_LATER
        if not adapts and self.axes.asks_data and self.axes.rotated < 1e-3:
            pause = _SELDOM
        if self.axes.n_factors > 1 and self.done % pause == 0:
            # As many pairs as are disjoint: five factors have ten, and a climb some thirty sweeps.
            for _ in range(self.axes.n_factors // 2 if climbs else 1):
                self._rotate(self.axes.rotate)
            if self.reorients and not climbs and self.axes.reorients:
                self._rotate(self.axes.reorient)
        if not climbs:
            self.position = self.axes.stretch(self.position, adapts)
            for _ in range(self.axes.n_factors if self.axes.correlation else 0):
                self.position = self.axes.lean(self.position, adapts)

    def _rotate(self, move: Callable[[Position], tuple[Position, tuple[Tensor, Tensor]]]) -> None:
        """Some factors, and the points of approximation with them."""
        moved, transform = move(self.position)
        for name, sampler in self.samplers.items():
            if isinstance(sampler, BlockSampler | WeightSampler) and sampler.centre is not None:
                block = self.density.blocks[name]
                sampler.centre = self.axes.turned(block, sampler.centre, self.position, transform)
        self.position = moved

    def state(self) -> dict[str, Any]:
        """All that the next sweeps depend on, but for random numbers."""
        samplers = {name: sampler.state() for name, sampler in self.samplers.items()}
        axes = {name: getattr(self.axes, name) for name in _AXES} if self.axes.useful else {}
        return {
            "position": self.position, "done": self.done, "samplers": samplers, "axes": axes,
            "collapsed": self.collapsed.state(), "transport": self.transport.state(),
        }  # fmt: skip

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        self.position, self.done = dict(saved["position"]), saved["done"]
        for name, sampler in self.samplers.items():
            sampler.load(saved["samplers"][name])
        self.collapsed.load(saved["collapsed"])
        self.transport.load(saved["transport"])
        for name, value in saved["axes"].items():
            setattr(self.axes, name, value)

    def edges(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Weights of each site of edges and probabilities given these, (chain, feature, factor) both."""
        terms: dict[str, EdgeTerms] = self.density.edges(self.position)
        edges = {}
        for site in self.density.layout.edges:
            sampler = self.samplers[site.name]
            weight = self.density.pack(self.density.blocks[site.name], self.position)
            if isinstance(sampler, GateSampler):
                edges[site.name] = (weight, sampler.prob)
            else:
                edges[site.name] = (
                    weight,
                    edge_prob(weight, terms[site.name], self.density.families[site.name]),
                )
        return edges

    def drawn(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Of sites of weights, as `edges`, with less noise: the probabilities of the last sweep's draws.

        The weights are those that the probabilities belong to, before axes were rotated, and a draw of the
        same density as the position's. See `WeightSampler.drawn`.
        """
        return {n: s.drawn for n, s in self.samplers.items() if isinstance(s, WeightSampler) and s.drawn}

    def log_marginal(self) -> Tensor:
        """Log density of all sites outside of the rows, (chain,): `RowIntegral.level`."""
        return self.integral.level(self.position)
