"""The draws of a graph that stand behind a table of edges, for whatever is asked of the graph as a whole.

Not every chain of an edge posterior counts: Markov chains that fell behind were dropped, and restarts of
sequences and tasks may have latents that mean something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from . import arviz as _arviz

if TYPE_CHECKING:
    from .._utils.types import ArvizData

__all__ = ["MOST_DRAWS", "chain_weights", "graph_draws", "graph_numbers", "of_kept_chains", "pooled"]

# Of which a graph of a table is asked what its latents are: a share has a standard error of .022 at most.
MOST_DRAWS = 500
_ROWS_COLUMNS = {
    "edge": (("feature", "factor"), ("task", "latent")),
    "edge_time": (("target", "source"),),
    "edge_action": (("target", "action"),),
}


def graph_draws(idata: ArvizData, graph: str | None = None) -> xr.DataArray:
    """Draws of the graph whose edges `summary` lists, for the functions of `pyro_sparse.graphs`.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `edge_posterior()`.
    graph : {"time", "action"}, optional
        Which graph of a latent transition; needed where it has both.

    Returns
    -------
    DataArray of 0 and 1
        Dims (chain, draw, feature, factor) of a table, over the chains that were kept; (chain, draw, task,
        latent) of tasks, and (chain, draw, target, source) or (chain, draw, target, action) of a transition,
        over the best restart. With several lags a source is there if it is at any lag.

    Raises
    ------
    ValueError
        There is no such graph, or it is not said which one.
    KeyError, TypeError
        `idata` is no edge posterior.

    Examples
    --------
    >>> import numpy as np
    >>> import pyro_sparse as ps
    >>> X = np.repeat(np.random.default_rng(0).normal(size=(60, 1)), 4, axis=1)
    >>> X = X + 0.5 * np.random.default_rng(1).normal(size=X.shape)
    >>> fit = ps.fit(ps.models.SparseDecoder(4, 1), X, restarts=1, steps=60, progress=False)
    >>> draws = ps.graph_draws(fit.edge_posterior("score"))
    >>> draws.dims, bool(ps.graphs.probability_of(draws, lambda g: bool(g[:2].all())).probability > 0.9)
    (('chain', 'draw', 'feature', 'factor'), True)
    """
    posterior = _arviz.get_group(idata, "posterior")
    name = _called(posterior, graph)
    edges = posterior[name]
    if "lag" in edges.dims:
        edges = edges.max("lag")
    chains = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy()).tolist()
    dims = next(pair for pair in _ROWS_COLUMNS[name] if set(pair) <= {*edges.dims})
    return edges.isel(chain=chains).transpose("chain", "draw", *dims)


def _called(posterior: xr.Dataset, graph: str | None) -> str:
    """Name of the draws of the graph that is asked for."""
    there = [name for name in _ROWS_COLUMNS if name in posterior]
    wanted = there if graph is None else [f"edge_{graph}"] if f"edge_{graph}" in there else []
    if len(wanted) != 1:
        kinds = [name.removeprefix("edge_") for name in there]
        choices = f"one of {kinds}" if kinds != ["edge"] else "none: it has one graph"
        raise ValueError(f"graph: got {graph!r}, want {choices}")
    return wanted[0]


def graph_numbers(idata: ArvizData, graph: str | None = None) -> xr.DataArray:
    """Probability, or score, of each edge of the graph that `graph_draws` draws, (row, column).

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `edge_posterior()`.
    graph : {"time", "action"}, optional
        As in `graph_draws`.

    Returns
    -------
    DataArray
        With several lags the share of draws with the source at any of them.

    Raises
    ------
    ValueError, KeyError, TypeError
        As `graph_draws`.
    """
    edges = _arviz.get_group(idata, "edge_posterior")
    name = _called(_arviz.get_group(idata, "posterior"), graph)
    numbers = edges[name.replace("edge", "probability")]
    if "lag" in numbers.dims:
        if numbers.sizes["lag"] > 1:
            return graph_draws(idata, graph).mean(("chain", "draw"))
        numbers = numbers.isel(lag=0, drop=True)
    return numbers.transpose(*next(pair for pair in _ROWS_COLUMNS[name] if set(pair) <= {*numbers.dims}))


def chain_weights(idata: ArvizData) -> np.ndarray:
    """What each kept chain counts for in probabilities and means, (chain kept,); they sum to one.

    Parameters
    ----------
    idata : InferenceData or DataTree
    """
    stats = _arviz.get_group(idata, "sample_stats")
    kept = stats["kept"].to_numpy().astype(bool)
    weight = stats["pool_weight"].to_numpy()[kept] if "pool_weight" in stats else np.ones(kept.sum())
    shares: np.ndarray = weight / weight.sum()
    return shares


def of_kept_chains(idata: ArvizData, draws: xr.DataArray) -> xr.DataArray:
    """Draws of the kept chains in the proportions of the chains' weights, for means and intervals.

    A chain of another graph is kept to be compared with, and may count for next to nothing: its draws must
    not decide an interval. Of a chain that counts for less than another, evenly spread draws are taken.

    Parameters
    ----------
    idata : InferenceData or DataTree
    draws : DataArray with dims `chain`, `draw` and any others
        Of the kept chains.

    Returns
    -------
    DataArray with the same dims
        As it is where all chains count alike; else all draws stand in one chain.
    """
    weight = chain_weights(idata)
    if len(weight) != draws.sizes["chain"] or np.allclose(weight, weight[0]):
        return draws
    n = draws.sizes["draw"]
    count = np.rint(n * weight / weight.max()).astype(int)
    parts = [
        draws.isel(chain=[c], draw=np.linspace(0, n - 1, k).round().astype(int)).drop_vars(
            ["chain", "draw"], errors="ignore"
        )
        for c, k in enumerate(count)
        if k
    ]
    return xr.concat(parts, "draw")


def pooled(draws: xr.DataArray, most: int | None = None) -> np.ndarray:
    """Draws of all chains in one row of bools, (draw, row, column).

    Parameters
    ----------
    draws : DataArray (chain, draw, row, column)
    most : int, optional
        Draws at most: of each chain some, evenly spread.
    """
    n_chains, num_draws = draws.shape[:2]
    if most is not None and n_chains * num_draws > most:
        per_chain = min(num_draws, max(1, most // n_chains))
        draws = draws.isel(draw=np.linspace(0, num_draws - 1, per_chain).round().astype(int))
    values: np.ndarray = draws.to_numpy()
    return values.reshape(-1, *draws.shape[2:]).astype(bool)
