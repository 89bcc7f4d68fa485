r"""Weights, last layers and hidden layers of a decoder moved together, the factors staying where they are.

Hamiltonian steps in the coordinates of `metric.py`, and, while a chain is on its way from the fit,
Gauss-Newton steps up the same density: Levenberg's and Marquardt's, :math:`\theta \to \theta + (M + \lambda\,
\mathrm{diag} M)^{-1} g`, kept where they are a gain. A fit's layers may be thousands of nats below those
that chains see later, which random steps find in thousands of sweeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..density.curves import Trunk
from ..density.decoder_program import DecoderProgram, DecoderState
from .adaptation import Tuning
from .hmc import adapted, hmc
from .metric import information

__all__ = ["climbed", "moved"]

_LEAST, _MOST = 1e-4, 1e6  # of lambda
_WANTED, _SPEED = 0.75, 0.1  # acceptance of Hamiltonian steps, and how fast their sizes follow
_AT_ONCE = 500_000  # numbers of a hidden layer: few enough rows to stay near the processor
_REFRESHED = 10  # sweeps of the warm-up between one look at the information and the next


def moved(
    program: DecoderProgram, state: DecoderState, tuning: Tuning, rng: np.random.Generator, warm: bool
) -> DecoderState:
    """The state after one Hamiltonian trajectory; the warm-up tunes steps and metric.

    Parameters
    ----------
    program : DecoderProgram
    state : DecoderState
    tuning : Tuning
        Changed in place while `warm`.
    rng : numpy.random.Generator
    warm : bool
    """
    if warm and tuning.sweeps % _REFRESHED == 0:
        tuning.metric = tuning.metric.blended(information(program, state, rng))
    target = _Target(program, state)
    at = tuning.metric.coordinates(target.scale, target.precision)

    def energy(y: Tensor) -> tuple[Tensor, Tensor]:
        level, *slopes = target.expanded(target.moved(at.step(y)))
        return -level, -at.slope(*slopes)

    start = state.z.new_zeros(len(state.z), at.size)
    trajectory = hmc(energy, start, tuning.whole, program.whole_steps, rng)
    if warm:
        tuning.whole = adapted(tuning.whole, trajectory.accept, _WANTED, _SPEED)
    return target.moved(at.step(trajectory.position))


def climbed(
    program: DecoderProgram, state: DecoderState, tuning: Tuning, rng: np.random.Generator
) -> DecoderState:
    """The state after one Gauss-Newton step, where that is likelier; else as it was, and the next is shorter.

    Parameters
    ----------
    program : DecoderProgram
    state : DecoderState
    tuning : Tuning
        Its metric and damping are changed in place.
    rng : numpy.random.Generator
    """
    tuning.metric = information(program, state, rng)
    target = _Target(program, state)
    at = tuning.metric.damped(tuning.damping).coordinates(target.scale, target.precision)
    before, *slopes = target.expanded(state)
    new = target.moved(at.step(at.slope(*slopes)))
    yes = target.expanded(new)[0] > before
    tuning.damping = torch.where(yes, tuning.damping / 4, tuning.damping * 3).clamp(_LEAST, _MOST)

    def chosen(proposed: Tensor, current: Tensor) -> Tensor:
        return torch.where(yes.view(-1, 1, 1), proposed, current)

    trunk = Trunk(*(chosen(*pair) for pair in zip(new.trunk, state.trunk, strict=True)))
    return state._replace(
        weight=chosen(new.weight, state.weight), head=chosen(new.head, state.head), trunk=trunk
    )


@dataclass(frozen=True, eq=False)
class _Target:
    """What is asked of weights and layers near a state: edges, noise and factors are its own."""

    program: DecoderProgram
    state: DecoderState

    @cached_property
    def edge(self) -> Tensor:
        return self.state.edge | self.program.must

    @cached_property
    def scale(self) -> Tensor:
        """Of the weights: slab or spike."""
        density = self.program.density.stand_in
        return torch.where(self.edge, density.slab, density.spike).to(self.state.weight)

    @cached_property
    def precision(self) -> Tensor:
        return self.program.curve.head_precision(self.state.z)

    def moved(self, step: tuple[Tensor, Tensor]) -> DecoderState:
        """The state, a step away."""
        state, (feature_step, common) = self.state, step
        k = state.weight.shape[-1]
        trunk = state.trunk
        if self.program.curve.activation is not None:
            layer_steps = common.split([layer[0].numel() for layer in trunk], 1)
            trunk = Trunk(
                *(layer + by.view(layer.shape) for layer, by in zip(trunk, layer_steps, strict=True))
            )
        weight = state.weight + feature_step[..., :k] * self.program.permitted
        return state._replace(weight=weight, head=state.head + feature_step[..., k:], trunk=trunk)

    def expanded(self, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        """Log density (chain), and its slopes: of features (chain, feature, entry), of hidden layers."""
        program, head, trunk = self.program, state.head, state.trunk
        level, of_weight, of_head, of_trunk = self._of_rows(state)
        energy, pull = program.density.energy(state.weight, self.edge)
        precision = self.precision.to(state.z)
        double = torch.float64
        level = level - (energy * program.permitted).sum((-1, -2), dtype=double)
        level -= 0.5 * (precision * head.to(state.z).square()).sum((-1, -2), dtype=double)
        of_weight = (of_weight - pull) * program.permitted
        of_head = of_head - precision * head.to(state.z)
        common = state.z.new_zeros(len(head), 0)  # a line has no hidden layers
        if of_trunk:
            level -= 0.5 * sum(layer.square().sum((-1, -2), dtype=double) for layer in trunk)
            common = torch.cat(
                [(by - layer).flatten(1) for layer, by in zip(trunk, of_trunk, strict=True)], 1
            )
        return level, torch.cat([of_weight, of_head], -1), common

    def _of_rows(self, state: DecoderState) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Log-likelihood, and its slopes in weights, last layers and hidden layers, a few rows at a time."""
        program, head, cells = self.program, state.head.to(state.z), self.program.cells_of(state)
        size = max(1, _AT_ONCE // (program.curve.hidden * state.weight[..., 0].numel()))
        level, slopes = torch.zeros(len(head), dtype=torch.float64, device=head.device), None
        for rows in torch.arange(state.z.shape[1], device=head.device).split(size):
            layers = (state.z[:, rows], state.weight, state.trunk, head)
            run = program.curve.forwards(*layers)
            log_p, slope = cells.rows(rows).slope(run.f, state.noise)
            level += log_p.sum((-1, -2), dtype=torch.float64)
            new = [program.curve.to_head(run, slope), *program.curve.to_layers(run, slope, *layers)]
            slopes = new if slopes is None else [a + b for a, b in zip(slopes, new, strict=True)]
        assert slopes is not None
        return level, slopes[1], slopes[0], slopes[2:]
