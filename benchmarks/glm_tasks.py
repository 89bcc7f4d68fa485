"""glm_tasks: are the edge probabilities of tasks right whose outcomes are yes/no answers, counts or levels?

Given latents, truth drawn from the prior: inclusion rate .3 and normal weights of unit scale, both known,
AR(1) features (rho = .5), standard normal intercepts; cuts between levels and overdispersion are drawn from
their priors for every task, and not given. Of each family:

* `delta_enum`: mean |difference| from the exact posterior on small tasks (4 features, 40 samples), all 16
  supports, their marginal likelihoods by importance sampling (`_glm_rows.py`). Asked: at most .02.
* `ece`, `ece_null`: calibration error over 200 data sets of 8 tasks (6 features, 40 samples), and what a
  calibrated method of that size shows by chance.
* `cost_ratio_d40`: CPU time for 8 tasks of 40 features and 100 samples, over that of normal outcomes on the
  same features, in turns in one process.

Off the model, for "bernoulli" and "poisson": outcomes by a probit link, features with heavy tails (Student t,
3 degrees of freedom), counts that vary more than Poisson ones. There `ece` is of a model that is wrong.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.stats import norm

from benchmarks import _glm_rows as glm
from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 4, 1
DATA_SETS, QUICK_DATA_SETS = 50, 5  # of a seed
SMALL, QUICK_SMALL = 10, 2
TASKS, FEATURES, SAMPLES, RHO = 8, 6, 40, 0.5
FEW = 4  # features of the small tasks
LARGE, MANY = 40, 100  # features and samples where time is taken
TURNS, QUICK_TURNS = 3, 1
TARGET = 0.02
OFF_MODEL = {
    "bernoulli probit": "bernoulli",
    "bernoulli heavy": "bernoulli",
    "poisson heavy": "poisson",
    "poisson overdispersed": "poisson",
    "negative_binomial heavy": "negative_binomial",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--family", action="append", choices=glm.FAMILIES, help="only this one (repeatable)")


def tasks(options: argparse.Namespace) -> list[Row]:
    families = options.family or glm.FAMILIES
    cells = [*families, *(cell for cell, family in OFF_MODEL.items() if family in families)]
    return [
        {"cell": cell, "seed": options.first_seed + seed, "quick": options.quick}
        for seed in report_seeds(options.seeds)
        for cell in cells
    ]


def run(cell: str, seed: int, quick: bool = False) -> Row:
    family = OFF_MODEL.get(cell, cell)
    rng = np.random.default_rng([seed, (*glm.FAMILIES, *OFF_MODEL).index(cell)])
    n_tasks = TASKS * (QUICK_DATA_SETS if quick else DATA_SETS)
    x, y, edge = rows(cell, rng, n_tasks)
    start = time.process_time()
    probability, late = edges(family, x, y)
    seconds = time.process_time() - start
    figures: Row = {
        "probability": probability.ravel().round(4).tolist(),
        "truth": edge.ravel().astype(int).tolist(),
        "brier": ((probability - edge) ** 2).mean(),
        "late": late,
        "ms": 1e3 * seconds / n_tasks,
    }
    if cell in OFF_MODEL:
        return figures
    x, y, _ = glm.rows(family, rng, QUICK_SMALL if quick else SMALL, SAMPLES, FEW, RHO)
    probability, _ = edges(family, x, y)
    exact = [glm.exact(family, a, b, glm.RATE, glm.INTERCEPT_SD) for a, b in zip(x, y, strict=True)]
    error = np.abs(probability - [e["edge_prob"] for e in exact])
    return {
        **figures,
        "delta": error.mean(1).tolist(),
        "delta_max": error.max(),
        "effective": min(e["effective"] for e in exact),
        **cost(family, rng, QUICK_TURNS if quick else TURNS),
    }


def rows(cell: str, rng: np.random.Generator, n_tasks: int) -> tuple[np.ndarray, ...]:
    """Features, outcomes and edges of a cell."""
    family = OFF_MODEL.get(cell, cell)
    if cell not in OFF_MODEL:
        return glm.rows(family, rng, n_tasks, SAMPLES, FEATURES, RHO)
    x = glm.correlated(rng, n_tasks, SAMPLES, FEATURES, RHO)
    if cell.endswith("heavy"):
        x = rng.standard_t(3, size=x.shape) / np.sqrt(3)
        x -= x.mean(1, keepdims=True)
    edge = rng.random((n_tasks, FEATURES)) < glm.RATE
    f = (x @ (rng.normal(size=edge.shape) * edge)[..., None])[..., 0]
    f = np.minimum(f + glm.INTERCEPT_SD * rng.normal(size=(n_tasks, 1)), 12.0)  # counts up to 160,000
    if cell == "bernoulli probit":
        return x, (rng.random(f.shape) < norm.cdf(f)).astype(float), edge
    own = np.ones(1) if cell.endswith("overdispersed") else glm.parameters(family, rng)
    drawn_by = "negative_binomial" if cell.endswith("overdispersed") else family
    return x, np.stack([glm.outcomes(drawn_by, rng, of_task, own) for of_task in f]), edge


def edges(family: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Edge probabilities, and the share of tasks that have not converged."""
    import warnings

    from pyro_sparse.inference.edges.regression.outcome_edges import outcome_edges
    from pyro_sparse.inference.edges.regression.rows import RowPrior
    from pyro_sparse.likelihoods import Ordinal

    prior = RowPrior(eta=glm.RATE, intercept_sd=glm.INTERCEPT_SD)
    likelihood = Ordinal(levels=(0, glm.LEVELS - 1)) if family == "ordinal" else family
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of tasks that have not converged: counted
        found = outcome_edges(x, y, prior, likelihood=likelihood)
    return found.edge_prob, float((~found.converged).mean())


