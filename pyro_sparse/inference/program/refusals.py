"""What cannot be recorded of a program, in words about the program."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .replay import DETACHED

__all__ = ["explained", "refuse_unnamed"]


def refuse_unnamed(graph: Any) -> None:
    """Complain of parameters that a program computes with and does not name, which would never be learned.

    Parameters
    ----------
    graph : GraphModule
        Of the program, recorded.
    """
    for node in graph.graph.nodes:
        held = getattr(graph, node.target, None) if node.op == "get_attr" else None
        if not isinstance(held, Tensor) or not held.requires_grad:
            continue
        if any(user.target not in DETACHED for user in node.users):
            raise ValueError(
                f"program: computes with a parameter of shape {tuple(held.shape)} that it does not name, and "
                "chains would hold it where it is; write pyro.param('name', value) for what the fit is to "
                "learn, and value.detach() for what stays as it is. Of a network, which pyro.module leaves "
                "its own parameters: torch.func.functional_call(net, {n: pyro.param(n, p.detach()) for n, p "
                "in net.named_parameters()}, x)"
            )


class explained:
    """Errors of `vmap` and of the recording, in words about the program."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        text = str(error) if error is not None else ""
        if "data-dependent control flow" in text or "item()" in text:
            raise ValueError(
                "program: branches on a sampled value (if, while, .item(), float(...)); write it with "
                "torch.where, for all chains run in one pass"
            ) from error
        if "randomness" in text:
            raise ValueError(
                "program: draws random numbers outside of a site; make them a site, or draw them before"
            ) from error
        if "in-place" in text or "inplace" in text:
            raise ValueError(
                "program: writes into a tensor in place; make a new one (torch.cat, torch.stack, torch.where)"
            ) from error
        if "data pointer" in text or "numpy()" in text:
            raise ValueError(
                "program: computes with numpy where values are sampled; make arrays tensors before, "
                "torch.as_tensor(array), and use torch's functions"
            ) from error
