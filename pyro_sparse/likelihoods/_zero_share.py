"""Counts with a probability of zeros of each feature: what inflated zeros and hurdles share."""

from __future__ import annotations

import math
from collections.abc import Collection

import pyro.distributions as dist
import torch
from torch import Tensor, nn

from .base import Likelihood
from .counts import Poisson

__all__ = ["ZeroShare"]


class ZeroShare(Poisson):
    r"""Base of counts with a parameter ``logit_zero`` (R, 1, G), the logit of :math:`\pi_j \sim` Beta(a, b).

    Attributes
    ----------
    zero_prior : (float, float)
        a and b.
    """

    zero_prior: tuple[float, float]

    def _take_zero_prior(self, zero_prior: tuple[float, float]) -> None:
        a, b = zero_prior
        if not (a > 0 and b > 0):
            raise ValueError(f"zero_prior: got {zero_prior}, wanted two positive numbers, such as (1, 9)")
        self.zero_prior = float(a), float(b)

    @property
    def shares(self) -> bool:
        return False  # a feature's share of a total is of its rate, and a zero may not be

    def given_totals(self, made: Collection[str]) -> Likelihood | None:
        return None

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        super().setup(n_features, n_restarts)
        self.logit_zero = nn.Parameter(torch.full((n_restarts, 1, n_features), self._first_logit))

    @property
    def _first_logit(self) -> float:
        """Of the prior's mean."""
        a, b = self.zero_prior
        return math.log(a / b)

    def zero_prob(self) -> Tensor:
        """The probability of these zeros, (R, 1, G)."""
        return torch.sigmoid(self.logit_zero)

    def priors(self) -> dict[str, dist.Distribution]:
        a, b = (torch.full_like(self.logit_zero.squeeze(1), number) for number in self.zero_prior)
        return {**super().priors(), "zero_prob": dist.Beta(a, b).to_event(1)}

    def values(self) -> dict[str, Tensor]:
        return {**super().values(), "zero_prob": self.zero_prob().squeeze(1)}
