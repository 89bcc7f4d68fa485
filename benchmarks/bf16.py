"""bf16: whole fits whose steps keep hidden units as bfloat16, beside the same fits in single precision.

The tables of `anchored60` (60 features of 6 factors, 200 of 10, 500 of 20), the defaults of `ps.fit` but for
a wide decoder (300 hidden units) and one restart; CPU time of the two fits, MCC and F1 as there, and the
held-out ELBO of a row that rounding costs. Which comes first changes with the seed. --quick is narrow, short.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks._common import Row, report_seeds, sparse_fit
from benchmarks.anchored60 import SIZES, score

SEEDS, QUICK_SEEDS = 3, 1
HIDDEN, QUICK_HIDDEN, QUICK_STEPS = 300, 64, 100
DTYPES = ("float32", "bfloat16")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", choices=SIZES, help="only these sizes")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    sizes = options.sizes or (("anchored60",) if options.quick else tuple(SIZES))
    steps = {"steps": QUICK_STEPS, "hidden": QUICK_HIDDEN} if options.quick else {}
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    return [{"size": size, "seed": seed, **steps} for size in sizes for seed in seeds]


def run(size: str, seed: int, **settings: int) -> Row:
    from pyro_sparse.datasets import anchored

    n_features, n_factors = SIZES[size]
    data = anchored(1000, n_features, n_factors, n_test=500, seed=seed)
    wide = {"hidden": HIDDEN, "restarts": 1, **settings}
    figures: Row = {}
    for dtype in DTYPES[:: 1 if seed % 2 else -1]:
        begun = time.process_time()
        fit = sparse_fit(data.part("train")[0], n_factors, seed, dtype=dtype, **wide)
        figures[f"fit_s_{dtype}"] = time.process_time() - begun
        figures[f"heldout_{dtype}"] = float(fit.heldout_elbo.max())
        figures |= {
            f"{name}_{dtype}": value for name, value in score(fit, data).items() if name in ("mcc", "f1")
        }
    figures["ratio"] = figures["fit_s_float32"] / figures["fit_s_bfloat16"]
    figures["elbo_lost"] = figures["heldout_float32"] - figures["heldout_bfloat16"]
    return figures


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """By size: medians of ``ratio``, lists of ``elbo_lost`` and of MCC and F1 of both."""
    result: Row = {}
    for size in dict.fromkeys(row["size"] for row in rows):
        own = [row for row in rows if row["size"] == size]
        keys = ("elbo_lost", *(f"{name}_{dtype}" for name in ("mcc", "f1") for dtype in DTYPES))
        result[size] = {"ratio": float(np.median([row["ratio"] for row in own]))}
        result[size] |= {key: [row[key] for row in own] for key in keys}
    return result
