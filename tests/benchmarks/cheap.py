"""A benchmark that costs nothing, for testing the harness."""

from __future__ import annotations

import os

SEEDS, QUICK_SEEDS = 4, 2


def tasks(options):
    from benchmarks._common import report_seeds

    return [{"seed": seed, "slow": seed == 0} for seed in report_seeds(options.seeds)]


def run(seed, slow):
    import time

    import torch

    if slow:
        time.sleep(0.2)
    if seed == 99:
        raise ValueError("seed 99 breaks")
    return {"value": float(seed**2), "pid": os.getpid(), "threads": torch.get_num_threads()}


def collect(rows, options):
    return {"values": [row["value"] for row in rows], "nan": float("nan")}
