"""cells: counts of genes in single cells; do sparse factors tell cells apart as others do, do the edges last?

`--path` is a local copy of scanpy's PBMC (`.h5ad`, `datasets.load_pbmc`) or of the mouse-cortex counts
(`.rda` or a labelled `.csv`, `datasets.load_cortex_counts`), of which the `--genes` that vary most are taken.
Without it `--quick` makes a small table up. Ours has a linear decoder and a negative binomial likelihood and
is otherwise as it comes; VAE, β-VAE (β = 2) and VSC have two restarts and the same likelihood; NMF, factor
analysis and mofapy2 get log(1 + x) at equal depth. Two that are no factor models set the scale: `genes` are
the logarithms of all genes, `average` is the same for every cell. `--methods ours_depth` is ours with the
totals of cells taken for their depth (`size_factors=True`), whatever the table says;
`ours_practical` asks the chains which loadings cross-loadings do not explain (`edge="practical"`).

`--parts methods`: the seed puts a fifth of the cells aside and starts the fit; every method gets the others
and 15 factors (the first number of `--genes`).

- `accuracy`: labels of the cells put aside, told from their factors by a logistic regression of the others.
- `accuracy_cv`: of the others, five-fold cross-validation on their factors, which a method learned from all
  of them, as is usual.
- `deviance`, `gene_correlation`: fold-in. Each molecule of a cell put aside is given with probability 1/2,
  and the others are to be told: two halves of a Poisson count are independent, a cell keeps its profile, and
  every method gets a table without holes. Poisson deviance of a count (the smaller, the better), and the
  correlation of a gene's expected and seen counts. See `_count_scores`. The halves are those of the seed.
- `edge_agreement`, `mean_gap` and others of ours: as in `films`.

`--parts halves`: `ours_practical` in either half of the cells, at random, for each number of `--genes`.
`correlation` of the probabilities of edges (asked .8) and `edge_agreement`, the share of edges with P of .95
in one half that have .85 in the other (asked .85), of factors that match; `_raw`: of all factors. `mean_gap`
of chains (.02).
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import Row, report_seeds
from benchmarks._count_scores import Profiles, average_profile, correlation, deviance, thinned
from benchmarks._peers import available, cpu
from benchmarks._real_tables import (
    METHODS,
    PRACTICAL,
    EqualDepth,
    MethodFit,
    agreement,
    by_method,
    fitted,
    means,
    put_aside,
)

SEEDS, QUICK_SEEDS = 5, 1
N_FACTORS, QUICK_FACTORS = 15, 3
N_GENES = 200
PARTS = ("methods", "halves")
SCALES = ("genes", "average")
DEPTH = "ours_depth"
QUICK_METHODS = ("ours", "nmf", "mofapy2", *SCALES)
LIKELIHOOD = "negative_binomial"
FIGURES = ("accuracy", "accuracy_cv", "deviance", "gene_correlation")

Array = NDArray[Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", help="a local copy of PBMC (.h5ad) or of cortex counts (.rda, .csv)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--genes", nargs="+", type=int, default=[N_GENES], help="how many (default 200)")
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, DEPTH, *SCALES), help="only these")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    if options.path is None and not options.quick:
        raise SystemExit("cells: --path FILE, 10x_pbmc68k_reduced.h5ad of scanpy or zeisel.rda of DESCEND")
    methods = available(options.methods, QUICK_METHODS if options.quick else (*METHODS, *SCALES))
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    shared = {"path": options.path, "quick": options.quick}
    rows: list[Row] = []
    if "methods" in options.parts:
        genes = options.genes[0]
        of_methods = {"part": "methods", "genes": genes}
        rows += [{**of_methods, "method": m, "seed": seed, **shared} for seed in seeds for m in methods]
    if "halves" in options.parts:
        rows += [
            {"part": "halves", "genes": genes, "method": f"half {half}", "seed": seed, **shared}
            for genes in options.genes
            for seed in seeds
            for half in (1, 2)
        ]
    return rows


def run(part: str, genes: int, method: str, seed: int, path: str | None, quick: bool = False) -> Row:
    from pyro_sparse.likelihoods import NegativeBinomial

    x, label, names = loaded(path, genes)
    n_factors = QUICK_FACTORS if quick else N_FACTORS
    rng = np.random.default_rng(seed)
    if part == "halves":
        first = rng.permutation(len(x)) < len(x) // 2
        here = first if method == "half 1" else ~first
        answer = fitted(PRACTICAL, x[here], n_factors, LIKELIHOOD, seed, quick)
        return {**answer.row(), "cpu_method": answer.cpu_fit + answer.cpu_edges, "features": names}
    aside = put_aside(len(x), rng)
    given = thinned(x[aside], rng)
    if method in SCALES:
        answer = _all_genes(x[~aside]) if method == "genes" else average_profile(x[~aside])
    elif method == DEPTH:
        by_totals = NegativeBinomial(size_factors=True)
        answer = fitted("ours", x[~aside], n_factors, by_totals, seed, quick)
    else:
        answer = fitted(method, x[~aside], n_factors, LIKELIHOOD, seed, quick)
    figures = {} if method in SCALES else {**answer.row(), "features": names}
    seconds = answer.cpu_fit + answer.cpu_edges
    return {**scores(answer, x, label, aside, given), **figures, "cpu_method": seconds}


def loaded(path: str | None, n_genes: int) -> tuple[Array, Array, list[str]]:
    """Counts (cell, gene), labels of the cells and names of the genes; a made-up table without a path."""
    if path is not None:
        from pyro_sparse.datasets import load_cortex_counts, load_pbmc

        load = load_pbmc if Path(path).suffix.lower() == ".h5ad" else load_cortex_counts
        table = load(path, n_genes=n_genes)
        return np.asarray(table.x, dtype=float), table.rows["label"].to_numpy(), table.feature_names
    rng = np.random.default_rng(0)
    kind = np.arange(150) % 3
    level = rng.normal(0.5, 0.5, size=24) + 1.5 * (np.arange(24) % 3 == kind[:, None])
    depth = rng.gamma(5, 1 / 5, size=(150, 1))
    x = rng.poisson(depth * rng.gamma(4, np.exp(level) / 4)).astype(float)
    return x, np.array(["a", "b", "c"])[kind], [f"gene {j}" for j in range(24)]


def scores(answer: MethodFit, x: Array, label: Array, aside: Array, given: Array) -> Row:
    seen, rest = x[~aside], x[aside] - given
    profiles = Profiles(seen, answer.predict(seen))
    shares = profiles.shares(answer.predict(given))
    factors = answer.transform(seen)
    return {
        **accuracies(factors, label[~aside], answer.transform(x[aside]), label[aside]),
        "deviance": deviance(rest, shares),
        "gene_correlation": correlation(rest, shares),
    }


def accuracies(factors: Array, label: Array, aside: Array, label_aside: Array) -> Row:
    """Of the rows put aside by a classifier of the others, and of these by cross-validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # a label of four cells
        crossed = cross_val_score(classifier, factors, label, cv=5)
    return {
        "accuracy": float(classifier.fit(factors, label).score(aside, label_aside)),
        "accuracy_cv": float(crossed.mean()),
    }


