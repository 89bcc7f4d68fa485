"""large: memory and CPU time of a fit to counts that would not fit in memory as a dense table.

Counts of N rows and G features, about one cell in twenty not zero, simulated a few rows at a time in a
process of their own and handed over as a file of a scipy CSR matrix: each row's total is split among the
features by a curve-free sparse graph of K factors, so that counts are independent Poisson ones given the
factors. The fit is `ps.fit` of a SparseDecoder as a user would call it, for the few steps given by --steps,
pruning once; "peak_gib" is the largest resident memory of its process from start to end, the matrix
included. "cpu_per_epoch" is CPU seconds of a step in each stage of the schedule, times steps in an epoch; the
stages share the epoch as they share a fit. The time of what is done once (statistics, start, judging) is
stated apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 1, 1
FULL = {"n_rows": 100_000, "n_features": 20_000, "n_factors": 15, "steps": 40}
QUICK = {"n_rows": 3_000, "n_features": 400, "n_factors": 5, "steps": 20}
ROOT = Path(__file__).resolve().parent.parent
ALIKE = 20  # rows with the same factors
MEAN_TOTAL = 1200  # counts of a row per 20,000 features


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help=f"steps of the fit (default {FULL['steps']})")
    parser.add_argument("--rows", type=int, help=f"rows (default {FULL['n_rows']})")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], help="torch threads (default 1)")
    parser.add_argument("--decoder", nargs="+", default=["mlp"], choices=("mlp", "linear"))
    parser.add_argument("--likelihood", default="negative_binomial")
    parser.add_argument("--holdout", type=float, default=0.1, help="as in ps.fit")
    parser.add_argument("--no-prune", action="store_true", help="leave the deletions out, the longest job")


def tasks(options: argparse.Namespace) -> list[Row]:
    size: dict[str, Any] = dict(QUICK if options.quick else FULL)
    size["steps"] = options.steps or size["steps"]
    size["n_rows"] = options.rows or size["n_rows"]
    size |= {"holdout": options.holdout, "prune": not options.no_prune}
    return [
        {**size, "decoder": decoder, "likelihood": options.likelihood, "threads": threads, "seed": seed}
        for seed in report_seeds(options.seeds)
        for decoder in options.decoder
        for threads in options.threads
    ]


def run(**task: Any) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        simulate(Path(folder), **{k: task[k] for k in ("n_rows", "n_features", "n_factors", "seed")})
        code = f"from benchmarks.large import measured; measured({folder!r}, {task!r})"
        threads = {name: str(task["threads"]) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, **threads},
        )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def simulate(folder: Path, n_rows: int, n_features: int, n_factors: int, seed: int) -> None:
    """Write the three arrays of a CSR matrix; nothing of the table is ever dense."""
    rng = np.random.default_rng(seed)
    weights = np.zeros((n_features, n_factors))
    for j in range(n_features):
        own = rng.choice(n_factors, size=rng.integers(1, 3), replace=False)
        weights[j, own] = rng.choice([-1, 1], len(own)) * rng.uniform(0.4, 0.9, len(own))
    base = rng.normal(0.0, 1.0, n_features)
    depth = MEAN_TOTAL * n_features / 20_000 * np.exp(rng.normal(0.0, 0.3, n_rows))
    values, columns, ends = [], [], [np.zeros(1, dtype=np.int64)]
    for first in range(0, n_rows, ALIKE):
        share = np.exp(base + weights @ rng.normal(size=n_factors)).cumsum()
        total = rng.poisson(depth[first : first + ALIKE])
        drawn = np.searchsorted(share, rng.uniform(0, share[-1], total.sum()))
        row = np.repeat(np.arange(len(total)), total)
        cell, count = np.unique(row * n_features + drawn, return_counts=True)
        columns.append((cell % n_features).astype(np.int32))
        values.append(count.astype(np.float32))
        ends.append(ends[-1][-1] + np.searchsorted(cell, np.arange(1, len(total) + 1) * n_features))
    np.save(folder / "indptr.npy", np.concatenate(ends))
    np.save(folder / "data.npy", np.concatenate(values))
    column = np.concatenate(columns)
    there = np.bincount(column, minlength=n_features) > 0  # a feature of zeros only would be refused
    np.save(folder / "indices.npy", (there.cumsum() - 1).astype(np.int32)[column])


def measured(folder: str, task: Row) -> None:
    """Fit, and print what it took as one JSON line."""
    import scipy.sparse as sp

    import pyro_sparse as ps
    from pyro_sparse.inference.table import sparse_run

    parts = [np.load(Path(folder) / f"{name}.npy") for name in ("data", "indices", "indptr")]
    x = sp.csr_matrix(tuple(parts), shape=(task["n_rows"], int(parts[1].max()) + 1))
    del parts
    stages: dict[str, list[float]] = {}
    advance, prune = sparse_run.SparseRun.advance, sparse_run.prune
    spent = {"prune": 0.0}

    def timed(self: Any) -> None:
        stage, before, start = self._stage(), spent["prune"], time.process_time()
        advance(self)
        each = time.process_time() - start - (spent["prune"] - before)
        stages.setdefault(stage, []).append(each)
        if len(stages[stage]) == 1:
            say(f"first step of stage {stage}: {each:.2f} s")

    def timed_prune(*args: Any, **options: Any) -> int:
        start = time.process_time()
        found = prune(*args, **options)
        spent["prune"] += time.process_time() - start
        return found

    sparse_run.SparseRun.advance, sparse_run.prune = timed, timed_prune  # type: ignore[method-assign]
    model = ps.models.SparseDecoder(
        x.shape[1], task["n_factors"], likelihood=task["likelihood"], decoder=task["decoder"]
    )
    matrix, base = gib(), time.process_time()
    say("matrix read")
    fit = ps.fit(
        model, ps.open_rows(x), restarts=1, seed=task["seed"], steps=task["steps"],
        holdout=task["holdout"], prune_at=(0.6,) if task["prune"] else (),
        warm_up=5, evaluate_every=max(task["steps"] // 2, 1), threads=task["threads"], progress=False,
    )  # fmt: skip
    whole = time.process_time() - base
    start = time.process_time()
    say("fitted")
    fit.transform(ps.open_rows(x[:1000]))
    transform = time.process_time() - start
    plan = ps.inference.Schedule(steps=task["steps"])
    in_epoch = (task["n_rows"] - min(100, task["n_rows"] // 10)) / plan.batch_size
    share = np.bincount([list(stages).index(plan.stage(s)) for s in range(task["steps"])])
    usual = {stage: float(np.median(each)) for stage, each in stages.items()}
    training = sum(sum(each) for each in stages.values())
    figures = {
        "nonzero": x.nnz / np.prod(x.shape, dtype=float),
        "matrix_gib": (x.data.nbytes + x.indices.nbytes + x.indptr.nbytes) / 2**30,
        "gib_before": matrix,
        "peak_gib": gib(),
        "cpu_per_epoch": float(share @ list(usual.values())) / task["steps"] * in_epoch,
        "cpu_per_step": usual,
        "cpu_prune": spent["prune"],
        "cpu_once": whole - training - spent["prune"],
        "cpu_transform_1000": transform,
        "elbo": float(fit.elbo[0]),
    }
    print(json.dumps({**task, **figures}))


def say(what: str) -> None:
    """Tell, on standard error, where the fit is, and what it took so far."""
    print(f"{what}; {time.process_time():.0f} s CPU, {gib():.2f} GiB", file=sys.stderr, flush=True)


def gib() -> float:
    """Largest resident memory of this process so far (Linux: kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Figures by decoder and threads."""
    names = ("peak_gib", "cpu_per_epoch", "cpu_once", "cpu_prune", "nonzero", "matrix_gib")
    return {f"{row['decoder']}_{row['threads']}_threads": {name: row[name] for name in names} for row in rows}
