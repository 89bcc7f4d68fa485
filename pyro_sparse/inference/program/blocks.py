r"""One block of latent sites at a time: from a Laplace approximation, or along its gradient.

Given the rest, the elements of a block (rows, or features) are independent, and all move at once. With the
gradient g and the negative Hessian P of their terms at a point m,

.. math:: q' \sim t_6\bigl(m + P^{-1} g,\; P^{-1}\bigr), \qquad \text{accepted with Metropolis' ratio,}

where m is the running mean of the warm-up and so no function of where the element stands. Where the terms are
a quadratic the draw is exact, normal, and always accepted. What has more numbers than a Hessian pays for, or
is accepted too rarely, moves by Hamiltonian steps.

References
----------
Tierney (1994), Markov chains for exploring posterior distributions, Annals of Statistics 22(4), section 2.3
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from pyro.ops.dual_averaging import DualAveraging
from torch import Tensor
from torch.distributions import Chi2

from .derivatives import diagonal_of
from .recorded import Block, Position, RecordedDensity
from .soundness import elsewhere

__all__ = ["BlockSampler", "Sampler", "accepted", "cholesky", "is_quadratic"]

_DF = 6.0  # degrees of freedom of proposals: a normal one gets stuck in the target's tails
# Numbers of an element up to which its Hessian is taken; of a block with one element there is but one.
_MOST_NEWTON, _MOST_NEWTON_GLOBAL = 12, 40
_LONGEST = 3.0  # of a Newton step, on the scale of real numbers, or times what they are at the start
_LEAST_SCALE = 1e-12  # of a number, below which its curvature says nothing of its scale
_SAME = 1e-6  # relative difference of Hessians at two points, or of values, that is rounding
_LENGTHS = (-3.0, -1.0, 1.0, 3.0)  # of steps, whose values a quadratic foretells
_LEAST_ACCEPTED = 0.35  # of independent proposals, below which Hamiltonian steps take their place
_LEAPS = 6
_FIRST_CLIMBS, _NEWTON_STEPS = 3, 15  # sweeps in which a block goes to its mode, and steps to it
_AVERAGE = 0.02  # least weight of the newest sweep in running means
_PATIENCE = 25  # sweeps of the warm-up between two decisions


class Sampler(Protocol):
    """Draws one block given the rest, however it does so."""

    @property
    def method(self) -> str:
        """How the block is drawn."""

    @property
    def acceptance(self) -> float:
        """Share of proposals that were accepted of late."""

    def ascend(self, u: Position) -> Position:
        """A step of the first sweeps, which look for a mode."""

    def draw(self, u: Position, adapts: bool) -> Position:
        """A step that leaves the posterior invariant; it is tuned while `adapts`."""

    def settle(self) -> None:
        """End of the warm-up."""

    def state(self) -> dict[str, Any]:
        """All that its next steps depend on."""

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""


class BlockSampler:
    """Draws a block given the rest.

    Parameters
    ----------
    density : RecordedDensity
    block : Block
    u : dict of Tensor
        A position, at which the block is looked at.

    Attributes
    ----------
    acceptance : float
        Running mean over elements and chains.
    method : {"exact", "laplace", "hmc"}
    """

    def __init__(self, density: RecordedDensity, block: Block, u: Position):
        self.density, self.block = density, block
        most = _MOST_NEWTON_GLOBAL if block.group == "global" else _MOST_NEWTON
        self.method = (
            "hmc" if block.size > most else "exact" if is_quadratic(density, block, u) else "laplace"
        )
        self.has_hessian = block.size <= most
        # An intercept in grams is a million times one in tonnes.
        self.longest = _LONGEST * density.pack(block, u).abs().mean((0, 1)).clamp(min=1.0)
        self.centre: Tensor | None = None
        self.acceptance = 1.0
        self.variance: Tensor | None = None
        self.tuner = DualAveraging(prox_center=math.log(0.5))
        self.step_size = 0.2
        self.since = self.tuned = self.climbed = self.leapt = 0

    # ---- a sweep -------------------------------------------------------------------------------------------
    def ascend(self, u: Position) -> Position:
        """A Newton step with noise from where the block is, taken unless far worse: for the first sweeps."""
        q = self.density.pack(self.block, u)
        if not self.has_hessian:
            return self._kept(u, q, self._leapt(u, q, self._metric(q), adapts=True))
        self.climbed += 1
        if self.climbed <= _FIRST_CLIMBS and self.block.group != "rows" and self.method != "exact":
            q = self._climbed(q, u)
        gradient, root = self._newton(q, u)
        step = torch.cholesky_solve(gradient[..., None], root)[..., 0].clamp(-self.longest, self.longest)
        proposal = q + step + _scaled(torch.randn_like(q), root)
        change = self.density.total(self.block, proposal, u) - self.density.total(self.block, q, u)
        better = (change.nan_to_num(nan=-torch.inf) > -float(self.block.size) - 1)[..., None]
        # Not the draw but its centre, where only the noise made it worse.
        half = self.density.total(self.block, q + 0.5 * step, u) - self.density.total(self.block, q, u)
        safe = torch.where((half.nan_to_num(nan=-torch.inf) > 0)[..., None], q + 0.5 * step, q)
        moved = torch.where(better, proposal, safe)
        self.centre = moved.clone()
        return self.density.unpack(self.block, moved, u)

    def _climbed(self, q: Tensor, u: Position) -> Tensor:
        """Near the mode: a scale that begins far too small doubles or so with each Newton step.

        Rows that are drawn while it is small follow the feature's noise, which then stays small for good.
        """
        value = self.density.total(self.block, q, u)
        for _ in range(_NEWTON_STEPS):
            gradient, root = self._newton(q, u)
            step = torch.cholesky_solve(gradient[..., None], root)[..., 0].clamp(-self.longest, self.longest)
            there = self.density.total(self.block, q + step, u).nan_to_num(nan=-torch.inf)
            better = there > value
            if not bool(better.any()):
                break
            q, value = torch.where(better[..., None], q + step, q), torch.where(better, there, value)
        return q

    def draw(self, u: Position, adapts: bool) -> Position:
        """A step that leaves the posterior invariant; its proposals are tuned while `adapts`."""
        q = self.density.pack(self.block, u)
        if self.centre is None:
            self.centre = q.clone()
        if self.method == "hmc":
            root = self._newton(self.centre, u)[1] if self.has_hessian else self._metric(q)
            moved, ok = self._leapt(u, q, root, adapts)
        else:
            moved, ok = self._independent(u, q, self.centre)
        u = self._kept(u, q, (moved, ok))
        if adapts:
            self._adapt(self.density.pack(self.block, u))
        return u

    # ---- proposals -----------------------------------------------------------------------------------------
    def _newton(self, q: Tensor, u: Position) -> tuple[Tensor, Tensor]:
        """Gradient and Cholesky factor of the precision at a point."""
        gradient, precision = self.density.curvature(self.block, q, u)
        return gradient.nan_to_num(0.0), cholesky(precision)

    def _independent(self, u: Position, q: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
        gradient, root = self._newton(centre, u)
        step = torch.cholesky_solve(gradient[..., None], root)[..., 0]
        noise = torch.randn_like(q)
        if self.method == "exact":
            return centre + step + _scaled(noise, root), torch.zeros_like(q[..., 0])
        mean = centre + step.clamp(-self.longest, self.longest)
        noise = noise * (_DF / Chi2(torch.full_like(q[..., :1], _DF)).sample()).sqrt()
        proposal = mean + _scaled(noise, root)
        before = (root.mT @ (q - mean)[..., None])[..., 0]
        log_ratio = self.density.total(self.block, proposal, u) - self.density.total(self.block, q, u)
        return proposal, log_ratio + _log_student(before) - _log_student(noise)

    def _leapt(self, u: Position, q: Tensor, root: Tensor, adapts: bool) -> tuple[Tensor, Tensor]:
        """Leapfrog steps in the metric of `root`, a Cholesky factor of the precision."""
        size = self.step_size * (0.8 + 0.4 * torch.rand(()).item())

        def along(q: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = self.density.slope(self.block, q, u)
            return value, torch.linalg.solve_triangular(
                root, gradient.nan_to_num(0.0)[..., None], upper=False
            )[..., 0]

        before, force = along(q)
        momentum = torch.randn_like(q)
        energy = before - 0.5 * momentum.square().sum(-1)
        moved = q
        for _ in range(_LEAPS):
            momentum = momentum + 0.5 * size * force
            moved = moved + size * _scaled(momentum, root)
            value, force = along(moved)
            momentum = momentum + 0.5 * size * force
        log_ratio = value - 0.5 * momentum.square().sum(-1) - energy
        if adapts:
            rate = log_ratio.nan_to_num(nan=-torch.inf).clamp(max=0).exp().mean().item()
            self.tuner.step(0.8 - rate)
            self.leapt += 1
            self.step_size = math.exp(self.tuner.get_state()[0])
        return moved, log_ratio

    def _metric(self, q: Tensor) -> Tensor:
        variance = torch.ones_like(q[0, 0]) if self.variance is None else self.variance
        return variance.rsqrt().diag_embed().expand(*q.shape, q.shape[-1])

    def _kept(self, u: Position, q: Tensor, proposal: tuple[Tensor, Tensor]) -> Position:
        moved, log_ratio = proposal
        ok, rate = accepted(log_ratio)
        self.acceptance += _AVERAGE * (rate.mean().item() - self.acceptance)
        return self.density.unpack(self.block, torch.where(ok[..., None], moved, q), u)

    # ---- what a resumed run needs --------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """All that its next steps depend on."""
        names = (
            "method", "centre", "acceptance", "variance", "step_size", "since", "tuned", "climbed", "leapt",
        )  # fmt: skip
        return {**{name: getattr(self, name) for name in names}, "tuner": dict(vars(self.tuner))}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        vars(self.tuner).update(saved["tuner"])
        for name in saved.keys() - {"tuner"}:
            setattr(self, name, saved[name])

    # ---- tuning --------------------------------------------------------------------------------------------
    def _adapt(self, q: Tensor) -> None:
        assert self.centre is not None
        self.tuned += 1
        self.centre = self.centre + max(_AVERAGE, 1 / self.tuned) * (q - self.centre)
        if len(q) > 1 and not self.has_hessian:
            spread = q.var(0).mean(0).clamp(min=1e-4)
            self.variance = (
                spread if self.variance is None else self.variance + _AVERAGE * (spread - self.variance)
            )
        self.since += 1
        if self.method == "laplace" and self.since >= _PATIENCE and self.acceptance < _LEAST_ACCEPTED:
            self.method = "hmc"

    def settle(self) -> None:
        """End of the warm-up: the step size is the average of its tuning."""
        if self.method == "hmc" and self.leapt:  # it may have become so in the last sweep
            self.step_size = math.exp(self.tuner.get_state()[1])


def is_quadratic(density: RecordedDensity, block: Block, u: Position) -> bool:
    """Whether the terms of a block are quadratic, here and where all other sites are elsewhere.

    They have the same Hessian at two points, and the values that follow from it: a step function has the
    first and not the second. Steps are of unit length, and as long as the curvature says that numbers vary:
    in units of which there are a million every function is flat.

    Parameters
    ----------
    density : RecordedDensity
    block : Block
    u : dict of Tensor
    """
    q = density.pack(block, u)
    step = torch.randn_like(q)
    there = elsewhere(density, u)
    return all(
        _is_quadratic(density, block, density.pack(block, at), step, at, in_units)
        for at in (u, there)
        for in_units in (False, True)
    )


def _is_quadratic(
    density: RecordedDensity, block: Block, q: Tensor, step: Tensor, u: Position, in_units: bool
) -> bool:
    gradient, precision = density.curvature(block, q, u)
    if in_units:
        scale = precision.diagonal(dim1=-2, dim2=-1).clamp(min=_LEAST_SCALE**2).rsqrt()
        scale = torch.where(scale < 1 / _LEAST_SCALE, scale, torch.ones_like(scale))
        step = scale * step
    else:
        scale = torch.ones_like(step)
    other = density.curvature(block, q + step, u)[1]
    area = scale[..., :, None] * scale[..., None, :]
    if not bool((area * (precision - other).abs() <= _SAME * (1 + area * precision.abs())).all()):
        return False
    value = density.total(block, q, u)
    slope, bend = (gradient * step).sum(-1), (step * (precision @ step[..., None])[..., 0]).sum(-1)
    for length in _LENGTHS:
        there, foretold = density.total(block, q + length * step, u), length * slope - 0.5 * length**2 * bend
        error = (there - value - foretold).abs() <= _SAME * (1 + value.abs() + there.abs() + foretold.abs())
        if not bool(error.all()):
            return False
    return True


def accepted(log_ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Metropolis' choice for each element, and its probability."""
    log_ratio = log_ratio.nan_to_num(nan=-torch.inf)
    return torch.rand_like(log_ratio).log() < log_ratio, log_ratio.clamp(max=0).exp()


def cholesky(precision: Tensor) -> Tensor:
    """Cholesky factors; of the diagonal where a matrix is not positive definite."""
    root, info = torch.linalg.cholesky_ex(precision)
    bad = (info > 0) | ~torch.isfinite(root).all(-1).all(-1)
    if not bool(bad.any()):
        return root
    return torch.where(bad[..., None, None], diagonal_of(precision).sqrt().diag_embed(), root)


def _scaled(noise: Tensor, root: Tensor) -> Tensor:
    """Noise whose precision has the Cholesky factor `root`."""
    return torch.linalg.solve_triangular(root.mT, noise[..., None], upper=True)[..., 0]


def _log_student(noise: Tensor) -> Tensor:
    """Log density of standardised proposals, up to a constant."""
    return -(_DF + noise.shape[-1]) / 2 * torch.log1p(noise.square().sum(-1) / _DF)
