r"""Automatic relevance determination: a normal prior whose precision is learned per factor, so that idle
factors die.

.. math:: w_{jk} \mid \alpha_k \sim N(0, 1/\alpha_k), \qquad \alpha_k \sim \mathrm{Gamma}(a, b)

It prunes factors, not edges: within a factor every weight is shrunk alike.
"""

from __future__ import annotations

import pyro.distributions as dist
import torch
from torch import Tensor

from .base import Prior
from .spike_slab import check_positive

__all__ = ["ARDNormal"]


class ARDNormal(Prior):
    r"""Normal prior with one precision per factor.

    The update is :math:`\alpha_k = (G_k + 2a - 2) / (\sum_j w_{jk}^2 + 2b)`.

    Parameters
    ----------
    a, b : float
        Shape and rate of the Gamma prior of the precisions. b > 0 bounds them.

    Attributes
    ----------
    precision : Tensor
        Current precisions, shape (R, 1, K).

    Raises
    ------
    ValueError
        If a number is not positive.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.priors import ARDNormal
    >>> prior = ARDNormal(a=1.0, b=0.5)
    >>> prior.setup(n_features=4, n_factors=2)
    >>> prior.update(torch.tensor([1.0, 0.0]).expand(1, 4, 2))
    >>> prior.precision.flatten()
    tensor([0.8000, 4.0000])

    References
    ----------
    MacKay (1994), Bayesian non-linear modelling for the prediction competition. Bishop (1999), Bayesian PCA,
    NIPS 11.
    """

    precision: Tensor

    capturable = True

    def __init__(self, a: float = 1.0, b: float = 1e-3) -> None:
        super().__init__()
        check_positive(a=a, b=b)
        self.a, self.b = float(a), float(b)
        self.register_buffer("precision", torch.ones(1, 1, 1))

    def allocate(self) -> None:
        """Allocate the precisions at one."""
        super().allocate()
        self.precision = self.precision.new_ones(self.n_restarts, 1, self.n_factors)

    def distribution(self) -> dist.Normal:
        """Density of one weight, batch shape (R, 1, K)."""
        return dist.Normal(torch.zeros_like(self.precision), self.precision.rsqrt())

    def update(self, weights: Tensor, prob: Tensor | None = None) -> None:
        """M-step for the precisions; ``prob`` is not used."""
        with torch.no_grad():
            count = self.allowed.to(weights.dtype).sum(-2, keepdim=True)
            total = (weights**2 * self.allowed).sum(-2, keepdim=True)
            # the mode is at zero where few edges are permitted and a is small
            self.precision.copy_((count + 2 * self.a - 2).clamp(min=1e-6) / (total + 2 * self.b))

    def prox(self, weights: Tensor, step: Tensor | float) -> Tensor:
        """Ridge shrinkage, v / (1 + step * precision); zero at forbidden edges only."""
        return (weights / (1 + step * self.precision)).masked_fill(~self.allowed, 0.0)

    def log_hyper(self) -> Tensor:
        """Log Gamma density of the precisions, shape (R,)."""
        ones = torch.ones_like(self.precision)
        density: Tensor = dist.Gamma(self.a * ones, self.b * ones).log_prob(self.precision)
        return density.sum((-2, -1))
