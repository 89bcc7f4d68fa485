r"""The latent rows integrated out: what compares chains, and steps of all other numbers.

Given everything else rows are independent, and the integral over each is Laplace's (exact where their terms
are a quadratic): with :math:`t_n` the terms of row n, g their gradient and P their negative Hessian at a
point m,

.. math:: \log \int e^{t_n(z)} dz \approx
          t_n(m) + \tfrac12 g^\top P^{-1} g + \tfrac D2 \log 2\pi - \tfrac12 \log |P|.

A feature whose noise is small holds the factors, and they hold it: drawn in turns, neither moves (a Heywood
case lasts thousands of sweeps). Where the integral is exact, Hamiltonian steps of all other numbers at once
are taken with the rows integrated out, and rows are drawn anew.

References
----------
Liu (1994), The collapsed Gibbs sampler, JASA 89
Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo
"""

from __future__ import annotations

import math
from typing import Any

import torch
from pyro.ops.dual_averaging import DualAveraging
from torch import Tensor

from .blocks import BlockSampler, accepted, cholesky
from .metric import AlignedMetric
from .recorded import Position, RecordedDensity

__all__ = ["CollapsedSampler", "RowIntegral"]

_MOST_NUMBERS = 100  # of a row, up to which its Hessian is taken
_LEAPS = 10
_FIRST_STEP, _WANTED = 0.4, 0.65
_LENGTH, _FEWEST_LEAPS = 1.5, 2  # of a trajectory, in standard deviations


class RowIntegral:
    """Log density of a program with its latent rows integrated out.

    Parameters
    ----------
    density : RecordedDensity
    rows : BlockSampler or None
        Of the rows, if there are latent ones.
    """

    def __init__(self, density: RecordedDensity, rows: BlockSampler | None):
        self.density = density
        self.rows = None if rows is None or rows.block.size > _MOST_NUMBERS else rows

    @property
    def is_exact(self) -> bool:
        """Whether there are latent rows and the integral over them has a closed form."""
        return self.rows is not None and self.rows.method == "exact"

    def level(self, u: Position) -> Tensor:
        """Log density of all sites outside of the rows, (chain,).

        The joint density would compare nothing: a feature whose noise vanishes has as much of it as one
        likes. Where rows have too many numbers for a Hessian it is the joint nevertheless.
        """
        return self.integrated(u)[0]

    def integrated(self, u: Position) -> tuple[Tensor, Tensor, Tensor]:
        """The level, and mean (chain, row, number) and Cholesky factors of the precision of the rows."""
        if self.rows is None:
            joint = self.density.joint(u)
            empty = joint.new_zeros(0)
            return joint, empty, empty
        block, centre = self.rows.block, self.centre(u)
        gradient, precision = self.density.curvature(block, centre, u)
        root = cholesky(precision)
        if self.is_exact:
            # Around its own maximum: elsewhere the terms of a feature with next to no noise are as large as
            # its precision, and what is left of their difference is rounding.
            centre = centre + torch.cholesky_solve(gradient[..., None], root)[..., 0]
            gradient = self.density.slope(block, centre, u)[1]
        half = torch.linalg.solve_triangular(root, gradient[..., None], upper=False)
        volume = 0.5 * block.size * math.log(2 * math.pi) - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        joint = self.density.joint(self.density.unpack(block, centre, u))
        mean = centre + torch.linalg.solve_triangular(root.mT, half, upper=True)[..., 0]
        return joint + (0.5 * half[..., 0].square().sum(-1) + volume).sum(-1), mean, root

    def centre(self, u: Position) -> Tensor:
        """Points that the terms of rows are expanded at, (chain, row, number)."""
        assert self.rows is not None
        return self.density.pack(self.rows.block, u) if self.rows.centre is None else self.rows.centre

    def standardised(self, u: Position) -> Tensor:
        """Rows in standard deviations from their approximate means, (chain, row, number)."""
        assert self.rows is not None
        _, mean, root = self.integrated(u)
        return (root.mT @ (self.density.pack(self.rows.block, u) - mean)[..., None])[..., 0]


