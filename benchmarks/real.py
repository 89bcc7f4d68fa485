"""real: do items of three real tables land on their scales, and do chains agree, K right and K doubled?

bfi (25 personality items of 2,800 people, five scales, 508 answers missing), Holzinger and Swineford's nine
tests of 301 pupils and Thurstone's nine of 213 people (three scales each; of Thurstone's there are only
correlations: rows with exactly these are drawn from the seed). Files are read from --data. The linear decoder
and its chains as they are, `edge_posterior(edge="practical")`, at K as it should be and at twice that
(`k_right`, `k_double`), with the prior's own edges (`k_right_prior`, `k_double_prior`), and bfi's answers as
ordered levels, practical edges again (`k_right_ordinal`, `k_double_ordinal`).

`items`: those whose largest mean |loading| is on the factor matched to their scale, of `of`;
`main_present`, `other_present`: edges of P >= .95 to that factor and to others (x9 of Holzinger's is known to
load on visual as well, Pedigrees of Thurstone's on verbal); `main_verdict`: main edges that `ps.summary`
calls present, which asks for chains that agree and for no doubt as well; `gap`: largest difference of an
edge's probability between chains; `rhat`: largest split R-hat of a loading; `kept`: chains that both compare;
`factors`: that the fit kept. CPU seconds of fit and chains are without imports. A figure is that of the worst
seed, but `factors` and seconds are medians; `by_seed` has all. Beside it (`k_right_varimax`, ...): factor
analysis with varimax, of rows without holes, and where they are installed oblimin of factor_analyzer and
mofapy2.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import _peers
from benchmarks._common import Row, report_seeds
from benchmarks._questionnaires import (
    SURE,
    Array,
    Edges,
    edges_of,
    edges_with_defaults,
    factor_of_items,
    items_on_scale,
    main_edges,
)

SEEDS, QUICK_SEEDS = 10, 1
DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = {"bfi": "bfi.csv", "holzinger": "holzinger.csv", "thurstone": "thurstone_correlations.csv"}
QUICK_TABLES = ("holzinger",)
N_THURSTONE = 213
THREE = {"holzinger": ("visual", "verbal", "speed"), "thurstone": ("verbal", "fluency", "reasoning")}
EDGES = ("practical", "prior")
ORDINAL, LEVELS = "ordinal", ("bfi",)  # a method, and the tables of levels
LEAST, LARGEST = ("items", "main_present", "main_verdict", "kept"), ("other_present", "gap", "rhat")
MEDIAN = ("factors", "chains_cpu_s", "fit_cpu_s", "peer_cpu_s")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default=str(DEFAULT), help=f"folder with {', '.join(FILES.values())}")
    parser.add_argument("--tables", nargs="+", choices=list(FILES), help="only these")
    parser.add_argument("--methods", nargs="+", choices=[*EDGES, ORDINAL, *PEERS], help="only these")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    tables = options.tables or (QUICK_TABLES if options.quick else tuple(FILES))
    absent = [FILES[name] for name in tables if not (Path(options.data) / FILES[name]).exists()]
    if absent:
        raise SystemExit(f"--data {options.data}: has no {', '.join(absent)}; name the folder that has them")
    methods = options.methods or [
        *EDGES,
        ORDINAL,
        *(name for name, (module, _) in PEERS.items() if find_spec(module)),
    ]
    return [
        {"table": name, "k": k, "method": method, "seed": options.first_seed + seed, "data": options.data}
        for seed in report_seeds(options.seeds)
        for name in tables
        for k in ("right", "double")
        for method in methods
        if method != ORDINAL or name in LEVELS
    ]


def run(table: str, k: str, method: str, seed: int, data: str, settings: Row | None = None) -> Row:
    x, scales = read(table, Path(data), seed)
    n_factors = len(np.unique(scales))
    if k == "double":
        n_factors = min(2 * n_factors, x.shape[1] - 1)
    if method in PEERS:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # peers print, and the last line is ours
            with contextlib.redirect_stdout(nowhere):
                loading, seconds = PEERS[method][1](x.dropna().to_numpy(), n_factors, seed)
        factor = factor_of_items(np.abs(loading), scales)
        return {"items": items_on_scale(np.abs(loading), factor), "of": len(scales), "peer_cpu_s": seconds}
    given = {**(settings or {}), "likelihood": "ordinal"} if method == ORDINAL else settings
    edge = "practical" if method == ORDINAL else method
    answer = edges_with_defaults(x, n_factors, seed, edge, given)
    used = int(np.any(answer.fit.weights[answer.fit.best] != 0, axis=0).sum())
    seconds_of = {"chains_cpu_s": answer.chains_cpu_s, "fit_cpu_s": answer.fit_cpu_s}
    return {**figures(edges_of(answer.idata), scales), "factors": used, **seconds_of}


def read(table: str, folder: Path, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows by items, and the scale of each item."""
    from pyro_sparse.datasets import load_bfi

    file = folder / FILES[table]
    if table == "bfi":
        loaded = load_bfi(file)
        return loaded.x, loaded.features["scale"].to_numpy().astype(str)
    x = pd.read_csv(file)
    if table == "thurstone":
        correlations = x.set_index("rownames")
        x = pd.DataFrame(rows_with(correlations.to_numpy(), N_THURSTONE, seed), columns=correlations.columns)
    return x, np.repeat(THREE[table], 3)


