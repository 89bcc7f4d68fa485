"""The benchmark of actions' codings: its jobs, its sets, one of each part."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import categorical_actions as benchmark


def test_a_quick_run_makes_one_fit():
    jobs = benchmark.tasks(argparse.Namespace(seeds=5, quick=True, first_seed=1000, what=None))
    assert [job["seed"] for job in jobs if job["what"] == "coding"] == list(range(1000, 1005))
    assert [job["seed"] for job in jobs if job["what"] == "fit"] == [1000]
    assert len(benchmark.tasks(argparse.Namespace(seeds=5, quick=False, first_seed=0, what=["fit"]))) == 5


def test_an_action_without_an_edge_moves_nothing():
    z, codes, graph = benchmark.simulated(1001)
    assert z.shape == (20, 50, 3) and codes.shape == (20, 50, 2) and set(codes.ravel()) == {0, 1, 2}
    means = np.array(
        [[[z[codes[..., a] == v][:, i].mean() for v in range(3)] for a in range(2)] for i in range(3)]
    )
    assert np.ptp(means, axis=2)[~graph].max() < 0.35


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1000, 1001])
def test_probabilities_do_not_depend_on_the_coding(seed):
    z, codes, graph = benchmark.simulated(seed)
    row = {**benchmark.codings(z, codes, graph), "what": "coding"}
    assert row["apart"] < 1e-9 and row["levels"] == 2 + seed % 4
    assert len(benchmark.ways_of(codes)) == (5 if seed == 1000 else 3)
    found = benchmark.collect([row], argparse.Namespace())
    assert 0.5 < found["coding"]["ap"] <= 1 and 0.5 < found["one_hot"]["ap"] <= 1
    assert benchmark.table([row])[0]["levels"] == row["levels"]


@pytest.mark.slow
def test_a_quick_fit():
    row = {**benchmark.run("fit", 1001, quick=True), "what": "fit"}
    assert row["apart"] == 0 and len(row["p"]) == len(row["truth"]) == 6 and 0 < row["mcc"] <= 1
    assert benchmark.collect([row], argparse.Namespace())["fit"]["n"] == 1
