"""The fit of a program: restarts that climb to modes in one pass.

They are compared by their density with the latent rows integrated out. A restart is a chain whose spikes
begin wide and whose blocks make Newton steps with noise (`sweeps.py`): it finds axes and graph at once, where
descent of a variational bound keeps the axes it began in. The fit is the mean over the sweeps after the
climb.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_map_only

from ..._utils.torch_state import load_random_state, random_state
from ..._utils.version import __version__
from ...findings.finding import Finding
from ...graphs.alignment import align, apply_alignment
from ..training import checkpoint as files
from ..training.interrupt import stopped_between_steps
from ..training.ranks import ALONE
from .predictive import compared_with_prior
from .recorded import Position, RecordedDensity
from .result import ProgramFit
from .saved import mark_of
from .schedule import ProgramSchedule
from .starts import starts_of
from .sweeps import ProgramChains
from .unread import unread_data

if TYPE_CHECKING:
    from ...programs.data import Data
    from ...programs.program import Program
    from ..training.loop import Run

__all__ = ["ProgramGroup", "ProgramJob"]

_ONE_PASS = "n_jobs: the restarts of a program share one pass in one process; leave it out"
_PRESENT = 0.5  # probability from which the history counts an edge
_CLIMB = 0.75  # of a restart's sweeps; in the others every step has the posterior as its target


class ProgramJob:
    """The fit of a program.

    Parameters
    ----------
    model : Program
    data : Data
    restarts, seed, schedule, device
        As in `pyro_sparse.fit`.
    holdout, dtype
        Not read: chains draw the factors of all rows, and sum densities in double precision.
    """

    def __init__(
        self,
        model: Program,
        data: Data,
        *,
        restarts: int = 8,
        seed: int = 0,
        schedule: ProgramSchedule | None = None,
        device: str = "cpu",
        holdout: float = 0.0,
        dtype: torch.dtype = torch.float64,
    ):
        self.model, self.data, self.n_restarts, self.seed, self.device = model, data, restarts, seed, device
        self.schedule = schedule or ProgramSchedule()
        self.n_steps = self.schedule.sweeps
        self.ranks = ALONE
        self.density = RecordedDensity(model, data, restarts, seed=seed, device=device)
        self.settings = {
            "model": repr(model),
            "seed": seed,
            "restarts": restarts,
            "device": device,
            **self.schedule.as_dict(),
        }

    @cached_property
    def fingerprint(self) -> str:
        """What must agree for a file to belong to this fit."""
        tables = [self.data.x, self.data.seen, *self.data.rows.values(), *self.data.features.values()]
        mark = mark_of(self.model, self.density.layout)
        return json.dumps(
            {**self.settings, **mark, "data": files.digest(*tables), "version": __version__}, sort_keys=True
        )

    def groups(self) -> list[range]:
        """All restarts share each pass."""
        return [range(self.n_restarts)]

    def make(self, group: range) -> ProgramGroup:
        """All restarts at their starts."""
        assert len(group) == self.n_restarts
        return ProgramGroup(self)

    def status(self, run: Run | ProgramGroup) -> str:
        """What the bar says."""
        rows = run.history[-self.n_restarts :]
        best = max(rows, key=lambda row: row["log_marginal"])
        return f"log marginal {best['log_marginal']:.1f}, {best['edges']} edges"

    def conclude(self, trained: list[ProgramGroup], notes: list[str]) -> ProgramFit:
        """The fit of trained restarts."""
        [group] = trained
        summary = group.summary()
        fit = ProgramFit.build(
            self.model, self.data, self.density.layout, group.site, summary,
            history=pd.DataFrame(group.history), settings=self.settings,
            findings=[Finding("training", note) for note in notes],
        )  # fmt: skip
        values = fit.values()
        estimates = {site.name: values[site.name].to(self.device) for site in fit.layout.parameters}
        fit.findings += [
            *unread_data(self.density),
            *compared_with_prior(
                self.model, self.data, fit.factor_names, estimates, seed=self.seed, device=self.device
            ),
        ]
        return fit

    def pieces(self, n_jobs: int) -> list[range]:
        """None: restarts share one pass, in one process."""
        raise ValueError(_ONE_PASS)

    def part(self, restarts: range) -> dict[str, Any]:
        """None, as `pieces`."""
        raise ValueError(_ONE_PASS)

    def merge(self, trained_parts: list[dict[str, Any]], notes: list[str]) -> ProgramFit:
        """None, as `pieces`."""
        raise ValueError(_ONE_PASS)


class Summary(NamedTuple):
    """What the later sweeps of all restarts were, restart first.

    Attributes
    ----------
    weight, prob : ndarray (restart, feature, factor)
    log_marginal : ndarray (restart,)
    position : dict of Tensor
        The last one, on the processor.
    """

    weight: NDArray[np.float64]
    prob: NDArray[np.float64]
    log_marginal: NDArray[np.float64]
    position: Position


class ProgramGroup:
    """All restarts under way.

    Parameters
    ----------
    job : ProgramJob
    """

    def __init__(self, job: ProgramJob):
        self.job, self.schedule, self.history = job, job.schedule, list[dict[str, Any]]()
        density = job.density
        self.site = density.layout.edges[0].name
        torch.manual_seed(job.seed)
        started = starts_of(density.layout, density.start, job.data.x, job.data.seen, job.seed)
        sweeps = self.schedule.sweeps
        self.chains = ProgramChains(density, started, sweeps, climbing=int(_CLIMB * sweeps), reorients=False)
        self.kept: list[tuple[Any, Any, Any]] = []
        self.random = random_state()

    @property
    def step(self) -> int:
        """Sweeps made."""
        return self.chains.done

    @property
    def done(self) -> bool:
        """Whether all are made."""
        return self.step >= self.schedule.sweeps

    @property
    def is_early(self) -> bool:
        """Whether no sweep counts yet."""
        return not self.kept

    @property
    def place(self) -> str:
        """Where it is."""
        return f"at sweep {self.step} of {self.schedule.sweeps}"

    def state(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {
            "chains": self.chains.state(), "kept": self.kept, "history": self.history,
            "random": random_state(),
        }  # fmt: skip

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        chains, self.kept = tree_map_only(  # files are read to the processor
            torch.Tensor, lambda value: value.to(self.job.device), (saved["chains"], saved["kept"])
        )
        self.chains.load(chains)
        self.history, self.random = saved["history"], saved["random"]

    def finish(self, show: Callable[[Any], None]) -> None:
        """Sweep to the end."""
        load_random_state(self.random)
        with stopped_between_steps(show) as between:
            while not self.done:
                self._advance()
                between(self)

    def _advance(self) -> None:
        self.chains.sweep()
        later = self.step > self.chains.climbing
        looks = self.step % self.schedule.evaluate_every == 0 or self.done
        if not (later or looks):
            return
        weight, prob = self.chains.edges()[self.site]
        level = self.chains.log_marginal()
        if later:
            self.kept.append((weight, prob, level))
        if looks:
            edges = (prob > _PRESENT).sum((1, 2)).tolist()
            self.history += [
                {"step": self.step, "restart": r, "log_marginal": value, "edges": edges[r]}
                for r, value in enumerate(level.tolist())
            ]

    def conclude(self, notes: list[str], alone: bool, show: Callable[[Any], None]) -> bool:
        """Nothing follows the sweeps."""
        return True

    def summary(self) -> Summary:
        """Means over the sweeps that count, a restart's factors in the order and signs of its last sweep."""
        weight, prob, level = (torch.stack(values).cpu().numpy() for values in zip(*self.kept, strict=True))
        if self.job.density.layout.has_axes:
            weight, prob = _in_own_frame(weight, prob)
        position = {name: value.cpu() for name, value in self.chains.position.items()}
        return Summary(weight.mean(0), prob.mean(0), level.mean(0), position)


def _in_own_frame(
    weight: NDArray[np.float64], prob: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draws (sweep, restart, feature, factor), aligned to the last of each restart."""
    weight, prob = weight.copy(), prob.copy()
    for r in range(weight.shape[1]):
        alignment = align(weight[:, r], pivot=weight[-1, r])
        weight[:, r] = apply_alignment(weight[:, r], alignment)
        prob[:, r] = apply_alignment(prob[:, r], alignment, signed=False)
    return weight, prob
