r"""Data sets whose graph is known because it is drawn, with all else, from the prior a method is told.

Rows:         y_t = F w_t + e,  w_tj ~ eta_j Laplace(l1) + (1 - eta_j) Laplace(l0),  eta_j ~ Beta(1, 2)
              or  w_tj = sd_t N(0, 1) or 0,  eta_t ~ Beta(1, 2)
Transitions:  z_ti = b_i + c_i' tanh(A_i (g_i * [z_(t-1), a_t]) + d_i) + e,  g_ij ~ Bernoulli(eta)
Decoders:     x_i = W z_i + e,  z_i ~ N(0, I); the curved ones are in `_calibration_decoders.py`

Noise variances are inverse gamma. Nothing is rescaled afterwards: a forecaster told these laws can be right
about every edge on average, and a benchmark of calibration can tell whether it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

ETA_PRIOR = (1.0, 2.0)
ROW_NOISE_PRIOR = (3.0, 2.0)
LINEAR_NOISE_PRIOR = (3.0, 1.0)
MLP_NOISE_PRIOR = (3.0, 0.3)
STEP_NOISE_PRIOR = (3.0, 0.2)
HIDDEN = 8
OUTER_VARIANCE, OFFSET_VARIANCE = 2.0, 0.25  # of a network's output weights together, and of its constant
BURN_IN = 50

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Data:
    """Data sets of one shape, and the graphs behind them.

    Attributes
    ----------
    edge : ndarray of bool, shape (set, row, column)
        The truth.
    given : dict
        What a method may see, by name; arrays have the data set as their first axis.
    free : ndarray of bool, shape (row, column)
        Edges that are asked about: not those of anchored rows.
    """

    edge: NDArray[np.bool_]
    given: dict[str, Any]
    free: NDArray[np.bool_] = field(default_factory=lambda: np.ones((1, 1), dtype=bool))

    def asked(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (set, row, column) at the edges that are asked about, (set, edge)."""
        return values[:, np.broadcast_to(self.free, values.shape[1:])]


@dataclass(frozen=True)
class RowLaw:
    """Size and prior of the regressions of one data set; tasks share features' inclusion rates."""

    features: int
    samples: int
    correlation: float
    spike_rate: float
    slab_rate: float = 1.0
    tasks: int = 10


def rows(law: RowLaw, n_sets: int, rng: np.random.Generator) -> Data:
    """Tasks with the features in common (AR(1) columns), no intercept, a noise variance of each task.

    `given`: ``features`` (set, task, sample, feature), ``targets`` (set, task, sample), ``law``, and for
    checks ``weight``.
    """
    x = _columns(law, n_sets, 1, rng)
    edge = rng.random((n_sets, law.tasks, law.features)) < rng.beta(
        *ETA_PRIOR, size=(n_sets, 1, law.features)
    )
    weight = rng.laplace(size=edge.shape) / np.where(edge, law.slab_rate, law.spike_rate)
    noise = _inverse_gamma(ROW_NOISE_PRIOR, (n_sets, law.tasks, 1), rng)
    return _regressions(law, np.repeat(x, law.tasks, axis=1), edge, weight, noise, rng)


def normal_rows(law: RowLaw, n_sets: int, rng: np.random.Generator) -> Data:
    """Tasks on their own: features, rate and noise of each; weights zero, or normal in units of the noise.

    `given` as in `rows`; the rates of `law` are not used.
    """
    x = _columns(law, n_sets, law.tasks, rng)
    edge = rng.random((n_sets, law.tasks, law.features)) < rng.beta(*ETA_PRIOR, size=(n_sets, law.tasks, 1))
    noise = _inverse_gamma(ROW_NOISE_PRIOR, (n_sets, law.tasks, 1), rng)
    weight = np.sqrt(noise) * rng.normal(size=edge.shape) * edge
    return _regressions(law, x, edge, weight, noise, rng)


def _columns(law: RowLaw, n_sets: int, tasks: int, rng: np.random.Generator) -> Array:
    """AR(1) columns."""
    apart = np.abs(np.subtract.outer(np.arange(law.features), np.arange(law.features)))
    lower = np.linalg.cholesky(law.correlation**apart)
    return rng.normal(size=(n_sets, tasks, law.samples, law.features)) @ lower.T


def _regressions(
    law: RowLaw, x: Array, edge: NDArray[np.bool_], weight: Array, noise: Array, rng: np.random.Generator
) -> Data:
    y = (x @ weight[..., None])[..., 0]
    y = y + np.sqrt(noise) * rng.normal(size=y.shape)
    return Data(edge, {"features": x, "targets": y, "weight": weight, "law": law})


