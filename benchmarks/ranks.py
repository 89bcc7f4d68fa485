"""ranks: one fit shared by two processes under torchrun (gloo), against one process at the same minibatch.

"same": a fit of sim1 in one process and in two; then with one rank killed (SIGKILL) half way, and with both
and torchrun killed, and started again with the checkpoint, the latter also as one process. `apart` is the
largest difference of a parameter from one process, `elbo_...` that of a held-out ELBO from the two that
nobody killed. "speed": steps on a wide table and the judging of held-out rows; `..._cpu` is CPU seconds of
one process over those of the busier rank, what two free cores would give at best, and `..._wall` the ratio of
wall times on this machine. What is done once (start, effects, deletions) is left out. Wants ``--jobs 1``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import THREADS, Row, report_seeds

SEEDS, QUICK_SEEDS = 1, 1
STEPS, QUICK_STEPS = 200, 100
FULL = {"n_rows": 1536, "n_features": 2000, "n_factors": 50, "batch_size": 512, "steps": 5}
QUICK = {"n_rows": 1024, "n_features": 200, "n_factors": 10, "batch_size": 256, "steps": 6}
ROOT = Path(__file__).resolve().parent.parent


def tasks(options: argparse.Namespace) -> list[Row]:
    steps, size = (QUICK_STEPS, QUICK) if options.quick else (STEPS, FULL)
    kills = ["one"] if options.quick else ["one", "all"]
    both: list[Row] = [
        {"what": "speed", **size},
        {"what": "same", "dtype": "float64", "steps": steps, "kills": kills},
    ]
    return [{**task, "seed": seed} for seed in report_seeds(options.seeds) for task in both]


def run(what: str, **task: Any) -> Row:
    """One comparison."""
    with tempfile.TemporaryDirectory() as folder:
        return {"same": _same, "speed": _speed}[what](Path(folder), {"what": what, **task})


def _same(folder: Path, task: Row) -> Row:
    one, two = _launch(folder, "one", 1, task)[0], _launch(folder, "two", 2, task)
    found: Row = {"apart": _apart(one, two[0]), "between_ranks": _apart(*two)}
    for kill in task["kills"]:
        own = {**task, "checkpoint": f"{kill}.ckpt"}
        if _launch(folder, f"killed_{kill}", 2, {**own, "kill": kill}):
            raise RuntimeError(f"kill={kill}: a rank ended as if nothing had happened")
        shutil.copy(folder / f"{kill}.ckpt", folder / "copy.ckpt")
        found[f"elbo_killed_{kill}"] = _elbo(two, _launch(folder, f"after_{kill}", 2, own))
        if kill == "all":
            again = _launch(folder, "alone", 1, {**task, "checkpoint": "copy.ckpt"})
            found["elbo_killed_all_then_one"] = _elbo(two, again)
    return found


def _speed(folder: Path, task: Row) -> Row:
    one, two = _launch(folder, "one", 1, task)[0], _launch(folder, "two", 2, task)
    found: Row = {"apart": _apart(one, two[0]), "edges": one["edges"]}
    for work in ("step", "rowwise"):
        busiest = np.max([rank[work] for rank in two], axis=0)
        found[f"{work}_s"] = one[work][0]
        found[f"{work}_cpu"], found[f"{work}_wall"] = (np.asarray(one[work]) / busiest).tolist()
    return found


def _launch(folder: Path, name: str, size: int, task: Row) -> list[Row]:
    """Run `_rank.py` in so many processes; what they left, which is nothing if they were killed."""
    import torch

    words = [str(Path(__file__).with_name("_rank.py")), str(folder), name, json.dumps(task)]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)] * (size > 1)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *launcher, *words],
        env={**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": path},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode and "kill" not in task:
        raise RuntimeError(f"{name}: {done.stderr[-3000:]}")
    return [torch.load(path, weights_only=True) for path in sorted(folder.glob(f"{name}-*.pt"))]


def _elbo(one: list[Row], other: list[Row]) -> float:
    return float((one[0]["elbo"] - other[0]["elbo"]).abs().max())


def _apart(one: Row, other: Row) -> float:
    return max(float((a - other["state"][n]).abs().max()) for n, a in one["state"].items() if a.numel())


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """The largest differences and the smallest ratios of all seeds."""
    found: dict[str, Any] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith(("apart", "between", "elbo")):
                key = f"{name}_{row['what']}"
                found[key] = max(value, found.get(key, 0.0))
            elif name.endswith(("_cpu", "_wall")):
                found[name] = min(value, found.get(name, np.inf))
    return found
