"""Draws of one block in the long run, against quadrature and closed forms; its parts by hand."""

from __future__ import annotations

import functools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, special, stats

from pyro_sparse.inference.program.blocks import BlockSampler, accepted, cholesky, is_quadratic
from pyro_sparse.inference.program.metric import AlignedMetric, small_units
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.program.weights import WeightSampler
from pyro_sparse.programs import Data, Program, edges, factors, gates, sample
from tests._programs import FACTORS, case, table
from tests.inference.program._long_runs import check, double, of_copies, run

X = np.array([0.9, -1.6, 0.3, 2.0])
FEW = {"slab": dist.Normal(0.0, 1.0), "spike": dist.Normal(0.0, 0.1)}


@pytest.mark.parametrize(
    "mean",
    [
        lambda z, W, g: (z > 0).to(z) @ W.mT,  # a step: no Hessian tells
        lambda z, W, g: z.round() @ W.mT,
        lambda z, W, g: z @ W.mT + z.tanh() @ g.mT,  # behind gates that are shut where the chains begin
    ],
)
def test_rows_are_exact_only_where_the_density_is_a_quadratic_everywhere(mean):
    def program(d):
        with d.features:
            W = edges("W", log_odds=0.0, to=d.factors, **FEW)
            g = gates("g", log_odds=-29.0, to=d.factors)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(mean(z, W, g), 1.0), obs=d.x)

    density = RecordedDensity(Program(program, 2), Data(X[:, None] * np.ones(3)), 2)
    assert (density.start["g"] == 0).all()
    assert not is_quadratic(density, density.blocks["rows"], density.start)


def test_what_a_program_detaches_is_part_of_its_density():
    def gradient(seen):
        def program(d):
            with d.features:
                W = edges("W", log_odds=0.0, to=d.factors, **FEW)
            with d.rows:
                z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
            with d.rows, d.features:
                pyro.sample("x", dist.Normal(seen(z) @ W.mT, 1.0), obs=d.x)

        density = RecordedDensity(Program(program, 2), Data(X[:, None] * np.ones(3)), 2)
        block = density.blocks["rows"]
        assert is_quadratic(density, block, density.start)
        return density.slope(block, density.pack(block, density.start) + 0.3, density.start)[1]

    torch.testing.assert_close(gradient(torch.detach), gradient(torch.clone))


def test_a_row_that_is_on_or_off_agrees_with_the_two_states_summed_over():
    """x = w [z > 0] + noise: P(z > 0 | x) in closed form."""
    weight = 1.3

    def program(d):
        with d.features:
            edges("W", log_odds=0.0, to=d.factors, **FEW)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(weight * (z > 0).to(z), 1.0), obs=d.x)

    density = RecordedDensity(Program(program, 1), Data(np.tile(X, 100)[:, None]), 2)
    sampler = BlockSampler(density, density.blocks["rows"], density.start)
    torch.manual_seed(0)
    means = run(sampler, density.start, 100, 60, lambda u: (u["z"] > 0).to(u["z"]).flatten(1))
    check(means.reshape(-1, len(X)), special.expit(stats.norm.logpdf(X, weight) - stats.norm.logpdf(X)))


def first_two(name, centre=0.0):
    """Value and squared distance from a centre, (chain, element, 2)."""

    def look(u):
        return torch.stack([u[name], (u[name] - centre) ** 2], -1)

    return look


def moments(log_density, low, high, centre=0.0):
    u = np.linspace(low, high, 20001)
    p = np.exp(log_density(u) - log_density(u).max())
    p /= integrate.simpson(p, x=u)
    return [integrate.simpson(p * u, x=u), integrate.simpson(p * (u - centre) ** 2, x=u)]


def scale(d):
    with d.features:
        edges("W", log_odds=0.0, to=d.factors, **FEW)
        sd = pyro.sample("q", dist.LogNormal(-0.5, 0.7))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(0.0, sd), obs=d.x)


def log_scale(u):
    return stats.norm.logpdf(u, -0.5, 0.7) + stats.norm.logpdf(X[:, None], 0, np.exp(u)).sum(0)


