"""Probabilities are of the caller's own model, or they are scores and say why."""

from __future__ import annotations

import copy
import re

import numpy as np
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps
from benchmarks._faults_models import KINDS, run_kind
from pyro_sparse.inference.edges.mcmc.density_check import OtherProgram, check_program, program_differences
from pyro_sparse.likelihoods import Normal
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.models import LatentTransition, SparseDecoder
from pyro_sparse.nets.transition import SineTransition
from pyro_sparse.priors import SpikeSlabLasso, SpikeSlabNormal

pytestmark = pytest.mark.usefixtures("hurried_module")


SLOW = ("transition", "chain", "tasks", "dense")


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 2)) @ rng.standard_normal((2, 6)) + 0.5 * rng.standard_normal((40, 6))


@pytest.fixture(scope="module")
def fit(x):
    return fitted(x, decoder="linear")


def fitted(x, **model):
    return ps.fit(SparseDecoder(6, 2, **model), x, restarts=2, steps=8, seed=0, progress=False, holdout=0.0)


def few(fit):
    return fit.table.rows(np.arange(4)).batch().whole()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k for k in KINDS if not any(word in k for word in SLOW)])
def test_nothing_is_silent(kind):
    assert run_kind(kind, [5000])["silent"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k for k in KINDS if any(word in k for word in SLOW)])
def test_nothing_is_silent_of_sequences_and_tasks(kind):
    assert run_kind(kind, [5000])["silent"] == 0


class OwnStep(SparseDecoder):
    def project(self):
        super().project()


class OwnMeans(SparseDecoder):
    def decode(self, z, weights):
        return 3 * (super().decode(z, weights) / 3).tanh()


def test_the_verdict_the_summary_and_the_certificate_say_so(x):
    fit = ps.fit(OwnStep(6, 2, decoder="linear"), x, restarts=1, steps=8, progress=False)
    idata = fit.edge_posterior()
    assert idata.attrs["edge_method"] == "score" and idata.attrs["is_score"] == 1
    assert "Why scores: OwnStep.project is not the project that the chains sample." in idata.attrs["verdict"]
    assert ps.summary(idata).attrs["is_score"]
    with pytest.raises(ValueError, match="these edges are scores, not probabilities; OwnStep.project"):
        ps.identify(fit, idata=idata)
    with pytest.raises(ValueError, match="^model: OwnStep.project is not the project .* declares = Sparse"):
        fit.edge_posterior("mcmc")
    with pytest.raises(ValueError, match="^model: OwnMeans.decode"):
        ps.calibrate.experiment(OwnMeans(6, 2))


@pytest.mark.filterwarnings("ignore:X. counts of:RuntimeWarning")  # of rounded exponentials
@pytest.mark.parametrize(
    "model",
    [
        {"decoder": "linear"},
        {"decoder": "mlp", "prior": SpikeSlabNormal()},
        {"decoder": "linear", "likelihood": "poisson"},
        {"decoder": "mlp", "likelihood": "bernoulli", "prior": SpikeSlabLasso(column="ibp")},
        {"decoder": "linear", "likelihood": "multinomial", "prior": SpikeSlabLasso(eta="global")},
    ],
)
def test_the_packages_own_programs_do_not_differ(x, model):
    kind = model.get("likelihood", "normal")
    data = (
        x if kind == "normal" else (x > 0).astype(float) if kind == "bernoulli" else np.round(np.exp(x)) + 1
    )
    fit = fitted(data, **model)
    state = torch.random.get_rng_state()
    assert program_differences(fit.model, few(fit)) == []
    assert torch.equal(torch.random.get_rng_state(), state)


def test_no_look_changes_the_answer(fit, monkeypatch):
    asked = {"seed": 3, "sweeps": 14, "warm_up": 3, "num_draws": 5}
    with_check = fit.edge_posterior("mcmc", **asked)["edge_posterior"]["probability"].to_numpy()
    monkeypatch.setattr("pyro_sparse.inference.edges.mcmc.sampler.check_program", lambda fit, table: None)
    without = fit.edge_posterior("mcmc", **asked)["edge_posterior"]["probability"].to_numpy()
    assert np.array_equal(with_check, without)


