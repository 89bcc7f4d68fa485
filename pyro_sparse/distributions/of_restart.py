"""One restart's distribution out of a batch of one restart: models speak of all restarts, programs of one."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

__all__ = ["OfRestart"]


class OfRestart(dist.TorchDistribution):
    """A distribution of batch shape (1, ...) as one of batch shape (...).

    Parameters
    ----------
    base : Distribution
    batch_shape : torch.Size, optional
        To which the base is broadcast; default its own without the first dimension.

    Examples
    --------
    >>> import pyro.distributions as dist, torch
    >>> rows = OfRestart(dist.Normal(torch.zeros(1, 5, 2), 1.0).to_event(1))
    >>> rows.batch_shape, rows.log_prob(torch.zeros(5, 2)).shape
    (torch.Size([5]), torch.Size([5]))
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, base: Any, batch_shape: torch.Size | None = None):
        self.base = base
        shape = base.batch_shape[1:] if batch_shape is None else batch_shape
        super().__init__(torch.Size(shape), base.event_shape, validate_args=False)

    @property
    def has_enumerate_support(self) -> bool:
        """Whether the base has."""
        return bool(self.base.has_enumerate_support)

    @property
    def support(self) -> Any:
        """That of the base."""
        return self.base.support

    def expand(self, batch_shape: torch.Size, _instance: None = None) -> OfRestart:
        """The same of a larger batch."""
        return OfRestart(self.base, torch.Size(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density."""
        n_batch = len(self.batch_shape)
        beside = value.reshape(*[1] * (n_batch + self.event_dim - value.dim()), *value.shape)
        log_prob: Tensor = self.base.log_prob(beside.unsqueeze(-n_batch - self.event_dim - 1))
        squeezed = log_prob.squeeze(-n_batch - 1)
        return squeezed.expand(torch.broadcast_shapes(squeezed.shape, self.batch_shape))

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (as torch has it)
        """Draws."""
        drawn: Tensor = self.base.expand(torch.Size((1, *self.batch_shape))).sample(sample_shape)
        return drawn.squeeze(len(sample_shape))
