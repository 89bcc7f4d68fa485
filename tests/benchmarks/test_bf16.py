"""The benchmark of rounded steps: its jobs, that only the steps differ, and its figures."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import bf16


def options(**given):
    return argparse.Namespace(**{"quick": False, "seeds": 2, "sizes": None, "first_seed": 0, **given})


def test_jobs():
    jobs = bf16.tasks(options(first_seed=1000))
    assert [(job["size"], job["seed"]) for job in jobs] == [(s, n) for s in bf16.SIZES for n in (1000, 1001)]
    assert bf16.tasks(options(quick=True, seeds=1)) == [
        {"size": "anchored60", "seed": 0, "steps": bf16.QUICK_STEPS, "hidden": bf16.QUICK_HIDDEN}
    ]


@pytest.mark.slow
def test_figures(monkeypatch):
    monkeypatch.setitem(bf16.SIZES, "anchored60", (9, 3))
    rows = [bf16.run("anchored60", seed, steps=30, hidden=8) for seed in (1000, 1001)]
    for row in rows:
        assert row["heldout_float32"] != row["heldout_bfloat16"]
        assert row["elbo_lost"] == row["heldout_float32"] - row["heldout_bfloat16"]
        assert row["mcc_float32"] == pytest.approx(row["mcc_bfloat16"], abs=0.1)
    found = bf16.collect([{**row, "size": "anchored60"} for row in rows], options())["anchored60"]
    assert found["ratio"] == np.mean([row["ratio"] for row in rows])
    assert found["f1_bfloat16"] == [row["f1_bfloat16"] for row in rows]
