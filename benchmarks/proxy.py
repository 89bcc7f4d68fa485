"""proxy: which latents many sparse tasks identify, with a linear mixing in place of images.

Latents of 3D Shapes (480,000 cells), six observed dimensions, tasks of 50 samples, noise .1. `sparse` is
`ps.fit` as it comes (ridge, axes of the tasks' weights, blocks by independence, spike-and-slab lasso);
`axes` the same without the help of independence; `ridge` the representation alone, `ridge_ica` its
independent components; `lasso` the published bilevel objective from a random start. MCC of 5,000 cells drawn
uniformly.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 10, 1
TASKS = 2000
SETTINGS: dict[str, tuple[str, float, float]] = {  # kind, rho, least median MCC asked
    "bernoulli": ("bernoulli", 0.0, 0.99),
    "bernoulli rho=.9": ("bernoulli", 0.9, 0.99),
    "laplace": ("laplace", 0.0, 0.99),
    "laplace rho=.9": ("laplace", 0.9, 0.0),
    "block2": ("block2", 0.0, 0.95),
    "block2 rho=.9": ("block2", 0.9, 0.0),
    "block6": ("block6", 0.0, 0.0),
}
METHODS = ("sparse", "axes", "ridge", "ridge_ica")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), help="one (repeatable)")
    parser.add_argument("--lasso", action="store_true", help="also the published objective (slow)")
    parser.add_argument("--first-seed", type=int, default=0, help="begin here (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    names = options.setting or list(SETTINGS)[: 2 if options.quick else None]
    return [
        {"setting": name, "seed": options.first_seed + seed, "quick": options.quick, "lasso": options.lasso}
        for seed in report_seeds(options.seeds)
        for name in names
    ]


def run(setting: str, seed: int, quick: bool, lasso: bool) -> Row:
    from sklearn.decomposition import FastICA

    import pyro_sparse as ps
    from pyro_sparse.inference.multitask.task_axes import task_axes
    from pyro_sparse.metrics import mcc, r_score

    kind, rho, _ = SETTINGS[setting]
    stream = ps.datasets.proxy_data(kind, rho, n_tasks=300 if quick else TASKS, seed=seed)
    batch = stream.batch(0)
    x, z = stream.test(5000)
    short: Row = {"steps": 200, "sparse_steps": 50} if quick else {}

    def fitted(inner: str, **settings: Any) -> Any:
        model = ps.models.MultiTaskRegression(batch.x.shape[-1], z.shape[-1])
        return ps.fit(
            model, batch.x, batch.y, inner=inner, seed=seed, progress=False, **{**short, **settings}
        )

    fit = fitted("ssl")
    found = fit.transform(x)
    ridge = fitted("ridge", restarts=1)
    dense, training = ridge.transform(x), ridge.transform().reshape(-1, z.shape[-1])
    axes = task_axes(ridge.model_weights[0], seed=seed)
    ica = FastICA(z.shape[-1], whiten="unit-variance", random_state=0, max_iter=1000).fit(training[:20_000])
    half = len(z) // 2
    figures: Row = {
        "sparse": mcc(z, found).value,
        "axes": mcc(z, dense @ axes.map.T).value,
        "ridge": mcc(z, dense).value,
        "ridge_ica": mcc(z, ica.transform(dense)).value,
        "r": r_score(z[:half], found[:half], z[half:], found[half:]),
        "agree": float(fit.agreement.drop(index=fit.best)["least"].max()),
        "flagged": bool(fit.unsure),
        "blocks": len(np.unique(axes.block)),
    }
    if lasso:
        steps = 200 if quick else 5000
        figures["lasso"] = mcc(z, fitted("lasso", axes=False, steps=steps, batch_size=8).transform(x)).value
    return figures


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    return {
        name: {
            **{m: [row[m] for row in own] for m in (*METHODS, "lasso") if m in own[0]},
            "mcc": [row["sparse"] for row in own],
            "median": float(np.median([row["sparse"] for row in own])),
            "asked": SETTINGS[name][2],
            "blocks": [row["blocks"] for row in own],
            "flagged": [row["flagged"] for row in own],
        }
        for name in dict.fromkeys(row["setting"] for row in rows)
        for own in [[row for row in rows if row["setting"] == name]]
    }


def table(rows: list[Row]) -> list[Row]:
    """One line per setting: medians, and the least of ours."""
    lines: list[Row] = []
    for name, figures in collect(rows, argparse.Namespace()).items():
        methods = [m for m in (*METHODS, "lasso") if m in figures]
        lines.append(
            {
                "setting": name,
                "n": len(figures["mcc"]),
                "asked": figures["asked"],
                **{m: float(np.median(figures[m])) for m in methods},
                "least": min(figures["mcc"]),
                "blocks": " ".join(map(str, figures["blocks"])),
                "flagged": sum(figures["flagged"]),
            }
        )
    return lines
