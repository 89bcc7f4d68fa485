"""Links of answers: a response behind them that nobody saw, logistic or normal, is cut at points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..distributions._normal_interval import interval_curvature, interval_slopes, normal_cdf
from ..distributions.ordered_logistic import OrderedLogistic
from ..distributions.ordered_probit import OrderedProbit

__all__ = ["LINKS", "Link", "LinkName", "read_link"]

LinkName: TypeAlias = Literal["logit", "probit"]
_LOGISTIC_VARIANCE = math.pi**2 / 3


class Link(NamedTuple):
    r"""What answers need to know of the response y = f + e that is cut, e standard logistic or normal.

    Attributes
    ----------
    latent_variance : float
        Of e.
    spread : float
        Between the outer cuts, a priori.
    cdf, quantile : callable
        Distribution function of e, and its inverse.
    levels : type
        Distribution of levels given f and cuts.
    slopes : callable
        :math:`\log P(l < e < h)` of l and h, and its derivatives by them.
    terms : callable
        Of l, h and an order up to 2: it, its derivative by f, and minus the second one.
    """

    latent_variance: float
    spread: float
    cdf: Callable[[Tensor], Tensor]
    quantile: Callable[[Tensor], Tensor]
    levels: type[OrderedLogistic]
    slopes: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    terms: Callable[[Tensor, Tensor, int], tuple[Tensor, ...]]


def _log_logistic(low: Tensor, high: Tensor) -> Tensor:
    return logsigmoid(high) + logsigmoid(-low) + torch.log(-torch.expm1(low - high))


def _logistic_slopes(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q = 1 / torch.expm1(high - low)
    return _log_logistic(low, high), -torch.sigmoid(low) - q, torch.sigmoid(-high) + q


def _logistic_terms(low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
    log_p = _log_logistic(low, high)
    if order == 0:
        return (log_p,)
    at_low, at_high = torch.sigmoid(low), torch.sigmoid(-high)
    return (log_p, at_low - at_high, at_low * (1 - at_low) + at_high * (1 - at_high))[: order + 1]


def _normal_terms(low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
    log_p, by_low, by_high = interval_slopes(low, high)
    if order < 2:
        return (log_p, -(by_low + by_high))[: order + 1]
    return log_p, -(by_low + by_high), interval_curvature(low, high, by_low, by_high)


class _LogisticLevels(OrderedLogistic):
    """Levels as floating-point numbers, as the cells of a table are."""

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        draws: Tensor = super().sample(torch.Size(sample_shape))
        return draws.to(self.predictor)


class _NormalLevels(_LogisticLevels, OrderedProbit):
    """Likewise."""


LINKS: dict[LinkName, Link] = {
    # between the outer cuts a logistic variable has 76 % of its mass
    "logit": Link(
        _LOGISTIC_VARIANCE,
        4.0,
        torch.sigmoid,
        torch.logit,
        _LogisticLevels,
        _logistic_slopes,
        _logistic_terms,
    ),
    # as many standard deviations of the response: a logistic one has 1.81
    "probit": Link(
        1.0,
        4.0 / math.sqrt(_LOGISTIC_VARIANCE),
        normal_cdf,
        torch.special.ndtri,
        _NormalLevels,
        interval_slopes,
        _normal_terms,
    ),
}


def read_link(link: object) -> LinkName:
    """The name of a link.

    Raises
    ------
    ValueError
        It is none.
    """
    for name in LINKS:
        if link == name:
            return name
    raise ValueError(f'link: got {link!r}, wanted "logit" or "probit"')
