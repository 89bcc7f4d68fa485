"""Rotations and linear maps of the factors' axis: what they leave alone, what they leave invariant."""

from __future__ import annotations

import functools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import special, stats

from pyro_sparse.inference.program import axes
from pyro_sparse.inference.program.axes import AxisSampler
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.programs import Program, correlation, edges, factors, gates
from tests._programs import FACTORS, FEATURES, ROWS, case, table
from tests.inference.program._long_runs import check

SLAB, SPIKE, ODDS = 1.0, 0.1, -0.5
CHAINS = 250


def program_of(mean=lambda z, W: z @ W.mT, centre=0.0, noise=1.0, spike=None):
    """Factors around a centre, spike and slab, and normal cells."""

    def program(d):
        with d.features:
            narrow = dist.Normal(0.0, SPIKE) if spike is None else spike
            W = edges("W", log_odds=ODDS, slab=dist.Normal(0.0, SLAB), spike=narrow, to=d.factors)
        with d.rows:
            z = factors("z", dist.Normal(torch.full((d.n_factors,), centre), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(mean(z, W), noise).mask(d.seen), obs=d.x)

    return program


def nothing(z, W):
    """Cells that know of neither: what is left is the prior."""
    return torch.zeros(ROWS, FEATURES, dtype=z.dtype) + 0 * z[..., :1]


def bent(z, W):
    """Neither turns nor signs leave it alone."""
    return torch.relu(z) @ W.mT


@functools.cache
def recorded(name):
    return RecordedDensity(*case(name), 3)


def sampler_of(program, n_factors=FACTORS, chains=2):
    density = RecordedDensity(Program(program, n_factors), table(), chains)
    return AxisSampler(density, density.start), density


# ---- what they touch ------------------------------------------------------------------------------------
def test_a_rotation_of_a_linear_decoder_asks_only_the_density_of_the_weights():
    for name in ("linear", "grouped"):
        sampler = AxisSampler(recorded(name), recorded(name).start)
        assert sampler.useful and not sampler.asks_data
        assert sampler.of_rotations == ("W",)  # normal factors have no axes of their own
    assert set(sampler.of_maps) == {"B", "W", "z"} and set(sampler.scores) == {"B", "z"}
    assert sampler.excess == ROWS + 1 - FEATURES  # a dose is a row of B


def test_a_rotation_asks_the_data_where_any_factor_is_unlike_the_others():
    """The third alone, or behind gates that are shut where the chains begin."""

    def one_bent(z, W):
        return z @ W.mT + z[..., 2:] ** 2

    sampler, density = sampler_of(program_of(one_bent), n_factors=3)
    assert sampler.asks_data and set(sampler.of_rotations) == {"W", "x"}
    assert set(sampler.of_maps) >= {"W", "x", "z"}

    def gated(d):
        with d.features:
            W = edges(
                "W", log_odds=ODDS, slab=dist.Normal(0.0, SLAB), spike=dist.Normal(0.0, SPIKE), to=d.factors
            )
            g = gates("g", log_odds=-29.0, to=d.factors)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        bend = z.tanh() @ (g * W).mT
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT + bend, 1.0).mask(d.seen), obs=d.x)

    sampler, density = sampler_of(gated)
    assert (density.start["g"] == 0).all() and sampler.asks_data


def test_a_rotation_of_a_bent_decoder_asks_the_data():
    sampler, _ = sampler_of(program_of(bent))
    assert sampler.asks_data and set(sampler.of_rotations) == {"W", "x"}


def test_where_there_is_nothing_to_move_it_says_so():
    assert not AxisSampler(recorded("gated"), recorded("gated").start).useful
    assert not sampler_of(program_of(spike=dist.Delta(torch.tensor(0.0))))[0].useful
    alone, _ = sampler_of(program_of(), n_factors=1)
    assert alone.useful and alone.of_rotations == ()


@pytest.mark.parametrize("is_curved", [False, True])
def test_edges_to_covariates_are_no_edges_to_the_factors(is_curved):
    """They would change order and signs with factors that have nothing to do with them."""

    def program(d, to_factors=False):
        with d.features:
            W, V = (
                edges(
                    name,
                    log_odds=ODDS,
                    slab=dist.Normal(0.0, SLAB),
                    spike=dist.Normal(0.0, SPIKE),
                    to=d.factors,
                )
                for name in "WV"
            )
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        covariates = z**2 if to_factors else torch.cat([d.dose, d.dose**2], -1)
        mean = (z @ W.mT).tanh() if is_curved else z @ W.mT
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(mean + covariates @ V.mT, 1.0).mask(d.seen), obs=d.x)

    with pytest.raises(ValueError, match=r"program: edges 'V' lead to d.factors, and the data are as likely"):
        sampler_of(program)
    assert sampler_of(functools.partial(program, to_factors=True))[0].loadings == ["W", "V"]


