"""mixed: tables of several kinds of column; do probabilities hold, and what does one normal likelihood cost?

`mixed`: truths drawn from the program: 18 columns, three each under normal, bernoulli, ordinal of 3, 5 and 7
levels, and Poisson; three factors with an anchor each; 150, 400 and 1,500 rows. Edges of a linear decoder
with a likelihood for each column (`Columns`): Brier score, ECE beside that of perfect probabilities, false
discoveries where 10 % was asked for, power; of all columns and of each kind (`by_kind`). `brier_normal`: the
same tables under the one normal likelihood, `ratio` its Brier score's share that is left.

`likert`: one trait behind twelve answers of 3, 5 or 7 levels, half of them piled up at either end (600 rows,
four factors offered): tables with one factor under the ordinal likelihood, under the normal one, and by
parallel analysis of polychoric correlations (by moments: those that the cut levels' correlations come from).

`bfi`: the personality items as levels, five factors: items on their scale, and the mean log probability of
the answers that were hidden (10 %), under the ordinal and the normal likelihood (the mass that it gives to
each level) and by factor analysis (EM) likewise.

`cost`: CPU seconds of fit and chains of a mixed table over those of the dearest of its kinds alone, in turns.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

import pyro_sparse as ps
from benchmarks._common import Row, report_seeds
from benchmarks._missing_fa import MissingFactorAnalysis
from benchmarks.bfi import DEFAULT, hide, items_correct
from pyro_sparse.calibrate.scores import ece, ece_when_calibrated
from pyro_sparse.graphs.selection import bayesian_fdr
from pyro_sparse.inference.table.refine import balanced_draws, draw_at, refine
from pyro_sparse.inference.training.restarts import pick

Array = NDArray[np.float64]

SEEDS, QUICK_SEEDS = 200, 1  # tables of the middle size; of the others a quarter
MIDDLE, ROWS = 400, (400, 150, 1500)  # the first is asked for most tables
KINDS = ("normal", "bernoulli", "ordinal 3", "ordinal 5", "ordinal 7", "poisson")
EACH, FACTORS = 3, 3
N_COLUMNS = EACH * len(KINDS)
ETA_PRIOR, SLAB, SPIKE = (2.0, 4.0), 1.0, 20.0  # rates of Laplace densities: mean sizes 1 and .05
LEVELS, LIKERT_SEEDS, OFFERED = (3, 5, 7), 50, 4
BFI_SEEDS = 10
COST_SEEDS = 5
PARTS = ("mixed", "likert", "bfi", "cost")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    parser.add_argument("--path", default=str(DEFAULT) if DEFAULT.exists() else None, help="a local bfi.csv")


def tasks(options: argparse.Namespace) -> list[Row]:
    first, n = options.first_seed, options.seeds
    seeds = [first + seed for seed in report_seeds(n)]
    rows: list[Row] = []
    if "mixed" in options.parts:
        sizes = ROWS[1:2] if options.quick else ROWS
        some = {size: n if size == MIDDLE or options.quick else max(n // 4, 1) for size in sizes}
        rows += [
            {"part": "mixed", "seed": seed, "size": size} for size in sizes for seed in seeds[: some[size]]
        ]
    if "likert" in options.parts:
        levels = LEVELS[:1] if options.quick else LEVELS
        rows += [
            {"part": "likert", "seed": seed, "size": size} for size in levels for seed in seeds[:LIKERT_SEEDS]
        ]
    if "bfi" in options.parts and options.path and not options.quick:
        rows += [{"part": "bfi", "seed": seed, "size": 2800} for seed in seeds[:BFI_SEEDS]]
    if "cost" in options.parts and not options.quick:
        rows += [{"part": "cost", "seed": seed, "size": MIDDLE} for seed in seeds[:COST_SEEDS]]
    return [{**row, "path": options.path if row["part"] == "bfi" else None} for row in rows]


def run(part: str, seed: int, size: int, path: str | None) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if part == "mixed":
            return probabilities(seed, size)
        if part == "likert":
            return numbers_of_factors(seed, size)
        if part == "bfi":
            return items(seed, Path(str(path)))
        return costs(seed, size)


# ---- tables drawn from the program -------------------------------------------------------------------------
def kind_of_column(j: int) -> str:
    """Kinds come in turn, so that anchors are of several."""
    return KINDS[j % len(KINDS)]


def mixed_likelihood() -> ps.likelihoods.Columns:
    """That of the program, by position."""
    members: dict[str, list[int]] = {}
    for j in range(N_COLUMNS):
        members.setdefault(kind_of_column(j).split()[0], []).append(j)
    levels = [(0, int(kind_of_column(j).split()[1]) - 1) for j in members["ordinal"]]
    made = {"ordinal": ps.likelihoods.Ordinal(levels=levels)}
    return ps.likelihoods.Columns({tuple(at): made.get(kind, kind) for kind, at in members.items()})


def model(likelihood: Any, anchors: bool = True) -> ps.models.SparseDecoder:
    """The linear decoder that tables are drawn from and fitted by."""
    return ps.models.SparseDecoder(
        N_COLUMNS,
        FACTORS,
        prior=ps.priors.SpikeSlabLasso(SLAB, SPIKE, *ETA_PRIOR),
        likelihood=likelihood,
        decoder="linear",
        factor_cov=False,
        anchors={k: k for k in range(FACTORS)} if anchors else None,
    )


def probabilities(seed: int, size: int) -> Row:
    """Edge probabilities and truths of one table, under both likelihoods."""
    rng = np.random.default_rng([seed, size])
    program = model(mixed_likelihood())
    truth, x = ps.calibrate.experiment(program, n_rows=size).simulate(rng)
    row: Row = {"truth": truth["edge"].astype(int).ravel().tolist()}
    for name, likelihood, settings in (
        ("p", mixed_likelihood(), {"standardise": False}),
        ("p_normal", "normal", {}),
    ):
        start = time.process_time()
        fit = ps.fit(
            model(likelihood),
            x,
            seed=seed,
            restarts=1,
            holdout=0.0,
            patience=None,
            progress=False,
            **settings,
        )
        idata = fit.edge_posterior("mcmc", X=x, seed=seed)
        row[name] = idata["edge_posterior"]["probability"].to_numpy().ravel().round(6).tolist()
        row[f"{name}_cpu_s"] = time.process_time() - start
        # anchors pin factors, but a fit may lose one
        row[f"{name}_factors"] = int((fit.weights[fit.best] != 0).any(0).sum())
    return row


def free_edges() -> NDArray[np.bool_]:
    """Edges that no anchor decides, (feature x factor)."""
    free = np.ones((N_COLUMNS, FACTORS), dtype=bool)
    free[:FACTORS] = False
    return free.ravel()


def figures(p: Array, truth: Array) -> Row:
    """Of probabilities (table, edge): Brier score, ECE and its floor, discoveries at 10 %."""
    chosen = np.array([bayesian_fdr(row, 0.1) for row in p])
    named = max(int(chosen.sum()), 1)
    return {
        "brier": float(((p - truth) ** 2).mean()),
        "ece": float(ece(p.ravel(), truth.ravel())),
        "ece_null": float(ece_when_calibrated(p.ravel()).mean()),
        "fdr10": float((chosen & (truth == 0)).sum() / named),
        "power": float((chosen & (truth == 1)).sum() / max(truth.sum(), 1)),
    }


def of_tables(rows: list[Row]) -> Row:
    """Figures of tables of one size, and of each kind of column."""
    free = free_edges()
    truth, p, normal = (np.array([row[name] for row in rows])[:, free] for name in ("truth", "p", "p_normal"))
    kinds = np.repeat([kind_of_column(j) for j in range(N_COLUMNS)], FACTORS)[free]
    by_kind = {}
    for kind in KINDS:
        of_kind = figures(p[:, kinds == kind], truth[:, kinds == kind])
        brier_normal = float(((normal - truth)[:, kinds == kind] ** 2).mean())
        by_kind[kind] = {**of_kind, "brier_normal": brier_normal, "ratio": of_kind["brier"] / brier_normal}
    whole, of_normal = figures(p, truth), figures(normal, truth)
    return {
        "tables": len(rows),
        **whole,
        **{f"{name}_normal": value for name, value in of_normal.items()},
        "ratio": whole["brier"] / of_normal["brier"],
        "cpu_s": float(np.median([row["p_cpu_s"] for row in rows])),
        "cpu_s_normal": float(np.median([row["p_normal_cpu_s"] for row in rows])),
        "by_kind": by_kind,
    }


# ---- answers on a scale ------------------------------------------------------------------------------------
def likert(seed: int, levels: int, n: int = 600, items: int = 12) -> Array:
    """One trait; half of the items have most answers at the top, half at the bottom."""
    rng = np.random.default_rng([seed, levels])
    loading = rng.uniform(0.6, 0.8, items)
    y = rng.normal(size=(n, 1)) * loading + np.sqrt(1 - loading**2) * rng.normal(size=(n, items))
    skew = rng.uniform(1.0, 1.5) * np.where(np.arange(items) % 2, 1, -1)
    cuts = np.linspace(-1.2, 1.2, levels - 1)
    return np.stack([np.digitize(y[:, j], cuts + skew[j]) + 1 for j in range(items)], 1).astype(float)


def numbers_of_factors(seed: int, levels: int) -> Row:
    """Factors with edges under two likelihoods, and by parallel analysis of polychoric correlations."""
    x = likert(seed, levels)
    row: Row = {}
    for likelihood in ("ordinal", "normal"):
        decoder = ps.models.SparseDecoder(n_factors=OFFERED, likelihood=likelihood, decoder="linear")
        start = time.process_time()
        fit = ps.fit(decoder, x, seed=seed, progress=False)
        row[f"{likelihood}_cpu_s"] = time.process_time() - start
        edge = fit.weights[fit.best] != 0
        row[likelihood], row[f"{likelihood}_edges"] = int(edge.any(0).sum()), int(edge.sum())
    row["polychoric"] = parallel_analysis(x, seed)
    return row


def polychoric(x: Array) -> Array:
    """Correlations of normal variables whose cut levels would correlate as these do."""
    from pyro_sparse.data.checks.ordinal import correlation_excess

    r = np.corrcoef(x.T)
    kept = np.array([_kept(column) for column in x.T])
    # the excess is r - k_i k_j rho
    rho = (r - correlation_excess(x)) / np.outer(kept, kept)
    np.fill_diagonal(rho, 1.0)
    return rho


def _kept(column: Array) -> float:
    """Correlation of a column of levels with the normal variable that it was cut from."""
    level, count = np.unique(column, return_counts=True)
    cuts = norm.ppf(np.cumsum(count)[:-1] / count.sum())
    return float((np.diff(level) * norm.pdf(cuts)).sum() / column.std())


def parallel_analysis(x: Array, seed: int, permutations: int = 20) -> int:
    """Factors whose eigenvalues are above those of permuted columns, of polychoric correlations (Horn)."""
    rng = np.random.default_rng([seed, 1])
    observed = np.linalg.eigvalsh(polychoric(x))[::-1]
    chance = [
        np.linalg.eigvalsh(polychoric(np.stack([rng.permutation(column) for column in x.T], 1)))[::-1]
        for _ in range(permutations)
    ]
    above = observed > np.mean(chance, 0)
    return int(above.argmin())


# ---- personality items -------------------------------------------------------------------------------------
def items(seed: int, path: Path) -> Row:
    """Items on their scale, and log scores of hidden answers."""
    from pyro_sparse.datasets import load_bfi

    table = load_bfi(path)
    x, scales = table.x.to_numpy(), table.features["scale"].to_numpy()
    hidden = hide(x, seed)
    seen = np.where(hidden, np.nan, x)
    row: Row = {}
    for likelihood in ("ordinal", "normal"):
        decoder = ps.models.SparseDecoder(n_factors=5, likelihood=likelihood, decoder="linear")
        start = time.process_time()
        fit = ps.fit(decoder, x, seed=seed, progress=False, holdout=0.0)
        row[f"{likelihood}_cpu_s"] = time.process_time() - start
        row[f"{likelihood}_items"] = items_correct(fit.effects[fit.best], scales)
        fit = ps.fit(decoder, seen, seed=seed, progress=False)
        row[f"{likelihood}_log_score"] = float(
            np.log(chances(fit, seen)[hidden, x[hidden].astype(int) - 1]).mean()
        )
    analysis = MissingFactorAnalysis(5).fit(seen)
    sd = np.sqrt(np.nanmean((seen - analysis.predict(seen)) ** 2, 0))
    row["fa_log_score"] = log_score(discretised(analysis.predict(seen), sd, 6), x, hidden)
    return row


def log_score(chance: Array, x: Array, hidden: NDArray[np.bool_]) -> float:
    """Mean log probability of the hidden answers, which count from 1."""
    return float(np.log(chance[hidden, x[hidden].astype(int) - 1]).mean())


def chances(fit: Any, x: Array, n_levels: int = 6) -> Array:
    """Probabilities of the levels 1 to `n_levels` of each cell, (row, column, level)."""
    restart = pick(fit.model, [fit.best])
    table = fit._table(x, {})
    batch = table.batch("cpu", torch.float32).whole()
    half = balanced_draws(16, 16, restart.factor_cov)
    with torch.enable_grad():
        q = refine(restart, batch)
    total = np.zeros((*x.shape, n_levels))
    with torch.no_grad():
        for noise in half:
            for z in (draw_at(q, noise), draw_at(q, -noise)):
                f = restart.decode(z, restart.weights)
                if restart.likelihood.name == "ordinal":
                    total += restart.likelihood(f).probs[0].numpy()
                else:
                    mean = f[0].double().numpy() * table.scale + table.centre
                    sd = restart.likelihood.noise_sd()[0, 0].double().numpy() * table.scale
                    total += discretised(mean, sd, n_levels)
    return total / total.sum(-1, keepdims=True)


def discretised(mean: Array, sd: Array, n_levels: int) -> Array:
    """Mass that normal densities give to whole numbers from 1, the ends taking what lies beyond."""
    edges = np.concatenate([[-np.inf], np.arange(1.5, n_levels), [np.inf]])
    below = norm.cdf((edges - mean[..., None]) / sd[:, None])
    return np.maximum(np.diff(below, axis=-1), 1e-12)


# ---- cost --------------------------------------------------------------------------------------------------
def costs(seed: int, size: int) -> Row:
    """CPU seconds of a table of all kinds and of tables of one, as large."""
    rng = np.random.default_rng([seed, size, 3])
    whole = [mixed_likelihood()]
    for n in LEVELS:
        whole.append(ps.likelihoods.Ordinal(levels=(0, n - 1)))
    whole += [ps.likelihoods.Bernoulli(), ps.likelihoods.Poisson(size_factors=False)]
    row: Row = {}
    for likelihood in whole:
        _, x = ps.calibrate.experiment(model(likelihood), n_rows=size).simulate(rng)
        name = likelihood.name if likelihood.name != "ordinal" else f"ordinal {int(x.max()) + 1}"
        assert x.shape == (size, N_COLUMNS)
        start = time.process_time()
        fit = ps.fit(model(likelihood), x, seed=seed, restarts=4, patience=None, progress=False)
        between = time.process_time()
        fit.edge_posterior("mcmc", X=x, seed=seed, sweeps=200, warm_up=60, tolerance=0.0)
        row[f"{name}_fit_s"], row[f"{name}_chains_s"] = between - start, time.process_time() - between
    for what in ("fit", "chains"):
        alone = [v for name, v in row.items() if name.endswith(f"_{what}_s") and "columns" not in name]
        row[f"{what}_ratio"] = row[f"columns_{what}_s"] / max(alone)
    return row


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    result: Row = {}
    mixed = [row for row in rows if row["part"] == "mixed"]
    if mixed:
        result["mixed"] = {
            size: of_tables([row for row in mixed if row["size"] == size])
            for size in sorted({row["size"] for row in mixed})
        }
    answers = [row for row in rows if row["part"] == "likert"]
    if answers:
        result["likert"] = {
            size: {
                "one_factor": sum(row["ordinal"] == 1 for row in of_size),
                "one_factor_normal": sum(row["normal"] == 1 for row in of_size),
                "one_factor_polychoric": sum(row["polychoric"] == 1 for row in of_size),
                "n": len(of_size),
            }
            for size in sorted({row["size"] for row in answers})
            if (of_size := [row for row in answers if row["size"] == size])
        }
    if of_bfi := [row for row in rows if row["part"] == "bfi"]:
        names = [name for name in of_bfi[0] if name.endswith(("_items", "_log_score", "_cpu_s"))]
        result["bfi"] = {name: [row[name] for row in of_bfi] for name in names}
    if of_cost := [row for row in rows if row["part"] == "cost"]:
        result["cost"] = {
            name: float(np.median([row[name] for row in of_cost])) for name in ("fit_ratio", "chains_ratio")
        }
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per part and size."""
    lines = []
    for part, size in dict.fromkeys((row["part"], row["size"]) for row in rows):
        of_both = [row for row in rows if (row["part"], row["size"]) == (part, size)]
        lines.append(
            {"part": part, "size": size, "n": len(of_both), "cpu_s": sum(r["cpu_s"] for r in of_both)}
        )
    return lines
