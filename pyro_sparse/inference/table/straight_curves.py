r"""Would a linear decoder have explained the held-out rows as well? Then they show no need of curves.

Neural decoders are the default, for curves are lost to linear ones. Where features are straight they cost:
their chains take minutes where others take seconds, agree less, and their probabilities are calibrated less
well. A linear factor model with normal noise has a maximum in closed form, so that it is quick to ask beside:
the best graph of the rows trained on, by its bound on held-out rows,

.. math:: \log p(x_i) - KL\big(\textstyle\prod_k q_{ik} \,\|\, p(z_i \mid x_i)\big), \quad
          q_{ik} = N(m_{ik}, 1 / P_{kk}),

P the posterior precision of the row's factors and m their mean: the best bound with independent factors, as
the neural decoder's is.

On straight tables the linear decoder was .4 nats a row better in the mean and .05 worse at most (three tables
of blocks and two dense ones, seeds 1000 to 1002), on curved ones 7 to 10 worse (off-model tables of `faults`,
1000 to 1002); Holzinger's tests .3 better, wines 2.0, diabetes 1.1 and breast cancer 2.8 worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ..._utils.declared import hooks, keeps
from ...data.large_table import LargeTable
from ...findings.finding import Finding
from .factor_likelihood import FactorFit
from .graph_search import best_graphs
from .linear_maximum import any_edge_is_possible, row_moments

if TYPE_CHECKING:
    from ...data.table import Table
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["linear_bounds", "straight_findings"]

Array = NDArray[np.float64]
_LEAST_ROWS, _MOST_FEATURES = 20, 100  # held out; the search takes a second for 50 features
_MOST_MOMENTS = 1000  # rows, evenly spread, that the graph is learned from: it is to cost next to nothing


def straight_findings(
    model: FactorModel, table: Table, kept: NDArray[np.intp], bound: Array | None
) -> list[Finding]:
    """A note where a linear decoder explains held-out rows at least as well.

    Parameters
    ----------
    model : FactorModel
        Trained. Only neural decoders with normal noise are asked, where any edge is possible.
    table : Table
    kept : ndarray of int
        Rows that it was trained on.
    bound : ndarray (row,) or None
        ELBO of each of the others under the best restart; None where there are none.
    """
    if bound is None or len(bound) < _LEAST_ROWS or not _may_be_linear(model, table):
        return []
    decoder = cast("SparseDecoder", model)
    some = kept[np.linspace(0, len(kept) - 1, min(len(kept), _MOST_MOMENTS)).astype(int)]
    mean, moments = row_moments(table, some)
    try:
        graphs = best_graphs(moments, decoder.n_factors, decoder.learn_factor_cov)
    except np.linalg.LinAlgError:  # columns that determine one another
        return []
    if not graphs:
        return []
    heldout = np.setdiff1d(np.arange(len(table.x)), kept)
    x = np.asarray(table.inputs, dtype=float)[heldout] - mean
    mask = None if table.mask is None else np.asarray(table.mask)[heldout]
    gain = linear_bounds(graphs[0], x, mask, table.unit(model.likelihood)) - bound
    mean_gain, error = float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))
    if not mean_gain >= 0:
        return []
    return [
        Finding(
            "straight",
            f"a linear decoder explains the {len(gain)} held-out rows at least as well ({mean_gain:.2f} nats "
            f"a row better, standard error {error:.2f}): they show no need of curves",
            'try decoder="linear": its chains are quicker, and its probabilities are calibrated better',
            size=mean_gain,
        )
    ]


def _may_be_linear(model: FactorModel, table: Table) -> bool:
    """Whether the model is a neural decoder that a linear one could replace, as it is declared."""
    if getattr(model, "decoder_kind", "") != "mlp" or isinstance(table, LargeTable):
        return False
    decoder = cast("SparseDecoder", model)
    declared = (
        keeps(decoder, "masked decoder") and keeps(decoder.likelihood, "normal noise") and not hooks(decoder)
    )
    if not declared or decoder.total_correlation or decoder.beta != 1.0 or table.freedom != 1.0:
        return False
    weighted = table.weights is not None and table.weights.kind != "equal"
    small = table.x.shape[1] <= _MOST_FEATURES
    return small and not weighted and decoder.likelihood.standardise and any_edge_is_possible(decoder)


def linear_bounds(graph: FactorFit, x: Array, mask: NDArray[np.bool_] | None, unit: Array) -> Array:
    """The best bound with independent factors on the log density of each row, (row,).

    Parameters
    ----------
    graph : FactorFit
        At its maximum.
    x : ndarray (row, feature)
        Centred, in the units of the graph.
    mask : ndarray of bool (row, feature), optional
        True where a cell was seen.
    unit : ndarray (feature,)
        Units of the graph in those of the density.
    """
    seen = np.ones(x.shape, dtype=bool) if mask is None else mask
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    bounds = np.empty(len(x))
    prior = np.linalg.inv(graph.correlations)
    for p, here in enumerate(patterns):
        rows = np.flatnonzero(which.reshape(-1) == p)
        loadings, noise = graph.loadings[here], graph.noise[here]
        implied = loadings @ graph.correlations @ loadings.T + np.diag(noise)
        cells = x[np.ix_(rows, here)]
        squares = (cells * np.linalg.solve(implied, cells.T).T).sum(1)
        precision = prior + loadings.T @ (loadings / noise[:, None])
        apart = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
        log_det = np.linalg.slogdet(implied)[1] + here.sum() * np.log(2 * np.pi)
        bounds[rows] = -0.5 * (squares + log_det) - apart - np.log(unit[here]).sum()
    return bounds
