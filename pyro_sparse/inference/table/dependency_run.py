"""The run of a `DependencyVAE`: SOAP on the dense program, the fold onto sparse axes, the sparse program.

At the fold every restart gets axes of its own and its decoder is cut to the edges it may have; at the end the
strengths are read once more and the mask becomes the graph, unless what is cut then was needed: nothing is
trained any more that could take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..._utils.torch_state import undisturbed
from ...likelihoods import Normal
from ...models.dependency import DependencyVAE
from ..rotation._strength_mixture import edge_probability
from ..training.elbo import rowwise_elbo
from ..training.soap import SOAP
from .decoder_axes import MOST_ROWS, decoder_axes, strengths
from .decoder_run import DecoderRun
from .dependency_schedule import MAY_BE, MOST_MOVE, DependencySchedule
from .folded import skewness
from .unfold import unfold

if TYPE_CHECKING:
    from ...data.read import Batch

__all__ = ["DependencyRun"]


class DependencyRun(DecoderRun[DependencyVAE, DependencySchedule]):
    """A `Run` of a `DependencyVAE`.

    Parameters
    ----------
    model : DependencyVAE
        Set up and started.
    train, heldout : Batch
        Rows to learn from, and held-out rows (None: none).
    schedule : DependencySchedule
    first_restart : int
        Number of the group's first restart, for the history.
    dependency : LatentPenalty, optional
        What is added to the negative ELBO of a row.
    """

    def _optimiser(self) -> torch.optim.Optimizer:
        return SOAP(self.model.parameters(), lr=self.schedule.learning_rate, most=MOST_MOVE)

    def _n_edges(self) -> list[int]:
        return self.model.decoder.mask.sum((1, 2)).int().tolist()

    def _after_step(self, batch: Batch, rate: float) -> None:
        done = self.step + 1
        if done == self.schedule.unfold_step and isinstance(self.model.likelihood, Normal):
            unfold(self.model, self.train, self.first_restart)
        if done == self.schedule.axes_step:
            self._fold()
            if done < self.schedule.steps:
                self._cut(MAY_BE)
                self.optimiser = self._optimiser()
        if done == self.schedule.steps:
            self._end()

    def _record(self) -> None:
        super()._record()
        if self.done and self.step < self.schedule.steps:  # out of patience
            self._end()

    def ended(self) -> dict[str, Tensor]:
        """The model's state if the run were to stop here; the run itself goes on unchanged."""
        if self.done:
            return super().ended()
        before = super().ended()
        with undisturbed(threads=None):
            self._end()
        state = super().ended()
        self.model.load_state_dict(before)
        return state

    def _end(self) -> None:
        self._finish()
        self._look()

    @torch.no_grad()
    def _fold(self) -> None:
        like = self.model.strength
        axes = decoder_axes(self.model, self.train)
        self.model.turn(torch.stack([torch.as_tensor(a.map).to(like) for a in axes]))

    @torch.no_grad()
    def _finish(self) -> None:
        """Cut what is less probable than not, in the restarts that explain rows as well without it.

        Worse is a mean over rows more than a standard error lower.
        """
        mask = self.model.decoder.mask
        before, trained = self._by_row(), mask.clone()
        self._cut(0.5 if self.schedule.axes_step else 0.0)
        if torch.equal(mask, trained):
            return
        loss = before - self._by_row()
        needed = loss.mean(-1) > loss.std(-1) / len(loss[0]) ** 0.5
        mask.copy_(torch.where(needed[:, None, None], trained, mask))

    def _by_row(self) -> Tensor:
        """ELBO of each row, (restart, row): of held-out ones, or, fewer than two, of some learned from."""
        rows = self.heldout
        if rows is None or len(rows) < 2:  # of one there is no standard error
            some = torch.arange(min(self.train.total, MOST_ROWS), device=self.train.x.device)
            rows = self.train.rows(some)
        with undisturbed(seed=0, threads=None):
            return rowwise_elbo(self.model, rows, num_draws=4, ranks=self.ranks)

    @torch.no_grad()
    def _look(self) -> None:
        """Note how lopsided the factors are."""
        location, _ = self.model.encode(self.train)
        self.model.skewness.copy_(skewness(location))

    @torch.no_grad()
    def _cut(self, least: float) -> None:
        """Keep the edges of at least this probability, and of each feature the strongest.

        An edge cut earlier is judged by the strength it had then.
        """
        mask, recorded = self.model.decoder.mask, self.model.strength
        strength = torch.where(mask == 1, strengths(self.model, self.train).to(recorded), recorded)
        probability = np.stack([edge_probability(s) for s in strength.cpu().numpy()])
        strongest = strength == strength.amax(-1, keepdim=True)
        recorded.copy_(strength)
        mask.mul_((torch.as_tensor(probability).to(strength) >= least) | strongest)