def skewed(d):
    """A tail heavier than normal, whose squares have a variance, and four ones that cut off the other."""
    with d.features:
        edges("W", log_odds=0.0, to=d.factors, **FEW)
        q = pyro.sample("q", dist.StudentT(12.0, 0.0, 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Bernoulli(logits=q), obs=(d.x > -9).to(d.x))


def log_skewed(u):
    return stats.t.logpdf(u, 12) - 4 * np.logaddexp(0, -u)


TARGETS = {"scale": (scale, log_scale, -8, 12), "skewed": (skewed, log_skewed, -60, 2000)}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param("scale", "laplace", marks=pytest.mark.slow),
        ("scale", "hmc"),
        ("skewed", "laplace"),
        pytest.param("skewed", "hmc", marks=pytest.mark.slow),
    ],
)
def test_long_runs_have_the_moments_of_quadrature(name, method):
    program, log_density, low, high = TARGETS[name]
    centre = moments(log_density, low, high)[0]
    wanted = moments(log_density, low, high, centre)
    density = of_copies(X, np.zeros((4, 1)), program, 1)
    torch.manual_seed(0)
    sampler = BlockSampler(density, density.blocks["q"], density.start)
    assert sampler.method == "laplace" and not is_quadratic(density, density.blocks["q"], density.start)
    sampler.method = method
    means = run(sampler, density.start, 200, 60, first_two("q", centre))
    assert sampler.method == method and 0.5 < sampler.acceptance < 1
    check(means, wanted, most=0.05 if name == "scale" else 0.3)


def test_hamiltonian_steps_have_been_tuned_at_the_end_of_the_warm_up():
    density = of_copies(X, np.zeros((4, 1)), scale, 1, copies=40)
    torch.manual_seed(0)
    sampler = BlockSampler(density, density.blocks["q"], density.start)
    sampler.method = "hmc"
    means = run(sampler, density.start, 30, 60, first_two("q"))
    assert np.isfinite(means).all() and sampler.step_size != 0.2
    assert 0.6 < sampler.acceptance < 0.97


# ---- normal targets -------------------------------------------------------------------------------------
def intercept(d):
    with d.features:
        edges("W", log_odds=0.0, to=d.factors, **FEW)
        q = pyro.sample("q", dist.Normal(0.0, 2.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(q, 0.8), obs=d.x)


def test_a_normal_block_is_drawn_exactly():
    density = of_copies(X, np.zeros((4, 1)), intercept, 1)
    sampler = BlockSampler(density, density.blocks["q"], density.start)
    assert sampler.method == "exact" and is_quadratic(density, density.blocks["q"], density.start)
    precision = 1 / 2.0**2 + 4 / 0.8**2
    mean = X.sum() / 0.8**2 / precision
    torch.manual_seed(0)
    means = run(sampler, density.start, 60, 2, first_two("q", mean))
    check(means, [mean, 1 / precision])
    assert sampler.acceptance == 1.0


def rows_of(d):
    with d.features:
        edges("W", log_odds=0.0, to=d.factors, **FEW)
    with d.rows:
        z = factors("z", dist.Normal(torch.ones(2), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ d.loading.mT, 0.7), obs=d.x)


def test_normal_rows_have_the_mean_and_covariance_of_the_regression():
    rng = np.random.default_rng(1)
    loading, x = rng.standard_normal((4, 2)), np.repeat(rng.standard_normal((1, 4)), 50, 0)
    data = Data(x, features={"loading": loading})
    density = RecordedDensity(Program(rows_of, 2), data, 2)
    sampler = BlockSampler(density, density.blocks["rows"], density.start)
    assert (sampler.method, sampler.block.sites, sampler.block.size) == ("exact", ("z",), 2)
    cover = np.linalg.inv(np.eye(2) + loading.T @ loading / 0.7**2)
    mean = cover @ (np.ones(2) + loading.T @ x[0] / 0.7**2)

    def look(u):
        z = u["z"].squeeze(-2)
        return torch.cat([z, (z[..., :1] - mean[0]) * (z - torch.as_tensor(mean))], -1)

    torch.manual_seed(0)
    check(run(sampler, density.start, 60, 2, look), [*mean, *cover[0]])


def long_event(d):
    with d.features:
        edges("W", log_odds=0.0, to=d.factors, **FEW)
        v = sample("v", dist.Normal(torch.zeros(15), torch.linspace(0.3, 2.0, 15)).to_event(1))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(v.sum(-1), 1.0), obs=d.x)


