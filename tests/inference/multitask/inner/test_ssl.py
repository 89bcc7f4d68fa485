"""Coordinate descent under the spike-and-slab lasso: the mode, on both paths, against a solver of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.multitask.inner import _compiled_ssl, moments
from pyro_sparse.inference.multitask.inner.ssl import ssl_sweeps
from pyro_sparse.priors import em, ssl_regression

needs_numba = pytest.mark.skipif(not _compiled_ssl.AVAILABLE, reason="the extra 'fast' is not installed")
PATHS = [pytest.param(True, marks=needs_numba), False]


def problem(t=6, n=30, d=4, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    f = torch.randn(t, n, d, generator=g, dtype=dtype) @ torch.randn(d, d, generator=g, dtype=dtype)
    w = torch.randn(t, d, generator=g, dtype=dtype) * (torch.rand(t, d, generator=g) < 0.5)
    return f, (f @ w.unsqueeze(-1))[..., 0] + 0.5 * torch.randn(t, n, generator=g, dtype=dtype)


@pytest.mark.parametrize("compiled", PATHS)
def test_the_mode_is_that_of_ssl_regression(compiled):
    f, y = problem(t=3)
    f, y = f - f.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    variance = torch.linspace(0.1, 0.4, 3, dtype=torch.float64)
    eta = torch.full((4,), 0.3, dtype=torch.float64)
    start = torch.zeros(3, 4, dtype=torch.float64)
    found = ssl_sweeps(
        moments(f, y.unsqueeze(-1)), start, variance / 30, eta, 1.0, 20.0, sweeps=150, compiled=compiled
    )
    for t in range(3):
        sigma = float(variance[t]) ** 0.5
        want = ssl_regression(f[t], y[t], ladder=[20.0], sigma=sigma, eta=0.3, start=start[t])
        assert want.converged
        torch.testing.assert_close(found[t], want.coef, rtol=1e-7, atol=1e-9)
    assert (found == 0).any()
    assert (found != 0).any()
    assert (start == 0).all()


@pytest.mark.parametrize("compiled", PATHS)
def test_one_weight_is_the_best_on_a_grid(compiled):
    """A single feature has no path to depend on: the answer is the global minimum."""
    grid = np.linspace(-4, 4, 80_001)
    for seed in range(6):
        f, y = problem(t=3, n=8, d=1, seed=seed)
        y = 0.5 * y
        data = moments(f, y.unsqueeze(-1))
        temper = torch.tensor([0.02, 0.1, 0.5], dtype=torch.float64)
        eta = torch.tensor([0.4], dtype=torch.float64)
        found = ssl_sweeps(
            data, torch.ones(3, 1).double(), temper, eta, 0.7, 12.0, sweeps=1, compiled=compiled
        )
        for t in range(3):
            slab = 0.4 * 0.35 * np.exp(-0.7 * abs(grid))
            spike = 0.6 * 6.0 * np.exp(-12 * abs(grid))
            fit = 0.5 * float(data.gram[t, 0, 0]) * grid**2 - float(data.moment[t, 0, 0]) * grid
            objective = fit / float(temper[t]) - np.log(slab + spike)
            assert float(found[t, 0]) == pytest.approx(grid[objective.argmin()], abs=2e-4)


@needs_numba
def test_the_compiled_map_is_the_proximal_map():
    v = torch.linspace(-3, 3, 301, dtype=torch.float64)
    for step, eta, low, high in [
        (0.5, 0.3, 1.0, 30.0), (0.01, 0.9, 1.0, 300.0), (2.0, 0.5, 0.5, 0.5), (1e-4, 1e-6, 1.0, 10.0)
    ]:  # fmt: skip
        odds = float(em.edge_log_odds(torch.zeros(()).double(), torch.tensor(eta).double(), low, high))
        got = [_compiled_ssl.prox(float(one), step, odds, low, high - low) for one in v]
        torch.testing.assert_close(
            torch.tensor(got, dtype=torch.float64), em.ssl_prox(v, step, eta, low, high), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("compiled", PATHS)
def test_a_feature_that_does_not_vary_gets_zero(compiled):
    f, y = problem()
    f[2, :, 1] = 0.0
    start = torch.ones(6, 4, dtype=torch.float64)
    temper = torch.full((6,), 0.01, dtype=torch.float64)
    found = ssl_sweeps(
        moments(f, y.unsqueeze(-1)),
        start,
        temper,
        torch.full((4,), 0.5).double(),
        1.0,
        30.0,
        compiled=compiled,
    )
    assert found[2, 1] == 0
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("compiled", PATHS)
def test_rates_of_each_task_and_feature_are_those_of_each_alone(compiled):
    f, y = problem(t=3)
    data, start = moments(f, y.unsqueeze(-1)), torch.zeros(3, 4).double()
    temper = torch.full((3,), 0.02, dtype=torch.float64)
    eta = torch.tensor([[0.2], [0.5], [0.8]]).double().expand(3, 4)
    low, high = torch.tensor([[0.5], [1.0], [2.0]]).double(), torch.tensor([[20.0], [40.0], [10.0]]).double()
    found = ssl_sweeps(data, start, temper, eta, low, high, sweeps=30, compiled=compiled)
    for t in range(3):
        settings = (eta[t], float(low[t]), float(high[t]))
        alone = ssl_sweeps(data, start, temper, *settings, sweeps=30, compiled=compiled)
        torch.testing.assert_close(found[t], alone[t], rtol=1e-12, atol=1e-12)
    assert (found != 0).any()
    mixed = low.expand(3, 4) * torch.tensor([1.0, 3.0, 1.0, 0.2])
    one = ssl_sweeps(data, start, temper, eta, mixed, high, sweeps=200, compiled=compiled)
    # In the features' own units, a rate of all.
    unit = torch.tensor([1.0, 3.0, 1.0, 0.2]).double()
    scaled = moments(f / unit, y.unsqueeze(-1))
    other = ssl_sweeps(scaled, start, temper, eta, low, high / unit, sweeps=200, compiled=compiled)
    torch.testing.assert_close(one * unit, other, rtol=1e-7, atol=1e-9)


@needs_numba
def test_both_paths_agree_in_single_precision():
    f, y = problem(t=50, dtype=torch.float32)
    data, start = moments(f, y.unsqueeze(-1)), torch.zeros(50, 4)
    settings = (torch.full((50,), 0.01), torch.tensor([0.2, 0.4, 0.6, 0.8]), torch.tensor(1.0), 30.0)
    one, other = (ssl_sweeps(data, start, *settings, compiled=c) for c in (True, False))
    assert one.dtype == torch.float32
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_compiled_without_numba_is_an_error(monkeypatch):
    monkeypatch.setattr(_compiled_ssl, "AVAILABLE", False)
    f, y = problem(t=2)
    arguments = (
        moments(f, y.unsqueeze(-1)),
        torch.zeros(2, 4),
        torch.ones(2),
        torch.full((4,), 0.5),
        1.0,
        9.0,
    )
    with pytest.raises(ValueError, match="compiled: numba is not installed"):
        ssl_sweeps(*arguments, compiled=True)
    assert ssl_sweeps(*arguments).shape == (2, 4)
