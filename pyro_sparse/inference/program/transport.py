r"""Noise and scales of loadings in long steps, with rows that follow.

A feature with next to no noise holds the factors of all rows, and they hold its noise: drawn in turns,
neither moves (a Heywood case lasts thousands of sweeps). Where the rows' integral has a closed form they are
summed out (`collapsed.py`). Elsewhere they go along: with m the mean of a row by one Newton step from a point
that does not depend on where it is, and :math:`P = L L^\top` its precision there, both functions of all other
numbers :math:`\theta`,

.. math:: z(\theta) = m(\theta) + L(\theta)^{-\top} \epsilon, \qquad
          p(\theta, \epsilon) \propto p(x, z(\theta), \theta)\, |L(\theta)|^{-1},

and Hamiltonian steps are taken at fixed :math:`\epsilon`. For normal rows that is the density with rows
summed out; for others Metropolis' ratio has what the approximation leaves out, whose *change* alone matters.
What moves are the numbers that the cells depend on (noise, intercepts, cuts) and the logarithm of a factor
that all weights of a feature are multiplied by: narrow spikes, which would keep steps of single weights
short, do not mind it, nor is there a sign or an order of the factors.

A step costs as much as several sweeps, and is taken where it is needed: where the cells of one feature j have
most of the rows' precision, :math:`h_j = \operatorname{mean}_n \operatorname{tr} P_n^{-1} P_n^{(j)}`. Of the
information that complete rows would have on the noise, the data have some :math:`(1 - h_j)^2`, and draws in
turns need the inverse of that many sweeps to forget where they were.

References
----------
Papaspiliopoulos, Roberts and Sköld (2007), A general framework for the parametrization of hierarchical
models, Statistical Science 22(1)
Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo
"""

from __future__ import annotations

import math
from typing import Any

import torch
from pyro.ops.dual_averaging import DualAveraging
from torch import Tensor

from .blocks import accepted
from .collapsed import RowIntegral
from .metric import small_units
from .recorded import Position, RecordedDensity

__all__ = ["TransportSampler"]

_NEEDED = 0.8  # share of the rows' precision from one feature; then noise takes 25 sweeps to be forgotten
_LOOK_EVERY = 5  # sweeps of the warm-up
# Sweeps between two steps: in the warm-up, and later where a feature still held the rows in its last part.
# Others have left such a place, where rows and noise keep each other, and are led out if they come back.
_TUNING_EVERY, _EVERY, _SELDOM = 2, 4, 25
_DIFFERENCE = 0.05  # standard deviations of a row, over which curvatures are differences
_MOST_LEAPS, _FEWEST_LEAPS, _LENGTH = 6, 2, 1.5  # the last one in standard deviations
_FIRST_STEP, _WANTED = 0.4, 0.7
_FIRST_VARIANCE, _LEAST_VARIANCE = 0.05**2, 1e-6
_ENDS = 0.1, 0.3, 0.6  # of windows that variances are learned from, as shares of the sweeps that adapt
_FEWEST = 5  # sweeps of a window
_MOST_DENSE = 500  # numbers whose covariance is taken; of more the variances
_INDEPENDENT = 0.1  # share of draws, of numbers that move slowly
_WITH_FACTORS = ("axis", "each", "correlation")  # kinds of sites that go with the order of the factors


