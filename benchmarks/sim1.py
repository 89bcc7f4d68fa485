"""sim1: are the two factors, their eight edges and nothing else found in the paper's first simulation?

500 training and 500 test rows of seven features (Sparse VAE paper). A fit succeeds when the held-out error,
with refined z, is below .4 (the noise floor is .25) and the Spearman MCC of the refined test factors is at
least .97. Edges are those named at FDR .1. Four restarts, the neutral grid from K factors down. Published
code: 6 of 15 at K=5, 0 of 3 at K=2, median MCC .85 at rho = .8.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks._common import Row, report_seeds, selected_edges, sparse_fit

SEEDS, QUICK_SEEDS = 25, 1
RESTARTS = 4
CELLS = {"k2_rho0": (2, 0.0), "k5_rho0": (5, 0.0), "k5_rho8": (5, 0.8)}
MSE, CORRELATION = 0.4, 0.97


def tasks(options: argparse.Namespace) -> list[Row]:
    return [{"cell": cell, "seed": seed} for seed in report_seeds(options.seeds) for cell in CELLS]


def run(cell: str, seed: int, settings: Row | None = None) -> Row:
    from pyro_sparse.datasets import sim1

    n_factors, rho = CELLS[cell]
    data = sim1(n=1000, rho=rho, seed=seed)
    fit = sparse_fit(data.part("train")[0], n_factors, seed, **{"restarts": RESTARTS, **(settings or {})})
    return score(fit, data)


def score(fit, data) -> Row:
    """Figures of one fit of sim1 data, on the test rows."""
    from pyro_sparse.metrics import heldout_mse, mcc, support_scores

    x, z = data.part("test")
    z_hat = fit.transform(x, refine=True)
    edges = selected_edges(fit)
    error = heldout_mse(x, fit.inverse_transform(z_hat))
    correlation = mcc(z, z_hat, "spearman").value
    support = support_scores(data.support, edges)
    return {
        "mse": error,
        "mcc": correlation,
        "success": bool(error < MSE and correlation >= CORRELATION),
        "exact": support.hamming == 0,
        "f1": support.f1,
        "edges": int(edges.sum()),
        "active": int(edges.any(0).sum()),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    result = {}
    for cell in CELLS:
        own = [row for row in rows if row["cell"] == cell]
        result[cell] = {
            "success": sum(row["success"] for row in own),
            "n": len(own),
            "mcc_median": float(np.median([row["mcc"] for row in own])),
            "exact_support": sum(row["exact"] for row in own),
            "active_two": sum(row["active"] == 2 for row in own),
            "mcc_min": min(row["mcc"] for row in own),
            "mse_median": float(np.median([row["mse"] for row in own])),
            "mse_max": max(row["mse"] for row in own),
            "cpu_s_median": float(np.median([row["cpu_s"] for row in own])),
        }
    return result