@pytest.mark.slow
def test_what_has_many_numbers_moves_along_its_gradient():
    """Normal: its sum, its first number and its last have known moments."""
    density = of_copies(X, np.zeros((4, 1)), long_event, 1, copies=25, chains=4)
    torch.manual_seed(0)
    sampler = BlockSampler(density, density.blocks["v"], density.start)
    assert sampler.method == "hmc" and not sampler.has_hessian
    prior = np.diag(np.linspace(0.3, 2.0, 15) ** 2)
    ones = np.ones((15, 1))
    cover = np.linalg.inv(np.linalg.inv(prior) + 4 * ones @ ones.T)
    mean = (cover @ ones)[:, 0] * X.sum()
    weights = np.array([ones[:, 0], np.eye(15)[0], np.eye(15)[-1]])
    centre = torch.as_tensor(weights @ mean)

    def look(u):
        seen = u["v"].reshape(4, 25, 15) @ torch.as_tensor(weights).mT
        return torch.cat([seen, (seen - centre) ** 2], -1)

    means = run(sampler, density.start, 250, 100, look)
    check(means, [*(weights @ mean), *np.diag(weights @ cover @ weights.T)], most=0.15)
    assert 0.5 < sampler.acceptance < 0.97


@pytest.mark.slow
def test_a_global_block_has_the_moments_of_quadrature():
    """Rates of edges given the weights: each factor's own."""
    density = RecordedDensity(*case("linear"), 60)
    u = {name: value[:1].expand_as(value).clone() for name, value in density.start.items() if name != "eta"}
    u["eta"] = density.start["eta"]
    torch.manual_seed(0)
    sampler = BlockSampler(density, density.blocks["eta"], u)
    assert (sampler.method, sampler.block.group) == ("laplace", "global")
    wanted = []
    for k in range(2):
        w = u["W"][0, :, k].numpy()[:, None]

        def log_density(v, w=w):
            eta = special.expit(v)
            mixture = eta * stats.norm.pdf(w, 0, 0.8) + (1 - eta) * stats.norm.pdf(w, 0, 0.05)
            return stats.beta.logpdf(eta, 1, 2) + np.log(eta * (1 - eta)) + np.log(mixture).sum(0)

        wanted.append(moments(log_density, -18, 18))
    means = run(sampler, u, 250, 60, lambda u: torch.stack([u["eta"], u["eta"] ** 2], -1)[:, None])
    check(means, np.array(wanted), most=0.1)


# ---- parts ----------------------------------------------------------------------------------------------
def test_metropolis_accepts_with_its_probability():
    torch.manual_seed(0)
    log_ratio = double([0.0, 3.0, -np.inf, np.nan, np.log(0.3)])
    chosen = torch.stack([accepted(log_ratio)[0] for _ in range(3000)]).double().mean(0)
    assert chosen[:4].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert chosen[4].item() == pytest.approx(0.3, abs=0.035)
    np.testing.assert_allclose(accepted(log_ratio)[1], [1, 1, 0, 0, 0.3], rtol=1e-12)


def test_a_precision_that_is_none_gives_way_to_its_diagonal():
    sound, unsound = double([[2.0, 0.6], [0.6, 1.0]]), double([[1.0, 3.0], [3.0, 4.0]])
    negative = double([[-9.0, 0.0], [0.0, np.nan]])
    roots = cholesky(torch.stack([sound, unsound, negative]))
    np.testing.assert_allclose(roots[0] @ roots[0].mT, sound, rtol=1e-12)
    np.testing.assert_allclose(roots[1], [[1, 0], [0, 2]])
    np.testing.assert_allclose(roots[2], [[3, 0], [0, 1]])
    np.testing.assert_allclose(cholesky(0 * sound), 0.1 * np.eye(2))


def test_the_climb_comes_to_the_mode_from_far_away():
    density = of_copies(X, np.zeros((4, 1)), scale, 1, copies=20)
    torch.manual_seed(0)
    sampler = BlockSampler(density, density.blocks["q"], density.start)
    u = {**density.start, "q": torch.full_like(density.start["q"], 9.0)}
    for _ in range(15):
        u = sampler.ascend(u)
    centre = moments(log_scale, -8, 12)[0]
    assert (u["q"] - centre).abs().max() < 2
    assert torch.equal(sampler.centre[..., 0], u["q"].reshape(2, 20))


