r"""AdamW in one call of machine code for each parameter: of a small model's step torch's own takes a quarter.

.. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
          \theta \leftarrow (1 - \rho\lambda)\,\theta
          - \rho\, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

torch's optimiser stays the owner of groups and state, and takes the steps wherever there is no machine code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._utils.arrays import COMPILED, arrays, compiled, tensor
from ..._utils.optimisers import eager

__all__ = ["AdamW"]


@compiled
def _move(parameter, first, second, count, gradient, rate, beta1, beta2, eps, decay):
    """One step of one parameter; all are flat, `count` holds the number of steps."""
    count[0] += 1
    kind = parameter.dtype.type
    size = kind(rate / (1 - beta1 ** float(count[0])))
    root = kind((1 - beta2 ** float(count[0])) ** 0.5)
    keep, own1, own2, least = kind(1 - rate * decay), kind(1 - beta1), kind(1 - beta2), kind(eps)
    for i in range(len(parameter)):
        g = gradient[i]
        first[i] += own1 * (g - first[i])
        second[i] += own2 * (g * g - second[i])
        parameter[i] = keep * parameter[i] - size * first[i] / (np.sqrt(second[i]) / root + least)


class _Moved:
    """A parameter, its group, and the memory of it, its two moments and its count, once there is a state."""

    __slots__ = ("flat", "gradient", "group", "memory", "parameter")

    def __init__(self, parameter: Tensor, group: dict[str, Any]):
        self.parameter, self.group = parameter, group
        self.memory: tuple[np.ndarray, ...] = ()
        self.gradient: Tensor | None = None  # whose memory is `flat`
        self.flat: np.ndarray | None = None

    def remember(self, state: dict[str, Tensor] | None) -> bool:
        """Whether machine code can move it."""
        p = self.parameter
        if not COMPILED or p.device.type != "cpu" or not p.is_contiguous() or not state:
            return False
        tensors = p.detach(), state["exp_avg"], state["exp_avg_sq"], state["step"]
        self.memory = tuple(tensor.view(-1).numpy() for tensor in tensors)
        return True

    def move(self) -> None:
        gradient, group = self.parameter.grad, self.group
        assert gradient is not None
        if gradient is not self.gradient:  # else its numbers may be others now, in the same memory
            self.flat = gradient.reshape(-1).numpy()
            self.gradient = gradient if gradient.is_contiguous() else None
        _move(*self.memory, self.flat, group["lr"], *group["betas"], group["eps"], group["weight_decay"])


class AdamW:
    """`torch.optim.AdamW(fused=True)` with quicker steps on the processor.

    Parameters
    ----------
    groups : iterable of dict
        `params` and `weight_decay`.
    lr : float
    betas : tuple of float

    References
    ----------
    Loshchilov, Hutter (2019). Decoupled Weight Decay Regularization. ICLR. Algorithm 2.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float] = (0.9, 0.999)
    ):
        self.plain = eager(torch.optim.AdamW)(groups, lr=lr, betas=betas, fused=True)
        self.zero_grad, self.state_dict = self.plain.zero_grad, self.plain.state_dict
        self._begin()

    def _begin(self) -> None:
        self.param_groups, self.state = self.plain.param_groups, self.plain.state
        self._moved = [_Moved(p, group) for group in self.param_groups for p in group["params"]]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self.plain.load_state_dict(state)
        self._begin()

    def preconditioner(self, parameter: Tensor, rate: float | Tensor) -> Tensor:
        r"""What a gradient's entries are multiplied with, :math:`\rho / (\sqrt{\hat v} + \epsilon)`.

        A proximal map that moves in this metric has the fixed points of the penalised objective.

        Parameters
        ----------
        parameter : Tensor
            One that has been moved.
        rate : float or Tensor ()
            :math:`\rho`, the step size.
        """
        state, (_, beta) = self.state[parameter], self.param_groups[0]["betas"]
        xp, square, count = arrays(state["exp_avg_sq"], state["step"])
        correction = 1 - beta ** (count if xp is torch else float(count))
        return tensor(rate / ((square / correction) ** 0.5 + 1e-8))

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [p for p in self._moved if p.parameter.grad is not None]
        if all(p.memory or p.remember(self.state.get(p.parameter)) for p in moved):
            for p in moved:
                p.move()
        else:
            self.plain.step()  # which also makes the state that a first step lacks
