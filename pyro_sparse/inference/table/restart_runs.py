"""Runs of restarts at their start: models set up, starts written into them, and what trains them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..training.restarts import child_seeds

if TYPE_CHECKING:
    from ...data.read import Batch, Table
    from ...models.base import FactorModel
    from ..training.loop import Run
    from ..training.ranks import Ranks
    from .decoder_run import DecoderRun
    from .dependency_schedule import DependencySchedule
    from .latent_penalty import LatentPenalty
    from .schedule import Schedule
    from .start import Start

__all__ = ["RestartRuns", "finished"]


@dataclass(frozen=True, eq=False)
class RestartRuns:
    """What all runs of a table's fit share.

    Attributes
    ----------
    model : FactorModel
        Not set up; each run has a copy.
    table : Table
    kept : ndarray of int
        Rows to learn from.
    learned, heldout : Batch
        These rows, and those that are held out (None: none).
    trainer : type of DecoderRun
    dependency : LatentPenalty or None
    device : str
    dtype : torch.dtype
        Of parameters.
    rounded : bool
        Whether steps are in bfloat16.
    ranks : Ranks
    seed : int
        Of restarts beside the fit's own.
    """

    model: FactorModel
    table: Table
    kept: NDArray[np.intp]
    learned: Batch
    heldout: Batch | None
    trainer: type[DecoderRun]
    dependency: LatentPenalty | None
    device: str
    dtype: torch.dtype
    rounded: bool
    ranks: Ranks
    seed: int

    @property
    def setup(self) -> dict[str, Any]:
        """Arguments of a model's `setup`, but for its number of restarts."""
        return {
            "n_samples": self.learned.total,
            "missing": self.table.missing,
            "feature_names": self.table.feature_names,
        }

    def set_up(self, n_restarts: int) -> FactorModel:
        """A copy of the model with so many restarts, from torch's present random numbers."""
        model = copy.deepcopy(self.model)
        model.setup(n_restarts=n_restarts, **self.setup)
        return model.to(device=self.device, dtype=self.dtype)

    def begin(self, model: FactorModel, starts: list[Start], bent: NDArray[np.bool_]) -> None:
        """Write starts, widened to K factors, into a model's restarts."""

        def stack(name: str) -> torch.Tensor:
            arrays = [getattr(start, name) for start in starts]
            wide = [
                a if a.ndim == 1 else np.pad(a, ((0, 0), (0, model.n_factors - a.shape[1]))) for a in arrays
            ]
            return torch.as_tensor(np.stack(wide)).to(unit)

        unit = self._unit(model)
        intercept = torch.as_tensor(self.table.intercept(model.likelihood, self.kept)).to(unit)
        model.start(
            scores=stack("scores"),
            maps=stack("maps"),
            loadings=stack("loadings"),
            intercept=intercept,
            residual_sd=stack("residual_sd").unsqueeze(1),
            bent=torch.as_tensor(bent, device=unit.device),
            unit=unit,
        )

    def run(self, model: FactorModel, schedule: Schedule | DependencySchedule, first: int = 0) -> Run:
        """What trains a model's restarts, the first of which has this number."""
        run = self.trainer(model, self.learned, self.heldout, schedule, first, self.dependency)
        run.ranks, run.rounded = self.ranks, self.rounded
        run.unit = self._unit(model).unsqueeze(-1)
        return run

    def beside(
        self, starts: list[Start], bent: NDArray[np.bool_], schedule: Schedule | DependencySchedule
    ) -> Run:
        """A run of restarts that the fit did not begin with, each at its start."""
        self.seed_beside()
        model = self.set_up(len(starts))
        self.begin(model, starts, bent)
        return self.run(model, schedule)

    def seed_beside(self) -> None:
        """Put torch's random numbers where those of restarts beside the fit's own begin."""
        torch.manual_seed(child_seeds(self.seed, 1)[0])

    def _unit(self, model: FactorModel) -> torch.Tensor:
        return torch.as_tensor(self.table.unit(model.likelihood), dtype=self.dtype, device=self.device)


def finished(run: Run) -> bool:
    """Train to the end, ready to be judged; whether it got there, as one that diverges does not."""
    try:
        run.finish()
    except FloatingPointError:
        return False
    run.model.kl_weight = 1.0
    run.model.eval()
    return True
