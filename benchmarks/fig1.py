"""fig1: lasso and ridge on the latents themselves and on a rotation of them, as in figure 1 of the
multi-task paper.

Penalties by five folds. R2 of 1,000 test rows, averaged over repetitions; `published` is the authors' log,
which holds one draw of weights and data per cell, so its distance is also given in standard deviations over
draws (`z`). `shape` checks what the figure says: rotation leaves ridge alone and takes the lasso's gain away.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 20, 2
SIZES = (25, 50, 75, 100, 125, 150)
WITHIN = 0.06
PUBLISHED: dict[tuple[float, str], tuple[float, ...]] = {
    (0.05, "dis_lasso"): (0.633, 0.921, 0.940, 0.948, 0.949, 0.949),
    (0.05, "ent_lasso"): (-0.077, 0.033, 0.441, 0.719, 0.844, 0.891),
    (0.05, "ridge"): (-0.074, 0.406, 0.661, 0.791, 0.867, 0.901),
    (0.2, "dis_lasso"): (-0.075, 0.449, 0.820, 0.882, 0.896, 0.906),
    (0.2, "ent_lasso"): (-0.142, 0.017, 0.325, 0.615, 0.759, 0.830),
    (0.2, "ridge"): (0.042, 0.476, 0.487, 0.750, 0.810, 0.855),
    (0.8, "dis_lasso"): (0.218, 0.434, 0.570, 0.841, 0.876, 0.922),
    (0.8, "ent_lasso"): (0.249, 0.464, 0.660, 0.785, 0.862, 0.920),
    (0.8, "ridge"): (0.343, 0.650, 0.742, 0.868, 0.871, 0.927),
}


def tasks(options: argparse.Namespace) -> list[Row]:
    sizes = SIZES[1:4:2] if options.quick else SIZES
    return [
        {"share": share, "n": n, "seed": 0, "repetitions": options.seeds}
        for share in (0.05, 0.2, 0.8)
        for n in sizes
    ]


def run(share: float, n: int, seed: int, repetitions: int) -> Row:
    import torch

    from pyro_sparse.datasets import fig1_data
    from pyro_sparse.inference.multitask.inner import choose_penalty, moments, ridge_weights, sparse_weights

    draws = [fig1_data(share, n, s) for s in report_seeds(repetitions)]

    def stack(split: str, entangled: bool) -> tuple[Any, Any]:
        parts = [d.part(split, entangled) for d in draws]
        x, y = (torch.as_tensor(np.stack(arrays)) for arrays in zip(*parts, strict=True))
        return x, y.unsqueeze(-1)

    found: dict[str, list[float]] = {}
    for entangled in (False, True):
        x, y = stack("train", entangled)
        x_test, y_test = stack("test", entangled)
        data = moments(x, y)
        for kind in ("lasso", "ridge"):
            penalty = choose_penalty(x, y, kind=kind, folds=5, seed=seed).penalty
            solve = ridge_weights if kind == "ridge" else lambda d, p: sparse_weights(d, p).weight
            weight = solve(data, penalty)
            error = y_test - x_test @ weight - data.intercept(weight).unsqueeze(1)
            spread = y_test - y_test.mean(1, keepdim=True)
            r2 = 1 - (error**2).sum((1, 2)) / (spread**2).sum((1, 2))
            found[f"{'ent' if entangled else 'dis'}_{kind}"] = r2.tolist()
    gap = np.abs(np.subtract(found["ent_ridge"], found["dis_ridge"])).max()
    return {**found, "ridge_difference": float(gap)}


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    cells = table(rows)
    n50 = [row for row in rows if row["share"] == 0.05 and row["n"] == 50]
    late = [row for row in rows if row["share"] == 0.8]
    return {
        "cells": cells,
        "within": sum(abs(c["difference"]) <= WITHIN for c in cells),
        "of": len(cells),
        "furthest_z": max(abs(c["z"]) for c in cells),
        "ridge_difference": max(row["ridge_difference"] for row in rows),
        "dis_lasso_5_50": float(np.mean([row["dis_lasso"] for row in n50])) if n50 else None,
        "ent_lasso_5_50": float(np.mean([row["ent_lasso"] for row in n50])) if n50 else None,
        "lasso_gain_80": max(float(np.mean(r["dis_lasso"]) - np.mean(r["dis_ridge"])) for r in late),
    }


def table(rows: list[Row]) -> list[Row]:
    """One line per cell of the published table."""
    lines: list[Row] = []
    for row in rows:
        for method in ("dis_lasso", "ent_lasso", "ridge"):
            values = np.array(row["dis_ridge" if method == "ridge" else method])
            published = PUBLISHED[row["share"], method][SIZES.index(row["n"])]
            difference = float(values.mean()) - published
            lines.append(
                {
                    "share": row["share"],
                    "n": row["n"],
                    "method": method,
                    "r2": float(values.mean()),
                    "sd": float(values.std(ddof=1)),
                    "published": published,
                    "difference": difference,
                    "z": difference / float(values.std(ddof=1)),
                }
            )
    return lines
