r"""Ordered levels by cumulative logits.

.. math:: P(x \le l) = \operatorname{logit}^{-1}(c_l - f), \qquad l = 0, \dots, L - 2
"""

from __future__ import annotations

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

__all__ = ["OrderedLogistic"]

_LEAST = 1e-30  # probability of a level, so that its logarithm is finite


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
        below = torch.sigmoid(cutpoints - predictor.unsqueeze(-1))
        # From the nearer tail, so that a small probability is no difference of two ones.
        above = torch.sigmoid(predictor.unsqueeze(-1) - cutpoints)
        inner = torch.where(
            below[..., 1:] < 0.5, below[..., 1:] - below[..., :-1], above[..., :-1] - above[..., 1:]
        )
        probs = torch.cat([below[..., :1], inner, above[..., -1:]], -1).clamp(min=_LEAST)
        self.predictor, self.cutpoints = predictor, cutpoints
        super(dist.Categorical, self).__init__(probs=probs, validate_args=validate_args)

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
