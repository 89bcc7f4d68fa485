r"""AdamW as torch has it, with less to do around its one call: for models whose step is calls.

State, settings and numbers are those of ``torch.optim.AdamW(fused=True)``; once all parameters have their
state, a step hands it to torch's kernel and leaves out what a training loop does not use (hooks, closures).
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
        self.short: list[tuple[Any, list[list[Tensor]], list[Tensor]]] = []

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient.

        Parameters
        ----------
        closure : None
            Nothing is evaluated again.
        """
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        if any(g is None or g.device.type != "cpu" for g in gradients) or not (self.short or self._arrange()):
            self._release()
            super().step()
            return
        at = 0
        for group, state, steps in self.short:
            parameters, mean, square, counts = state
            own, at = gradients[at : at + len(parameters)], at + len(parameters)
            for step in steps:
                step += 1
            (beta1, beta2), lr = group["betas"], group["lr"]
            torch._fused_adamw_(
                parameters, own, mean, square, [], counts, amsgrad=False, lr=lr, beta1=beta1, beta2=beta2,
                weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
            )  # fmt: skip

    def load_state_dict(self, state_dict: Any) -> None:
        """As in torch.

        Parameters
        ----------
        state_dict : dict
        """
        self._release()
        super().load_state_dict(state_dict)

    def _release(self) -> None:
        """Give every parameter a count of its own again."""
        for group, _, _ in self.short:
            for p in group["params"]:
                self.state[p]["step"] = self.state[p]["step"].clone()
        self.short = []

    def _arrange(self) -> bool:
        """List tensors by group and let equal counts of steps be one; False while a state is missing."""
        groups = [(group, group["params"]) for group in self.param_groups]
        if not all(self.state.get(p) for _, own in groups for p in own):
            return False
        for group, own in groups:
            counts: dict[float, Tensor] = {}
            for p in own:
                step = self.state[p]["step"]
                self.state[p]["step"] = counts.setdefault(float(step), step)
            state = [[self.state[p][name] for p in own] for name in ("exp_avg", "exp_avg_sq", "step")]
            self.short.append((group, [own, *state], [*counts.values()]))
        return True