def changed(fit, change):
    model = copy.deepcopy(fit.model)
    change(model)
    return program_differences(model, few(fit))


class WideNormal(Normal):
    """A declaration that is not true."""

    declares = Normal.declares

    def forward(self, f, per_row=NOTHING):
        return dist.Normal(f, 1.1 * self._sd())


class FlatOdds(SpikeSlabLasso):
    declares = SpikeSlabLasso.declares

    def edge_log_odds(self, weights):
        return 0.1 * weights


class FlatHyper(SpikeSlabLasso):
    declares = SpikeSlabLasso.declares

    def log_hyper(self):
        return torch.zeros(2)


class OtherSum(SpikeSlabLasso):
    declares = SpikeSlabLasso.declares

    def log_density(self, weights):
        return -weights.abs().sum((1, 2))


def put(part, kind):
    """The part becomes an object of another class."""
    return lambda model: setattr(getattr(model, part), "__class__", kind)


def bent(model):
    model.decode = lambda z, w: 1.01 * SparseDecoder.decode(model, z, w)


def wide(model):
    model.factor_prior = lambda: dist.Normal(torch.zeros(2, 1, 2), 1.01).to_event(1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (bent, "its decode is not"),
        (lambda model: setattr(model, "beta", 1.01), "its factors are not N"),
        (wide, "its factors are not N"),
        (put("likelihood", WideNormal), "its cells, given factors and weights"),
        (put("prior", FlatOdds), r"edge_log_odds\(\) are not the odds"),
        (put("prior", FlatHyper), r"log_hyper\(\) is not the Beta"),
        (put("prior", OtherSum), r"log_density\(\) is not"),
        (
            lambda model: setattr(model, "global_sites", lambda: more(model)),
            "a site 'more', which",
        ),
    ],
)
def test_each_part_of_the_program_is_looked_at(fit, change, words):
    """The safety net by itself, beneath declarations that are not true: a hundredth is enough."""
    (first, *_) = changed(fit, change)
    assert re.search(words, first)


def more(model):
    import pyro

    pyro.sample("more", dist.Normal(torch.zeros(2), 1.0))
    return SparseDecoder.global_sites(model)


@pytest.mark.slow(hurried=True)
def test_another_activation_is_another_program(x):
    fit = fitted(x, decoder="mlp")
    fit.model.decoder.activation = "tanh"
    with pytest.raises(OtherProgram, match="its decode is not the masked decoder that the chains have"):
        check_program(fit, fit.table)
    with pytest.warns(RuntimeWarning, match="edge_posterior took 'score': its decode is not"):
        found = fit.edge_posterior(sweeps=14)
    assert found.attrs["is_score"] == 1 and "Why scores: its decode is not" in found.attrs["verdict"]


class Line(SineTransition):
    """Inherits a Jacobian that is not its own."""

    def forward(self, inputs):
        return super().forward(inputs) ** 2


def test_the_jacobian_is_that_of_the_transition_itself():
    from pyro_sparse.inference.transition.transition_axes import transition_jacobian

    torch.manual_seed(0)
    model = LatentTransition(n_features=4, n_latents=2, hidden=8, units=8)
    model.setup(n_restarts=2)
    inputs = torch.randn(2, 5, model.n_inputs)
    closed = transition_jacobian(model, inputs)
    assert torch.equal(closed, model.transition.jacobian(inputs))
    mean = model.transition(inputs)
    model.transition.__class__ = Line
    by_chain_rule = 2 * mean.unsqueeze(-1) * closed
    torch.testing.assert_close(transition_jacobian(model, inputs), by_chain_rule, rtol=1e-4, atol=1e-5)
