"""Arithmetic on a few dozen numbers: on the processor numpy's view of the same memory, elsewhere the tensors.

A call of torch takes microseconds, one of numpy a fraction of it, and most of a small model's step are calls.
What is written with `arrays` works with either: operators, functions of the module handed out, and names both
know. What is `compiled` is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

try:
    from numba import njit
except ImportError:  # the extra "fast" is not installed
    njit = None

__all__ = ["COMPILED", "arrays", "compiled", "strictly_compiled", "tensor"]

COMPILED = njit is not None
Result = TypeVar("Result")


def compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function as machine code, where numba is installed; made at its first call and kept on disk.

    Parameters
    ----------
    function : callable
        Of arrays and numbers. Sums may be reordered; infinities and NaN keep their meaning.
    """
    return _compiled(function, {"reassoc", "contract", "nsz"})


def strictly_compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """As `compiled`, with sums in the order in which they are written: for what lives by their rounding."""
    return _compiled(function, {"contract"})


def _compiled(function: Callable[..., Result], fastmath: set[str]) -> Callable[..., Result]:
    if njit is None:
        return function
    settings = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return njit(cache=True, **settings)(function)
    except RuntimeError:  # no folder to keep machine code in
        return njit(**settings)(function)


def arrays(*tensors: Tensor) -> tuple[Any, ...]:
    """The module to compute with, then each tensor's memory: what is written to it is written to the tensor.

    Parameters
    ----------
    *tensors : Tensor
        All on one device; gradients are not followed.
    """
    if tensors[0].device.type == "cpu":
        return np, *(t.detach().numpy() for t in tensors)
    return torch, *(t.detach() for t in tensors)


def tensor(computed: Tensor | npt.ArrayLike) -> Tensor:
    """What was computed, as a tensor."""
    return computed if isinstance(computed, Tensor) else torch.from_numpy(np.asarray(computed))
