"""Counts with more zeros than a negative binomial has: some cells are 0 whatever the factors say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.nn import functional as F

from ._zero_share import ZeroShare
from .base import CELL_TERMS, CELLS, NOTHING, PerRow
from .counts import LOG_RATE_RANGE, NegativeBinomial, _soft_range

__all__ = ["ZeroInflatedNegativeBinomial"]


class ZeroInflatedNegativeBinomial(ZeroShare, NegativeBinomial):
    r"""Negative-binomial counts, each 0 with an extra probability of its feature.

    .. math:: P(x_{ij}) = \pi_j [x_{ij} = 0] + (1 - \pi_j)\, \mathrm{NB}(x_{ij}; \mu_{ij} = s_i e^{f_{ij}},
              \theta_j), \qquad \pi_j \sim \mathrm{Beta}(a, b), \quad
              \theta_j^{-1/2} \sim \mathrm{HalfNormal}(\tau).

    Parameters
    ----------
    size_factors : bool or "auto"
        As in `Poisson`; exposures from totals are taken as known (below).
    prior_scale, init : float
        Of ``extra_cv`` = θ^(−1/2), as in `NegativeBinomial`.
    zero_prior : (float, float)
        a and b. The default (1, 9) has its mean at a tenth and its mode at none.

    Raises
    ------
    ValueError
        A number is not positive.

    Notes
    -----
    Parameters are ``log_theta`` and ``logit_zero`` (R, 1, G), the logit of :math:`\pi_j`. A dispersion makes
    zeros, too: few rows do not tell the two apart, and chains then say so by how much both vary.

    Where totals are taken for depth, exposures are those of `default_per_row`, in the fit and in the chains;
    they are not shared out between the features of a row, as `NegativeBinomial` does with few features.

    The log density is not concave in f at zeros. `cell_terms` have there in place of minus its curvature that
    of the negative binomial times the probability that the zero is its own: the information of the complete
    data given the cell, as the EM algorithm has it, which is positive and at least minus the curvature.

    References
    ----------
    Lambert (1992), *Zero-inflated Poisson regression*, Technometrics 34(1).
    Greene (1994), *Accounting for excess zeros and sample selection in Poisson and negative binomial
    regression models*, NYU Stern working paper EC-94-10.

    Examples
    --------
    >>> likelihood = ZeroInflatedNegativeBinomial(size_factors=False)
    >>> likelihood.setup(2)
    >>> likelihood.values()["zero_prob"].detach().numpy().round(2)
    array([[0.1, 0.1]], dtype=float32)
    """

    declares = (CELLS, CELL_TERMS)
    name = "zero_inflated_negative_binomial"

    def __init__(
        self,
        size_factors: bool | Literal["auto"] = "auto",
        prior_scale: float = 1.0,
        init: float = 0.5,
        zero_prior: tuple[float, float] = (1.0, 9.0),
    ) -> None:
        super().__init__(size_factors, prior_scale, init)
        self._take_zero_prior(zero_prior)

    def dispersion_parameters(self) -> tuple[str, ...]:
        return ("log_theta",)

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        return super().intercept(total, seen, amounts) + math.log1p(math.exp(self._first_logit))

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        return dist.ZeroInflatedDistribution(super().forward(f, per_row), gate_logits=self.logit_zero)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return torch.sigmoid(-self.logit_zero) * super().mean(f, per_row)

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        of_counts, logit_zero, theta = super().scorer(per_row), self.logit_zero.mT, self._theta().mT
        exposure = per_row.get("exposure")
        shift = 0.0 if exposure is None else exposure.log().mT

        def score(f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
            size = theta[r, features]
            log_none = -size * F.softplus(_soft_range(f + shift, *LOG_RATE_RANGE) - size.log())
            own = torch.sigmoid(log_none - logit_zero[r, features])
            return of_counts(f, x, r, features) * torch.where(x == 0, own, 1.0)

        return score

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        of_counts = super().cell_terms(f, x, dispersion, per_row, order)
        if of_counts is None:
            return None
        logit_zero = self.logit_zero.squeeze(1).unsqueeze(-1).to(f)
        is_zero, log_count = x == 0, of_counts[0] - F.softplus(logit_zero)
        log_p = torch.where(is_zero, torch.logaddexp(F.logsigmoid(logit_zero), log_count), log_count)
        own = torch.where(is_zero, torch.sigmoid(of_counts[0] - logit_zero), 1.0)  # P(not an extra zero | x)
        return (log_p, *(own * term for term in of_counts[1:]))
