"""Do models of a user's own get probabilities that are not theirs?

Each kind is one way to change what a model says: in a decoder (`_faults_decoders`), a prior, a likelihood, a
transition or a regression. A tiny fit is made of it and its edge posterior is asked for (`_faults_asked`,
where "told", "right" and "silent" are defined). A change that leaves the density as it is is "right" if the
probabilities are there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pyro
import pyro.distributions as dist
import torch

import pyro_sparse as ps
from benchmarks import _faults_decoders as decoders
from benchmarks._faults_asked import (
    CHAINS,
    G,
    K,
    after_fit,
    asked,
    before_fit,
    fitted,
    of_class,
    of_likelihood,
    of_prior,
    outcome,
    table,
)
from pyro_sparse import likelihoods
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.models import DependencyVAE, LatentTransition, MultiTaskRegression, SparseDecoder
from pyro_sparse.nets.layers import BatchLinear
from pyro_sparse.priors import SpikeSlabLasso, SpikeSlabNormal, SpikeSlabPrior

# ---- priors ------------------------------------------------------------------------------------------------


class OwnInclusion(SpikeSlabLasso):
    """Rates bent."""

    @property
    def inclusion(self):
        return self.eta**2


class OwnUpdate(SpikeSlabNormal):
    """Rates that stay."""

    def update(self, weights, prob=None):
        self.eta.fill_(0.5)


class OwnOdds(SpikeSlabLasso):
    """The density of the lasso, other odds."""

    def edge_log_odds(self, weights):
        return super().edge_log_odds(weights) - 2


class OwnDensity(SpikeSlabLasso):
    """A heavier density than slab and spike."""

    def distribution(self):
        return dist.Cauchy(torch.zeros_like(self.eta), torch.ones_like(self.eta))

    def edge_log_odds(self, weights):
        return torch.logit(self.eta) + weights.abs()


class OwnSum(SpikeSlabLasso):
    """Trains one thing and declares another."""

    def log_density(self, weights):
        return 0.5 * super().log_density(weights)


class OwnHyper(SpikeSlabLasso):
    """Another prior of the rates."""

    def log_hyper(self):
        return 3 * super().log_hyper()


class OnlyComponents(SpikeSlabLasso):
    """Other densities than those of its distribution."""

    def components(self):
        return dist.StudentT(3.0, 0.0, 1.0), dist.StudentT(3.0, 0.0, 0.01)


class HalfLadder(SpikeSlabLasso):
    """A ladder that ends half-way."""

    def anneal(self, progress):
        super().anneal(progress / 2)


class Point(SpikeSlabPrior):
    """A spike with all its mass at zero."""

    def components(self):
        return dist.Laplace(0.0, 1.0), dist.Delta(torch.tensor(0.0))


class OddSetup(SpikeSlabLasso):
    """A setup that takes its sizes by position only."""

    def setup(self, *sizes, allowed=None):
        super().setup(*sizes, allowed=allowed)


class ForgottenProperty(SpikeSlabLasso):
    """A method where the package reads a property."""

    def inclusion(self):
        return self.eta


def prior_on_object(model: SparseDecoder) -> None:
    """Other odds, by the object."""
    model.prior.edge_log_odds = lambda weights: torch.full_like(weights, 3.0)


# ---- likelihoods -------------------------------------------------------------------------------------------


class OwnRows(likelihoods.Normal):
    """Rows of half the weight."""

    def log_prob(self, f, x, mask=None, per_row=NOTHING):
        return 0.5 * super().log_prob(f, x, mask, per_row)


class OwnObservation(likelihoods.Bernoulli):
    """Rows that are more than their cells."""

    def observation(self, f, mask=None, per_row=NOTHING):
        return super().observation(f - f.mean(-1, keepdim=True), mask, per_row)


class OwnForward(likelihoods.Normal):
    """Cells of one's own: the chains ask for them, so these are probabilities of the user's own model."""

    def forward(self, f, per_row=NOTHING):
        return dist.StudentT(4.0, f, self._sd())


class OwnSlopes(likelihoods.Normal):
    """Trains on another objective than its density."""

    separable = False

    def __call__(self, f, per_row=NOTHING):
        return dist.Laplace(f, torch.ones_like(f))


# ---- sequences and tasks -----------------------------------------------------------------------------------


class Mechanism(torch.nn.Module):
    """A transition of one's own."""

    def __init__(self, n_restarts, n_in, n_out):
        super().__init__()
        self.line = BatchLinear(n_restarts, n_in, n_out)

    def forward(self, inputs):
        return self.line(inputs).tanh()


