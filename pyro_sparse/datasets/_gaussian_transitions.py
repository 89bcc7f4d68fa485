r"""What drives a latent: its own past, kept, and a small function of its parents; and the mixing into x.

Every family here is one hidden layer per target, over the parents only:
f_i(u) = sum_h v_ih psi(w_ih . u + b_ih), so that values and exact Jacobians need one formula. psi is sin (one
unit per parent: the published data), a LeakyReLU, cos with random frequencies (a Gaussian-process draw), or
the identity (linear: sufficient influence is violated).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from pyro_sparse.datasets.transition_graphs import streams, transition_graph

__all__ = [
    "MECHANISMS",
    "GaussianTransition",
    "Mechanism",
    "draw_mechanism",
    "draw_mixing",
    "growth",
    "leaky_relu",
    "mix",
]

MECHANISMS = ("sine", "leaky_relu", "gp")
SLOPE = 0.2
"""Slope of the LeakyReLU at negative values."""
UNITS = {"leaky_relu": 16, "gp": 64}
"""Hidden units of one target."""
_ROWS = 4_096  # at once: bounds the memory of the hidden layer


def leaky_relu(u: np.ndarray) -> np.ndarray:
    """u where positive, .2 u elsewhere."""
    return np.maximum(u, SLOPE * u)


_PSI: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "sine": (np.sin, np.cos),
    "leaky_relu": (leaky_relu, lambda u: np.where(u > 0, 1.0, SLOPE)),
    "gp": (np.cos, lambda u: -np.sin(u)),
    "linear": (lambda u: u, np.ones_like),
}


@dataclass(frozen=True, eq=False)
class Mechanism:
    """f_i(u) = sum_h out_ih psi(weight_ih . u + bias_ih), all targets at once.

    Parameters
    ----------
    kind : {"sine", "leaky_relu", "gp", "linear"}
        Which psi.
    weight : ndarray of shape (target, unit, parent)
    bias, out : ndarray of shape (target, unit)
    """

    kind: str
    weight: np.ndarray
    bias: np.ndarray
    out: np.ndarray

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """Values of shape (row, target) at `u` of shape (row, parent)."""
        psi = _PSI[self.kind][0]
        return np.concatenate([(psi(hidden) * self.out).sum(-1) for hidden in self._hidden(u)])

    def jacobian(self, u: np.ndarray) -> np.ndarray:
        """Derivatives of shape (row, target, parent) at `u` of shape (row, parent)."""
        slope = _PSI[self.kind][1]
        blocks = (slope(hidden) * self.out for hidden in self._hidden(u))
        return np.concatenate([np.einsum("nth,thp->ntp", s, self.weight, optimize=True) for s in blocks])

    def _hidden(self, u: np.ndarray):
        flat = self.weight.reshape(-1, self.weight.shape[-1]).T
        for block in np.array_split(u, max(1, -(-len(u) // _ROWS))):
            yield (block @ flat).reshape(len(block), *self.bias.shape) + self.bias


def draw_mechanism(kind: str, graph: np.ndarray, plain: bool, rng: np.random.Generator) -> Mechanism:
    """A mechanism whose target i depends on exactly the parents that row i of `graph` names.

    The random families are scaled to the sines: variance of order m/2 and slopes of order 1 for m parents.

    Parameters
    ----------
    kind : {"sine", "leaky_relu", "gp", "linear"}
    graph : ndarray of shape (target, parent)
    plain : bool
        Sines of frequency 1 and phase 0 (the diagonal sets) in place of (i + 3)/pi and i.
    rng : numpy.random.Generator

    Returns
    -------
    Mechanism
    """
    targets, parents = graph.shape
    if kind == "sine":
        index = np.arange(targets)
        # As published.
        frequency, phase = (np.ones(targets), 0.0 * index) if plain else ((index + 3) / np.pi, 1.0 * index)
        weight = frequency[:, None, None] * np.eye(parents)
        return Mechanism(kind, weight, np.repeat(phase[:, None], parents, 1), graph.astype(float))
    if kind == "linear":
        coefficient = rng.standard_normal(graph.shape) * graph
        return Mechanism(kind, coefficient[:, None], np.zeros((targets, 1)), np.ones((targets, 1)))
    units = UNITS[kind]
    count = graph.sum(1).clip(1)[:, None]
    spread = 1.5 if kind == "gp" else 1.0
    weight = spread * rng.standard_normal((targets, units, parents)) * (graph / np.sqrt(count))[:, None]
    size = (targets, units)
    bias = rng.uniform(0, 2 * np.pi, size) if kind == "gp" else rng.standard_normal(size)
    out = rng.standard_normal(size) * np.sqrt(graph.sum(1)[:, None] / units)
    return Mechanism(kind, weight, bias, out)


@dataclass(frozen=True, eq=False)
class GaussianTransition:
    r"""Normal distribution of the next latents: :math:`\mu = s (z + f(z)/2) + g(a)`, standard deviation.

    Parameters
    ----------
    time, action : Mechanism or None
        f and g; at least one.
    shrink : float
        s.
    noise : float or None
        Standard deviation; None for the k = 2 transition, whose variance is
        :math:`(0.1/p) \exp\sum_j G_{ij}\cos(w_i u_j + i)` with p parents in all.
    spread_time, spread_action : Mechanism or None
        The cosines of the k = 2 transition.
    """

    time: Mechanism | None
    action: Mechanism | None
    shrink: float
    noise: float | None
    spread_time: Mechanism | None
    spread_action: Mechanism | None

    def mean(self, z: np.ndarray | None, a: np.ndarray | None) -> np.ndarray:
        """Conditional mean of shape (row, d_z), from `z` (row, d_z) and `a` (row, d_a)."""
        total: np.ndarray | float = 0.0
        if self.time is not None and z is not None:
            total = total + self.shrink * (z + 0.5 * self.time(z))
        if self.action is not None and a is not None:
            total = total + self.action(a)
        return np.asarray(total)

    def sd(self, z: np.ndarray | None, a: np.ndarray | None) -> np.ndarray | float:
        """Standard deviation of the next latents: a number, or of shape (row, d_z) where k = 2."""
        if self.noise is not None:
            return self.noise
        mechanisms = [(m, u) for m, u in ((self.spread_time, z), (self.spread_action, a)) if m is not None]
        parents = sum(m.weight.shape[-1] for m, _ in mechanisms)
        exponent = sum(m(u) for m, u in mechanisms if u is not None)
        return np.sqrt(0.1 / parents * np.exp(exponent))


def growth(time: Mechanism | None) -> float:
    """Factor by which z + f(z)/2 multiplies a very large z, step after step, along the fastest direction.

    1 for bounded f; the spectral radius for linear f; iterating ``s (z + f(z)/2)`` with s times this below 1
    stays bounded.

    Parameters
    ----------
    time : Mechanism or None
        f; none counts as 0.

    Returns
    -------
    float
    """
    if time is None or time.kind in ("sine", "gp"):
        return 1.0
    far = 1e9
    u = np.random.default_rng(0).standard_normal((64, time.weight.shape[0]))
    logs = []
    for _ in range(200):
        u = u / np.linalg.norm(u, axis=1, keepdims=True)
        u = u + 0.5 * time(far * u) / far
        logs.append(np.log(np.linalg.norm(u, axis=1)))
    # The first half of the steps only turns u to the fastest direction.
    return float(np.exp(np.mean(logs[100:], axis=0).max()))


def draw_mixing(d_z: int, d_x: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Four matrices with orthonormal columns, of shape (d_x, d_z), then (d_x, d_x).

    The network they make has no biases, so scaling them would only scale x, which is standardised.

    Parameters
    ----------
    d_z, d_x : int
    rng : numpy.random.Generator

    Returns
    -------
    list of ndarray
    """
    widths = [d_z, d_x, d_x, d_x, d_x]
    return [np.linalg.qr(rng.standard_normal((to, of)))[0] for of, to in pairwise(widths)]


