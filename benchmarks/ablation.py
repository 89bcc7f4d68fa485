"""ablation: the default fit with one ingredient off at a time, on tuning seeds.

sim1 at K=5 (rho = 0 and .8) and anchored60, scored as in those benchmarks but with a single start, so that no
other start hides what an ingredient is worth. The seeds are the TUNING ones, so the defaults may be chosen by
this table; no figure here is quoted as a result.
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import anchored60, sim1
from benchmarks._common import Row, tuning_seeds

SEEDS, QUICK_SEEDS = 2, 1
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "four restarts": {"restarts": 4},
    "no z-scores": {"standardise": False},
    "random start": {"patch": ("table.wide_start.find_start", "random_start")},
    "oblique axes always": {"patch": ("table.start.simple", "oblique_axes")},
    "features do not wait": {
        "reintroduce_at": 0.0,
        "patch": ("table.directions.find_directions", "no_directions"),
    },
    "no KL warm-up": {"kl_start": 1.0},
    "encoder not held": {"encoder_frozen_until": 0.0},
    "penalty from the start": {"lasso_from": 0.0},
    "no lasso": {"lasso_weight": 0.0},
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
    settings = {"restarts": 1, **VARIANTS[variant]}
    module, name = sim1 if cell in sim1.CELLS else anchored60, cell
    if "patch" not in settings:
        return module.run(name, seed, settings)
    target, substitute = settings.pop("patch")
    with patch(f"pyro_sparse.inference.{target}", globals()[substitute]):
        return module.run(name, seed, settings)


def random_start(x: np.ndarray, mask: Any, n_factors: int, kind: str) -> Any:
    """Instead of a guess: random directions of the table, and nothing explained."""
    from pyro_sparse.inference.table.start import Start

    maps = np.random.default_rng(0).standard_normal((x.shape[1], n_factors))
    maps /= (x @ maps).std(0)
    residual_sd = np.full(x.shape[1], 0.9)
    return Start(scores=x @ maps, maps=maps, loadings=x.T @ (x @ maps) / len(x), residual_sd=residual_sd)


def oblique_axes(loadings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Instead of the simpler of two rotations."""
    from pyro_sparse.inference.rotation.axes import oblique

    return oblique(loadings)


def no_directions(z: Any, x: Any, mask: Any = None) -> Any:
    """Instead of a search: nothing found, so a waiting feature is opened to every factor."""
    from pyro_sparse.inference.table.directions import Directions

    zero = x.new_zeros(x.shape[1])
    return Directions(x.new_zeros(x.shape[1], z.shape[1]), zero, zero.bool())


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
