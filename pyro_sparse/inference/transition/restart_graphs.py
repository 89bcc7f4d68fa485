"""Graphs of all restarts in the frame of the best one, and which edges they leave in doubt.

A restart has its edges as (latent, parent), parents being each lag's latents and then the actions, in an
order of latents of its own. Here they become a time graph (restart, lag, target, source) and an action graph
(restart, target, action), either None where the model has none.
"""

from __future__ import annotations

import numpy as np

from ...models.latent_transition import LatentTransition
from .transition_checks import unclear_edges

__all__ = ["Graphs", "by_parent", "differing_edges", "edges_near_break", "framed"]

Graphs = tuple[np.ndarray | None, np.ndarray | None]


def framed(model: LatentTransition, edges: np.ndarray, permutation: np.ndarray) -> Graphs:
    """Time and action graphs in the frame of the best restart.

    Parameters
    ----------
    model : LatentTransition
    edges : ndarray (restart, latent, parent)
        Each in its own order of latents.
    permutation : ndarray of int (restart, latent)
        Place of each of the best restart's latents in the restart's own order.
    """
    d, lags = model.n_latents, model.lags
    turned = np.stack([matrix[turn] for matrix, turn in zip(edges, permutation, strict=True)])
    past = turned[:, :, : lags * d].reshape(len(turned), d, lags, d).transpose(0, 2, 1, 3)
    past = np.stack([matrices[:, :, turn] for matrices, turn in zip(past, permutation, strict=True)])
    return (past if lags else None), (turned[:, :, lags * d :] if model.n_actions else None)


def by_parent(graphs: Graphs, restart: int) -> np.ndarray:
    """The graphs of one restart side by side, (latent, parent).

    Parameters
    ----------
    graphs : tuple
        From `framed`.
    restart : int
    """
    time, action = graphs
    by_lag = [] if time is None else list(time[restart])
    return np.concatenate([*by_lag, *([] if action is None else [action[restart]])], 1)


def differing_edges(graphs: Graphs, restart: int, best: int, names: list[list[str]]) -> list[tuple[str, str]]:
    """Edges (target, source or action) that one restart decides otherwise than the best, at any lag.

    Parameters
    ----------
    graphs : tuple
        From `framed`.
    restart, best : int
    names : list of list of str
        Of the latents and of the actions.
    """
    edges = []
    for graph, sources in zip(graphs, names, strict=True):
        if graph is None:
            continue
        differs = (graph[restart] != graph[best]).reshape(-1, len(names[0]), len(sources)).any(0)
        edges += [(names[0][target], sources[source]) for target, source in np.argwhere(differs)]
    return edges


def edges_near_break(
    model: LatentTransition, strengths: Graphs, graphs: Graphs, best: int, names: list[list[str]]
) -> list[tuple[str, str]]:
    """Edges (target, source or action) near the break of the best restart's strengths, at any lag.

    Parameters
    ----------
    model : LatentTransition
        Says which edges are required or forbidden.
    strengths, graphs : tuple
        From `framed`.
    best : int
    names : list of list of str
        Of the latents and of the actions.
    """
    d, lags = model.n_latents, model.lags
    free = (model.allowed & ~model.must).cpu().numpy()
    by_lag = free[:, : lags * d].reshape(d, lags, d).swapaxes(0, 1)
    edges = []
    for strength, graph, of_graph, sources in zip(
        strengths, graphs, (by_lag, free[:, lags * d :]), names, strict=True
    ):
        if strength is None or graph is None:
            continue
        near = unclear_edges(strength[best], graph[best], of_graph).reshape(-1, d, len(sources)).any(0)
        edges += [(names[0][target], sources[source]) for target, source in np.argwhere(near)]
    return edges
