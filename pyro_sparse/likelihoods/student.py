"""Measurements with outliers: Student's t in place of the normal distribution, whose tails are heavy."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from ._noise_scale import NoiseScale
from .base import CELL_TERMS, CELLS, NOTHING, PerRow, Slopes
from .counts import _soft_range, _soft_range_slope
from .given_cells import ArrayT, filled, in_kind

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["StudentT"]

LOG_DF_RANGE = (math.log(0.2), math.log(500.0))  # the prior has 2 in 10,000 below, and nothing above
_DF_SHAPE, _DF_RATE = 2.0, 0.1
_FIRST_DF, _LEAST_DF = 5.0, 2.5
_CLIPPED = 5.0  # robust standard deviations, beyond which a cell is no further out to units and encoder
_NORMAL_IQR = 1.349  # standard deviations between the quartiles of a normal distribution


class StudentT(NoiseScale):
    r"""Measurements whose noise has heavy tails, one scale per feature.

    .. math:: x_{ij} \sim t_\nu(f_{ij}, \sigma_j), \qquad \sigma_j^2 \sim \mathrm{InverseGamma}(a, b).

    A cell far from its predictor pulls at it with :math:`(\nu + 1) r / (\nu \sigma^2 + r^2)`, r its residual:
    the further out, the less. The variance of the noise is :math:`\sigma^2 \nu / (\nu - 2)`.

    Parameters
    ----------
    df : float or "learn"
        ν, the degrees of freedom of all features, above 1: 4 (Lange, Little & Taylor 1989) bounds what an
        outlier does and costs little where noise is normal. "learn": one for all features, with the prior
        Gamma(2, rate 0.1) of Juárez and Steel, whose mean is 20.
    init, floor : float
        Starting value and lower bound of σ in units of the (z-scored) column, as in `Normal`.
    prior_shape, prior_scale : float
        a and b, as in `Normal`.

    Raises
    ------
    ValueError
        `df` is neither a number above 1 nor "learn"; a scale is not positive.

    Notes
    -----
    Parameters are ``log_sigma`` (R, 1, G) and, if learned, ``log_df`` (R, 1, 1). Columns are z-scored with
    cells beyond five robust standard deviations counted as five, so that an outlier does not set the unit;
    the density sees them as they are. `mean` is f, which is the median where ν ≤ 1.

    The log density is not concave in f. `cell_terms` have in place of minus its curvature
    :math:`(\nu + 1)^2 / ((\nu + 3) (\nu \sigma^2 + r^2))`, whose expectation is Fisher's information and
    which is small for outliers, as the precision of a cell is in the EM algorithm.

    References
    ----------
    Lange, Little and Taylor (1989), *Robust statistical modeling using the t distribution*, JASA 84(408).
    Juárez and Steel (2010), *Model-based clustering of non-Gaussian panel data based on skew-t
    distributions*, Journal of Business & Economic Statistics 28(1).

    Examples
    --------
    >>> likelihood = StudentT(df="learn")
    >>> likelihood.setup(3)
    >>> sorted(likelihood.values())
    ['df', 'sigma2']
    """

    declares = (CELLS, CELL_TERMS)
    name = "student_t"

    def __init__(
        self,
        df: float | Literal["learn"] = 4.0,
        init: float = 0.1,
        floor: float = 0.02,
        prior_shape: float = 1.5,
        prior_scale: float = 0.015,
    ) -> None:
        super().__init__(init, floor, prior_shape, prior_scale)
        is_number = isinstance(df, int | float | np.number) and not isinstance(df, bool)
        if df != "learn" and not (is_number and 1 < float(df) < math.inf):
            raise ValueError(f'df: got {df!r}, wanted a number above 1, such as 4, or "learn"')
        self.df: float | None = None if df == "learn" else float(df)
        self.register_buffer("middle", torch.zeros(0))
        self.register_buffer("reach", torch.zeros(0))
        self.middle: Tensor
        self.reach: Tensor

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        super().setup(n_features, n_restarts)
        if len(self.middle) != n_features:
            self.middle = self.middle.new_zeros(n_features)
            self.reach = self.reach.new_full((n_features,), math.inf)
        if self.df is None:
            self.log_df = nn.Parameter(torch.full((n_restarts, 1, 1), math.log(_FIRST_DF)))

    # ---- the table ---------------------------------------------------------------------------------------
    def calibrate(self, x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None) -> None:
        """Remember where the bulk of each column lies, for the encoder's view."""
        cells, observed = filled(torch.as_tensor(x).double(), mask)
        middle, reach = _bulk(torch.where(observed, cells, torch.nan).cpu().numpy())
        self.middle = torch.as_tensor(middle).to(self.middle)
        self.reach = torch.as_tensor(reach).to(self.reach)

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        self.calibrate(some(torch.arange(len(mean))))

    def units(self, cells: np.ndarray, standardise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of columns whose outliers are clipped, where asked."""
        if standardise:
            middle, reach = _bulk(np.asarray(cells))
            cells = np.clip(cells, middle - reach, middle + reach)
        return super().units(cells, standardise)

    def encoder_view(self, x: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        """The cells, those beyond five robust standard deviations of the training table at that distance."""
        if len(self.middle) != x.shape[-1]:
            return x
        middle, reach = self.middle.to(x), self.reach.to(x)
        return torch.clamp(x, middle - reach, middle + reach)

    def start(self, x: ArrayT, mask: ArrayT | None = None) -> ArrayT:
        """Medians of the columns."""
        cells, observed = filled(x, mask)
        return in_kind(torch.where(observed, cells, torch.nan).nanmedian(0).values.nan_to_num(0.0), x)

    # ---- parameters --------------------------------------------------------------------------------------
    def degrees_of_freedom(self) -> float | Tensor:
        """ν, a number, or (R, 1, 1) if it is learned."""
        return _soft_range(self.log_df, *LOG_DF_RANGE).exp() if self.df is None else self.df

    def priors(self) -> dict[str, dist.Distribution]:
        if self.df is not None:
            return super().priors()
        shape = torch.full_like(self.log_df.squeeze(1), _DF_SHAPE)
        return {**super().priors(), "df": dist.Gamma(shape, torch.full_like(shape, _DF_RATE)).to_event(1)}

    def values(self) -> dict[str, Tensor]:
        df = self.degrees_of_freedom()
        return {**super().values(), "df": df.squeeze(1)} if isinstance(df, Tensor) else super().values()

    def of_features(self, features: slice | Tensor) -> StudentT:
        of_each = copy.copy(self)  # the degrees of freedom are no feature's own
        of_each._parameters = {"log_sigma": self.log_sigma}
        restricted = of_each._restricted(features, ("middle", "reach"))
        if self.df is None:
            restricted._parameters["log_df"] = nn.Parameter(self.log_df.detach(), requires_grad=False)
        return restricted

    def variance_beside(self, dispersion: Tensor | None = None) -> Tensor:
        """Variance of the noise; five times σ² where ν < 2.5, which has none, or next to none."""
        squared_scale, df = super().variance_beside(dispersion), self.degrees_of_freedom()
        if isinstance(df, Tensor):
            df = df.squeeze(1).clamp(min=_LEAST_DF)
            return squared_scale * df / (df - 2)
        return squared_scale * max(df, _LEAST_DF) / (max(df, _LEAST_DF) - 2)

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        return dist.StudentT(self.degrees_of_freedom(), f, self.scale())

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return f

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        variance, df = self.scale().mT ** 2, self.degrees_of_freedom()

        def score(f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
            nu, residual = (df[r] if isinstance(df, Tensor) else df), x - f
            return (nu + 1) * residual / (nu * variance[r, features] + residual**2)

        return score

    @torch.no_grad()
    def slopes(
        self,
        f: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
        of_cells: float = 1.0,
        of_priors: float = 1.0,
    ) -> Slopes:
        r"""`Likelihood.slopes` in closed form.

        With :math:`u = r^2 / \sigma^2`, r the residual, and :math:`w = (\nu + 1) / (\nu + u)`,

        .. math:: \frac{\partial \log p}{\partial \log \sigma} = w u - 1, \qquad
                  2 \frac{\partial \log p}{\partial \nu} = \psi(\tfrac{\nu + 1}2) - \psi(\tfrac\nu2)
                  - \tfrac1\nu - \log(1 + \tfrac u\nu) + \tfrac{w u}\nu
        """
        variance, df = self.scale() ** 2, torch.as_tensor(self.degrees_of_freedom()).to(f)
        residual = f - x
        squares = residual**2 / variance
        weight, log_tail = (df + 1) / (df + squares), torch.log1p(squares / df)
        pulls, half = weight * squares, 0.5 * df
        log_norm = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * (df * math.pi).log()
        log_p = log_norm - 0.5 * ((df + 1) * log_tail + variance.log())
        by_f, by_scale = -of_cells * weight * residual / variance, pulls - 1
        observed = None if mask is None else mask.to(f)
        if observed is not None:
            log_p, by_f, by_scale = (part * observed for part in (log_p, by_f, by_scale))
        log_prior, prior_slope = self._prior_terms(variance)
        terms = {"x": log_p.sum((1, 2)), "sigma2": log_prior}
        by_log_sd = of_cells * by_scale.sum(1, keepdim=True) + of_priors * prior_slope
        by_parameters = {"log_sigma": by_log_sd * self._scale_slope()}
        if self.df is None:
            log_gamma = _DF_SHAPE * math.log(_DF_RATE) - math.lgamma(_DF_SHAPE)
            terms["df"] = (log_gamma + (_DF_SHAPE - 1) * df.log() - _DF_RATE * df).sum((1, 2))
            by_df = torch.digamma(half + 0.5) - torch.digamma(half) - 1 / df - log_tail + pulls / df
            by_df = by_df if observed is None else by_df * observed
            slope = 0.5 * of_cells * by_df.sum((1, 2), keepdim=True)
            slope = slope + of_priors * ((_DF_SHAPE - 1) / df - _DF_RATE)
            by_parameters["log_df"] = slope * df * _soft_range_slope(self.log_df, *LOG_DF_RANGE)
        return Slopes(terms, by_f, [by_parameters[name] for name, _ in self.named_parameters()])

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        df, variance, residual = self.degrees_of_freedom(), dispersion.unsqueeze(-1), x - f
        spread = df * variance
        log_p = -0.5 * ((df + 1) * torch.log1p(residual**2 / spread) + variance.log())
        if isinstance(df, Tensor):  # which chains draw: what it moves beside the residuals
            half = 0.5 * df.double()
            log_norm = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * half.log()
            log_p = log_p + log_norm.to(log_p)
        if order == 0:
            return (log_p,)
        weight = (df + 1) / (spread + residual**2)
        return (log_p, weight * residual, weight * (df + 1) / (df + 3))[: order + 1]


def _bulk(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median of each column, and how far from it five robust standard deviations are; NaN: missing.

    Of a column half of whose cells are alike nothing is far.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns that nobody has seen
        low, middle, high = np.nanquantile(cells, (0.25, 0.5, 0.75), axis=0)
    reach = _CLIPPED * (high - low) / _NORMAL_IQR
    return np.nan_to_num(middle), np.where(reach > 0, reach, np.inf)
