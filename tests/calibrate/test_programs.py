"""Experiments on programs: simulation, all tables in one pass, and that a wrong answer is noticed."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.calibrate import program_experiment
from pyro_sparse.calibrate.programs import simulate_tables
from tests._programs import FACTORS, FEATURES, gated, linear, table


def test_tables_have_the_moments_of_the_program():
    """Of a feature: variance W W' + sd^2 and mean b, over tables standardised by their own draws."""
    tables = simulate_tables(ps.Program(linear, FACTORS), table(rows=400), 30, seed=1)
    standard = np.stack(
        [
            (t.x - t.sites["b"]) / np.sqrt((t.weight**2).sum(1) + t.sites["sd"] ** 2)
            for t in tables
        ]
    )  # fmt: skip
    np.testing.assert_allclose(standard.mean((0, 1)), 0, atol=0.05)
    np.testing.assert_allclose(standard.var((0, 1)), 1, atol=0.06)
    weights, edges = np.stack([t.weight for t in tables]), np.stack([t.edge for t in tables])
    assert weights[edges].std() == pytest.approx(0.8, abs=0.2) and np.abs(weights[~edges]).max() < 0.25


def test_gates_are_the_edges_of_a_table():
    [one] = simulate_tables(ps.Program(gated, FACTORS), table(), 1)
    np.testing.assert_array_equal(one.edge, one.weight == 1)
    np.testing.assert_array_equal(one.x.shape, (6, FEATURES))


def test_a_factor_statement_cannot_be_simulated():
    def scored(d):
        with d.features:
            W = ps.edges(
                "W", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.1), to=d.factors
            )
        with d.rows:
            z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows:
            pyro.factor("rows", -0.5 * ((d.x - z @ W.mT) ** 2).sum(-1, keepdim=True))

    with pytest.raises(ValueError, match=r"pyro\.factor|observed site"):
        simulate_tables(ps.Program(scored, FACTORS), table(), 1)


def with_two_sites(d):
    """Weights, what the second half of rows has more, and a parameter."""
    rate = pyro.param("rate", torch.tensor(0.7))
    k = torch.ones(d.n_factors)
    with d.features:
        slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.05)
        W = ps.edges("W", log_odds=-rate, slab=slab, spike=spike, to=d.factors)
        V = ps.edges("V", log_odds=0.0, slab=slab, spike=dist.Delta(torch.tensor(0.0)), to=d.factors)
    size = ps.deterministic("size", W.square().sum(-2), each="factor")
    with d.rows:
        z = ps.factors("z", dist.Normal(0 * k, 1.0))
    mean = z @ W.mT + d.half[..., None] * (z @ V.mT) + 0 * size.sum(-1)
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(mean, 0.3), obs=d.x)


def test_tables_know_the_edges_of_all_sites_and_what_is_named():
    data = ps.Data(np.zeros((60, FEATURES)), rows={"half": np.repeat([0.0, 1.0], 30)})
    [one] = simulate_tables(ps.Program(with_two_sites, FACTORS), data, 1)
    assert set(one.sites) == {"V", "z", "size"} and set(one.other_edges) == {"V"}
    np.testing.assert_array_equal(one.other_edges["V"], one.sites["V"] != 0)
    np.testing.assert_allclose(one.sites["size"], (one.weight**2).sum(0))


@pytest.mark.slow
def test_an_experiment_has_probabilities_of_the_edges_of_every_site():
    data = ps.Data(np.zeros((60, FEATURES)), rows={"half": np.repeat([0.0, 1.0], 30)})
    experiment = program_experiment(
        ps.Program(with_two_sites, FACTORS), data, 4, sweeps=200, warm_up=100, num_draws=20
    )
    assert experiment.site == "W" and set(experiment.other_probability) == {"V"}
    other = experiment.other_probability["V"]
    edge = np.stack([table.other_edges["V"] for table in experiment.tables])
    assert other.shape == edge.shape == (4, FEATURES, FACTORS)
    assert other[edge].mean() > other[~edge].mean() + 0.2  # factors in the order of the truth's
    first, same = experiment.reliability(), experiment.reliability("W")
    np.testing.assert_array_equal(first.probability, same.probability)
    assert not np.array_equal(experiment.reliability(site="V").probability, first.probability)
    with pytest.raises(ValueError, match="site: got 'z', wanted one that has edges: W, V"):
        experiment.reliability("z")
    assert set(experiment.coverage()) == {"weight", "V", "size"}  # a parameter has no draws of its own
    held = experiment.draws[0]["rate"]
    assert np.ptp(held) < 1e-12 and held[0] != 0.7


@pytest.mark.slow
def test_an_experiment_has_a_probability_for_every_edge_and_intervals_for_every_site():
    experiment = program_experiment(
        ps.Program(linear, FACTORS), table(rows=40), 3, sweeps=60, warm_up=30, num_draws=20
    )
    assert experiment.probability.shape == experiment.edge.shape == (3, FEATURES, FACTORS)
    assert set(experiment.coverage()) == {"weight", "eta", "b", "sd"}
    assert experiment.right_axes.shape == experiment.flagged.shape == (3,)
    again = program_experiment(
        ps.Program(linear, FACTORS), table(rows=40), 3, sweeps=60, warm_up=30, num_draws=20
    )
    np.testing.assert_array_equal(again.probability, experiment.probability)


@pytest.mark.slow
def test_probabilities_of_a_program_are_calibrated_and_those_of_another_prior_are_not():
    data, model = table(rows=100), ps.Program(linear, FACTORS)
    experiment = program_experiment(model, data, 40)
    assert experiment.reliability().passes
    bold = np.clip(experiment.probability * 3, 0, 1)
    group = np.broadcast_to(np.arange(40)[:, None, None], bold.shape)
    assert not ps.calibrate.reliability(bold.ravel(), experiment.edge.ravel(), group=group.ravel()).passes
    # Of 80 rates three standard errors of .9; weights, matched to the truth, cover a little more.
    assert all(0.8 < share < 0.99 for share in experiment.coverage().values())
