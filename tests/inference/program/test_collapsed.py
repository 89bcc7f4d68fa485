"""Rows integrated out, against scipy; Hamiltonian steps then, on draws that must stay such; their metric."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from pyro_sparse.inference.program import metric as metrics
from pyro_sparse.inference.program.blocks import BlockSampler
from pyro_sparse.inference.program.collapsed import CollapsedSampler, RowIntegral
from pyro_sparse.inference.program.metric import AlignedMetric
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.programs import Data, Program
from tests._programs import case
from tests.inference.program._factor_tables import (
    CHAINS,
    FEATURES,
    LOG_ODDS,
    ROWS,
    SLAB,
    SPIKE,
    program_of,
    tables_of,
)
from tests.inference.program._long_runs import check

program = program_of(lambda f: f)


def sampler_of(density, u, adapting=40):
    integral = RowIntegral(density, BlockSampler(density, density.blocks["rows"], u))
    return CollapsedSampler(density, integral, u, adapting)


@pytest.fixture(scope="module")
def simulated():
    return tables_of(lambda f: f)


def test_the_integral_over_rows_is_that_of_a_multivariate_normal():
    model, data = case("linear")
    density = RecordedDensity(model, data, 2)
    u = density.start
    sampler = sampler_of(density, u)
    assert sampler.useful and sampler.integral.is_exact
    values = {name: value.numpy() for name, value in density.values(u).items()}
    logs = density.logs(u)
    for c in range(2):
        w, b, sd = (values[name][c] for name in ("W", "b", "sd"))
        cov = w @ w.T + np.diag(sd**2)
        wanted = sum(logs[name][c].sum().item() for name in ("eta", "W", "b", "sd"))
        for x, seen in zip(data.x, data.seen, strict=True):
            wanted += stats.multivariate_normal(b[seen], cov[np.ix_(seen, seen)]).logpdf(x[seen])
        assert sampler.integral.level(u)[c].item() == pytest.approx(wanted, rel=1e-9)
        rows = density.blocks["rows"]
        level = density.marginal_slope(rows, u, tuple(sampler.names))[0]
        assert level[c].item() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("log_sd", [-8.0, -16.0, -26.0])
def test_a_feature_without_noise_does_not_turn_the_integral_into_rounding(log_sd):
    """One factor, so that the covariance has a closed inverse without cancellation."""
    data = Data(np.random.default_rng(0).standard_normal((ROWS, FEATURES)))
    density = RecordedDensity(Program(program, 1), data, 2)
    sd = density.start["sd"].clone()
    sd[..., 0] = log_sd
    u = {**density.start, "sd": sd}
    sampler = sampler_of(density, u)
    logs = density.logs(u)
    for c in range(2):
        w, noise = u["W"][c].flatten().numpy(), np.exp(sd[c].flatten().numpy())
        wanted = sum(logs[name][c].sum().item() for name in ("W", "sd"))
        # The factor is given by the first feature but for noise / w of it; the others are normal about that.
        shrink = 1 / (1 + (noise[0] / w[0]) ** 2)
        rest = np.diag(noise[1:] ** 2) + np.outer(w[1:], w[1:]) * (1 - shrink)
        first = stats.norm(0, np.hypot(w[0], noise[0]))
        for x in data.x:
            wanted += first.logpdf(x[0])
            wanted += stats.multivariate_normal(w[1:] * shrink * x[0] / w[0], rest).logpdf(x[1:])
        at_rows = sampler.integral.level(u)[c].item()
        level, slope = density.marginal_slope(density.blocks["rows"], u, ("sd", "W"))
        assert at_rows == pytest.approx(wanted, rel=1e-6) and level[c].item() == pytest.approx(
            wanted, rel=1e-6
        )
        if log_sd < -10:  # what is left is the prior's slope
            assert slope["sd"][c].flatten()[0].item() == pytest.approx(-(log_sd + 0.5) / 0.25, rel=1e-3)


def test_its_gradient_is_that_of_differences():
    density = RecordedDensity(*case("linear"), 2)
    rows, u, names = density.blocks["rows"], density.start, ("W", "sd")
    gradient = density.marginal_slope(rows, u, names)[1]
    for name in names:
        step = torch.zeros_like(u[name])
        step[(slice(None), *[0] * (step.dim() - 1))] = 1e-5
        up, down = (density.marginal_slope(rows, {**u, name: u[name] + s * step}, names)[0] for s in (1, -1))
        slope = gradient[name][(slice(None), *[0] * (step.dim() - 1))]
        torch.testing.assert_close((up - down) / 2e-5, slope, rtol=1e-5, atol=1e-5)


def looked_at(u):
    """Moments of weights, noise and factors, of each chain, (chain, moment)."""
    w, sd, z = u["W"].flatten(1), u["sd"], u["z"].flatten(1)
    seen = [w.abs().mean(1), (w**2).mean(1), (w.abs() < 0.2).double().mean(1), sd.mean(1), (sd**2).mean(1)]
    return torch.stack([*seen, z.mean(1), (z**2).mean(1)], 1).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("is_dense", [True, False])
def test_draws_of_posteriors_stay_such(simulated, is_dense, monkeypatch):
    """Averaged over tables drawn from the program the posterior is the prior, whatever the metric."""
    monkeypatch.setattr(metrics, "_MOST_DENSE", 100 if is_dense else 1)
    u, sampler = simulated.start, sampler_of(simulated, simulated.start)
    assert sampler.metric.is_dense is is_dense
    rate = special.expit(LOG_ODDS)
    small = [stats.norm(0, s).cdf(0.2) - stats.norm(0, s).cdf(-0.2) for s in (SLAB, SPIKE)]
    wanted = [
        np.sqrt(2 / np.pi) * (rate * SLAB + (1 - rate) * SPIKE), rate * SLAB**2 + (1 - rate) * SPIKE**2,
        rate * small[0] + (1 - rate) * small[1], -0.5, 0.5, 0.0, 1.0,
    ]  # fmt: skip
    check(looked_at(u), wanted, most=0.1)
    size = sampler.metric.root.shape[-1]
    torch.manual_seed(5)
    sampler.metric.reference = sampler.metric.flat(u)
    numbers = torch.randn(CHAINS, size, size, dtype=torch.float64)
    sampler.metric.root = 0.2 * torch.linalg.qr(numbers)[1] if is_dense else 0.1 + 0.3 * numbers[:, 0].abs()
    sampler.step_size = 0.3
    for _ in range(15):
        u = sampler.draw(u, adapts=False)
    assert 0.3 < sampler.acceptance < 0.95
    assert (u["W"] - simulated.start["W"]).abs().mean() > 0.1
    check(looked_at(u), wanted, most=0.1)


def test_numbers_have_one_frame_whatever_the_order_and_the_signs_of_factors():
    density = RecordedDensity(*case("linear"), 2)
    u = density.start
    metric = AlignedMetric(density, ["W", "eta", "sd"], u, 40)
    metric.reference = metric.flat(u)
    sign = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    other = {**u, "W": (u["W"] * sign).flip(-1), "eta": u["eta"].flip(-1)}
    place, signs = metric.frame(other)
    torch.testing.assert_close(metric.flat(other).gather(1, place) * signs, metric.flat(u))
    place, signs = metric.frame(u)
    assert torch.equal(place, torch.arange(place.shape[1]).expand_as(place)) and (signs == 1).all()


@pytest.mark.parametrize("is_dense", [True, False])
def test_the_metric_is_the_covariance_in_that_frame_mixed_with_its_diagonal(is_dense, monkeypatch):
    """Or the diagonal alone, of many numbers."""
    monkeypatch.setattr(metrics, "_MOST_DENSE", 100 if is_dense else 1)
    density = RecordedDensity(*case("linear"), 2)
    u, torch_rng = density.start, torch.Generator().manual_seed(0)
    metric = AlignedMetric(density, ["W", "sd"], u, 100)
    draws, changed = [], []
    for sweep in range(10):
        noise = 0.05 * torch.randn(u["W"].shape, generator=torch_rng, dtype=torch.float64)
        weight = u["W"][:1] + noise  # chains in one place, whose factors change signs and places
        draws.append(torch.cat([-weight.reshape(2, -1), u["sd"]], 1).numpy())  # as the first sweep has it
        weight = weight.flip(-1) if sweep % 2 else -weight
        changed.append(metric.learn({**u, "W": weight}))
    assert changed == [False] * 9 + [True]  # a tenth of the sweeps that adapt
    flat = np.concatenate(draws)
    covariance = np.cov(flat.T, ddof=0)
    share = 2.0 / (2.0 + flat.shape[1])  # a tenth of twenty draws, beside as many as there are numbers
    variance = np.maximum(covariance.diagonal(), 1e-5)
    wanted = share * covariance + np.diag(variance - share * covariance.diagonal())
    root, step = metric.root[0].numpy(), torch.linspace(-1, 1, flat.shape[1], dtype=torch.float64)[None]
    root = root if is_dense else np.diag(root)
    np.testing.assert_allclose(root @ root.T, wanted if is_dense else np.diag(variance), atol=1e-9)
    np.testing.assert_allclose(metric.scaled(step)[0], root @ step[0].numpy())
    np.testing.assert_allclose(metric.pulled_back(step)[0], root.T @ step[0].numpy())


def test_it_goes_on_from_its_state():
    density = RecordedDensity(*case("linear"), 2)
    samplers = [sampler_of(density, density.start) for _ in range(2)]
    torch.manual_seed(0)
    u = density.start
    for _ in range(6):
        samplers[0].learn(u)
        u = samplers[0].draw(u, adapts=True)
    samplers[1].load(samplers[0].state())
    after = []
    for sampler in samplers:
        torch.manual_seed(1)
        sampler.learn(u)
        after.append(sampler.draw(u, adapts=True))
    for name, value in after[0].items():
        assert torch.equal(value, after[1][name])


def test_a_step_that_goes_astray_is_refused(simulated):
    sampler = sampler_of(simulated, simulated.start)
    sampler.step_size = 1e200
    moved = sampler.draw(simulated.start, adapts=False)
    assert sampler.acceptance < 0.8 and torch.isfinite(moved["z"]).all()
    assert torch.equal(moved["W"], simulated.start["W"]) and torch.equal(moved["sd"], simulated.start["sd"])
