"""Measurements with known limits: of a value beyond one it is known only that it is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..distributions._normal_interval import inverse_mills, tail_curvature
from ._noise_scale import NoiseScale
from .base import CELL_TERMS, CELLS, NOTHING, Column, PerRow
from .normal import HALF_LOG_2PI

__all__ = ["CensoredNormal", "Limits"]

Limits: TypeAlias = float | Sequence[float | None] | None
_ROUNDING = 1e-5  # standard deviations: so near a limit a cell is at it, in single precision, too


class CensoredNormal(NoiseScale):
    r"""Measurements with normal noise, censored at limits: a cell there says only that y is there or beyond.

    .. math:: y_{ij} \sim N(f_{ij}, \sigma_j^2), \qquad x_{ij} = \min(\max(y_{ij}, l_j), u_j), \qquad
              \sigma_j^2 \sim \mathrm{InverseGamma}(a, b),

    so that a cell at :math:`l_j` has the probability :math:`\Phi((l_j - f_{ij}) / \sigma_j)`, one at
    :math:`u_j` has :math:`\Phi((f_{ij} - u_j) / \sigma_j)`, and others have the normal density.

    Parameters
    ----------
    left, right : float, sequence of (float or None), or None
        :math:`l` and :math:`u`, in the units of the table: of all columns, or of each in their order (in a
        table of several kinds, of those that this likelihood has, in the order of the key). None: no limit.
    init, floor : float
        Starting value and lower bound of σ in units of the (z-scored) column, as in `Normal`.
    prior_shape, prior_scale : float
        a and b, as in `Normal`.

    Attributes
    ----------
    lower, upper : Tensor (feature,)
        The limits in the model's units; infinite where there is none, empty before there is a table.

    Raises
    ------
    TypeError, ValueError
        A limit is no number, or a left one not below the right one; a scale is not positive.

    Notes
    -----
    The parameter is ``log_sigma`` (R, 1, G). Columns are z-scored by mean and standard deviation of the cells
    as they are, those at a limit included. Cells beyond a limit count as at it, here, too, and for the
    encoder: a reading of 0.3 below a detection limit of 0.5 is as censored as one of 0.5.

    Truncation is another matter: rows with a cell beyond a limit were never recorded. Which rows are then
    depends on their factors, so that the density of a row has to be divided by the probability that a row is
    recorded, factors summed out: one number for the table and none of a cell given f. A truncated normal
    density of each cell is that of values that are measured again until they lie within the limits, and
    finds loadings of truncated rows too small, though no edges that are not there.

    `mean` is the expectation of x, not of y: predictions and imputed cells stay between the limits. The log
    density is concave in f, and `cell_terms` have minus its curvature.

    References
    ----------
    Tobin (1958), *Estimation of relationships for limited dependent variables*, Econometrica 26(1).

    Examples
    --------
    >>> import numpy as np
    >>> likelihood = CensoredNormal(left=0.5)
    >>> centre, scale = likelihood.units(np.array([[0.5, 0.5], [2.5, 3.5]]), True)
    >>> likelihood.lower
    tensor([-1., -1.])
    """

    declares = (CELLS, CELL_TERMS)
    name = "censored_normal"
    reads_columns = True

    def __init__(
        self,
        left: Limits = None,
        right: Limits = None,
        init: float = 0.1,
        floor: float = 0.02,
        prior_shape: float = 1.5,
        prior_scale: float = 0.015,
    ) -> None:
        super().__init__(init, floor, prior_shape, prior_scale)
        self.left, self.right = _read("left", left, -math.inf), _read("right", right, math.inf)
        sizes = {len(limits) for limits in (self.left, self.right) if isinstance(limits, np.ndarray)}
        if len(sizes) > 1:
            raise ValueError(
                f"left, right: there are limits of {' and of '.join(map(str, sorted(sizes)))} columns; "
                "wanted one for each, or one for all"
            )
        if not np.all(self.left < self.right):
            raise ValueError(
                f"left, right: got {left!r} and {right!r}, wanted each left limit below the right"
            )
        self.register_buffer("lower", torch.zeros(0))
        self.register_buffer("upper", torch.zeros(0))
        self.register_buffer("z_scored", torch.tensor(False))
        self.lower: Tensor
        self.upper: Tensor
        self.z_scored: Tensor

    # ---- limits ------------------------------------------------------------------------------------------
    def _limits(self, n_features: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each column (feature,), in the caller's units."""
        for name, limits in (("left", self.left), ("right", self.right)):
            if isinstance(limits, np.ndarray) and len(limits) != n_features:
                raise ValueError(
                    f"{name}: there are {len(limits)} limits, and X has {n_features} such columns; wanted "
                    "one for each, or one for all"
                )
        return np.broadcast_to(self.left, n_features), np.broadcast_to(self.right, n_features)

    def for_columns(self, columns: Sequence[Column]) -> CensoredNormal:
        """Itself, if each column has a cell between its limits, which its scale is learned from.

        Parameters
        ----------
        columns : sequence of Column

        Raises
        ------
        ValueError
            No limit at all, not as many limits as columns, or a column whose cells are all censored.
        """
        if np.isinf(self.left).all() and np.isinf(self.right).all():
            raise ValueError(
                f'likelihood: "{self.name}" has no limits, so that nothing is censored; give them, as '
                'CensoredNormal(left=0.5), or use likelihood="normal"'
            )
        for column, left, right in zip(columns, *self._limits(len(columns)), strict=True):
            if not ((column.values > left) & (column.values < right)).any():
                raise ValueError(
                    f"X: column {column.name!r} has no cell between its limits ({left:g}, {right:g}); want "
                    "some, which the noise is learned from. Give the limits in the column's own units, or "
                    'use likelihood="bernoulli" on whether a cell is at a limit.'
                )
        return self

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        self._limits(x.shape[1])

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        """Limits go by the units of a table in memory.

        Raises
        ------
        ValueError
        """
        raise ValueError(
            "likelihood: the limits of a table that is read by rows are not known in the units of the model; "
            "give fewer rows, so that the table is held in memory"
        )

    def as_recorded(self, cells: np.ndarray) -> np.ndarray:
        """Cells beyond a limit at it: how far beyond somebody wrote them says nothing."""
        left, right = self._limits(cells.shape[1])
        recorded: np.ndarray = np.clip(cells, left, right)
        return recorded

    def units(self, cells: np.ndarray, standardise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Centre and scale as of normal columns; the limits in these units are remembered."""
        centre, scale = super().units(self.as_recorded(cells), standardise)
        self._take(centre, scale)
        self.z_scored = torch.full_like(self.z_scored, standardise)
        return centre, scale

    def _take(self, centre: np.ndarray | float, scale: np.ndarray | float, n_features: int = 0) -> None:
        left, right = self._limits(n_features or len(np.atleast_1d(centre)))
        self.lower = torch.as_tensor((left - centre) / scale).to(self.lower)
        self.upper = torch.as_tensor((right - centre) / scale).to(self.upper)

    def is_standardised(self, n_features: int) -> np.ndarray:
        """Not where columns were z-scored: their scale is then 1, and covariates must not change it.

        The limits are in it.
        """
        return np.full(n_features, not bool(self.z_scored))

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        super().setup(n_features, n_restarts)
        if len(self.lower) != n_features:  # no table was seen, and units are the caller's
            self._take(0.0, 1.0, n_features)

    def of_features(self, features: slice | Tensor) -> CensoredNormal:
        return self._restricted(features, ("lower", "upper"))

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        return _Censored(f, self.scale(), self.lower.to(f), self.upper.to(f))

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return _Censored(f, self.scale(), self.lower.to(f), self.upper.to(f)).mean

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        dispersion = self.dispersion()

        def score(f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
            lower, upper = (limit[features].unsqueeze(-1).to(f) for limit in (self.lower, self.upper))
            return _terms(f, x, dispersion[r, features].unsqueeze(-1), lower, upper, 1)[1]

        return score

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        lower, upper = (limit.unsqueeze(-1).to(f) for limit in (self.lower, self.upper))
        return _terms(f, x, dispersion.unsqueeze(-1), lower, upper, order)


def _terms(
    f: Tensor, x: Tensor, variance: Tensor, lower: Tensor, upper: Tensor, order: int
) -> tuple[Tensor, ...]:
    """`cell_terms`: with t the distance to the limit and m(t) the normal density over its integral to t."""
    sd = variance.sqrt()
    below, above = _censored(x, lower, upper)
    is_censored = below | above
    residual = (x - f) / sd
    t = torch.where(below, _finite(lower) - f, f - _finite(upper)) / sd
    log_p = torch.where(is_censored, torch.special.log_ndtr(t), -0.5 * (residual**2 + variance.log()))
    if order == 0:
        return (log_p,)
    mills = inverse_mills(t)
    slope = torch.where(is_censored, torch.where(below, -mills, mills), residual) / sd
    if order == 1:
        return log_p, slope
    return log_p, slope, torch.where(is_censored, tail_curvature(t, mills), 1.0) / variance


def _censored(x: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Which cells are at the left limit or beyond, and which at the right one."""
    below = x <= lower + _ROUNDING * (1 + _finite(lower).abs())
    above = x >= upper - _ROUNDING * (1 + _finite(upper).abs())
    return below, above


def _finite(limit: Tensor) -> Tensor:
    """Limits, 0 where there is none: what is not used may not be infinite, for its gradient is then NaN."""
    return torch.where(limit.isfinite(), limit, 0.0)


class _Censored(TorchDistribution):
    """Normal cells, those beyond the limits (feature,) at them; a density between, probabilities at them."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real

    def __init__(self, loc: Tensor, scale: Tensor, lower: Tensor, upper: Tensor) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        self.lower, self.upper = lower, upper
        super().__init__(self.loc.shape, validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> _Censored:
        shape = torch.Size(batch_shape)
        return _Censored(self.loc.expand(shape), self.scale.expand(shape), self.lower, self.upper)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            y = torch.normal(self.loc.expand(shape), self.scale.expand(shape))
            return torch.clamp(y, self.lower, self.upper)

    def log_prob(self, value: Tensor) -> Tensor:
        log_p = _terms(self.loc, value, self.scale**2, self.lower, self.upper, 0)[0]
        below, above = _censored(value, self.lower, self.upper)
        return log_p - HALF_LOG_2PI * (~(below | above)).to(log_p)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """First and second."""
        has_left, has_right = self.lower.isfinite(), self.upper.isfinite()
        low, high = _finite(self.lower), _finite(self.upper)
        from_left, to_right = (low - self.loc) / self.scale, (high - self.loc) / self.scale
        below = torch.where(has_left, torch.special.ndtr(from_left), 0.0)
        above = torch.where(has_right, torch.special.ndtr(-to_right), 0.0)
        at_left = torch.where(has_left, _normal_density(from_left), 0.0)
        at_right = torch.where(has_right, _normal_density(to_right), 0.0)
        between = 1 - below - above
        first = low * below + high * above + self.loc * between + self.scale * (at_left - at_right)
        second = low**2 * below + high**2 * above + (self.loc**2 + self.scale**2) * between
        second = second + self.scale * ((self.loc + low) * at_left - (self.loc + high) * at_right)
        return first, second

    @property
    def mean(self) -> Tensor:
        """Of each cell."""
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        """Of each cell."""
        first, second = self._moments()
        return (second - first**2).clamp(min=0)


def _normal_density(t: Tensor) -> Tensor:
    return torch.exp(-0.5 * t**2) / math.sqrt(2 * math.pi)


def _read(name: str, limits: object, none: float) -> float | np.ndarray:
    """One limit, or one for each column.

    Raises
    ------
    TypeError
    """
    given: Any = limits.tolist() if isinstance(limits, np.ndarray | Tensor) else limits
    numbers = list(given) if isinstance(given, list | tuple) else [given]
    for number in numbers:
        is_number = isinstance(number, int | float | np.number) and not isinstance(number, bool)
        if number is not None and not (is_number and not math.isnan(float(number))):
            raise TypeError(
                f"{name}: got {limits!r}, wanted a number, or one for each column (None where there is "
                "no limit)"
            )
    read = [none if number is None else float(number) for number in numbers]
    return np.array(read) if isinstance(given, list | tuple) else read[0]
