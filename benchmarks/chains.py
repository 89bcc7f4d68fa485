"""chains: CPU seconds per effective sample of the loadings, beside an older version of the package.

Tables: `bfi` (25 items of 2,800 people, five factors, linear, normal noise, 508 answers missing), `wide`
(1,000 x 800 normal cells, ten factors, a tenth of the edges), `bernoulli`, `poisson` and `negative_binomial`
(500 x 20, three factors, a quarter of the edges, linear) and `mlp` (bfi under the MLP decoder); only where
they are named, `large` and `large_counts` (10,000 x 2,000, normal cells and negative binomial ones, otherwise
as `wide`). Fits have four restarts and every other default, chains every default but that each sweep after
the warm-up is a draw.

The effective samples of a table are the median over loadings of mean size .2 or more (five at least, 200 at
most), by ArviZ, over the chains that are averaged; so chains that disagree are worth little, however well
each mixes: `ess_within` adds up those of each chain alone, and `ratio_within` is by them. `--baseline FOLDER`
is a checkout of another commit (c777257 is asked about): it fits and draws the same table with the same seed,
in a process of its own, before and after ours by turns. `ratio` is its CPU seconds per effective sample by
ours, the median over seeds; without it there are our figures only. `cpu_s`, `fit_cpu_s`: of chains and fit,
medians. `rows`: used, of `of`. A run of `wide` takes the older version half an hour a seed; `--sweeps N`
shortens all chains, a third of them warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import _chains_run, real
from benchmarks._common import THREADS, Row, report_seeds

SEEDS, QUICK_SEEDS = 3, 1
ROOT = Path(__file__).resolve().parents[1]
RESTARTS, QUICK_FIT, QUICK_SWEEPS = 4, {"restarts": 1, "steps": 300}, 60
QUICK_TABLES = ("bernoulli", "poisson")
SIZES = (0.5, 1.2)  # of the weights that are edges
ASKED = {"bfi": 10, "wide": 10, "bernoulli": 3, "poisson": 3, "negative_binomial": 3, "mlp": 3}
ASKED_CPU_S = {"wide": 60, "mlp": 60, "large": 600, "large_counts": 3600}
OURS, THEIRS = "ours", "baseline"
COUNTS = ("ess", "ess_within", "gap", "kept", "present", "loadings", "sweeps", "rows")

Array = NDArray[np.float64]


class Kind(NamedTuple):
    """A table and the model of it.

    Attributes
    ----------
    likelihood, decoder : str
    n_factors : int
    shape : tuple of int
        Rows and features; none of bfi, which is read.
    share : float
        Of the edges that are there.
    """

    likelihood: str
    decoder: str
    n_factors: int
    shape: tuple[int, int] = (0, 0)
    share: float = 0.25


TABLES = {
    "bfi": Kind("normal", "linear", 5),
    "wide": Kind("normal", "linear", 10, (1000, 800), 0.1),
    "bernoulli": Kind("bernoulli", "linear", 3, (500, 20)),
    "poisson": Kind("poisson", "linear", 3, (500, 20)),
    "negative_binomial": Kind("negative_binomial", "linear", 3, (500, 20)),
    "mlp": Kind("normal", "mlp", 5),
    "large": Kind("normal", "linear", 10, (10_000, 2_000), 0.1),
    "large_counts": Kind("negative_binomial", "linear", 10, (10_000, 2_000), 0.1),
}
_NAMED_ONLY = ("large", "large_counts")  # of minutes to an hour
_READ = ("bfi", "mlp")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default=str(real.DEFAULT), help=f"folder with {real.FILES['bfi']}")
    parser.add_argument("--baseline", help="checkout of the version to compare with, such as c777257")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), help="only these")
    parser.add_argument("--sweeps", type=int, help="of all chains, a third of them warm-up (default: theirs)")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    tables = options.tables or (
        QUICK_TABLES if options.quick else tuple(name for name in TABLES if name not in _NAMED_ONLY)
    )
    file = Path(options.data) / real.FILES["bfi"]
    if set(tables) & set(_READ) and not file.exists():
        raise SystemExit(f"--data {options.data}: has no {file.name}; name the folder that has it")
    baseline = options.baseline
    if baseline is not None and not (Path(baseline) / "pyro_sparse" / "__init__.py").exists():
        raise SystemExit(f"--baseline {baseline}: has no pyro_sparse; name a checkout of this repository")
    sweeps = options.sweeps or (QUICK_SWEEPS if options.quick else None)
    common = {"data": options.data, "baseline": baseline, "sweeps": sweeps, "quick": options.quick}
    return [
        {"table": name, "seed": options.first_seed + seed, **common}
        for seed in report_seeds(options.seeds)
        for name in tables
    ]


def run(table: str, seed: int, data: str, baseline: str | None, sweeps: int | None, quick: bool) -> Row:
    kind, x = TABLES[table], made(table, seed, data, quick)
    job = {
        "seed": seed,
        "model": {
            "n_factors": kind.n_factors, "decoder": kind.decoder, "likelihood": kind.likelihood
        },
        "fit": QUICK_FIT if quick else {"restarts": RESTARTS},
        "chains": {} if sweeps is None else {"sweeps": sweeps, "warm_up": sweeps // 3},
    }  # fmt: skip
    folders = {OURS: ROOT} if baseline is None else {OURS: ROOT, THEIRS: Path(baseline).resolve()}
    order = list(folders)[:: 1 if seed % 2 else -1]  # who is first changes from seed to seed
    row: Row = {"of": len(x)}
    for version in order:
        found = measured(folders[version], x, job)
        prefix = "" if version == OURS else f"{THEIRS}_"
        row |= {prefix + name: value for name, value in found.items()}
    if baseline is not None:
        row |= {name: ratio(row, ess) for name, ess in (("ratio", "ess"), ("ratio_within", "ess_within"))}
    return row


def ratio(row: Row, ess: str) -> float:
    """CPU seconds per effective sample of the baseline, by ours."""
    theirs, ours = (row[f"{prefix}chains_cpu_s"] / row[prefix + ess] for prefix in (f"{THEIRS}_", ""))
    return float(theirs / ours)


def made(table: str, seed: int, data: str, quick: bool = False) -> Array:
    """The cells of a table, (row, feature)."""
    if table in _READ:
        return real.read("bfi", Path(data), seed)[0].to_numpy(dtype=float)
    kind = TABLES[table]
    n, g = (200, 10) if quick else kind.shape
    rng = np.random.default_rng([seed, list(TABLES).index(table), 83])
    edge = rng.random((g, kind.n_factors)) < kind.share
    weight = edge * rng.uniform(*SIZES, edge.shape) * rng.choice([-1, 1], edge.shape)
    f = rng.standard_normal((n, kind.n_factors)) @ weight.T
    return CELLS[kind.likelihood](f, rng).astype(float)


def _bernoulli(f: Array, rng: np.random.Generator) -> Array:
    chance = 1 / (1 + np.exp(-1.5 * f - 0.5 * rng.standard_normal(f.shape[1])))
    return (rng.random(f.shape) < chance).astype(float)


def _poisson(f: Array, rng: np.random.Generator) -> Array:
    return rng.poisson(np.exp(0.5 + 0.6 * f)).astype(float)


def _negative_binomial(f: Array, rng: np.random.Generator) -> Array:
    """Rows of uneven depth, theta 3."""
    mean = np.exp(1 + 0.6 * f) * rng.gamma(4, 0.25, (len(f), 1))
    return rng.poisson(mean * rng.gamma(3, 1 / 3, f.shape)).astype(float)


def _normal(f: Array, rng: np.random.Generator) -> Array:
    return f + rng.standard_normal(f.shape)


CELLS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "bernoulli": _bernoulli,
    "poisson": _poisson,
    "negative_binomial": _negative_binomial,
    "normal": _normal,
}


def measured(root: Path, x: Array, job: Row) -> Row:
    """Figures of the package in this folder."""
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "MPLBACKEND": "Agg"}
    environment |= dict.fromkeys(THREADS, "1")
    with tempfile.TemporaryDirectory() as folder:
        table, file = Path(folder) / "x.npy", Path(folder) / "task.json"
        np.save(table, x)
        file.write_text(json.dumps({**job, "x": str(table), "root": str(root)}), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(Path(_chains_run.__file__)), str(file)],
            cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{table: figures}: medians over seeds, and all by seed."""
    result: Row = {}
    for name in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == name]
        by_seed: Row = {"seed": [row["seed"] for row in own]}
        line: Row = {"asked": ASKED.get(name), "asked_cpu_s": ASKED_CPU_S.get(name), "of": own[0]["of"]}
        for short, key in _columns(own[0]).items():
            by_seed[short] = [row[key] for row in own]
            line[short] = _median(by_seed[short])
        result[name] = {**line, "by_seed": by_seed}
    return result


def _columns(row: Row) -> dict[str, str]:
    """Name in the result of each figure that there is."""
    found = {name: name for name in ("ratio", "ratio_within")}
    for prefix in ("", f"{THEIRS}_"):
        found |= {f"{prefix}cpu_s": f"{prefix}chains_cpu_s", f"{prefix}fit_cpu_s": f"{prefix}fit_cpu_s"}
        found |= {prefix + name: prefix + name for name in COUNTS}
    return {name: key for name, key in found.items() if key in row}


def _median(values: list[Any]) -> float:
    return float(np.nanmedian(np.array(values, dtype=float)))  # null in a record: no number


def table(rows: list[Row]) -> list[Row]:
    """One line per table."""
    shown = (
        "ratio", "ratio_within", "asked", "cpu_s", "asked_cpu_s", "ess", "baseline_cpu_s", "baseline_ess",
        "rows", "of",
    )  # fmt: skip
    found = collect(rows, argparse.Namespace())
    return [
        {"table": name, "n": len(line["by_seed"]["seed"])}
        | {key: line[key] for key in shown if line.get(key) is not None}
        for name, line in found.items()
    ]
