"""Rows that follow other numbers: the map, its density, and draws that must stay such."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import special, stats

from pyro_sparse.inference.program.blocks import BlockSampler
from pyro_sparse.inference.program.collapsed import RowIntegral
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.program.sweeps import ProgramChains
from pyro_sparse.inference.program.transport import TransportSampler
from pyro_sparse.programs import Data, Program, edges, factors
from tests._programs import case
from tests.inference.program._factor_tables import (
    FACTORS,
    FEATURES,
    LOG_ODDS,
    SLAB,
    SPIKE,
    program_of,
    tables_of,
)
from tests.inference.program._long_runs import check

curved = program_of(torch.nn.functional.softplus)


def sampler_of(density, u, adapting=40):
    integral = RowIntegral(density, BlockSampler(density, density.blocks["rows"], u))
    return TransportSampler(density, integral, u, adapting)


@pytest.fixture(scope="module")
def simulated():
    return tables_of(torch.nn.functional.softplus)


def _moved(sampler, u, shift):
    """Where a shift leads, and the log density of sites and standardised rows there."""
    rows, noise = sampler.integral.rows, sampler.integral.standardised(u)
    level, slope, q = sampler.density.transported(rows.block, u, shift, sampler.integral.centre(u), noise)
    return level, slope, sampler.density.unpack(rows.block, q, sampler.density.shifted(u, shift)[0])


@pytest.fixture
def small():
    """Two chains of the curved program, rows expanded at 0, and a shift of all that moves."""
    density = RecordedDensity(Program(curved, FACTORS), Data(np.random.default_rng(1).normal(size=(3, 2))), 2)
    sampler = sampler_of(density, density.start)
    sampler.integral.rows.centre = torch.zeros_like(density.pack(density.blocks["rows"], density.start))
    torch.manual_seed(0)
    shift = {name: 0.2 * torch.randn(2, 2, dtype=torch.float64) for name in sampler.names}
    return density, sampler, shift


def test_what_cells_depend_on_moves_and_the_rest_does_not():
    density = RecordedDensity(*case("linear"), 2)
    assert sampler_of(density, density.start).names == ["W", "b", "sd"]  # and no rates of edges
    density = RecordedDensity(*case("gated"), 2)
    assert sampler_of(density, density.start).names == ["v"]  # no gates


def test_a_number_that_all_cells_share_moves_too():
    def program(d):
        sd = pyro.sample("sd", dist.LogNormal(0.0, 0.5))
        with d.features:
            W = edges(
                "W", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.1), to=d.factors
            )
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal((z @ W.mT).tanh(), sd), obs=d.x)

    density = RecordedDensity(Program(program, 1), Data(np.random.default_rng(1).normal(size=(5, 3))), 2)
    sampler = sampler_of(density, density.start)
    assert sampler.names == ["W", "sd"]
    torch.manual_seed(0)
    before = density.start["sd"]
    u = density.start
    for _ in range(10):
        u = sampler.draw(u, adapts=True)
    assert u["sd"].shape == (2,)
    assert (u["sd"] != before).all()


def test_the_density_has_the_jacobian_of_the_map(small):
    """From (theta, z) to (theta', z'), by differences of all numbers."""
    density, sampler, shift = small
    u = density.start
    rows, names = density.blocks["rows"], ["W", "sd", "z"]

    def numbers(u):
        return torch.cat([u[name].flatten(1) for name in names], 1)

    def moved(flat):
        split = flat.split([u[name][0].numel() for name in names], 1)
        at = {n: value.reshape(u[n].shape) for n, value in zip(names, split, strict=True)}
        return numbers(_moved(sampler, at, shift)[2])

    here = numbers(u)
    size = here.shape[1]
    jacobian = torch.zeros(2, size, size, dtype=torch.float64)
    for k in range(size):
        step = torch.zeros_like(here)
        step[:, k] = 1e-5
        jacobian[:, :, k] = (moved(here + step) - moved(here - step)) / 2e-5
    level, _, there = _moved(sampler, u, shift)
    before = _moved(sampler, u, {name: 0 * value for name, value in shift.items()})[0]
    wanted = density.joint(there) - density.joint(u) + torch.linalg.slogdet(jacobian)[1]
    torch.testing.assert_close(level - before, wanted, rtol=1e-6, atol=1e-6)
    assert rows.size == 2


def test_the_way_back_leads_back_and_slopes_are_those_of_differences(small):
    density, sampler, shift = small
    u = density.start
    _, slope, there = _moved(sampler, u, shift)
    back = _moved(sampler, there, {name: -value for name, value in shift.items()})[2]
    for name, value in u.items():
        torch.testing.assert_close(back[name], value)
    for name in shift:
        step = torch.zeros_like(shift[name])
        step[:, 1] = 1e-5
        up, down = (_moved(sampler, u, {**shift, name: shift[name] + s * step})[0] for s in (1, -1))
        torch.testing.assert_close((up - down) / 2e-5, slope[name][:, 1], rtol=1e-5, atol=1e-5)


def test_rows_stay_where_nothing_moves_even_without_a_hill(small):
    """Of rows whose curvature is no precision the diagonal stands in, on both ways."""
    density, sampler, _ = small
    u = {**density.start, "W": torch.full_like(density.start["W"], 3.0), "sd": density.start["sd"] - 3}
    sampler.integral.rows.centre = torch.full_like(density.pack(density.blocks["rows"], u), -0.4)
    precision = density.curvature(density.blocks["rows"], sampler.integral.rows.centre, u)[1]
    assert (torch.linalg.cholesky_ex(precision)[1] > 0).any()
    nowhere = {name: torch.zeros_like(u["sd"]) for name in sampler.names}
    torch.testing.assert_close(_moved(sampler, u, nowhere)[2]["z"], u["z"])


def test_weights_that_are_zero_stay_zero_and_are_no_dimension(small):
    density, _, shift = small
    u = {**density.start, "W": density.start["W"].clone()}
    u["W"][:, 0, 0] = 0.0
    moved, jacobian = density.shifted(u, {"W": shift["W"]})
    assert (moved["W"][:, 0, 0] == 0).all()
    torch.testing.assert_close(jacobian, shift["W"][:, 0] + 2 * shift["W"][:, 1])


def test_shares_of_the_rows_precision_are_those_of_the_linear_model():
    model, data = case("linear")
    density = RecordedDensity(model, data, 2)
    sampler = sampler_of(density, density.start)
    found = sampler.shares(density.start).numpy()
    values = {name: value.numpy() for name, value in density.values(density.start).items()}
    for c in range(2):
        w, sd = values["W"][c], values["sd"][c]
        wanted = np.zeros(len(w))
        for seen in data.seen:
            cells = np.einsum("jk,jl->jkl", w, w) * (seen / sd**2)[:, None, None]
            inverse = np.linalg.inv(np.eye(FACTORS) + cells.sum(0))
            wanted += np.einsum("kl,jlk->j", inverse, cells) / len(data.seen)
        np.testing.assert_allclose(found[c], wanted, rtol=1e-6, atol=1e-9)


def looked_at(u):
    """Moments of weights, noise and factors, of each chain, (chain, moment)."""
    w, sd, z = u["W"].flatten(1), u["sd"], u["z"].flatten(1)
    seen = [w.abs().mean(1), (w**2).mean(1), (w.abs() < 0.2).double().mean(1), sd.mean(1), (sd**2).mean(1)]
    return torch.stack([*seen, z.mean(1), (z**2).mean(1)], 1).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("is_dense", [True, False])
def test_draws_of_posteriors_stay_such(simulated, is_dense):
    """Averaged over tables drawn from the program the posterior is the prior, whatever the metric."""
    u, sampler = simulated.start, sampler_of(simulated, simulated.start)
    sampler.integral.rows.centre = torch.zeros_like(simulated.pack(simulated.blocks["rows"], u))
    rate = special.expit(LOG_ODDS)
    small = [stats.norm(0, s).cdf(0.2) - stats.norm(0, s).cdf(-0.2) for s in (SLAB, SPIKE)]
    wanted = [
        np.sqrt(2 / np.pi) * (rate * SLAB + (1 - rate) * SPIKE), rate * SLAB**2 + (1 - rate) * SPIKE**2,
        rate * small[0] + (1 - rate) * small[1], -0.5, 0.5, 0.0, 1.0,
    ]  # fmt: skip
    check(looked_at(u), wanted, most=0.1)
    size = len(sampler.root)
    torch.manual_seed(5)
    numbers = torch.randn(size, size, dtype=torch.float64)
    sampler.is_dense, sampler.step_size = is_dense, 0.4
    sampler.root = 0.2 * torch.linalg.qr(numbers)[1] if is_dense else 0.1 + 0.3 * numbers[0].abs()
    for _ in range(15):
        u = sampler.draw(u, adapts=False)
    assert 0.3 < sampler.acceptance < 0.95
    assert (u["sd"] - simulated.start["sd"]).abs().mean() > 0.1
    check(looked_at(u), wanted, most=0.1)


def _chains(log_noise, warm_up=20):
    """Chains of the curved program, where the first column's noise begins small or not."""
    rng = np.random.default_rng(1001)
    z = rng.normal(size=(60, FACTORS))
    x = np.logaddexp(0, np.concatenate([1.5 * z, z], 1)) + 0.4 * rng.normal(size=(60, FEATURES))
    density = RecordedDensity(Program(curved, FACTORS), Data(x), 2)
    u = {name: value.clone() for name, value in density.start.items()}
    u["W"][:] = torch.tensor([[1.5, 0.0], [0.0, 1.5], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    u["sd"][:] = -0.9
    u["sd"][:, :2] = log_noise
    # Rows stand where they have no residual in the first two columns.
    u["z"][:, :, 0] = torch.as_tensor(np.log(np.expm1(x[:, :2].clip(0.05))) / 1.5)
    return ProgramChains(density, u, warm_up, climbing=0)


def test_rows_follow_where_a_feature_holds_them_and_nowhere_else():
    chains = _chains(-4.0), _chains(0.5)
    held, free = (of_noise.transport for of_noise in chains)
    for of_noise, pause in zip(chains, (2, 0), strict=True):
        of_noise.transport.learn(of_noise.position)
        assert of_noise.transport.pause == pause
    for at, pause in ((5, 25), (15, 4)):  # seldom where chains have left such a place
        held.held_at = at
        held.pause = 2
        held.settle()
        assert held.pause == pause
    free.settle()
    assert free.pause == 0


@pytest.mark.slow
def test_noise_that_holds_the_rows_lets_go_of_them():
    """Noise begins at .02 where the cells have .4 and more that no factor explains."""
    torch.manual_seed(0)
    chains, still = _chains(-4.0, warm_up=60), _chains(-4.0, warm_up=60)
    still.transport.possible = False
    for _ in range(60):
        chains.sweep()
        still.sweep()
    assert (chains.position["sd"][:, :2] > -1.5).all() and (still.position["sd"][:, :2] < -1.5).any()


def test_it_goes_on_from_its_state():
    chains = _chains(-4.0), _chains(-4.0)
    torch.manual_seed(0)
    for _ in range(8):
        chains[0].sweep()
    chains[1].load(chains[0].state())
    after = []
    for of_state in chains:
        torch.manual_seed(1)
        for _ in range(14):  # past the end of the warm-up
            of_state.sweep()
        after.append(of_state.position)
    assert chains[0].transport.tuned
    for name, value in after[0].items():
        assert torch.equal(value, after[1][name])


def test_a_step_that_goes_astray_is_refused(small):
    density, sampler, _ = small
    sampler.step_size = 1e200
    moved = sampler.draw(density.start, adapts=False)
    assert sampler.acceptance < 0.8
    for name, value in density.start.items():
        assert torch.equal(moved[name], value)
