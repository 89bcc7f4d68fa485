r"""The spike-and-slab normal: a mixture of a wide and a narrow normal, with the indicator summed out.

.. math:: p(w) = \eta\,N(w; 0, s_1^2) + (1-\eta)\,N(w; 0, s_0^2), \qquad s_0 \le s_1
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all, clamp_probs

from .spike_slab import SpikeSlab

__all__ = ["SpikeSlabNormal"]


class SpikeSlabNormal(SpikeSlab):
    r"""Marginal spike-and-slab normal distribution of one weight.

    Parameters
    ----------
    eta : Tensor or float
        Prior probability of the slab, in [0, 1]. Kept one machine epsilon away from 0 and 1.
    slab_scale, spike_scale : Tensor or float
        Standard deviations of slab and spike, positive, in units of a weight.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.distributions import SpikeSlabNormal
    >>> SpikeSlabNormal(0.5, 1.0, 0.1).posterior_odds(torch.tensor(0.0)).item()
    0.100

    References
    ----------
    George and McCulloch (1993), Variable selection via Gibbs sampling, JASA 88, equation (4).
    """

    arg_constraints = {
        "eta": constraints.unit_interval,
        "slab_scale": constraints.positive,
        "spike_scale": constraints.positive,
    }
    slab_scale: Tensor
    spike_scale: Tensor

    def __init__(
        self,
        eta: Tensor | float,
        slab_scale: Tensor | float,
        spike_scale: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self.eta, self.slab_scale, self.spike_scale = broadcast_all(eta, slab_scale, spike_scale)
        super().__init__(self.eta.shape, validate_args=validate_args)

    @property
    def variance(self) -> Tensor:
        r""":math:`\eta s_1^2 + (1-\eta) s_0^2`."""
        return self.eta * self.slab_scale**2 + (1 - self.eta) * self.spike_scale**2

    def posterior_log_odds(self, value: Tensor) -> Tensor:
        r"""Log odds of the slab, normalisers included.

        .. math:: \log\frac{\eta\,s_0}{(1-\eta)\,s_1} + \tfrac12 w^2 (s_0^{-2} - s_1^{-2})
        """
        odds = torch.logit(clamp_probs(self.eta)) + (self.spike_scale / self.slab_scale).log()
        return odds + 0.5 * value**2 * (self.spike_scale**-2 - self.slab_scale**-2)

    def slab_log_prob(self, value: Tensor) -> Tensor:
        r""":math:`\log[\eta\,N(w; 0, s_1^2)]`."""
        log_scale = self.slab_scale.log() + 0.5 * math.log(2 * math.pi)
        return clamp_probs(self.eta).log() - log_scale - 0.5 * (value / self.slab_scale) ** 2

    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function."""
        if self._validate_args:
            self._validate_sample(value)
        slab: Tensor = torch.special.ndtr(value / self.slab_scale)
        spike: Tensor = torch.special.ndtr(value / self.spike_scale)
        return self.eta * slab + (1 - self.eta) * spike

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw the indicator, then the weight; shape ``sample_shape + batch_shape``."""
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            slab = torch.bernoulli(self.eta.expand(shape)).bool()
            scale = torch.where(slab, self.slab_scale, self.spike_scale)
            return scale * torch.randn_like(scale)
