"""Ready models are Pyro programs: its algorithms and handlers take them as they are."""

from __future__ import annotations

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal

import pyro_sparse as ps

ROWS, RESTARTS = 30, 2
TABLES = {
    "linear": lambda: ps.models.SparseDecoder(6, 2, decoder="linear"),
    "curved": lambda: ps.models.SparseDecoder(6, 2, hidden=4, prior="laplace"),
    "counts": lambda: ps.models.SparseDecoder(6, 2, decoder="linear", likelihood="negative_binomial"),
    "dense": lambda: ps.models.DependencyVAE(6, 2),
}
pytestmark = pytest.mark.usefixtures("hurried_module")


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 6))
    made = {
        name: ps.fit(
            make(),
            np.round(np.exp(x)) if name == "counts" else x,
            restarts=RESTARTS,
            steps=10,
            progress=False,
        )
        for name, make in TABLES.items()
    }
    frames = rng.normal(size=(4, 12, 5))
    model = ps.models.LatentTransition(n_latents=2, hidden=4)
    made["transition"] = ps.fit(model, frames, steps=10, edge_steps=10, restarts=RESTARTS, progress=False)
    return made


@pytest.fixture(autouse=True)
def clean():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    yield
    pyro.clear_param_store()


def asked(fits, name):
    """Model and its data."""
    fit = fits[name]
    return fit.model, fit.sequences.batch() if name == "transition" else fit.table.batch()


def latent(model, batch):
    """Latent sites of a draw, and which are discrete."""
    nodes = poutine.trace(model.model).get_trace(batch).nodes
    return {
        name: node
        for name, node in nodes.items()
        if node["type"] == "sample" and not node["is_observed"] and type(node["fn"]).__name__ != "_Subsample"
    }


ALL = [*TABLES, "transition"]


@pytest.mark.parametrize("name", ALL)
def test_predictive_draws_from_the_guide_and_from_the_prior(fits, name):
    model, batch = asked(fits, name)
    sites = set(latent(model, batch))
    of_guide = Predictive(poutine.uncondition(model.model), guide=model.guide, num_samples=3)(batch)
    of_prior = Predictive(poutine.uncondition(model.model), num_samples=3)(batch)
    for drawn in (of_guide, of_prior):
        assert sites <= set(drawn)
        assert all(len(value) == 3 and torch.isfinite(value).all() for value in drawn.values())


@pytest.mark.parametrize("name", ALL)
def test_variational_inference_steps(fits, name):
    model, batch = asked(fits, name)
    loss = SVI(model.model, model.guide, pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO()).step(batch)
    assert np.isfinite(loss)
    sites = latent(model, batch)
    discrete = {site: n["value"] for site, n in sites.items() if n["fn"].support.is_discrete}
    real = poutine.condition(model.model, discrete)
    svi = SVI(real, AutoNormal(real), pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO())
    assert np.isfinite(svi.step(batch))


@pytest.mark.parametrize("name", TABLES)
def test_vectorised_particles_have_the_bound_of_one_after_another(fits, name):
    model, batch = asked(fits, name)
    with torch.no_grad():
        one = [Trace_ELBO().loss(model.model, model.guide, batch) for _ in range(60)]
        together = Trace_ELBO(num_particles=200, vectorize_particles=True, max_plate_nesting=2)
        loss = together.loss(model.model, model.guide, batch)
    error = np.std(one) * (1 / np.sqrt(60) + 1 / np.sqrt(200))
    assert loss == pytest.approx(np.mean(one), abs=4 * error)
    step = SVI(
        model.model, model.guide, pyro.optim.Adam({"lr": 1e-3}),
        Trace_ELBO(num_particles=3, vectorize_particles=True, max_plate_nesting=2),
    ).step(batch)  # fmt: skip
    assert np.isfinite(step)


@pytest.mark.parametrize("name", TABLES)
def test_nuts_runs(fits, name):
    model, batch = asked(fits, name)
    chain = MCMC(NUTS(model.model, max_tree_depth=3), num_samples=2, warmup_steps=2, disable_progbar=True)
    chain.run(batch)
    assert all(torch.isfinite(value).all() for value in chain.get_samples().values())


@pytest.mark.parametrize("name", ALL)
def test_sites_can_be_conditioned_on_and_intervened_on(fits, name):
    model, batch = asked(fits, name)
    site, node = next(iter(latent(model, batch).items()))
    conditioned = poutine.trace(poutine.condition(model.model, {site: node["value"]})).get_trace(batch)
    assert conditioned.nodes[site]["is_observed"] and torch.isfinite(conditioned.log_prob_sum())
    done = poutine.trace(poutine.do(model.model, {site: node["value"]})).get_trace(batch)
    assert torch.isfinite(done.log_prob_sum())


@pytest.mark.parametrize("name", ALL)
def test_a_picture_of_the_program_can_be_drawn(fits, name):
    pytest.importorskip("graphviz")
    model, batch = asked(fits, name)
    assert "x" in pyro.render_model(model.model, (batch,)).source
