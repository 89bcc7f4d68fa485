"""forecast: do 90 % intervals of frames to come hold 90 % of them, and how sharp are they beside a VAR?

Five generators (latents mixed into features; sines, tanh, products, rectifiers with heavy-tailed noise,
linear), none of them the transition's own networks, and two series that statsmodels ships: growth of nine
quarterly figures of the US economy, and monthly sea temperatures. Sequences that the fit has not seen are
forecast three frames ahead from several origins (generators), or the last quarter of a series
(`forecast_scores`). Beside it on the same frames: a vector autoregression by least squares with normal
intervals (order by BIC, up to 4), and persistence. CRPS is a mean over steps and features of ratios.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 5, 1
STEPS, ORIGINS, INTERVAL, DRAWS = 3, 3, 0.9, 400
N_TRAIN, N_TEST, FRAMES, LATENTS, WIDTH = 600, 100, 12, 3, 8
GENERATORS = ("sines", "tanh", "products", "rectifiers", "linear")
SERIES = ("macro", "sea")
LONGEST = 4  # lags of a VAR
FIGURES = ("cover90", "cover90_var", "crps_ratio_var", "crps_ratio_persistence")


def arguments(parser: argparse.ArgumentParser) -> None:
    names = GENERATORS + SERIES
    parser.add_argument("--series", action="append", choices=names, help="only this (repeatable)")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    names = options.series or (("tanh", "macro") if options.quick else GENERATORS + SERIES)
    return [
        {"series": name, "seed": options.first_seed + seed, "quick": options.quick}
        for name in names
        for seed in report_seeds(options.seeds)
    ]


def run(series: str, seed: int, quick: bool = False) -> Row:
    import pyro_sparse as ps

    x_train, x_test, origins, n_latents, lags = made(series, seed)
    if quick:
        x_train, x_test = x_train[:100], x_test[:20]
    short = {"steps": 200, "polish_steps": 50, "edge_steps": 50, "restarts": 1} if quick else {}
    model = ps.models.LatentTransition(x_train.shape[-1], n_latents, lags=lags)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(model, x_train, seed=seed, progress=False, **short)
        ours = fit.forecast_scores(
            STEPS, x_test, origins=origins, interval=INTERVAL, num_draws=DRAWS, seed=seed
        )
    cover, score, order = autoregression(x_train, x_test, origins, seed)
    crps = ours["crps"].to_numpy().reshape(STEPS, -1)
    still = ours["crps_persistence"].to_numpy().reshape(STEPS, -1)
    return {
        "cover90": float((ours["coverage"] * ours["n"]).sum() / ours["n"].sum()),
        "cover90_by_step": ours.groupby("step")["coverage"].mean().tolist(),
        "cover90_var": float(cover.mean()),
        "crps_ratio_var": float((crps / score).mean()),
        "crps_ratio_persistence": float((crps / still).mean()),
        "var_lags": order,
        "told": sorted({finding.kind for finding in fit.findings}),
        "cells": int(ours["n"].sum()),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    names = list(dict.fromkeys(row["series"] for row in rows))
    means = {n: {f: float(np.mean([r[f] for r in rows if r["series"] == n])) for f in FIGURES} for n in names}
    return {"forecast": means}


# ---- what is forecast ------------------------------------------------------------------------------------


def made(series: str, seed: int) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    """Frames to fit (sequence, time, feature), frames to forecast, origins, latents and lags of the fit."""
    if series in GENERATORS:
        x = simulated(series, seed)
        return x[:N_TRAIN], x[N_TRAIN:], ORIGINS, LATENTS, 1
    x = macro() if series == "macro" else sea()
    cut = len(x) * 3 // 4
    before = 12 if series == "sea" else 8  # frames that the first origin of the test part may read
    test = x[cut - before :][None]
    return x[:cut][None], test, len(x) - cut - STEPS + 1, 3 if series == "macro" else 1, 2


def simulated(name: str, seed: int) -> np.ndarray:
    """Sequences (sequence, time, feature) of latents behind a smooth mixing, with noise of cells."""
    rng = np.random.default_rng([seed, GENERATORS.index(name)])
    n, d = N_TRAIN + N_TEST, LATENTS
    graph = np.eye(d) + (rng.random((d, d)) < 0.35)
    a = np.minimum(graph, 1) * rng.uniform(0.5, 1.1, (d, d)) * rng.choice([-1, 1], (d, d))
    z, frames = rng.normal(size=(n, d)), []
    for t in range(20 + FRAMES):
        u = z[:, None] * a
        if name == "sines":
            mean = 0.8 * np.sin(1.5 * u).sum(-1)
        elif name == "tanh":
            mean = np.tanh(1.5 * u.sum(-1))
        elif name == "products":
            mean = 0.5 * np.diagonal(u, axis1=1, axis2=2) + np.tanh(u[:, :, 0] * np.roll(z, 1, 1))
        elif name == "rectifiers":
            mean = np.maximum(u, 0).sum(-1) * 0.7 - 0.5
        else:
            mean = u.sum(-1) * 0.7 / max(np.abs(np.linalg.eigvals(a)).max(), 1.0)
        heavy = name == "rectifiers"
        z = mean + 0.5 * (rng.standard_t(5, z.shape) * np.sqrt(3 / 5) if heavy else rng.normal(size=z.shape))
        if t >= 20:
            frames.append(z)
    z = np.stack(frames, 1)
    h = z @ rng.normal(size=(d, WIDTH))
    x = h + 0.5 * np.tanh(h)
    return x / x.std((0, 1)) + 0.1 * rng.normal(size=x.shape)


def macro() -> np.ndarray:
    """Quarterly growth of six series of the US economy, and changes of three rates, 1959 to 2009."""
    import statsmodels.api as sm

    table = sm.datasets.macrodata.load_pandas().data
    growing = ["realgdp", "realcons", "realinv", "realgovt", "realdpi", "cpi"]
    grown = 400 * np.diff(np.log(table[growing].to_numpy()), axis=0)
    return np.concatenate([grown, np.diff(table[["tbilrate", "unemp", "infl"]].to_numpy(), axis=0)], 1)


def sea() -> np.ndarray:
    """Monthly sea temperatures of the Pacific, 1950 to 2010, less their months' means of the first part."""
    import statsmodels.api as sm

    table = sm.datasets.elnino.load_pandas().data.to_numpy()[:, 1:]
    return (table - table[: len(table) * 3 // 4].mean(0)).reshape(-1, 1)


# ---- a vector autoregression -----------------------------------------------------------------------------


def autoregression(
    train: np.ndarray, test: np.ndarray, origins: int, seed: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Coverage and CRPS (step, feature) of a VAR by least squares with normal noise; its order, by BIC."""
    from pyro_sparse.metrics import crps

    fits = [least_squares(train, lags) for lags in range(1, LONGEST + 1)]
    order = 1 + int(np.argmin([bic for *_, bic in fits]))
    coefficients, cov, _ = fits[order - 1]
    root = np.linalg.cholesky(cov)
    rng = np.random.default_rng(seed)
    covered, scores = [], []
    for back in range(origins):
        at = test.shape[1] - STEPS - back
        if at < order:
            break
        past = np.broadcast_to(test[:, at - order : at], (DRAWS, *test[:, at - order : at].shape))
        draws = []
        for _ in range(STEPS):
            shape = past.shape[:2]  # draw, sequence
            rows = np.concatenate([past[:, :, ::-1].reshape(*shape, -1), np.ones((*shape, 1))], -1)
            new = rows @ coefficients + rng.normal(size=(*shape, len(cov))) @ root.T
            past = np.concatenate([past[:, :, 1:], new[:, :, None]], 2)
            draws.append(new)
        drawn, truth = np.stack(draws, 2), test[:, at : at + STEPS]
        low, high = np.quantile(drawn, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2], axis=0)
        covered.append((low <= truth) & (truth <= high))
        scores.append(crps(drawn, truth))
    return np.concatenate(covered).mean(0), np.concatenate(scores).mean(0), order


def least_squares(x: np.ndarray, lags: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Coefficients (lags' features, then 1; feature), noise covariance, BIC; of the same frames always."""
    frames = x.shape[1]
    target = x[:, LONGEST:].reshape(-1, x.shape[-1])
    past = [x[:, LONGEST - lag : frames - lag].reshape(target.shape) for lag in range(1, lags + 1)]
    rows = np.concatenate([*past, np.ones((len(target), 1))], 1)
    coefficients = np.linalg.lstsq(rows, target, rcond=None)[0]
    left = target - rows @ coefficients
    cov = left.T @ left / (len(target) - rows.shape[1])
    bic = len(target) * np.linalg.slogdet(cov)[1] + np.log(len(target)) * coefficients.size
    return coefficients, cov, float(bic)


def table(rows: list[Row]) -> list[dict[str, Any]]:
    keep = ("series", "seed", *FIGURES, "var_lags", "cpu_s")
    return [{name: row[name] for name in keep} for row in rows]
