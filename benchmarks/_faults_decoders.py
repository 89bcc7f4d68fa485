"""Decoders that a user changed: in a subclass, on the object, by a hook (kinds of `_faults_models`)."""

from __future__ import annotations

import functools
import types
from unittest import mock

import pyro
import pyro.distributions as dist
import torch
from torch.nn.utils import parametrize

from benchmarks._faults_asked import CHAINS, G, K, fitted, outcome, samples_it, some
from pyro_sparse.models import SparseDecoder


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