@dataclass(frozen=True, eq=False)
class Networks:
    """Random one-layer networks of all latents of some data sets, each seeing its parents only."""

    edge: NDArray[np.bool_]
    inner: Array  # set, target, hidden, input
    inner_offset: Array
    outer: Array
    offset: Array
    noise: Array  # variances, (set, target)

    @classmethod
    def draw(cls, n_sets: int, latents: int, actions: int, rng: np.random.Generator) -> Networks:
        shape = (n_sets, latents, HIDDEN)
        return cls(
            edge=rng.random((n_sets, latents, latents + actions)) < rng.beta(*ETA_PRIOR, size=(n_sets, 1, 1)),
            inner=rng.normal(size=(*shape, latents + actions)),
            inner_offset=rng.normal(size=shape),
            outer=rng.normal(size=shape) * np.sqrt(OUTER_VARIANCE / HIDDEN),
            offset=rng.normal(size=shape[:2]) * np.sqrt(OFFSET_VARIANCE),
            noise=_inverse_gamma(STEP_NOISE_PRIOR, shape[:2], rng),
        )

    def step(self, inputs: Array, rng: np.random.Generator) -> Array:
        """The next latents (set, sequence, target) from inputs (set, sequence, latents and actions)."""
        seen = (self.inner * self.edge[:, :, None]).swapaxes(2, 3)  # set, target, input, hidden
        hidden = np.tanh(inputs[:, None] @ seen + self.inner_offset[:, :, None])
        mean = (hidden @ self.outer[..., None])[..., 0] + self.offset[..., None]
        return (mean + np.sqrt(self.noise)[..., None] * rng.normal(size=mean.shape)).swapaxes(1, 2)


def transitions(
    n_sets: int,
    rng: np.random.Generator,
    latents: int = 5,
    actions: int = 1,
    steps: int = 200,
    error: float = 0.0,
) -> Data:
    """One long sequence for each data set, its latents seen with an error in units of their deviations.

    `given`: ``inputs`` (set, step, past latents and actions), ``targets`` (set, step, latent).
    """
    nets = Networks.draw(n_sets, latents, actions, rng)
    z = rng.normal(size=(n_sets, 1, latents))
    inputs, targets = [], []
    for _ in range(BURN_IN + steps):
        inputs.append(np.concatenate([z, rng.normal(size=(n_sets, 1, actions))], -1))
        z = nets.step(inputs[-1], rng)
        targets.append(z)
    x, y = (np.concatenate(part[BURN_IN:], 1) for part in (inputs, targets))
    off = error * y.std(1, keepdims=True) * rng.normal(size=(n_sets, steps + 1, latents))
    x[..., :latents] += off[:, :-1]  # a frame is an outcome and then an input, with one error
    return Data(nets.edge, {"inputs": x, "targets": y + off[:, 1:]})


def two_frames(n_sequences: int, rng: np.random.Generator, latents: int = 5, actions: int = 1) -> Data:
    """One data set of many sequences of two frames, the first N(0, I), seen through a random smooth mixing.

    `given`: ``x`` (sequence, time, 2 latents), ``actions`` (sequence, time, action), ``z``.
    """
    from pyro_sparse.datasets import transition_data
    from pyro_sparse.datasets.transitions import transition_mixing

    nets = Networks.draw(1, latents, actions, rng)
    a = rng.normal(size=(n_sequences, 2, actions))
    first = rng.normal(size=(n_sequences, latents))
    second = nets.step(np.concatenate([first, a[:, 1]], -1)[None], rng)[0]
    z = np.stack([first, second], 1)
    seed = int(rng.integers(2**31))
    mixing = transition_data("TimeDiag", n=2, d_z=latents, d_x=2 * latents, seed=seed)
    x = transition_mixing(mixing, z)
    x = (x - x.mean((0, 1))) / x.std((0, 1))
    return Data(nets.edge, {"x": x + 0.01 * rng.normal(size=x.shape), "actions": a, "z": z})


def linear_decoder(
    n_sets: int,
    rng: np.random.Generator,
    features: int = 20,
    factors: int = 4,
    samples: int = 300,
    spike_rate: float = 50.0,
    slab_rate: float = 1.0,
    tails: float = np.inf,
) -> Data:
    """Sparse factor analysis; feature k is the anchor of factor k: a positive weight there, zero elsewhere.

    The noise is Student's t with `tails` degrees of freedom (infinite: normal), its scale as of the normal.
    `given`: ``x`` (set, sample, feature), ``anchors``, a list of (feature, factor), and for checks ``weight``
    and ``z``.
    """
    edge, weight = _loadings(n_sets, features, factors, spike_rate, slab_rate, rng)
    own = np.eye(factors, dtype=bool)
    weight[:, :factors] = own * rng.exponential(1 / slab_rate, size=(n_sets, factors, factors))
    z = rng.normal(size=(n_sets, samples, factors))
    noise = _inverse_gamma(LINEAR_NOISE_PRIOR, (n_sets, 1, features), rng)
    error = rng.normal(size=(n_sets, samples, features))
    if np.isfinite(tails):
        error /= np.sqrt(rng.chisquare(tails, size=error.shape) / tails)
    return _anchored(edge, weight, z, z @ weight.swapaxes(1, 2) + np.sqrt(noise) * error)


def _loadings(
    n_sets: int, features: int, factors: int, spike_rate: float, slab_rate: float, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], Array]:
    """Edges and weights (set, feature, factor); those of anchors are the identity, and 0 or 1."""
    edge = rng.random((n_sets, features, factors)) < rng.beta(*ETA_PRIOR, size=(n_sets, 1, factors))
    edge[:, :factors] = np.eye(factors, dtype=bool)
    return edge, rng.laplace(size=edge.shape) / np.where(edge, slab_rate, spike_rate)


def _anchored(edge: NDArray[np.bool_], weight: Array, z: Array, x: Array) -> Data:
    factors = edge.shape[-1]
    free = np.arange(edge.shape[1])[:, None] >= factors
    anchors = [(k, k) for k in range(factors)]
    return Data(edge, {"x": x, "anchors": anchors, "weight": weight, "z": z}, free)


def _inverse_gamma(prior: tuple[float, float], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return prior[1] / rng.gamma(prior[0], size=shape)