class OwnTransition(LatentTransition):
    """With a mechanism of its own, by names."""

    def setup(self, n_restarts=1, **sizes):
        super().setup(n_restarts, **sizes)
        self.transition = Mechanism(n_restarts, self.n_inputs, self.n_latents)


class OldSetup(LatentTransition):
    """A signature that lacks an argument."""

    def setup(self, n_restarts=1, n_samples=1000, missing=False):
        super().setup(n_restarts, n_samples, missing)
        self.transition = Mechanism(n_restarts, self.n_inputs, self.n_latents)


class OwnChain(LatentTransition):
    """Another density of the latents."""

    def chain(self, batch, gates):
        found, plain = super().chain(batch, gates), None
        plain = found.transition
        found.transition = lambda inputs: (plain(inputs)[0], plain(inputs)[1] + 0.3)
        return found


class WrongShape(LatentTransition):
    """A mechanism that returns one latent too many."""

    def setup(self, n_restarts=1, **sizes):
        super().setup(n_restarts, **sizes)
        self.transition = Mechanism(n_restarts, self.n_inputs, self.n_latents + 1)


def transition_hook(model: LatentTransition) -> None:
    """A hook on the transition."""
    model.transition.register_forward_hook(lambda network, given, mean: 0.5 * mean)


def sequences(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.standard_normal((20, 8, 4)), 1) * 0.3


def of_transition(kind: type, change: Callable | None = None) -> Callable[[int], str]:
    """A transition, asked."""

    def case(seed: int) -> str:
        model = kind(n_latents=2, hidden=8, units=8, gated_units=4)
        steps = {"steps": 6, "edge_steps": 3, "polish_steps": 0}
        fit = ps.fit(model, sequences(seed), restarts=1, seed=seed, progress=False, holdout=0.0, **steps)
        if change is not None:
            change(fit.model)
        return asked(fit)

    return lambda seed: outcome(lambda: case(seed))


class OwnHead(MultiTaskRegression):
    """Targets through a curve."""

    def model(self, batch):
        with pyro.plate("restart", 1, dim=-1):
            weights = self.prior()[0]
        mean = (self.latents(batch) @ weights[batch.index].unsqueeze(-1))[..., 0].tanh()
        with self._tasks(batch):
            variance = pyro.sample("variance", self.noise_prior())
            with pyro.plate("sample", batch.y.shape[1], dim=-1):
                pyro.sample("y", dist.Normal(mean, variance.sqrt()), obs=batch.y)


class OwnNoise(MultiTaskRegression):
    """Another prior of the noise."""

    def noise_prior(self, *_, **__):
        one = self.variance.new_ones(())
        return dist.InverseGamma(5 * one, one)


class MoreHeads(MultiTaskRegression):
    """With a network more."""

    def setup(self, n_tasks):
        super().setup(n_tasks)
        self.head = torch.nn.Linear(2, 2)


class OwnLatents(MultiTaskRegression):
    """Latents through a curve."""

    def latents(self, batch):
        return super().latents(batch).tanh()


def of_tasks(make: Callable[[], MultiTaskRegression]) -> Callable[[int], str]:
    """Regressions, asked."""

    def case(seed: int) -> str:
        rng = np.random.default_rng(seed)
        task = np.repeat(np.arange(5), 12)
        x, w = rng.standard_normal((60, 4)), rng.standard_normal((5, 4)) * (rng.random((5, 4)) < 0.5)
        y = (x * w[task]).sum(1) + 0.2 * rng.standard_normal(60)
        return asked(
            ps.fit(make(), x, y, task=task, restarts=1, steps=6, seed=seed, progress=False, holdout=0.0)
        )

    return lambda seed: outcome(lambda: case(seed))


class OwnDense(DependencyVAE):
    """Bent means of a dense decoder."""

    def decode(self, z, weights):
        return super().decode(z, weights).tanh()


