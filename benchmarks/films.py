"""films: who liked which film (MovieLens); does a sparse decoder rank as well as others, and last its edges?

The recipe of the Sparse VAE paper: ratings of 4 and more, users with 20 of them, the 300 films with most. The
seed puts a fifth of the users aside and starts the fit; every method gets the others and 15 factors. `--path`
is a local copy of MovieLens (`datasets.load_movielens`); of a large one `--users` at random. Without it
`--quick` makes a small table up. Ours has a linear decoder and is otherwise as it comes; `ours_practical`
asks the chains of the same fit which loadings cross-loadings do not explain (`edge="practical"`); VAE, β-VAE
(β = 2) and VSC have two restarts; mofapy2 has yes/no likelihood; `popular` ranks by how many like a film, and
`ease` is a linear autoencoder (Steck 2019, penalty 100), which people who only want rankings would take.

- `recall5_reconstruction`, `ndcg10_reconstruction`: of the users put aside, of the films that were given, as
  in the paper.
- `recall5`, `ndcg10`: fold-in. Half of what such a user likes is given, the rest is 0, and is to be ranked
  first among the films not given. The halves are those of the seed, for all methods.
- `edge_agreement`: share of the edges with P of .95 or more of one seed with .85 or more in another, over all
  pairs of seeds, factors matched; `_present`: of the edges that ours calls present. See
  `_real_tables.agreement`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import Row, report_seeds
from benchmarks._peers import available, cpu
from benchmarks._real_tables import METHODS, MethodFit, by_method, fitted, halved, means, put_aside

SEEDS, QUICK_SEEDS = 5, 2
N_FACTORS, QUICK_FACTORS = 15, 3
RANKERS = ("popular", "ease")
QUICK_METHODS = ("ours", "nmf", "popular")
EASE_PENALTY = 100.0
FIGURES = ("recall5", "ndcg10", "recall5_reconstruction", "ndcg10_reconstruction")

Array = NDArray[Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", help="a local copy of MovieLens (100k, 20M or 25M), folder or archive")
    parser.add_argument("--users", type=int, default=5000, help="at most as many users (default 5000)")
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, *RANKERS), help="only these")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    if options.path is None and not options.quick:
        raise SystemExit("films: --path FOLDER with MovieLens, for instance of ml-100k.zip of GroupLens")
    methods = available(options.methods, QUICK_METHODS if options.quick else (*METHODS, *RANKERS))
    return [
        {
            "method": method,
            "seed": options.first_seed + seed,
            "path": options.path,
            "users": options.users,
            "quick": options.quick,
        }
        for seed in report_seeds(options.seeds)
        for method in methods
    ]


def run(method: str, seed: int, path: str | None, users: int, quick: bool = False) -> Row:
    x = loaded(path, users)
    rng = np.random.default_rng(seed)
    aside = put_aside(len(x), rng)
    given = halved(x[aside], rng)
    if method in RANKERS:
        answer = _ranker(method, x[~aside])
    else:
        answer = fitted(method, x[~aside], QUICK_FACTORS if quick else N_FACTORS, "bernoulli", seed, quick)
    figures = {} if method in RANKERS else answer.row()
    seconds = answer.cpu_fit + answer.cpu_edges
    return {**scores(answer, x[aside], given), **figures, "cpu_method": seconds}


def loaded(path: str | None, users: int) -> Array:
    """Likes (user, film), 0 or 1; a made-up table without a path."""
    if path is not None:
        from pyro_sparse.datasets import load_movielens

        return np.asarray(load_movielens(path, n_users=users).x.toarray(), dtype=float)
    rng = np.random.default_rng(0)
    taste = rng.normal(size=(200, 3))
    weight = 2.0 * (np.arange(30)[:, None] % 3 == np.arange(3))
    return (taste @ weight.T - 0.5 + rng.logistic(size=(200, 30)) > 0).astype(float)


def scores(answer: MethodFit, x: Array, given: Array) -> Row:
    from pyro_sparse.metrics import predictions

    rest, folded, whole = x - given, answer.predict(given), answer.predict(x)
    return {
        "recall5": predictions.recall_at_k(folded, rest, 5, seen=given),
        "ndcg10": predictions.ndcg_at_k(folded, rest, 10, seen=given),
        "recall5_reconstruction": predictions.reconstruction_recall_at_k(whole, x, 5),
        "ndcg10_reconstruction": predictions.reconstruction_ndcg_at_k(whole, x, 10),
    }


def _ranker(method: str, x: Array) -> MethodFit:
    start = cpu()
    if method == "popular":
        weight = np.zeros((x.shape[1], x.shape[1]))
    else:  # the least squares map of a row to itself that gives no item to itself
        inverse = np.linalg.inv(x.T @ x + EASE_PENALTY * np.eye(x.shape[1]))
        weight = -inverse / inverse.diagonal()
        np.fill_diagonal(weight, 0.0)
    offset = x.mean(0) if method == "popular" else np.zeros(x.shape[1])
    return MethodFit(lambda rows: rows, lambda rows: rows @ weight + offset, weight, cpu() - start)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{method: {figure: [per seed]}}, and how edges of the methods that have probabilities agree."""
    return by_method(rows, FIGURES)


def table(rows: list[Row]) -> list[Row]:
    """One line per method: means over seeds, standard errors of the fold-in."""
    return means(rows, FIGURES, FIGURES[:2])