def cost(family: str, rng: np.random.Generator, turns: int) -> Row:
    """CPU seconds of large tasks, and of as many with normal outcomes."""
    from pyro_sparse.inference.edges.regression.ep import ep_edges
    from pyro_sparse.inference.edges.regression.rows import RowPrior

    x, y, _ = glm.rows(family, rng, TASKS, MANY, LARGE, RHO)
    edge = rng.random((TASKS, LARGE)) < glm.RATE
    normal = (x @ (rng.normal(size=edge.shape) * edge)[..., None])[..., 0] + rng.normal(size=y.shape)
    seconds: dict[str, list[float]] = {"large": [], "normal": []}
    for _ in range(turns):
        start = time.process_time()
        edges(family, x, y)
        between = time.process_time()
        ep_edges(x, normal, RowPrior(eta=glm.RATE))
        seconds["large"].append(between - start)
        seconds["normal"].append(time.process_time() - between)
    return {f"seconds_{name}": min(values) for name, values in seconds.items()}


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    found = {cell: figures(own) for cell, own in by_cell(rows).items()}
    families = {cell: own for cell, own in found.items() if cell not in OFF_MODEL}
    return {
        **families,
        "off_model": {cell: own for cell, own in found.items() if cell in OFF_MODEL},
        "met_everywhere": all(own["met"] for own in families.values()),
    }


def figures(rows: list[Row]) -> Row:
    """Of one cell, over all its seeds."""
    from pyro_sparse.calibrate import reliability

    probability, truth = (np.concatenate([row[name] for row in rows]) for name in ("probability", "truth"))
    found = reliability(probability, truth, group=np.arange(len(truth)) // (TASKS * FEATURES))
    shown: Row = {
        "ece": found.ece,
        "ece_null": found.ece_null,
        "ece_p": found.ece_p,
        "brier": found.brier,
        "n": found.n_data_sets,
        "late": float(np.mean([row["late"] for row in rows])),
        "ms": float(np.median([row["ms"] for row in rows])),
    }
    if "delta" not in rows[0]:
        return shown
    delta = np.concatenate([row["delta"] for row in rows])
    ratio = sum(row["seconds_large"] for row in rows) / sum(row["seconds_normal"] for row in rows)
    return {
        **shown,
        "delta_enum": delta.mean(),
        "delta_max": max(row["delta_max"] for row in rows),
        "n_enum": len(delta),
        "effective": min(row["effective"] for row in rows),
        "cost_ratio_d40": ratio,
        "met": bool(delta.mean() <= TARGET),
    }


def table(rows: list[Row]) -> list[Row]:
    return [{"cell": cell, **figures(own)} for cell, own in by_cell(rows).items()]


def by_cell(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by cell."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["cell"], []).append(row)
    return found
