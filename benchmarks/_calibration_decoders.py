r"""Masked decoders whose truth is drawn from the prior that `polish` samples, their fits, and the methods.

Linear:  x_ij = w_j' z_i + e                                  (`_calibration_data.linear_decoder`)
Curved:  f_j(z) = c_j + u_j w_j' z + v_j' phi(b + B phi(A (w_j * z))), every layer from `DecoderPrior`;
         x_ij normal, Poisson(e^f), negative binomial of that mean, or Bernoulli(logit f)

Feature k is the anchor of factor k, which pins the factors down. One fit of a data set serves all methods;
their seconds are without it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks._calibration_data import (
    ETA_PRIOR,
    LINEAR_NOISE_PRIOR,
    MLP_NOISE_PRIOR,
    Array,
    Data,
    _anchored,
    _inverse_gamma,
    _loadings,
    linear_decoder,
)
from pyro_sparse.graphs.alignment import similarity

LONG = {"linear": (4000, 800, 100), "mlp": (900, 200, 50)}  # sweeps, warm-up, held at all edges
QUICK_LONG = {"linear": (240, 80, 12), "mlp": (60, 20, 5)}
QUICK_SWEEPS = {"linear": 120, "mlp": 40}
LOADING = 0.3
ODDS = (10.0, 0.3)  # of edges that are likely, and of the others, in `informed`


@dataclass(frozen=True)
class DecoderLaw:
    """Size, program and prior of the decoders of one setting.

    Attributes
    ----------
    tails : float
        Degrees of freedom of a linear decoder's noise.
    depth : float
        Standard deviation of the log depths of rows of counts; above 0 the fit takes them from totals.
    pinned : tuple of (feature, factor)
        Anchors beside those there are: wrong ones, of a law that a fit is told.
    told : DecoderLaw, optional
        What the fit takes for the law, where it is mistaken.
    """

    decoder: str = "mlp"
    activation: str = "tanh"
    likelihood: str = "normal"
    features: int = 12
    factors: int = 2
    samples: int = 200
    hidden: int = 10
    spike_rate: float = 10.0
    slab_rate: float = 0.7
    steps: int = 800
    restarts: int = 1
    tails: float = np.inf
    depth: float = 0.0
    pinned: tuple[tuple[int, int], ...] = ()
    told: DecoderLaw | None = None

    @property
    def noise_prior(self) -> tuple[float, float]:
        return LINEAR_NOISE_PRIOR if self.decoder == "linear" else MLP_NOISE_PRIOR

    def model(self, **changes: Any) -> Any:
        """The program, told its prior."""
        import pyro_sparse as ps

        shape, scale = self.noise_prior
        normal = self.likelihood == "normal"
        kind = ps.likelihoods
        counts = {
            "poisson": kind.Poisson(size_factors=self.depth > 0),
            "negative_binomial": kind.NegativeBinomial(size_factors=self.depth > 0),
            "bernoulli": kind.Bernoulli(),
        }
        own: dict[str, Any] = {
            "prior": ps.priors.SpikeSlabLasso(self.slab_rate, self.spike_rate, *ETA_PRIOR),
            "likelihood": kind.Normal(prior_shape=shape, prior_scale=scale)
            if normal
            else counts[self.likelihood],
            "decoder": self.decoder,
            "activation": self.activation,
            "hidden": self.hidden,
            "factor_cov": False,
            "anchors": {k: k for k in range(self.factors)} | dict(self.pinned),
        }
        return ps.models.SparseDecoder(self.features, self.factors, **(own | changes))


def decoders(law: DecoderLaw, n_sets: int, rng: np.random.Generator) -> Data:
    """Data sets, and under ``fits`` a fit of each."""
    if law.decoder == "linear" and law.likelihood == "normal":
        data = linear_decoder(
            n_sets, rng, law.features, law.factors, law.samples, law.spike_rate, law.slab_rate, law.tails
        )
    else:
        data = curved(law, n_sets, rng)
    start = time.process_time()
    fits = [_fit(law, x, int(rng.integers(2**31))) for x in data.given["x"]]
    data.given.update(law=law, fits=fits, fit_seconds=(time.process_time() - start) / n_sets)
    return data


def curved(law: DecoderLaw, n_sets: int, rng: np.random.Generator) -> Data:
    """Data sets of one law, without fits; `given` as in `linear_decoder`."""
    import torch

    from pyro_sparse.inference.edges.density.curves import Trunk
    from pyro_sparse.inference.edges.mcmc.sampler import DecoderPrior

    def tensor(values: Array) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.float32)

    edge, weight = _loadings(n_sets, law.features, law.factors, law.spike_rate, law.slab_rate, rng)
    weight[:, : law.factors] *= np.eye(law.factors)
    z = rng.normal(size=(n_sets, law.samples, law.factors))
    curve = DecoderPrior().curve(law.model())
    sizes = [(law.factors, law.hidden), (law.hidden, law.hidden), (1, law.hidden)]
    trunk = Trunk(*(tensor(rng.normal(size=(n_sets, *size))) for size in sizes))
    sd = curve.head_precision(torch.zeros(1)).numpy() ** -0.5
    head = tensor(sd * rng.normal(size=(n_sets, law.features, len(sd))))
    f = curve.value(tensor(z), tensor(weight), trunk, head).numpy().swapaxes(1, 2)
    if law.depth:
        f = f + law.depth * rng.normal(size=(*f.shape[:2], 1))
    if law.likelihood == "poisson":
        x = rng.poisson(np.exp(np.minimum(f, 12))).astype(float)
    elif law.likelihood == "negative_binomial":
        theta = rng.normal(size=(n_sets, 1, law.features)) ** -2.0  # the prior of extra_cv is half normal
        x = rng.poisson(np.exp(np.minimum(f, 12)) * rng.gamma(theta, 1 / theta, f.shape)).astype(float)
    elif law.likelihood == "bernoulli":
        x = (rng.random(f.shape) < 1 / (1 + np.exp(-f))).astype(float)
    else:
        noise = _inverse_gamma(law.noise_prior, (n_sets, 1, law.features), rng)
        x = f + np.sqrt(noise) * rng.normal(size=f.shape)
    return _anchored(edge, weight, z, _not_constant(x))


def _not_constant(x: Array) -> Array:
    """Counts may be all zero, which a fit refuses: one cell then says otherwise."""
    still = np.argwhere(np.ptp(x, axis=1) == 0)
    for s, j in still:
        x[s, 0, j] = 1 - x[s, 0, j] if x[s, 0, j] in (0, 1) else x[s, 0, j] + 1
    return x


def _fit(law: DecoderLaw, x: Array, seed: int, **changes: Any) -> Any:
    import pyro_sparse as ps

    own = {"restarts": law.restarts, "steps": law.steps, "standardise": False, "holdout": 0.0}
    return ps.fit((law.told or law).model(**changes), x, seed=seed, patience=None, progress=False, **own)


def _kind(law: DecoderLaw) -> str:
    return "linear" if law.decoder == "linear" and law.likelihood == "normal" else "mlp"


def polish(data: Data, quick: bool, seed: int, **options: Any) -> Array:
    """The default method of a fit, as a user calls it."""
    law = data.given["law"]
    short = {"sweeps": QUICK_SWEEPS[_kind(law)]} if quick else {}
    found = [
        fit.edge_posterior("mcmc", seed=seed + i, num_draws=10, **short, **options)
        for i, fit in enumerate(data.given["fits"])
    ]
    return np.stack([one["edge_posterior"]["probability"].to_numpy() for one in found])


def score(data: Data, quick: bool, seed: int) -> Array:
    """p* at the fitted weights."""
    return np.stack([fit.edge_score[fit.best] for fit in data.given["fits"]])


def long_chains(data: Data, quick: bool, seed: int) -> Array:
    """The same chains, many times as long, those of all data sets in step."""
    from pyro_sparse.inference.edges.mcmc.running import run_chains

    law, fits = data.given["law"], data.given["fits"]
    kernel, state = _together(fits, seed)
    sweeps, warm_up, held = (QUICK_LONG if quick else LONG)[_kind(law)]
    pivot = np.repeat(np.stack([fit.weights[fit.best] for fit in fits]), 2, axis=0)
    found = run_chains(
        kernel, state, sweeps=sweeps, warm_up=warm_up, held=held, dense=[False, True] * len(fits), seed=seed,
        pivot=pivot, groups=fits[0].model.alike_factors(), num_draws=1,
    )  # fmt: skip
    return found.prob.reshape(len(fits), 2, *found.prob.shape[1:]).mean(1)


def _together(fits: list[Any], seed: int) -> tuple[Any, Any]:
    """One kernel for the chains of several fits of one shape."""
    import torch

    from pyro_sparse.inference.edges.mcmc.sampler import DecoderPrior, chains_of

    pairs = [
        chains_of(fit, fit.table, [fit.best] * 2, [False, True], DecoderPrior(), seed + i)
        for i, fit in enumerate(fits)
    ]
    kernels, states = zip(*pairs, strict=True)

    def joined(parts: Any) -> Any:
        if parts[0] is None:
            return None
        if isinstance(parts[0], np.ndarray):
            return np.concatenate(parts)
        if isinstance(parts[0], torch.Tensor):
            return torch.cat(parts)
        return type(parts[0])(*(joined(part) for part in zip(*parts, strict=True)))

    state = joined(states)
    first = kernels[0]
    if hasattr(first, "cells"):
        x = torch.cat([k.cells.x.expand(2, -1, -1) for k in kernels])
        return replace(first, cells=replace(first.cells, x=x)), state
    x = np.concatenate([np.repeat(k.x, 2, axis=0) for k in kernels])
    return replace(first, x=x), state


def unpinned(n_sets: int, rng: np.random.Generator, correlated: bool = False) -> Data:
    """Dense linear loadings without one anchor, many rows: the data fix the space, hardly the axes.

    `correlated`: factors' correlations are drawn too, from all there are alike, and the fit learns them under
    that prior.
    """
    from pyro_sparse.priors import LKJ, SpikeSlabLasso

    law = DecoderLaw(decoder="linear", features=20, factors=4, samples=1000, spike_rate=50, restarts=4)
    shape = (n_sets, law.features, law.factors)
    edge = rng.random(shape) < rng.beta(8, 2, size=(n_sets, 1, law.factors))
    weight = rng.laplace(size=shape) / np.where(edge, law.slab_rate, law.spike_rate)
    z = rng.normal(size=(n_sets, law.samples, law.factors))
    if correlated:
        z = z @ np.linalg.cholesky(_correlations(n_sets, law.factors, rng)).swapaxes(1, 2)
    noise = _inverse_gamma(LINEAR_NOISE_PRIOR, (n_sets, 1, law.features), rng)
    x = z @ weight.swapaxes(1, 2)
    x = x + np.sqrt(noise) * rng.normal(size=x.shape)
    prior = SpikeSlabLasso(law.slab_rate, law.spike_rate, 8.0, 2.0)
    told = {"anchors": None, "prior": prior, "factor_cov": correlated and LKJ(1.0)}
    fits = [_fit(law, table, int(rng.integers(2**31)), **told) for table in x]
    return Data(edge, {"law": law, "fits": fits, "loading": weight / x.std(1)[..., None]})


def informed(n_sets: int, rng: np.random.Generator) -> Data:
    """Linear decoders without anchors; odds of edges say which five features each factor is likely to have.

    ``fits`` are told the odds, ``untold`` are fits of the same tables without them.
    """
    law = DecoderLaw(decoder="linear", features=20, factors=4, samples=150, restarts=2)
    likely = np.kron(np.eye(law.factors, dtype=bool), np.ones((law.features // law.factors, 1), dtype=bool))
    odds = np.where(likely, *ODDS)
    eta = rng.beta(*ETA_PRIOR, size=(n_sets, 1, law.factors))
    rate = eta * odds / (1 - eta + eta * odds)
    edge = rng.random(rate.shape) < rate
    weight = rng.laplace(size=edge.shape) / np.where(edge, law.slab_rate, law.spike_rate)
    z = rng.normal(size=(n_sets, law.samples, law.factors))
    noise = _inverse_gamma(LINEAR_NOISE_PRIOR, (n_sets, 1, law.features), rng)
    x = z @ weight.swapaxes(1, 2)
    x = x + np.sqrt(noise) * rng.normal(size=x.shape)
    seeds = rng.integers(2**31, size=n_sets).tolist()
    fits, untold = (
        [_fit(law, table, seed, anchors=None, edge_odds=told) for table, seed in zip(x, seeds, strict=True)]
        for told in (odds, None)
    )
    loading = weight / x.std(1)[..., None]
    return Data(edge, {"law": law, "fits": fits, "untold": untold, "loading": loading})


def untold(data: Data, quick: bool, seed: int) -> Array:
    """Probabilities of the fits that were told nothing, factors in the order of those they resemble."""
    return turned_polish(Data(data.edge, data.given | {"fits": data.given["untold"]}), quick, seed)


def _correlations(n: int, factors: int, rng: np.random.Generator) -> Array:
    """Correlation matrices, each as likely as any other, by rejection."""
    found: list[Array] = []
    upper = np.triu_indices(factors, 1)
    while len(found) < n:
        tried = np.eye(factors)
        tried[upper] = tried.T[upper] = rng.uniform(-1, 1, len(upper[0]))
        if np.linalg.eigvalsh(tried)[0] > 0:
            found.append(tried)
    return np.stack(found)


def salient(law: DecoderLaw, n_sets: int, rng: np.random.Generator) -> Data:
    """Data sets and fits as of `decoders`; an edge is a loading of at least `LOADING` in standard units."""
    data = decoders(law, n_sets, rng)
    size = np.abs(data.given["weight"]) / data.given["x"].std(1)[..., None]
    return replace(data, edge=size >= LOADING)


def salient_polish(data: Data, quick: bool, seed: int) -> Array:
    """Share of the draws in which a loading is as large."""
    import pyro_sparse as ps

    short = {"sweeps": QUICK_SWEEPS["linear"]} if quick else {}
    found = [
        ps.salient_edges(fit.edge_posterior("mcmc", seed=seed + i, **short), LOADING)
        for i, fit in enumerate(data.given["fits"])
    ]
    return np.stack([one["edge_posterior"]["probability"].to_numpy() for one in found])


def salient_fit(data: Data, quick: bool, seed: int) -> Array:
    """Whether the fitted loading is as large, 0 or 1."""
    return np.stack([np.abs(fit.weights[fit.best]) >= LOADING for fit in data.given["fits"]]).astype(float)


def _like(truth: Array, loading: Array) -> Array:
    """Which column of `loading` stands for each true one: without anchors nothing else tells."""
    return linear_sum_assignment(-np.abs(similarity(truth, loading)))[1]


def _turned(data: Data, quick: bool, seed: int, name: str) -> Array:
    short, found = {"sweeps": QUICK_SWEEPS["linear"]} if quick else {}, []
    for i, (fit, truth) in enumerate(zip(data.given["fits"], data.given["loading"], strict=True)):
        idata = fit.edge_posterior("mcmc", seed=seed + i, num_draws=50, **short)
        order = _like(truth, idata["posterior"]["weight"].to_numpy().mean((0, 1)))
        found.append(idata["edge_posterior"][name].to_numpy()[:, order])
    return np.stack(found)


def turned_polish(data: Data, quick: bool, seed: int) -> Array:
    """`polish`, its factors put in the order of the true ones whose loadings they resemble."""
    return _turned(data, quick, seed, "probability")


def turned_gap(data: Data, quick: bool, seed: int) -> Array:
    """How far the chains are apart at each edge: no probability, what "unresolved" is read from."""
    return _turned(data, quick, seed, "gap")


def turned_score(data: Data, quick: bool, seed: int) -> Array:
    """p* at the fitted weights, its factors in the order of the true ones that these resemble."""
    pairs = zip(data.given["fits"], data.given["loading"], strict=True)
    return np.stack(
        [fit.edge_score[fit.best][:, _like(truth, fit.weights[fit.best])] for fit, truth in pairs]
    )


METHODS = {"polish": polish, "long": long_chains, "map": score}
UNPINNED = {"polish": turned_polish, "gap": turned_gap, "map": turned_score}
INFORMED = {"polish": polish, "untold": untold, "map": score}
SALIENT = {"polish": salient_polish, "map": salient_fit}
SHORT_METHODS = {"polish": polish, "map": score}
MISTAKEN = {"polish": polish, "learned": partial(polish, learn_scales=True), "map": score}