def mix(weights: list[np.ndarray], z: np.ndarray) -> np.ndarray:
    """W4 phi(W3 phi(W2 phi(W1 z))) along the last axis, phi a LeakyReLU: one-to-one.

    Parameters
    ----------
    weights : list of ndarray
        As from `draw_mixing`.
    z : ndarray of shape (..., d_z)

    Returns
    -------
    ndarray of shape (..., d_x)
    """
    first, *later = weights
    x = z @ first.T
    for weight in later:
        x = leaky_relu(x) @ weight.T
    return x


def transition_of(settings: Mapping[str, Any]) -> GaussianTransition:
    """The transition, rebuilt from the arguments that drew it."""
    s = settings
    graphs = transition_graph(s["name"], s["d_z"], s["seed"])
    rng = streams(s["seed"])["mechanism"]
    kind = s["mechanism"] if s["sufficient"] else "linear"
    plain = s["name"] in ("ActionDiag", "TimeDiag", "ActionTimeDiag")
    means, spreads = [], []
    for graph in graphs:
        means.append(None if graph is None else draw_mechanism(kind, graph, plain, rng))
        sines = None if graph is None or s["k"] == 1 else draw_mechanism("sine", graph, plain, rng)
        spreads.append(sines and replace(sines, bias=sines.bias + np.pi / 2))
    (action, time), (spread_action, spread_time) = means, spreads
    return GaussianTransition(time, action, s["shrink"], s["noise"], spread_time, spread_action)


def mixing_of(settings: Mapping[str, Any]) -> list[np.ndarray]:
    """The matrices of the decoder, rebuilt from the arguments that drew them."""
    decoder_seed = settings["decoder_seed"]
    rng = streams(settings["seed"] if decoder_seed is None else decoder_seed)["mixing"]
    return draw_mixing(settings["d_z"], settings["d_x"], rng)
