"""What the runs of all decoders share: penalties on the use of the latents, beside the ELBO.

They are the caller's (`latent_penalty.py`) and the model's own total correlation, taken of the draw and the
decoding that the ELBO made, so neither is made twice, and no reported ELBO contains them. `sparse_run.py` and
`dependency_run.py` say the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from torch import Tensor

from ...data.read import Batch
from ..training.loop import Plan, Run
from .latent_penalty import LatentPenalty, taken

if TYPE_CHECKING:
    from ...models.base import FactorModel

__all__ = ["DecoderRun", "decodings"]

ModelT = TypeVar("ModelT", bound="FactorModel")
PlanT = TypeVar("PlanT", bound=Plan)


class DecoderRun(Run[ModelT, Batch, PlanT], Generic[ModelT, PlanT]):
    """A `Run` of a `FactorModel`.

    Parameters
    ----------
    model : FactorModel
        Set up and started.
    train, heldout : Batch
        Rows to learn from, and held-out rows (None: none).
    schedule : Schedule or DependencySchedule
    first_restart : int
        Number of the group's first restart, for the history.
    dependency : LatentPenalty, optional
        What is added to the negative ELBO of a row.
    """

    unit: Tensor | float = 1.0  # standard deviation of each feature in the model's units, (feature, 1)
    rounded = False  # whether the steps of a sparse MLP decoder keep its hidden units as bfloat16

    def __init__(
        self,
        model: ModelT,
        train: Batch,
        heldout: Batch | None,
        schedule: PlanT,
        first_restart: int = 0,
        dependency: LatentPenalty | None = None,
    ):
        self.dependency = dependency
        self.decoded: list[Decoding] = []
        super().__init__(model, train, heldout, schedule, first_restart)

    def _shuffled(self) -> Tensor:
        return self.train.shuffled()

    def _dependency_weight(self) -> float:
        return 0.0 if self.dependency is None else self.dependency.weight_at(self.step / self.schedule.steps)

    def _bound(self, batch: Batch) -> Tensor:
        if not (self._dependency_weight() or self.model.total_correlation):
            return super()._bound(batch)
        with decodings(self.model) as self.decoded:
            return super()._bound(batch)

    def _extra_loss(self) -> Tensor | float:
        if not self.decoded:
            return 0.0
        decode, z, x_hat = self.decoded.pop()
        loss: Tensor | float = 0.0
        if weight := self._dependency_weight():
            assert self.dependency is not None
            loss = weight * taken(self.dependency, decode, z, x_hat).sum()
        return loss + self.model.latent_loss(z).sum() if self.model.total_correlation else loss


Decoding = tuple[Callable[[Tensor], Tensor], Tensor, Tensor]


@contextmanager
def decodings(model: FactorModel) -> Iterator[list[Decoding]]:
    """What the model decodes meanwhile: the decoder as a function of latents alone, latents, and its answer.

    Parameters
    ----------
    model : FactorModel
    """
    decoded: list[Decoding] = []
    decode = model.decode

    def noted(z: Tensor, weights: Tensor | None) -> Tensor:
        answer = decode(z, weights)
        decoded.append((lambda latents: decode(latents, weights), z, answer))
        return answer

    chunked = getattr(model, "chunked", False)
    noting = cast(Any, model)  # whose method is replaced in this instance alone
    noting.decode, noting.chunked = noted, False  # what is penalised is differentiated twice
    try:
        yield decoded
    finally:
        del model.decode
        noting.chunked = chunked
