"""Counts in two parts: whether there is any, and how many there are, of which only the second has factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn import functional as F

from ._zero_share import ZeroShare
from .base import CELL_TERMS, CELLS, NOTHING, PerRow
from .counts import (
    LOG_RATE_RANGE,
    NegativeBinomial,
    _soft_range,
    _soft_range_curvature,
    _soft_range_slope,
    _with_offset,
)
from .given_cells import ArrayT, filled, in_kind

__all__ = ["HurdleNegativeBinomial", "HurdlePoisson"]

_STEPS = 30  # of Newton's method for a log rate, from above, where it cannot go astray
_LEAST_MEAN = 1.02  # of positive counts, for a log rate to begin at: that of a mean of 1 is not finite


class _Hurdle(ZeroShare):
    """What both hurdles share: any counts, less their own zeros, beside zeros with a probability."""

    def _count_terms(
        self, log_rate: Tensor, x: Tensor | float, dispersion: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """Of counts with zeros of their own, all by the log rate.

        First the log density, its derivative and minus the second one; then minus the log of P(0), and its
        first and second derivatives.
        """
        raise NotImplementedError

    def _positive_terms(self, log_rate: Tensor, x: Tensor, dispersion: Tensor | None) -> tuple[Tensor, ...]:
        """Log density of positive counts, its derivative by the log rate, and minus the second one."""
        # at 0 nothing of this is used, and it has to be finite
        (log_p, slope, curvature), (none, by, by2) = self._count_terms(log_rate, x.clamp(min=1), dispersion)
        odds, some = torch.expm1(none), -torch.expm1(-none)
        return log_p - some.log(), slope - by / odds, curvature + by2 / odds - by**2 / (odds * some)

    # ---- where a fit starts ------------------------------------------------------------------------------
    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        super().calibrate_by(mean, totals, some)
        cells = some(torch.arange(len(mean)))
        (a, b), seen = self.zero_prior, (~cells.isnan()).sum(0)
        self._zeros = ((cells == 0).sum(0) + a) / (seen + a + b)

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        super().setup(n_features, n_restarts)
        zeros: Tensor | None = self.__dict__.get("_zeros")
        if zeros is not None and len(zeros) == n_features:
            with torch.no_grad():
                self.logit_zero.copy_(torch.logit(zeros).to(self.logit_zero))

    def start(self, x: ArrayT, mask: ArrayT | None = None) -> ArrayT:
        cells, observed = filled(x, mask)
        positive = observed & (cells > 0)
        amount = self.amount({k: torch.as_tensor(v) for k, v in self.default_per_row(x, mask).items()})
        amounts = positive.sum(0) if amount is None else (positive * amount).sum(0)
        return in_kind(self._log_rate_of(cells.sum(0), positive.sum(0), amounts), x)

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        a, b = self.zero_prior
        zeros: Tensor | None = self.__dict__.get("_zeros")
        positive = b / (a + b) if zeros is None or len(zeros) != len(total) else 1 - zeros.to(total)
        return self._log_rate_of(total, seen * positive, amounts * positive)

    def _log_rate_of(self, total: Tensor, n_positive: Tensor, amounts: Tensor) -> Tensor:
        """Log rate of exposure 1 at which positive counts have their mean, from sums over their cells."""
        wanted = ((total + 1) / (n_positive + 1)).clamp(min=_LEAST_MEAN)
        log_rate = wanted.log()
        for _ in range(_STEPS):  # the log of the mean is convex in the log rate, with slopes of 0 to 1
            _, (none, by, _) = self._count_terms(log_rate, 1.0, self._first_dispersion(log_rate))
            off = log_rate - torch.log(-torch.expm1(-none)) - wanted.log()
            log_rate = log_rate - off / (1 - by / torch.expm1(none)).clamp(min=1e-3)
        return log_rate - ((amounts + 1) / (n_positive + 1)).log()

    def _first_dispersion(self, like: Tensor) -> Tensor | None:
        return None

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        log_rate = self._log_rate(f, per_row)
        dispersion = self.dispersion().unsqueeze(1) if self.has_dispersion else None
        none = self._count_terms(log_rate, 1.0, dispersion)[1][0]
        return _HurdleCounts(super().forward(f, per_row), none, self.logit_zero)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        expected: Tensor = self.forward(f, per_row).mean
        return expected

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        exposure = per_row.get("exposure")
        shift = 0.0 if exposure is None else exposure.log().mT
        dispersion = self.dispersion() if self.has_dispersion else None

        def score(f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
            of_cells = None if dispersion is None else dispersion[r, features].unsqueeze(-1)
            log_rate = f + shift
            slope = self._positive_terms(_soft_range(log_rate, *LOG_RATE_RANGE), x, of_cells)[1]
            return torch.where(x > 0, slope * _soft_range_slope(log_rate, *LOG_RATE_RANGE), 0.0)

        return score

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        log_rate, is_zero = _with_offset(f, per_row), x == 0
        bent = _soft_range(log_rate, *LOG_RATE_RANGE)
        of_cells = dispersion.unsqueeze(-1) if self.has_dispersion else None
        log_p, slope, curvature = self._positive_terms(bent, x, of_cells)
        logit_zero = self.logit_zero.squeeze(1).unsqueeze(-1).to(f)
        log_p = torch.where(is_zero, F.logsigmoid(logit_zero), F.logsigmoid(-logit_zero) + log_p)
        if order == 0:
            return (log_p,)
        by_f = _soft_range_slope(log_rate, *LOG_RATE_RANGE)
        curvature = curvature * by_f**2 - slope * _soft_range_curvature(log_rate, *LOG_RATE_RANGE)
        terms = slope * by_f, curvature.clamp(min=0)
        return (log_p, *(torch.where(is_zero, 0.0, term) for term in terms))[: order + 1]


class HurdlePoisson(_Hurdle):
    r"""Zeros with a probability of their feature; positive counts are Poisson without its zeros.

    .. math:: P(x_{ij} = 0) = \pi_j, \qquad
              P(x_{ij} = k) = (1 - \pi_j) \frac{\mathrm{Poisson}(k; \mu_{ij})}{1 - e^{-\mu_{ij}}}
              \quad (k \ge 1), \qquad \mu_{ij} = s_i e^{f_{ij}}, \quad \pi_j \sim \mathrm{Beta}(a, b).

    The factors say how many there are where there are any, and nothing of whether there are: a zero does not
    move them. In `ZeroInflatedNegativeBinomial` some zeros are of the counts.

    Parameters
    ----------
    size_factors : bool or "auto"
        As in `Poisson`; exposures from totals are taken as known. An exposure multiplies μ; π has none.
    zero_prior : (float, float)
        a and b; the default (1, 1) is flat.

    Raises
    ------
    ValueError
        A number is not positive.

    Notes
    -----
    The parameter is ``logit_zero`` (R, 1, G), the logit of :math:`\pi_j`, and starts at the share of zeros. A
    feature whose positive counts are all 1 says of its rate only that it is small.

    References
    ----------
    Mullahy (1986), *Specification and testing of some modified count data models*, Journal of Econometrics
    33(3).

    Examples
    --------
    >>> import torch
    >>> likelihood = HurdlePoisson(size_factors=False)
    >>> likelihood.setup(1)
    >>> likelihood.mean(torch.zeros(1, 1, 1)).item()  # half of 1 / (1 - 1 / e)
    0.79...
    """

    declares = (CELLS, CELL_TERMS)
    name = "hurdle_poisson"

    def __init__(
        self,
        size_factors: bool | Literal["auto"] = "auto",
        zero_prior: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        super().__init__(size_factors)
        self._take_zero_prior(zero_prior)

    def of_features(self, features: slice | Tensor) -> HurdlePoisson:
        return self._restricted(features, ("share",) if len(self.share) else ())

    def _count_terms(
        self, log_rate: Tensor, x: Tensor | float, dispersion: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        rate = log_rate.exp()
        return (x * log_rate - rate, x - rate, rate), (rate, rate, rate)


class HurdleNegativeBinomial(_Hurdle, NegativeBinomial):
    r"""Zeros with a probability of their feature; positive counts are negative binomial without its zeros.

    As `HurdlePoisson`, with :math:`\mathrm{NB}(k; \mu_{ij}, \theta_j)` of `NegativeBinomial` in place of the
    Poisson distribution and :math:`(1 + \mu_{ij} / \theta_j)^{-\theta_j}` in place of :math:`e^{-\mu_{ij}}`.

    Parameters
    ----------
    size_factors : bool or "auto"
        As in `Poisson`; exposures from totals are taken as known. An exposure multiplies μ; π has none.
    prior_scale, init : float
        Of ``extra_cv`` = θ^(−1/2), as in `NegativeBinomial`.
    zero_prior : (float, float)
        Of :math:`\pi_j \sim \mathrm{Beta}(a, b)`; the default (1, 1) is flat.

    Raises
    ------
    ValueError
        A number is not positive.

    Notes
    -----
    Parameters are ``log_theta`` and ``logit_zero`` (R, 1, G).

    References
    ----------
    Mullahy (1986), *Specification and testing of some modified count data models*, Journal of Econometrics
    33(3).

    Examples
    --------
    >>> likelihood = HurdleNegativeBinomial(size_factors=False)
    >>> likelihood.setup(2)
    >>> sorted(likelihood.values())
    ['extra_cv', 'zero_prob']
    """

    declares = (CELLS, CELL_TERMS)
    name = "hurdle_negative_binomial"

    def __init__(
        self,
        size_factors: bool | Literal["auto"] = "auto",
        prior_scale: float = 1.0,
        init: float = 0.5,
        zero_prior: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        NegativeBinomial.__init__(self, size_factors, prior_scale, init)
        self._take_zero_prior(zero_prior)

    def dispersion_parameters(self) -> tuple[str, ...]:
        return ("log_theta",)

    def _first_dispersion(self, like: Tensor) -> Tensor:
        return torch.full_like(like, self.init**2)

    def _count_terms(
        self, log_rate: Tensor, x: Tensor | float, dispersion: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        assert dispersion is not None
        theta = 1 / dispersion
        odds = log_rate - theta.log()
        over, under = torch.sigmoid(odds), torch.sigmoid(-odds)
        none, by = theta * F.softplus(odds), theta * over
        of_counts = -x * F.softplus(-odds) - none, x * under - by, (x + theta) * over * under
        return of_counts, (none, by, by * under)


class _HurdleCounts(TorchDistribution):
    """Zeros with a probability; other counts are those of `base`, given that they are positive."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.nonnegative_integer

    def __init__(self, base: dist.Distribution, none: Tensor, logit_zero: Tensor) -> None:
        """`none`: minus the log of the probability that `base` has no count."""
        self.none, self.logit_zero = torch.broadcast_tensors(none, logit_zero)
        self.base = base.expand(self.none.shape)
        super().__init__(self.none.shape, validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> _HurdleCounts:
        shape = torch.Size(batch_shape)
        return _HurdleCounts(self.base.expand(shape), self.none.expand(shape), self.logit_zero.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        some = torch.log(-torch.expm1(-self.none))
        of_count = F.logsigmoid(-self.logit_zero) + self.base.log_prob(value.clamp(min=1)) - some
        return torch.where(value == 0, F.logsigmoid(self.logit_zero), of_count)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws; positive ones by the first of a Poisson number of events, and those that follow it.

        Negative-binomial counts are sums of a Poisson number of logarithmic ones (Quenouille 1949).
        """
        shape = self._extended_shape(torch.Size(sample_shape))
        none, logit_zero = self.none.expand(shape), self.logit_zero.expand(shape)
        # the time of the first event, given that there is one before `none`; then what is left of it
        left = (none + torch.log1p(torch.rand_like(none) * torch.expm1(-none))).clamp(min=0)
        if isinstance(self.base, dist.NegativeBinomial):
            size, logits = self.base.total_count.expand(shape), self.base.logits.expand(shape)
            following = (size * left / none).clamp(min=torch.finfo(none.dtype).tiny)
            counts = _logarithmic(logits) + dist.NegativeBinomial(following, logits=logits).sample()
        else:
            counts = 1 + torch.poisson(left)
        return torch.where(torch.rand_like(none) < torch.sigmoid(logit_zero), 0.0, counts)

    @property
    def mean(self) -> Tensor:
        """Of each cell."""
        share = torch.sigmoid(-self.logit_zero) / -torch.expm1(-self.none)
        mean: Tensor = share * self.base.mean
        return mean

    @property
    def variance(self) -> Tensor:
        """Of each cell."""
        share = torch.sigmoid(-self.logit_zero) / -torch.expm1(-self.none)
        variance: Tensor = share * (self.base.variance + self.base.mean**2) - self.mean**2
        return variance


def _logarithmic(logits: Tensor) -> Tensor:
    """Draws of P(k) in proportion to q^k / k, k = 1, 2, …, q of these logits (Kemp 1981, algorithm LK)."""
    power = torch.rand_like(logits) * -F.softplus(logits)  # (1 - q)^u is its exponential
    log_q = torch.where(power > -math.log(2), torch.log(-torch.expm1(power)), torch.log1p(-torch.exp(power)))
    return 1 + torch.floor(torch.log(1 - torch.rand_like(logits)) / log_q)
