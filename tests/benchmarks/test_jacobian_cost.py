"""The benchmark of the Jacobian penalty: that all runs learn, that errors are seen, what is collected."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch

from benchmarks import jacobian_cost


def options(**given):
    return argparse.Namespace(**{"quick": False, "seeds": 2, **given})


def test_jobs():
    jobs = jacobian_cost.tasks(options())
    assert [(job["size"], job["seed"]) for job in jobs] == [
        (size, seed) for seed in (0, 1) for size in ("reference", "small")
    ]


def test_penalties_that_should_be_one_are_one():
    named = jacobian_cost.penalties()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5)).double()
    z = torch.randn(40, 3, dtype=torch.float64, requires_grad=True)
    found = {}
    for name in ("column", "difference", "forward", "exact"):
        torch.manual_seed(1)
        found[name] = named[name](network, z, network(z)).detach()
    torch.testing.assert_close(found["column"], found["forward"])
    torch.testing.assert_close(found["column"], found["difference"], rtol=1e-5, atol=1e-5)
    single, network = z.detach().float(), network.float()  # as in the benchmark
    torch.testing.assert_close(named["exact"](network, single), named["exact_forward"](network, single))


@pytest.mark.slow
def test_costs_are_ratios_and_the_runs_train(monkeypatch):
    monkeypatch.setattr(jacobian_cost, "TURN", 0.0)
    x = jacobian_cost.made_up(3, 8, 60, 1000)
    assert x.shape == (60, 8) and np.allclose(x.std(0), 1)
    figures = jacobian_cost.costs(x, 3, 6, 20, n_turns=1)
    names = [name for name in jacobian_cost.penalties() if name != "none"]
    assert all(figures[f"{step}_{name}"] > 0.1 for step in ("bare", "fit") for name in names)
    run = jacobian_cost.started(x, 3, 6, 20, jacobian_cost.penalties()["column"])
    for _ in range(40):
        run.advance()
    first = run.smooth.clone()
    for _ in range(100):
        run.advance()
    assert (run.smooth > first).all()


def test_a_biased_estimate_is_seen(monkeypatch):
    x = jacobian_cost.made_up(3, 8, 60, 1000)
    figures = jacobian_cost.errors(x, 3, 6, 20, draws=50)
    for name in ("column", "difference"):
        assert 0 < figures[f"sd_percent_{name}"] < 30
        assert abs(figures[f"bias_percent_{name}"]) < 4 * figures[f"bias_se_percent_{name}"]
    assert 0 < abs(figures["all_differences_bias_percent"]) < 1


def test_collect_and_table():
    rows = [
        {
            "size": size,
            "seed": seed,
            "ms_bare": 2.0,
            "bare_column": 1.5 + seed,
            "bare_difference": 1.4,
            "fit_column": 1.2,
            "fit_difference": 1.1,
            "sd_percent_column": 0.7,
        }
        for size in jacobian_cost.SIZES
        for seed in range(3)
    ]
    figures = jacobian_cost.collect(rows, options())
    assert figures["default_ratio"] == 2.5 and figures["difference_ratio"] == 1.4
    assert figures["small"]["sd_percent_column"] == pytest.approx(0.7)
    lines = jacobian_cost.table(rows)
    assert [line["penalty"] for line in lines] == ["column", "difference"] * 2
    assert lines[0]["bare"] == 2.5 and np.isnan(lines[1]["sd_percent"])
