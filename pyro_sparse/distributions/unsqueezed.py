"""A distribution with a last batch dimension of size one: rows, where a table has columns, too."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

__all__ = ["Unsqueezed"]


class Unsqueezed(dist.TorchDistribution):
    """A distribution whose batch shape (..., row) becomes (..., row, 1).

    Parameters
    ----------
    base : Distribution

    Examples
    --------
    >>> import pyro.distributions as dist, torch
    >>> rows = Unsqueezed(dist.Normal(torch.zeros(5, 2), 1.0).to_event(1))
    >>> rows.batch_shape, rows.log_prob(torch.zeros(5, 1, 2)).shape
    (torch.Size([5, 1]), torch.Size([5, 1]))
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, base: dist.TorchDistribution):
        self.base = base
        super().__init__(torch.Size((*base.batch_shape, 1)), base.event_shape, validate_args=False)

    @property
    def has_rsample(self) -> bool:
        """Whether the base has."""
        return bool(self.base.has_rsample)

    @property
    def has_enumerate_support(self) -> bool:
        """Whether the base has."""
        return bool(self.base.has_enumerate_support)

    @property
    def support(self) -> Any:
        """That of the base."""
        return self.base.support

    def expand(self, batch_shape: torch.Size, _instance: None = None) -> Unsqueezed:
        """The same of a larger batch, whose last dimension stays of size one."""
        if batch_shape[-1] != 1:
            raise ValueError(f"batch_shape: its last dimension is {batch_shape[-1]}, wanted 1")
        return Unsqueezed(self.base.expand(batch_shape[:-1]))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density."""
        log_prob: Tensor = self.base.log_prob(value.squeeze(-1 - self.event_dim))
        return log_prob.unsqueeze(-1)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (as torch has it)
        """Draws."""
        drawn: Tensor = self.base.sample(sample_shape)
        return drawn.unsqueeze(-1 - self.event_dim)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draws with gradients."""
        drawn: Tensor = self.base.rsample(sample_shape)
        return drawn.unsqueeze(-1 - self.event_dim)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of the base."""
        values: Tensor = self.base.enumerate_support(expand)
        return values.unsqueeze(-1 - self.event_dim)

    @property
    def mean(self) -> Tensor:
        """That of the base."""
        mean: Tensor = self.base.mean
        return mean.unsqueeze(-1 - self.event_dim)