class CollapsedSampler:
    """Hamiltonian steps of all sites outside of the rows, the rows integrated out.

    Parameters
    ----------
    density : RecordedDensity
    integral : RowIntegral
    u : dict of Tensor

    Attributes
    ----------
    useful : bool
        Whether the integral is exact and edges are weights without a point mass.
    acceptance : float
    """

    def __init__(self, density: RecordedDensity, integral: RowIntegral, u: Position, adapting: int):
        self.density, self.integral, self.acceptance = density, integral, 0.8
        points = any("point" in pair for pair in density.families.values())
        has_gates = any(site.kind == "gates" for site in density.layout.edges)
        self.useful = integral.is_exact and not has_gates and not points
        others = {site.name for site in [*density.layout.latent("rows"), *density.layout.parameters]}
        self.names = sorted(u.keys() - others)
        self.tuner = DualAveraging(prox_center=math.log(_FIRST_STEP), gamma=0.1)
        self.step_size, self.tuned = _FIRST_STEP, 0
        if self.useful:
            self.metric = AlignedMetric(density, self.names, u, adapting)

    def learn(self, u: Position) -> None:
        """Let a sweep of the warm-up be learned from."""
        if self.metric.learn(u):
            self.tuner, self.tuned = DualAveraging(prox_center=math.log(_FIRST_STEP), gamma=0.1), 0
            self.step_size = _FIRST_STEP

    def draw(self, u: Position, adapts: bool) -> Position:
        """A step that leaves the posterior invariant."""
        flat, (place, sign) = self.metric.flat(u), self.metric.frame(u)
        size = self.step_size * (0.7 + 0.6 * torch.rand(()).item())

        def along(flat: Tensor) -> tuple[Tensor, Tensor]:
            level, slope = self._slope(u, flat)
            return level, self.metric.pulled_back(slope.gather(1, place) * sign)

        def moved_by(step: Tensor) -> Tensor:
            return torch.zeros_like(flat).scatter(1, place, self.metric.scaled(step) * sign)

        before, force = along(flat)
        momentum = torch.randn_like(flat)
        energy = before - 0.5 * momentum.square().sum(-1)
        moved = flat
        for _ in range(max(_FEWEST_LEAPS, min(_LEAPS, round(_LENGTH / self.step_size)))):
            momentum = momentum + 0.5 * size * force
            moved = moved + moved_by(size * momentum)
            level, force = along(moved)
            momentum = momentum + 0.5 * size * force
        log_ratio = level - 0.5 * momentum.square().sum(-1) - energy
        is_number = torch.isfinite(moved).all(1)  # not where a step has sent it away
        moved = torch.where(is_number[:, None], moved, flat)
        place_there, sign_there = self.metric.frame(self._position(u, moved))
        same = is_number & (place_there == place).all(1) & (sign_there == sign).all(1)
        ok, rate = accepted(log_ratio)  # which tunes the step; a factor may change its sign at any length
        ok = ok & same
        self.acceptance += 0.02 * (rate.mean().item() - self.acceptance)
        if adapts:
            self.tuned += 1
            self.tuner.step(_WANTED - rate.mean().item())
            self.step_size = math.exp(self.tuner.get_state()[0])
        u = self._position(u, torch.where(ok[:, None], moved, flat))
        assert self.integral.rows is not None
        _, mean, root = self.integral.integrated(u)
        noise = torch.linalg.solve_triangular(root.mT, torch.randn_like(mean)[..., None], upper=True)[..., 0]
        return self.density.unpack(self.integral.rows.block, mean + noise, u)

    def settle(self) -> None:
        """End of the warm-up: the step size is the average of its tuning."""
        if self.tuned:  # a tuner that has seen nothing has no average
            self.step_size = math.exp(self.tuner.get_state()[1])

    def _slope(self, u: Position, flat: Tensor) -> tuple[Tensor, Tensor]:
        assert self.integral.rows is not None
        level, gradient = self.density.marginal_slope(
            self.integral.rows.block, self._position(u, flat), tuple(self.names)
        )
        return level, self.metric.flat(gradient).nan_to_num(0.0)

    def _position(self, u: Position, flat: Tensor) -> Position:
        split = flat.split([u[name][0].numel() for name in self.names], -1)
        return {**u, **{n: value.reshape(u[n].shape) for n, value in zip(self.names, split, strict=True)}}

    def state(self) -> dict[str, Any]:
        """All that its next steps depend on."""
        if not self.useful:
            return {"tuner": {}}
        names = ("acceptance", "step_size", "tuned")
        return {
            **{name: getattr(self, name) for name in names},
            "tuner": dict(vars(self.tuner)), "metric": self.metric.state(),
        }  # fmt: skip

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        vars(self.tuner).update(saved["tuner"])
        if self.useful:
            self.metric.load(saved["metric"])
        for name in saved.keys() - {"tuner", "metric"}:
            setattr(self, name, saved[name])
