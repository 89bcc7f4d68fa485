"""Shares strictly between 0 and 1: beta regression, with a logit link of the mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from .base import CELL_TERMS, CELLS, NOTHING, Likelihood, PerRow
from .counts import _soft_range, _soft_range_slope
from .given_cells import column_mean, column_numbers, filled, refuse_where

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Beta"]

NEAREST = 1e-6  # to 0 and 1: single precision knows no logit beyond
LOGIT_RANGE = (-12.0, 12.0)  # of means; shapes are then at least 1e-6 of the precision
LOG_PRECISION_RANGE = (-3.0, 9.0)
_INWARDS = "Move all shares inwards, (x * (n - 1) + 0.5) / n with n rows (Smithson & Verkuilen 2006)"
_FIRST_NOISE = (1 / 2000, 2.0)  # 1 / φ


class Beta(Likelihood):
    r"""Shares (numbers strictly between 0 and 1), one precision per feature.

    .. math:: x_{ij} \sim \mathrm{Beta}(\mu_{ij} \phi_j, (1 - \mu_{ij}) \phi_j), \qquad
              \operatorname{logit} \mu_{ij} = f_{ij}, \qquad
              \log \phi_j \sim N(\log m, s^2).

    The variance is :math:`\mu (1 - \mu) / (1 + \phi)`.

    Parameters
    ----------
    init : float
        Starting value of φ where no table says a better one.
    prior_median, prior_sd : float
        m, and s, the standard deviation of log φ. The default (20, 1.5) is weakly informative: shares around
        a half have a standard deviation of .025 to .35 with probability .95.

    Raises
    ------
    ValueError
        A number is not positive, or `init` not between 0.05 and 8,000.

    Notes
    -----
    The parameter is ``log_phi`` (R, 1, G). Shares of a composition sum to one by row; this likelihood
    takes each column for itself.

    The log density is not concave in f everywhere; `cell_terms` have Fisher's information
    :math:`(\phi \mu (1 - \mu))^2 (\psi'(\mu \phi) + \psi'((1 - \mu) \phi))` in place of minus its curvature.

    The densities are those of shares at least 1e-6 from either end, where draws end, too: zeros and ones, and
    what is nearer, are refused. The filler of missing cells, 0, counts as 1e-6.

    References
    ----------
    Ferrari and Cribari-Neto (2004), *Beta regression for modelling rates and proportions*, Journal of Applied
    Statistics 31(7), for the model; the prior is this package's.
    Smithson and Verkuilen (2006), *A better lemon squeezer?*, Psychological Methods 11(1), for zeros and
    ones.

    Examples
    --------
    >>> import numpy as np
    >>> Beta().check(np.array([[0.2, 0.0], [0.4, 0.5]]), ["rent", "food"])
    Traceback (most recent call last):
        ...
    ValueError: X: column 'food' holds 0 (row 0); want shares strictly between 0 and 1. ...
    """

    declares = (CELLS, CELL_TERMS)
    name = "beta"
    separable = True
    has_dispersion = True

    def __init__(self, init: float = 30.0, prior_median: float = 20.0, prior_sd: float = 1.5) -> None:
        super().__init__()
        if not (prior_median > 0 and prior_sd > 0):
            raise ValueError(
                f"Beta: prior_median and prior_sd must be positive, got {prior_median} and {prior_sd}."
            )
        low, high = (math.exp(end) for end in LOG_PRECISION_RANGE)
        if not low < init < high:
            raise ValueError(f"Beta: want {low:.2g} < init < {high:.4g}, got {init}.")
        self.init, self.prior_median, self.prior_sd = float(init), float(prior_median), float(prior_sd)
        self.register_buffer("noise_at_most", torch.zeros(0))  # 1 / φ where no factor has anything to say
        self.noise_at_most: Tensor

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        self.log_phi = nn.Parameter(torch.full((n_restarts, 1, n_features), math.log(self.init)))
        if len(self.noise_at_most) != n_features:
            self.noise_at_most = self.noise_at_most.new_zeros(n_features)

    # ---- the table ---------------------------------------------------------------------------------------
    def check(self, x: np.ndarray, feature_names: Sequence[str] | None = None) -> None:
        self._refuse(column_numbers(x, feature_names), feature_names)  # the filler is no share, and is known

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        with np.errstate(invalid="ignore"):
            refuse_where(
                (x < 0) | (x > 1),
                x,
                feature_names,
                "want shares between 0 and 1, or NaN",
                'Divide percentages by 100, or use likelihood="normal".',
            )
            at_end = (x == 0) | (x == 1)
            refuse_where(
                at_end,
                x,
                feature_names,
                "want shares strictly between 0 and 1",
                f"{_INWARDS}, write NaN where an end means that nothing was measured, or use "
                'likelihood="bernoulli" on whether a share is at the end.',
            )
            refuse_where(
                (x < 0.9 * NEAREST) | (x > 1 - 0.9 * NEAREST),  # draws in single precision are at the end
                x,
                feature_names,
                f"want shares at least {NEAREST:g} from 0 and 1",
                f'{_INWARDS}, or take logits and use likelihood="normal".',
            )

    def calibrate(self, x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None) -> None:
        r"""Remember the precisions that columns without factors would have.

        The variance of a logit is about :math:`1 / (\mu (1 - \mu) \phi)`.
        """
        cells, observed = filled(torch.as_tensor(x).double(), mask)
        views, mean = self.encoder_view(cells), column_mean(cells, observed)
        variance = column_mean((views - column_mean(views, observed)) ** 2, observed)
        self.noise_at_most = (mean * (1 - mean) * variance).to(self.noise_at_most)

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        self.calibrate(some(torch.arange(len(mean))))

    @torch.no_grad()
    def start_noise(self, residual_sd: Tensor, where: Tensor | None = None) -> None:
        """Start at the precision of columns without factors, whatever a rough fit leaves.

        Started at more, a factor of few columns takes the noise of one for its own, and chains stay there.
        """
        noise = self.noise_at_most
        start = torch.where(noise > 0, -noise.clamp(*_FIRST_NOISE).log(), self.log_phi)
        self.log_phi.copy_(start if where is None else torch.where(where, start, self.log_phi))

    def encoder_view(self, x: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        """Logits of the shares."""
        return torch.logit(_inside(x))

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        return torch.logit((total + 0.5) / (seen + 1.0))

    # ---- parameters --------------------------------------------------------------------------------------
    def precision(self) -> Tensor:
        """φ, (R, 1, G)."""
        return _soft_range(self.log_phi, *LOG_PRECISION_RANGE).exp()

    def priors(self) -> dict[str, dist.Distribution]:
        like = self.log_phi.squeeze(1)
        location = torch.full_like(like, math.log(self.prior_median))
        return {"precision": dist.LogNormal(location, torch.full_like(like, self.prior_sd)).to_event(1)}

    def values(self) -> dict[str, Tensor]:
        return {"precision": self.precision().squeeze(1)}

    def dispersion(self) -> Tensor:
        """1 / φ, (R, G)."""
        return 1 / self.values()["precision"]

    def log_dispersion_prior(self, dispersion: Tensor) -> Tensor:
        """Of :math:`\\phi^{-1/2}`, as far as `log_phi` can go."""
        log_phi = -dispersion.double().log()
        low, high = LOG_PRECISION_RANGE
        inside = (log_phi >= low) & (log_phi <= high)
        off = (log_phi - math.log(self.prior_median)) / self.prior_sd
        return torch.where(inside, -0.5 * off**2 + 0.5 * log_phi, -torch.inf)

    def of_features(self, features: slice | Tensor) -> Beta:
        return self._restricted(features)

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        logit, phi = _soft_range(f, *LOGIT_RANGE), self.precision()
        return _Shares(phi * torch.sigmoid(logit), phi * torch.sigmoid(-logit))

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return torch.sigmoid(_soft_range(f, *LOGIT_RANGE))

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        dispersion = self.dispersion()
        return lambda f, x, r, features: self._terms(f, x, dispersion[r, features], 1)[1]

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        return self._terms(f, x, dispersion, order)

    @staticmethod
    def _terms(f: Tensor, x: Tensor, dispersion: Tensor, order: int) -> tuple[Tensor, ...]:
        """`cell_terms`, in double precision, since logarithms of gamma functions cancel."""
        phi, f_double, share = 1 / dispersion.double().unsqueeze(-1), f.double(), _inside(x.double())
        logit = _soft_range(f_double, *LOGIT_RANGE)
        mean, rest = torch.sigmoid(logit), torch.sigmoid(-logit)
        a, b, log_x, log_rest = phi * mean, phi * rest, share.log(), torch.log1p(-share)
        log_p = a * log_x + b * log_rest - torch.lgamma(a) - torch.lgamma(b)
        if order == 0:
            return (log_p.to(f),)
        by_f = a * rest * _soft_range_slope(f_double, *LOGIT_RANGE)  # of the first shape; less of the second
        slope = by_f * (log_x - log_rest - torch.digamma(a) + torch.digamma(b))
        if order == 1:
            return log_p.to(f), slope.to(f)
        information = by_f**2 * (torch.polygamma(1, a) + torch.polygamma(1, b))
        return log_p.to(f), slope.to(f), information.to(f)

    def log_base(self, x: Tensor, dispersion: Tensor) -> Tensor:
        r""":math:`\log \Gamma(\phi)`."""
        return torch.lgamma(1 / dispersion.double()).unsqueeze(-1) + torch.zeros_like(x, dtype=torch.float64)


def _inside(x: Tensor) -> Tensor:
    """Shares, those too near an end at the nearest that is known."""
    return x.clamp(NEAREST, 1 - NEAREST)


class _Shares(dist.Beta):
    """Beta of shares that keep away from 0 and 1, so that no density or gradient is infinite."""

    def log_prob(self, value: Tensor) -> Tensor:
        log_p: Tensor = super().log_prob(_inside(value))
        return log_p

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return _inside(super().rsample(torch.Size(sample_shape)))
