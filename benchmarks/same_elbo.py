"""same_elbo: CPU time of a whole fit against that of an older version, and which held-out ELBO each reaches.

--against PATH is a checkout of the older version (`git worktree add PATH 6b6c060`: the defaults of the first
release); without it the same code is its own rival, and the ratio says how far to trust the clock. Both fit
the same table with the same seed and the settings of its benchmark (sim1 with five factors, anchored60, bfi),
each in a process of its own, one after the other, in single-thread CPU seconds from the table to the fit;
imports are before the clock. The held-out ELBO is each fit's own, of a row kept aside, after a climb of the
row's factors: the held-out rows are the same. "reached" says that ours is no lower; where it is, the ratio
is of no use.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 5, 1
TABLES = ("sim1", "anchored60", "bfi")
ROOT = Path(__file__).resolve().parent.parent


def arguments(parser: argparse.ArgumentParser) -> None:
    from benchmarks import bfi

    parser.add_argument("--against", default=str(ROOT), help="a checkout of the older version")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    bfi.arguments(parser)


def tasks(options: argparse.Namespace) -> list[Row]:
    tables = TABLES[:1] if options.quick else TABLES
    return [
        {
            "table": table,
            "seed": options.first_seed + seed,
            "against": options.against,
            "path": options.path if table == "bfi" else None,
        }
        for seed in report_seeds(options.seeds)
        for table in tables
    ]


def run(table: str, seed: int, against: str, path: str | None) -> Row:
    ours, older = (one_fit(checkout, table, seed, path) for checkout in (str(ROOT), against))
    return {
        "cpu": ours["cpu"],
        "cpu_older": older["cpu"],
        "ratio": ours["cpu"] / older["cpu"],
        "elbo": ours["elbo"],
        "elbo_older": older["elbo"],
        "reached": bool(ours["elbo"] >= older["elbo"]),
    }


def one_fit(checkout: str, table: str, seed: int, path: str | None) -> dict[str, Any]:
    """A fit by the code of `checkout`, in a process of its own: CPU seconds and held-out ELBO."""
    words = [
        sys.executable,
        str(ROOT / "benchmarks" / "_one_fit.py"),
        table,
        str(seed),
        *([path] if path else []),
    ]
    environment = {**os.environ, "PYTHONPATH": checkout}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the fit by {checkout} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if Path(found["package"]) != Path(checkout).resolve() / "pyro_sparse":
        raise RuntimeError(f"{checkout}: its package was not found, that of {found['package']} was")
    return found


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """By table: ``ratio`` (the median over seeds, and the largest), seconds, and how often it is reached."""
    result: Row = {}
    for name in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == name]
        result[name] = {
            "ratio": float(np.median([row["ratio"] for row in own])),
            "ratio_max": max(row["ratio"] for row in own),
            "cpu": float(np.median([row["cpu"] for row in own])),
            "cpu_older": float(np.median([row["cpu_older"] for row in own])),
            "gain": float(np.median([row["elbo"] - row["elbo_older"] for row in own])),
            "gain_min": min(row["elbo"] - row["elbo_older"] for row in own),
            "reached": sum(row["reached"] for row in own),
            "n": len(own),
        }
    return result
