"""Do models of a user's own get probabilities that are not theirs?

Each kind is one way to change what a model says: in a subclass, a mixin, on the object, by a hook, in a
prior, a likelihood, a transition or a regression. A tiny fit is made of it and its edge posterior is asked
for. "told": it is refused, or its numbers are scores and say why. "right": a change that leaves the density
as it is, and the probabilities are there; or the program is the user's own, and its density, looked at anew
(`samples_it`), is what was sampled.
"silent": probabilities of another model, or an error that does not come from a check of the package.
"""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from unittest import mock

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch.nn.utils import parametrize

import pyro_sparse as ps
from pyro_sparse import likelihoods
from pyro_sparse.inference.edges.program.model_program import model_program
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.models import DependencyVAE, LatentTransition, MultiTaskRegression, SparseDecoder
from pyro_sparse.nets.layers import BatchLinear
from pyro_sparse.priors import SpikeSlabLasso, SpikeSlabNormal, SpikeSlabPrior

G, K, ROWS = 6, 2, 40
CHAINS = {"sweeps": 14, "warm_up": 3, "num_draws": 5}
_ADVICE = ("model", "prior", "likelihood", "method", "fit", "neither", "simulate")


# ---- what is asked of a fit --------------------------------------------------------------------------------


def table(seed: int, kind: str = "normal") -> np.ndarray:
    """A table of two factors."""
    rng = np.random.default_rng(seed)
    f = rng.standard_normal((ROWS, K)) @ (rng.standard_normal((K, G)) * (rng.random((K, G)) < 0.7))
    x = f + 0.5 * rng.standard_normal(f.shape)
    if kind == "bernoulli":
        x = (x > 0).astype(float)
        x[:2] = [[0.0], [1.0]]
    return x


def some(seed: int) -> dict[str, str]:
    """Decoder by seed, so that every kind meets both."""
    return {"decoder": ("linear", "mlp")[seed % 5 == 4], "activation": ("relu", "tanh")[seed % 2]}


def fitted(model, seed: int, kind: str = "normal"):
    """A fit of a few steps; what it finds does not matter."""
    return ps.fit(model, table(seed, kind), restarts=1, steps=8, seed=seed, progress=False, holdout=0.0)


def asked(fit, **options) -> str:
    """What a fit whose model is not the chains' is told."""
    found = fit.edge_posterior(**options, **(CHAINS if type(fit).__name__ == "Fit" else {}))
    if found.attrs["edge_method"] == "program":
        return "right" if samples_it(fit) else "silent"
    if not found.attrs["is_score"]:
        return "silent"
    why = str(found.attrs.get("chosen_because", "")) or str(found.attrs["verdict"])
    said = bool(why) and ("Why scores" in found.attrs["verdict"])
    try:
        fit.edge_posterior(PROBABLE[type(fit).__name__], num_draws=2)
    except (ValueError, TypeError) as error:
        return "told" if said and str(error).split(":")[0] in _ADVICE else "silent"
    return "silent"


def samples_it(fit) -> bool:
    """Whether the engine's density changes from one point to another as that of the fit's own Pyro program.

    Values are written into a copy of the fit's model, of one restart and in double precision; constants
    cancel.
    """
    made = model_program(pick(fit.model, [fit.best]), fit.table)
    density = RecordedDensity(made.program, ps.Data(np.asarray(fit.table.x, dtype=float)), 2, seed=7)
    values, logs = density.values(density.start), density.logs(density.start)
    ours, theirs = [], []
    for c in range(2):
        model = copy.deepcopy(pick(fit.model, [fit.best])).double()
        model.prior.anneal(1.0)
        state = model.state_dict()
        for site, name in made.stands_for.items():
            state[name].copy_(
                values[site][c].reshape(-1).expand(state[name].numel()).reshape(state[name].shape)
            )
        if "correlation" in values:
            state["factor_cov"].copy_(values["correlation"][c] @ values["correlation"][c].mT)
        weights = values["W"][c].reshape(1, G, K) * model.permitted
        fixed = {"W": weights, "z": values["z"][c].reshape(1, ROWS, K)}
        program = poutine.condition(model.model, fixed)
        trace = poutine.trace(program).get_trace(fit.table.batch("cpu", torch.float64))
        trace.compute_log_prob()
        sites = "W", "z", "x"
        theirs.append(sum(float(trace.nodes[site]["log_prob"].sum()) for site in sites))
        ours.append(sum(float(logs[site][c].sum()) for site in sites))
    return bool(abs((ours[1] - ours[0]) - (theirs[1] - theirs[0])) < 1e-6 * (1 + abs(ours[0])))


