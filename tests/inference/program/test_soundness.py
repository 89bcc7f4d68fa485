"""Programs that say other things when they run again, read what is missing, or hide that elements depend."""

from __future__ import annotations

import itertools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.program.soundness import _patterns, elsewhere
from pyro_sparse.programs import Program, edges, factors
from tests._programs import FACTORS, FEATURES, ROWS, case, table

NORMALS = {"slab": dist.Normal(0.0, 1.0), "spike": dist.Normal(0.0, 0.1)}


def program_of(mean=lambda d, W, z: z @ W.mT, cells=lambda d, mean: dist.Normal(mean, 1.0).mask(d.seen)):
    """Factor analysis with a mean or cells of its own."""

    def program(d):
        with d.features:
            W = edges("W", log_odds=0.0, to=d.factors, **NORMALS)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        level = mean(d, W, z)
        with d.rows, d.features:
            pyro.sample("x", cells(d, level), obs=d.x)

    return program


def refused(program, words, chains=2):
    with pytest.raises(ValueError, match=f"program: .*{words}"):
        RecordedDensity(Program(program, FACTORS), table(), chains)


# ---- elements that depend -------------------------------------------------------------------------------
@pytest.mark.parametrize("chains", [1, 2, 7])
@pytest.mark.parametrize(("mother", "child"), [(1, 4), (4, 5), (5, 2), (2, 1)])
def test_one_row_that_depends_on_one_other_is_found(mother, child, chains):
    """Neither of them the first or the middle one."""
    index = torch.arange(ROWS)
    index[child] = mother
    program = program_of(lambda d, W, z: (z + 0.5 * z[index]) @ W.mT)
    refused(program, "one element of 'z' moves the terms of other rows, at site 'x'", chains)


def test_one_feature_that_inherits_edges_of_one_other_is_found():
    inherits = torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
    inherits[3, 1] = 0.5
    program = program_of(lambda d, W, z: z @ (W + inherits @ W).mT)
    refused(program, "one element of 'W' moves the terms of other features, at site 'x'")


def test_what_cancels_in_a_difference_is_found():
    """Of two rows that move together by the same step nothing would be left."""
    program = program_of(lambda d, W, z: (z + (z[[5]] - z[[3]])) @ W.mT)
    refused(program, "one element of 'z' moves the terms of other rows")


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 30])
def test_patterns_move_each_element_without_each_other_one(n):
    patterns = _patterns(n)
    assert len(patterns) <= 2 * np.ceil(np.log2(max(2, n)))
    for i, j in itertools.permutations(range(n), 2):
        assert (patterns[:, i] & ~patterns[:, j]).any()
    assert patterns.any(0).all()


def test_elsewhere_every_number_is_another_and_gates_are_open():
    density = RecordedDensity(*case("gated"), 2)
    there, again = elsewhere(density, density.start), elsewhere(density, density.start)
    assert (there["g"] == 1).all()
    for name, value in there.items():
        assert torch.equal(value, again[name])
        assert name == "g" or (value != density.start[name]).all()


# ---- programs that are not the same each time -----------------------------------------------------------
def test_random_numbers_of_numpy_are_refused():
    rng = np.random.default_rng(0)
    program = program_of(lambda d, W, z: z @ W.mT + rng.standard_normal())
    refused(program, "says two things of site 'x'; it draws random numbers outside of its sites")


def test_a_program_that_counts_its_runs_is_refused():
    runs = []

    def counted(d, W, z):
        runs.append(1)
        return z @ W.mT + 0.1 * len(runs)

    refused(program_of(counted), "or changes something that it keeps")


# ---- missing cells --------------------------------------------------------------------------------------
def test_medians_of_missing_cells_are_no_data():
    refused(
        program_of(cells=lambda d, mean: dist.Normal(mean, 1.0)), r"'x' reads missing cells, .*mask\(d.seen\)"
    )
    whole = table().with_table(table().x)
    object.__setattr__(whole, "seen", np.ones_like(whole.seen))
    RecordedDensity(Program(program_of(cells=lambda d, mean: dist.Normal(mean, 1.0)), FACTORS), whole, 1)


def test_missing_cells_may_be_left_out_in_any_way():
    def masked(d):
        with poutine.mask(mask=d.seen):
            program_of(cells=lambda d, mean: dist.Normal(mean, 1.0))(d)

    def cut_off(d):
        """Missing is below a limit of detection."""
        with d.features:
            W = edges("W", log_odds=0.0, to=d.factors, **NORMALS)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        cells = dist.Normal(z @ W.mT, 1.0)
        below = cells.cdf(torch.tensor(-1.0)).log()
        with d.rows, d.features:
            pyro.factor("x", torch.where(d.seen, cells.log_prob(d.x), below))

    RecordedDensity(Program(cut_off, FACTORS), table(), 1)
    refused(masked, "edges 'W' are inside of poutine.mask or poutine.scale")


# ---- supports -------------------------------------------------------------------------------------------
def with_site(draw):
    return program_of(lambda d, W, z: z @ W.mT + draw(d))


