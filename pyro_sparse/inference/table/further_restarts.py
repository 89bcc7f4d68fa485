"""What trained restarts are worth, which is best, and further ones that may take their places.

After training, restarts are compared (`by_rows.py`, `marginal_likelihood.py`). Two more begin in sparser axes
(`axis_restarts.py`), or up to four at graphs of a search (`graph_restarts.py`); better ones take the places
of the worst. Where all were trained only long enough to be compared, the best one is trained further.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ..._utils.torch_state import undisturbed
from ...graphs.restart_choice import chosen_restart, found_factors
from ...posterior.rival_restarts import prescribed_edges
from ..training.restarts import pick, put
from .axis_restarts import axis_start, is_better, replaced_restarts, searches_axes
from .by_rows import judge
from .graph_restarts import (
    better_restarts,
    graph_starts,
    schedule_of_best,
    schedule_of_graphs,
    searches_graphs,
)
from .marginal_likelihood import compared_rows
from .restart_runs import RestartRuns, finished
from .trained_restarts import TrainedRestarts

if TYPE_CHECKING:
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder
    from .dependency_schedule import DependencySchedule
    from .schedule import Schedule

__all__ = ["at_graphs", "in_sparser_axes", "judged", "with_best_trained_further"]

_AXIS_BENT = (False, True)  # of the restarts in sparser axes: a straight and a random-curve one
_SAME_MAXIMUM = 0.1  # nats within which restarts have one graph's maximum, as far as the climb to it tells


def judged(
    runs: RestartRuns,
    model: FactorModel,
    history: list[dict[str, Any]],
    n_factors_init: np.ndarray,
    bent: np.ndarray,
    brief: bool = False,
    exact: bool = False,
) -> TrainedRestarts:
    """The restarts of a model, what they are worth, and which is best.

    Parameters
    ----------
    runs : RestartRuns
    model : FactorModel
        Trained.
    history : list of dict
    n_factors_init, bent : ndarray (restart,)
        How each began.
    brief, exact : bool
        As in `by_rows.judge`; brief ones are not compared at their maxima.
    """
    train, heldout = judge(model, runs.learned, runs.heldout, runs.ranks, brief, exact)
    edges, active = _sizes(model)
    log_likelihood, parameters = None, edges
    if not brief and runs.ranks.size == 1:
        compared = compared_rows(model, runs.table, np.isfinite(train).all(1))
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
    return trained._replace(best=_best_of(trained, active, len(runs.table.x)))


def _best_of(trained: TrainedRestarts, active: np.ndarray, n_rows: int) -> int:
    """Which restart is best, of which so many factors are in use.

    Restarts with one graph have one maximum: of these the one that is nearest to it.
    """
    if trained.log_likelihood is not None:
        level, bound = trained.level(n_rows), np.nan_to_num(trained.rows.mean(1), nan=-np.inf)
        return int(np.where(level >= level.max() - _SAME_MAXIMUM, bound, -np.inf).argmax())
    return chosen_restart(trained.rows, trained.all_rows, active, trained.edges, n_rows)


def in_sparser_axes(
    runs: RestartRuns,
    whole: FactorModel,
    trained: TrainedRestarts,
    schedule: Schedule | DependencySchedule,
) -> TrainedRestarts:
    """Two more restarts where the best one's axes are not the sparsest; better ones replace the worst.

    Parameters
    ----------
    runs : RestartRuns
    whole : FactorModel
        All restarts, changed in place.
    trained : TrainedRestarts
    schedule : Schedule or DependencySchedule
    """
    if not searches_axes(whole, runs.table, schedule):
        return trained
    level = trained.level(len(runs.table.x))
    with undisturbed():
        start = axis_start(cast("SparseDecoder", whole), runs.table, runs.kept, level, trained.best)
        if start is None:
            return trained
        run = runs.beside([start.start] * len(_AXIS_BENT), np.array(_AXIS_BENT), schedule)
        if not finished(run):
            return trained
        torch.manual_seed(runs.seed)
        n_factors_init = np.full(len(_AXIS_BENT), start.n_factors)
        new = judged(runs, run.model, run.history, n_factors_init, np.array(_AXIS_BENT))
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


def at_graphs(
    runs: RestartRuns,
    whole: FactorModel,
    trained: TrainedRestarts,
    requested: Schedule | DependencySchedule,
    schedule: Schedule | DependencySchedule,
) -> TrainedRestarts:
    """Restarts that begin at graphs of a search, in the places of worse ones; then the best of all.

    Parameters
    ----------
    runs, whole, trained
        As in `in_sparser_axes`.
    requested, schedule : Schedule or DependencySchedule
        As in `pyro_sparse.fit`, and that of restarts, which may be shorter.
    """
    if not searches_graphs(whole, runs.table, requested):
        return trained
    with undisturbed():
        starts = graph_starts(cast("SparseDecoder", whole), runs.table, runs.kept)
        if not starts:
            return trained
        straight, to_the_end = np.zeros(len(starts), bool), schedule_of_graphs(cast("Schedule", schedule))
        run = runs.beside([start.start for start in starts], straight, to_the_end)
        for restart, start in enumerate(starts):
            edge = torch.as_tensor(start.edges(run.model.n_factors), device=runs.device)
            run.model.allowed[restart] = edge
        run.model.project()
        if not finished(run):
            return trained
        torch.manual_seed(runs.seed)
        n_factors_init = np.array([start.edge.shape[1] for start in starts])
        new = judged(runs, run.model, run.history, n_factors_init, straight)
    n_rows = len(runs.table.x)
    for place, r in better_restarts(trained.level(n_rows), new.level(n_rows)):
        put(pick(run.model, [r]), whole, place)
        trained = trained.with_restart(place, new, r)._replace(from_graphs=(*trained.from_graphs, place))
    if not trained.from_graphs:
        return trained
    return trained._replace(best=_best_of(trained, _sizes(whole)[1], n_rows))


def with_best_trained_further(
    runs: RestartRuns,
    whole: FactorModel,
    trained: TrainedRestarts,
    requested: Schedule | DependencySchedule,
    schedule: Schedule | DependencySchedule,
) -> TrainedRestarts:
    """The best restart trained further, where all were trained only long enough to be compared.

    As it was, if its level falls by as much as an edge costs. Held-out rows are not asked: of 150 rows of one
    factor of counts (seed 1 of `tests/posterior/test_factor_scores.py`) 15 are, and prefer loadings that are
    an eighth too small.

    Parameters
    ----------
    runs, whole, trained, requested, schedule
        As in `at_graphs`.
    """
    best, n_more = trained.best, min(requested.steps - schedule.steps, schedule.steps)
    if n_more == 0 or not np.isfinite(trained.train[best]).all():
        return trained
    with undisturbed():
        runs.seed_beside()
        model = cast("SparseDecoder", pick(whole, [best])).train()
        model.allowed &= model.weights != 0
        further = schedule_of_best(replace(cast("Schedule", schedule), steps=n_more))
        run = runs.run(model, further, best)
        if not finished(run):
            return trained
        torch.manual_seed(runs.seed)
        how_it_began = trained.n_factors_init[[best]], trained.bent[[best]]
        new = judged(runs, run.model, run.history, *how_it_began)
    n_rows = len(runs.table.x)
    level, before = new.level(n_rows)[0], trained.level(n_rows)[best]
    if not (np.isfinite(new.train).all() and level >= before - 0.5 * np.log(n_rows)):
        return trained
    put(run.model, whole, best)
    later = [{**row, "step": row["step"] + schedule.steps} for row in run.history]
    return trained.with_restart(best, new, 0)._replace(history=[*trained.history, *later])


def _sizes(model: FactorModel) -> tuple[np.ndarray, np.ndarray]:
    """Edges and active factors of each restart."""
    weights = getattr(model, "weights", None)
    if weights is None:
        full = np.full(model.n_restarts, model.n_factors)
        return full * model.n_features, full
    present = (weights != 0).cpu().numpy()
    return present.sum((1, 2)), found_factors(present, prescribed_edges(model))
