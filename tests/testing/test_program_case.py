"""The battery for programs: sound ones pass it, and each fault fails the check that is made for it."""

from __future__ import annotations

import importlib

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.testing import ProgramTestCase
from tests._programs import case


class TestLinear(ProgramTestCase):
    n_tables, sweeps, warm_up = 40, 800, 200

    def make(self):
        return case("linear")[0]

    def data(self):
        return ps.Data(np.zeros((60, 6)))

    @pytest.mark.slow
    def test_posterior_draws_rank_as_their_truths_do(self):
        super().test_posterior_draws_rank_as_their_truths_do()


class TestGated(TestLinear):
    def make(self):
        return case("gated")[0]


class Wrong(TestLinear):
    """The sweeps are those of another slab than that of the truths."""

    __test__ = False
    slab = 0.8

    def make(self):
        def program(d):
            with d.features:
                slab, spike = dist.Normal(0.0, self.slab), dist.Normal(0.0, 0.05)
                W = ps.edges("W", log_odds=-0.5, slab=slab, spike=spike, to=d.factors)
            with d.rows:
                z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
            with d.rows, d.features:
                pyro.sample("x", dist.Normal(z @ W.mT, 0.5), obs=d.x)

        return ps.Program(program, 2)


@pytest.mark.slow
def test_densities_and_slopes_that_differ_are_noticed(monkeypatch):
    battery = Wrong()
    battery.test_densities_are_those_of_the_program()
    battery.test_slopes_are_those_of_differences()
    logs, slope = RecordedDensity.logs, RecordedDensity.slope
    with monkeypatch.context() as patch:
        patch.setattr("pyro_sparse.inference.program.recorded.check_repeatable", lambda *given: None)
        patch.setattr(
            RecordedDensity, "logs", lambda self, u: {n: 1.01 * v for n, v in logs(self, u).items()}
        )
        with pytest.raises(AssertionError, match="^W: recorded"):
            battery.test_densities_are_those_of_the_program()
    with monkeypatch.context() as patch:
        patch.setattr(RecordedDensity, "slope", lambda *given: tuple(1.1 * part for part in slope(*given)))
        with pytest.raises(AssertionError, match="slope and differences are"):
            battery.test_slopes_are_those_of_differences()


def test_a_program_whose_features_are_not_independent_is_refused_by_name():
    class Tied(Wrong):
        def make(self):
            def program(d):
                with d.features:
                    slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.05)
                    W = ps.edges("W", log_odds=-0.5, slab=slab, spike=spike, to=d.factors)
                with d.rows:
                    z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
                with d.rows, d.features:
                    pyro.sample("x", dist.Normal(z @ (W / W.norm(dim=0)).mT, 0.5), obs=d.x)

            return ps.Program(program, 2)

    with pytest.raises(ValueError, match="W"):
        Tied().test_rows_and_features_are_independent_of_one_another_given_the_rest()


@pytest.mark.slow
def test_a_posterior_that_is_too_narrow_is_noticed(monkeypatch):
    """Draws pulled towards their mean."""
    module = importlib.import_module("pyro_sparse.calibrate.sbc")  # calibrate.sbc is the function
    sampled = module.program_experiment

    def narrowed(*args, **settings):
        experiment = sampled(*args, **settings)
        for draws in experiment.draws:
            draws["weight"] = draws["weight"].mean(0) + 0.4 * (draws["weight"] - draws["weight"].mean(0))
        return experiment

    monkeypatch.setattr(module, "program_experiment", narrowed)
    with pytest.raises(AssertionError, match="weight"):
        Wrong().test_posterior_draws_rank_as_their_truths_do()


def test_methods_that_are_missing_are_asked_for():
    with pytest.raises(NotImplementedError, match="must define make"):
        ProgramTestCase().make()
    with pytest.raises(NotImplementedError, match="must define data"):
        ProgramTestCase().data()
    with pytest.raises(TypeError, match="infer: want the Data that the program reads, got NoneType"):
        ps.calibrate.sbc(Wrong().make())
    with pytest.raises(TypeError, match="simulate: want a Program beside Data, got function"):
        ps.calibrate.sbc(lambda rng: None, Wrong().data())
