"""Restarts of a linear normal model at the maximum of their graphs, and graphs that a search finds.

Gradient steps leave restarts of one and the same graph 10 to 60 nats apart, more than a factor is worth, and
on small tables none of them may have the right number of factors. Where the model is a linear factor model
with normal noise and there are few rows, each restart's graph is therefore improved edge by edge and put at
its maximum in closed form (`graph_search.py`), and graphs of a search of its own, which knows nothing of the
restarts, take the places of the worst half where they are better. All rows choose the graph; loadings,
correlations, noise and the encoder are then those of the rows that are not held out.

Of a table that no such graph explains, as real ones are, likelihood makes a factor of every small departure:
there no more factors count than parallel analysis finds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ..._utils.declared import hooks, keeps
from ...data.large_table import LargeTable
from ...findings.finding import Finding
from .factor_likelihood import FactorFit, Moments, maximum_likelihood, observed_log_likelihood
from .graph_search import (
    best_graphs,
    empty_level,
    exact_fit,
    graph_cost,
    graph_key,
    graph_level,
    improved,
)
from .parallel_analysis import parallel_analysis
from .schedule import LEAST_STEPS

if TYPE_CHECKING:
    from ...data.table import Table
    from ...likelihoods.normal import Normal
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder
    from ...priors import SpikeSlabPrior
    from .dependency_schedule import DependencySchedule
    from .schedule import Schedule

__all__ = [
    "Maxima",
    "any_edge_is_possible",
    "graph_worth",
    "has_closed_form_maximum",
    "is_small",
    "no_factor",
    "put_at_maxima",
    "row_moments",
]

Array = NDArray[np.float64]

# With more rows the restarts find the number of factors by themselves (all tables of 1,000 rows among seeds
# 1000 to 1059), and no real table is exactly linear and normal: of 2,800 answers to 25 personality items
# every criterion of likelihood makes seven factors or more.
_MOST_ROWS, _LEAST_ROWS = 1000, 30
# p-value of the best graph below which it is no model of the table. None of 100 tables of blocks and 24 of
# dense graphs is below (seeds 1000 to 1099, to 1011); all of 16 samples of 200 to 1,000 rows of bfi are, by
# .002 and less, and the nine tests of Holzinger (.0006).
_EXACT = 0.01
_MOST_FEATURES = 100  # the search takes a second for 50 features
_LEAST_SLAB = 0.25  # scale of a slab, in standardised loadings, that hardly shrinks
_BETTER = 1e-3  # nats
_EM_STEPS, _EM_TOLERANCE = 50, 1e-4
_RIDGE = 1e-3  # of the encoder's linear map where cells are missing, in units of a cell's variance


class Maxima(NamedTuple):
    """What restarts are worth at the maxima of their graphs.

    Attributes
    ----------
    level : ndarray (restart,)
        `graph_search.graph_level`: the higher the better.
    searched : dict of int to int
        Restarts in whose place are graphs of the search, and how many factors these have.
    supported : int or None
        Factors that parallel analysis finds, where that bounds them; None where a graph explains the table.
    likeliest : int
        Factors of the best graph, were there no bound.
    """

    level: Array
    searched: dict[int, int]
    supported: int | None
    likeliest: int

    def findings(self) -> list[Finding]:
        """What to say where parallel analysis took factors away that likelihood wants."""
        if self.supported is None or self.likeliest <= self.supported:
            return []
        message = (
            f"no graph explains the table exactly, and likelihood makes {self.likeliest} factors of small "
            f"departures: no more than the {self.supported} that parallel analysis finds are kept"
        )
        return [Finding("factors", message, "anchors say that there are others", size=float(self.likeliest))]

    @property
    def best(self) -> int:
        """The restart with the best graph; among equals the first."""
        return int(np.flatnonzero(self.level >= self.level.max() - _BETTER)[0])


def is_small(table: Table) -> bool:
    """Whether a table has few enough rows and columns for maxima in closed form, and enough rows.

    Parameters
    ----------
    table : Table
    """
    n_rows, n_features = table.x.shape
    return _LEAST_ROWS <= n_rows <= _MOST_ROWS and n_features <= _MOST_FEATURES


def any_edge_is_possible(model: SparseDecoder) -> bool:
    """Whether no edge is forbidden and none required, so that a search may choose the graph.

    Parameters
    ----------
    model : SparseDecoder
        Set up.
    """
    return bool(model.permitted.all()) and not bool(model.must.any())


def has_closed_form_maximum(
    model: FactorModel, table: Table, schedule: Schedule | DependencySchedule
) -> bool:
    """Whether restarts are put at their maxima: a linear normal model as it is declared, and few rows.

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
    declared = (
        keeps(sparse, "masked decoder")
        and keeps(sparse.encoder, "encoder network")
        and keeps(sparse.decoder, "linear decoder network")
        and keeps(sparse.likelihood, "normal noise")
        and keeps(sparse.prior, "spike and slab")
        and not hooks(sparse)
    )
    if not declared or sparse.trainer is not None or sparse.total_correlation or sparse.beta != 1.0:
        return False
    prior = cast("SpikeSlabPrior", sparse.prior)
    scales = prior.scales()
    free_scale = sparse.likelihood.standardise and (scales is None or scales.slab >= _LEAST_SLAB)
    return is_small(table) and free_scale and not prior.informed and schedule.steps >= LEAST_STEPS