PROBABLE = {"Fit": "mcmc", "TransitionFit": "parent_sets", "MultiTaskFit": "ep"}


def outcome(case: Callable[[], str]) -> str:
    """Of one case: an error counts as told if it is a check's, which names the argument first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case()
        except (ValueError, TypeError) as error:
            first = str(error).split(":")[0]
            return "told" if len(first) < 60 and " " not in first.split("(")[0] else "silent"
        except Exception:
            return "silent"


def of_class(kind: type, **more) -> Callable[[int], str]:
    """A subclass of the decoder, asked."""
    return lambda seed: outcome(lambda: asked(fitted(kind(G, K, **some(seed), **more), seed)))


def of_prior(make: Callable[[int], SpikeSlabPrior]) -> Callable[[int], str]:
    """A prior, asked."""
    return lambda seed: outcome(
        lambda: asked(fitted(SparseDecoder(G, K, prior=make(seed), **some(seed)), seed))
    )


def of_likelihood(
    make: Callable[[int], likelihoods.Likelihood], kind: str = "normal"
) -> Callable[[int], str]:
    """A likelihood, asked."""
    return lambda seed: outcome(
        lambda: asked(fitted(SparseDecoder(G, K, likelihood=make(seed), **some(seed)), seed, kind))
    )


def after_fit(change: Callable[[SparseDecoder], None]) -> Callable[[int], str]:
    """The package's model, changed once it is fitted."""

    def case(seed: int) -> str:
        fit = fitted(SparseDecoder(G, K, **some(seed)), seed)
        change(fit.model)
        return asked(fit)

    return lambda seed: outcome(lambda: case(seed))


def before_fit(change: Callable[[SparseDecoder], None]) -> Callable[[int], str]:
    """The package's model, changed before it is fitted."""

    def case(seed: int) -> str:
        model = SparseDecoder(G, K, **some(seed))
        change(model)
        return asked(fitted(model, seed))

    return lambda seed: outcome(lambda: case(seed))


# ---- decoders of one's own ---------------------------------------------------------------------------------


class OwnMeans(SparseDecoder):
    """Bent means."""

    def decode(self, z, weights):
        return 3 * (super().decode(z, weights) / 3).tanh()


class Doubled:
    """A mixin."""

    def decode(self, z, weights):
        return 2 * super().decode(z, weights)


class MixedIn(Doubled, SparseDecoder):
    """Its decode is the mixin's."""


class HeavyFactors(SparseDecoder):
    """Factors with long tails."""

    def factor_prior(self):
        one = self.factor_cov.new_ones(self.n_restarts, 1, self.n_factors)
        return dist.StudentT(3.0, 0 * one, one).to_event(1)


class TiedFactors(SparseDecoder):
    """Factors with a given correlation."""

    def factor_prior(self):
        cov = 0.8 + 0.2 * torch.eye(self.n_factors).to(self.factor_cov)
        return dist.MultivariateNormal(self.factor_cov.new_zeros(self.n_restarts, 1, self.n_factors), cov)


class WideCells(SparseDecoder):
    """Cells with long tails, said by the model."""

    def observation(self, z, weights, batch):
        cells = dist.StudentT(3.0, self.decode(z, weights), self.likelihood.noise_sd())
        return (cells if batch.mask is None else cells.mask(batch.mask)).to_event(1)


