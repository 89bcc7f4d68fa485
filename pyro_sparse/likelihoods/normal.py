"""Gaussian noise with one variance per feature, or one for all, started small and floored smoothly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._utils.arrays import COMPILED, arrays, compiled, tensor
from .._utils.declared import Declared
from ..distributions._inverse_gamma import InverseGamma
from .base import AROUND_CELLS, CELL_TERMS, NOTHING, Likelihood, PerRow, Slopes
from .given_cells import filled

__all__ = ["Normal"]


FLOOR_WIDTH = 0.04  # the soft floor is .1 where a corner would be: sigma is then a tenth above its own floor
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_NO_MASK = np.empty((0, 0), dtype=bool)  # of the type of a mask: another type would be compiled anew


def _soft_floor(x: Tensor, width: float = FLOOR_WIDTH) -> Tensor:
    """``max(x, 0)`` without the corner; its gradient dies only like 1/x², so a parameter can come back."""
    return 0.5 * (x + torch.sqrt(x * x + width))


@compiled
def _by_column(
    above: NDArray[Any],
    line: NDArray[Any],
    data: NDArray[Any],
    mask: NDArray[Any],
    masked: bool,
    floor: float,
    a: float,
    b: float,
    of_cells: float,
    of_priors: float,
    score: NDArray[Any],
    by_log_sigma: NDArray[Any],
    cells: NDArray[Any],
    log_prior: NDArray[Any],
) -> None:
    """`Normal.slopes` by columns; `line`, `score` are (R, G, B), `above`, `by_log_sigma` (R, 1, G or 1)."""
    low, constant, zero = np.log(floor), a * np.log(b) - math.lgamma(a), line.dtype.type(0)
    by_log_sigma[:], cells[:], log_prior[:] = 0, 0, 0
    n_restarts, n_features, n_rows = line.shape
    for r in range(n_restarts):
        for g in range(n_features):
            at = min(g, above.shape[2] - 1)
            over = above[r, 0, at] - low
            root = np.sqrt(over * over + FLOOR_WIDTH)
            log_sd = 0.5 * (over + root) + low
            precision = np.exp(-2 * log_sd)
            factor, squares, count = line.dtype.type(-of_cells * precision), zero, 0
            for i in range(n_rows):
                residual = line[r, g, i] - data[i, g]
                if masked and not mask[i, g]:
                    residual = zero
                else:
                    count += 1
                squares += residual * residual
                score[r, g, i] = factor * residual
            cells[r] -= 0.5 * squares * precision + count * (log_sd + HALF_LOG_2PI)
            slope = of_cells * (squares * precision - count)
            if at == g:
                log_prior[r] += constant - 2 * (a + 1) * log_sd - b * precision
                slope += 2 * of_priors * (b * precision - (a + 1))
            by_log_sigma[r, 0, at] += 0.5 * slope * (1 + over / root)


class Normal(Likelihood):
    r"""Gaussian noise with one variance per feature.

    .. math:: x_{ij} \sim N(f_{ij}, \sigma_j^2), \qquad \sigma_j^2 \sim \mathrm{InverseGamma}(a, b).

    Parameters
    ----------
    init : float
        Starting value of σ in units of the (z-scored) column.  Small on purpose: started at the column's
        standard deviation, early likelihood gradients are so weak that any penalty empties the decoder.
    floor : float
        Lower bound of σ, approached smoothly; keeps a memorised column from an unbounded density.
    prior_shape, prior_scale : float
        a and b.  The default (1.5, 0.015) adds ``2.5 log σ² + 0.015/σ²`` to the negative log posterior: worth
        five rows, mode at σ = 0.077, so it only matters where data are few.  The density is that of σ² (no
        Jacobian for ``log_sigma``); shape 1.5 is that of Moran, Sridhar, Wang & Blei (2022).
    shared : bool
        One σ for all features, as suits the pixels of an image; columns then keep their units, and σ is in
        them (Rybkin, Daniilidis & Levine 2021).

    Notes
    -----
    The parameter is ``log_sigma`` (R, 1, G), or (R, 1, 1) when shared; σ = floor · exp(s(log_sigma − log
    floor)), s a soft max(·, 0).
    """

    declares = (Declared("normal noise", free=AROUND_CELLS), CELL_TERMS)
    name = "normal"
    capturable = True
    has_dispersion = True
    standardise = True
    separable = True

    def __init__(
        self,
        init: float = 0.1,
        floor: float = 0.02,
        prior_shape: float = 1.5,
        prior_scale: float = 0.015,  # code published for the sparse VAE takes it from the table
        shared: bool = False,
    ) -> None:
        super().__init__()
        if not 0 < floor < init:
            raise ValueError(f"Normal: want 0 < floor < init, got floor={floor}, init={init}.")
        if not (prior_shape > 0 and prior_scale > 0):
            raise ValueError(
                f"Normal: prior_shape and prior_scale must be positive, got {prior_shape} and {prior_scale}."
            )
        self.init, self.floor = float(init), float(floor)
        self.prior_shape, self.prior_scale = float(prior_shape), float(prior_scale)
        self.shared, self.standardise = bool(shared), not shared

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        above = math.log(self.init / self.floor)
        start = (
            math.log(self.floor) + above - 0.01 / above
        )  # inverse of _soft_floor (.01 is FLOOR_WIDTH / 4): noise_sd() starts at init
        self.n_features = n_features
        self.log_sigma = nn.Parameter(torch.full((n_restarts, 1, 1 if self.shared else n_features), start))

    @torch.no_grad()
    def start_noise(self, residual_sd: Tensor, where: Tensor | None = None) -> None:
        """Start at half of what a rough fit leaves, at least `init`: small, so that data outweigh penalty."""
        if self.shared:
            residual_sd = residual_sd.square().mean(-1, keepdim=True).sqrt()
            where = None if where is None else where.all(-1, keepdim=True)
        above = (0.5 * residual_sd).clamp(min=self.init).div(self.floor).log()
        start = math.log(self.floor) + above - 0.01 / above
        self.log_sigma.copy_(start if where is None else torch.where(where, start, self.log_sigma))

    @torch.no_grad()
    def put_noise_sd(self, sd: Tensor, restart: int) -> None:
        """Set σ of one restart's features; at least a hundredth above the floor, which is never reached.

        Parameters
        ----------
        sd : Tensor (feature,)
            In model units; of a shared σ the root mean square counts.
        restart : int
        """
        if self.shared:
            sd = sd.square().mean(-1, keepdim=True).sqrt()
        above = (sd / self.floor).log().clamp(min=0.01)
        # inverse of _soft_floor: (u + sqrt(u² + w)) / 2 = a where u = a - w / (4 a)
        self.log_sigma[restart, 0] = math.log(self.floor) + above - FLOOR_WIDTH / (4 * above)

    def noise_sd(self) -> Tensor:
        return self._sd().expand(-1, -1, self.n_features)

    def _sd(self) -> Tensor:
        return self.floor * torch.exp(_soft_floor(self.log_sigma - math.log(self.floor)))

    def variance_beside(self, dispersion: Tensor | None = None) -> Tensor:
        return self.dispersion() if dispersion is None else dispersion

    def priors(self) -> dict[str, dist.Distribution]:
        shape = torch.full_like(self.log_sigma.squeeze(1), self.prior_shape)
        return {"sigma2": InverseGamma(shape, torch.full_like(shape, self.prior_scale)).to_event(1)}

    def values(self) -> dict[str, Tensor]:
        return {"sigma2": self._sd().squeeze(1) ** 2}

    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        return dist.Normal(f, self._sd())

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        precision = self.noise_sd().mT ** -2
        return lambda f, x, r, features: (x - f) * precision[r, features]

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        variance = dispersion.unsqueeze(-1)
        residual = x - f
        slope = residual / variance
        log_p = -0.5 * (residual * slope + variance.log())
        return (log_p, slope, (1 / variance).expand_as(f))[: order + 1]

    def dispersion(self) -> Tensor:
        """Variances (R, G)."""
        return self.noise_sd()[:, 0] ** 2

    def log_dispersion_prior(self, dispersion: Tensor) -> Tensor:
        """Of σ, from the inverse gamma density of σ², up to a constant."""
        variance = dispersion.double()
        return -(self.prior_shape + 0.5) * variance.log() - self.prior_scale / variance

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

        With :math:`S_j` a column's sum of squared residuals and :math:`n_j` its seen cells,

        .. math:: \log p(x_{\cdot j}) = -\tfrac12 S_j / \sigma_j^2 - n_j (\log\sigma_j + \tfrac12 \log 2\pi),
                  \quad \frac{\partial}{\partial \log\sigma_j} = S_j / \sigma_j^2 - n_j
        """
        xp, above, line, data = arrays(self.log_sigma, f, x)
        a, b = self.prior_shape, self.prior_scale
        if COMPILED and xp is np and data.ndim == 2 and (mask is None or mask.ndim == 2):
            line = line.swapaxes(1, 2)
            score, by_log_sigma = np.empty(line.shape, line.dtype), np.empty_like(above)
            cells, log_prior = np.empty((2, len(line)), line.dtype)
            observed = _NO_MASK if mask is None else arrays(mask)[1]
            _by_column(
                above, line, data, observed, mask is not None, self.floor, a, b, of_cells, of_priors,
                score, by_log_sigma, cells, log_prior,
            )  # fmt: skip
            terms = {"x": tensor(cells), "sigma2": tensor(log_prior)}
            return Slopes(terms, tensor(score).mT, [tensor(by_log_sigma)])
        above = above - math.log(self.floor)
        root = (above * above + FLOOR_WIDTH) ** 0.5
        log_sd = 0.5 * (above + root) + math.log(self.floor)
        precision = xp.exp(-2 * log_sd)
        residual = line - data
        count = data.shape[-2]
        if mask is not None:
            observed = xp.asarray(arrays(mask)[1], dtype=line.dtype)
            residual = residual * observed
            count = observed.sum(-2, keepdims=True)
        squares = (residual * residual).sum(1, keepdims=True) * precision
        cells = -0.5 * squares - count * (log_sd + HALF_LOG_2PI)
        log_prior = a * math.log(b) - math.lgamma(a) - 2 * (a + 1) * log_sd - b * precision
        by_log_sd = of_cells * (squares - count)
        if self.shared:
            by_log_sd = by_log_sd.sum(-1, keepdims=True)
        by_log_sd = by_log_sd + 2 * of_priors * (b * precision - (a + 1))
        by_log_sigma = 0.5 * by_log_sd * (1 + above / root)
        terms = {"x": tensor(cells.sum((1, 2))), "sigma2": tensor(log_prior.sum((1, 2)))}
        return Slopes(terms, tensor(residual * (-of_cells * precision)), [tensor(by_log_sigma)])

    def of_features(self, features: slice | Tensor) -> Normal | None:
        if self.shared:
            return None
        restricted = self._restricted(features)
        restricted.n_features = restricted.log_sigma.shape[-1]
        return restricted

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return f

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
    ) -> Tensor:
        """Squared residuals and number of seen cells of each feature, (R, G, 2)."""
        x, observed = filled(x, mask)
        squares = ((x - f) ** 2 * observed).sum(-2)
        return torch.stack([squares, observed.to(f).sum(-2).expand_as(squares)], -1)

    def feature_gain(self, full: Tensor, reduced: Tensor) -> Tensor:
        r""":math:`\frac{n_j}{2}\log(s_j^{\mathrm{reduced}} / s_j^{\mathrm{full}})`, noise refitted."""
        count = full[..., 1]
        least = (count * self.floor**2).clamp(min=torch.finfo(count.dtype).tiny)  # of features never seen
        return (
            0.5 * count * (torch.maximum(reduced[..., 0], least) / torch.maximum(full[..., 0], least)).log()
        )
