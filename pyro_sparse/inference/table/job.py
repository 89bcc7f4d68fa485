"""The order of events for a table: starts from the data, groups of restarts, a choice; a `Fit`.

`pyro_sparse.fit` comes here with a `FactorModel`. Some rows are held out, every restart is set up from its
own seed and a data-driven start, groups of restarts are trained in one pass (`training/loop.py`), restarts
from sparser axes or better graphs take the places of worse ones, and one is chosen
(`graphs/restart_choice.py`). `result.py` says what the fit is, `fit_settings.py` how it came about, and
`fit_findings.py` what is in doubt.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch

from ..._utils.torch_state import undisturbed
from ..._utils.version import __version__
from ...data.large_table import LargeTable
from ...graphs.restart_choice import chosen_restart, found_factors
from ...posterior.rival_restarts import prescribed_edges
from ..training import checkpoint as files
from ..training.group_draws import GroupDraws
from ..training.interrupt import BRIEF, stopped_between_steps
from ..training.loop import Run, possible_stops, stopped_at
from ..training.parts import renumbered, split
from ..training.ranks import ALONE, Ranks
from ..training.restarts import bent_starts, child_seeds, group_sizes, join, pick, put
from .axis_restarts import axis_start, is_better, replaced_restarts, searches_axes
from .by_rows import judge
from .fit_findings import add_findings
from .fit_settings import restart_settings, training_settings
from .graph_restarts import (
    better_restarts,
    graph_starts,
    schedule_of_best,
    schedule_of_graphs,
    searches_graphs,
)
from .linear_maximum import any_edge_is_possible, has_closed_form_maximum, is_small, put_at_maxima
from .marginal_likelihood import compared_rows
from .result import Fit
from .schedule import LEAST_STEPS
from .sparse_run import SparseRun
from .start import Start, cap_grid, no_start
from .trained_restarts import TrainedRestarts
from .wide_start import start_of

if TYPE_CHECKING:
    from ...data.read import Table
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder
    from .decoder_run import DecoderRun
    from .dependency_schedule import DependencySchedule
    from .graph_restarts import GraphStart
    from .latent_penalty import LatentPenalty
    from .schedule import Schedule

__all__ = ["TableGroup", "TableJob"]

_AXIS_BENT = (False, True)  # of the restarts in sparser axes: a straight and a random-curve one
_SAME_MAXIMUM = 0.1  # nats within which restarts have one graph's maximum, as far as the climb to it tells


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
        self.setup: dict[str, Any] = {
            "n_samples": self.train.total,
            "missing": table.missing,
            "feature_names": table.feature_names,
        }
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
        model = copy.deepcopy(self.model)
        with undisturbed():
            model.setup(n_restarts=1, **self.setup)
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
        model = copy.deepcopy(self.model)
        torch.manual_seed(self.seeds[group.start])
        model.setup(n_restarts=len(group), **self.setup)
        model.to(device=self.device, dtype=self.dtype)
        # the other restarts are set up for their random numbers only: any start does
        starts = [self._start_of(r if restarts is None or r in restarts else restarts.start) for r in group]
        unit = self._begin(model, starts, self.bent[group.start : group.stop])
        if restarts is not None and restarts != group:
            model = pick(model, [r - group.start for r in restarts]).train(model.training)
        return self._run_of(model, unit, schedule or self.schedule, (restarts or group).start)

    def _begin(self, model: FactorModel, starts: list[Start], bent: np.ndarray) -> torch.Tensor:
        """Write starts into a model's restarts; the features' units."""
        unit = torch.as_tensor(self.table.unit(model.likelihood), dtype=self.dtype, device=self.device)
        _start(model, starts, bent, self.table, self.kept, unit)
        return unit

    def _run_of(
        self, model: FactorModel, unit: torch.Tensor, schedule: Schedule | DependencySchedule, first: int
    ) -> Run:
        trainer = self.model.trainer or self.trainer
        run = trainer(model, self.train, self.heldout, schedule, first, self.dependency)
        run.ranks, run.rounded = self.ranks, self.rounded
        run.unit = unit.unsqueeze(-1)
        return run

    def _run_from(
        self, starts: list[Start], bent: np.ndarray, schedule: Schedule | DependencySchedule
    ) -> Run:
        """A run of restarts beside the fit's own, each with its start."""
        model = copy.deepcopy(self.model)
        torch.manual_seed(child_seeds(self.seeds[0], 1)[0])
        model.setup(len(starts), **self.setup)
        model.to(device=self.device, dtype=self.dtype)
        unit = self._begin(model, starts, bent)
        return self._run_of(model, unit, schedule, 0)

    def _run_from_graphs(self, starts: list[GraphStart], schedule: Schedule) -> Run:
        """A run of restarts that begin at graphs, whose edges alone are open."""
        run = self._run_from([start.start for start in starts], np.zeros(len(starts), bool), schedule)
        for restart, start in enumerate(starts):
            edge = torch.as_tensor(start.edges(run.model.n_factors), device=self.device)
            run.model.allowed[restart] = edge
        run.model.project()
        return run

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
        whole = copy.deepcopy(self.model)
        torch.manual_seed(self.seeds[0])
        whole.setup(n_restarts=len(numbers), **self.setup)
        whole.to(device=self.device, dtype=self.dtype)
        join(states, whole)
        whole.kl_weight = 1.0
        whole.eval()
        torch.manual_seed(self.seeds[0])
        maxima = None
        if self.closed_form and not brief:
            maxima = put_at_maxima(cast("SparseDecoder", whole), self.table, self.kept)
        exact = maxima is not None and self.table.mask is None  # `linear_maximum.py` wrote the encoder
        trained = self._judged(whole, history, self.n_factors_init[numbers], self.bent[numbers], brief, exact)
        if maxima is not None:
            trained = trained.at(maxima)
        elif not notes and self.ranks.size == 1 and self.dependency is None:
            trained = self._at_graphs(whole, self._in_sparser_axes(whole, trained))
            try:
                trained = self._with_best_trained_further(whole, trained)
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

    def _judged(
        self,
        model: FactorModel,
        history: list[dict[str, Any]],
        n_factors_init: np.ndarray,
        bent: np.ndarray,
        brief: bool = False,
        exact: bool = False,
    ) -> TrainedRestarts:
        """The restarts of a model, what they are worth, and which is best."""
        train, heldout = judge(model, self.train, self.heldout, self.ranks, brief, exact)
        edges, active = _sizes(model)
        log_likelihood, parameters = None, edges
        if not brief and self.ranks.size == 1:
            compared = compared_rows(model, self.table, np.isfinite(train).all(1))
            if compared is not None:
                log_likelihood, parameters = compared.log_density, edges + compared.correlations
        trained = TrainedRestarts(
            train=train,
            heldout=heldout,
            edges=edges,
            parameters=parameters,
            history=history,
            n_factors_init=n_factors_init,
            bent=bent,
            log_likelihood=log_likelihood,
        )
        return trained._replace(best=self._best_of(trained, active))

    def _best_of(self, trained: TrainedRestarts, active: np.ndarray) -> int:
        """Which restart is best, of which so many factors are in use.

        Restarts with one graph have one maximum: of these the one that is nearest to it.
        """
        n_rows = len(self.table.x)
        if trained.log_likelihood is not None:
            level, bound = trained.level(n_rows), np.nan_to_num(trained.rows.mean(1), nan=-np.inf)
            return int(np.where(level >= level.max() - _SAME_MAXIMUM, bound, -np.inf).argmax())
        return chosen_restart(trained.rows, trained.all_rows, active, trained.edges, n_rows)

    def _in_sparser_axes(self, whole: FactorModel, trained: TrainedRestarts) -> TrainedRestarts:
        """Two more restarts where the best one's axes are not the sparsest; better ones replace the worst."""
        if not searches_axes(whole, self.table, self.schedule):
            return trained
        level = trained.level(len(self.table.x))
        with undisturbed():
            start = axis_start(cast("SparseDecoder", whole), self.table, self.kept, level, trained.best)
            if start is None:
                return trained
            run = self._run_from([start.start] * len(_AXIS_BENT), np.array(_AXIS_BENT), self.schedule)
            if not _finished(run):
                return trained
            torch.manual_seed(self.seeds[0])
            n_factors_init = np.full(len(_AXIS_BENT), start.n_factors)
            new = self._judged(run.model, run.history, n_factors_init, np.array(_AXIS_BENT))
        trained = trained._replace(search=start)
        more = int(new.edges[new.best] - trained.edges[trained.best])
        if not is_better(new.all_rows[new.best], trained.all_rows[trained.best], more):
            return trained
        first = [new.best, *(r for r in range(len(_AXIS_BENT)) if r != new.best)]
        for place, r in zip(replaced_restarts(level, trained.best, len(first)), first, strict=False):
            put(pick(run.model, [r]), whole, place)
            trained = trained.with_restart(place, new, r)
            trained = trained._replace(from_axes=(*trained.from_axes, place))
        return trained._replace(best=trained.from_axes[0])

    def _at_graphs(self, whole: FactorModel, trained: TrainedRestarts) -> TrainedRestarts:
        """Restarts that begin at graphs of a search, in the places of worse ones; then the best of all."""
        if not searches_graphs(whole, self.table, self.requested_schedule):
            return trained
        schedule = schedule_of_graphs(cast("Schedule", self.schedule))
        with undisturbed():
            starts = graph_starts(cast("SparseDecoder", whole), self.table, self.kept)
            if not starts:
                return trained
            run = self._run_from_graphs(starts, schedule)
            if not _finished(run):
                return trained
            torch.manual_seed(self.seeds[0])
            n_factors_init = np.array([start.edge.shape[1] for start in starts])
            new = self._judged(run.model, run.history, n_factors_init, np.zeros(len(starts), bool))
        n_rows = len(self.table.x)
        for place, r in better_restarts(trained.level(n_rows), new.level(n_rows)):
            put(pick(run.model, [r]), whole, place)
            trained = trained.with_restart(place, new, r)._replace(from_graphs=(*trained.from_graphs, place))
        if not trained.from_graphs:
            return trained
        return trained._replace(best=self._best_of(trained, _sizes(whole)[1]))

    def _with_best_trained_further(self, whole: FactorModel, trained: TrainedRestarts) -> TrainedRestarts:
        """The best restart trained further, where all were trained only long enough to be compared.

        As it was, if its held-out ELBO falls or its level does.
        """
        n_more = min(self.requested_schedule.steps - self.schedule.steps, self.schedule.steps)
        if self.closed_form or n_more == 0 or not np.isfinite(trained.train[trained.best]).all():
            return trained
        best, schedule = trained.best, replace(cast("Schedule", self.schedule), steps=n_more)
        with undisturbed():
            torch.manual_seed(child_seeds(self.seeds[0], 1)[0])
            model = cast("SparseDecoder", pick(whole, [best])).train()
            model.allowed &= model.weights != 0
            unit = torch.as_tensor(self.table.unit(model.likelihood), dtype=self.dtype, device=self.device)
            run = self._run_of(model, unit, schedule_of_best(schedule), best)
            if not _finished(run):
                return trained
            torch.manual_seed(self.seeds[0])
            how_it_began = trained.n_factors_init[[best]], trained.bent[[best]]
            new = self._judged(run.model, run.history, *how_it_began)
        n_rows = len(self.table.x)
        level, before = new.level(n_rows)[0], trained.level(n_rows)[best]
        is_worse = new.heldout is not None and not new.heldout.mean() >= trained.rows[best].mean()
        if is_worse or not level >= before - _SAME_MAXIMUM:
            return trained
        put(run.model, whole, best)
        later = [{**row, "step": row["step"] + self.schedule.steps} for row in run.history]
        return trained.with_restart(best, new, 0)._replace(history=[*trained.history, *later])


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


