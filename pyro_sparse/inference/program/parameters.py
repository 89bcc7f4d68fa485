r"""Parameters, numbers without a prior: estimated by stochastic EM in the warm-up, and held from then on.

By Fisher's identity the gradient of the likelihood is the mean of that of the joint density over the
posterior, of which every sweep is a draw:

.. math:: \theta_{t+1} = \theta_t + \gamma_t\,\bar P^{-1}\,
          \nabla_\theta \log p(x, \text{sweep}_t; \theta_t), \qquad \gamma_t = t^{-0.6},

with :math:`\bar P` the mean negative Hessian of the joint so far, or, of many numbers, the root of the mean
squared gradient. Chains of one table share their parameters: together they are draws of one model.

References
----------
Delyon, Lavielle and Moulines (1999), Convergence of a stochastic approximation version of the EM algorithm,
Annals of Statistics 27(1)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .blocks import cholesky
from .recorded import Block, Position, RecordedDensity

__all__ = ["ParameterSampler"]

_DECAY = 0.6  # of the gain
_MOST_NEWTON = 40  # numbers up to which their Hessian is taken
_LONGEST = 1.0  # of a step, on the scale of real numbers
_RATE = 0.2  # length of full steps of many numbers, each
_SAME = 1e-12  # relative difference of chains' values that is rounding
_AVERAGE = 0.05  # least weight of the newest sweep in the mean Hessian


class ParameterSampler:
    """Estimates a parameter; it does so while it may adapt, and holds it afterwards.

    Parameters
    ----------
    density : RecordedDensity
    block : Block
    u : dict of Tensor
        Not used: where a parameter begins is read off the position.
    table_of : Tensor of int (chain,)
        Chains with one number share the parameter.
    """

    method, acceptance = "learned", 1.0

    def __init__(self, density: RecordedDensity, block: Block, u: Position, table_of: Tensor):
        self.density, self.block = density, block
        same = (table_of[:, None] == table_of).double()
        self.mean_over = same / same.sum(1, keepdim=True)  # (chain, chain)
        self.learns_scale = block.size <= _MOST_NEWTON
        self.scale: Tensor | None = None
        self.seen, self.tuned = 0, 0

    def ascend(self, u: Position) -> Position:
        """A step of full length, as draws are taken from where the chains are still on their way."""
        return self._stepped(u, 1.0)

    def draw(self, u: Position, adapts: bool) -> Position:
        """A step, shorter and shorter; none where nothing may adapt."""
        if not adapts:
            return self._stepped(u, 0.0)
        self.tuned += 1
        return self._stepped(u, self.tuned**-_DECAY)

    def settle(self) -> None:
        """End of the warm-up: nothing to tune."""

    def _stepped(self, u: Position, gain: float) -> Position:
        q = self.density.pack(self.block, u)
        shared = self._shared(q)
        q = torch.where((shared - q).abs() > _SAME * (1 + q.abs()), shared, q)  # held to the bit
        u = self.density.unpack(self.block, q, u)
        # Spikes that are still wide are those of another model.
        counts = (~self.density.is_heated).double()
        share = (self.mean_over @ counts)[:, None, None]
        if gain == 0 or not bool((share > 0).any()):
            return u
        step = gain * self._direction(q, u, counts[:, None, None] / share.clamp(min=1e-9))
        return self.density.unpack(self.block, q + torch.where(share > 0, step, 0.0), u)

    def _direction(self, q: Tensor, u: Position, weight: Tensor) -> Tensor:
        self.seen += 1
        newest = max(_AVERAGE, 1 / self.seen)
        if self.learns_scale:
            gradient, precision = self.density.curvature(self.block, q, u)
            gradient = self._shared((weight * gradient).nan_to_num(0.0, 0.0, 0.0))
            precision = self._shared((weight[..., None] * precision).nan_to_num(0.0, 0.0, 0.0))
            old = precision if self.scale is None else self.scale
            self.scale = old + newest * (precision - old)
            step = torch.cholesky_solve(gradient[..., None], cholesky(self.scale))[..., 0]
            return step.clamp(-_LONGEST, _LONGEST)
        slope = self.density.slope(self.block, q, u)[1]
        gradient = self._shared((weight * slope).nan_to_num(0.0, 0.0, 0.0))
        self.scale = gradient**2 if self.scale is None else self.scale + gradient**2
        return _RATE * gradient / (self.scale / self.seen).sqrt().clamp(min=1e-12)

    def _shared(self, value: Tensor) -> Tensor:
        """Means over the chains of each table, for every chain."""
        return torch.einsum("cd,d...->c...", self.mean_over, value)

    # ---- what a resumed run needs --------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """All that its next steps depend on."""
        return {name: getattr(self, name) for name in ("scale", "seen", "tuned")}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        for name, value in saved.items():
            setattr(self, name, value)
