"""torch's inverse gamma, made without what torch imports to compare two shapes."""

from __future__ import annotations

from collections.abc import Sequence

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import TransformedDistribution
from torch.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class _Reciprocal(PowerTransform):
    """1 / x. Its exponent has no shape of its own, and `torch.broadcast_shapes` would import SymPy."""

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape

    inverse_shape = forward_shape


class InverseGamma(dist.InverseGamma):
    """`pyro.distributions.InverseGamma`, some tenths of a second sooner when it is the first.

    Parameters
    ----------
    concentration, rate : Tensor or float
    """

    def __init__(
        self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None
    ) -> None:
        gamma = dist.Gamma(concentration, rate, validate_args=validate_args)
        power = _Reciprocal(-gamma.rate.new_ones(()))
        TransformedDistribution.__init__(self, gamma, power, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: InverseGamma | None = None) -> InverseGamma:
        """The same distribution with a larger batch shape."""
        new = self._get_checked_instance(InverseGamma, _instance)
        return super().expand(batch_shape, _instance=new)  # type: ignore[no-any-return]
