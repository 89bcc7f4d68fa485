r"""AdamW as torch has it, with less to do around its one call: for models whose step is calls.

State, settings and numbers are those of ``torch.optim.AdamW(fused=True)``; a step hands all tensors of one
weight decay to torch's kernel and leaves out what a training loop does not use (hooks, closures, profiling).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["AdamW"]


class AdamW(torch.optim.AdamW):
    """``torch.optim.AdamW(fused=True)``; parameters on the processor take the short way.

    Parameters
    ----------
    params, lr, betas, eps, weight_decay
        As in torch.
    """

    def __init__(self, params: Any, **settings: Any):
        super().__init__(params, **settings, fused=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient.

        Parameters
        ----------
        closure : None
            Nothing is evaluated again.
        """
        batches: dict[tuple[Any, ...], list[list[Tensor]]] = {}
        for group in self.param_groups:
            settings = group["lr"], *group["betas"], group["weight_decay"], group["eps"]
            lists = batches.setdefault(settings, [[] for _ in range(5)])
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state or parameter.device.type != "cpu":  # the first step makes the state
                    super().step()
                    return
                one = parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"]
                for part, found in zip(lists, one, strict=True):
                    part.append(found)
        for (lr, beta1, beta2, decay, eps), (own, gradients, mean, square, steps) in batches.items():
            if own:
                torch._foreach_add_(steps, 1)
                torch._fused_adamw_(
                    own, gradients, mean, square, [], steps, amsgrad=False, lr=lr, beta1=beta1, beta2=beta2,
                    weight_decay=decay, eps=eps, maximize=False,
                )  # fmt: skip
