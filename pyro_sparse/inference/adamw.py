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

from .._arrays import COMPILED, compiled

__all__ = ["AdamW"]


@compiled
def _move(parameter, gradient, first, second, count, rate, beta1, beta2, eps, decay):
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
        self.plain = torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)
        self.param_groups, self.state = self.plain.param_groups, self.plain.state
        self.zero_grad, self.state_dict = self.plain.zero_grad, self.plain.state_dict
        self._memory: dict[Tensor, tuple[np.ndarray, ...]] = {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self.plain.load_state_dict(state)
        self.param_groups, self.state = self.plain.param_groups, self.plain.state
        self._memory.clear()

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not all(p in self._memory or self._remember(p) for _, p in moved):
            self.plain.step()  # which also makes the state that a first step lacks
            return
        for group, p in moved:
            gradient = p.grad.reshape(-1).numpy()
            _move(
                *self._memory[p][:1], gradient, *self._memory[p][1:],
                group["lr"], *group["betas"], group["eps"], group["weight_decay"],
            )  # fmt: skip

    def _remember(self, p: Tensor) -> bool:
        """Whether machine code can move a parameter; if so, its memory and its state's is kept at hand."""
        state = self.state.get(p)
        if not COMPILED or p.device.type != "cpu" or not p.is_contiguous() or not state:
            return False
        parts = p.detach(), state["exp_avg"], state["exp_avg_sq"], state["step"]
        self._memory[p] = tuple(part.view(-1).numpy() for part in parts)
        return True