def _all_genes(x: Array) -> MethodFit:
    """No factors: every gene, and a cell is expected to count again what was given."""
    start = cpu()
    logs = EqualDepth.of(x).logs
    return MethodFit(logs, lambda rows: rows, np.eye(x.shape[1]), cpu() - start)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{method: {figure: [per seed]}}, and {"halves": {genes: {figure: [per seed]}}}."""
    result = by_method([row for row in rows if row["part"] == "methods"], FIGURES)
    of_halves = [row for row in rows if row["part"] == "halves"]
    halves: Row = {}
    for genes in sorted({row["genes"] for row in of_halves}):
        seeds = dict.fromkeys(row["seed"] for row in of_halves if row["genes"] == genes)
        of_seeds = [
            [row for row in of_halves if row["genes"] == genes and row["seed"] == seed] for seed in seeds
        ]
        figures = [
            {
                **agreement(pair),
                "edge_agreement_present": agreement(pair, "present_edges")["edge_agreement"],
                **{name: [row[name] for row in pair] for name in ("factors", "sure", "open", "present")},
                "mean_gap": float(np.mean([row["mean_gap"] for row in pair])),
                "cpu": float(np.sum([row["cpu_method"] for row in pair])),
            }
            for pair in of_seeds
        ]
        halves[str(genes)] = {name: [figure[name] for figure in figures] for name in figures[0]}
    return {**result, "halves": halves}


def table(rows: list[Row]) -> list[Row]:
    """One line per method: means over seeds, standard errors of the accuracy and the deviance."""
    return means([row for row in rows if row["part"] == "methods"], FIGURES, ("accuracy", "deviance"))
