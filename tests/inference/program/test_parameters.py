"""Parameters: their estimates, which the chains of a table share, and what they are held at."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_sparse.inference.program.layout import read_layout
from pyro_sparse.inference.program.parameters import ParameterSampler
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.programs import Data, Program, edges
from tests._programs import FACTORS, FEATURES, table

ROWS, MANY = 30, 60


def with_intercepts(d):
    """Cells whose means are parameters: their likelihood is known, whatever the weights, which are tiny."""
    level = pyro.param("level", torch.zeros(d.n_features))
    with d.features:
        slab, spike = dist.Normal(0.0, 1e-3), dist.Normal(0.0, 1e-4)
        edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(level, 1.0), obs=d.x)


def density_of(n_features, n_chains=4):
    x = np.random.default_rng(0).normal(1.0, 1.0, (ROWS, n_features))
    return RecordedDensity(Program(with_intercepts, FACTORS), Data(x), n_chains), x.mean(0)


def sampler_of(density, table_of=(0, 0, 1, 1)):
    return ParameterSampler(density, density.blocks["level"], density.start, torch.tensor(table_of))


def test_a_parameter_is_a_site_without_a_density_or_a_place_among_latent_ones():
    layout, values = read_layout(with_intercepts, table().view(FACTORS))
    [site] = layout.parameters
    assert (site.name, site.kind, site.group, site.observed) == ("level", "parameter", "global", False)
    assert layout.latent() == [] and values["level"].shape == (FEATURES,)
    density, _ = density_of(FEATURES)
    assert torch.equal(density.logs(density.start)["level"], torch.zeros(4).double())
    assert density.blanket(density.blocks["level"]) >= {"x"} and next(iter(density.blocks)) == "level"


def test_constraints_are_those_of_the_parameter():
    def program(d):
        rate = pyro.param("rate", torch.tensor(0.2), constraint=dist.constraints.unit_interval)
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            W = edges("W", log_odds=torch.logit(rate), slab=slab, spike=spike, to=d.factors)
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(W.sum(-1), 1.0).mask(d.seen), obs=d.x)

    density = RecordedDensity(Program(program, FACTORS), table(), 2)
    torch.testing.assert_close(density.values(density.start)["rate"], torch.full((2,), 0.2).double())
    away = {**density.start, "rate": density.start["rate"] + 30.0}
    assert (density.values(away)["rate"] <= 1).all()


@pytest.mark.parametrize(("n_features", "steps"), [(FEATURES, 30), (MANY, 400)])
def test_the_estimate_is_the_one_of_the_highest_likelihood(n_features, steps):
    """Of few numbers by Newton steps, of many by gradients in their own units."""
    density, wanted = density_of(n_features)
    sampler, u = sampler_of(density), density.start
    for _ in range(steps):
        u = sampler.draw(u, adapts=True)
    np.testing.assert_allclose(u["level"].numpy(), np.tile(wanted, (4, 1)), atol=1e-3 if steps < 99 else 0.05)


def test_chains_of_a_table_have_one_value_and_hold_it():
    density, _ = density_of(FEATURES)
    sampler = sampler_of(density)
    away = torch.arange(4.0, dtype=torch.float64)[:, None].expand(4, FEATURES)
    held = sampler.draw({**density.start, "level": away}, adapts=False)["level"]
    torch.testing.assert_close(held[:, 0], torch.tensor([0.5, 0.5, 2.5, 2.5]).double())
    again = sampler.draw({**density.start, "level": held}, adapts=False)["level"]
    assert torch.equal(held, again)
    alone = sampler_of(density, (0, 1, 2, 3))
    assert torch.equal(alone.draw({**density.start, "level": away}, adapts=False)["level"], away)


def test_chains_with_wide_spikes_do_not_count():
    density, wanted = density_of(FEATURES)
    sampler = sampler_of(density)
    density.heat(torch.tensor([1.0, 5.0, 5.0, 5.0]).double())
    moved = sampler.ascend(density.start)["level"].numpy()
    np.testing.assert_allclose(moved[:2], np.tile(wanted.clip(-1, 1), (2, 1)))  # a step is at most 1
    assert (moved[2:] == 0).all()
    density.heat(5.0)
    assert torch.equal(sampler.ascend(density.start)["level"], density.start["level"])


def test_a_chain_without_a_density_does_not_spoil_the_others():
    density, wanted = density_of(FEATURES)
    sampler, u = sampler_of(density, (0, 0, 0, 0)), density.start
    curvature = density.curvature
    density.curvature = lambda *arguments: tuple(
        torch.where(torch.arange(4).reshape(4, *[1] * (value.dim() - 1)) == 3, torch.nan, value)
        for value in curvature(*arguments)
    )
    for _ in range(30):
        u = sampler.draw(u, adapts=True)
    np.testing.assert_allclose(u["level"].numpy(), np.tile(wanted, (4, 1)), atol=1e-3)


def test_a_sampler_goes_on_from_its_state():
    density, _ = density_of(MANY)
    one, two = sampler_of(density), sampler_of(density)
    u = one.draw(density.start, adapts=True)
    two.load(one.state())
    assert torch.equal(one.draw(u, adapts=True)["level"], two.draw(u, adapts=True)["level"])
    one.settle()
    assert (one.method, one.acceptance) == ("learned", 1.0)