def test_bounds_that_depend_on_other_sites_are_refused():
    def share(d):
        upper = pyro.sample("upper", dist.HalfNormal(1.0))
        return pyro.sample("u", dist.Uniform(0.0, upper))

    for chains in (1, 3):
        refused(
            with_site(share), "bounds of site 'u' depend on other sites; draw a number with fixed", chains
        )
    fixed = with_site(lambda d: pyro.sample("u", dist.Uniform(-1.0, 2.0)))
    RecordedDensity(Program(fixed, FACTORS), table(), 2)


def test_a_program_with_other_sites_in_each_run_is_refused():
    runs = []

    def sometimes(d):
        runs.append(1)
        return pyro.sample(f"u{len(runs)}", dist.Normal(0.0, 1.0))

    refused(with_site(sometimes), "has not the same sites in each run", 1)


@pytest.mark.filterwarnings("ignore:.* was not registered in the param store")
def test_networks_whose_parameters_the_program_does_not_hold_are_refused():
    """`pyro.module` names parameters, and the network computes with its own, or has none the second time."""

    def with_net(**options):
        net = torch.nn.Linear(1, 1).double()

        def site(d):
            return pyro.module("net", net, **options)(torch.ones(1)).sum()

        return program_of(mean=lambda d, W, z: z @ W.mT + site(d))

    refused(with_net(), "a parameter of shape .* does not name.* pyro.module leaves its own")
    refused(with_net(update_module_params=True), "not the same sites .*update_module_params=True takes")


# ---- terms that would count more than once --------------------------------------------------------------
def beside(statement):
    """Factor analysis, and another statement that is given data, weights and factors."""
    rng = np.random.default_rng(0)
    outcome = torch.as_tensor(rng.standard_normal(ROWS))

    def program(d):
        program_of()(d)
        statement(d, outcome)

    return program


def of_rows(distribution, values):
    """A statement in d.rows alone about a latent of each row."""

    def statement(d, outcome):
        with d.rows:
            t = pyro.sample("t", dist.Normal(0.0, 1.0))
            pyro.sample("y", distribution(t), obs=values(outcome))

    return statement


def test_an_outcome_that_each_row_would_have_of_all_rows_is_refused():
    """Values (row,) beside (row, 1) make terms (row, row), and each latent would know all outcomes."""
    normal = of_rows(lambda t: dist.Normal(t, 0.5), lambda y: y)
    refused(
        beside(normal), r"site 'y' in d.rows has .* values of shape \(6,\), .* wanted \(row, 1\): write y"
    )
    classes = of_rows(lambda t: dist.Categorical(logits=torch.cat([t, -t], -1)), lambda y: (y > 0).long())
    refused(beside(classes), r"terms of shape \(6, 6\)")
    right = of_rows(lambda t: dist.Normal(t, 0.5), lambda y: y[:, None])
    RecordedDensity(Program(beside(right), FACTORS), table(), 2)


def test_a_number_of_each_feature_that_each_other_feature_would_have_is_refused():
    def statement(d, outcome):
        with d.features:
            b = pyro.sample("b", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Normal(b[:, None], 1.0), obs=torch.zeros(FEATURES))

    refused(beside(statement), r"site 'y' in d.features has .* wanted \(feature,\)")


def test_a_column_that_would_count_once_under_each_feature_is_refused():
    def program(d):
        with d.features:
            W = edges("W", log_odds=0.0, to=d.factors, **NORMALS)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT, 1.0), obs=d.x[:, :1])

    refused(program, "one value would count several times")


@pytest.mark.parametrize("which", ["columns", "events"])
def test_columns_that_are_observed_outside_of_their_plate_are_named(which):
    def program(d):
        with d.features:
            W = edges("W", log_odds=0.0, to=d.factors, **NORMALS)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
            if which == "events":
                cells = dist.Normal((z @ W.mT)[:, None], 1.0).mask(d.seen[:, None])
                pyro.sample("x", cells.to_event(1), obs=d.x[:, None])
            for j in range(FEATURES if which == "columns" else 0):
                column = dist.Normal((z @ W[j])[:, None], 1.0).mask(d.seen[:, j : j + 1])
                pyro.sample(f"x{j}", column, obs=d.x[:, j : j + 1])

    refused(program, "'W' moves site 'x0?', which is in d.rows alone, .*no loop over columns")


@pytest.mark.parametrize("part", [{"subsample_size": 3}, {"subsample": torch.arange(3)}])
def test_plates_of_which_a_part_is_taken_are_refused(part):
    def program(d):
        with d.features:
            W = edges("W", log_odds=0.0, to=d.factors, **NORMALS)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with pyro.plate("rows", ROWS, dim=-2, **part) as i, d.features:
            pyro.sample("x", dist.Normal((z @ W.mT)[i], 1.0).mask(d.seen[i]), obs=d.x[i])

    refused(program, "plate 'rows' .*subsample")


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # of numpy, before ours
def test_arrays_of_numpy_are_named():
    array = np.arange(float(FEATURES))
    refused(program_of(lambda d, W, z: z @ W.mT + array), "computes with numpy where values are sampled")