@torch.no_grad()
def put_at_maxima(model: SparseDecoder, table: Table, kept: NDArray[np.intp]) -> Maxima:
    """Write the best graphs that the restarts lead to, at their maxima, into the restarts.

    Parameters
    ----------
    model : SparseDecoder
        Trained, with a closed-form maximum. Changed.
    table : Table
    kept : ndarray of int
        Rows that are not held out.
    """
    unit = table.unit(model.likelihood)
    mean, everyone = row_moments(table, np.arange(len(table.x)))
    learned, worth = row_moments(table, kept), graph_worth(table, mean, everyone)
    free = any_edge_is_possible(model)
    graphs, supported, likeliest = (
        _searched(everyone, worth, model.n_factors, model.learn_factor_cov) if free else ([], None, 0)
    )
    ends: dict[bytes, FactorFit | None] = {}
    level, fits = np.empty(model.n_restarts), []
    for r in range(model.n_restarts):
        start, columns = _graph_of(model, r, unit)
        key = graph_key(start.edge)
        if key not in ends or not free:
            ends[key] = (
                improved(everyone, start, model.learn_factor_cov, edges=free) if len(columns) else None
            )
        end = ends[key]
        if end is not None and free:
            columns = np.arange(end.edge.shape[1])
        level[r] = worth(no_factor(everyone)) if end is None else worth(end)
        if graphs and supported is not None and len(columns) > supported:
            level[r] = -np.inf
        fits.append((end, columns))
    searched: dict[int, int] = {}
    replaceable = max(1, model.n_restarts // 2, int(np.isinf(level).sum()))
    worst_first = np.argsort(level, kind="stable")[:replaceable]
    for r, end in zip(worst_first.tolist(), cycle(graphs)):
        if worth(end) > level[r] + _BETTER:
            level[r], searched[r] = worth(end), end.edge.shape[1]
            fits[r] = end, np.arange(searched[r])
    for r, (end, columns) in enumerate(fits):
        _write(model, r, end, columns, table, kept, learned, unit)
    model.prior.update(model.weights)
    return Maxima(level, searched, supported, likeliest)


def graph_worth(table: Table, mean: Array, moments: Moments) -> Callable[[FactorFit], float]:
    """The criterion of a graph; of tables with missing cells by the cells that were seen.

    Moments of such tables count for as many rows as cells are there, and not all pairs of columns were seen
    together as often: where each of three views misses a third of the rows, that made a factor too many worth
    2 nats, where it costs 13.

    Parameters
    ----------
    table : Table
    mean : ndarray (feature,)
    moments : Moments
        Both of all rows (`row_moments`).
    """
    if table.mask is None:
        return partial(graph_level, moments)
    x, mask, freedom = np.asarray(table.inputs, dtype=float) - mean, np.asarray(table.mask), table.freedom

    def worth(graph: FactorFit) -> float:
        level = freedom * observed_log_likelihood(x / np.sqrt(freedom), mask, graph)
        return level - graph_cost(graph.edge, graph.correlated, moments.n_rows)

    return worth


def no_factor(moments: Moments) -> FactorFit:
    """No factor at all: each feature its own noise.

    Parameters
    ----------
    moments : Moments
    """
    none = np.zeros((len(moments.covariance), 1))
    return FactorFit(
        none > 0, np.zeros((1, 1), bool), none, np.eye(1), np.diag(moments.covariance), empty_level(moments)
    )


def _searched(
    moments: Moments, worth: Callable[[FactorFit], float], n_factors: int, correlations: bool
) -> tuple[list[FactorFit], int | None, int]:
    """Graphs of the search, the most factors that count if there is a bound, and how many the best has."""
    graphs = sorted(best_graphs(moments, n_factors, correlations), key=worth, reverse=True)
    if not graphs or exact_fit(moments, graphs[0]) >= _EXACT:
        return graphs, None, 0
    likeliest = graphs[0].edge.shape[1]
    sd = np.sqrt(np.diag(moments.covariance))
    supported = parallel_analysis(moments.covariance / np.outer(sd, sd), moments.n_rows)
    if likeliest > supported:
        graphs = sorted(best_graphs(moments, supported, correlations), key=worth, reverse=True)
    return [graph for graph in graphs if graph.edge.shape[1] <= supported], supported, likeliest


def row_moments(table: Table, rows: NDArray[np.intp]) -> tuple[Array, Moments]:
    """Means and covariance of standardised columns; of tables with missing cells the normal model's maximum.

    Parameters
    ----------
    table : Table
    rows : ndarray of int

    Returns
    -------
    mean : ndarray (feature,)
    moments : Moments
        It counts for as many rows as cells are there, less those that effects of covariates fit.
    """
    x = np.asarray(table.inputs[rows], dtype=float)
    if table.mask is None:
        covariance = np.cov(x.T, bias=True).reshape(x.shape[1], -1)
        return x.mean(0), Moments(covariance / table.freedom, table.freedom * len(x))
    mask = np.asarray(table.mask[rows])
    mean, covariance = _saturated(x, mask)
    return mean, Moments(covariance / table.freedom, table.freedom * len(x) * float(mask.mean()))


def _saturated(x: Array, mask: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Mean and covariance of a normal distribution from rows with missing cells, by EM."""
    count = np.maximum(mask.sum(0), 1)
    mean = np.where(mask, x, 0.0).sum(0) / count
    covariance = np.diag(np.where(mask, (x - mean) ** 2, 0.0).sum(0) / count)
    patterns, which = np.unique(mask, axis=0, return_inverse=True)
    which = which.reshape(-1)
    for _ in range(_EM_STEPS):
        filled, spread = np.where(mask, x, mean), np.zeros_like(covariance)
        for p, seen in enumerate(patterns):
            rows = np.flatnonzero(which == p)
            if seen.all():
                continue
            cross = covariance[np.ix_(~seen, seen)]
            gain = np.linalg.solve(covariance[np.ix_(seen, seen)] + 1e-9 * np.eye(seen.sum()), cross.T).T
            filled[np.ix_(rows, ~seen)] += (x[np.ix_(rows, seen)] - mean[seen]) @ gain.T
            spread[np.ix_(~seen, ~seen)] += len(rows) * (covariance[np.ix_(~seen, ~seen)] - gain @ cross.T)
        new_mean = filled.mean(0)
        new = ((filled - new_mean).T @ (filled - new_mean) + spread) / len(x)
        change = float(np.abs(new - covariance).max())
        mean, covariance = new_mean, new
        if change < _EM_TOLERANCE:
            break
    return mean, covariance


def _graph_of(model: SparseDecoder, restart: int, unit: Array) -> tuple[FactorFit, NDArray[np.intp]]:
    """A restart's graph and parameters in standardised units, and its columns in use."""
    weights = model.weights[restart].cpu().double().numpy() / unit[:, None]
    columns = np.flatnonzero((weights != 0).any(0))
    loadings = weights[:, columns]
    correlations = model.factor_cov[restart].cpu().double().numpy()[np.ix_(columns, columns)]
    noise = (cast(torch.Tensor, model.likelihood.noise_sd())[restart, 0].cpu().double().numpy() / unit) ** 2
    correlated = np.full(correlations.shape, model.learn_factor_cov) & ~np.eye(len(columns), dtype=bool)
    return FactorFit(loadings != 0, correlated, loadings, correlations, noise, -np.inf), columns


def _write(
    model: SparseDecoder,
    restart: int,
    end: FactorFit | None,
    columns: NDArray[np.intp],
    table: Table,
    kept: NDArray[np.intp],
    learned: tuple[Array, Moments],
    unit: Array,
) -> None:
    """A graph at the maximum of the rows kept, in a restart: decoder, correlations, noise, encoder."""
    mean, moments = learned
    n_features, n_factors = model.n_features, model.n_factors
    loadings, correlations = np.zeros((n_features, n_factors)), np.eye(n_factors)
    noise = np.diag(moments.covariance).copy()
    if end is not None:
        every = np.full(end.correlated.shape, model.learn_factor_cov) & ~np.eye(len(columns), dtype=bool)
        fit = maximum_likelihood(moments, end._replace(correlated=every))
        loadings[:, columns], noise = fit.loadings, fit.noise
        correlations[np.ix_(columns, columns)] = fit.correlations
    like = model.weights
    edge = torch.as_tensor(loadings != 0, device=like.device) | model.must
    centre = (table.input_centre - table.centre) / table.scale + mean * unit
    model.allowed[restart] = edge
    model.held[restart] = False
    model.weights[restart] = torch.as_tensor(loadings * unit[:, None]).to(like)
    model.decoder.intercept[restart, 0] = torch.as_tensor(centre).to(like)
    model.factor_cov[restart] = torch.as_tensor(correlations).to(like)
    cast("Normal", model.likelihood).put_noise_sd(torch.as_tensor(np.sqrt(noise) * unit).to(like), restart)
    precision = np.linalg.inv(correlations) + loadings.T @ (loadings / noise[:, None])
    _write_encoder(model, restart, mean, loadings, noise, precision, table, kept)


def _write_encoder(
    model: SparseDecoder,
    restart: int,
    mean: Array,
    loadings: Array,
    noise: Array,
    precision: Array,
    table: Table,
    kept: NDArray[np.intp],
) -> None:
    """The posterior as a linear map of the cells; with missing cells the one nearest to it."""
    encoder, like = model.encoder, model.weights
    for layer in (*encoder.layers, encoder.location, encoder.log_sd):
        layer.bias[restart] = 0.0
    encoder.location.weight[restart] = 0.0
    encoder.log_sd.weight[restart] = 0.0
    weighted = loadings / noise[:, None]
    if table.mask is None:
        map_ = np.linalg.solve(precision, weighted.T).T
        offset, log_sd = -mean @ map_, -0.5 * np.log(np.diag(precision))
    else:
        map_, offset, log_sd = _nearest_map(mean, loadings, weighted, precision, table, kept)
    encoder.skip[restart] = torch.as_tensor(map_).to(like)
    encoder.location.bias[restart, 0] = torch.as_tensor(offset).to(like)
    encoder.log_sd.bias[restart, 0] = torch.as_tensor(log_sd).to(like)


def _nearest_map(
    mean: Array, loadings: Array, weighted: Array, precision: Array, table: Table, kept: NDArray[np.intp]
) -> tuple[Array, Array, Array]:
    """Least squares of each row's posterior on cells and on which are there; mean log standard deviations."""
    x, mask = np.asarray(table.inputs[kept], dtype=float), np.asarray(table.mask)[kept].astype(float)
    prior = precision - loadings.T @ weighted
    of_row = prior + np.einsum("ij,jk,jl->ikl", mask, loadings, weighted)
    location = np.linalg.solve(of_row, (((x - mean) * mask) @ weighted)[..., None])[..., 0]
    log_sd = -0.5 * np.log(np.einsum("ikk->ik", of_row)).mean(0)
    cells = np.concatenate([x * mask, mask - 1], 1)
    centre = cells.mean(0)
    gram = (cells - centre).T @ (cells - centre) + _RIDGE * len(x) * np.eye(cells.shape[1])
    map_ = np.linalg.solve(gram, (cells - centre).T @ location)
    return map_, location.mean(0) - centre @ map_, log_sd
