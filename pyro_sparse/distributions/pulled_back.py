r"""The density of a parameter of which a prior speaks by a quantity that the parameter determines.

.. math:: p(\theta) = p_v\bigl(v(\theta)\bigr)\,|v'(\theta)|, \qquad v \text{ elementwise}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.func import vjp

__all__ = ["PulledBack"]


class PulledBack(dist.TorchDistribution):
    r"""A real parameter :math:`\theta` such that :math:`v(\theta)` has a given density.

    Parameters
    ----------
    log_prob_of : callable
        Log density of v, elementwise.
    quantity : callable
        v, elementwise and increasing or decreasing.
    value : Tensor
        What is drawn, always: the inverse of v is not asked for. Its shape is the batch.

    Examples
    --------
    >>> import torch, pyro.distributions as dist
    >>> log_sd = PulledBack(dist.LogNormal(0.0, 1.0).log_prob, torch.exp, torch.zeros(2))
    >>> torch.allclose(log_sd.log_prob(torch.ones(2)), dist.Normal(0.0, 1.0).log_prob(torch.ones(2)))
    True
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.real

    def __init__(
        self, log_prob_of: Callable[[Tensor], Tensor], quantity: Callable[[Tensor], Tensor], value: Tensor
    ):
        self.log_prob_of, self.quantity, self.value = log_prob_of, quantity, value
        super().__init__(value.shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: None = None) -> PulledBack:
        """The same of a larger batch."""
        return PulledBack(self.log_prob_of, self.quantity, self.value.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of the parameter."""
        quantity, back = cast("tuple[Tensor, Any]", vjp(self.quantity, value))
        (slope,) = back(torch.ones_like(quantity))
        log_prob: Tensor = self.log_prob_of(quantity) + slope.abs().log()
        return log_prob

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (as torch has it)
        """The value."""
        return self.value.expand(*sample_shape, *self.value.shape).clone()
