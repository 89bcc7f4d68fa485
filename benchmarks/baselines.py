"""baselines: every method on sim1, anchored60 and bfi, with the same splits and the same metrics.

sim1 (K=5, rho=0) and anchored60: held-out MSE in units of each feature's standard deviation, Spearman MCC, R
and DCI disentanglement (lasso) of test factors; F1 of the edges named at FDR .1 for the methods that name
edges. bfi: items on their scale (25) and the error in hidden cells. NMF sees each column minus its training
minimum; LDA wants counts, so it sees bfi only. Settings are the methods' own defaults; the networks get the
restarts of the benchmark of that data set, the sparse decoder on bfi also its settings. On bfi every method
fills in by its factors alone (`predict`), LDA in three rounds only: each is a whole fit of its topics.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks import anchored60, bfi, sim1
from benchmarks._common import Row, report_seeds, selected_edges

SEEDS, QUICK_SEEDS = 2, 1
NETWORKS = ("sparse decoder", "sparse factor analysis", "VAE", "beta-VAE 2", "VSC")
CLASSICAL = {"factor analysis + varimax": "factor_analysis", "PCA": "pca", "NMF": "nmf", "LDA": "lda"}
DATA = ("sim1", "anchored60", "bfi")
RESTARTS = {"sim1": sim1.RESTARTS, "anchored60": anchored60.RESTARTS, "bfi": bfi.SETTINGS["restarts"]}


def arguments(parser: argparse.ArgumentParser) -> None:
    bfi.arguments(parser)


def tasks(options: argparse.Namespace) -> list[Row]:
    data = DATA[:1] if options.quick else DATA
    jobs = [(d, m) for d in data for m in (*NETWORKS, *CLASSICAL) if m != "LDA" or d == "bfi"]
    return [
        {"data": d, "method": m, "seed": seed, "path": options.path if d == "bfi" else None}
        for seed in report_seeds(options.seeds)
        for d, m in jobs
    ]


def fitted(method: str, x: np.ndarray, n_factors: int, seed: int, data: str) -> Any:
    """Fit one method by name."""
    import pyro_sparse as ps
    from pyro_sparse import rivals as baselines

    if method in CLASSICAL:
        rounds = {"max_fill": 3} if method == "LDA" else {}
        return baselines.Classical(CLASSICAL[method], n_factors, seed=seed, **rounds).fit(x)
    if method == "sparse decoder" and data == "bfi":
        return bfi.decoder_fit(x, seed)
    shape = {"n_features": x.shape[1], "n_factors": n_factors}
    model: Any = {
        "sparse decoder": ps.models.SparseDecoder,
        "sparse factor analysis": baselines.sparse_factor_analysis,
        "VAE": baselines.VAE,
        "beta-VAE 2": lambda **shape: baselines.VAE(beta=2.0, **shape),
        "VSC": baselines.VSC,
    }[method](**shape)
    return ps.fit(model, x, seed=seed, restarts=RESTARTS[data], progress=False)


def run(data: str, method: str, seed: int, path: str | None) -> Row:
    if data == "bfi":
        return run_bfi(method, seed, path)
    from pyro_sparse.datasets import anchored60 as anchored
    from pyro_sparse.datasets import sim1 as simulate

    known = simulate(seed=seed) if data == "sim1" else anchored(seed=seed)
    n_factors = 5 if data == "sim1" else 6
    train, (test, z) = known.part("train")[0], known.part("test")
    if method == "NMF":
        least = train.min(0)
        train, test = train - least, np.maximum(test - least, 0)
    fit = fitted(method, train, n_factors, seed, data)
    return score(fit, known.support, test, z, train.std(0), edges=method.startswith("sparse"))


def score(
    fit: Any, support: np.ndarray, test: np.ndarray, z: np.ndarray, scale: np.ndarray, edges: bool
) -> Row:
    """Figures of one fit on test rows with known factors."""
    from pyro_sparse.metrics import dci, heldout_mse, mcc, r_score, support_scores

    z_hat = fit.transform(test)
    return {
        "mse": heldout_mse(test / scale, fit.inverse_transform(z_hat) / scale),
        "mcc": mcc(z, z_hat, "spearman").value,
        "r": r_score(z, z_hat),
        "dci_d": dci(z, z_hat, "lasso").disentanglement,
        "f1": support_scores(support, selected_edges(fit)).f1 if edges else float("nan"),
    }


def run_bfi(method: str, seed: int, path: str | None) -> Row:
    from pyro_sparse.datasets import load_bfi

    table = load_bfi(path)
    x = table.x.to_numpy()
    fit = fitted(method, x, bfi.N_FACTORS, seed, "bfi")
    return {
        "items_correct": bfi.items_correct(fit.effects[fit.best], table.features["scale"].to_numpy()),
        "masked_mse": bfi.masked_mse(lambda seen: fitted(method, seen, bfi.N_FACTORS, seed, "bfi"), x, seed),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Mean figures over seeds: {data: {method: {metric: mean}}}."""
    figures: Row = {}
    for line in table(rows):
        cell = {k: v for k, v in line.items() if k not in ("data", "method")}
        figures.setdefault(line["data"], {})[line["method"]] = cell
    return figures


def table(rows: list[Row]) -> list[Row]:
    """One line per data set and method, averaged over seeds."""
    lines = []
    for data, method in dict.fromkeys((row["data"], row["method"]) for row in rows):
        own = [row for row in rows if (row["data"], row["method"]) == (data, method)]
        keys = [k for k in own[0] if k not in ("data", "method", "seed", "path", "wall_s")]
        means = {key: float(np.mean([row[key] for row in own])) for key in keys}
        lines.append({"data": data, "method": method, "n": len(own), **means})
    return lines
