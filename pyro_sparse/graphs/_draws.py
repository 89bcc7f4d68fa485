"""What a stack of graph draws must look like, checked once: (..., row, column), each entry an edge.

Draws of graphs hold 0 and 1 only; some functions also take probabilities, such as Rao-Blackwellised draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "ROUNDING",
    "chains_of",
    "feature_graph_draws",
    "feature_graphs",
    "graphs_of",
    "numbers",
    "probabilities",
    "zero_one",
]

ROUNDING = 1e-12
"""Probabilities that differ by less are the same: a mean of draws that should be one half may fall short."""


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """An array of float; of what is none, such as a whole edge posterior, it is said where the array is."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}: want an array of numbers, got {type(values).__name__}; the probabilities of a fit's "
            "edges are edge_prob(fit.edge_posterior())"
        ) from None


def probabilities(values: ArrayLike, name: str = "probability") -> NDArray[np.float64]:
    """Numbers in [0, 1], of any shape."""
    p = numbers(values, name)
    if p.size and not (np.isfinite(p).all() and p.min() >= 0 and p.max() <= 1):
        raise ValueError(
            f"{name}: want numbers in [0, 1], got values from {np.min(p):.4g} to {np.max(p):.4g}"
        )
    return p


def zero_one(values: ArrayLike, name: str, remedy: str, wanted: str = "edges of 0 or 1") -> NDArray[np.bool_]:
    """True and False where there is 1 and 0, of any shape."""
    x = np.asarray(values)
    odd = x[(x != 0) & (x != 1)]
    if odd.size:
        raise ValueError(f"{name}: want {wanted}, got {odd.flat[0]!s}; {remedy}")
    return x.astype(bool)


def graphs_of(draws: ArrayLike) -> NDArray[np.bool_]:
    """Draws of 0/1 graphs, all leading axes pooled: shape (draw, row, column)."""
    x = np.asarray(draws)
    if x.ndim < 3 or 0 in x.shape:
        raise ValueError(
            f"draws: want shape (..., draw, row, column) with entries, got {x.shape}; "
            "use graph[None] for a single graph"
        )
    return zero_one(x, "draws", "draw graphs from the probabilities first").reshape(-1, *x.shape[-2:])


def chains_of(draws: ArrayLike, at_least: int = 1) -> NDArray[np.float64]:
    """Draws of edges or of their probabilities by chain: shape (chain, draw, row, column)."""
    x = probabilities(draws, "draws")
    if x.ndim != 4 or 0 in x.shape:
        raise ValueError(
            f"draws: want shape (chain, draw, row, column) with entries, got {x.shape}; "
            "use draws[None] for a single chain"
        )
    if x.shape[1] < at_least:
        raise ValueError(f"draws: want at least {at_least} draws per chain, got {x.shape[1]}; keep more")
    return x


def feature_graphs(values: ArrayLike, name: str = "graph") -> NDArray[np.bool_]:
    """0/1 graphs from factors to features, alone or stacked: shape (..., feature, factor)."""
    x = np.asarray(values)
    if x.ndim < 2 or x.shape[-1] == 0:
        raise ValueError(f"{name}: want shape (..., feature, factor) with at least one factor, got {x.shape}")
    return zero_one(x, name, "choose edges first, as in probability > 0.5")


def feature_graph_draws(draws: ArrayLike) -> NDArray[np.bool_]:
    """Draws of 0/1 graphs from factors to features, leading axes pooled: shape (draw, feature, factor)."""
    edges = feature_graphs(draws, "draws")
    if edges.ndim < 3 or 0 in edges.shape[:-2]:
        raise ValueError(
            f"draws: want at least one draw, shape (..., feature, factor), got {edges.shape}; "
            "use graph[None] for a single graph"
        )
    return edges.reshape(-1, *edges.shape[-2:])
