r"""Zero-mean Gaussian factors that share one covariance, with the closed-form divergence of a guide.

.. math:: z \sim N(0, C), \qquad
          KL(N(m, S) \,\|\, N(0, C)) = \tfrac12 \big[ m^\top C^{-1} m
          + \mathrm{tr}(C^{-1} S) - K - \log|S| + \log|C| \big], \quad S \text{ diagonal or full}

A ``MultivariateNormal`` inside a plate copies its covariance for every row; this one factorises it once for
each restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal, constraints, register_kl

from .full_normal import FullNormal

__all__ = ["CorrelatedNormal"]


class CorrelatedNormal(TorchDistribution):
    r"""N(0, C) with one covariance per restart.

    Parameters
    ----------
    covariance : Tensor (..., 1, factor, factor)
        Positive definite; the axis of length 1 is the row axis.
    validate_args : bool, optional
        Check the covariance and values; default Pyro's setting.

    Notes
    -----
    Batch shape (..., 1), expandable along the row axis; event shape (factor,).
    """

    arg_constraints = {"covariance": constraints.positive_definite}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, covariance: Tensor, validate_args: bool | None = None):
        self.covariance = covariance
        self.root: Tensor = torch.linalg.cholesky(covariance)
        super().__init__(covariance.shape[:-2], covariance.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """Same covariance, larger batch shape."""
        new: Self = self._get_checked_instance(CorrelatedNormal, _instance)
        new.covariance, new.root = self.covariance, self.root
        TorchDistribution.__init__(new, torch.Size(batch_shape), self.event_shape, validate_args=False)
        return new

    @property
    def mean(self) -> Tensor:
        """Zeros."""
        return self.covariance.new_zeros(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        """Diagonal of C."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).expand(self.batch_shape + self.event_shape)

    @property
    def precision(self) -> Tensor:
        """Inverse of C, shape (..., 1, factor, factor)."""
        return torch.cholesky_inverse(self.root)

    @property
    def log_determinant(self) -> Tensor:
        """log|C|, shape (..., 1)."""
        return 2 * self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, shape ``sample_shape + batch_shape + (factor,)``."""
        noise = torch.randn(
            self._extended_shape(torch.Size(sample_shape)),
            dtype=self.covariance.dtype,
            device=self.covariance.device,
        )
        return (self.root @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, batch shape."""
        if self._validate_args:
            self._validate_sample(value)
        n: int = self.event_shape[0]
        quadratic: Tensor = (torch.einsum("...i,...ij->...j", value, self.precision) * value).sum(-1)
        return -0.5 * (quadratic + self.log_determinant + n * 1.8378770664093453)  # log(2 pi)


def _kl(guide: Independent[Distribution], prior: CorrelatedNormal) -> Tensor:
    base = guide.base_dist
    if not isinstance(base, Normal) or guide.reinterpreted_batch_ndims != 1:
        raise NotImplementedError
    precision = prior.precision
    quadratic = (torch.einsum("...i,...ij->...j", base.loc, precision) * base.loc).sum(-1)
    trace = (base.scale**2 * precision.diagonal(dim1=-2, dim2=-1)).sum(-1)
    n: int = prior.event_shape[0]
    return 0.5 * (quadratic + trace - n - 2 * base.scale.log().sum(-1) + prior.log_determinant)


def _kl_full(guide: FullNormal, prior: CorrelatedNormal) -> Tensor:
    if len(guide.event_shape) != 1:
        raise NotImplementedError
    precision = prior.precision
    n: int = guide.event_shape[0]
    quadratic = (torch.einsum("...i,...ij->...j", guide.loc, precision) * guide.loc).sum(-1)
    columns = guide.factor.mT  # of all rows as one matrix: one product instead of one for each row
    trace = (columns.flatten(-3, -2) @ precision.squeeze(-3)).view_as(columns).mul(columns).sum((-1, -2))
    return 0.5 * (quadratic + trace - n + prior.log_determinant) - guide.log_det


# Called here instead of decorating: torch's decorator has no types, and would take the function's.
register_kl(Independent, CorrelatedNormal)(_kl)
register_kl(FullNormal, CorrelatedNormal)(_kl_full)
