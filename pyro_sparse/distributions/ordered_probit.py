r"""Ordered levels by a standard normal variable that is cut.

.. math:: P(x \le l) = \Phi(c_l - f), \qquad l = 0, \dots, L - 2
"""

from __future__ import annotations

from torch import Tensor

from ._normal_interval import log_interval, normal_cdf
from .ordered_logistic import OrderedLogistic

__all__ = ["OrderedProbit"]


class OrderedProbit(OrderedLogistic):
    """`OrderedLogistic` with the normal distribution function in place of the logistic one.

    Parameters
    ----------
    predictor, cutpoints, validate_args
        As there.

    Examples
    --------
    >>> import torch
    >>> OrderedProbit(torch.tensor(0.0), torch.tensor([-1.0, 1.0])).probs.round(decimals=3)
    tensor([0.1590, 0.6830, 0.1590])

    References
    ----------
    McKelvey and Zavoina (1975), A statistical model for the analysis of ordinal level dependent variables,
    Journal of Mathematical Sociology 4(1)
    """

    @staticmethod
    def _cdf(t: Tensor) -> Tensor:
        return normal_cdf(t)

    @staticmethod
    def _log_between(low: Tensor, high: Tensor, log_width: Tensor) -> Tensor:
        return log_interval(low, high)
