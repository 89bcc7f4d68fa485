"""The parts of a program under Pyro's own algorithms: it is an ordinary Pyro program."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.inspect import get_model_relations
from scipy import special

from pyro_sparse.programs import Program, edges, factors, gates
from tests._programs import FACTORS, FEATURES, PROGRAMS, ROWS, case

EDGES = {"linear": "W", "grouped": "W", "gated": "g"}
LATENT = {
    "linear": {"eta", "W", "b", "sd", "z"},
    "grouped": {"rate", "B", "W", "z"},
    "gated": {"g", "v", "z"},
}


@pytest.fixture(autouse=True)
def clean():
    """No parameters of another test, and Pyro looks at shapes and supports."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    with pyro.validation_enabled(True):
        yield
    pyro.clear_param_store()


def continuous(name):
    """The program, gates conditioned on: Pyro's algorithms for real numbers do not draw them."""
    model, data = case(name)
    if name == "gated":
        return poutine.condition(model, data={"g": torch.ones(FEATURES, FACTORS)}), data
    return model, data


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_predictive_draws_all_sites(name, parallel):
    model, data = case(name)
    drawn = Predictive(model, num_samples=7, parallel=parallel)(data)
    assert set(drawn) == LATENT[name] | {"x"}
    assert drawn[EDGES[name]].shape == (7, 1, FEATURES, FACTORS)
    assert drawn["z"].shape == (7, ROWS, 1, FACTORS)
    for site in LATENT[name]:
        assert len(drawn[site].unique(dim=0)) > 1, f"{site} is the same in all draws"


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_predictive_simulates_tables(name, parallel):
    """Without the observation: cells of each draw follow from that draw's own factors and weights."""
    model, data = case(name)
    model = poutine.uncondition(model)
    drawn = Predictive(model, num_samples=300, parallel=parallel)(data)
    z = drawn["z"].squeeze(-2)
    weight = drawn[EDGES[name]].squeeze(1) * (drawn["v"].squeeze(1) if name == "gated" else 1)
    mean, seen = z @ weight.mT, torch.as_tensor(data.seen)
    if name == "linear":
        error = (drawn["x"] - mean - drawn["b"]) / drawn["sd"]
    elif name == "gated":
        error = (drawn["x"] - mean) / 0.5
    else:
        rate = mean.sigmoid()
        error = (drawn["x"] - rate) / (rate * (1 - rate)).sqrt().clamp(min=0.02)
    assert error[:, seen].mean().abs() < 0.06
    assert error[:, seen].std() == pytest.approx(1.0, abs=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_variational_bounds_rise(name, vectorize):
    model, data = continuous(name)
    guide = AutoNormal(model)
    particles = {"num_particles": 3, "vectorize_particles": True} if vectorize else {}
    loss = Trace_ELBO(max_plate_nesting=2, **particles)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), loss)
    losses = [svi.step(data) for _ in range(30)]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


@pytest.mark.parametrize("name", PROGRAMS)
def test_vectorised_particles_have_the_bound_of_one_after_another(name):
    """The mean over particles of the log weight, at the same guide, both within their Monte Carlo error."""
    model, data = continuous(name)
    guide = AutoNormal(model, init_scale=0.05)
    guide(data)
    one = [Trace_ELBO(max_plate_nesting=2).loss(model, guide, data) for _ in range(40)]
    together = Trace_ELBO(num_particles=400, vectorize_particles=True, max_plate_nesting=2)
    error = np.std(one) / np.sqrt(40) + np.std(one) / np.sqrt(400)
    assert together.loss(model, guide, data) == pytest.approx(np.mean(one), abs=4 * error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nuts_runs(name):
    model, data = continuous(name)
    kernel = NUTS(model, max_tree_depth=2)
    mcmc = MCMC(kernel, num_samples=3, warmup_steps=3, disable_progbar=True)
    mcmc.run(data)
    drawn = mcmc.get_samples()
    assert set(drawn) == LATENT[name] - {"g"}
    assert all(torch.isfinite(value).all() and len(value) == 3 for value in drawn.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_relations_of_sites_are_found(name):
    model, data = case(name)
    found = get_model_relations(model, (data,))
    assert found["observed"] == ["x"] and LATENT[name] | {"x"} == set(found["sample_sample"])
    assert {EDGES[name], "z"} <= set(found["sample_sample"]["x"])
    assert set(found["sample_sample"]["z"]) == ({"B"} if name == "grouped" else set())
    assert "x" in found["plate_sample"]["rows"] and EDGES[name] in found["plate_sample"]["features"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_picture_of_the_program_can_be_drawn(name):
    pytest.importorskip("graphviz")
    model, data = case(name)
    assert "features" in pyro.render_model(model, (data,)).source


@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_can_be_intervened_on(name):
    model, data = case(name)
    nothing = torch.zeros(FEATURES, FACTORS)
    done = poutine.do(poutine.uncondition(model), data={EDGES[name]: nothing})
    drawn = Predictive(done, num_samples=400, parallel=True, return_sites=["x", "z"])(data)
    centred = drawn["x"] - drawn["x"].mean(0), drawn["z"][..., 0] - drawn["z"][..., 0].mean(0)
    correlation = (centred[0] * centred[1]).mean(0) / (centred[0].std(0) * centred[1].std(0))
    assert correlation.abs().max() < 0.25  # five standard errors: cells know nothing of factors


@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_can_be_conditioned_on(name):
    model, data = case(name)
    weight = torch.ones(FEATURES, FACTORS)
    trace = poutine.trace(poutine.condition(model, data={EDGES[name]: weight})).get_trace(data)
    node = trace.nodes[EDGES[name]]
    assert node["is_observed"] and torch.equal(node["value"], weight)
    assert torch.isfinite(torch.as_tensor(trace.log_prob_sum()))


def test_forbidden_edges_move_no_cell_under_particles():
    permitted = torch.ones(FEATURES, FACTORS, dtype=torch.bool)
    permitted[2] = False

    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 5.0), dist.Normal(0.0, 0.5)
            W = edges("W", log_odds=3.0, slab=slab, spike=spike, to=d.factors, permitted=permitted)
            g = gates("g", log_odds=3.0, to=d.factors, permitted=permitted)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(FACTORS), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ (W * g).mT, 0.01))

    drawn = Predictive(Program(program, FACTORS), num_samples=50, parallel=True)(case("linear")[1])
    spread = drawn["x"].std((0, 1))
    assert spread[2] < 0.02 and spread[[0, 1, 3]].min() > 1
    assert drawn["g"][:, 0, 2].sum() == 0
    share = drawn["g"][:, 0, [0, 1, 3]].mean().item()
    assert share == pytest.approx(special.expit(3.0), abs=0.05)
