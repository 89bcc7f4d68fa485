"""Sequences whose mechanisms no network of the transition is made of: six families, a set of each for a seed.

A helper of `transition --off-model`. Four latents, each driven by itself and by some of the others, behind a
smooth invertible map to ten features; 2,000 sequences of ten frames. Of each fit: how well its latents are
the true ones, whether it doubts itself, and edges called *present*, true and false.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._faults_sequences import judged

__all__ = ["FAMILIES", "figures", "mechanisms", "run", "simulated"]

Array = NDArray[np.float64]
GOOD = 0.95  # least MCC of a fit that found the latents
_SEQUENCES, _FRAMES, _LATENTS, _WIDTH, _NOISE = 2000, 10, 4, 10, 0.5
_UNITS = 60  # random features of a draw from a Gaussian process

# The mean of one latent, given its parents times weights of either sign.
Mechanism = Callable[[Array], Array]


def _rectifier(rng: np.random.Generator, d: int) -> Mechanism:
    sign = rng.choice([-1.0, 1.0], d)
    return lambda u: np.minimum(np.maximum(sign * u, 0).sum(1), 3) - 0.5


def _product(rng: np.random.Generator, d: int) -> Mechanism:
    return lambda u: 0.7 * u[:, 0] + (np.tanh(1.5 * np.prod(u[:, :2], 1)) + u[:, 2:].sum(1) if d > 1 else 0)


def _saturated(rng: np.random.Generator, d: int) -> Mechanism:
    offset = rng.normal(scale=0.5)
    return lambda u: 1.2 * np.tanh(1.5 * u.sum(1) + offset)


def _gated(rng: np.random.Generator, d: int) -> Mechanism:
    """The first parent passes as far as the others open the gate, as in a cell of an LSTM."""
    open_at = rng.normal(scale=0.5)
    return lambda u: 1.5 * np.tanh(u[:, 0]) / (1 + np.exp(-3 * (u[:, 1:].sum(1) + open_at)))


def _process(rng: np.random.Generator, d: int) -> Mechanism:
    """A draw from a Gaussian process with a squared exponential kernel of length 1."""
    w, phase = rng.normal(size=(d, _UNITS)), rng.uniform(0, 2 * np.pi, _UNITS)
    size = rng.normal(size=_UNITS) * np.sqrt(2 / _UNITS)
    return lambda u: np.cos(u @ w + phase) @ size


def _steps(rng: np.random.Generator, d: int) -> Mechanism:
    """Smooth steps at one or two thresholds of each parent."""
    at = rng.normal(scale=0.7, size=(2, d))
    return lambda u: 0.8 * (np.tanh(4 * (u - at[0])) - 0.7 * np.tanh(4 * (u + at[1]))).sum(1)


FAMILIES: dict[str, Callable[[np.random.Generator, int], Mechanism]] = {
    "rectifier": _rectifier,
    "product": _product,
    "saturated": _saturated,
    "gated": _gated,
    "gaussian process": _process,
    "steps": _steps,
}


def mechanisms(family: str, rng: np.random.Generator) -> tuple[NDArray[np.int_], Mechanism]:
    """Graph (target, source), and the mean (row, latent) of the latents after those of a row.

    Parameters
    ----------
    family : str
        A key of `FAMILIES`.
    rng : numpy.random.Generator
    """
    d = _LATENTS
    graph = np.eye(d, dtype=int)
    others = np.argwhere(~np.eye(d, dtype=bool))
    for i, j in rng.permutation(others)[: d + 1]:
        graph[i, j] = 1
    weight = rng.choice([-1, 1], (d, d)) * rng.uniform(0.6, 1.2, (d, d))
    parents = [np.r_[i, np.flatnonzero(graph[i] * (np.arange(d) != i))] for i in range(d)]
    of_latent = [FAMILIES[family](rng, len(sources)) for sources in parents]

    def mean(z: Array) -> Array:
        each = zip(of_latent, parents, weight, strict=True)
        return np.stack([m(z[:, sources] * w[sources]) for m, sources, w in each], 1)

    return graph, mean


def simulated(family: str, seed: int, n: int = _SEQUENCES) -> tuple[Array, Array, NDArray[np.int_]]:
    """Frames (sequence, time, feature), latents (sequence, time, latent), graph (target, source).

    Parameters
    ----------
    family : str
        A key of `FAMILIES`.
    seed, n : int
    """
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), 54])
    d = _LATENTS
    graph, mean = mechanisms(family, rng)
    z, path = rng.normal(size=(n, d)), []
    for t in range(20 + _FRAMES):
        z = mean(z) + _NOISE * rng.normal(size=z.shape)
        if t >= 20:
            path.append(z)
    z = np.stack(path, 1)
    z = (z - z.mean((0, 1))) / z.std((0, 1))
    first, second = rng.normal(size=(d, _WIDTH)) / np.sqrt(d), rng.normal(size=(_WIDTH, _WIDTH))
    h = z @ first
    x = (h + 0.6 * np.arcsinh(2 * h)) @ np.linalg.qr(second)[0]
    x = (x - x.mean((0, 1))) / x.std((0, 1))
    return x + 0.02 * rng.normal(size=x.shape), z, graph


def run(family: str, seed: int, quick: bool = False) -> dict[str, Any]:
    """Figures of one fit with every default.

    Parameters
    ----------
    family : str
    seed : int
    quick : bool
        A tenth of the sequences and a short fit: to see that it runs.
    """
    import pyro_sparse as ps

    x, z, graph = simulated(family, seed, 200 if quick else _SEQUENCES)
    short = {"restarts": 1, "steps": 200, "polish_steps": 50, "edge_steps": 50} if quick else {}
    model = ps.models.LatentTransition(x.shape[-1], z.shape[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(model, x, seed=seed, progress=False, **short)
        counts = judged(fit, x, z, graph)
    latents = fit.transform(x).reshape(-1, _LATENTS)
    return {
        "mcc": ps.metrics.mcc(z.reshape(latents.shape), latents).value,
        "flagged": any(finding.is_doubt for finding in fit.findings),
        "gap": float(fit.gap[fit.best]),
        "doubts": sorted({finding.kind for finding in fit.findings if finding.is_doubt}),
        **{name: float(counts.get(name, 0)) for name in COUNTS},
    }


COUNTS = ("present", "present_false", "claimed_false", "true", "true_present")


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is asked of all sets together.

    Parameters
    ----------
    rows : list of dict
        Of `run`.
    """
    missed = [row for row in rows if row["mcc"] < GOOD]
    return {
        "n": len(rows),
        "good": len(rows) - len(missed),
        "missed": len(missed),
        "missed_flagged": sum(row["flagged"] for row in missed),
        "good_flagged": sum(row["flagged"] for row in rows) - sum(row["flagged"] for row in missed),
        **{name: sum(row[name] for row in rows) for name in COUNTS},
    }
