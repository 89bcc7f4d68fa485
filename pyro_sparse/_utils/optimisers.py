"""torch's optimisers without its compiler: a step does not need it, and its import takes a second."""

from __future__ import annotations

from functools import lru_cache
from inspect import unwrap
from typing import TypeVar

import torch

__all__ = ["eager"]

OptimiserT = TypeVar("OptimiserT", bound=type[torch.optim.Optimizer])


@lru_cache
def eager(kind: OptimiserT) -> OptimiserT:
    """An optimiser of torch with the methods that torch decorates, for where nothing is compiled.

    The decorators import `torch._dynamo` at their first call, only to keep it away from the method.

    Parameters
    ----------
    kind : type
        A subclass of `torch.optim.Optimizer`.
    """
    methods = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    plain = {name: unwrap(getattr(kind, name)) for name in methods}
    return type(kind.__name__, (kind,), {**plain, "step": torch.no_grad()(unwrap(kind.step))})  # type: ignore[return-value]
