"""Draw the paper's two figures from the records of benchmarks, and print the figures that the text gives.

    python paper/figures.py

`calibration.png`: how often edges exist, by the probability that they were given. `peers.png`: average
precision of edges beside other packages. Both read `benchmarks/records/` only, as RESULTS.md does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
matplotlib.rcParams |= {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
from matplotlib import pyplot as plt  # noqa: E402

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "benchmarks" / "records"
SETTINGS = {
    "linear_unpinned": "linear, no anchors",
    "linear_correlated": "linear, correlated factors",
    "bernoulli": "yes/no answers",
    "poisson": "counts",
    "mlp_g30": "nonlinear, 30 features",
    "mlp_g60": "nonlinear, 60 features",
}
METHODS = {  # rows of peers.jsonl, which docs/peers.md explains
    "ours": "pyro_sparse, MLP",
    "ours_linear": "pyro_sparse, linear",
    "fa_varimax": "factor analysis, varimax",
    "mofapy2": "mofapy2",
    "mofaflex_sns": "mofaflex, spike and slab",
    "muvi": "MuVI",
    "linear_scvi": "LinearSCVI",
}
TABLES = {"linear": "linear", "curved": "curved", "counts": "counts"}
N_BINS = 10


def rows(name: str) -> Iterator[dict[str, Any]]:
    """Rows of a record that were no quick runs."""
    with (RECORDS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        yield from (row for row in map(json.loads, lines) if not row.get("quick"))


def reliability(probability: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean probability and share of true edges, in bins of a tenth that hold at least thirty edges."""
    bins = np.minimum((probability * N_BINS).astype(int), N_BINS - 1)
    used = [b for b in range(N_BINS) if (bins == b).sum() >= 30]
    return tuple(np.array([values[bins == b].mean() for b in used]) for values in (probability, edge))


def draw_calibration() -> None:
    """One curve a setting, of the probabilities from Markov chains ("polish" is the former name of mcmc)."""
    pooled: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows("calibration"):
        if row["setting"] in SETTINGS and row["method"] == "polish":
            probability, edge = pooled.setdefault(row["setting"], ([], []))
            probability.extend(np.concatenate([np.ravel(p) for p in row["probability"]]))
            edge.extend(np.concatenate([np.ravel(e) for e in row["truth"]]))
    figure, panel = plt.subplots(figsize=(3.6, 3.3), layout="constrained")
    panel.plot([0, 1], [0, 1], color="0.7", lw=1)
    for setting, label in SETTINGS.items():
        x, y = reliability(*map(np.asarray, pooled[setting]))
        panel.plot(x, y, marker="o", ms=3, lw=1, label=label)
    panel.set(xlabel="probability of the edge", ylabel="share that exists", xlim=(0, 1), ylim=(0, 1))
    panel.legend(frameon=False, fontsize=7)
    figure.savefig(HERE / "calibration.png", dpi=220, metadata={"Software": None})


def average_precision(results: list[dict[str, Any]]) -> list[float]:
    """By probabilities or by loadings, whichever serves the method better; one number a seed."""
    by_loadings = [row["average_precision"] for row in results]
    by_probabilities = [
        row["average_precision_p"] for row in results if row["average_precision_p"] is not None
    ]
    return max((by_loadings, by_probabilities), key=lambda values: np.mean(values) if values else 0.0)


def draw_peers() -> None:
    """A dot a seed, a bar for their mean. Of mofapy2's two rows for counts, the better one: log(1 + x)."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows("peers"):
        found.setdefault((row["data"], row["method"]), []).append(row)
    found["counts", "mofapy2"] = found["counts", "mofapy2_log"]
    figure, panels = plt.subplots(1, 3, figsize=(6.3, 2.2), sharey=True, layout="constrained")
    names = list(METHODS)
    for panel, (table, title) in zip(panels, TABLES.items(), strict=True):
        for place, method in enumerate(names):
            values = average_precision(found.get((table, method), []))
            panel.plot(
                values,
                [place] * len(values),
                "o",
                ms=3,
                color="C0" if method.startswith("ours") else "0.5",
                alpha=0.7,
            )
            if values:
                panel.plot(np.mean(values), place, "|", ms=12, color="black")
                print(f"{table:8s}{method:14s}{len(values)} seeds, average precision {np.mean(values):.3f}")
        panel.set(title=title, xlim=(0, 1.03), xlabel="average precision")
        panel.set_yticks(range(len(names)), METHODS.values())
    panels[0].invert_yaxis()
    figure.savefig(HERE / "peers.png", dpi=220, metadata={"Software": None})


if __name__ == "__main__":
    draw_calibration()
    draw_peers()