def _start(
    model: FactorModel,
    starts: list[Start],
    bent: np.ndarray,
    table: Table,
    kept: np.ndarray,
    unit: torch.Tensor,
) -> None:
    """Write the guesses, widened to K factors, into a group of restarts."""

    def stack(name: str) -> torch.Tensor:
        arrays = [getattr(s, name) for s in starts]
        wide = [a if a.ndim == 1 else np.pad(a, ((0, 0), (0, model.n_factors - a.shape[1]))) for a in arrays]
        return torch.as_tensor(np.stack(wide)).to(unit)

    intercept = torch.as_tensor(table.intercept(model.likelihood, kept)).to(unit)
    model.start(
        scores=stack("scores"),
        maps=stack("maps"),
        loadings=stack("loadings"),
        intercept=intercept,
        residual_sd=stack("residual_sd").unsqueeze(1),
        bent=torch.as_tensor(bent, device=unit.device),
        unit=unit,
    )


def _finished(run: Run) -> bool:
    """Train to the end, ready to be judged; whether it got there, as one that diverges does not."""
    try:
        run.finish()
    except FloatingPointError:
        return False
    run.model.kl_weight = 1.0
    run.model.eval()
    return True


def _sizes(model: FactorModel) -> tuple[np.ndarray, np.ndarray]:
    """Edges and active factors of each restart."""
    weights = getattr(model, "weights", None)
    if weights is None:
        full = np.full(model.n_restarts, model.n_factors)
        return full * model.n_features, full
    present = (weights != 0).cpu().numpy()
    return present.sum((1, 2)), found_factors(present, prescribed_edges(model))
