"""A model of the caller's own is tried before it is trained; Pyro's own tools run on what was fitted."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.nn.utils.parametrize
from pyro import poutine
from pyro.infer import SVI, Predictive, Trace_ELBO

import pyro_sparse as ps
from pyro_sparse.models import LatentTransition, MultiTaskRegression, SparseDecoder
from pyro_sparse.nets.layers import BatchLinear
from pyro_sparse.priors import SpikeSlabLasso, SpikeSlabPrior

pytestmark = pytest.mark.usefixtures("hurried_module")


RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2)) @ RNG.standard_normal((2, 6)) + 0.5 * RNG.standard_normal((40, 6))
SEQUENCES = np.cumsum(RNG.standard_normal((20, 8, 4)), 1) * 0.3
FAST = {"restarts": 1, "steps": 6, "progress": False, "holdout": 0.0}
SHORT = {**FAST, "edge_steps": 3, "polish_steps": 0}
SMALL = {"n_latents": 2, "hidden": 8, "units": 8, "gated_units": 4}


class Mechanism(torch.nn.Module):
    def __init__(self, n_restarts, n_in, n_out):
        super().__init__()
        self.line = BatchLinear(n_restarts, n_in, n_out)

    def forward(self, inputs):
        return self.line(inputs).tanh()


class OwnTransition(LatentTransition):
    more, batched = 0, True

    def setup(self, n_restarts=1, **sizes):
        super().setup(n_restarts, **sizes)
        copies = n_restarts if self.batched else 1
        self.transition = Mechanism(copies, self.n_inputs, self.n_latents + self.more)


class Gain(SparseDecoder):
    batched = True

    def build(self, feature_names):
        super().build(feature_names)
        self.gain = torch.nn.Parameter(torch.ones(self.n_restarts if self.batched else 1, 1, 1))

    def decode(self, z, weights):
        return self.gain * super().decode(z, weights)


def of(kind, **attributes):
    return type(kind.__name__, (kind,), attributes)


class Doubled(torch.nn.Module):
    def forward(self, weights):
        return 2 * weights


class Computed(SparseDecoder):
    """Weights that are a function of a parameter."""

    def build(self, feature_names):
        super().build(feature_names)
        torch.nn.utils.parametrize.register_parametrization(self, "weights", Doubled(), unsafe=True)


class Bare(SparseDecoder):
    def build(self, feature_names):
        super().build(feature_names)
        self.decoder = torch.nn.Linear(2, 6)


class NoSuper(SparseDecoder):
    def setup(self, n_restarts=1, n_samples=1000, missing=False, feature_names=None):
        self.n_restarts = n_restarts


class OnlyDense(OwnTransition):
    def chain(self, batch, gates):
        if gates is not None:
            raise RuntimeError("no gates here")
        return super().chain(batch, gates)


class TwoDensities(SpikeSlabLasso):
    def log_density(self, weights):
        return 0.5 * super().log_density(weights)


class Joint(TwoDensities):
    """One density, said twice."""

    def forward(self):
        half = self.distribution().expand(torch.Size(self.shape)).to_event(2)
        with poutine.scale(scale=0.5):
            return pyro.sample(self.site, half)


class Point(SpikeSlabPrior):
    def components(self):
        return dist.Laplace(0.0, 1.0), dist.Delta(torch.tensor(0.0))


class OldSetup(LatentTransition):
    def setup(self, n_restarts=1, n_samples=1000, missing=False):
        super().setup(n_restarts, n_samples, missing)


@pytest.mark.parametrize(
    ("model", "restarts", "error", "words"),
    [
        (of(Gain, batched=False)(6, 2), 2, ValueError, r"parameter 'gain' has shape \(1, 1, 1\) whatever"),
        (Bare(6, 2), 1, ValueError, "^model: its decoder, a Linear, has no 'intercept'; want one with"),
        (Computed(6, 2), 1, ValueError, "^model: its weights are computed, as by torch.nn.utils"),
        (SparseDecoder(6, 2, prior=TwoDensities()), 1, ValueError, "^prior: TwoDensities.log_density"),
        (
            SparseDecoder(6, 2, prior=Point()),
            1,
            ValueError,
            "^prior: the spike of Point.components.. is a Delta",
        ),
    ],
)
def test_tables_are_refused_before_training(model, restarts, error, words, monkeypatch):
    monkeypatch.setattr(
        "pyro_sparse.inference.training.loop.Run.advance", lambda self: pytest.fail("it trains")
    )
    with pytest.raises(error, match=words):
        ps.fit(model, X, **{**FAST, "restarts": restarts})


@pytest.mark.parametrize(
    ("kind", "restarts", "error", "words"),
    [
        (OldSetup, 1, TypeError, r"^model: OldSetup.setup\(.*'feature_names'; the package calls it as setup"),
        (
            of(OwnTransition, more=1),
            1,
            ValueError,
            r"^model: OwnTransition.transition has no derivative .* shape",
        ),
        (of(OwnTransition, batched=False), 2, ValueError, "parameter 'transition.line.weight' has shape"),
        (
            OnlyDense,
            1,
            ValueError,
            "the gated program of OnlyDense fails on 2 sequences: RuntimeError: no gates",
        ),
    ],
)
def test_transitions_are_refused_before_training(kind, restarts, error, words, monkeypatch):
    monkeypatch.setattr(
        "pyro_sparse.inference.training.loop.Run.advance", lambda self: pytest.fail("it trains")
    )
    with pytest.raises(error, match=words):
        ps.fit(kind(**SMALL), SEQUENCES, **{**SHORT, "restarts": restarts})


def test_setup_without_the_packages_is_named():
    with pytest.raises(ValueError, match=r"NoSuper.setup leaves 'n_samples' unset.*super\(\).setup"):
        ps.fit(NoSuper(6, 2), X, **FAST)


@pytest.mark.parametrize("part", ["model", "prior"])
def test_functions_that_hold_on_to_the_original(part):
    model = SparseDecoder(6, 2, decoder="linear")
    if part == "model":
        plain = model.decode
        model.decode = lambda z, weights: 2 * plain(z, weights)
    else:
        prior = model.prior
        prior.edge_log_odds = lambda weights: SpikeSlabLasso.edge_log_odds(prior, weights)
    with pytest.raises(ValueError, match=f"^{part}.*: the function set on it refers to the object itself"):
        ps.fit(model, X, **FAST)


def test_what_is_sound_is_trained():
    fit = ps.fit(Gain(6, 2, decoder="linear"), X, **{**FAST, "restarts": 2})
    assert fit.model.gain.shape == (2, 1, 1) and not torch.equal(fit.model.gain, torch.ones(2, 1, 1))
    ps.fit(SparseDecoder(6, 2, prior=Joint()), X, **FAST)


def test_a_mechanism_of_ones_own_ends_with_scores():
    fit = ps.fit(OwnTransition(**SMALL), SEQUENCES, **SHORT)
    idata = fit.edge_posterior()
    assert idata.attrs["edge_method"] == "gate_probability" and idata.attrs["is_score"] == 1
    assert "Why scores: its transition is a Mechanism, not a SineTransition." in idata.attrs["verdict"]
    with pytest.raises(ValueError, match="^model: its transition is a Mechanism, not a SineTransition"):
        fit.edge_posterior("parent_sets")


# ------------------------------------------------------------------------------------------- Pyro's own tools


@pytest.mark.parametrize("decoder", ["linear", "mlp"])
def test_predictive_with_the_guide(decoder):
    fit = ps.fit(SparseDecoder(6, 2, decoder=decoder), X, **{**FAST, "restarts": 2})
    drawn = Predictive(poutine.uncondition(fit.model.model), guide=fit.model.guide, num_samples=30)(
        fit.table.batch()
    )
    assert drawn["x"].shape == (30, 2, 40, 6)
    with torch.no_grad():  # each draw's cells lie around what its own factors say
        means = torch.stack(
            [fit.model.decode(z, fit.model.weights) for z in drawn["z"].reshape(30, 2, 40, 2)]
        )
    sd = fit.model.likelihood.noise_sd().detach()
    assert ((drawn["x"] - means) / sd).std().item() == pytest.approx(1.0, abs=0.05)


def test_predictive_and_svi_of_sequences():
    fit = ps.fit(LatentTransition(**SMALL), SEQUENCES, **SHORT)
    batch = fit.sequences.batch()
    drawn = Predictive(poutine.uncondition(fit.model.model), guide=fit.model.guide, num_samples=3)(batch)
    assert drawn["x"].shape == (3, 1, 160, 4)
    pyro.clear_param_store()
    losses = [
        SVI(fit.model.model, fit.model.guide, pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO()).step(batch)
        for _ in range(2)
    ]
    assert np.isfinite(losses).all()
    pyro.clear_param_store()


def test_predictive_of_tasks():
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(5), 12)
    x, w = rng.standard_normal((60, 4)), rng.standard_normal((5, 4))
    fit = ps.fit(MultiTaskRegression(n_latents=2), x, (x * w[task]).sum(1), task=task, **FAST)
    drawn = Predictive(poutine.uncondition(fit.model.model), guide=fit.model.guide, num_samples=3)(
        fit.tasks.batch()
    )
    assert drawn["y"].shape == (3, 5, 12)
