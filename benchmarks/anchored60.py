"""anchored60: 60 features of 6 factors, four kinds of function; is the graph found, and does it scale?

1,000 training and 500 test rows; features that are not anchors load on one to three factors through identity,
tanh, sin or half the square. MCC is Spearman's, of refined test factors; F1 is of the edges named at FDR .1,
with factors matched by that MCC. Two restarts, from K and K/2 factors. Published code: every row empty.
--scale adds 200 features of 10 factors and 500 of 20.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks._common import Row, report_seeds, selected_edges, sparse_fit

SEEDS, QUICK_SEEDS = 10, 1
RESTARTS = 2
SIZES = {"anchored60": (60, 6), "g200_k10": (200, 10), "g500_k20": (500, 20)}
SCALE_SEEDS = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", action="store_true", help=f"also the larger sizes, {SCALE_SEEDS} seeds")


def tasks(options: argparse.Namespace) -> list[Row]:
    jobs = [{"size": "anchored60", "seed": seed} for seed in report_seeds(options.seeds)]
    if options.scale:
        seeds = report_seeds(min(options.seeds, SCALE_SEEDS))
        jobs += [{"size": size, "seed": seed} for size in ("g200_k10", "g500_k20") for seed in seeds]
    return jobs


def run(size: str, seed: int, settings: Row | None = None) -> Row:
    from pyro_sparse.datasets import anchored

    n_features, n_factors = SIZES[size]
    data = anchored(1000, n_features, n_factors, n_test=500, seed=seed)
    fit = sparse_fit(data.part("train")[0], n_factors, seed, **{"restarts": RESTARTS, **(settings or {})})
    return score(fit, data)


def score(fit, data) -> Row:
    """Figures of one fit of anchored data, on the test rows."""
    from pyro_sparse.metrics import heldout_mse, mcc, support_scores

    x, z = data.part("test")
    z_hat = fit.transform(x, refine=True)
    matched = mcc(z, z_hat, "spearman")
    edges = selected_edges(fit)
    support = support_scores(data.support, edges, matched.permutation)
    aligned = np.where(matched.permutation >= 0, edges[:, matched.permutation], False)
    kinds = np.array(data.kind)
    recall = {
        f"recall_{kind}": float(aligned[kinds == kind][data.support[kinds == kind] == 1].mean())
        for kind in sorted(set(data.kind))
    }
    scale = data.part("train")[0].std(0)
    return {
        "mcc": matched.value,
        "mcc_pearson": mcc(z, z_hat).value,
        "f1": support.f1,
        "precision": support.precision,
        "recall": support.recall,
        **recall,
        "mse": heldout_mse(x / scale, fit.inverse_transform(z_hat) / scale),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    def figures(size: str) -> Row:
        own = [row for row in rows if row["size"] == size]
        keys = ["mcc", "mcc_pearson", "f1", "cpu_s", *(key for key in own[0] if key.startswith("recall"))]
        return {key: [row[key] for row in own] for key in keys}

    result = figures("anchored60")
    result["passed"] = sum(m >= 0.98 and f >= 0.95 for m, f in zip(result["mcc"], result["f1"], strict=True))
    for size in dict.fromkeys(row["size"] for row in rows if row["size"] != "anchored60"):
        result[size] = figures(size)
    return result
