r"""Gaussian with a full covariance given by any square root of it: N(m, A Aᵀ), A not necessarily triangular.

The posterior of a frame's latents is Gaussian with a Cholesky factor L; in turned axes its factor is B L,
which is not triangular. Draws need A only, and the entropy needs log|det A|, which the caller knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

__all__ = ["FullNormal"]


class FullNormal(TorchDistribution):
    r"""N(m, A Aᵀ).

    Parameters
    ----------
    loc : Tensor (..., event)
        Mean m.
    factor : Tensor (..., event, event)
        Invertible A.
    log_det : Tensor (...)
        log|det A|.
    event_dims : int
        How many of the last dimensions of `loc` are one event; the last is the Gaussian's, those before it
        are independent.
    present : Tensor of bool, shape of `log_det`, optional
        False where a sequence has ended: no density, no entropy.
    validate_args : bool, optional
        Default Pyro's setting.

    Examples
    --------
    >>> import torch
    >>> factor = 2 * torch.eye(2).expand(5, 2, 2)
    >>> q = FullNormal(torch.zeros(5, 2), factor, torch.full((5,), 2 * math.log(2.0)))
    >>> q.batch_shape, q.rsample().shape, round(float(q.entropy()[0]), 3)
    (torch.Size([5]), torch.Size([5, 2]), 4.224)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        factor: Tensor,
        log_det: Tensor,
        event_dims: int = 1,
        present: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        self.loc, self.factor, self.log_det, self.present = loc, factor, log_det, present
        cut = loc.dim() - event_dims
        super().__init__(loc.shape[:cut], loc.shape[cut:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> constraints.Constraint:
        """All real arrays of the event's shape."""
        return constraints.independent(constraints.real, len(self.event_shape))

    @property
    def mean(self) -> Tensor:
        """m."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Diagonal of A Aᵀ."""
        return (self.factor**2).sum(-1)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> FullNormal:
        """Same parameters, larger batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        return FullNormal(
            self.loc.expand(shape),
            self.factor.expand(shape + shape[-1:]),
            self.log_det.expand(shape[:-1]),
            len(self.event_shape),
            None if self.present is None else self.present.expand(shape[:-1]),
            validate_args=False,
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws m + A e, shape ``sample_shape + batch_shape + event_shape``."""
        shape = torch.Size(sample_shape) + self.loc.shape
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.factor @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, batch shape."""
        away = torch.linalg.solve(self.factor, (value - self.loc).unsqueeze(-1)).squeeze(-1)
        n = self.loc.shape[-1]
        return self._over_events(-0.5 * ((away**2).sum(-1) + n * math.log(2 * math.pi)) - self.log_det)

    def entropy(self) -> Tensor:
        """Entropy in nats, batch shape."""
        n = self.loc.shape[-1]
        return self._over_events(0.5 * n * (1 + math.log(2 * math.pi)) + self.log_det)

    def _over_events(self, term: Tensor) -> Tensor:
        if self.present is not None:
            term = term.where(self.present, 0.0)
        extra = len(self.event_shape) - 1
        return term.sum(tuple(range(-extra, 0))) if extra else term
