"""Restarts that begin at graphs of a search, where a linear decoder's likelihood has no closed form.

The lasso and the ladder of a run may lose a factor in every restart: in a table of numbers, yes/no
answers and counts, one of the numbers' factors with seven loadings of .3 to .7 was gone in eight of
eight. Linear normal models have a search for that (`linear_maximum.py`). It reads second moments only,
and those of answers, levels and counts, as the encoder sees the cells, are weaker, but show who goes with
whom. So graphs of the search are where further restarts begin, with their edges alone open and without a
lasso. What they are worth is what their own likelihood says, as of any restart; better ones take the
places of the worst. Few steps do for that, since restarts are compared at the maxima of their graphs
(`marginal_likelihood.py`); the best one is then trained further.

The search's criterion takes correlations of answers at their face value: of a weak factor it leaves an edge
or two out, or all. So one restart begins with as many factors as parallel analysis finds and all their
salient loadings, which its prior's proximal map may drop. No edges are deleted in these restarts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..._utils.declared import hooks, keeps
from ...data.large_table import LargeTable
from .cell_correlations import cell_correlation
from .factor_likelihood import FactorFit, Moments
from .graph_search import best_graphs, graph_level, most_factors, rotated_graph
from .linear_maximum import any_edge_is_possible, row_moments
from .parallel_analysis import parallel_analysis
from .schedule import LEAST_STEPS
from .start import Start

if TYPE_CHECKING:
    from ...data.table import Table
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder
    from ...priors import SpikeSlabPrior
    from .dependency_schedule import DependencySchedule
    from .schedule import Schedule

__all__ = [
    "GraphStart",
    "better_restarts",
    "graph_starts",
    "schedule_of_best",
    "schedule_of_graphs",
    "searches_graphs",
]

Array = NDArray[np.float64]
_MOST_ROWS, _LEAST_ROWS, _MOST_FEATURES = 5000, 30, 100  # the search takes a second for 50 features
_MOST_GRAPHS = 4  # each as dear as any restart
_BETTER = 1e-3  # nats that a restart gains at least where it takes the place of another
_LEAST_LEFT = 0.02  # variance that a start leaves of a feature, as in `start.py`


class GraphStart(NamedTuple):
    """Where a new restart begins.

    Attributes
    ----------
    start : Start
    edge : ndarray of bool (feature, factor)
        Of as many factors as the graph has.
    """

    start: Start
    edge: NDArray[np.bool_]

    def edges(self, n_factors: int) -> NDArray[np.bool_]:
        """With columns for so many factors, the last ones empty."""
        return np.pad(self.edge, ((0, 0), (0, n_factors - self.edge.shape[1])))


def searches_graphs(model: FactorModel, table: Table, schedule: Schedule | DependencySchedule) -> bool:
    """Whether the search is for this model, table and schedule: linear, any edge possible, no closed form.

    Parameters
    ----------
    model : FactorModel
        Set up.
    table : Table
    schedule : Schedule or DependencySchedule
    """
    if getattr(model, "decoder_kind", "") != "linear" or isinstance(table, LargeTable):
        return False
    sparse = cast("SparseDecoder", model)
    declared = keeps(sparse, "masked decoder") and keeps(sparse.prior, "spike and slab") and not hooks(sparse)
    if not declared or not sparse.data_start or keeps(sparse.likelihood, "normal noise"):
        return False
    n_rows, n_features = table.x.shape
    sizes = _LEAST_ROWS <= n_rows <= _MOST_ROWS and n_features <= _MOST_FEATURES
    informed = cast("SpikeSlabPrior", sparse.prior).informed
    return any_edge_is_possible(sparse) and sizes and not informed and schedule.steps >= LEAST_STEPS


def graph_starts(model: SparseDecoder, table: Table, kept: NDArray[np.intp]) -> list[GraphStart]:
    """Starts at the best graph of each of some numbers of factors, the best first, and at a rotated one.

    The last is of the number of factors that parallel analysis finds, with all salient loadings. Empty where
    the search has no graph at all.

    Parameters
    ----------
    model : SparseDecoder
    table : Table
    kept : ndarray of int
        Rows to learn from.
    """
    _, moments = row_moments(table, kept)
    try:
        graphs = best_graphs(moments, model.n_factors, model.learn_factor_cov)
        if not graphs:
            return []
        rotated = _rotated_of_supported_factors(model, table, kept, moments)
    except np.linalg.LinAlgError:  # columns that determine one another
        return []
    best_of_number = {graph.edge.shape[1]: graph for graph in reversed(graphs)}
    chosen = sorted(best_of_number.values(), key=lambda graph: -graph_level(moments, graph))
    chosen = _with_rotated(chosen[:_MOST_GRAPHS], rotated)
    return [_start_at(graph, table, kept, moments) for graph in chosen]


def schedule_of_graphs(schedule: Schedule) -> Schedule:
    """Of restarts whose edges are known: without a lasso and deletions, and to the end.

    Deletions go by the ELBO, which charges a factor the divergence of all rows. Of six tables of yes/no
    answers whose fit lost a factor (200 rows, seeds 1010 to 1036) three keep it without, for 1 to 26 nats.

    Parameters
    ----------
    schedule : Schedule
    """
    return replace(schedule, lasso_weight=0.0, kl_start=1.0, prune_at=(), patience=None)


def schedule_of_best(schedule: Schedule) -> Schedule:
    """For training a restart further: as `schedule_of_graphs`, without the stages that are behind it.

    Parameters
    ----------
    schedule : Schedule
    """
    return replace(
        schedule_of_graphs(schedule),
        encoder_frozen_until=0.0,
        lasso_from=0.0,
        lasso_until=0.0,
        relax_lasso_from=0.0,
    )


def better_restarts(level: Array, new: Array) -> list[tuple[int, int]]:
    """Places of the worst half of restarts, and better ones to put there, the best first.

    Parameters
    ----------
    level, new : ndarray (restart,)
        The higher the better.

    Examples
    --------
    >>> better_restarts(np.array([-5.0, -1.0, -9.0, -2.0]), np.array([-6.0, -3.0, -4.0]))
    [(2, 1), (0, 2)]
    >>> better_restarts(np.array([-5.0]), np.array([-6.0]))
    []
    """
    level, new = (np.where(np.isfinite(values), values, -np.inf) for values in (level, new))
    worst = np.argsort(level, kind="stable")[: max(1, len(level) // 2)].tolist()
    best = np.argsort(-new, kind="stable").tolist()
    return [(place, r) for place, r in zip(worst, best, strict=False) if new[r] > level[place] + _BETTER]


def _rotated_of_supported_factors(
    model: SparseDecoder, table: Table, kept: NDArray[np.intp], moments: Moments
) -> FactorFit:
    """Salient loadings of as many factors as parallel analysis finds, or as many as are possible."""
    correlation = cell_correlation(model, table, kept, moments)
    supported = parallel_analysis(correlation, moments.n_rows)
    n_factors = min(supported, model.n_factors, most_factors(len(correlation)))
    return rotated_graph(moments, n_factors, model.learn_factor_cov)


def _with_rotated(graphs: list[FactorFit], rotated: FactorFit) -> list[FactorFit]:
    """A graph more at the end; of too many, that with the fewest factors makes room.

    The search errs towards few factors: of a table of six its best graphs have 2, 3, 1 and 4, and the restart
    at the last is the best. The search's best graph stays.
    """
    if len(graphs) == _MOST_GRAPHS:
        fewest = min(range(1, len(graphs)), key=lambda at: graphs[at].edge.shape[1])
        graphs = graphs[:fewest] + graphs[fewest + 1 :]
    return [*graphs, rotated]


def _start_at(graph: FactorFit, table: Table, kept: NDArray[np.intp], moments: Moments) -> GraphStart:
    """Scores by regression on the cells, and what they leave."""
    loadings, between = graph.loadings, graph.correlations
    x = np.nan_to_num(np.asarray(table.inputs[kept], dtype=float))
    implied = loadings @ between @ loadings.T
    maps = np.linalg.solve(implied + np.diag(graph.noise), loadings @ between)
    maps /= np.maximum((x @ maps).std(0), 1e-9)
    left = np.clip(1 - np.diag(implied) / np.diag(moments.covariance), _LEAST_LEFT, 1.0)
    return GraphStart(Start(x @ maps, maps, loadings, np.sqrt(left)), graph.edge)
