"""ablation: the default fit with one ingredient off at a time, on tuning seeds.

sim1 at K=5 (rho = 0 and .8) and anchored60, scored as in those benchmarks. The seeds are the TUNING ones, so
the defaults may be chosen by this table; no figure here is quoted as a result.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks import anchored60, sim1
from benchmarks._common import Row, tuning_seeds

SEEDS, QUICK_SEEDS = 5, 1
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one restart": {"restarts": 1},
    "no KL warm-up": {"kl_start": 1.0},
    "encoder not held": {"hold_encoder": 0.0},
    "penalty from the start": {"screen_from": 0.0},
    "no deletions": {"prune_at": ()},
    "uncorrelated factors": {"factor_cov": False},
    "linear decoder": {"decoder": "linear"},
}
CELLS = ("k5_rho0", "k5_rho8", "anchored60")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant", action="append", choices=list(VARIANTS), help="only this one (repeatable)"
    )


def tasks(options: argparse.Namespace) -> list[Row]:
    cells = CELLS[:1] if options.quick else CELLS
    variants = options.variant or (list(VARIANTS)[:2] if options.quick else list(VARIANTS))
    seeds = tuning_seeds(options.seeds)
    return [{"cell": c, "variant": v, "seed": s} for c in cells for v in variants for s in seeds]


def run(cell: str, variant: str, seed: int) -> Row:
    if cell in sim1.CELLS:
        return sim1.run(cell, seed, VARIANTS[variant])
    return anchored60.run(cell, seed, VARIANTS[variant])


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{cell: {variant: {metric: figure}}}, and the seeds that made them."""
    figures: Row = {"seed_kind": "tuning"}
    for line in table(rows):
        cell = {k: v for k, v in line.items() if k not in ("cell", "variant")}
        figures.setdefault(line["cell"], {})[line["variant"]] = cell
    return figures


def table(rows: list[Row]) -> list[Row]:
    """One line per cell and variant: shares of success and of exact graphs, medians of the rest."""
    lines = []
    for cell, variant in dict.fromkeys((row["cell"], row["variant"]) for row in rows):
        own = [row for row in rows if (row["cell"], row["variant"]) == (cell, variant)]
        line: Row = {"cell": cell, "variant": variant, "n": len(own)}
        for share in ("success", "exact"):
            line[share] = float(np.mean([row[share] for row in own])) if share in own[0] else float("nan")
        for middle in ("mcc", "f1", "mse", "cpu_s"):
            line[middle] = float(np.median([row[middle] for row in own]))
        lines.append(line)
    return lines
