"""The smoother's benchmark: its jobs, its gaps, a short run, its figures."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import smoother


def test_both_guides_have_every_set():
    jobs = smoother.tasks(argparse.Namespace(seeds=2, quick=True, first_seed=1000))
    assert len(jobs) == 8 and {job["seed"] for job in jobs} == {1000, 1001}
    assert [job["smoother"] for job in jobs[:2]] == [False, True]


def test_whole_frames_are_missing():
    x = np.ones((2000, 3, 2))
    gaps = np.isnan(smoother.with_gaps(x, 0.3, np.random.default_rng(0)))
    assert (gaps[..., 0] == gaps[..., 1]).all() and not gaps.all((1, 2)).any()
    assert gaps.mean() == pytest.approx(0.3 - 0.3**3, abs=0.02)
    assert not np.isnan(x).any()


@pytest.mark.slow
def test_a_short_run(monkeypatch):
    monkeypatch.setattr(smoother, "SIZES", {**smoother.SIZES, "n": 150, "n_test": 20})
    monkeypatch.setattr(smoother, "STEPS", {"steps": 300, "polish_steps": 0, "edge_steps": 50})
    rows = [
        {**smoother.run("missing", which, 1000, quick=True), "case": "missing", "smoother": which, "cpu_s": 1}
        for which in (False, True)
    ]
    own = smoother.collect(rows, argparse.Namespace())["missing"]
    assert list(own) == ["frame", "sequence"]
    assert 0 < own["sequence"]["mcc"][0] <= 1 and np.isfinite(own["frame"]["elbo"][0])
    assert len(own["frame"]["mcc_missing"]) == 1
