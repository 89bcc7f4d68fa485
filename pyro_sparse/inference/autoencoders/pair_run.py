"""One pair under way: two autoencoders, Adam, the order of the rows, history."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..._utils.optimisers import eager
from ..._utils.torch_state import load_random_state, no_subnormals, random_state

if TYPE_CHECKING:
    from ...data.activations import Activations
    from ...models.autoencoder_pair import AutoencoderPair
    from ...nets.sparse_autoencoder import ActiveCodes, SparseAutoencoder
    from ..table.latent_penalty import DependencyPenalty
    from .schedule import AutoencoderSchedule

__all__ = ["Losses", "PairRun", "standardised_layer"]

_LARGEST_GRADIENT = 1.0  # norm over both autoencoders
_SMOOTH = 0.02  # share by which the history's losses follow those of a step


class Losses(NamedTuple):
    """The parts of a step's loss.

    Attributes
    ----------
    error_in, error_out : Tensor ()
        Mean squared errors of standardised activations: about the fraction of variance unexplained.
    auxiliary : Tensor ()
        Of dead latents, without its weight.
    penalty : Tensor ()
        Of the Jacobian, without its weight.
    """

    error_in: Tensor
    error_out: Tensor
    auxiliary: Tensor
    penalty: Tensor


def standardised_layer(
    between: Callable[[Tensor], Tensor], before: SparseAutoencoder, after: SparseAutoencoder
) -> Callable[[Tensor], Tensor]:
    """The layer between standardised activations.

    Parameters
    ----------
    between : callable
    before, after : SparseAutoencoder
        They have the units.
    """
    return lambda x: after.standardised(between(x * before.scale + before.centre))


class PairRun:
    """A restart under way.

    Parameters
    ----------
    model : AutoencoderPair
    pair : (SparseAutoencoder, SparseAutoencoder)
        At their start, in their units.
    train : Activations
    schedule : AutoencoderSchedule
        Decided.
    dependency : DependencyPenalty or None
    number : int
        Of the restart.
    rounded : bool
        Whether products of the steps are in bfloat16.
    """

    def __init__(
        self,
        model: AutoencoderPair,
        pair: tuple[SparseAutoencoder, SparseAutoencoder],
        train: Activations,
        schedule: AutoencoderSchedule,
        dependency: DependencyPenalty | None,
        number: int,
        rounded: bool = False,
    ):
        assert schedule.steps is not None and schedule.dead_after is not None
        self.model, self.train, self.schedule, self.dependency = model, train, schedule, dependency
        self.before, self.after = pair
        self.n_steps, self.dead_after, self.number, self.rounded = (
            schedule.steps, schedule.dead_after, number, rounded,
        )  # fmt: skip
        self.layer = standardised_layer(model.between, *pair)
        self.parameters = [*self.before.parameters(), *self.after.parameters()]
        self.optimiser = eager(torch.optim.Adam)(self.parameters, schedule.learning_rate, fused=True)
        self.order, self.position, self.step = torch.randperm(len(train)), 0, 0
        self.smooth: Tensor | None = None
        self.history: list[dict[str, Any]] = []

    @property
    def done(self) -> bool:
        """All steps taken."""
        return self.step >= self.n_steps

    # ---- one step ------------------------------------------------------------------------------------------
    def losses(self, x: Tensor, y: Tensor) -> Losses:
        """Of rows in their own units; latents are counted as active or not.

        Parameters
        ----------
        x, y : Tensor (row, d)
        """
        sides = (self.before, self.before.standardised(x)), (self.after, self.after.standardised(y))
        errors, codes, auxiliary = [], [], x.new_zeros(())
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.rounded):
            for sae, rows in sides:
                kept = sae.kept(sae.scores(rows))
                error = rows - sae.decoded(kept)
                sae.count(kept, len(rows))
                if self.model.aux:
                    auxiliary = auxiliary + sae.auxiliary(rows, error, self.dead_after)
                errors.append(error.square().mean())
                codes.append(kept)
            penalty = self._penalty(sides[0][1], codes)
        return Losses(errors[0], errors[1], auxiliary, penalty)

    def _penalty(self, x: Tensor, codes: list[ActiveCodes]) -> Tensor:
        if self.dependency is None or not self.dependency.weight:
            return x.new_zeros(())
        from ..edges.dictionaries import latent_jacobian_penalty  # late, since that room reads results

        n = max(1, round(self.schedule.penalty_share * len(x)))
        f_in, f_out = (
            kept.dense(n, sae.n_latents) for kept, sae in zip(codes, (self.before, self.after), strict=True)
        )
        return latent_jacobian_penalty(
            self.before.dec, self.after.enc, self.layer, x[:n], f_in, f_out,
            surrogate=self.dependency.surrogate,
        )  # fmt: skip

    def advance(self) -> None:
        """One minibatch."""
        with no_subnormals():
            for group in self.optimiser.param_groups:
                group["lr"] = self.schedule.rate(self.step)
            parts = self.losses(*self._next_rows())
            weight = 0.0 if self.dependency is None else self.dependency.weight_at(self.step / self.n_steps)
            total = parts.error_in + parts.error_out
            total = total + self.model.aux * parts.auxiliary + weight * parts.penalty
            if not torch.isfinite(total.detach()):
                raise FloatingPointError(
                    f"fit: the loss of restart {self.number} is not finite at step {self.step}; lower "
                    "learning_rate, or the weight of the penalty"
                )
            self.optimiser.zero_grad()
            total.backward()
            for sae in (self.before, self.after):
                sae.only_turn()
            nn.utils.clip_grad_norm_(self.parameters, _LARGEST_GRADIENT)
            self.optimiser.step()
            for sae in (self.before, self.after):
                sae.normalise()
        now = torch.stack([parts.error_in, parts.error_out, parts.penalty]).detach().double().cpu()
        self.smooth = now if self.smooth is None else self.smooth.lerp(now, _SMOOTH)
        self.step += 1
        if self.step % self.schedule.evaluate_every == 0 or self.done:
            self._record()

    def _next_rows(self) -> tuple[Tensor, Tensor]:
        size = self.schedule.batch_size
        if self.position + size > len(self.train):
            self.order, self.position = torch.randperm(len(self.train)), 0
        index = self.order[self.position : self.position + size].sort().values  # a file is read forwards
        self.position += size
        dec = self.before.dec
        return self.train.rows(index, dec.dtype, str(dec.device))

    def _record(self) -> None:
        assert self.smooth is not None
        dead = [int((sae.rows_since > self.dead_after).sum()) for sae in (self.before, self.after)]
        error_in, error_out, penalty = self.smooth.tolist()
        self.history.append(
            {
                "step": self.step,
                "restart": self.number,
                "fvu_in": error_in,
                "fvu_out": error_out,
                "penalty": penalty,
                "dead_in": dead[0],
                "dead_out": dead[1],
            }
        )

    def finish(self, report: Callable[[Any], None]) -> None:
        """Advance to the end, calling `report` after every step.

        Parameters
        ----------
        report : callable
        """
        while not self.done:
            self.advance()
            report(self)

    # ---- state ---------------------------------------------------------------------------------------------
    def trained(self) -> dict[str, dict[str, Tensor]]:
        """What the two autoencoders have learned."""
        return {
            name: {key: value.detach().cpu().clone() for key, value in sae.state_dict().items()}
            for name, sae in (("before", self.before), ("after", self.after))
        }

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs, as tensors and plain values."""
        return {
            **self.trained(),
            "optimiser": copy.deepcopy(self.optimiser.state_dict()),
            "order": self.order,
            "position": self.position,
            "step": self.step,
            "smooth": self.smooth,
            "history": list(self.history),
            "random": random_state(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Continue from a state.

        Parameters
        ----------
        saved : dict
        """
        self.before.load_state_dict(saved["before"])
        self.after.load_state_dict(saved["after"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.order, self.position, self.step = saved["order"], saved["position"], saved["step"]
        self.smooth, self.history = saved["smooth"], list(saved["history"])
        load_random_state(saved["random"])
