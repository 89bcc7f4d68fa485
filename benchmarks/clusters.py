"""clusters: sixteen restarts on joblib's backends (loky, dask, ray), against one process.

"pass" trains all restarts in one pass; the others in two parts: "serial" one after the other in this process,
the rest in two processes or on a local cluster of two workers. `to_serial` is the largest difference of
weights, effects and held-out ELBO from "serial": 0 is the same bits. `to_pass` is that from one pass, which
rounds otherwise. `cpu_s` is CPU time of this process and its children, starting them included; ray's workers
are not its children and are left out. A backend that is not installed is left out too;
`pip install "dask[distributed]" ray` brings both.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 2, 1
RESTARTS, WORKERS = 16, 2
STEPS, QUICK_STEPS = 200, 40
NEEDS = {"pass": None, "serial": None, "loky": None, "dask": "distributed", "ray": "ray"}


def tasks(options: argparse.Namespace) -> list[Row]:
    steps = QUICK_STEPS if options.quick else STEPS
    return [
        {"seed": seed, "dtype": dtype, "steps": steps}
        for seed in report_seeds(options.seeds)
        for dtype in ("float64", "float32")
    ]


def run(seed: int, dtype: str, steps: int) -> Row:
    """One fit on every backend that is here."""
    import pyro_sparse as ps

    x = ps.datasets.sim1(n=300, seed=seed).x
    fits, cpu = {}, {}
    for name, needed in NEEDS.items():
        if needed is not None and importlib.util.find_spec(needed) is None:
            continue
        begun = _cpu()
        with _backend(name):
            fits[name] = ps.fit(
                ps.models.SparseDecoder(7, 2),
                x,
                restarts=RESTARTS,
                steps=steps,
                seed=seed,
                dtype=dtype,
                n_jobs=1 if name == "pass" else WORKERS,
                progress=False,
            )
        if name == "loky":
            _stop_loky()
        cpu[name] = _cpu() - begun
    return {
        "restarts": RESTARTS,
        "best": fits["pass"].best,
        "same_edges": sum(_edges(fits["pass"]) == _edges(other) for other in fits.values()),
        "to_serial": {n: _apart(fits["serial"], f) for n, f in fits.items() if n not in ("pass", "serial")},
        "to_pass": {n: _apart(fits["pass"], f) for n, f in fits.items() if n != "pass"},
        "cpu_of": cpu,
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """The largest differences of all fits, and CPU seconds in the median."""
    found: dict[str, Any] = {"steps": rows[0]["steps"], "backends": sorted(rows[0]["cpu_of"])}
    for dtype in ("float64", "float32"):
        own = [row for row in rows if row["dtype"] == dtype]
        for figure in ("to_serial", "to_pass"):
            found[f"{figure}_{dtype}"] = {n: max(row[figure][n] for row in own) for n in own[0][figure]}
    found["cpu_of"] = {n: float(np.median([row["cpu_of"][n] for row in rows])) for n in rows[0]["cpu_of"]}
    return found


def table(rows: list[Row]) -> list[Row]:
    """A line for each fit and backend."""
    return [
        {
            "seed": row["seed"],
            "dtype": row["dtype"],
            "backend": name,
            "to_serial": f"{row['to_serial'].get(name, np.nan):.1e}",
            "to_pass": f"{row['to_pass'].get(name, np.nan):.1e}",
            "cpu_s": row["cpu_of"][name],
        }
        for row in rows
        for name in row["cpu_of"]
    ]


def _edges(fit: Any) -> bytes:
    return bytes(np.packbits(fit.weights != 0))


def _apart(one: Any, other: Any) -> float:
    names = ("weights", "effects", "heldout_elbo")
    return max(float(np.abs(getattr(one, n) - getattr(other, n)).max()) for n in names)


def _cpu() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _stop_loky() -> None:
    """End loky's idle processes, so that their CPU time is counted."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


@contextmanager
def _backend(name: str) -> Iterator[None]:
    import joblib

    if name == "dask":
        import distributed

        with (
            distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as here,
            distributed.Client(here),
            joblib.parallel_config("dask"),
        ):
            yield
    elif name == "ray":
        import ray

        importlib.import_module("ray.util.joblib").register_ray()
        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
        try:
            with joblib.parallel_config("ray"):
                yield
        finally:
            ray.shutdown()
    else:
        backend = {"serial": "sequential", "loky": "loky"}.get(name)
        with joblib.parallel_config(backend) if backend else nullcontext():
            yield
