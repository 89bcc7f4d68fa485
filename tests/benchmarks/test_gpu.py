"""The benchmark of accelerators: its jobs, and that a step is timed and counted, here on the processor."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import gpu
from benchmarks._step import Sizes


def options(**given):
    return argparse.Namespace(
        **{"quick": False, "seeds": 2, "peer": "", "device": "cpu", "what": ("step", "fit"), **given}
    )


def test_jobs():
    jobs = gpu.tasks(options())
    assert len(jobs) == 2 * (len(gpu.CASES) + 3) and {job["seed"] for job in jobs} == {0, 1}
    assert [job["what"] for job in gpu.tasks(options(quick=True, seeds=1))] == ["step", "fit"]


@pytest.mark.slow
def test_a_step_is_timed(monkeypatch):
    monkeypatch.setitem(gpu.SIZES, "ml", Sizes(12, 3, 6, 10))
    monkeypatch.setattr(gpu, "TURN", 0.0)
    monkeypatch.setattr(gpu, "SQUARES", (64,))
    row = {
        "what": "step",
        "size": "ml",
        "restarts": 2,
        "one_factor": 0.0,
        "seed": 0,
        "peer": "",
        "device": "cpu",
    }
    figures = gpu.run(**row)
    assert min(figures[f"ms_{name}"] for name in ("ours", "plain", "bf16")) > 0 and figures["share"] > 0
    assert gpu.collect([{**row, **figures}], options())["ml_2_0"]["share"] == pytest.approx(figures["share"])
