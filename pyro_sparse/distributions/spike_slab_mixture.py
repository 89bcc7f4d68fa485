r"""Any two densities around zero as spike and slab, with the indicator summed out.

.. math:: p(w) = \eta\,p_1(w) + (1-\eta)\,p_0(w)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import clamp_probs

from .spike_slab import SpikeSlab

__all__ = ["SpikeSlabMixture"]


class SpikeSlabMixture(SpikeSlab):
    r"""Marginal distribution of one weight that comes from one of two densities.

    Parameters
    ----------
    eta : Tensor or float
        Prior probability of the slab, in [0, 1]. Kept one machine epsilon away from 0 and 1.
    slab, spike : torch.distributions.Distribution
        Densities of a number, symmetric around zero; batch shapes broadcast to that of `eta`.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.

    Raises
    ------
    ValueError
        `slab` or `spike` is a density of more than a number.

    Examples
    --------
    >>> import torch
    >>> from pyro.distributions import StudentT
    >>> from pyro_sparse.distributions import SpikeSlabMixture
    >>> d = SpikeSlabMixture(torch.full((5,), 0.5), StudentT(3.0, 0.0, 1.0), StudentT(3.0, 0.0, 0.01))
    >>> d.log_prob(torch.zeros(3, 5)).shape
    torch.Size([3, 5])
    >>> round(d.posterior_odds(torch.tensor(0.0))[0].item(), 6)  # one shape, scales 1 and .01
    0.01
    """

    arg_constraints = {"eta": constraints.unit_interval}

    def __init__(
        self,
        eta: Tensor | float,
        slab: Distribution,
        spike: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        for name, component in (("slab", slab), ("spike", spike)):
            if component.event_shape:
                raise ValueError(
                    f"{name}: {type(component).__name__} is a density of shape "
                    f"{tuple(component.event_shape)}, wanted one of a number"
                )
        self.eta = torch.as_tensor(eta, dtype=None if isinstance(eta, Tensor) else torch.get_default_dtype())
        shape = torch.broadcast_shapes(self.eta.shape, slab.batch_shape, spike.batch_shape)
        self.eta = self.eta.expand(shape)
        self.slab, self.spike = slab, spike
        super().__init__(shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """The same distribution with a larger batch shape."""
        new = super().expand(batch_shape, _instance)
        new.slab, new.spike = self.slab, self.spike  # they broadcast
        return new

    @property
    def variance(self) -> Tensor:
        r""":math:`\eta V_1 + (1-\eta) V_0`."""
        return self.eta * self.slab.variance + (1 - self.eta) * self.spike.variance

    def posterior_log_odds(self, value: Tensor) -> Tensor:
        r"""Log odds of the slab, :math:`\log\frac{\eta\,p_1(w)}{(1-\eta)\,p_0(w)}`."""
        return torch.logit(clamp_probs(self.eta)) + self.slab.log_prob(value) - self.spike.log_prob(value)

    def slab_log_prob(self, value: Tensor) -> Tensor:
        r""":math:`\log[\eta\,p_1(w)]`."""
        return clamp_probs(self.eta).log() + self.slab.log_prob(value)

    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function, if both densities have one."""
        return self.eta * self.slab.cdf(value) + (1 - self.eta) * self.spike.cdf(value)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw the indicator, then the weight; shape ``sample_shape + batch_shape``."""
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            slab = torch.bernoulli(self.eta.expand(shape)).bool()
            slab_draw, zero = (
                component.expand(shape).sample().to(self.eta) for component in (self.slab, self.spike)
            )
            return torch.where(slab, slab_draw, zero)
