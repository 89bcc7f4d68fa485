"""Columns against what a program draws before it has seen them: units, means, and what is left alone."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.inference.program.predictive import (
    ColumnMoments,
    compared_with_prior,
    prior_moments,
    unlike_in_mean,
    unlike_in_sd,
)
from tests._programs import case

ROWS, NAMES, FACTORS = 40, ["a", "b", "c", "d"], ["factor 1", "factor 2"]
NORMALS = {"slab": dist.Normal(0.0, 0.8), "spike": dist.Normal(0.0, 0.05)}


def program_of(cells=lambda d, mean, sd: dist.Normal(mean, sd).mask(d.seen), level=lambda d: 0.0):
    """Factor analysis without an intercept, or with a level of its own."""

    def program(d):
        with d.features:
            W = ps.edges("W", log_odds=-1.0, to=d.factors, **NORMALS)
            sd = pyro.sample("sd", dist.HalfNormal(1.0))
        with d.rows:
            z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        mean = z @ W.mT + level(d)
        with d.rows, d.features:
            pyro.sample("x", cells(d, mean, sd), obs=d.x)

    return ps.Program(program, n_factors=2)


def data_of(x=None):
    x = np.random.default_rng(1000).normal(size=(ROWS, 4)) if x is None else x
    return ps.Data((x - x.mean(0)) / x.std(0), feature_names=NAMES)


def scaled(data, scale=1.0, shift=0.0):
    return ps.Data(np.where(data.seen, data.x, np.nan) * scale + shift, feature_names=data.feature_names)


# ---- moments ----------------------------------------------------------------------------------------------
def test_moments_are_those_of_the_cells_that_are_there():
    x = np.random.default_rng(1001).normal(3.0, 2.0, size=(ROWS, 4))
    x[5:9, 1] = np.nan
    [found] = prior_moments(program_of(), ps.Data(x), draws=3).values()
    np.testing.assert_allclose(found.mean, np.nanmean(x, 0))
    np.testing.assert_allclose(found.sd, np.nanstd(x, 0))
    assert found.drawn_mean.shape == found.drawn_sd.shape == (3, 4)


def test_draws_have_the_moments_that_the_prior_implies():
    """With edges that are all there, noise of 1 and a level from N(3, .5): variance 1 + K .8^2."""

    def program(d):
        with d.features:
            W = ps.edges("W", log_odds=50.0, to=d.factors, **NORMALS)
            level = pyro.sample("level", dist.Normal(3.0, 0.5))
        with d.rows:
            z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT + level, 1.0), obs=d.x)

    [found] = prior_moments(ps.Program(program, 2), ps.Data(np.zeros((400, 50))), draws=40).values()
    assert found.drawn_mean.mean() == pytest.approx(3.0, abs=0.05)
    assert found.drawn_mean.std() == pytest.approx(0.5, abs=0.05)
    assert (found.drawn_sd**2).mean() == pytest.approx(1 + 2 * 0.8**2, rel=0.05)


def test_columns_that_a_site_masks_are_none_of_its():
    scores = torch.tensor([True, False, True, True])
    program = program_of(lambda d, mean, sd: dist.Normal(mean, sd).mask(d.seen & scores))
    [found] = prior_moments(program, data_of(), draws=2).values()
    assert np.isnan(found.sd).tolist() == (~scores).tolist()
    shifted = scaled(data_of(), shift=np.array([0.0, 9.0, 0.0, 0.0]))
    assert not compared_with_prior(program, shifted, FACTORS)


# ---- what is beyond ---------------------------------------------------------------------------------------
def moments_of(mean, sd, n=50):
    """Columns beside draws whose means and logarithms of standard deviations go from -.1 to .1."""
    drawn = np.linspace(-0.1, 0.1, n)[:, None] * np.ones(len(sd))
    return ColumnMoments(np.array(mean), np.array(sd), np.full(len(sd), 20.0), drawn, np.exp(drawn))


def test_a_column_is_told_by_itself_from_three_times_the_largest_on():
    found = unlike_in_sd(moments_of([0.0] * 8, [np.exp(0.1) * 3.1, np.exp(0.1) * 2.9, *[1.0] * 6]))
    assert np.flatnonzero(found).tolist() == [0]


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_columns_are_told_together_where_none_is_by_itself(sign):
    log_sd = np.random.default_rng(0).normal(size=(50, 20))
    draws = {"n_cells": np.full(20, 9.0), "drawn_mean": 0 * log_sd, "drawn_sd": np.exp(log_sd)}
    usual, unusual = np.full(20, 0.3), np.full(20, 1.5)
    unusual[7] = -1.0
    assert not unlike_in_sd(ColumnMoments(np.zeros(20), np.exp(sign * usual), **draws)).any()
    found = unlike_in_sd(ColumnMoments(np.zeros(20), np.exp(sign * unusual), **draws))
    assert np.flatnonzero(~found).tolist() == [7]


def test_a_mean_is_told_by_what_is_left_over_in_standard_deviations_of_its_column():
    found = unlike_in_mean(moments_of([0.5, 0.5, -0.5, 0.0], [1.0, 2.0, 1.0, 1.0]))
    assert found.tolist() == [True, False, True, False]
    many = moments_of([0.5, 0.95], [1.0, 1.0])._replace(
        n_cells=np.full(2, 2000.0)
    )  # 1/2000 beside .0035 drawn
    assert unlike_in_mean(many).tolist() == [False, True]


# ---- the doubt --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_units_that_the_prior_does_not_have_are_told(scale):
    [doubt] = compared_with_prior(program_of(), scaled(data_of(), scale), FACTORS)
    assert doubt.kind == "predictive" and doubt.is_doubt and doubt.columns == tuple(NAMES)
    assert doubt.message.startswith(f"a, b, c and 1 more: standard deviation {scale:g}, where the program")
    assert "z-score" in doubt.remedy
    assert set(doubt.edges) == {(name, factor) for name in NAMES for factor in FACTORS}


def test_a_mean_without_an_intercept_is_told_of_its_column_alone():
    [doubt] = compared_with_prior(program_of(), scaled(data_of(), shift=np.array([0.0, 3.0, 0, 0])), FACTORS)
    assert doubt.columns == ("b",) and doubt.message.startswith("b: mean 3, where the program expects -")
    assert {feature for feature, _ in doubt.edges} == {"b"} and "intercept" in doubt.remedy


def test_a_table_in_the_units_of_the_prior_is_not_told():
    assert not compared_with_prior(program_of(), data_of(), FACTORS)


@pytest.mark.parametrize(("width", "mean", "told"), [(1.0, 5.0, False), (0.1, 5.0, True), (1.0, 25.0, True)])
def test_an_intercept_learns_a_mean_if_its_prior_is_wide_enough(width, mean, told):
    """Of a mean of 5 over 40 rows N(0, 1) leaves 5/41, and N(0, .1) leaves 5 (1/40) / (1/40 + .01)."""

    def level(d):
        with d.features:
            return pyro.sample("b", dist.Normal(0.0, width))

    assert bool(compared_with_prior(program_of(level=level), scaled(data_of(), shift=mean), FACTORS)) == told


def test_a_parameter_has_the_value_that_the_fit_found():
    program = program_of(level=lambda d: pyro.param("b", torch.tensor(0.0)))
    shifted = scaled(data_of(), shift=5.0)
    assert compared_with_prior(program, shifted, FACTORS)
    assert not compared_with_prior(program, shifted, FACTORS, {"b": torch.tensor(5.0)})


def test_answers_and_programs_that_say_how_likely_data_are_are_left_alone():
    answers = program_of(lambda d, mean, sd: dist.Bernoulli(logits=mean + 0 * sd))
    assert not compared_with_prior(answers, ps.Data((data_of().x > 0) * 1.0), FACTORS)

    def level(d):
        pyro.factor("more", torch.tensor(0.0))
        return 0.0

    assert not compared_with_prior(program_of(level=level), scaled(data_of(), 100.0), FACTORS)


def test_a_program_that_fails_without_its_data_is_left_alone():
    class Observed(dist.Normal):
        def rsample(self, sample_shape=()):
            raise NotImplementedError("density only")

        def expand(self, batch_shape, _instance=None):
            return self if tuple(batch_shape) == tuple(self.batch_shape) else super().expand(batch_shape)

    program = program_of(lambda d, mean, sd: Observed(mean, sd))
    with pytest.raises(NotImplementedError, match="density only"):
        prior_moments(program, data_of())
    assert not compared_with_prior(program, scaled(data_of(), 100.0), FACTORS)


def test_the_random_stream_is_left_where_it_was():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again = (prior_moments(program_of(), data_of(), draws=2, seed=1)["x"] for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.drawn_sd, again.drawn_sd)


def test_a_fit_files_it_and_the_edges_are_open():
    program, data = case("linear")
    names = {"restarts": 2, "sweeps": 20, "seed": 0, "progress": False}
    assert "predictive" not in [finding.kind for finding in ps.fit(program, data, **names).findings]
    fit = ps.fit(program, scaled(data, 1000.0), **names)
    assert "predictive" in [finding.kind for finding in fit.findings]
    table = ps.summary(fit.edge_posterior(method="score"))
    assert set(table.verdict) == {"open"}