def of_dense(seed: int) -> str:
    """Strengths of a decoder whose output means something else."""

    def case() -> str:
        fit = ps.fit(
            OwnDense(G, K, hidden=4, encoder_hidden=8),
            table(seed),
            restarts=1,
            steps=10,
            seed=seed,
            progress=False,
        )
        found = fit.edge_posterior()
        return "told" if found.attrs["is_score"] and "Why scores" in found.attrs["verdict"] else "silent"

    return outcome(case)


# ---- other ways to ask for chains --------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> str:
    """Whether something is refused before it samples."""

    def case() -> str:
        call()
        return "silent"

    return outcome(case)


def experiment(seed: int) -> str:
    """Calibration of a model that the chains do not sample."""
    kind = (decoders.OwnMeans, decoders.HeavyFactors, decoders.MixedIn, decoders.Gain, decoders.Positive)[
        seed % 5
    ]
    return refused(lambda: ps.calibrate.experiment(kind(G, K, decoder="linear"), n_rows=20))


def experiment_prior(seed: int) -> str:
    """The same of a prior."""
    kind = (OwnInclusion, OwnUpdate, OwnOdds, OwnHyper, OwnDensity)[seed % 5]
    return refused(
        lambda: ps.calibrate.experiment(SparseDecoder(G, K, prior=kind(), decoder="linear"), n_rows=20)
    )


def learned_scales(seed: int) -> str:
    """Scales of a prior's own densities cannot be learned, nor those of another model."""
    kind = (decoders.OwnMeans, decoders.TiedFactors, decoders.WideCells)[seed % 3]
    fit = fitted(kind(G, K, decoder="linear"), seed)
    return refused(lambda: fit.edge_posterior("mcmc", learn_scales=True))


# ---- what leaves the density as it is ----------------------------------------------------------------------


class Harmless(SparseDecoder):
    """Other defaults, another method, another way to start and to print."""

    note = "mine"

    def __init__(self, n_features=None, n_factors=None, decoder="linear", **rest):
        super().__init__(n_features, n_factors, decoder=decoder, **rest)

    def __repr__(self):
        return "mine"

    def strongest(self):
        return self.weights.abs().amax()


class Watched(SparseDecoder):
    """Writes a log after every step, and says that this is all."""

    declares = SparseDecoder.declares
    steps_seen = 0

    def after_step(self, batch, progress):
        super().after_step(batch, progress)
        self.steps_seen += 1


class NamedLasso(SpikeSlabLasso):
    """Other defaults."""

    def __init__(self):
        super().__init__(lambda0=30.0, b=2.0)

    def strength(self):
        return float(self.lambda1)


class Heavy(SpikeSlabPrior):
    """Densities of one's own, as the documentation has them."""

    def components(self):
        return dist.StudentT(3.0, 0.0, 0.5), dist.StudentT(3.0, 0.0, 0.01)


class NamedNormal(likelihoods.Normal):
    """A name and a start of its own."""

    name = "mine"

    def intercept(self, total, seen, exposed):
        return super().intercept(total, seen, exposed)


@functools.lru_cache(maxsize=4)
def plain_probability(seed: int) -> np.ndarray:
    """Of the package's model, linear."""
    fit = fitted(SparseDecoder(G, K, decoder="linear"), seed)
    return fit.edge_posterior("mcmc", seed=seed, **CHAINS)["edge_posterior"]["probability"].to_numpy()


def kept(make: Callable[[], SparseDecoder], same: bool = True) -> Callable[[int], str]:
    """Probabilities are there, and those of the package's model where the density is that."""

    def case(seed: int) -> str:
        found = fitted(make(), seed).edge_posterior(seed=seed, **CHAINS)
        if found.attrs["is_score"]:
            return "told"
        p = found["edge_posterior"]["probability"].to_numpy()
        return "right" if not same or np.array_equal(p, plain_probability(seed)) else "silent"

    return lambda seed: outcome(lambda: case(seed))