def test_moves_leave_the_linear_predictor_alone():
    density = recorded("grouped")
    sampler, u = AxisSampler(density, density.start), density.start
    torch.manual_seed(0)
    sampler.step = 0.02
    turned, transform = sampler.rotate(u)
    stretched = sampler.stretch(u, adapts=False)
    dose = torch.as_tensor(case("grouped")[1].rows["dose"])
    for moved in (turned, stretched):
        assert not torch.allclose(moved["W"], u["W"])
        predictor, before = (v["z"].squeeze(-2) @ v["W"].mT for v in (moved, u))
        torch.testing.assert_close(predictor, before)
        torch.testing.assert_close(dose @ moved["B"] @ moved["W"].mT, dose @ u["B"] @ u["W"].mT)
        assert torch.equal(moved["rate"], u["rate"])
    of_scores, of_loadings = transform
    assert torch.equal(of_scores, of_loadings)
    torch.testing.assert_close(u["W"] @ of_loadings, turned["W"])
    unit = torch.eye(2, dtype=of_scores.dtype).expand(3, 2, 2)
    torch.testing.assert_close(of_scores @ of_scores.mT, unit)


@pytest.mark.parametrize("name", ["linear", "grouped", "correlated"])
def test_levels_of_all_angles_at_once_are_those_of_the_program(name):
    if name == "correlated":
        sampler, density = sampler_of(correlated, 3)
    else:  # normal densities, or Laplace
        sampler, density = AxisSampler(recorded(name), recorded(name).start), recorded(name)
    assert sampler.asks_weights_alone
    angles = torch.linspace(0, 6, 7, dtype=torch.float64)
    rotations = axes._rotation(2, 0, 1, angles)[:, None].expand(-1, density.n_chains, -1, -1)
    levels = sampler._levels_of_weights, sampler._levels
    fast, general = (level(density.start, [1, 0], rotations) for level in levels)
    assert (general - general[0]).abs().max() > 1
    torch.testing.assert_close(fast - fast[0], general - general[0])
    assert not sampler_of(program_of(bent))[0].asks_weights_alone


def test_points_of_approximation_turn_with_the_state():
    density = recorded("grouped")
    sampler, u = AxisSampler(density, density.start), density.start
    torch.manual_seed(1)
    _, transform = sampler.rotate(u)
    block = density.blocks["W"]
    centre = density.pack(block, u) + 1
    torch.testing.assert_close(sampler.turned(block, centre, u, transform), centre @ transform[1])
    rows = density.blocks["rows"]
    centre = density.pack(rows, u) - 1
    torch.testing.assert_close(sampler.turned(rows, centre, u, transform), centre @ transform[0])
    block = density.blocks["rate"]
    centre = density.pack(block, u)
    assert sampler.turned(block, centre, u, transform) is centre


def test_steps_are_tuned_only_while_they_may_be():
    density = recorded("linear")
    sampler, u = AxisSampler(density, density.start), density.start
    sampler.stretch(u, adapts=False)
    assert sampler.step == axes._FIRST_STEP
    for _ in range(300):
        u = sampler.stretch(u, adapts=True)
    assert sampler.step != axes._FIRST_STEP
    assert 0.1 < sampler.acceptance < 0.6


CENTRE = 0.6


def level_of(angles, z, w):
    """Log density of factors around a centre and weights turned by each angle, by SciPy."""
    rate, level = special.expit(ODDS), []
    for angle in angles:
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        turned = w @ turn
        mixture = rate * stats.norm.pdf(turned, 0, SLAB) + (1 - rate) * stats.norm.pdf(turned, 0, SPIKE)
        level.append(np.log(mixture).sum() + stats.norm.logpdf(z @ turn, CENTRE).sum())
    return np.array(level)


def in_one_place(chains):
    """Factors around a centre, all chains at one draw of the prior, and this draw's factors and weights."""
    sampler, density = sampler_of(program_of(nothing, centre=CENTRE), chains=chains)
    u = {name: value[:1].expand_as(value).clone() for name, value in density.start.items()}
    return sampler, u, (u["z"][0, :, 0].numpy(), u["W"][0].numpy())


def angle_of(transform):
    of_scores, _ = transform
    return torch.atan2(of_scores[:, 1, 0], of_scores[:, 0, 0]).numpy()


def test_angles_are_drawn_from_the_joint_density(monkeypatch):
    """Of a whole circle, so that it does not matter which of the two factors comes first."""
    monkeypatch.setattr(axes, "_ANGLES", (5, 6))
    sampler, u, place = in_one_place(3)
    wanted = special.softmax(level_of(2 * np.pi * np.arange(5) / 5, *place))
    torch.manual_seed(0)
    angles = np.concatenate([angle_of(sampler.rotate(u)[1]) for _ in range(400)])
    chosen = np.round(angles * 5 / (2 * np.pi), 6) % 5
    share = np.array([(chosen == j).mean() for j in range(5)])
    assert share.sum() == pytest.approx(1)
    np.testing.assert_allclose(share, wanted, atol=0.06)


