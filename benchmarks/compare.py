"""compare: does leave-one-out prefer the number of factors that is there, and do intervals of scores cover?

`loo`: 300 rows of 12 features with two factors (even seeds) or three (odd seeds); a linear decoder is fitted
with two and with three factors, and `arviz.compare` chooses by leave-one-out from the rows' log densities
(`edge_posterior(log_likelihood=True)`). `loo_right`: tables where the preferred fit has as many factors in
use as there are (a fit that was offered one too many may leave it empty: then both are the same model).
`preferred`: how many factors the preferred fit was offered. Variants:

- `program`: loadings and factors drawn from the program that is fitted, in its own units; each factor with at
  least three edges.
- `off_model`: skewed factors, Student's t noise, loadings uniform in size with a few small cross-loadings.
- `poisson`: counts drawn from the program.

`scores`: of the same tables, the fit with the true number: share of the rows' factors inside their 90 %
interval by the chains' draws (`score_cover`; `edge_posterior(scores=True)`), factors matched by their
loadings, and inside that of `transform(return_std=True)`, which is given the fit's loadings
(`cover_given_fit`). `pit`: Kolmogorov-Smirnov distance from uniform of the true factors' place among their
draws.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

import pyro_sparse as ps
from benchmarks._common import Row, report_seeds
from pyro_sparse.inference.edges.mcmc.simulate import draw_decoder

Array = NDArray[np.float64]

SEEDS, QUICK_SEEDS = 50, 2
ROWS, FEATURES, NUMBERS = 300, 12, (2, 3)
VARIANTS = ("program", "off_model", "poisson")
NOISE_DF, CROSS = 5, 0.08  # off the model: tails of the noise, standard deviation of other loadings
Z90 = 1.645
MATCHED = 0.8  # congruence of loadings from which a factor is the true one


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="only these")


def tasks(options: argparse.Namespace) -> list[Row]:
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    return [{"variant": variant, "seed": seed} for variant in options.variants for seed in seeds]


def run(variant: str, seed: int) -> Row:
    import arviz as az

    rng = np.random.default_rng([seed, VARIANTS.index(variant), 44])  # [seed, 0] is the stream of seed alone
    true = NUMBERS[seed % 2]
    x, loading, z = table_of(variant, true, rng)
    row: Row = {"true": true}
    posteriors: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in NUMBERS:
            start = time.process_time()
            whole = model_of(variant, k)
            fit = ps.fit(whole, x, seed=seed, standardise=variant == "off_model", progress=False)
            idata = fit.edge_posterior("mcmc", seed=seed, log_likelihood=True, scores=True)
            posteriors[str(k)] = idata
            row[f"cpu_{k}_s"] = time.process_time() - start
            row[f"used_{k}"] = int((fit.weights[fit.best] != 0).any(0).sum())
            if k == true:
                row |= of_scores(fit, idata, loading, z)
        ranked = az.compare(posteriors)
    row["preferred"] = int(ranked.index[0])
    row["right"] = int(row[f"used_{row['preferred']}"] == true)
    return row


def likelihood_of(variant: str) -> str | ps.likelihoods.Likelihood:
    return ps.likelihoods.Poisson(size_factors=False) if variant == "poisson" else "normal"


def model_of(variant: str, k: int) -> ps.models.SparseDecoder:
    """That which tables are drawn from, or the default."""
    if variant == "off_model":
        return ps.models.SparseDecoder(n_factors=k, decoder="linear")
    return ps.models.SparseDecoder(
        FEATURES, k, prior=ps.priors.SpikeSlabLasso(1.0, 20.0, 3.0, 3.0), decoder="linear",
        likelihood=likelihood_of(variant), factor_cov=False,
    )  # fmt: skip


def table_of(variant: str, k: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Cells, loadings and factors."""
    if variant != "off_model":
        model = model_of(variant, k)
        drawn = draw_decoder(model, ROWS, rng)
        while drawn.edge.sum(0).min() < 3:
            drawn = draw_decoder(model, ROWS, rng)
        return drawn.x, drawn.loading, drawn.z
    owner = np.arange(FEATURES) % k
    loading = CROSS * rng.standard_normal((FEATURES, k))
    loading[np.arange(FEATURES), owner] = rng.choice([-1, 1], FEATURES) * rng.uniform(0.4, 0.9, FEATURES)
    z = rng.gamma(3.0, size=(ROWS, k))
    z = (z - 3) / np.sqrt(3)
    noise = np.sqrt(np.clip(1 - (loading**2).sum(1), 0.1, None))
    tails = rng.standard_t(NOISE_DF, (ROWS, FEATURES)) / np.sqrt(NOISE_DF / (NOISE_DF - 2))
    return z @ loading.T + noise * tails, loading, z


def of_scores(fit: Any, idata: Any, loading: Array, z: Array) -> Row:
    """Shares of the rows' factors inside their intervals; factors that no fitted one matches are left out."""
    mean, sd = fit.transform(return_std=True)
    draws = idata.scores["z"].stack(one=("chain", "draw")).transpose("one", "sample", "factor").to_numpy()
    weight = idata.posterior["weight"].mean(("chain", "draw")).transpose("feature", "factor").to_numpy()
    size = np.sqrt(np.outer((weight**2).sum(0), (loading**2).sum(0))).clip(1e-12)
    alike = weight.T @ loading / size
    rows, columns = linear_sum_assignment(-np.abs(alike))
    inside, given_fit, places = [], [], []
    for k, m in zip(rows, columns, strict=True):
        if abs(alike[k, m]) < MATCHED:
            continue
        truth = np.sign(alike[k, m]) * z[:, m]
        low, high = np.quantile(draws[..., k], (0.05, 0.95), axis=0)
        inside.append((truth > low) & (truth < high))
        given_fit.append(np.abs(truth - mean[:, k]) < Z90 * sd[:, k])
        places.append((draws[..., k] < truth).mean(0))
    if not inside:
        return {"matched": 0}
    return {
        "matched": len(inside),
        "score_cover": float(np.mean(inside)),
        "cover_given_fit": float(np.mean(given_fit)),
        "pit": float(stats.kstest(np.concatenate(places), "uniform").statistic),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    result: Row = {}
    for variant in dict.fromkeys(row["variant"] for row in rows):
        here = [row for row in rows if row["variant"] == variant]
        scored = [row for row in here if row["matched"]]
        result[variant] = {
            "loo_right": sum(row["right"] for row in here),
            "n": len(here),
            "preferred_true": sum(row["preferred"] == row["true"] for row in here),
            "score_cover": float(np.mean([row["score_cover"] for row in scored])) if scored else None,
            "cover_given_fit": float(np.mean([row["cover_given_fit"] for row in scored])) if scored else None,
            "pit": float(np.median([row["pit"] for row in scored])) if scored else None,
            "matched": sum(row["matched"] for row in here),
            "factors": sum(row["true"] for row in here),
            "cpu_s": float(np.median([row["cpu_2_s"] + row["cpu_3_s"] for row in here])),
        }
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per variant."""
    lines = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        here = [row for row in rows if row["variant"] == variant]
        lines.append({"variant": variant, "n": len(here), "cpu_s": sum(r["cpu_s"] for r in here)})
    return lines