class ExtraTerm(SparseDecoder):
    """A program with a term more."""

    def model(self, batch):
        super().model(batch)
        pyro.factor("ridge", -self.weights.square().sum((1, 2)))


class Gain(SparseDecoder):
    """A decoder with a parameter more."""

    def build(self, feature_names):
        super().build(feature_names)
        self.gain = torch.nn.Parameter(torch.ones(self.n_restarts, 1, 1))

    def decode(self, z, weights):
        return self.gain * super().decode(z, weights)


class QuietGain(SparseDecoder):
    """The same through a property of the network, no method of the model being written anew."""

    def build(self, feature_names):
        super().build(feature_names)
        self.gain = torch.nn.Parameter(0.7 * torch.ones(self.n_restarts, 1, 1))
        self.decoder.register_forward_hook(lambda network, given, f: self.gain * f)


class OwnNetwork(SparseDecoder):
    """Another network in place of the decoder."""

    def build(self, feature_names):
        super().build(feature_names)
        sizes = self.n_restarts, self.n_features, self.n_factors
        self.decoder = Cubic(*sizes)


class Cubic(torch.nn.Module):
    """A line and its cube."""

    def __init__(self, n_restarts, n_features, n_factors):
        super().__init__()
        self.intercept = torch.nn.Parameter(torch.zeros(n_restarts, 1, n_features))
        self.slope = torch.nn.Parameter(torch.ones(n_restarts, n_features, 1))
        self.column_norm = 1.0

    def project(self):
        pass

    def rescale(self, scale):
        pass

    def start(self, slope, bent, unit=1.0):
        pass

    def forward(self, z, weights):
        line = self.intercept + z @ weights.mT
        return line + 0.1 * line**3


class Positive(SparseDecoder):
    """Weights that cannot be negative."""

    def project(self):
        super().project()
        with torch.no_grad():
            self.weights.clamp_(min=0.0)


class Steps(SparseDecoder):
    """The same after every step."""

    def after_step(self, batch, progress):
        super().after_step(batch, progress)
        with torch.no_grad():
            self.weights.clamp_(min=0.0)


class Twice(torch.nn.Module):
    """A parametrization."""

    def forward(self, weights):
        return 2 * weights


class Parametrized(SparseDecoder):
    """Weights that are computed from another parameter."""

    def build(self, feature_names):
        super().build(feature_names)
        parametrized(self)


def parametrized(model: SparseDecoder) -> None:
    """The same of a model, before or after its fit."""
    parametrize.register_parametrization(model, "weights", Twice(), unsafe=True)


class Intercepted(SparseDecoder):
    """A decode that attribute access makes."""

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        return (lambda z, weights: 2 * found(z, weights)) if name == "decode" else found


def partly(model: SparseDecoder) -> None:
    """A partial function that goes on asking the original."""
    model.decode = functools.partial(
        lambda z, w, original: 2 * SparseDecoder.decode(original, z, w), original=model
    )


def other_class(model: SparseDecoder) -> None:
    """Another class, put on the object."""
    model.__class__ = type("Other", (SparseDecoder,), {"beta": 3.0})


class Tempered(SparseDecoder):
    """A beta-VAE."""

    beta = 4.0


def bound(model: SparseDecoder) -> None:
    """A method of the copy."""
    model.decode = types.MethodType(lambda self, z, w: 2 * SparseDecoder.decode(self, z, w), model)


def closed_over(model: SparseDecoder) -> None:
    """A function that goes on asking the original."""
    plain = model.decode
    model.decode = lambda z, w: 2 * plain(z, w)


def swapped(model: SparseDecoder) -> None:
    """Another network after the fit."""
    model.decoder = Cubic(1, G, K)


def hooked(model: SparseDecoder) -> None:
    """A hook on the decoder."""
    model.decoder.register_forward_hook(lambda network, given, f: 2 * f)


