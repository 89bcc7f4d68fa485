"""abstracts: words of abstracts (PeerRead); does a sparse decoder tell words as others do, do its edges last?

The recipe of the Sparse VAE paper: counts of the 500 most frequent words, 20 factors. The seed puts a fifth
of the abstracts aside and starts the fit; every method gets the others. `--path` is a local copy of PeerRead,
a folder or a CSV (`datasets.load_peerread`); of a large one `--documents` at random. Without it `--quick`
makes a small table up. Ours has a linear decoder and a Poisson likelihood, VAE, β-VAE (β = 2) and VSC the
same likelihood and two restarts; LDA is what people who want topics would take; NMF, factor analysis and
mofapy2 get log(1 + x) at equal depth; `average` says the same of every abstract.

- `log_loss_reconstruction`: of the abstracts put aside, of the words that were given, as in the paper: minus
  the log-probability of the words of an abstract, without the multinomial coefficient.
- `recall5`, `ndcg10`, `log_loss`: fold-in. Half of the different words of such an abstract are given, as
  often as they are in it; the others are to be ranked first, or told, among the words not given. The halves
  are those of the seed, for all methods. A word that comes twice is in one half: writers repeat themselves.
- `edge_agreement` and others of ours: as in `films`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import Row, report_seeds
from benchmarks._count_scores import Profiles, average_profile
from benchmarks._peers import available
from benchmarks._real_tables import METHODS, MethodFit, by_method, fitted, halved, means, put_aside

SEEDS, QUICK_SEEDS = 5, 1
N_FACTORS, QUICK_FACTORS = 20, 3
OTHERS = ("lda", "average")
QUICK_METHODS = ("ours", "nmf", "mofapy2", *OTHERS)
LIKELIHOOD = "poisson"
FIGURES = ("recall5", "ndcg10", "log_loss", "log_loss_reconstruction")

Array = NDArray[Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", help="a local copy of PeerRead, folder or CSV with a column abstract_text")
    parser.add_argument("--documents", type=int, default=2000, help="at most as many (default 2000)")
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, *OTHERS), help="only these")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    if options.path is None and not options.quick:
        raise SystemExit("abstracts: --path FOLDER_OR_CSV with PeerRead, a checkout or its abstracts")
    methods = available(options.methods, QUICK_METHODS if options.quick else (*METHODS, *OTHERS))
    return [
        {
            "method": method,
            "seed": options.first_seed + seed,
            "path": options.path,
            "documents": options.documents,
            "quick": options.quick,
        }
        for seed in report_seeds(options.seeds)
        for method in methods
    ]


def run(method: str, seed: int, path: str | None, documents: int, quick: bool = False) -> Row:
    x, words = loaded(path, documents)
    rng = np.random.default_rng(seed)
    aside = put_aside(len(x), rng)
    given = halved(x[aside], rng)
    if method == "average":
        answer = average_profile(x[~aside])
    else:
        answer = fitted(method, x[~aside], QUICK_FACTORS if quick else N_FACTORS, LIKELIHOOD, seed, quick)
    figures = {} if method == "average" else {**answer.row(), "features": words}
    seconds = answer.cpu_fit + answer.cpu_edges
    return {**scores(answer, x[~aside], x[aside], given), **figures, "cpu_method": seconds}


def loaded(path: str | None, documents: int) -> tuple[Array, list[str]]:
    """Counts (document, word) and the words; a made-up table without a path."""
    if path is not None:
        from pyro_sparse.datasets import load_peerread

        table = load_peerread(path)
        x = np.asarray(table.x.toarray(), dtype=float)
        few = np.sort(np.random.default_rng(0).permutation(len(x))[:documents])
        x = x[few]
        counted = x.any(0)
        kept = [word for word, there in zip(table.feature_names, counted, strict=True) if there]
        return x[x.sum(1) > 1][:, counted], kept
    rng = np.random.default_rng(0)
    topic = rng.dirichlet(np.full(3, 0.3), size=150)
    of_topic = rng.dirichlet(np.full(8, 2.0), size=3)
    words = np.where(np.arange(24) % 3 == np.arange(3)[:, None], np.repeat(of_topic, 3, axis=1), 0.02)
    share = topic @ (words / words.sum(1, keepdims=True))
    counts = np.stack([rng.multinomial(2 + rng.poisson(20), row) for row in share])
    return counts.astype(float), [f"w{j}" for j in range(24)]


def scores(answer: MethodFit, seen: Array, x: Array, given: Array) -> Row:
    from pyro_sparse.metrics import predictions

    profiles = Profiles(seen, answer.predict(seen))
    whole, folded = profiles.shares(answer.predict(x)), profiles.shares(answer.predict(given))
    rest, open_words = x - given, np.where(given > 0, 1e-300, folded)
    told = rest.any(1)
    return {
        "recall5": predictions.recall_at_k(folded, rest, 5, seen=given),
        "ndcg10": predictions.ndcg_at_k(folded, rest, 10, seen=given),
        "log_loss": predictions.multinomial_log_loss(rest[told], open_words[told]),
        "log_loss_reconstruction": predictions.multinomial_log_loss(x, whole),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{method: {figure: [per seed]}}, and how edges of the methods that have probabilities agree."""
    return by_method(rows, FIGURES)


def table(rows: list[Row]) -> list[Row]:
    """One line per method: means over seeds, standard errors of the fold-in."""
    return means(rows, FIGURES, FIGURES[:3])