def rows_with(correlations: Array, n: int, seed: int) -> Array:
    """Normal rows (n, item) whose sample correlations are exactly these, means 0 and variances 1."""
    z = np.random.default_rng([seed, 39]).normal(size=(n, len(correlations)))
    q = np.linalg.qr(z - z.mean(0))[0]
    return np.sqrt(n) * q @ np.linalg.cholesky(correlations).T


def figures(edges: Edges, scales: np.ndarray) -> Row:
    """Counts and agreement of one edge posterior, but for the seconds."""
    factor = factor_of_items(edges.loading, scales)
    main = main_edges(factor, edges.loading.shape[1])
    sure = edges.probability >= SURE
    return {
        "items": items_on_scale(edges.loading, factor),
        "of": len(scales),
        "main_present": int((sure & main).sum()),
        "main_verdict": int(((edges.verdict == "present") & main).sum()),
        "other_present": int((sure & ~main).sum()),
        "gap": float(np.nanmax(edges.gap)),
        "rhat": largest_rhat(edges.draws),
        "kept": len(edges.draws),
    }


def largest_rhat(draws: Array) -> float:
    """Largest split R-hat of the loadings (chain, draw, item, factor) that vary; NaN if none does."""
    from pyro_sparse.graphs._mixing import split_rhat

    flat = draws.reshape(*draws.shape[:2], -1)
    varies = np.ptp(flat, axis=(0, 1)) > 0
    return float(np.nanmax(split_rhat(flat[..., varies]))) if varies.any() else float("nan")


def varimax(x: Array, n_factors: int, seed: int) -> tuple[Array, float]:
    own = _peers.METHODS["fa_varimax"].fit(_peers.Table(_peers.zscored(x), n_factors), seed, False)
    return own.loading, own.fit_seconds


def mofapy2(x: Array, n_factors: int, seed: int) -> tuple[Array, float]:
    own = _peers.METHODS["mofapy2"].fit(_peers.Table(_peers.zscored(x), n_factors), seed, False)
    return own.loading, own.fit_seconds


def oblimin(x: Array, n_factors: int, seed: int) -> tuple[Array, float]:
    from factor_analyzer import factor_analyzer as package
    from sklearn.utils import check_array

    # factor_analyzer 0.5.1 calls an argument by the name that scikit-learn 1.6 gave it up.
    package.check_array = lambda x, force_all_finite=True, **o: check_array(
        x, ensure_all_finite=force_all_finite, **o
    )
    start = _peers.cpu()
    own = package.FactorAnalyzer(n_factors=n_factors, rotation="oblimin", method="ml").fit(x)
    return own.loadings_, _peers.cpu() - start


# Name: what has to be importable, and rows without holes, number of factors and seed to loadings and seconds.
PEERS: dict[str, tuple[str, Callable[[Array, int, int], tuple[Array, float]]]] = {
    "varimax": ("sklearn", varimax),
    "oblimin": ("factor_analyzer", oblimin),
    "mofapy2": ("mofapy2", mofapy2),
}


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{table: {cell: figures}}: the worst seed's counts, gaps and R-hats, medians of seconds, and all."""
    result: Row = {}
    for name, k, method in dict.fromkeys((row["table"], row["k"], row["method"]) for row in rows):
        own = [row for row in rows if (row["table"], row["k"], row["method"]) == (name, k, method)]
        cell = f"k_{k}" if method == "practical" else f"k_{k}_{method}"
        result.setdefault(name, {})[cell] = _over_seeds(own)
    return result


def _over_seeds(own: list[Row]) -> Row:
    worst: tuple[tuple[tuple[str, ...], Callable[[Any], Any]], ...] = (
        (LEAST, min),
        (LARGEST, max),
        (MEDIAN, lambda values: float(np.median(values))),
    )
    line: Row = {"of": own[0]["of"]}
    by_seed: Row = {"seed": [row["seed"] for row in own]}
    for names, over in worst:
        for key in (key for key in names if key in own[0]):
            by_seed[key] = [row[key] for row in own]
            line[key] = over([value for value in by_seed[key] if value is not None])  # null: no number
    return {**line, "by_seed": by_seed}


def table(rows: list[Row]) -> list[Row]:
    """One line per table, K and method."""
    lines = []
    for name, cells in collect(rows, argparse.Namespace()).items():
        for cell, line in cells.items():
            shown = {key: value for key, value in line.items() if key != "by_seed"}
            lines.append({"table": name, "cell": cell, "n": len(line["by_seed"]["seed"]), **shown})
    return lines
