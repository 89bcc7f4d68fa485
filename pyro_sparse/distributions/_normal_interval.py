"""Probabilities of intervals of a standard normal variable, and their derivatives, far in the tails, too."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = [
    "interval_curvature",
    "interval_slopes",
    "inverse_mills",
    "log_interval",
    "log_tail",
    "normal_cdf",
    "tail_curvature",
    "tail_terms",
]

_FAR_END = 1e4  # of an end at infinity: differences of two are numbers, and no probability is beyond
_LEAST = 1e-30  # difference of log probabilities of two ends that are one
_FAR = -20.0  # beyond, curvatures by differences have lost their digits; their expansions are exact to 1e-4
_TAIL = -5.0  # beyond, probabilities are small enough for the scaled function
_WIDE = 40.0  # (x / sinh x)^2 is 0 beyond


def normal_cdf(t: Tensor) -> Tensor:
    r""":math:`\Phi(t)`; `torch.special.ndtr` loses the lower tail."""
    below: Tensor = 0.5 * torch.special.erfc(-t / math.sqrt(2))
    return below


def log_tail(t: Tensor) -> Tensor:
    r""":math:`\log \Phi(t)`, for finite t.

    As `torch.special.log_ndtr`, for which `torch.func.vmap` has no rule, and whose gradient loses digits far
    in the lower tail.
    """
    is_far = t < -1
    far, near = torch.where(is_far, t, -1.0), torch.where(is_far, 0.0, t)
    in_tail = torch.log(0.5 * torch.special.erfcx(-far / math.sqrt(2))) - 0.5 * far**2
    return torch.where(is_far, in_tail, torch.log1p(-0.5 * torch.special.erfc(near / math.sqrt(2))))


def tail_terms(t: Tensor) -> tuple[Tensor, Tensor]:
    """`log_tail` and `inverse_mills`, the slow function of both evaluated once, and only where it is needed.

    What is evaluated goes by the values: not for recorded programs.
    """
    of_size = 0.5 * torch.special.erfc(t.abs() / math.sqrt(2))
    is_upper = t > 0
    log_p = torch.where(is_upper, torch.log1p(-of_size), torch.log(of_size))
    mills = torch.exp(-0.5 * t**2) / (math.sqrt(2 * math.pi) * torch.where(is_upper, 1 - of_size, of_size))
    far = t < _TAIL
    if far.any():
        there = t[far]
        scaled = torch.special.erfcx(-there / math.sqrt(2))
        log_p[far] = torch.log(0.5 * scaled) - 0.5 * there**2
        mills[far] = math.sqrt(2 / math.pi) / scaled
    return log_p, mills


def inverse_mills(t: Tensor) -> Tensor:
    r""":math:`\varphi(t) / \Phi(t)`, without the quotient of two numbers that are both nearly 0."""
    mills: Tensor = math.sqrt(2 / math.pi) / torch.special.erfcx(-t / math.sqrt(2))
    return mills


def tail_curvature(t: Tensor, mills: Tensor) -> Tensor:
    r"""Minus the second derivative of :math:`\log \Phi(t)`, in [0, 1], given the first."""
    return torch.where(t < _FAR, 1 - 1 / t**2, mills * (mills + t)).clamp(0, 1)


def log_interval(low: Tensor, high: Tensor) -> Tensor:
    r""":math:`\log(\Phi(h) - \Phi(l))`, also under autograd and `torch.func.vmap`.

    Parameters
    ----------
    low, high : Tensor
        l < h, finite.
    """
    is_upper = low + high > 0  # then mirrored, for logs of probabilities keep their digits in the lower tail
    log_near = log_tail(torch.where(is_upper, -low, high))
    log_far = log_tail(torch.where(is_upper, -high, low))
    return log_near + torch.log(-torch.expm1(-(log_near - log_far).clamp(min=_LEAST)))


def interval_slopes(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`log_interval`, and its derivatives by the two ends.

    Parameters
    ----------
    low, high : Tensor
        May be infinite.
    """
    low, high = low.clamp(min=-_FAR_END), high.clamp(max=_FAR_END)
    is_upper = low + high > 0
    log_far, far = tail_terms(torch.where(is_upper, -high, low))
    log_near, near = tail_terms(torch.where(is_upper, -low, high))
    ratio = (log_near - log_far).clamp(min=_LEAST)
    less = -torch.expm1(-ratio)
    # the first is far * exp(-ratio) / less, without 0 times what is too large
    by_far, by_near, log_p = -far / torch.expm1(ratio), near / less, log_near + torch.log(less)
    return log_p, torch.where(is_upper, -by_near, by_far), torch.where(is_upper, -by_far, by_near)


def interval_curvature(low: Tensor, high: Tensor, by_low: Tensor, by_high: Tensor) -> Tensor:
    r"""Minus the second derivative of `log_interval` where both ends move together, in [0, 1].

    It is 1 less the variance of a standard normal variable known to lie in the interval, which far in a tail
    is that of an exponential one of rate :math:`\lambda` on an interval of width w,
    :math:`(1 - (u / \sinh u)^2) / \lambda^2` with :math:`u = \lambda w / 2`.

    Parameters
    ----------
    low, high : Tensor
    by_low, by_high : Tensor
        From `interval_slopes`.
    """
    low, high = low.clamp(min=-_FAR_END), high.clamp(max=_FAR_END)
    curvature = (by_low + by_high) ** 2 + by_low * low + by_high * high
    rate = torch.maximum(low, -high).clamp(min=1.0)
    half = (0.5 * rate * (high - low)).clamp(1e-3, _WIDE)
    in_tail = 1 - (1 - (half / torch.sinh(half)) ** 2) / rate**2
    return torch.where(rate > -_FAR, in_tail, curvature).clamp(0, 1)