def test_rotations_visit_their_orbit_by_the_joint_density(monkeypatch):
    """Of six angles: twelve places, or six if they go round the whole circle."""
    monkeypatch.setattr(axes, "_ANGLES", (6, 7))
    sampler, u, place = in_one_place(50)
    total, visits = torch.eye(2, dtype=torch.float64).expand(50, 2, 2), []
    torch.manual_seed(0)
    for move in range(160):
        u, transform = sampler.rotate(u)
        total = total @ transform[0]
        if move >= 10:
            visits.append(np.round(angle_of((total, total)) * 6 / np.pi).astype(int) % 12)
    share = np.bincount(np.concatenate(visits), minlength=12) / (50 * 150)
    places = np.arange(12) if share[1::2].any() else np.arange(0, 12, 2)
    wanted = np.zeros(12)
    wanted[places] = special.softmax(level_of(places * np.pi / 6, *place))
    assert np.abs(share - wanted).sum() / 2 < 0.04


# ---- what they leave invariant --------------------------------------------------------------------------
def looked_at(u):
    """Moments of weights and factors, of each chain, (chain, moment)."""
    w, z = u["W"].flatten(1), u["z"].flatten(1)
    seen = [w.abs().mean(1), (w**2).mean(1), (w.abs() < 0.2).double().mean(1), z.mean(1), (z**2).mean(1)]
    return torch.stack([*seen, (z**4).mean(1)], 1).numpy()


def of_prior(centre=0.0):
    """The same of the prior, in closed form."""
    rate = special.expit(ODDS)
    small = [stats.norm(0, s).cdf(0.2) - stats.norm(0, s).cdf(-0.2) for s in (SLAB, SPIKE)]
    mean = np.sqrt(2 / np.pi) * (rate * SLAB + (1 - rate) * SPIKE)
    square, near = rate * SLAB**2 + (1 - rate) * SPIKE**2, rate * small[0] + (1 - rate) * small[1]
    return [mean, square, near, centre, 1 + centre**2, 3 + 6 * centre**2 + centre**4]


def moved(program, centre, moves, n_rotations, n_maps, tables=None, step=0.3):
    """Draws from the prior after so many moves."""
    density = RecordedDensity(Program(program, FACTORS), table(), CHAINS, tables=tables)
    sampler, u = AxisSampler(density, density.start), density.start
    check(looked_at(u), of_prior(centre), most=1.0)
    torch.manual_seed(7)
    sampler.step = step
    for _ in range(moves):
        for _ in range(n_rotations):
            u, _ = sampler.rotate(u)
        for _ in range(n_maps):
            u = sampler.stretch(u, adapts=False)
    assert (u["W"] - density.start["W"]).abs().mean() > 0.1
    return u, sampler


@pytest.mark.slow
@pytest.mark.parametrize(("n_rotations", "n_maps"), [(1, 0), (0, 4)])
def test_draws_from_the_prior_stay_such(n_rotations, n_maps):
    u, _ = moved(program_of(nothing), 0.0, 25, n_rotations, n_maps)
    check(looked_at(u), of_prior(), most=0.5)


def test_small_maps_leave_a_prior_around_another_centre_alone():
    u, _ = moved(program_of(nothing, centre=1.5), 1.5, 25, 0, 4)
    check(looked_at(u), of_prior(1.5), most=1.0)


def simulated(mean, noise):
    """A table of each chain from its own draw of the prior, with which that draw is one of the posterior."""
    density = RecordedDensity(Program(program_of(mean, noise=noise), FACTORS), table(), CHAINS)
    torch.manual_seed(9)
    expected = torch.stack(
        [mean(z[:, 0], w) for z, w in zip(density.start["z"], density.start["W"], strict=True)]
    )
    return (expected + noise * torch.randn_like(expected)).numpy()


def linear(z, W):
    return z @ W.mT


def curved(z, W):
    return torch.tanh(z) @ W.mT


@pytest.mark.parametrize("mean", [linear, pytest.param(curved, marks=pytest.mark.slow)])
def test_draws_of_posteriors_stay_such(mean):
    """Averaged over tables drawn from the program the posterior is the prior."""
    program = program_of(mean, noise=0.7)
    u, _ = moved(program, 0.0, 20, 1, 4, simulated(mean, 0.7), step=0.15)
    check(looked_at(u), of_prior(), most=0.5)


# ---- correlated factors ------------------------------------------------------------------------------------
CONCENTRATION = 2.0


