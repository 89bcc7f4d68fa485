"""factor_effects: do intervals of a covariate's effects on factors hold the truth, is bias noticed?

Tables of 400 rows, three factors of four items each. Age moves the first factor and the third, sex the
second, and ten schools differ in the first. `program`: all is normal (or, of "ordinal" and "bernoulli" cells,
logistic). `off_model`: ages and factors are skewed, noise is Student's t with 5 degrees of freedom, factors
correlate .3 given the covariates, every item loads N(0, .05^2) on the other factors. `direct`: as `program`,
and age moves one item directly, too, by .4 standard deviations. The linear decoder with its defaults, three
factors offered, `edge="practical"` off the model, and `ps.factor_effects`.

`cover`: share of the 90 % intervals of the slopes of age and sex (six a table, factors matched by loadings)
that hold the true ones, in standard deviations of the factor over the rows; `sure_of_none`: of slopes that
are 0, those whose interval is all on one side. `ratio`: the slopes' mean over the true ones that are not 0,
beside that of a regression of `transform`'s scores (`ratio_scores`) and of means of the factors that chains
drew (`ratio_draws`). `group_cover`: of the schools' means of the first factor. `said`: tables on which a
direct effect is said; `right_item`: those on which the moved item is named first (of `direct`). `doubted`:
factors that are doubted, which count in `cover` and not in `undoubted_cover`; `lost`: factors that the fit
has not, whose slopes nobody is told.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 50, 1
N_ROWS, PER_FACTOR, N_SCHOOLS = 400, 4, 10
AGE, SEX, SCHOOL_SD = np.array([0.4, 0.0, -0.3]), np.array([0.0, 0.5, 0.0]), 0.4
DIRECT, BETWEEN, CROSS_SD = 0.4, 0.3, 0.05
KINDS = ("program", "off_model", "direct")
LIKELIHOODS = ("normal", "ordinal", "bernoulli")
CUTS = (-1.2, -0.4, 0.4, 1.2)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="only these")
    parser.add_argument("--likelihoods", nargs="+", choices=LIKELIHOODS, help="only these")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    likelihoods = options.likelihoods or (LIKELIHOODS[:1] if options.quick else LIKELIHOODS)
    return [
        {"kind": kind, "likelihood": likelihood, "seed": options.first_seed + seed}
        for seed in report_seeds(options.seeds)
        for kind in options.kinds
        for likelihood in likelihoods
    ]


def simulate(kind: str, likelihood: str, seed: int) -> Row:
    """Cells, covariates, true loadings and true effects in standard deviations of the factors."""
    rng = np.random.default_rng([seed, KINDS.index(kind), 51])
    skewed, item = kind == "off_model", int(rng.integers(3 * PER_FACTOR))
    age = rng.gamma(2, 6, N_ROWS) + 20 if skewed else rng.normal(45, 12, N_ROWS)
    sex, school = rng.choice(["f", "m"], N_ROWS), rng.integers(0, N_SCHOOLS, N_ROWS)
    of_school = rng.normal(0, SCHOOL_SD, N_SCHOOLS)
    mean = (age[:, None] - 45) / 12 * AGE + np.where(sex == "f", 0.5, -0.5)[:, None] * SEX
    mean[:, 0] += of_school[school]
    cov = np.where(np.eye(3, dtype=bool), 1.0, BETWEEN if skewed else 0.0)
    root = np.linalg.cholesky(cov)
    unit = (rng.gamma(2, 1, (N_ROWS, 3)) - 2) / np.sqrt(2) if skewed else rng.normal(size=(N_ROWS, 3))
    z = mean + 0.8 * unit @ root.T
    sd = z.std(0)
    loading = np.zeros((3 * PER_FACTOR, 3))
    loading[np.arange(len(loading)), np.arange(len(loading)) // PER_FACTOR] = rng.uniform(
        0.5, 0.8, len(loading)
    )
    if skewed:
        loading = np.where(loading == 0, rng.normal(0, CROSS_SD, loading.shape), loading)
    noise = np.sqrt(1 - np.minimum((loading**2).sum(1), 0.9))
    f = (z - z.mean(0)) / sd @ loading.T
    if kind == "direct":
        f[:, item] += DIRECT * (age - 45) / 12
    if likelihood == "normal":
        error = rng.standard_t(5, f.shape) * np.sqrt(3 / 5) if skewed else rng.normal(size=f.shape)
        cells = f + noise * error
    else:
        behind = f / noise * np.pi / np.sqrt(3) + rng.logistic(size=f.shape)
        scale = np.pi / np.sqrt(3) / noise
        cells = np.digitize(behind, CUTS) + 1.0 if likelihood == "ordinal" else (behind > 0.3 * scale) * 1.0
    return {
        "cells": cells,
        "age": age,
        "sex": sex,
        "school": school.astype(str),
        "loading": loading,
        "slopes": np.stack([AGE / 12, SEX / 2]) / sd,
        "schools": (of_school - of_school[school].mean()) / sd[0],
        "item": item,
    }


def run(kind: str, likelihood: str, seed: int) -> Row:
    import pyro_sparse as ps
    from pyro_sparse.graphs.alignment import match_columns, similarity

    table = simulate(kind, likelihood, seed)
    covariates = {"age": table["age"], "sex": table["sex"]}
    model = ps.models.SparseDecoder(n_factors=3, decoder="linear", likelihood=likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(model, table["cells"], seed=seed, progress=False)
        edge = "practical" if kind == "off_model" else "prior"
        idata = fit.edge_posterior(edge=edge, seed=seed, progress=False, scores=True)
        start = time.process_time()
        effects = ps.factor_effects(fit, idata, covariates, groups={"school": table["school"]}, seed=seed)
        seconds = time.process_time() - start
    place, sign = match_columns(
        similarity(table["loading"], idata.posterior["weight"].mean(("chain", "draw")).to_numpy())
    )
    names = [fit.factor_names[k] for k in place]
    found = effects.set_index(["covariate", "factor"])
    truth, rows = [], []
    for contrast, slope in (("age", table["slopes"][0]), ("sex = f", None)):
        slope = table["slopes"][1] * 2 * (table["sex"] == "m").mean() if slope is None else slope
        for k, name in enumerate(names):
            row = found.loc[(contrast, name)]
            truth.append(slope[k])
            rows.append(
                sorted((row["hdi90_lb"] * sign[k], row["hdi90_ub"] * sign[k])) + [row["mean"] * sign[k]]
            )
    truth, (low, high, mean) = np.array(truth), np.array(rows).T
    inside = (low <= truth) & (truth <= high)
    doubted = np.array([bool(found.loc[("age", name), "doubted"]) for name in names] * 2)
    schools = found.loc[[f"school = {s}" for s in np.unique(table["school"])]].xs(names[0], level="factor")
    ends = np.sort(schools[["hdi90_lb", "hdi90_ub"]].to_numpy() * sign[0], 1)
    in_use = table["schools"][np.unique(table["school"]).astype(int)]
    said = json.loads(effects.attrs["findings"])
    known = np.isfinite(mean)  # the fit may have lost a factor
    some = (truth != 0) & known
    return {
        "inside": int(inside.sum()),
        "of": int(known.sum()),
        "nothing": int((known & ~some).sum()),
        "sure_of_none": int(((low > 0) | (high < 0))[known & ~some].sum()),
        "sure_inside": int((inside & ~doubted).sum()),
        "sure_of": int((known & ~doubted).sum()),
        "lost": int(3 - known[:3].sum()),
        "ratio": float((mean[some] / truth[some]).mean()),
        "ratio_scores": _of_scores(fit.transform()[:, place] * sign, table, truth, some),
        "ratio_draws": _of_scores(
            idata.scores["z"].mean(("chain", "draw")).to_numpy()[:, place] * sign, table, truth, some
        ),
        "group_inside": int(((ends[:, 0] <= in_use) & (in_use <= ends[:, 1])).sum()),
        "groups": len(in_use) * int(known[0]),
        "said": bool(said),
        "right_item": bool(said) and said[0]["columns"][0] == fit.feature_names[table["item"]],
        "doubted": int(effects.groupby("factor")["doubted"].any().sum()),
        "effects_cpu_s": seconds,
    }


def _of_scores(scores: np.ndarray, table: Row, truth: np.ndarray, some: np.ndarray) -> float:
    """Mean ratio to some true slopes of those of least squares on age, sex and schools."""
    schools = (table["school"][:, None] == np.unique(table["school"])).astype(float)
    design = np.column_stack([table["age"] - table["age"].mean(), table["sex"] == "f", schools])
    slopes = np.linalg.lstsq(design, scores, rcond=None)[0][:2]
    slopes[1] *= (table["sex"] == "m").mean()  # of women against the average row
    slopes = slopes.ravel()
    return float((slopes[some] / truth[some]).mean())


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{kind and likelihood: figures}."""
    result: Row = {}
    for kind, likelihood in dict.fromkeys((row["kind"], row["likelihood"]) for row in rows):
        here = [row for row in rows if (row["kind"], row["likelihood"]) == (kind, likelihood)]
        names = (
            "inside",
            "of",
            "sure_inside",
            "sure_of",
            "nothing",
            "sure_of_none",
            "group_inside",
            "groups",
        )
        total = {name: sum(row[name] for row in here) for name in names}
        result[f"{kind}_{likelihood}"] = {
            "n": len(here),
            "cover": total["inside"] / total["of"],
            "undoubted_cover": total["sure_inside"] / max(1, total["sure_of"]),
            "sure_of_none": total["sure_of_none"] / total["nothing"],
            "group_cover": total["group_inside"] / total["groups"],
            **{
                name: float(np.mean([row[name] for row in here]))
                for name in ("ratio", "ratio_scores", "ratio_draws")
            },
            **{name: sum(row[name] for row in here) for name in ("said", "right_item", "doubted", "lost")},
            "effects_cpu_s": float(np.median([row["effects_cpu_s"] for row in here])),
        }
    return result
