"""ep: are the edge probabilities of expectation propagation those of the exact posterior?

200 regressions of eight features (AR(1) columns, correlation rho^|i-j|), truth drawn from the prior. Gold:
with a normal slab and zeros, the sum over all 256 supports; with the spike-and-slab lasso (rates 1 and 10), a
Gibbs run of 4 chains. "known": inclusion rate .3 and noise variance 1 are given; "learned": they are drawn
for every task, from Beta(1, 2) and the inverse gamma (3, 2), and are not given. Asked: a mean |difference| of
at most .02 in every cell. `plain` is the same without holding edges in and out; `gap` is how far the gold's
chains are apart. CPU times are per task.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 1, 1
TASKS, QUICK_TASKS = 200, 40
FEATURES = 8
SWEEPS, QUICK_SWEEPS = 3000, 500
TARGET = 0.02
SPIKE = 0.1
GRID = {f"n{n}_rho{rho}": (n, rho) for n in (15, 40) for rho in (0.0, 0.5, 0.9)}
SHAPES = {"easy": (150, 0.0), **GRID}
MODELS = ("normal", "lasso")
KNOWLEDGE = ("known", "learned")
QUICK = ("easy", "n15_rho0.9", "n40_rho0.5")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--model", action="append", choices=MODELS, help="only this one (repeatable)")


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {
            "model": model,
            "given": given,
            "cell": cell,
            "seed": options.first_seed + seed,
            "quick": options.quick,
        }
        for seed in report_seeds(options.seeds)
        for model in options.model or MODELS
        for given in KNOWLEDGE
        for cell in (QUICK if options.quick else SHAPES)
    ]


def run(model: str, given: str, cell: str, seed: int, quick: bool = False) -> Row:
    from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
    from pyro_sparse.inference.edges.regression.ep import ep_edges
    from pyro_sparse.inference.edges.regression.gibbs import gibbs_edges
    from pyro_sparse.inference.edges.regression.rows import RowPrior

    x, y, edge = data(model, given, cell, seed, QUICK_TASKS if quick else TASKS)
    law = {} if model == "normal" else {"slab": "laplace", "spike_scale": SPIKE}
    known = {"eta": 0.3, "noise_variance": 1.0}
    prior = RowPrior(**law, **(known if given == "known" else {"eta_prior": (1, 2), "noise_prior": (3, 2)}))

    start = time.process_time()
    if model == "normal":
        gold = enumerate_edges(x, y, prior)
    else:
        gold = gibbs_edges(x, y, prior, sweeps=QUICK_SWEEPS if quick else SWEEPS, seed=seed)
    gold_s = time.process_time() - start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of tasks that have not converged: counted below
        start = time.process_time()
        found = ep_edges(x, y, prior)
        ep_s = time.process_time() - start
        plain = ep_edges(x, y, prior, correct=False)
        plain_s = time.process_time() - start - ep_s
    error = np.abs(found.edge_prob - gold.edge_prob)
    drawn = found.draws(500, seed=seed).edge.mean(0)
    return {
        "mean": error.mean(),
        "max": error.max(),
        "above_0.1": (error > 0.1).mean(),
        "plain": np.abs(plain.edge_prob - gold.edge_prob).mean(),
        "draws": np.abs(drawn - gold.edge_prob).mean(),
        "brier": ((found.edge_prob - edge) ** 2).mean(),
        "brier_gold": ((gold.edge_prob - edge) ** 2).mean(),
        "brier_plain": ((plain.edge_prob - edge) ** 2).mean(),
        "late": (~found.converged).mean(),
        "gap": gold.gap.mean(),
        "ms": 1e3 * ep_s / len(x),
        "ms_plain": 1e3 * plain_s / len(x),
        "ms_gold": 1e3 * gold_s / len(x),
    }


def data(model: str, given: str, cell: str, seed: int, n_tasks: int) -> tuple[np.ndarray, ...]:
    """Features, targets and edges of a cell; the same features for both models."""
    n, rho = SHAPES[cell]
    rng = np.random.default_rng([seed, n, int(100 * rho)])
    lower = np.linalg.cholesky(rho ** np.abs(np.subtract.outer(np.arange(FEATURES), np.arange(FEATURES))))
    x = rng.normal(size=(n_tasks, n, FEATURES)) @ lower.T
    rate = rng.beta(1, 2, size=(n_tasks, 1)) if given == "learned" else 0.3
    noise = 2 / rng.gamma(3, size=(n_tasks, 1)) if given == "learned" else np.ones((n_tasks, 1))
    edge = rng.random((n_tasks, FEATURES)) < rate
    if model == "normal":
        weight = rng.normal(size=edge.shape) * edge
    else:
        weight = rng.laplace(size=edge.shape) * np.where(edge, 1, SPIKE)
    return x, (x @ weight[..., None])[..., 0] + np.sqrt(noise) * rng.normal(size=(n_tasks, n)), edge


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    result: Row = {}
    for key, own in cells(rows).items():
        figures = {name: float(np.mean([row[name] for row in own])) for name in FIGURES}
        figures["max"] = max(row["max"] for row in own)
        result[key] = {**figures, "n": len(own), "met": bool(figures["mean"] <= TARGET)}
    return {"met_everywhere": all(cell["met"] for cell in result.values()), "cells": result}


def table(rows: list[Row]) -> list[Row]:
    return [{"cell": key, **figures} for key, figures in collect(rows, argparse.Namespace())["cells"].items()]


FIGURES = (
    "mean",
    "max",
    "above_0.1",
    "plain",
    "draws",
    "brier",
    "brier_gold",
    "brier_plain",
    "late",
    "gap",
    "ms",
    "ms_plain",
    "ms_gold",
)


def cells(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by cell."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['model']} {row['given']} {row['cell']}", []).append(row)
    return found
