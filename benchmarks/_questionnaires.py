"""What `real` and `misspecified` share: items on scales, the linear decoder as it is, its edges as arrays.

Factors are matched to scales before anything is counted: of a real table by the items whose largest loading
they have, of a simulated one by the congruence of their loadings with the true ones.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks._common import Row, sparse_fit

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SURE = 0.95  # probability at which `ps.summary` calls an edge present
SALIENT = 0.3  # a loading that factor analysis reads
_OF_CHAINS = ("sweeps", "chains", "num_draws")


class Edges(NamedTuple):
    """What an edge posterior says, (item, factor) or more.

    Attributes
    ----------
    probability, gap, loading : ndarray (item, factor)
        The loading is the mean of its size, |loading|, over the draws.
    verdict : ndarray of str (item, factor)
        As `ps.summary` has it.
    lower, upper : ndarray (item, factor)
        Of the 90 % interval of the signed loading.
    draws : ndarray (chain, draw, item, factor)
        Signed standardised loadings of the chains kept.
    """

    probability: Array
    gap: Array
    loading: Array
    verdict: NDArray[np.str_]
    lower: Array
    upper: Array
    draws: Array


class FittedEdges(NamedTuple):
    """A fit, its edge posterior, and the CPU seconds that each took.

    Attributes
    ----------
    fit : Fit
    idata : InferenceData or DataTree
    fit_cpu_s, chains_cpu_s : float
    """

    fit: Any
    idata: Any
    fit_cpu_s: float
    chains_cpu_s: float


def edges_with_defaults(
    x: Any, n_factors: int, seed: int, edge: str, settings: Row | None = None
) -> FittedEdges:
    """A linear `SparseDecoder` with every default and its edges; `settings` are of the fit or the chains.

    What is only imported is imported before the clock starts: ArviZ, and torch's compiler with the first
    optimiser.
    """
    import torch

    from pyro_sparse.posterior.arviz import arviz

    arviz()
    torch.optim.Adam([torch.zeros(1)])
    given = settings or {}
    of_chains = {name: value for name, value in given.items() if name in _OF_CHAINS}
    of_fit = {name: value for name, value in given.items() if name not in _OF_CHAINS}
    start = time.process_time()
    fit = sparse_fit(x, n_factors, seed, decoder="linear", **of_fit)
    fitted = time.process_time()
    idata = fit.edge_posterior(edge=edge, seed=seed, **of_chains)
    return FittedEdges(fit, idata, fitted - start, time.process_time() - fitted)


def edges_of(idata: Any) -> Edges:
    """The arrays of an edge posterior, items and factors in its own order."""
    import pyro_sparse as ps
    from pyro_sparse.posterior.arviz import get_group

    own, dims = get_group(idata, "edge_posterior"), ("feature", "factor")
    kept = np.flatnonzero(get_group(idata, "sample_stats")["kept"].to_numpy())
    draws = get_group(idata, "posterior")["weight"].isel(chain=kept).transpose("chain", "draw", *dims)
    table = ps.summary(idata)
    labels = {"index": own["feature"].to_numpy(), "columns": own["factor"].to_numpy()}
    verdict, lower, upper = (
        table.pivot(index="feature", columns="factor", values=name).reindex(**labels).to_numpy()
        for name in ("verdict", "hdi90_lb", "hdi90_ub")
    )
    return Edges(
        own["probability"].transpose(*dims).to_numpy(),
        own["gap"].transpose(*dims).to_numpy(),
        np.abs(draws).mean(("chain", "draw")).to_numpy(),
        verdict.astype(str),
        lower.astype(float),
        upper.astype(float),
        draws.to_numpy(),
    )


def factor_of_items(loading: Array, scales: NDArray[np.str_]) -> NDArray[np.intp]:
    """The factor matched to each item's scale: (item,), -1 where there are fewer factors than scales.

    The matching with most items that have their largest loading on the factor of their scale; among equals
    the one with the largest loadings.

    Parameters
    ----------
    loading : ndarray (item, factor)
        Sizes, without signs.
    scales : ndarray of str (item,)
    """
    names, scale = np.unique(scales, return_inverse=True)
    own = np.eye(len(names))[scale]
    most = own.T @ _on_largest(loading)
    size = own.T @ loading
    rows, columns = linear_sum_assignment(-(most + size / (1 + size.sum())))
    factor = np.full(len(names), -1)
    factor[rows] = columns
    return factor[scale]


def items_on_scale(loading: Array, factor: NDArray[np.intp]) -> int:
    """Items whose largest loading, if they have any, is on the factor matched to their scale.

    Parameters
    ----------
    loading : ndarray (item, factor)
        Sizes, without signs.
    factor : ndarray of int (item,)
        From `factor_of_items`.
    """
    return int((_on_largest(loading) & main_edges(factor, loading.shape[1])).sum())


def main_edges(factor: NDArray[np.intp], n_factors: int) -> Mask:
    """The edge of each item to the factor of its scale: (item, factor)."""
    return factor[:, None] == np.arange(n_factors)


def _on_largest(loading: Array) -> Mask:
    """Of each item its largest loading, unless all are zero."""
    return main_edges(np.where(loading.max(1) > 0, loading.argmax(1), -1), loading.shape[1])
