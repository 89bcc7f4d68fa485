"""One noise scale per feature, as `Normal` has it, for measurements whose noise is not normal or not seen."""

from __future__ import annotations

import math

import pyro.distributions as dist
import torch
from torch import Tensor, nn

from ..distributions._inverse_gamma import InverseGamma
from .base import Likelihood
from .normal import FLOOR_WIDTH, _soft_floor

__all__ = ["NoiseScale"]


class NoiseScale(Likelihood):
    r"""Base of likelihoods with a scale :math:`\sigma_j`, with :math:`\sigma_j^2 \sim` InverseGamma(a, b).

    Parameters
    ----------
    init, floor : float
        Starting value and lower bound of σ, in units of the (z-scored) column.
    prior_shape, prior_scale : float
        a and b.

    Raises
    ------
    ValueError
        Not 0 < floor < init, or a or b not positive.

    Notes
    -----
    The parameter is ``log_sigma`` (R, 1, G), its floor and its start are those of `Normal`. `noise_sd` stays
    None, since what reads it takes the noise to be normal, and cells to be seen as they are.
    """

    has_dispersion = True
    standardise = True
    separable = True

    def __init__(self, init: float, floor: float, prior_shape: float, prior_scale: float) -> None:
        super().__init__()
        name = type(self).__name__
        if not 0 < floor < init:
            raise ValueError(f"{name}: want 0 < floor < init, got floor={floor}, init={init}.")
        if not (prior_shape > 0 and prior_scale > 0):
            raise ValueError(
                f"{name}: prior_shape and prior_scale must be positive, got {prior_shape} and {prior_scale}."
            )
        self.init, self.floor = float(init), float(floor)
        self.prior_shape, self.prior_scale = float(prior_shape), float(prior_scale)

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        self.log_sigma = nn.Parameter(self._unfloored(torch.full((n_restarts, 1, n_features), self.init)))

    @torch.no_grad()
    def start_noise(self, residual_sd: Tensor, where: Tensor | None = None) -> None:
        """Start at half of what a rough fit leaves, at least `init`, as `Normal` does."""
        start = self._unfloored((0.5 * residual_sd).clamp(min=self.init))
        self.log_sigma.copy_(start if where is None else torch.where(where, start, self.log_sigma))

    def _unfloored(self, sd: Tensor) -> Tensor:
        """The parameter of which this is the scale: the inverse of the soft floor."""
        above = (sd / self.floor).log()
        return math.log(self.floor) + above - FLOOR_WIDTH / (4 * above)

    def scale(self) -> Tensor:
        """σ, (R, 1, G), in units of the (z-scored) column."""
        return self.floor * torch.exp(_soft_floor(self.log_sigma - math.log(self.floor)))

    def priors(self) -> dict[str, dist.Distribution]:
        shape = torch.full_like(self.log_sigma.squeeze(1), self.prior_shape)
        return {"sigma2": InverseGamma(shape, torch.full_like(shape, self.prior_scale)).to_event(1)}

    def values(self) -> dict[str, Tensor]:
        return {"sigma2": self.scale().squeeze(1) ** 2}

    def dispersion(self) -> Tensor:
        """σ², (R, G)."""
        return self.scale()[:, 0] ** 2

    def _scale_slope(self) -> Tensor:
        """Derivative of log σ by the parameter."""
        above = self.log_sigma - math.log(self.floor)
        return 0.5 * (1 + above / torch.sqrt(above * above + FLOOR_WIDTH))

    def _prior_terms(self, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Log prior of σ² (R,), and its derivative by log σ."""
        a, b = self.prior_shape, self.prior_scale
        density = a * math.log(b) - math.lgamma(a) - (a + 1) * variance.log() - b / variance
        return density.sum((1, 2)), 2 * (b / variance - (a + 1))

    def variance_beside(self, dispersion: Tensor | None = None) -> Tensor:
        return self.dispersion() if dispersion is None else dispersion

    def dispersion_parameters(self) -> tuple[str, ...]:
        return ("log_sigma",)

    def log_dispersion_prior(self, dispersion: Tensor) -> Tensor:
        """Of σ, from the inverse gamma density of σ², up to a constant."""
        variance = dispersion.double()
        return -(self.prior_shape + 0.5) * variance.log() - self.prior_scale / variance
