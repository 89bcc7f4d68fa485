"""What edges, gates, factors and samples return and note, with and without particles; and their programs."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Predictive
from scipy import special, stats

from pyro_sparse.distributions.edge_weights import NEVER
from pyro_sparse.programs import Program, deterministic, edges, factors, gates, sample
from pyro_sparse.programs.sites import DECLARED
from tests._programs import FACTORS, FEATURES, ROWS, linear, table

NORMALS = {"slab": dist.Normal(0.0, 1.0), "spike": dist.Normal(0.0, 0.1)}
VIEW = table().view(FACTORS)


def traced(program):
    """Its trace on the table, and what it returned."""
    trace = poutine.trace(program).get_trace(VIEW)
    trace.compute_log_prob()
    return trace, trace.nodes["_RETURN"]["value"]


def in_features(statement):
    def program(d):
        with d.features:
            return statement(d)

    return program


def test_edges_are_weights_of_each_feature_with_a_note():
    trace, W = traced(in_features(lambda d: edges("W", log_odds=-1.0, to=d.factors, **NORMALS)))
    node = trace.nodes["W"]
    assert W.shape == (FEATURES, FACTORS) and torch.equal(W, node["value"])
    assert node["infer"][DECLARED] == {"kind": "edges", "to": "factor"}
    rate, w = special.expit(-1.0), W.double().numpy()
    wanted = np.log(rate * stats.norm.pdf(w) + (1 - rate) * stats.norm.pdf(w, 0, 0.1)).sum(1)
    np.testing.assert_allclose(node["log_prob"], wanted, rtol=1e-5)


def test_edges_of_all_shapes_of_odds_and_scales_broadcast():
    slab = dist.Normal(0.0, torch.linspace(0.5, 1.0, FEATURES)[:, None])
    densities = {"slab": slab, "spike": dist.Delta(torch.tensor(0.0))}
    for log_odds in (0.3, torch.zeros(FACTORS), torch.zeros(FEATURES, 1), torch.zeros(FEATURES, FACTORS)):
        trace, W = traced(
            in_features(lambda d, o=log_odds: edges("W", log_odds=o, to=d.factors, **densities))
        )
        assert W.shape == (FEATURES, FACTORS) and trace.nodes["W"]["log_prob"].shape == (FEATURES,)


def test_forbidden_weights_are_zero_and_required_edges_are_there():
    permitted = torch.ones(FEATURES, FACTORS, dtype=torch.bool)
    permitted[1, 0] = False
    known = {"permitted": permitted, "required": ~permitted}
    _, W = traced(in_features(lambda d: edges("W", log_odds=0.0, to=d.factors, **known, **NORMALS)))
    assert W[1, 0] == 0 and (W[permitted] != 0).all()
    known = {"permitted": permitted, "required": permitted}
    allowed = in_features(lambda d: edges("W", log_odds=0.0, to=d.factors, **known, **NORMALS))
    odds = traced(allowed)[0].nodes["W"]["fn"].log_odds
    np.testing.assert_array_equal(odds, np.where(permitted, -NEVER, NEVER))


def test_gates_are_zero_or_one_with_a_note():
    torch.manual_seed(0)
    odds = torch.tensor([[-0.5, 1.0]]).expand(FEATURES, FACTORS)
    trace, g = traced(in_features(lambda d: gates("g", log_odds=odds, to=d.factors)))
    assert g.shape == (FEATURES, FACTORS) and set(g.unique().tolist()) <= {0.0, 1.0}
    assert trace.nodes["g"]["infer"][DECLARED] == {"kind": "gates", "to": "factor"}
    wanted = stats.bernoulli.logpmf(g.numpy().astype(int), special.expit(odds.double().numpy())).sum(1)
    np.testing.assert_allclose(trace.nodes["g"]["log_prob"], wanted, rtol=1e-5)


def test_a_gate_that_is_not_permitted_is_never_there():
    """Nor is its site, of which chains report the probability."""
    permitted = torch.ones(FEATURES, FACTORS, dtype=torch.bool)
    permitted[1, 0] = False
    trace, g = traced(in_features(lambda d: gates("g", log_odds=20.0, to=d.factors, permitted=permitted)))
    assert g[1, 0] == 0 and (g[permitted] == 1).all()
    assert trace.nodes["g"]["value"][1, 0] == 0
    np.testing.assert_array_equal(trace.nodes["g"]["fn"].base_dist.logits[1], [NEVER, 20.0])


@pytest.mark.parametrize("shape", [(FACTORS,), (ROWS, FACTORS)])
def test_factors_are_those_of_each_row(shape):
    def program(d):
        with d.rows:
            return factors("z", dist.Normal(torch.ones(shape), 2.0))

    trace, z = traced(program)
    assert z.shape == (ROWS, FACTORS) and len(z.unique()) == z.numel()
    assert trace.nodes["z"]["infer"][DECLARED] == {"kind": "factors", "axis": "factor"}
    wanted = stats.norm.logpdf(z.double().numpy(), 1, 2).sum(1)[:, None]
    np.testing.assert_allclose(trace.nodes["z"]["log_prob"], wanted, rtol=1e-5)


@pytest.mark.parametrize("batch", [(), (ROWS,)])
def test_factors_may_have_frames_between(batch):
    def program(d):
        with d.rows:
            return factors("z", dist.Normal(torch.zeros(*batch, 3, FACTORS), 1.0).to_event(2))

    trace, z = traced(program)
    assert z.shape == (ROWS, 3, FACTORS)
    assert trace.nodes["z"]["log_prob"].shape == (ROWS, 1)


def test_factors_of_one_number_are_refused():
    with pytest.raises(
        ValueError, match="z: its distribution is of a single number, wanted one for each factor"
    ):
        factors("z", dist.Normal(0.0, 1.0))


def test_samples_note_what_their_last_axis_is():
    density = dist.Normal(torch.zeros(3, FACTORS), 1.0).to_event(2)
    notes = {}
    for options in ({}, {"axes": "factor"}, {"each": "factor"}):
        trace, value = traced(lambda d, o=options: sample("B", density, **o))
        assert value.shape == (3, FACTORS)
        notes[next(iter(options), "")] = trace.nodes["B"]["infer"].get(DECLARED)
    assert notes == {
        "": None, "axes": {"kind": "axis", "axis": "factor"}, "each": {"kind": "each", "axis": "factor"},
    }  # fmt: skip


def test_samples_refuse_other_axes():
    density = dist.Normal(torch.zeros(2), 1.0).to_event(1)
    with pytest.raises(ValueError, match="axes: want 'factor' .* got 'row'"):
        sample("B", density, axes="row")
    with pytest.raises(ValueError, match="each: want 'factor' .* got 'column'"):
        sample("B", density, each="column")
    with pytest.raises(ValueError, match="each: a site rotates with the factors or has one number for each"):
        sample("B", density, axes="factor", each="factor")


def scale_of_all(d):
    tau = pyro.sample("tau", dist.HalfNormal(1.0))
    with d.features:
        slab, spike = dist.StudentT(3.0, 0.0, tau), dist.Normal(0.0, 0.1 * tau)
        return edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)


def scale_of_each_factor(d):
    tau = sample("tau", dist.HalfNormal(torch.ones(FACTORS)).to_event(1), each="factor")
    with d.features:
        slab = dist.Laplace(0.0, tau[..., None, :])
        return edges("W", log_odds=0.0, slab=slab, spike=dist.Delta(torch.tensor(0.0)), to=d.factors)


def odds_of_each_feature(d):
    with d.features:
        odds = pyro.sample("tau", dist.Normal(0.0, 1.0))
        return edges("W", log_odds=odds[..., None], to=d.factors, **NORMALS)


def gates_of_each_feature(d):
    with d.features:
        odds = pyro.sample("tau", dist.Normal(0.0, 3.0))
        return gates("W", log_odds=odds[..., None], to=d.factors)


@pytest.mark.parametrize(
    "program", [scale_of_all, scale_of_each_factor, odds_of_each_feature, gates_of_each_feature]
)
def test_sampled_odds_and_scales_are_each_particles_own(program):
    """The density of all particles in one pass is that of one after another."""
    torch.manual_seed(0)

    def whole(d):
        W = program(d)
        with d.rows:
            factors("z", dist.Normal(torch.zeros(FACTORS), 1.0))
        return W

    model = Program(whole, FACTORS)
    with pyro.validation_enabled(True):
        drawn = Predictive(model, num_samples=5, parallel=True, return_sites=["tau", "W", "_RETURN"])(table())
    assert drawn["_RETURN"].shape == (5, FEATURES, FACTORS) and drawn["W"].shape == (5, 1, FEATURES, FACTORS)

    def in_one_pass(d):
        with pyro.plate("particles", 5, dim=-3):
            return program(d)

    values = {name: drawn[name] for name in ("tau", "W")}
    together = poutine.trace(poutine.condition(in_one_pass, data=values)).get_trace(VIEW)
    together.compute_log_prob()
    for p in range(5):
        own = {"W": drawn["W"][p, 0], "tau": drawn["tau"][p].squeeze()}
        alone = poutine.trace(poutine.condition(program, data=own)).get_trace(VIEW)
        alone.compute_log_prob()
        found = together.nodes["W"]["log_prob"][p, 0]
        torch.testing.assert_close(found, alone.nodes["W"]["log_prob"], rtol=1e-4, atol=1e-4)


def test_a_program_runs_on_data_or_on_a_view_of_them():
    model = Program(linear, FACTORS)
    names = {"eta", "W", "b", "sd", "z", "x"}
    for data in (table(), VIEW):
        assert names <= set(poutine.trace(model).get_trace(data).nodes)
    assert repr(model) == "Program(linear, n_factors=2)"


def test_a_program_is_a_function_with_factors():
    with pytest.raises(TypeError, match="program: got a str, wanted a function of the data"):
        Program("linear", 2)
    with pytest.raises(ValueError, match="n_factors"):
        Program(linear, 0)


# ---- what is computed ------------------------------------------------------------------------------------
def test_what_is_computed_is_named_without_a_density():
    def program(d):
        v = sample("v", dist.Beta(torch.ones(FACTORS), 1.0).to_event(1))
        return deterministic("rate", v.cumprod(-1), each="factor")

    trace, rate = traced(program)
    node = trace.nodes["rate"]
    torch.testing.assert_close(rate, trace.nodes["v"]["value"].cumprod(-1))
    assert node["log_prob_sum"] == 0 and node["infer"]["_deterministic"]
    assert node["infer"][DECLARED] == {"kind": "each", "axis": "factor"}
    drawn = Predictive(program, num_samples=4)(VIEW)
    torch.testing.assert_close(drawn["rate"], drawn["v"].cumprod(-1))
    for wrong, message in (
        ({"each": "row"}, "each: want 'factor'"),
        ({"each": "factor", "axes": "factor"}, "each"),
    ):
        with pytest.raises(ValueError, match=message):
            deterministic("rate", torch.ones(FACTORS), **wrong)
