r"""The horseshoe and its regularised form as densities of one weight, the local scale integrated out.

.. math:: w \mid \lambda \sim N(0, \tau^2\lambda^2), \quad \lambda \sim C^+(0, 1) \;\Rightarrow\;
          p(w) = \frac{e^x E_1(x)}{\tau\sqrt{2\pi^3}}, \qquad x = \frac{w^2}{2\tau^2}

The horseshoe is exact through the exponential integral; it has a pole at zero. The regularised horseshoe caps
the scale at the slab's, :math:`\tilde\lambda^2 = c^2\lambda^2 / (c^2 + \tau^2\lambda^2)`; with :math:`\lambda
= \tan\theta` the half-Cauchy is uniform in :math:`\theta`, and a Gauss-Legendre rule turns it into a finite
mixture of normals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, Self

import numpy as np
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import broadcast_all

from .._utils.types import AutogradContext

__all__ = ["Horseshoe", "RegularisedHorseshoe", "scaled_expint"]

_EULER = 0.57721566490153286
_rule = lru_cache(np.polynomial.legendre.leggauss)


class _Order(AutogradContext, Protocol):
    n: int


class _ScaledExpint(torch.autograd.Function):
    """h_n(x) = exp(x) E_n(x), whose derivative is [(n - 1) h_n - n h_{n+1}] / x without cancellation."""

    @staticmethod
    def forward(ctx: _Order, x: Tensor, n: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.n = n
        # Up to 2 the power series of E_1 and the upward recursion in n; beyond, a continued fraction. Worst
        # where they meet: 27 terms and 40 levels leave errors below 1e-13 in double precision.
        low, high = x.clamp(max=2.0), x.clamp(min=2.0)
        term, series = torch.ones_like(low), -_EULER - low.log()
        for i in range(1, 28):
            term = term * (-low / i)
            series = series - term / i
        small = series * low.exp()
        for i in range(1, n):
            small = (1 - low * small) / i
        depth = 40
        tail = high + (n + 2 * depth)
        for i in range(depth, 0, -1):
            tail = high + (n + 2 * i - 2) - i * (n + i - 1) / tail
        return torch.where(x <= 2, small, 1 / tail)

    @staticmethod
    def backward(ctx: _Order, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        n = ctx.n
        slope = -n * _ScaledExpint.apply(x, n + 1)
        if n > 1:
            slope = slope + (n - 1) * _ScaledExpint.apply(x, n)
        return grad * slope / x, None


def scaled_expint(x: Tensor, n: int = 1) -> Tensor:
    r"""Exponentially scaled exponential integral :math:`e^x E_n(x)` for x > 0, differentiable to any order.

    Parameters
    ----------
    x : Tensor
        Positive.
    n : int
        Order, at least 1.

    Returns
    -------
    Tensor
        Shape of x; relative error near machine precision.

    References
    ----------
    DLMF, sections 6.6.2 (series) and 8.19.17 (continued fraction).
    """
    scaled: Tensor = _ScaledExpint.apply(x, n)
    return scaled


class Horseshoe(TorchDistribution):
    r"""Horseshoe distribution of one weight, exact.

    The density is infinite at zero; ``log_prob`` there is that of the smallest weight whose square can be
    represented, and its gradient is zero.

    Parameters
    ----------
    tau : Tensor or float
        Global scale, positive, in units of a weight.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.

    References
    ----------
    Carvalho, Polson and Scott (2010), The horseshoe estimator for sparse signals, Biometrika 97, theorem 1.
    """

    arg_constraints = {"tau": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, tau: Tensor | float, validate_args: bool | None = None) -> None:
        self.tau = torch.as_tensor(tau, dtype=None if isinstance(tau, Tensor) else torch.get_default_dtype())
        super().__init__(self.tau.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """The same distribution with a larger batch shape."""
        new: Self = self._get_checked_instance(Horseshoe, _instance)
        new.tau = self.tau.expand(torch.Size(batch_shape))
        TorchDistribution.__init__(new, torch.Size(batch_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        """Undefined (NaN): the tails are those of a Cauchy."""
        return torch.full_like(self.tau, torch.nan)

    @property
    def variance(self) -> Tensor:
        """Infinite."""
        return torch.full_like(self.tau, torch.inf)

    def _x(self, value: Tensor) -> Tensor:
        return (0.5 * (value / self.tau) ** 2).clamp(min=torch.finfo(self.tau.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density with the local scale integrated out, batch shape."""
        if self._validate_args:
            self._validate_sample(value)
        return scaled_expint(self._x(value)).log() - self.tau.log() - 0.5 * math.log(2 * math.pi**3)

    def expected_scaled_square(self, value: Tensor) -> Tensor:
        r"""E-step, :math:`E[w^2 / (\tau\lambda)^2 \mid w] = -w\,p'(w)/p(w) = 2 h_2(x)/h_1(x)`, in (0, 2)."""
        x = self._x(value)
        return 2 * scaled_expint(x, 2) / scaled_expint(x)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw the local scale, then the weight; differentiable in tau."""
        shape = self._extended_shape(torch.Size(sample_shape))
        tau = self.tau.expand(shape)
        return tau * torch.empty_like(tau).cauchy_().abs() * torch.randn_like(tau)


class RegularisedHorseshoe(TorchDistribution):
    r"""Regularised horseshoe distribution of one weight, the local scale summed over a quadrature rule.

    It is a proper density for any number of nodes: a mixture of normals with standard deviations
    :math:`\tau\tilde\lambda_i` and the quadrature weights. It follows the continuous one down to weights of
    about :math:`\tau / n^2` and stays finite below, also at zero.

    Parameters
    ----------
    tau : Tensor or float
        Global scale, positive.
    slab_scale : Tensor or float
        c, the standard deviation that the largest weights have.
    n_nodes : int
        Number of quadrature nodes.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.

    References
    ----------
    Piironen and Vehtari (2017), Sparsity information and regularization in the horseshoe and other shrinkage
    priors, Electronic Journal of Statistics 11, equation (2.8).
    """

    arg_constraints = {"tau": constraints.positive, "slab_scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        tau: Tensor | float,
        slab_scale: Tensor | float,
        n_nodes: int = 64,
        validate_args: bool | None = None,
    ) -> None:
        if int(n_nodes) != n_nodes or n_nodes < 2:
            raise ValueError(f"n_nodes is {n_nodes!r}; it must be an integer of at least 2.")
        self.tau, self.slab_scale = broadcast_all(tau, slab_scale)
        self.n_nodes = int(n_nodes)
        super().__init__(self.tau.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """The same distribution with a larger batch shape."""
        new: Self = self._get_checked_instance(RegularisedHorseshoe, _instance)
        new.tau, new.slab_scale = (v.expand(torch.Size(batch_shape)) for v in (self.tau, self.slab_scale))
        new.n_nodes = self.n_nodes
        TorchDistribution.__init__(new, torch.Size(batch_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _components(self) -> tuple[Tensor, Tensor]:
        """Weights (node,) and standard deviations (*batch, node) of the mixture."""
        node, rule = _rule(self.n_nodes)
        local = torch.as_tensor(np.tan((node + 1) * np.pi / 4)).to(self.tau)
        # Half the rule's weights sum to one: they are the half-Cauchy's mass, uniform in the angle.
        weight = torch.as_tensor(rule / 2).to(self.tau)
        wide = self.tau[..., None] * local
        return weight, wide / torch.sqrt(1 + (wide / self.slab_scale[..., None]) ** 2)

    @property
    def mean(self) -> Tensor:
        """Zero."""
        return torch.zeros_like(self.tau)

    @property
    def mode(self) -> Tensor:
        """Zero."""
        return torch.zeros_like(self.tau)

    @property
    def variance(self) -> Tensor:
        """Variance of the mixture, below the slab's."""
        weight, scale = self._components()
        return (weight * scale**2).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density with the local scale summed out, batch shape."""
        if self._validate_args:
            self._validate_sample(value)
        weight, scale = self._components()
        log_joint = -0.5 * (value[..., None] / scale) ** 2 - scale.log() + weight.log()
        return torch.logsumexp(log_joint, -1) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function."""
        weight, scale = self._components()
        of_nodes: Tensor = weight * torch.special.ndtr(value[..., None] / scale)
        return of_nodes.sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw a node, then the weight; differentiable in tau and slab_scale."""
        shape = self._extended_shape(torch.Size(sample_shape))
        weight, scale = self._components()
        node = torch.multinomial(weight, max(shape.numel(), 1), replacement=True)[: shape.numel()].view(shape)
        scale = scale.expand(*shape, self.n_nodes).gather(-1, node[..., None]).squeeze(-1)
        return scale * torch.randn_like(scale)
