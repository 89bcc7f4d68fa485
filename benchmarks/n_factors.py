"""n_factors: is the number of factors right where more are offered, whatever precision and restarts are?

Tables of `_factor_tables.py`: blocks of indicators with K offered 1.5 to 2 times too large, the linear
decoder with its defaults, and the same in other precisions and with 4 or 12 restarts. `right`: tables with
the right number under the defaults (`by_setting`: under each); `same`: tables with one number under all; of
`n`. Of an answer counts the factors that have edges. Beside it, in the same rows, `parallel` (Horn's
parallel analysis, 20 permutations of each column, mean eigenvalues, of the correlations with squared multiple
correlations on the diagonal), `parallel_pc` (of the correlations as they are) and `fa_bic` (factor analysis
of scikit-learn, the number with the best BIC up to K).

`weak_kept` of `weak_n`: tables with one more factor of two indicators of .4 where a factor of the fit has
both as edges and at most one other feature. `by_rows` has these by number of rows, and `oracle`: where the
true graph at its maximum has a better BIC than the true graph without that factor.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import Row, report_seeds, sparse_fit
from benchmarks._factor_tables import WEAK_INDICATORS, FactorTable, blocks, weak

SEEDS, QUICK_SEEDS = 200, 1
# The first is the default; the others change its precision, its restarts, or both.
SETTINGS: dict[str, Row] = {
    "default": {},
    "float64_restarts_4": {"dtype": "float64", "restarts": 4},
    "restarts_12": {"restarts": 12},
    "float64": {"dtype": "float64"},
}
QUICK_SETTINGS = ("default", "float64_restarts_4")
WEAK_ROWS = (300, 600, 1000, 2000)
WEAK_EVERY = 4  # seeds, of which one has weak tables
PERMUTATIONS = 20
PEERS = ("parallel", "parallel_pc", "fa_bic")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), help="only these")
    parser.add_argument("--no-weak", action="store_true", help="without tables with a weak factor")


def tasks(options: argparse.Namespace) -> list[Row]:
    settings = options.settings or (QUICK_SETTINGS if options.quick else tuple(SETTINGS))
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    rows: list[Row] = [{"kind": kind, "seed": seed} for seed in seeds for kind in (*settings, "peers")]
    if not (options.no_weak or options.quick):
        rows += [{"kind": f"weak_{n}", "seed": seed} for seed in seeds[::WEAK_EVERY] for n in WEAK_ROWS]
    return rows


def run(kind: str, seed: int) -> Row:
    if kind.startswith("weak_"):
        return of_weak(weak(seed, int(kind.removeprefix("weak_"))), seed)
    table = blocks(seed)
    about = {
        "factors": table.loadings.shape[1],
        "indicators": int((table.loadings[:, 0] != 0).sum()),
        "rows": len(table.x),
        "correlation": table.correlation,
        "offered": table.offered,
    }
    if kind == "peers":
        return {**about, **peers(table.x, table.offered, seed)}
    edge = edges(table, seed, SETTINGS[kind])
    return {**about, "fitted": edge.shape[1]}


def edges(table: FactorTable, seed: int, settings: Row) -> NDArray[np.bool_]:
    """Of the factors that a fit keeps, (feature, factor)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = sparse_fit(table.x, table.offered, seed, decoder="linear", **settings)
    edge = np.asarray(fit.weights[fit.best] != 0)
    return np.asarray(edge[:, edge.any(0)])


def of_weak(table: FactorTable, seed: int) -> Row:
    """Whether the weak factor is kept, and whether the true graph has a better BIC than that without it."""
    edge = edges(table, seed, {})
    of_factor = edge[-WEAK_INDICATORS:].all(0) & (edge[:-WEAK_INDICATORS].sum(0) <= 1)
    with_it, without = (true_bic(table, kept) for kept in (True, False))
    return {
        "rows": len(table.x),
        "correlation": table.correlation,
        "kept": bool(of_factor.any()),
        "oracle": bool(with_it > without),
    }


def true_bic(table: FactorTable, weak_factor: bool) -> float:
    """BIC (halved and negative) of the true graph, or of that without the last factor, at its maximum."""
    from pyro_sparse.inference.table.factor_likelihood import FactorFit, Moments, maximum_likelihood

    loadings = table.loadings if weak_factor else table.loadings[:, :-1]
    k = loadings.shape[1]
    between = np.full((k, k), table.correlation) + (1 - table.correlation) * np.eye(k)
    noise = 1 - ((loadings @ between) * loadings).sum(1)
    correlated = np.full((k, k), table.correlation > 0) & ~np.eye(k, dtype=bool)
    start = FactorFit(loadings != 0, correlated, loadings, between, noise, -np.inf)
    n_rows = len(table.x)
    maximum = maximum_likelihood(Moments(np.corrcoef(table.x.T), n_rows), start)
    n_parameters = maximum.edge.sum() + np.triu(correlated, 1).sum()
    return float(maximum.level - 0.5 * np.log(n_rows) * n_parameters)