def test_rare_acceptance_makes_the_steps_hamiltonian():
    density = of_copies(X, np.zeros((4, 1)), scale, 1, copies=5)
    sampler = BlockSampler(density, density.blocks["q"], density.start)
    sampler.acceptance, u = 0.0, density.start
    for _ in range(24):
        u = sampler.draw(u, adapts=True)
        sampler.acceptance = 0.0
    assert sampler.method == "laplace"
    sampler.draw(u, adapts=True)
    assert sampler.method == "hmc"


@pytest.mark.parametrize("method", ["laplace", "hmc"])
def test_a_block_sampler_goes_on_from_its_state(method):
    density = of_copies(X, np.zeros((4, 1)), scale, 1, copies=5)
    one, u = BlockSampler(density, density.blocks["q"], density.start), density.start
    one.method = method
    for _ in range(5):
        u = one.draw(u, adapts=True)
    two = BlockSampler(density, density.blocks["q"], density.start)
    two.load(one.state())
    positions = []
    for sampler in (one, two):
        torch.manual_seed(0)
        v = sampler.draw(u, adapts=True)
        positions.append(sampler.draw(v, adapts=False)["q"])
    assert torch.equal(*positions) and one.step_size == two.step_size


# ---- units ----------------------------------------------------------------------------------------------
UNITS = [1e-6, 1.0, 1e6]


def in_units(unit, cells):
    """Factor analysis of a table in other units, and a sampler of its weights."""

    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, unit), dist.Normal(0.0, 0.05 * unit)
            W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
            b = pyro.sample("b", dist.Normal(0.0, unit))
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", cells(z @ W.mT + b, unit).mask(d.seen), obs=d.x)

    data = table()
    return RecordedDensity(Program(program, FACTORS), data.with_table(unit * data.x), 3)


@functools.cache
def of_two_likelihoods(unit):
    """Densities of which blocks are, and are not, quadratic; recorded once for all blocks."""
    return in_units(unit, dist.Normal), in_units(unit, lambda mean, sd: dist.StudentT(3.0, mean, sd))


@pytest.mark.parametrize("block", ["W", "b", "rows"])
@pytest.mark.parametrize("unit", UNITS)
def test_what_is_a_quadratic_does_not_depend_on_units(unit, block):
    """Of numbers around a million every likelihood is flat over a step of one."""
    normal, student = of_two_likelihoods(unit)
    assert is_quadratic(normal, normal.blocks[block], normal.start)
    assert not is_quadratic(student, student.blocks[block], student.start)


def test_first_steps_are_small_where_numbers_are():
    """Of the prior's size, and no smaller than a number is that has not moved at all."""
    of_ones, small = in_units(1.0, dist.Normal), in_units(1e-6, dist.Normal)
    assert (small_units(of_ones, ["W", "b"]) == 1).all()
    unit = small_units(small, ["W", "b"])
    assert ((unit > 1e-7) & (unit < 1e-5)).all() and len(unit) == 12
    roots = [AlignedMetric(density, ["W", "b"], density.start, length=50) for density in (of_ones, small)]
    ratio = (roots[1].root / roots[0].root).nan_to_num(1.0).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(ratio[0], unit)
    for _ in range(5):  # chains differ, and none moves
        for metric, density in zip(roots, (of_ones, small), strict=True):
            metric.learn(density.start)
    ratio = (roots[1].root / roots[0].root).diagonal(dim1=-2, dim2=-1)
    assert ((ratio > 1e-7) & (ratio < 1e-5)).all()


@pytest.mark.parametrize("unit", UNITS)
def test_edges_have_the_same_quadratic_in_other_units(unit):
    of_ones, density = in_units(1.0, dist.Normal), in_units(unit, dist.Normal)
    u = {name: value * (unit if name in ("W", "b") else 1.0) for name, value in of_ones.start.items()}
    sampler, other = (
        WeightSampler(d, d.blocks["W"], at)._quadratic(d.pack(d.blocks["W"], at), at)
        for d, at in ((density, u), (of_ones, of_ones.start))
    )
    torch.testing.assert_close(sampler[0] * unit, other[0])
    torch.testing.assert_close(sampler[1] * unit**2, other[1])
