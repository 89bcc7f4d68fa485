"""How a program runs under the engine: its parameters are the caller's, and its sites have one precision.

What a program's chains begin with must not depend on what else has run in the process, and chains each have
values of their own. A program that is called by Pyro's algorithms (`SVI`) has Pyro's store, as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyro
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import Transform, constraints, transform_to

__all__ = ["GivenParameters", "link_of_parameter"]


class GivenParameters(Messenger):
    """Inside of it `pyro.param` returns these values, and of others the initial ones.

    Real numbers of sites are of the default precision, also where a distribution or a value was made outside
    of the program, in another one.

    Parameters
    ----------
    values : mapping of str to Tensor, optional
    """

    def __init__(self, values: Mapping[str, Tensor] | None = None):
        super().__init__()
        self.values = {} if values is None else values

    def _pyro_param(self, msg: Any) -> None:
        name, store = msg["name"], pyro.get_param_store()
        value = self.values.get(name)
        begin = msg["args"][1] if len(msg["args"]) > 1 else msg["kwargs"].get("init_tensor")
        if begin is None and name in store:  # of a `PyroModule`, which keeps its own there
            begin = store[name]
            msg["kwargs"]["constraint"] = store.get_state()["constraints"][name]
        if value is None and begin is None:
            raise ValueError(
                f"parameter {name!r} has no initial value; give it one: pyro.param({name!r}, value)"
            )
        if value is None:
            value = (begin() if callable(begin) else begin).detach()
        msg["value"] = value.to(torch.get_default_dtype())

    def _pyro_post_sample(self, msg: Any) -> None:
        value = msg["value"]
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            msg["value"] = value.to(torch.get_default_dtype())


def link_of_parameter(node: dict[str, Any]) -> Transform:
    """From real numbers to the constraint of a parameter, of its node in a trace.

    Parameters
    ----------
    node : dict
    """
    return transform_to(node["kwargs"].get("constraint", constraints.real))