def hooked_trunk(model: SparseDecoder) -> None:
    """A hook on the inner layer, or on a line."""
    part = getattr(model.decoder, "trunk", model.decoder)
    part.register_forward_pre_hook(lambda network, given: (2 * given[0], *given[1:]))


def warm(model: SparseDecoder) -> None:
    """The factors' divergence weighed by the object."""
    model.beta = 3.0


def other_cells(model: SparseDecoder) -> None:
    """Cells of another density, by the object."""
    model.likelihood.forward = lambda f, per_row=None: dist.Laplace(f, torch.ones_like(f))


def class_patched(seed: int) -> str:
    """The package's own class with another method in it, as a tracing tool may leave it."""
    plain = SparseDecoder.decode

    def case() -> str:
        fit = fitted(SparseDecoder(G, K, **some(seed)), seed)
        with mock.patch.object(SparseDecoder, "decode", lambda self, z, w: 1.5 * plain(self, z, w)):
            found = fit.edge_posterior(**CHAINS)
            if found.attrs["edge_method"] == "program":
                return "right" if samples_it(fit) else "silent"
        return "silent" if not found.attrs["is_score"] else "told"

    return outcome(case)


def global_hook(seed: int) -> str:
    """A hook on all modules."""

    def case() -> str:
        fit = fitted(SparseDecoder(G, K, **some(seed)), seed)
        kind = type(fit.model.decoder)
        add = torch.nn.modules.module.register_module_forward_hook
        handle = add(lambda module, given, found: 1.5 * found if type(module) is kind else None)
        try:
            found = fit.edge_posterior(**CHAINS)
            if found.attrs["edge_method"] == "program":
                return "right" if samples_it(fit) else "silent"
        finally:
            handle.remove()
        return "silent" if not found.attrs["is_score"] else "told"

    return outcome(case)


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

    def noise_prior(self):
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
    kind = (OwnMeans, HeavyFactors, MixedIn, Gain, Positive)[seed % 5]
    return refused(lambda: ps.calibrate.experiment(kind(G, K, decoder="linear"), n_rows=20))


def experiment_prior(seed: int) -> str:
    """The same of a prior."""
    kind = (OwnInclusion, OwnUpdate, OwnOdds, OwnHyper, OwnDensity)[seed % 5]
    return refused(
        lambda: ps.calibrate.experiment(SparseDecoder(G, K, prior=kind(), decoder="linear"), n_rows=20)
    )


def learned_scales(seed: int) -> str:
    """Scales of a prior's own densities cannot be learned, nor those of another model."""
    kind = (OwnMeans, TiedFactors, WideCells)[seed % 3]
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
    "own decode": of_class(OwnMeans),
    "decode by a mixin": of_class(MixedIn),
    "decode bound to the object": before_fit(bound),
    "decode closed over the object": before_fit(closed_over),
    "decode set after the fit": after_fit(closed_over),
    "decode patched in the class": class_patched,
    "another decoder network": of_class(OwnNetwork),
    "decoder swapped after the fit": after_fit(swapped),
    "hook on the decoder": after_fit(hooked),
    "hook inside the decoder": after_fit(hooked_trunk),
    "hook on all modules": global_hook,
    "a parameter more": of_class(Gain),
    "a parameter more, by a hook": of_class(QuietGain),
    "heavy-tailed factors": of_class(HeavyFactors),
    "correlated factors": of_class(TiedFactors),
    "own observation": of_class(WideCells),
    "own program": of_class(ExtraTerm),
    "parametrized weights": of_class(Parametrized),
    "weights parametrized after the fit": after_fit(parametrized),
    "decode by attribute access": of_class(Intercepted),
    "decode by a partial function": before_fit(partly),
    "class set on the object": after_fit(other_class),
    "own projection": of_class(Positive),
    "own step": of_class(Steps),
    "beta of the class": of_class(Tempered),
    "beta of the object": before_fit(warm),
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
    "likelihood set on the object": after_fit(other_cells),
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
