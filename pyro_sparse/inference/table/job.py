"""The order of events for a table: starts from the data, groups of restarts, a choice; a `Fit`.

`pyro_sparse.fit` comes here with a `FactorModel`. Some rows are held out, every restart is set up from its
own seed and a data-driven start (`restart_runs.py`), groups of restarts are trained in one pass
(`training/loop.py`), restarts from sparser axes or better graphs take the places of worse ones, and one is
chosen (`further_restarts.py`). `result.py` says what the fit is, `fit_settings.py` how it came about, and
`fit_findings.py` what is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch

from ..._utils.torch_state import undisturbed
from ..._utils.version import __version__
from ...data.large_table import LargeTable
from ..training import checkpoint as files
from ..training.group_draws import GroupDraws
from ..training.interrupt import BRIEF, stopped_between_steps
from ..training.loop import Run, possible_stops, stopped_at
from ..training.parts import renumbered, split
from ..training.ranks import ALONE, Ranks
from ..training.restarts import bent_starts, child_seeds, group_sizes, join, pick
from .fit_findings import add_findings
from .fit_settings import restart_settings, training_settings
from .further_restarts import at_graphs, in_sparser_axes, judged, with_best_trained_further
from .graph_restarts import searches_graphs
from .linear_maximum import any_edge_is_possible, has_closed_form_maximum, is_small, put_at_maxima
from .restart_runs import RestartRuns
from .result import Fit
from .schedule import LEAST_STEPS
from .sparse_run import SparseRun
from .start import Start, cap_grid, no_start
from .wide_start import start_of

if TYPE_CHECKING:
    from ...data.read import Table
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder
    from .decoder_run import DecoderRun
    from .dependency_schedule import DependencySchedule
    from .latent_penalty import LatentPenalty
    from .schedule import Schedule

__all__ = ["TableGroup", "TableJob"]


class TableJob:
    """The fit of a table: what all its restarts share, what trains some of them, the `Fit` of those trained.

    Parameters
    ----------
    model : FactorModel
    table : Table
    restarts, seed, schedule, holdout, n_factors_init, dependency, device, dtype
        As in `pyro_sparse.fit`.
    ranks : Ranks
        Processes that share the rows of each minibatch.

    Attributes
    ----------
    n_restarts : int
    sizes : list of int
        How many restarts share each pass.
    requested_schedule, schedule : Schedule or DependencySchedule
        As in `pyro_sparse.fit`, and that of restarts, which may be shorter.
    fingerprint : str
        What must agree for a file with restarts to belong to this fit.

    Raises
    ------
    ValueError
        The table does not fit the model, or leaves too little to learn from.
    """

    trainer: type[DecoderRun] = SparseRun  # unless the model brings its own (`FactorModel.trainer`)
    dense = False  # whether every restart begins with all factors, each of which needs others to confirm it

    def __init__(
        self,
        model: FactorModel,
        table: Table,
        *,
        restarts: int,
        seed: int,
        schedule: Schedule | DependencySchedule,
        holdout: float = 0.1,
        n_factors_init: Sequence[int] | None = None,
        dependency: LatentPenalty | None = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        ranks: Ranks = ALONE,
    ):
        if table.x.shape[1] != model.n_features:
            raise ValueError(
                f"X: has {table.x.shape[1]} column(s), the model was made for "
                f"n_features={model.n_features}; make the model for this table"
            )
        self.model, self.table, self.n_restarts = model, table, restarts
        self.rounded = dtype == torch.bfloat16  # the steps; all else is in single precision
        dtype = torch.float32 if self.rounded else dtype
        self.dependency, self.device, self.dtype, self.ranks = dependency, device, dtype, ranks
        n_rows = len(table.x)
        n_heldout = min(int(round(holdout * n_rows)), table.most_judged)
        heldout = np.sort(np.random.default_rng(seed).permutation(n_rows)[:n_heldout])
        if table.mask is not None:  # a column seen in held-out rows only could not be learned
            lost = ~np.delete(table.mask, heldout, 0).any(0)
            heldout = heldout[~table.mask[heldout][:, lost].any(1)]
        self.kept = np.setdiff1d(np.arange(n_rows), heldout)
        if len(self.kept) < 5:
            raise ValueError(
                f"holdout: {holdout!r} of {n_rows} rows leaves {len(self.kept)} to learn from, wanted at "
                "least 5; lower it"
            )
        self.train = table.part(self.kept, device, dtype)
        self.heldout = table.rows(heldout).batch(device, dtype) if len(heldout) else None
        if n_factors_init is not None:
            self.n_factors_init = np.asarray(n_factors_init)
        elif self.dense:
            self.n_factors_init = np.full(restarts, model.n_factors)
        else:
            self.n_factors_init = cap_grid(model.n_factors, restarts)
        self.bent = bent_starts(self.n_factors_init)
        self.seeds = child_seeds(seed, restarts)
        copies = 1 if dependency is None else dependency.copies(model.n_factors)
        self.sizes = group_sizes(model, restarts, schedule.batch_size * copies)
        self.runs = RestartRuns(
            model=model,
            table=table,
            kept=self.kept,
            learned=self.train,
            heldout=self.heldout,
            trainer=model.trainer or self.trainer,
            dependency=dependency,
            device=device,
            dtype=dtype,
            rounded=self.rounded,
            ranks=ranks,
            seed=self.seeds[0],
        )
        self.requested_schedule = schedule
        self.closed_form, self.schedule = self._schedule_of_restarts(schedule)
        self.n_steps = self.schedule.steps * len(self.sizes)
        self._starts: dict[tuple[int, str], Start] = {}
        self.record = training_settings(
            table, seed=seed, holdout=holdout, dependency=dependency, ranks=ranks, schedule=schedule
        )
        self.fingerprint = files.fingerprint(
            model,
            {
                "seed": seed,
                "restarts": restarts,
                "n_factors_init": self.n_factors_init.tolist(),
                "groups": self.sizes,
                "holdout": holdout,
                "dtype": "bfloat16" if self.rounded else str(dtype),
                "rows": n_rows,
                "data": files.digest(*table.content()),
                "made": files.made(model),
                "version": __version__,
                **({} if dependency is None else {"dependency": dependency.as_dict()}),
                **schedule.as_dict(),
                "steps_of_restarts": self.schedule.steps,  # several ranks make all
            },
        )

    def _schedule_of_restarts(
        self, schedule: Schedule | DependencySchedule
    ) -> tuple[bool, Schedule | DependencySchedule]:
        """Whether restarts are put at the maxima of their graphs, and a schedule that leads far enough."""
        is_linear = getattr(self.model, "decoder_kind", "") == "linear"
        if self.dependency is not None or not is_linear or isinstance(self.table, LargeTable):
            return False, schedule
        with undisturbed():
            model = self.runs.set_up(1)
        if self.ranks.size == 1 and searches_graphs(model, self.table, schedule):
            return False, cast("Schedule", schedule).to_compare()
        if not is_small(self.table) or not has_closed_form_maximum(model, self.table, schedule):
            return False, schedule
        graphs_are_searched = any_edge_is_possible(cast("SparseDecoder", model))
        return True, cast("Schedule", schedule).to_graphs() if graphs_are_searched else schedule

    # ---- training ------------------------------------------------------------------------------------------
    def groups(self) -> list[range]:
        """The restarts that share each pass."""
        ends = np.cumsum(self.sizes).tolist()
        return [range(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def make(self, group: range) -> TableGroup:
        """A group at its start."""
        return TableGroup(self.run(group), group, self.ranks)

    def status(self, run: Run) -> str:
        """What the bar says of a run: its best restart."""
        top = max(run.history[-run.model.n_restarts :], key=lambda row: row["elbo"])
        return f"ELBO {top['elbo']:.3f} nats/row, {top['edges']} edges"

    def conclude(self, trained: list[TableGroup], notes: list[str]) -> Fit:
        """The fit of trained groups."""
        return self.result(
            [group.run.model.state_dict() for group in trained],
            [row for group in trained for row in group.run.history],
            [r for group in trained for r in group.restarts],
            notes,
        )

    def pieces(self, n_jobs: int) -> list[range]:
        """Restarts to train in each of so many processes.

        The draws of a penalty can be told apart only for one restart alone. And SOAP turns rounding into
        differences that show: of single restarts the parts agree to the bit, however many processes there
        are.
        """
        alone = self.dense or self.dependency is not None or self.model.total_correlation
        return split(self.groups(), self.n_restarts if alone else n_jobs)

    def run(
        self,
        group: range,
        restarts: range | None = None,
        schedule: Schedule | DependencySchedule | None = None,
    ) -> Run:
        """A run at its start, of a group or of those of its restarts that are in `restarts`."""
        torch.manual_seed(self.seeds[group.start])
        model = self.runs.set_up(len(group))
        # the other restarts are set up for their random numbers only: any start does
        starts = [self._start_of(r if restarts is None or r in restarts else restarts.start) for r in group]
        self.runs.begin(model, starts, self.bent[group.start : group.stop])
        if restarts is not None and restarts != group:
            model = pick(model, [r - group.start for r in restarts]).train(model.training)
        return self.runs.run(model, schedule or self.schedule, (restarts or group).start)

    def _start_of(self, restart: int) -> Start:
        cap, bent = int(self.n_factors_init[restart]), bool(self.bent[restart])
        cap_and_kind = (cap, "principal" if bent else "oblique")
        if cap_and_kind not in self._starts:
            self._starts[cap_and_kind] = (
                start_of(self.table, self.kept, *cap_and_kind)
                if self.model.data_start
                else no_start(*self.train.x.shape)
            )
        return self._starts[cap_and_kind]

    def part(self, restarts: range) -> dict[str, Any]:
        """Train restarts of one group by themselves, as they are trained in its pass: up to rounding.

        The group stops when its best restart has stopped improving. A part does not know the others, so it
        goes to the end and keeps the states at all steps where that may have been.
        """
        group = next(group for group in self.groups() if restarts.start in group)
        states: dict[int, dict[str, torch.Tensor]] = {}

        def keep(run: Run) -> None:
            if run.step in stops:
                states[run.step] = run.ended()

        stops = [] if self.heldout is None else possible_stops(self.schedule)
        run = self.run(group, restarts, replace(self.schedule, patience=None))
        with GroupDraws([r - group.start for r in restarts], len(group)):
            run.finish(keep)
        states[run.step] = run.model.state_dict()
        return {"restarts": list(restarts), "states": states, "history": run.history}

    # ---- what was found ------------------------------------------------------------------------------------
    def merge(self, trained_parts: list[dict[str, Any]], notes: list[str]) -> Fit:
        """The fit of restarts that were trained in parts, in the order of their numbers."""
        states: list[dict[str, torch.Tensor]] = []
        history: list[dict[str, Any]] = []
        numbers: list[int] = []
        for group in self.groups():
            of_group = [
                trained_part for trained_part in trained_parts if trained_part["restarts"][0] in group
            ]
            rows = [row for trained_part in of_group for row in trained_part["history"]]
            last = stopped_at(rows, self.schedule) if self.heldout is not None else self.schedule.steps
            states += [trained_part["states"][last] for trained_part in of_group]
            numbers += [r for trained_part in of_group for r in trained_part["restarts"]]
            history += sorted((row for row in rows if row["step"] <= last), key=lambda row: row["step"])
        return self.result(states, renumbered(history, numbers), numbers, notes)

    def result(
        self,
        states: list[dict[str, torch.Tensor]],
        history: list[dict[str, Any]],
        numbers: list[int],
        notes: list[str],
    ) -> Fit:
        """The `Fit` of trained restarts.

        Parameters
        ----------
        states : list of dict of str to Tensor
            Of the groups, or parts of groups, in order.
        history : list of dict
        numbers : list of int
            Which restarts they hold.
        notes : list of str
            Of an interruption, or of restarts that were not merged. No further restarts are tried then.
        """
        try:
            return self._result(states, history, numbers, notes)
        except KeyboardInterrupt:
            if self.ranks.size > 1:  # the others go on
                raise
        note = (
            "interrupted when the trained restarts were judged: their ELBOs are of "
            f"{BRIEF} rows at most, not refined"
        )
        return self._result(states, history, numbers, [*notes, note], brief=True)

    def _result(
        self,
        states: list[dict[str, torch.Tensor]],
        history: list[dict[str, Any]],
        numbers: list[int],
        notes: list[str],
        brief: bool = False,
    ) -> Fit:
        torch.manual_seed(self.seeds[0])
        whole = self.runs.set_up(len(numbers))
        join(states, whole)
        whole.kl_weight = 1.0
        whole.eval()
        torch.manual_seed(self.seeds[0])
        maxima = None
        if self.closed_form and not brief:
            maxima = put_at_maxima(cast("SparseDecoder", whole), self.table, self.kept)
        exact = maxima is not None and self.table.mask is None  # `linear_maximum.py` wrote the encoder
        began = self.n_factors_init[numbers], self.bent[numbers]
        trained = judged(self.runs, whole, history, *began, brief, exact)
        if maxima is not None:
            trained = trained.at(maxima)
        elif not notes and self.ranks.size == 1 and self.dependency is None:
            schedules = self.requested_schedule, self.schedule
            trained = in_sparser_axes(self.runs, whole, trained, self.schedule)
            trained = at_graphs(self.runs, whole, trained, *schedules)
            try:
                trained = with_best_trained_further(self.runs, whole, trained, *schedules)
            except KeyboardInterrupt:
                notes = ["interrupted when the best restart was trained further: it is as the others are"]
        columns = ["step", "restart", "elbo", "heldout_elbo", "edges", "stage"]
        columns += ["closed_form"] * any("closed_form" in row for row in trained.history)
        fit = Fit.build(
            whole,
            self.table,
            train=self.train,
            best=trained.best,
            elbo=trained.train.mean(1),
            heldout_elbo=(
                np.full(len(numbers), np.nan) if trained.heldout is None else trained.heldout.mean(1)
            ),
            history=pd.DataFrame(trained.history, columns=columns),
            settings={
                **restart_settings(whole, trained, maxima),
                "device": self.device,
                "dtype": "bfloat16" if self.rounded else str(self.dtype).removeprefix("torch."),
                **self.record,
            },
            findings=[],
        )
        add_findings(
            fit,
            trained,
            maxima,
            notes=notes,
            learned=self.train,
            kept=self.kept,
            is_complete=not notes and self.requested_schedule.steps >= LEAST_STEPS,
            is_dense=self.dense,
            is_penalised=self.dependency is not None,
        )
        return fit


class TableGroup:
    """Restarts of one pass. A pass is worth a look at any step, and nothing follows it."""

    is_early = False

    def __init__(self, run: Run, restarts: range, ranks: Ranks):
        self.run, self.restarts, self.ranks = run, restarts, ranks

    @property
    def step(self) -> int:
        """Steps that it has made."""
        return self.run.step

    @property
    def place(self) -> str:
        """Where it is."""
        first, last = self.restarts.start, self.restarts.stop - 1
        return f"at step {self.run.step} of {self.run.schedule.steps} (restarts {first} to {last})"

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        self.run.load(saved)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return self.run.state()

    def finish(self, show: Callable[[Run], None]) -> None:
        """Train to the end."""
        self.ranks.level(self.run.model)
        with stopped_between_steps(show) as between:
            self.run.finish(between)

    def conclude(self, notes: list[str], alone: bool, show: Callable[[Run], None]) -> bool:
        """Nothing follows."""
        return True
