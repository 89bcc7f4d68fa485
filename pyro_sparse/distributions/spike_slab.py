r"""What every spike-and-slab density shares: two components around zero, with the indicator summed out.

.. math:: \log p(w) = \log[\eta\,p_1(w)] - \log\sigma(o(w)), \qquad
          o(w) = \log\frac{\eta\,p_1(w)}{(1-\eta)\,p_0(w)}

with :math:`\sigma` the logistic function: the log odds o carry everything, so nothing overflows and
derivatives of every order exist wherever they should. A component family only says its slab density and its
log odds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

__all__ = ["SpikeSlab"]


class SpikeSlab(TorchDistribution):
    """Base of the two-component densities; parameters are the keys of ``arg_constraints``, "eta" among them.

    Subclasses define :meth:`posterior_log_odds`, :meth:`slab_log_prob`, ``cdf``, ``variance`` and ``sample``.

    Parameters
    ----------
    batch_shape, event_shape : torch.Size
        As in :class:`torch.distributions.Distribution`; the event shape is ().
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.
    """

    support = constraints.real
    has_rsample = False
    eta: Tensor

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """The same distribution with a larger batch shape."""
        new: Self = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        for name in self.arg_constraints:
            setattr(new, name, getattr(self, name).expand(batch_shape))
        TorchDistribution.__init__(new, batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        """Zero."""
        return torch.zeros_like(self.eta)

    @property
    def mode(self) -> Tensor:
        """Zero."""
        return torch.zeros_like(self.eta)

    def posterior_log_odds(self, value: Tensor) -> Tensor:
        """Log odds that ``value`` came from the slab, normalisers included."""
        raise NotImplementedError

    def slab_log_prob(self, value: Tensor) -> Tensor:
        """Log of eta times the slab density."""
        raise NotImplementedError

    def posterior_odds(self, value: Tensor) -> Tensor:
        """Odds that ``value`` came from the slab; infinite where they overflow."""
        return self.posterior_log_odds(value).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density with the indicator summed out, batch shape."""
        if self._validate_args:
            self._validate_sample(value)
        return self.slab_log_prob(value) - F.logsigmoid(self.posterior_log_odds(value))
