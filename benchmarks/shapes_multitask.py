"""shapes_multitask: latents of rendered 3D shapes from sparse tasks, with a convolutional encoder.

1,000 tasks of 50 images (32 x 32, the six factors of 3D Shapes), Bernoulli supports, noise .1, labels'
latents moved within their cells; latents uncorrelated, or with rho = .9. `sparse` is `ps.fit` as it comes,
`ridge` the same with ridge regressions inside and no axes. MCC, R and DCI of 4,000 images drawn uniformly (R
regresses on the first half).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 3, 1
TASKS, N_TEST = 1000, 4000
ASKED = {0.0: 0.95, 0.9: 0.90}  # MCC; and ridge at least .15 below


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin here (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {"rho": rho, "inner": inner, "seed": options.first_seed + seed, "quick": options.quick}
        for seed in report_seeds(options.seeds)
        for inner in ("ssl", "ridge")
        for rho in ASKED
    ]


def run(rho: float, inner: str, seed: int, quick: bool) -> Row:
    import pyro_sparse as ps
    from pyro_sparse.metrics import dci, mcc, r_score

    stream = ps.datasets.shapes_data("bernoulli", rho, size=32, n_tasks=50, seed=seed)
    batches = [stream.batch(step) for step in range((100 if quick else TASKS) // 50)]
    x = np.concatenate([_bytes(batch.x) for batch in batches])
    y = np.concatenate([batch.y for batch in batches])
    images, z = stream.test(N_TEST)
    model = ps.models.MultiTaskRegression(x.shape[2:], z.shape[1], encoder="conv", hidden=256)
    short: Row = {"steps": 20, "sparse_steps": 5, "batch_size": 4} if quick else {}
    fit = ps.fit(model, x, y, inner=inner, restarts=1, seed=seed, progress=False, **short)
    found = fit.transform(_bytes(images))
    half = N_TEST // 2
    scores: Any = dci(z, found, method="lasso")
    return {
        "mcc": mcc(z[half:], found[half:]).value,
        "r": r_score(z[:half], found[:half], z[half:], found[half:]),
        "dci_d": float(scores.disentanglement),
        "dci_c": float(scores.completeness),
        "error": float(fit.error[fit.best]),
    }


def _bytes(images: np.ndarray) -> np.ndarray:
    """Images as whole numbers, a quarter of the memory."""
    return (images * 255).round().astype(np.uint8)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    return {
        f"rho={rho} {inner}": {
            key: [row[key] for row in rows if (row["rho"], row["inner"]) == (rho, inner)]
            for key in ("mcc", "r", "dci_d", "dci_c", "cpu_s")
        }
        for rho in ASKED
        for inner in ("ssl", "ridge")
    }


def table(rows: list[Row]) -> list[Row]:
    """One line per cell: means."""
    lines: list[Row] = []
    for name, figures in collect(rows, argparse.Namespace()).items():
        if figures["mcc"]:
            means = {key: float(np.mean(values)) for key, values in figures.items()}
            lines.append({"cell": name, "n": len(figures["mcc"]), **means, "least mcc": min(figures["mcc"])})
    return lines