KINDS: dict[str, Callable[[int], str]] = {
    "own decode": of_class(decoders.OwnMeans),
    "decode by a mixin": of_class(decoders.MixedIn),
    "decode bound to the object": before_fit(decoders.bound),
    "decode closed over the object": before_fit(decoders.closed_over),
    "decode set after the fit": after_fit(decoders.closed_over),
    "decode patched in the class": decoders.class_patched,
    "another decoder network": of_class(decoders.OwnNetwork),
    "decoder swapped after the fit": after_fit(decoders.swapped),
    "hook on the decoder": after_fit(decoders.hooked),
    "hook inside the decoder": after_fit(decoders.hooked_trunk),
    "hook on all modules": decoders.global_hook,
    "a parameter more": of_class(decoders.Gain),
    "a parameter more, by a hook": of_class(decoders.QuietGain),
    "heavy-tailed factors": of_class(decoders.HeavyFactors),
    "correlated factors": of_class(decoders.TiedFactors),
    "own observation": of_class(decoders.WideCells),
    "own program": of_class(decoders.ExtraTerm),
    "parametrized weights": of_class(decoders.Parametrized),
    "weights parametrized after the fit": after_fit(decoders.parametrized),
    "decode by attribute access": of_class(decoders.Intercepted),
    "decode by a partial function": before_fit(decoders.partly),
    "class set on the object": after_fit(decoders.other_class),
    "own projection": of_class(decoders.Positive),
    "own step": of_class(decoders.Steps),
    "beta of the class": of_class(decoders.Tempered),
    "beta of the object": before_fit(decoders.warm),
    "prior's inclusion": of_prior(lambda seed: OwnInclusion()),
    "prior's update": of_prior(lambda seed: OwnUpdate()),
    "prior's odds": of_prior(lambda seed: OwnOdds()),
    "prior's odds on the object": after_fit(prior_on_object),
    "prior's distribution": of_prior(lambda seed: OwnDensity()),
    "prior's log_density": of_prior(lambda seed: OwnSum()),
    "prior's log_hyper": of_prior(lambda seed: OwnHyper()),
    "components without distribution": of_prior(lambda seed: OnlyComponents()),
    "ladder that ends half-way": of_prior(lambda seed: HalfLadder()),
    "point mass": of_prior(lambda seed: Point()),
    "prior's setup": of_prior(lambda seed: OddSetup()),
    "property forgotten": of_prior(lambda seed: ForgottenProperty()),
    "likelihood's log_prob": of_likelihood(lambda seed: OwnRows()),
    "likelihood's observation": of_likelihood(lambda seed: OwnObservation(), "bernoulli"),
    "likelihood's call": of_likelihood(lambda seed: OwnSlopes()),
    "likelihood set on the object": after_fit(decoders.other_cells),
    "own transition": of_transition(OwnTransition),
    "transition's setup": of_transition(OldSetup),
    "transition of a wrong shape": of_transition(WrongShape),
    "own chain": of_transition(OwnChain),
    "hook on the transition": of_transition(LatentTransition, transition_hook),
    "own head of tasks": of_tasks(lambda: OwnHead(n_latents=2)),
    "own noise of tasks": of_tasks(lambda: OwnNoise(n_latents=2)),
    "a network more of tasks": of_tasks(lambda: MoreHeads(n_latents=2)),
    "own latents of tasks": of_tasks(lambda: OwnLatents(n_latents=2)),
    "own prior of tasks": of_tasks(
        lambda: MultiTaskRegression(n_latents=2, prior=OwnInclusion(lambda0=100.0))
    ),
    "own dense decoder": of_dense,
    "calibration of a model": experiment,
    "calibration of a prior": experiment_prior,
    "scales of another model": learned_scales,
    "harmless subclass": kept(lambda: Harmless(G, K)),
    "declared subclass": kept(lambda: Watched(G, K, decoder="linear")),
    "harmless prior": kept(lambda: SparseDecoder(G, K, decoder="linear", prior=NamedLasso()), same=False),
    "own components": kept(lambda: SparseDecoder(G, K, decoder="linear", prior=Heavy()), same=False),
    "harmless likelihood": kept(
        lambda: SparseDecoder(G, K, decoder="linear", likelihood=NamedNormal()), same=False
    ),
    "own cells": kept(lambda: SparseDecoder(G, K, decoder="linear", likelihood=OwnForward()), same=False),
}


def run_kind(kind: str, seeds: Iterable[int]) -> dict[str, int]:
    """Count the outcomes of a kind.

    Parameters
    ----------
    kind : str
        Of `KINDS`.
    seeds : iterable of int
    """
    found = Counter(KINDS[kind](seed) for seed in seeds)
    return {name: found[name] for name in ("silent", "told", "right")}
