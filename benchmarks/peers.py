"""peers: sparse factors found by other packages and by ours, same tables, each at its documented defaults.

Beside ours mofapy2, MuVI, mofaflex, scikit-learn's FactorAnalysis and scvi-tools' LinearSCVI (the extra
"peers"; one that is not installed is left out). Tables: `linear`, sparse loadings and normal noise, a third
to a half of a feature's variance; `curved`, `datasets.anchored`; `counts`, negative binomial with sparse
log-linear rates. All are told the number of factors, none an anchor. Factors are matched to the true ones by
the Spearman correlation of the rows' factors (`mcc`), and with them loadings and probabilities.

`average_precision` ranks edges by the size of the standardised loading, `average_precision_p` by the
probability; `f1_best` is at the threshold of a loading that is best in hindsight, which nobody has. Brier,
ECE (beside what a perfect forecast would show), and false edges and power where 10 % false ones were asked
for: of methods that give probabilities, over all tables at once. CPU seconds are of the fit and of the
probabilities, one thread, packages already imported, compiled code cached.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from zlib import crc32

import numpy as np

from benchmarks._common import FDR, Row, report_seeds
from benchmarks._peers import METHODS, Array, Found, Table, available, zscored

SEEDS, QUICK_SEEDS = 5, 1
DATA = ("linear", "curved", "counts")
SIZES = {"linear": (200, 30, 4), "curved": (300, 30, 4), "counts": (300, 40, 4)}  # rows, features, factors
QUICK_SIZE = (100, 12, 2)
SHARE = 0.25  # of the edges there could be
FIGURES = ("mcc", "average_precision", "average_precision_p", "f1_best")
SURE = ("brier", "ece", "ece_null", "fdr10", "power")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="only these")
    parser.add_argument("--data", nargs="+", choices=DATA, help="only these tables")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    which = options.data or (DATA[:1] if options.quick else DATA)
    names = available(options.methods, METHODS)
    return [
        {"data": data, "method": name, "seed": options.first_seed + seed, "quick": options.quick}
        for seed in report_seeds(options.seeds)
        for data in which
        for name in names
        if data == "counts" or not METHODS[name].needs_counts
    ]


def simulated(data: str, seed: int, quick: bool = False) -> tuple[Table, Array, Array]:
    """A table, its true factors (row, factor) and its edges (feature, factor)."""
    rows, features, factors = QUICK_SIZE if quick else SIZES[data]
    if data == "curved":
        from pyro_sparse.datasets import anchored

        known = anchored(rows, features, factors, max_parents=min(3, factors), seed=seed)
        return Table(zscored(known.x), factors), known.z, known.support == 1
    rng = np.random.default_rng([seed, crc32(data.encode())])
    z = rng.normal(size=(rows, factors))
    edge = rng.random((features, factors)) < SHARE
    sign = rng.choice([-1, 1], edge.shape)
    if data == "counts":
        log_rate = z @ (edge * sign * rng.uniform(0.3, 0.9, edge.shape)).T + rng.uniform(0, 2.5, features)
        extra = rng.gamma(5, 1 / 5, log_rate.shape)  # negative binomial: theta = 5
        x = rng.poisson(np.exp(log_rate) * extra).astype(float)
        return Table(_not_constant(x), factors, counts=True), z, edge
    weight = edge * sign * rng.uniform(0.5, 1.5, edge.shape)
    share = rng.uniform(1 / 3, 1 / 2, features)
    signal = (weight**2).sum(1)
    noise = np.where(signal > 0, signal * share / (1 - share), 1.0)
    return Table(zscored(z @ weight.T + np.sqrt(noise) * rng.normal(size=(rows, features))), factors), z, edge


def _not_constant(x: Array) -> Array:
    """A column without one count is refused by most: it gets one."""
    x[0, np.ptp(x, axis=0) == 0] += 1
    return x


def run(data: str, method: str, seed: int, quick: bool = False) -> Row:
    table, z, edge = simulated(data, seed, quick)
    own = METHODS[method]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # peers print, and the last line is ours
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            found = own.fit(table, seed, quick)
    return {**score(found, z, edge), "package": own.package, "version": own.version}


def score(found: Found, z: Array, edge: Array) -> Row:
    """Figures of one fit: true factors (row, factor), true edges (feature, factor)."""
    from sklearn.metrics import average_precision_score, precision_recall_curve

    from pyro_sparse.metrics import mcc

    matched = mcc(z, found.factors, "spearman")

    def like_truth(values: Array) -> Array:
        return np.where(matched.permutation >= 0, values[:, matched.permutation], 0.0)

    truth, size = edge.ravel(), np.abs(like_truth(found.loading)).ravel()
    precision, recall, _ = precision_recall_curve(truth, size)
    row = {
        "mcc": matched.value,
        "average_precision": float(average_precision_score(truth, size)),
        "average_precision_p": float("nan"),
        "f1_best": float(np.max(2 * precision * recall / np.maximum(precision + recall, 1e-12))),
        "fit_seconds": found.fit_seconds,
        "edge_seconds": found.edge_seconds,
        "edge": edge.astype(int).tolist(),
        "probability": None,
    }
    if found.probability is not None:
        p = like_truth(np.asarray(found.probability, dtype=float)).clip(0, 1)
        row["average_precision_p"] = float(average_precision_score(truth, p.ravel()))
        row["probability"] = p.round(4).tolist()
    return row


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{data: {method: figures}}, means over tables, and which versions the peers had."""
    result: Row = {}
    for line in table(rows):
        cell = {name: value for name, value in line.items() if name not in ("data", "method")}
        result.setdefault(line["data"], {})[line["method"]] = cell
    result["peers"] = {row["package"]: row["version"] for row in rows}
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per data and method."""
    from pyro_sparse.calibrate import reliability

    lines: list[Row] = []
    for data, method in dict.fromkeys((row["data"], row["method"]) for row in rows):
        own = [row for row in rows if (row["data"], row["method"]) == (data, method)]
        # A record has null where a figure is not a number.
        seen = {name: np.array([row[name] for row in own], dtype=float) for name in FIGURES}
        line: Row = {"data": data, "method": method, "n": len(own)}
        line |= {name: float(np.mean(values)) for name, values in seen.items()}
        line |= dict.fromkeys(SURE, float("nan"))
        if all(row["probability"] is not None for row in own):
            p, edge = (np.array([row[name] for row in own]) for name in ("probability", "edge"))
            sure = reliability(p, edge, group=np.arange(len(own)), fdr=FDR)
            line |= {name: getattr(sure, name) for name in ("brier", "ece", "ece_null")}
            line |= {"fdr10": sure.realised.fdr, "power": sure.realised.power}
        seconds = [np.mean([row[name] for row in own]) for name in ("fit_seconds", "edge_seconds")]
        lines.append({**line, "edge_seconds": float(seconds[1]), "cpu_seconds": float(sum(seconds))})
    return lines