def correlated(d, mean=lambda z, W: z @ W.mT):
    """Factors and their correlation; cells as any other."""
    root = correlation("root", d.factors, CONCENTRATION)
    with d.features:
        slab, spike = dist.Normal(0.0, SLAB), dist.Normal(0.0, SPIKE)
        W = edges("W", log_odds=ODDS, slab=slab, spike=spike, to=d.factors)
    with d.rows:
        z = factors("z", dist.MultivariateNormal(torch.zeros(d.n_factors), scale_tril=root))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(mean(z, W), 1.0).mask(d.seen), obs=d.x)


def test_moves_of_correlated_factors_leave_predictor_and_factors_density_alone():
    sampler, density = sampler_of(correlated, 3)
    u = density.start
    torch.manual_seed(0)
    assert sampler.correlation == "root" and sampler.of_rotations == ("W",)
    sampler.oblique_step = 0.01
    for moved, same in ((sampler.rotate(u)[0], True), (sampler.lean(u, adapts=False), False)):
        assert not torch.allclose(moved["W"], u["W"])
        predictor, before = (v["z"].squeeze(-2) @ v["W"].mT for v in (moved, u))
        torch.testing.assert_close(predictor, before)
        assert torch.equal(moved["root"], u["root"]) is same
        roots = [density.values(v)["root"] for v in (moved, u)]
        heights = [
            torch.linalg.solve_triangular(root, v["z"].squeeze(-2).mT, upper=False).square().sum((1, 2))
            for root, v in zip(roots, (moved, u), strict=True)
        ]
        torch.testing.assert_close(*heights)  # z' C^-1 z


def test_the_jacobian_of_an_oblique_step():
    """Of (C, a), against differences: s^-(K + 2)."""
    sampler, density = sampler_of(correlated, 3)
    root = torch.linalg.cholesky(torch.tensor([[1.0, 0.3, -0.2], [0.3, 1, 0.5], [-0.2, 0.5, 1]]).double())
    u = {**density.start, "root": sampler._link().inv(root).expand(2, -1)}
    k, m = 2, 0

    def step(numbers):
        c = torch.eye(3, dtype=torch.float64)
        c[[1, 2, 2], [0, 0, 1]] = c[[0, 0, 1], [1, 2, 2]] = numbers[:3]
        at = {**u, "root": sampler._link().inv(torch.linalg.cholesky(c)).expand(2, -1)}
        moved, s = sampler._oblique(at, k, m, numbers[3].expand(2))
        new = density.values(moved)["root"][0]
        new = new @ new.mT
        return torch.stack([new[1, 0], new[2, 0], new[2, 1], -numbers[3] / s[0]]), s[0]

    point = torch.tensor([0.3, -0.2, 0.5, 0.4], dtype=torch.float64)
    jacobian = torch.stack(
        [(step(point + h)[0] - step(point - h)[0]) / 2e-6 for h in 1e-6 * torch.eye(4, dtype=torch.float64)]
    )
    s = step(point)[1]
    torch.testing.assert_close(torch.linalg.det(jacobian).abs(), s**-5, rtol=1e-6, atol=1e-8)


def test_the_density_of_a_root_is_that_of_its_matrix():
    """LKJ of K = 3: |C|^(c - 1), so that differences of log densities are known."""
    sampler, density = sampler_of(correlated, 3, chains=4)
    u = density.start
    root = density.values(u)["root"]
    level = density.logs(u)["root"].reshape(4) + sampler._log_jacobian(u)
    wanted = (CONCENTRATION - 1) * torch.logdet(root @ root.mT)
    torch.testing.assert_close(level - level[0], wanted - wanted[0])


@pytest.mark.slow
def test_oblique_steps_keep_the_prior_of_correlations():
    """Chains of those alone, from draws of the prior of a program whose cells say nothing."""
    chains = 1500
    sampler, density = sampler_of(functools.partial(correlated, mean=nothing), 2, chains=chains)
    u = density.start
    torch.manual_seed(2)
    sampler.oblique_step = 0.3
    for _ in range(40):
        u = sampler.lean(u, adapts=False)
        u = sampler.rotate(u)[0]
    c = density.values(u)["root"][:, 1, 0].numpy()
    assert 0.05 < sampler.obliquely < 0.95
    assert stats.kstest((c + 1) / 2, stats.beta(CONCENTRATION, CONCENTRATION).cdf).pvalue > 0.001
    z = u["z"].numpy().reshape(chains, ROWS, 2)
    assert abs(np.mean(z**2) - 1) < 5 * np.sqrt(2 / z.size) * 2
    assert abs(np.mean(z[..., 0] * z[..., 1] - c[:, None])) < 5 / np.sqrt(z.size / 2)
    rate = special.expit(ODDS)
    spread = rate * SLAB**2 + (1 - rate) * SPIKE**2
    assert np.mean(u["W"].numpy() ** 2) == pytest.approx(spread, rel=0.12)
