"""What a fit can do, on an accelerator: the processor's numbers, files for either, nothing left on the other.

PYRO_SPARSE_TEST_DEVICE names another one than "cuda"; "cpu" tries the tests themselves.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.data.stores import open_rows
from pyro_sparse.datasets import dependency_data, transition_data
from pyro_sparse.inference.program import job
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.training.loop import Run
from pyro_sparse.models import SparseDecoder
from tests._programs import PROGRAMS, case, linear
from tests._tasks import quick_fit, tasks_on_latents
from tests.inference._captured import MODELS, run_of, trained
from tests.inference._quick import DATA, in_a_hurry, quick, same, small
from tests.inference._transitions import SMALL, model_of

__all__ = ["in_a_hurry"]  # a fixture for every test here

DEVICE = os.environ.get("PYRO_SPARSE_TEST_DEVICE", "cuda")
pytestmark = pytest.mark.skipif(
    DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs an accelerator"
)

LIKELIHOODS = ["normal", "bernoulli", "poisson", "negative_binomial", "multinomial", "categorical"]
RNG = np.random.default_rng(0)
PRIORS = [
    "spike_slab_lasso",
    "spike_slab_normal",
    "horseshoe",
    "regularised_horseshoe",
    "laplace",
    "ard_normal",
]
COUNTS = RNG.poisson(3.0, (120, 7)).astype(float)
CELLS = {
    "normal": DATA,
    "bernoulli": (RNG.random((120, 7)) < 0.5).astype(float),
    "poisson": COUNTS,
    "negative_binomial": COUNTS,
    "multinomial": COUNTS,
    "categorical": np.eye(7)[RNG.integers(7, size=120)],
}


def there(fit, device=DEVICE):
    return {value.device.type for value in fit.model.state_dict().values()} == {device}


# ---- tables
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("decoder", ["mlp", "linear"])
def test_a_table_is_fitted_and_read(likelihood, decoder, tmp_path):
    x = CELLS[likelihood]
    own = small(likelihood=likelihood, decoder=decoder)
    fit = quick(own, x, device=DEVICE)
    assert there(fit) and np.isfinite(fit.elbo).all()
    z = fit.transform(x[:9], refine=True)
    predicted = fit.predict(x[:9])
    fit.sample(4), fit.score(x)
    ps.identify(fit)
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    assert there(loaded, "cpu")
    np.testing.assert_allclose(loaded.predict(x[:9]), predicted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(loaded.transform(x[:9], refine=True), z, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior(prior):
    fit = quick(small(prior=prior), device=DEVICE)
    assert there(fit) and np.isfinite(fit.elbo).all()


def test_missing_cells_caps_and_constraints():
    x = DATA.copy()
    x[RNG.random(x.shape) < 0.1] = np.nan
    own = small(anchors={0: 0}, required=[(1, 1)], forbidden=[(2, 0)])
    fit = quick(own, x, device=DEVICE, n_factors_init=[1, 2, 2])
    assert there(fit) and (fit.weights[:, 2, 0] == 0).all()
    assert np.isfinite(fit.transform(x)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_likelihood_and_gradients_are_the_processors(dtype, activation, in_pieces, monkeypatch):
    monkeypatch.setattr("pyro_sparse.models.sparse_decoder.CHUNKED_THERE", 0 if in_pieces else 1e9)
    monkeypatch.setattr("pyro_sparse.distributions._sweep.CHUNK_BYTES_THERE", 1e6)
    torch.manual_seed(0)
    own = SparseDecoder(40, 4, hidden=200, encoder_hidden=20, activation=activation)
    own.setup(2, 100)
    own.to(dtype)
    x, z = torch.randn(100, 40, dtype=dtype), torch.randn(2, 100, 4, dtype=dtype)
    found = {}
    for device in ("cpu", DEVICE):
        own.to(device).zero_grad()
        rows = Batch(x.to(device), x.to(device), None, 100)
        value = own.observation(z.to(device), own.weights, rows).log_prob(rows.x).sum()
        value.backward()
        grads = {name: p.grad.cpu().clone() for name, p in own.named_parameters() if p.grad is not None}
        found[device] = value.detach().cpu(), grads
    near = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-2}
    torch.testing.assert_close(found[DEVICE][0], found["cpu"][0], **near)
    assert found[DEVICE][1].keys() == found["cpu"][1].keys()
    for name, grad in found["cpu"][1].items():
        torch.testing.assert_close(found[DEVICE][1][name], grad, **near)


@pytest.mark.skipif(DEVICE == "cpu", reason="processors record nothing")
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_steps_are_recorded_and_the_same(options, missing):
    run, plain = (run_of(options, DEVICE, missing) for _ in range(2))
    plain.captured = None
    for one, other in zip(trained(run, 6), trained(plain, 6), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    trained(run, 54)
    found = [*run.captured.by_kind.values()]
    assert "refused" not in found and len([each for each in found if each != "watched"]) >= 4


def test_a_table_read_by_rows():
    fit = quick(small(likelihood="poisson"), open_rows(sp.csr_matrix(COUNTS)), device=DEVICE)
    assert there(fit) and np.isfinite(fit.transform(open_rows(sp.csr_matrix(COUNTS)))).all()


def test_the_same_graph_as_on_the_processor():
    data = ps.datasets.sim1(n=300, seed=3)
    found = [
        ps.fit(SparseDecoder(7, 2), data.x, restarts=4, seed=0, steps=1000, device=device, progress=False)
        for device in ("cpu", DEVICE)
    ]
    for fit in found:
        assert ps.metrics.mcc(data.z, fit.transform(data.x)).value > 0.9
    np.testing.assert_allclose(found[1].heldout_elbo.max(), found[0].heldout_elbo.max(), atol=0.5)


@pytest.mark.parametrize("method", ["mcmc", "score", "auto"])
@pytest.mark.parametrize("decoder", ["mlp", "linear"])
def test_probabilities_of_edges(method, decoder):
    fit = quick(small(decoder=decoder), device=DEVICE)
    idata = fit.edge_posterior(method, num_draws=50)
    p = ps.edge_prob(idata)
    assert ((p >= 0) & (p <= 1)).all(axis=None)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial", "bernoulli", "multinomial"])
def test_chains_of_other_likelihoods(likelihood):
    fit = quick(small(decoder="linear", likelihood=likelihood), CELLS[likelihood], device=DEVICE)
    p = ps.edge_prob(fit.edge_posterior("mcmc", num_draws=50))
    assert ((p >= 0) & (p <= 1)).all(axis=None)


def test_counts_with_missing_cells_and_depths():
    x = np.where(RNG.random(COUNTS.shape) < 0.1, np.nan, COUNTS)
    for likelihood in (ps.likelihoods.Poisson, ps.likelihoods.NegativeBinomial):
        fit = quick(small(likelihood=likelihood(size_factors=True)), x, device=DEVICE)
        assert there(fit) and np.isfinite(fit.transform(x[:5])).all()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_rounded_steps(activation):
    fit = quick(small(activation=activation), device=DEVICE, dtype="bfloat16")
    assert there(fit) and fit.settings["dtype"] == "bfloat16"
    plain = quick(small(activation=activation), device=DEVICE)
    np.testing.assert_allclose(fit.heldout_elbo, plain.heldout_elbo, atol=0.1)


def test_size_factors():
    model = small(likelihood=ps.likelihoods.Poisson(size_factors=True))
    fit = quick(model, COUNTS, device=DEVICE)
    assert there(fit)
    fit.transform(COUNTS[:5]), fit.edge_posterior("mcmc", num_draws=30)


def test_a_fit_cut_off_goes_on_bit_for_bit(tmp_path, monkeypatch):
    where = {"device": DEVICE, "checkpoint": tmp_path / "run.pt", "checkpoint_every": 5}
    whole, advance, steps = quick(device=DEVICE), Run.advance, []

    def cut(run):
        steps.append(1)
        if len(steps) == 12:
            raise RuntimeError("cut off")
        advance(run)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="cut off"):
        patched.setattr(Run, "advance", cut)
        quick(**where)
    same(whole, quick(**where))


def test_processes_share_one_accelerator():
    same_as = quick(device=DEVICE)
    fit = quick(device=DEVICE, n_jobs=2)
    np.testing.assert_allclose(fit.heldout_elbo, same_as.heldout_elbo, atol=1e-3)


def test_the_report(tmp_path):
    fit = quick(device=DEVICE)
    fit.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    fit.summary()


# ---- the other models
def test_dependency_sparsity():
    data = dependency_data("cycle", 3, 9, n=300)
    fit = ps.fit(ps.models.DependencyVAE(9, 3), data.x, restarts=2, steps=60, device=DEVICE, progress=False)
    assert there(fit)
    fit.transform(data.x[:5], refine=True), fit.predict(data.x[:5]), fit.edge_posterior()
    ps.identify(fit)


def test_transitions(tmp_path):
    x, _, a = transition_data("ActionTimeDiag", n=200, d_z=3, d_x=6, T=4, seed=1000).part("train")
    fit = ps.fit(model_of(x, n_actions=3), x, actions=a, restarts=2, device=DEVICE, **SMALL)
    assert there(fit)
    z = fit.transform(x, actions=a)
    fit.edge_posterior("parent_sets"), fit.edge_posterior("gate_probability"), ps.identify(fit)
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt").with_data(x, actions=a)
    np.testing.assert_allclose(loaded.transform(x, actions=a), z, rtol=1e-3, atol=1e-3)


def test_tasks(tmp_path):
    x, y, _, _ = tasks_on_latents()
    fit = quick_fit(x, y, device=DEVICE)
    assert there(fit)
    for method in ("auto", "ep", "gibbs", "score"):
        fit.edge_posterior(method)
    z = fit.transform(x[0])
    fit.save(tmp_path / "fit.pt")
    np.testing.assert_allclose(ps.load(tmp_path / "fit.pt").transform(x[0]), z, rtol=1e-3, atol=1e-3)


# ---- programs
@pytest.mark.parametrize("name", PROGRAMS)
def test_densities_of_programs_and_their_derivatives(name):
    plain, density = RecordedDensity(*case(name), 2), RecordedDensity(*case(name), 2, device=DEVICE)
    there = {site: value.to(DEVICE) for site, value in plain.start.items()}
    for site, log_prob in density.logs(there).items():
        torch.testing.assert_close(log_prob.cpu(), plain.logs(plain.start)[site], rtol=1e-9, atol=1e-9)
    for key, block in plain.blocks.items():
        q = plain.pack(block, plain.start)
        for one, other in zip(
            density.curvature(density.blocks[key], q.to(DEVICE), there),
            plain.curvature(block, q, plain.start),
            strict=True,
        ):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_fitted_sampled_and_written(name, tmp_path):
    model, data = case(name)
    fit = ps.fit(model, data, restarts=2, sweeps=30, device=DEVICE, progress=False)
    assert {value.device.type for value in fit.position.values()} == {"cpu"}
    p = ps.edge_prob(fit.edge_posterior(sweeps=40, warm_up=20, num_draws=10, chains=2))
    assert ((p >= 0) & (p <= 1)).all(axis=None)
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt", model, data)
    np.testing.assert_array_equal(loaded.weights, fit.weights)


def test_a_program_has_the_processors_probabilities():
    rng = np.random.default_rng(0)
    weight = np.array([[0.9, 0], [0.8, 0], [0.7, 0], [0, 0.8], [0, -0.7], [0.2, 0.6]])
    data = ps.Data(rng.standard_normal((200, 2)) @ weight.T + 0.5 * rng.standard_normal((200, 6)))
    p = []
    for device in ("cpu", DEVICE):
        fit = ps.fit(ps.Program(linear, 2), data, restarts=4, sweeps=80, device=device, progress=False)
        p.append(ps.edge_prob(fit.edge_posterior(sweeps=400, num_draws=10)).to_numpy())
    p[1] = min((p[1], p[1][:, ::-1]), key=lambda other: np.abs(other - p[0]).sum())
    np.testing.assert_allclose(p[1], p[0], atol=0.15)


def test_a_fit_of_a_program_cut_off_goes_on_bit_for_bit(tmp_path, monkeypatch):
    model, data = case("linear")
    settings = {"restarts": 2, "sweeps": 30, "device": DEVICE, "progress": False}
    whole = ps.fit(model, data, **settings)
    where = {**settings, "checkpoint": tmp_path / "run.pt", "checkpoint_every": 5}
    advance, sweeps = job.ProgramGroup._advance, []

    def cut(group):
        sweeps.append(1)
        if len(sweeps) == 26:
            raise RuntimeError("cut off")
        advance(group)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="cut off"):
        patched.setattr(job.ProgramGroup, "_advance", cut)
        ps.fit(model, data, **where)
    resumed = ps.fit(model, data, **where)
    np.testing.assert_array_equal(resumed.weights, whole.weights)


class Saturating(SparseDecoder):
    """Means that saturate."""

    def decode(self, z, weights):
        return super().decode(z, weights).tanh()


def test_a_model_of_ones_own_is_sampled_by_the_engine():
    prior = ps.priors.SpikeSlabNormal(slab_scale=1.0, spike_scale=0.1)
    fit = quick(Saturating(7, 2, decoder="linear", prior=prior), device=DEVICE)
    idata = fit.edge_posterior(sweeps=30, warm_up=10, num_draws=8, chains=2)
    assert idata.attrs["edge_method"] == "program"


def test_tables_of_a_program_are_simulated_here_and_sampled_there():
    model, data = case("linear")
    experiment = ps.calibrate.program_experiment(
        model, data, 3, sweeps=60, warm_up=30, num_draws=20, device=DEVICE
    )
    assert experiment.probability.shape == experiment.edge.shape
    assert ((experiment.probability >= 0) & (experiment.probability <= 1)).all()
