r"""Ordered levels by cumulative logits.

.. math:: P(x \le l) = \operatorname{logit}^{-1}(c_l - f), \qquad l = 0, \dots, L - 2
"""

from __future__ import annotations

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import lazy_property
from torch.nn.functional import logsigmoid, pad

__all__ = ["OrderedLogistic"]

_LEAST = 1e-30  # probability of a level, so that its logarithm is finite
_FAR = 1e4  # of a cut that is not there: differences of two are numbers, their logistic function is 0 or 1


class OrderedLogistic(dist.Categorical):
    """Levels 0, 1, … in order, also under `torch.func.vmap`.

    Pyro's distribution of this name writes in place and so cannot be vectorised.

    Parameters
    ----------
    predictor : Tensor
        f.
    cutpoints : Tensor (..., level)
        c, increasing, one fewer than levels; broadcast with the predictor. Infinite where there is no level
        beyond.
    validate_args : bool, optional
        Whether arguments and values are checked; default as PyTorch is set.

    Examples
    --------
    >>> import torch
    >>> OrderedLogistic(torch.tensor(0.0), torch.tensor([-1.0, 1.0])).probs.round(decimals=3)
    tensor([0.2690, 0.4620, 0.2690])

    References
    ----------
    McCullagh (1980), Regression models for ordinal data, JRSS B 42(2)
    """

    arg_constraints = {"predictor": constraints.real, "cutpoints": constraints.real_vector}

    def __init__(self, predictor: Tensor, cutpoints: Tensor, validate_args: bool | None = None):
        self.predictor, self.cutpoints = predictor, cutpoints
        self._num_events = cutpoints.shape[-1] + 1
        shape = torch.broadcast_shapes(predictor.shape, cutpoints.shape[:-1])
        # not by way of `Categorical`, which has to be given the probabilities of all levels
        torch.distributions.Distribution.__init__(self, shape, validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        """Of all levels, (..., level)."""
        below = self._cdf(self.cutpoints - self.predictor.unsqueeze(-1))
        # From the nearer tail, so that a small probability is no difference of two ones.
        above = self._cdf(self.predictor.unsqueeze(-1) - self.cutpoints)
        inner = torch.where(
            below[..., 1:] < 0.5, below[..., 1:] - below[..., :-1], above[..., :-1] - above[..., 1:]
        )
        probs = torch.cat([below[..., :1], inner, above[..., -1:]], -1).clamp(min=_LEAST)
        return probs / probs.sum(-1, keepdim=True)

    @property
    def _param(self) -> Tensor:
        return self.probs

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Log probability of levels, by the two cuts c < d beside each alone.

        .. math:: \log p = \log s(d - f) + \log s(f - c) + \log(1 - e^{c - d})

        with s the logistic function.
        """
        if getattr(value, "_pyro_categorical_support", None) == id(self):
            by_enumeration: Tensor = super().log_prob(value)
            return by_enumeration
        if self._validate_args:
            self._validate_sample(value)
        f, level = torch.broadcast_tensors(self.predictor.expand(self.batch_shape), value.long())
        beside = self._beside()
        beside = beside.reshape(3, *(1,) * (f.dim() + 2 - beside.dim()), *beside.shape[1:])
        by_rows = f.dim() > 1 and beside.shape[-3] == 1  # all rows have the same cuts: numbers of levels
        if by_rows:
            f, level = f.mT, level.mT
            low, high, log_width = (
                beside.squeeze(-3).expand(3, *f.shape[:-1], -1).gather(-1, level.expand(3, *level.shape))
            )
        else:
            low, high, log_width = (
                beside.expand(3, *f.shape, -1).gather(-1, level.expand(3, *level.shape).unsqueeze(-1))
            ).squeeze(-1)
        log_p = self._log_between(low - f, high - f, log_width)
        return log_p.mT if by_rows else log_p

    @staticmethod
    def _cdf(t: Tensor) -> Tensor:
        """Distribution function of the variable that is cut."""
        return torch.sigmoid(t)

    @staticmethod
    def _log_between(low: Tensor, high: Tensor, log_width: Tensor) -> Tensor:
        """Log of the probability between two cuts less f; `_beside` has the third."""
        log_p: Tensor = logsigmoid(high) + logsigmoid(-low) + log_width
        return log_p

    def _beside(self) -> Tensor:
        """The cut below each level, that above, and the log of 1 - exp(-their distance), (3, ..., level)."""
        low = pad(self.cutpoints.clamp(max=_FAR), (1, 0), value=-_FAR)
        high = pad(self.cutpoints.clamp(max=_FAR), (0, 1), value=_FAR)
        return torch.stack([low, high, torch.log(-torch.expm1(low - high).clamp(max=-_LEAST))])

    @property
    def mean(self) -> Tensor:
        """Expected number of the level."""
        mean: Tensor = (self.probs * self._levels).sum(-1)
        return mean

    @property
    def variance(self) -> Tensor:
        """Of the number of the level."""
        variance: Tensor = (self.probs * (self._levels - self.mean.unsqueeze(-1)) ** 2).sum(-1)
        return variance

    @property
    def _levels(self) -> Tensor:
        return torch.arange(self.probs.shape[-1], device=self.probs.device, dtype=self.probs.dtype)

    def expand(self, batch_shape: torch.Size, _instance: None = None) -> OrderedLogistic:
        """The same of a larger batch."""
        cuts = self.cutpoints
        wide = cuts.expand(*batch_shape, cuts.shape[-1])
        return type(self)(self.predictor.expand(batch_shape), wide, validate_args=False)
