r"""The latents of a sequence: each frame Gaussian given the frames before it and its action.

.. math:: z_t \sim N\big(m(z_{t-1}, \ldots, z_{t-L}, a_t), \mathrm{diag}\, s^2\big), \qquad
          z_t \sim N(0, I) \text{ where nothing leads to frame } t

All frames of all sequences are evaluated in one pass; drawing goes frame by frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

__all__ = ["LatentChain"]

Transition = Callable[[Tensor], tuple[Tensor, Tensor]]


class LatentChain(TorchDistribution):
    r"""Distribution of the latents (time, latent) of each sequence.

    Parameters
    ----------
    transition : callable
        Maps inputs (restart, row, lags * latent + action), the latest frame first, to mean and log-scale,
        both (restart, row, latent). Rows are the steps of all sequences.
    n_latents, lags : int
        Size of a frame and how many frames back the past acts; 0: it does not.
    linked : Tensor of bool (restart, sequence, time)
        Frames that follow from their action and all `lags` frames of their past. Of these the first `lags`
        are N(0, I) all the same.
    present : Tensor of bool (restart, sequence, time)
        False where a sequence has ended: no density, and draws are 0.
    actions : Tensor (restart, sequence, time, action), optional
        ``actions[..., t, :]`` leads to frame t.
    validate_args : bool, optional
        Default Pyro's setting.

    Notes
    -----
    Batch shape (restart, sequence), event shape (time, latent).
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.real, 2)
    has_rsample = True

    def __init__(
        self,
        transition: Transition,
        n_latents: int,
        lags: int,
        linked: Tensor,
        present: Tensor,
        actions: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        self.transition, self.lags, self.actions, self.present = transition, lags, actions, present
        self.follows = linked.clone()
        self.follows[..., :lags] = False
        super().__init__(
            present.shape[:2], torch.Size([present.shape[2], n_latents]), validate_args=validate_args
        )

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> LatentChain:
        """The chain itself: its batch shape is that of the data."""
        if torch.Size(batch_shape) != self.batch_shape:
            raise ValueError(
                f"batch_shape: got {tuple(batch_shape)}, this chain has {tuple(self.batch_shape)}"
            )
        return self

    def moments(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-scale of every frame given the others, (restart, sequence, time, latent)."""
        first = self.lags
        loc, log_sd = torch.zeros_like(z), torch.zeros_like(z)
        if first >= z.shape[2]:
            return loc, log_sd
        follows = self.follows[..., first:].unsqueeze(-1)
        here = [torch.where(follows, moment, 0.0) for moment in self._led(z)]
        if not first:
            return here[0], here[1]
        return torch.cat([loc[:, :, :first], here[0]], 2), torch.cat([log_sd[:, :, :first], here[1]], 2)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density (restart, sequence)."""
        first = self.lags
        cost = (value**2).sum(-1)
        if first < value.shape[2]:
            loc, log_sd = self._led(value)
            away = (value[:, :, first:] - loc) * (-log_sd).exp()
            led = torch.where(self.follows[..., first:], (away**2 + 2 * log_sd).sum(-1), cost[..., first:])
            cost = torch.cat([cost[..., :first], led], -1) if first else led
        return -0.5 * ((cost + value.shape[-1] * math.log(2 * math.pi)) * self.present).sum(-1)

    def _led(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """What the transition says of frame `lags` and all after it, (restart, sequence, frame, latent)."""
        inputs = self._inputs(z, self.lags, z.shape[2])
        loc, log_sd = self.transition(inputs.flatten(1, 2))
        return loc.unflatten(1, inputs.shape[1:3]), log_sd.unflatten(1, inputs.shape[1:3])

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws frame by frame, (restart, sequence, time, latent)."""
        if torch.Size(sample_shape):
            raise NotImplementedError("sample_shape: LatentChain draws one of each sequence; repeat the data")
        parameters = getattr(self.transition, "parameters", None)
        first = next(parameters(), None) if parameters is not None else None
        kind = None if first is None else first.dtype
        noise = torch.randn(self.batch_shape + self.event_shape, device=self.present.device, dtype=kind)
        z = noise.clone()
        for t in range(self.lags, z.shape[2]):
            inputs = self._inputs(z, t, t + 1).squeeze(2)
            mean, log_sd = self.transition(inputs)
            step = torch.where(
                self.follows[..., t, None], mean + log_sd.exp() * noise[:, :, t], noise[:, :, t]
            )
            z = torch.cat([z[:, :, :t], step.unsqueeze(2), z[:, :, t + 1 :]], 2)
        return z * self.present.unsqueeze(-1)

    def _inputs(self, z: Tensor, start: int, stop: int) -> Tensor:
        """What frames start … stop-1 follow from, (restart, sequence, frame, n_inputs), the latest first."""
        inputs = [z[:, :, start - back : stop - back] for back in range(1, self.lags + 1)]
        if self.actions is not None:
            inputs.append(self.actions[:, :, start:stop].expand(*self.batch_shape, stop - start, -1))
        return torch.cat(inputs, -1)