class TransportSampler:
    """Hamiltonian steps of what cells depend on, with rows that follow.

    Parameters
    ----------
    density : RecordedDensity
    integral : RowIntegral
    u : dict of Tensor
    adapting : int
        Sweeps that will be learned from.

    Attributes
    ----------
    possible : bool
        Whether there are rows with a Hessian, and something that moves.
    pause : int
        Sweeps between two steps; 0 where no feature has been seen to hold the rows, and there are none.
    acceptance : float
    """

    def __init__(self, density: RecordedDensity, integral: RowIntegral, u: Position, adapting: int):
        self.density, self.integral, self.adapting = density, integral, adapting
        rows = integral.rows
        cells = density.blanket(rows.block) - set(rows.block.sites) if rows else frozenset()
        self.cells = [
            name for name in sorted(cells) if {"rows", "features"} <= density.layout.sites[name].plates.keys()
        ]
        moving = {
            name: density.layout.sites[name].kind
            for name, block in density.blocks.items()
            if block.group != "rows" and density.blanket(block) & cells
        }
        self.edges = sorted(name for name, kind in moving.items() if kind == "edges")
        others = {"edges", "gates", "parameter", *_WITH_FACTORS}
        self.names = [*self.edges, *sorted(name for name, kind in moving.items() if kind not in others)]
        self.possible = bool(rows is not None and rows.has_hessian and self.cells and self.names)
        self.pause, self.acceptance, self.step_size, self.held_at = 0, 0.8, _FIRST_STEP, 0
        self.tuner = DualAveraging(prox_center=math.log(_FIRST_STEP), gamma=0.1)
        self.tuned = self.learned = 0
        if self.possible:
            size = self._numbers(u).shape[1]
            self.is_dense = size <= _MOST_DENSE
            unit = u[self.names[0]].new_ones(size)  # of lengths' logarithms, which come first
            if beside := [name for name in self.names if name not in self.edges]:
                small = small_units(density, beside)
                unit[-len(small) :] = small
            self.least = _LEAST_VARIANCE * unit**2
            self.root = math.sqrt(_FIRST_VARIANCE) * unit
            self.root = self.root.diag() if self.is_dense else self.root
            self.window: list[Tensor] = []

    # ---- whether it is needed ------------------------------------------------------------------------------
    def shares(self, u: Position) -> Tensor:
        """Of the rows' precision, that of each feature's cells, (chain, feature).

        Parameters
        ----------
        u : dict of Tensor
        """
        assert self.integral.rows is not None
        block = self.integral.rows.block
        root, q = self.integral.integrated(u)[2], self.density.pack(block, u)
        units = torch.linalg.inv(root).mT  # its columns: directions of which each has one standard deviation

        def cells(q: Tensor) -> Tensor:
            logs = self.density.logs(self.density.unpack(block, q, u))
            return sum((self._by_cell(logs[name], name) for name in self.cells), torch.zeros(()).to(q))

        here, share = 2 * cells(q), torch.zeros(()).to(q)
        for k in range(block.size):
            step = _DIFFERENCE * units[..., k]
            share = share + (here - cells(q + step) - cells(q - step)) / _DIFFERENCE**2
        return share.mean(1)

    def _by_cell(self, log_prob: Tensor, name: str) -> Tensor:
        """Of a site (chain, ...) the sum over all dimensions but rows and features, (chain, row, feature)."""
        plates = self.density.layout.sites[name].plates
        kept = [log_prob.dim() + plates[group] for group in ("rows", "features")]
        others = [dim for dim in range(1, log_prob.dim()) if dim not in kept]
        summed = log_prob.sum(others) if others else log_prob
        return summed if kept[0] < kept[1] else summed.mT

    # ---- a sweep -------------------------------------------------------------------------------------------
    def draw(self, u: Position, adapts: bool) -> Position:
        """A step that leaves the posterior invariant."""
        assert self.integral.rows is not None
        block, centre, noise = (
            self.integral.rows.block,
            self.integral.centre(u),
            self.integral.standardised(u),
        )
        size = self.step_size * (0.7 + 0.6 * torch.rand(()).item())

        def along(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            level, slope, q = self.density.transported(block, u, self._split(flat, u), centre, noise)
            return (
                level,
                self._pulled_back(torch.cat([slope[n].reshape(len(moved), -1) for n in self.names], 1)),
                q,
            )

        moved = torch.zeros_like(self._numbers(u))
        before, force, q = along(moved)
        momentum = torch.randn_like(moved)
        energy = before - 0.5 * momentum.square().sum(-1)
        for _ in range(max(_FEWEST_LEAPS, min(_MOST_LEAPS, round(_LENGTH / self.step_size)))):
            momentum = momentum + 0.5 * size * force
            moved = moved + size * self._scaled(momentum)
            level, force, q = along(moved)
            momentum = momentum + 0.5 * size * force
        ok, rate = accepted(level - 0.5 * momentum.square().sum(-1) - energy)
        self.acceptance += 0.02 * (rate.mean().item() - self.acceptance)
        if adapts:
            self.tuned += 1
            self.tuner.step(_WANTED - rate.mean().item())
            self.step_size = math.exp(self.tuner.get_state()[0])
        there = self.density.unpack(block, q, self.density.shifted(u, self._split(moved, u))[0])
        return {
            name: torch.where(ok.reshape(-1, *[1] * (value.dim() - 1)), there[name], value)
            for name, value in u.items()
        }

    def _split(self, flat: Tensor, u: Position) -> Position:
        """Shifts of each site."""
        like = {n: u[n][..., 0].flatten(1) if n in self.edges else u[n] for n in self.names}
        split = flat.split([value[0].numel() for value in like.values()], 1)
        return {
            name: numbers.reshape(value.shape)
            for (name, value), numbers in zip(like.items(), split, strict=True)
        }

    def _numbers(self, u: Position) -> Tensor:
        """What moves, (chain, number): of edges the logarithm of the length of each feature's weights."""
        numbers = [
            0.5 * self.density.pack(self.density.blocks[n], u).square().sum(-1).clamp(min=1e-12).log()
            if n in self.edges
            else u[n].reshape(len(u[n]), -1)
            for n in self.names
        ]
        return torch.cat(numbers, 1)

    def _scaled(self, step: Tensor) -> Tensor:
        return step @ self.root.mT if self.is_dense else step * self.root

    def _pulled_back(self, slope: Tensor) -> Tensor:
        slope = slope.nan_to_num(0.0)
        return slope @ self.root if self.is_dense else slope * self.root

    # ---- tuning --------------------------------------------------------------------------------------------
    def learn(self, u: Position) -> bool:
        """Let a sweep of the warm-up be learned from; whether steps are of another shape from now on."""
        if self.learned % _LOOK_EVERY == 0 and bool((self.shares(u).nan_to_num(0.0) > _NEEDED).any()):
            self.pause, self.held_at = _TUNING_EVERY, self.learned
        self.window = [*self.window, self._numbers(u)]
        self.learned += 1
        if self.learned not in {int(end * self.adapting) for end in _ENDS} or len(self.window) < _FEWEST:
            return False
        self.root, self.window = self._learned_root(torch.stack(self.window)), []
        self.tuner, self.tuned = DualAveraging(prox_center=math.log(_FIRST_STEP), gamma=0.1), 0
        self.step_size = _FIRST_STEP
        return self.pause > 0

    def _learned_root(self, draws: Tensor) -> Tensor:
        """Root of the covariance of draws (sweep, chain, number), of tables of their own within chains."""
        centre = draws.mean(0, keepdim=True) if self.density.has_tables else draws.mean((0, 1), keepdim=True)
        away = (draws - centre).flatten(0, 1)
        variance = torch.maximum(away.square().mean(0), self.least)
        if not self.is_dense:
            return variance.sqrt()
        share = _INDEPENDENT * len(away) / (_INDEPENDENT * len(away) + len(variance))
        covariance = away.mT @ away / len(away)
        root: Tensor = torch.linalg.cholesky(
            share * covariance + (variance - share * covariance.diagonal()).diag()
        )
        return root

    def settle(self) -> None:
        """End of the warm-up: the step size is the average of its tuning."""
        self.window = []
        if self.pause:
            self.pause = _EVERY if self.held_at >= _ENDS[-1] * self.adapting else _SELDOM
        if self.tuned:
            self.step_size = math.exp(self.tuner.get_state()[1])

    def state(self) -> dict[str, Any]:
        """All that its next steps depend on."""
        if not self.possible:
            return {"tuner": {}}
        names = ("pause", "held_at", "acceptance", "step_size", "tuned", "learned", "root", "window")
        return {**{name: getattr(self, name) for name in names}, "tuner": dict(vars(self.tuner))}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        vars(self.tuner).update(saved["tuner"])
        for name in saved.keys() - {"tuner"}:
            setattr(self, name, saved[name])
