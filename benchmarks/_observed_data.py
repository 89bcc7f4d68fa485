"""Random systems of observed variables for the benchmark `observed`: whose past drives whom, and how.

They are no draws from the prior of `ObservedTransition`: effects are fixed functions (tanh, products,
thresholds, sines) with weights bounded from zero, the number of parents is drawn first, and half of the
systems have noise that is not normal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["System", "draw_system"]

_NOISES = ("normal", "laplace", "t", "exponential", "uniform")
_SHAPES = ("tanh", "product", "threshold", "sine")
_BURN = 200
_MOST_RADIUS = 0.9


class System(NamedTuple):
    """One series and its truth.

    Attributes
    ----------
    x : ndarray (time, variable)
    graph : ndarray of bool (lag, target, source)
    kind : {"linear", "nonlinear"}
    noise : str
    """

    x: NDArray[np.float64]
    graph: NDArray[np.bool_]
    kind: str
    noise: str


def draw_system(seed: int, d: int | None = None, n: int | None = None) -> System:
    """A system by its seed: even seeds linear, odd ones not.

    Parameters
    ----------
    seed : int
    d, n : int, optional
        Variables and steps; default drawn (3 to 20, and 100 to 2,000 on a log scale).
    """
    rng = np.random.default_rng([seed, 77])
    kind = "nonlinear" if seed % 2 else "linear"
    d = int(rng.integers(3, 21)) if d is None else d
    n = int(np.exp(rng.uniform(np.log(100), np.log(2000)))) if n is None else n
    lags = int(rng.integers(1, 4))
    noise = "normal" if rng.random() < 0.5 else str(rng.choice(_NOISES[1:]))
    while True:
        graph = _graph(rng, d, lags)
        step = _linear(rng, graph) if kind == "linear" else _nonlinear(rng, graph)
        if step is None:
            continue
        sd = rng.uniform(0.5, 1.5, d)
        x = np.zeros((lags + _BURN + n, d))
        shocks = _shocks(rng, noise, x.shape) * sd
        for t in range(lags, len(x)):
            x[t] = step(x[t - lags : t][::-1]) + shocks[t]
        x = x[-n:]
        if np.isfinite(x).all() and np.abs(x).max() < 1e3:
            return System(x * np.exp(rng.normal(size=d)) + rng.normal(size=d), graph, kind, noise)


def _graph(rng, d, lags):
    """Every variable has its own past at lag 1 with probability .7, and 0 to 3 other parents at some lag."""
    graph = np.zeros((lags, d, d), bool)
    for i in range(d):
        graph[0, i, i] = rng.random() < 0.7
        others = np.delete(np.arange(d), i)
        chosen = rng.choice(others, min(int(rng.integers(0, 4)), len(others)), replace=False)
        for j in chosen:
            graph[int(rng.integers(lags)), i, j] = True
    if lags > 1:  # the last lag is one that counts
        i, j = rng.integers(d, size=2)
        graph[lags - 1, i, j] = True
    return graph


def _linear(rng, graph):
    """Weights of .08 to .4; None where the system would not come to rest."""
    lags, d, _ = graph.shape
    weights = np.where(graph, rng.uniform(0.08, 0.4, graph.shape) * rng.choice((-1, 1), graph.shape), 0.0)
    companion = np.eye(lags * d, k=-d)
    companion[:d] = np.concatenate(list(weights), 1)
    if np.abs(np.linalg.eigvals(companion)).max() > _MOST_RADIUS:
        return None
    return lambda past: np.einsum("ltj,lj->t", weights, past)


def _nonlinear(rng, graph):
    """Own past by a line, the others by shapes; a product takes two parents."""
    d = graph.shape[1]
    parts = []
    for i in range(d):
        parents = [(int(lag), int(j)) for lag, j in np.argwhere(graph[:, i])]
        own = [(lag, j) for lag, j in parents if j == i]
        others = [(lag, j) for lag, j in parents if j != i]
        parts += [(i, "line", rng.uniform(0.1, 0.5), edge, None, 0.0) for edge in own]
        while others:
            shape = str(rng.choice(_SHAPES))
            if shape == "product" and len(others) < 2:
                shape = "tanh"
            edge = others.pop()
            second = others.pop() if shape == "product" else None
            weight = rng.uniform(0.25, 1.0) * rng.choice((-1, 1))
            parts.append((i, shape, weight, edge, second, rng.normal(scale=0.5)))

    def step(past):
        new = np.zeros(d)
        for i, shape, weight, (lag, j), second, shift in parts:
            u = past[lag, j]
            if shape == "line":
                value = u
            elif shape == "tanh":
                value = np.tanh(1.5 * u)
            elif shape == "threshold":
                value = float(u > shift) - 0.5
            elif shape == "sine":
                value = np.sin(2 * u + shift)
            else:
                value = np.tanh(u) * np.tanh(past[second]) * 1.5
            new[i] += weight * value
        return new

    return step


def _shocks(rng, noise, shape):
    """Unit variance."""
    if noise == "normal":
        return rng.normal(size=shape)
    if noise == "laplace":
        return rng.laplace(scale=np.sqrt(0.5), size=shape)
    if noise == "t":
        return rng.standard_t(4, size=shape) / np.sqrt(2)
    if noise == "exponential":
        return rng.exponential(size=shape) - 1
    return rng.uniform(-np.sqrt(3), np.sqrt(3), size=shape)
