"""What every benchmark shares: seeds, processes, the fit as a user would call it, and the record of a figure.

Seeds for quoted figures and seeds for choosing defaults never meet: REPORT seeds count from 0, TUNING seeds
from 1000. Each job runs in its own single-threaded process, `jobs` at a time, so a figure does not depend on
its neighbours.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import platform
import subprocess
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

REPORT = 0
TUNING = 1000
FDR = 0.1
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PACKAGES = ("pyro-sparse", "torch", "pyro-ppl", "numpy", "scipy", "scikit-learn", "pandas", "arviz")

Row = dict[str, Any]


def report_seeds(n: int) -> list[int]:
    """The first n seeds for figures that are quoted; nothing may be chosen by looking at them."""
    return _seeds(REPORT, n)


def tuning_seeds(n: int) -> list[int]:
    """The first n seeds for choosing defaults; no quoted figure uses them."""
    return _seeds(TUNING, n)


def _seeds(start: int, n: int) -> list[int]:
    if not 1 <= n <= TUNING - REPORT:
        raise ValueError(
            f"seeds={n}: want 1 to {TUNING - REPORT}, so that report and tuning seeds stay apart"
        )
    return list(range(start, start + n))


def run_tasks(module: str, tasks: list[Row], jobs: int = 2, record: Path | None = None) -> list[Row]:
    """Run ``module.run(**task)`` for every task, `jobs` processes at a time; rows come back in the tasks'
    order.

    Every row is the task, its figures, ``cpu_s``, ``wall_s``, ``task`` and ``commit``. Progress goes to
    stderr. A task that `record` (JSON lines) already holds is not run again, and every new row is added there
    at once, so that a benchmark of many hours may be cut off and go on.

    Raises
    ------
    RuntimeError
        At the end, if any task failed: no figure is made from the rest.
    """
    for name in THREADS:
        os.environ[name] = "1"
    rows = [recorded(task, record) for task in tasks]
    new = [i for i, row in enumerate(rows) if not row]
    version = commit()
    failed = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        futures = {pool.submit(_run_one, module, tasks[i]): i for i in new}
        for done, future in enumerate(as_completed(futures), start=1):
            i = futures[future]
            try:
                rows[i] = {**future.result(), "task": tasks[i], "commit": version}
                _say(f"{done}/{len(new)}  {_brief(rows[i])}")
                if record is not None:
                    with record.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(plain(rows[i]), allow_nan=False) + "\n")
            except Exception:
                failed.append(tasks[i])
                _say(f"{done}/{len(new)}  FAILED {tasks[i]}\n{traceback.format_exc()}")
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(tasks)} tasks failed, the first being {failed[0]}")
    return rows


def recorded(task: Row, record: Path | None) -> Row:
    """The last row of `record` that is of this very task, or an empty one."""
    if record is None or not record.exists():
        return {}
    rows = (json.loads(line) for line in record.read_text(encoding="utf-8").splitlines())
    same = [row for row in rows if row["task"] == task]
    return same[-1] if same else {}


def commit() -> str:
    """The commit that is measured, with a star where files differ from it; empty outside a checkout."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=7", "--dirty=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _run_one(module: str, task: Row) -> Row:
    run = importlib.import_module(module).run
    wall, cpu = time.perf_counter(), time.process_time()
    figures = run(**task)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {**task, **figures, "cpu_s": round(cpu, 2), "wall_s": round(wall, 2)}


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _brief(row: Row) -> str:
    one = {k: v for k, v in row.items() if not isinstance(v, list)}
    shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in one.items()}
    return "  ".join(f"{k}={v}" for k, v in shown.items())


def about(command: str) -> Row:
    """How and where: command, versions, machine. Goes into every result."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "source tree"
    machine = {"cpu_count": os.cpu_count(), "system": platform.system(), "architecture": platform.machine()}
    return {
        "command": command,
        "versions": versions,
        "machine": machine,
        "threads_per_process": 1,
        "date": time.strftime("%Y-%m-%d"),
    }


def plain(value: Any) -> Any:
    """JSON-able copy: NumPy scalars and arrays become Python's, NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def sparse_fit(x: np.ndarray, n_factors: int, seed: int, **settings: Any) -> Any:
    """`ps.fit` of a SparseDecoder with every default, as a user would call it, but for `settings`.

    A setting goes to `SparseDecoder` if it has an argument of that name, else to `ps.fit`.
    """
    import pyro_sparse as ps

    own = inspect.signature(ps.models.SparseDecoder).parameters
    of_model = {name: value for name, value in settings.items() if name in own}
    of_fit = {name: value for name, value in settings.items() if name not in own}
    model = ps.models.SparseDecoder(n_features=x.shape[1], n_factors=n_factors, **of_model)
    return ps.fit(model, x, seed=seed, progress=False, **of_fit)


def selected_edges(fit: Any, fdr: float = FDR) -> np.ndarray:
    """Edges whose score passes a Bayesian false-discovery rate, as `ps.summary` has it: (feature, factor)."""
    import pyro_sparse as ps

    chosen = ps.summary(fit.edge_posterior("score", num_draws=1), fdr=fdr, selected_only=True)
    edges = np.zeros((len(fit.feature_names), len(fit.factor_names)), dtype=bool)
    feature = [fit.feature_names.index(name) for name in chosen["feature"]]
    factor = [fit.factor_names.index(name) for name in chosen["factor"]]
    edges[feature, factor] = True
    return edges
