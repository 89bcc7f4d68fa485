"""The activation of hidden units and the way back through it, in place, without autograd."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["Bend", "by_head", "tanh_"]


class Bend:
    """The activation of hidden units and the way back through it, in place; for a pass with `relu` set."""

    relu: bool

    def bend(self, h: Tensor) -> Tensor:
        """The activation, in place."""
        return h.relu_() if self.relu else tanh_(h)

    def through(self, down: Tensor, h: Tensor, into: Tensor) -> Tensor:
        """Gradient before a bend, given that behind it and the units."""
        before: Tensor
        if self.relu:
            before = torch.ops.aten.threshold_backward.grad_input(down, h, 0, grad_input=into)
        else:
            before = torch.ops.aten.tanh_backward.grad_input(down, h, grad_input=into)
        return before


def tanh_(h: Tensor) -> Tensor:
    """Hyperbolic tangents in place, by numpy on the processor: torch's take up to a dozen times as long.

    Parameters
    ----------
    h : Tensor
        Gradients are not followed.
    """
    if h.device.type != "cpu" or h.dtype not in (torch.float32, torch.float64):
        return h.tanh_()
    array = h.numpy()
    np.tanh(array, out=array)
    return h


def by_head(units: Tensor, head: Tensor, room: Tensor, dtype: torch.dtype) -> Tensor:
    """Units times their feature's head, summed in `dtype`, which is finer where units are rounded.

    Parameters
    ----------
    units : Tensor (feature, row, hidden)
    head : Tensor (feature, 1, hidden)
    room : Tensor
        Shaped like the units, to work in.
    dtype : dtype

    Returns
    -------
    Tensor (feature, row)
    """
    if units.dtype == dtype:
        return torch.bmm(units, head.mT).squeeze(-1)
    return torch.mul(units, head, out=room).sum(-1, dtype=dtype)
