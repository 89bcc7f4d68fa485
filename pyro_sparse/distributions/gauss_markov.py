r"""Gaussian whose frames form a Markov chain: what a smoother says of the latents of a whole sequence.

.. math:: z_t = m_t + A_t (z_{t-1} - m_{t-1}) + L_t e_t, \qquad e_t \sim N(0, I)

m_t is the mean of frame t, whatever A and L are. Every linear-Gaussian state-space model has a posterior of
this form, and no chain of independent frames (A = 0) can be one where frames are known only together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

__all__ = ["GaussMarkov"]


class GaussMarkov(TorchDistribution):
    r"""Distribution of the latents (time, latent) of each sequence, linked from frame to frame.

    Parameters
    ----------
    loc : Tensor (..., time, latent)
        Means m.
    link : Tensor (..., time, latent, latent)
        A; that of the first frame is not read.
    factor : Tensor (..., time, latent, latent)
        Invertible L, not necessarily triangular.
    log_det : Tensor (..., time)
        log|det L|.
    present : Tensor of bool (..., time), optional
        False where a sequence has ended: no density, no entropy, and draws are the mean.
    validate_args : bool, optional
        Default Pyro's setting.

    References
    ----------
    Archer et al. (2015), arXiv 1511.07367: a Gaussian of this structure guides a state-space model.

    Examples
    --------
    >>> import torch
    >>> eye = torch.eye(2).expand(5, 3, 2, 2)
    >>> q = GaussMarkov(torch.zeros(5, 3, 2), 0.9 * eye, eye, torch.zeros(5, 3))
    >>> q.batch_shape, q.event_shape, q.rsample().shape
    (torch.Size([5]), torch.Size([3, 2]), torch.Size([5, 3, 2]))
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.real, 2)
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        link: Tensor,
        factor: Tensor,
        log_det: Tensor,
        present: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        self.loc, self.link, self.factor, self.log_det = loc, link, factor, log_det
        self.present = present if present is None else present.expand(loc.shape[:-1])
        super().__init__(loc.shape[:-2], loc.shape[-2:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """m."""
        return self.loc

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> GaussMarkov:
        """Same parameters, larger batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        square = shape + shape[-1:]
        return GaussMarkov(
            self.loc.expand(shape),
            self.link.expand(square),
            self.factor.expand(square),
            self.log_det.expand(shape[:-1]),
            self.present,
            validate_args=False,
        )

    def turned(self, axes: Tensor) -> GaussMarkov:
        """Distribution of ``axes @ z_t`` of all frames.

        Parameters
        ----------
        axes : Tensor (..., latent, latent)
            Invertible; as many leading dimensions as the batch.
        """
        turn = axes.unsqueeze(-3)
        return GaussMarkov(
            (turn @ self.loc.unsqueeze(-1)).squeeze(-1),
            turn @ self.link @ torch.linalg.inv(turn),
            turn @ self.factor,
            self.log_det + torch.linalg.slogdet(turn)[1],
            self.present,
            validate_args=False,
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws frame by frame, shape ``sample_shape + batch_shape + event_shape``."""
        shape = torch.Size(sample_shape) + self.loc.shape
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        innovations = self._kept((self.factor @ noise.unsqueeze(-1)).squeeze(-1))
        away = [innovations[..., 0, :]]
        for t in range(1, shape[-2]):
            passed = (self.link[..., t, :, :] @ away[-1].unsqueeze(-1)).squeeze(-1)
            away.append(self._kept(passed, t) + innovations[..., t, :])
        return self.loc + torch.stack(away, -2)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, batch shape."""
        away = value - self.loc
        passed = (self.link[..., 1:, :, :] @ away[..., :-1, :].unsqueeze(-1)).squeeze(-1)
        innovations = torch.cat([away[..., :1, :], away[..., 1:, :] - passed], -2)
        noise = torch.linalg.solve(self.factor, innovations.unsqueeze(-1)).squeeze(-1)
        n = self.loc.shape[-1]
        per_frame = -0.5 * ((noise**2).sum(-1) + n * math.log(2 * math.pi)) - self.log_det
        return self._over_frames(per_frame)

    def entropy(self) -> Tensor:
        """Entropy in nats, batch shape: links turn and shift frames, and add nothing."""
        n = self.loc.shape[-1]
        return self._over_frames(0.5 * n * (1 + math.log(2 * math.pi)) + self.log_det)

    def _kept(self, term: Tensor, t: int | None = None) -> Tensor:
        """A term (…, time, latent), or that of frame t, 0 where the sequence has ended."""
        if self.present is None:
            return term
        present = self.present if t is None else self.present[..., t]
        return torch.where(present.unsqueeze(-1), term, 0.0)

    def _over_frames(self, per_frame: Tensor) -> Tensor:
        return (per_frame if self.present is None else torch.where(self.present, per_frame, 0.0)).sum(-1)
