r"""The spike-and-slab lasso: a mixture of a wide and a narrow Laplace, with the indicator summed out.

.. math:: p(w) = \eta\,\psi_{\lambda_1}(w) + (1-\eta)\,\psi_{\lambda_0}(w), \qquad
          \psi_\lambda(w) = \tfrac{\lambda}{2} e^{-\lambda |w|}, \qquad \lambda_0 \ge \lambda_1
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all, clamp_probs

from .spike_slab import SpikeSlab

__all__ = ["SpikeSlabLasso"]


class SpikeSlabLasso(SpikeSlab):
    r"""Marginal spike-and-slab lasso distribution of one weight.

    The sub-gradient of the log density at exactly zero is zero; elsewhere it is
    :math:`-\lambda^*(w)\,\mathrm{sign}(w)` with :math:`\lambda^* = \lambda_1 p^* + \lambda_0 (1 - p^*)`.

    Parameters
    ----------
    eta : Tensor or float
        Prior probability of the slab, in [0, 1]. Kept one machine epsilon away from 0 and 1.
    lambda1, lambda0 : Tensor or float
        Rates of slab and spike, positive, in units of one over a weight.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.distributions import SpikeSlabLasso
    >>> d = SpikeSlabLasso(torch.full((5,), 0.5), 1.0, 100.0)
    >>> d.log_prob(torch.zeros(3, 5)).shape
    torch.Size([3, 5])
    >>> d.posterior_odds(torch.tensor(0.0))[0].item()  # an exact zero speaks for the spike by lambda1/lambda0
    0.010

    References
    ----------
    Ročková and George (2018), The Spike-and-Slab LASSO, JASA 113, equations (1.2)-(2.4).
    """

    arg_constraints = {
        "eta": constraints.unit_interval,
        "lambda1": constraints.positive,
        "lambda0": constraints.positive,
    }
    lambda1: Tensor
    lambda0: Tensor

    def __init__(
        self,
        eta: Tensor | float,
        lambda1: Tensor | float,
        lambda0: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self.eta, self.lambda1, self.lambda0 = broadcast_all(eta, lambda1, lambda0)
        super().__init__(self.eta.shape, validate_args=validate_args)

    @property
    def variance(self) -> Tensor:
        r""":math:`2\eta/\lambda_1^2 + 2(1-\eta)/\lambda_0^2`."""
        return 2 * (self.eta / self.lambda1**2 + (1 - self.eta) / self.lambda0**2)

    def posterior_log_odds(self, value: Tensor) -> Tensor:
        r"""Log odds of the slab, normalisers included.

        .. math:: \log\frac{\eta\,\lambda_1}{(1-\eta)\,\lambda_0} + (\lambda_0 - \lambda_1)\,|w|
        """
        # Code published for the sparse VAE leaves the normalisers out, so that a zero has odds of eta alone.
        odds = torch.logit(clamp_probs(self.eta)) + (self.lambda1 / self.lambda0).log()
        return odds + (self.lambda0 - self.lambda1) * value.abs()

    def slab_log_prob(self, value: Tensor) -> Tensor:
        r""":math:`\log[\eta\,\psi_{\lambda_1}(w)]`."""
        return clamp_probs(self.eta).log() + (self.lambda1 / 2).log() - self.lambda1 * value.abs()

    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function."""
        if self._validate_args:
            self._validate_sample(value)

        def laplace(rate: Tensor) -> Tensor:
            return 0.5 - 0.5 * value.sign() * torch.expm1(-rate * value.abs())

        return self.eta * laplace(self.lambda1) + (1 - self.eta) * laplace(self.lambda0)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw the indicator, then the weight; shape ``sample_shape + batch_shape``."""
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            slab = torch.bernoulli(self.eta.expand(shape)).bool()
            rate = torch.where(slab, self.lambda1, self.lambda0)
            # A Laplace draw is the difference of two exponentials: always finite.
            return (torch.empty_like(rate).exponential_() - torch.empty_like(rate).exponential_()) / rate