def peers(x: NDArray[np.float64], offered: int, seed: int) -> Row:
    """How many factors parallel analysis and factor analysis with BIC say."""
    start = time.process_time()
    figures: Row = {
        "parallel": parallel(x, seed, reduced=True),
        "parallel_pc": parallel(x, seed, reduced=False),
        "fa_bic": fa_bic(x, offered),
    }
    return {**figures, "peer_cpu_s": time.process_time() - start}


def parallel(x: NDArray[np.float64], seed: int, reduced: bool) -> int:
    """Eigenvalues before the first that is not above its mean over tables with permuted columns."""
    rng = np.random.default_rng(seed)

    def eigenvalues(table: NDArray[np.float64]) -> NDArray[np.float64]:
        matrix = np.corrcoef(table.T)
        if reduced:
            matrix = matrix - np.diag(1 / np.diag(np.linalg.inv(matrix)))
        return np.asarray(np.linalg.eigvalsh(matrix)[::-1])

    chance = np.mean([eigenvalues(rng.permuted(x, axis=0)) for _ in range(PERMUTATIONS)], 0)
    below = eigenvalues(x) <= chance
    return int(below.argmax()) if below.any() else x.shape[1]


def fa_bic(x: NDArray[np.float64], offered: int) -> int:
    """The number of factors, 0 to K, with the best BIC of maximum-likelihood factor analysis."""
    from sklearn.decomposition import FactorAnalysis

    z = (x - x.mean(0)) / x.std(0)
    n, g = z.shape
    level = [-0.5 * n * g * (1 + np.log(2 * np.pi))]
    for k in range(1, offered + 1):
        own = FactorAnalysis(k, svd_method="lapack", tol=1e-4, max_iter=3000).fit(z)
        level.append(n * own.score(z) - 0.5 * np.log(n) * (g * k - k * (k - 1) / 2))
    return int(np.argmax(level))


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Counts over tables; `n` is that of the tables."""
    kinds = {row["kind"] for row in rows}
    settings = [kind for kind in SETTINGS if kind in kinds]
    of_kind = {kind: {row["seed"]: row for row in rows if row["kind"] == kind} for kind in settings}
    right = {
        kind: sum(row["fitted"] == row["factors"] for row in of.values()) for kind, of in of_kind.items()
    }
    seeds = list(of_kind[settings[0]])
    of_peers = [row for row in rows if row["kind"] == "peers"]
    of_weak_rows = [row for row in rows if row["kind"].startswith("weak_")]
    return {
        "right": right[settings[0]],
        "same": sum(len({of_kind[kind][seed]["fitted"] for kind in settings}) == 1 for seed in seeds),
        "n": len(seeds),
        "by_setting": right,
        **{name: sum(row[name] == row["factors"] for row in of_peers) for name in PEERS},
        "weak_kept": sum(row["kept"] for row in of_weak_rows),
        "weak_n": len(of_weak_rows),
        "by_rows": {
            str(n): {
                "kept": sum(row["kept"] for row in own),
                "oracle": sum(row["oracle"] for row in own),
                "n": len(own),
            }
            for n in sorted({row["rows"] for row in of_weak_rows})
            for own in [[row for row in of_weak_rows if row["rows"] == n]]
        },
        "fit_cpu_s": float(np.median([row["cpu_s"] for row in of_kind[settings[0]].values()])),
        "peer_cpu_s": float(np.median([row["peer_cpu_s"] for row in of_peers])) if of_peers else None,
    }


def table(rows: list[Row]) -> list[Row]:
    """One line per setting and peer by number of rows, then one per number of rows with a weak factor."""
    lines: list[Row] = []
    answers = {kind: (kind, "fitted") for kind in SETTINGS} | {name: ("peers", name) for name in PEERS}
    for name, (kind, key) in answers.items():
        own = [row for row in rows if row["kind"] == kind]
        for n in sorted({row["rows"] for row in own}):
            error = np.array([row[key] - row["factors"] for row in own if row["rows"] == n])
            counts = {"n": len(error), "right": int((error == 0).sum())}
            lines.append({"what": name, "rows": n, **counts, "too_few": int((error < 0).sum())})
    for n, line in collect(rows, argparse.Namespace())["by_rows"].items():
        lines.append(
            {"what": "weak", "rows": int(n), "n": line["n"], "right": line["kept"], "oracle": line["oracle"]}
        )
    return lines
