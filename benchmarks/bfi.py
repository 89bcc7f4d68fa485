"""bfi: 25 personality items, 2,800 people, answers missing; does each item land on its scale?

K = 5, every row kept. An item is correct when the factor with its largest standardised effect is the one
matched to the scale it was written for (Hungarian). Then 10 % of the answers are hidden and filled in, error
in units of each item's standard deviation: by the sparse decoder (`Fit.impute`; `masked_mse_factors` is what
its factors alone say, `Fit.predict`), by factor analysis fitted by EM to the same holes, and by an unsparse
VAE. `masked_mse_fa_residuals` gives factor analysis the same help from residuals that `Fit.impute` uses.
Published code: 5 to 11 items correct, no edge at all.

With 2,800 answers every tenth of a loading is significant; the question here is which loadings matter. So the
spike is given a width: lambda0 = 10 (the value of the paper's scripts) leaves weights below about .4 of an
item's largest in the spike, small but not zero, where they help to predict and are not called edges. Items
with six answers are all but straight in the trait: curves are held back by a stronger weight decay.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks._common import Row, report_seeds, selected_edges, sparse_fit

SEEDS, QUICK_SEEDS = 10, 1
SETTINGS: Row = {"restarts": 3, "lasso_weight": 5.0, "weight_decay": 2.0}
SPIKE_RATE = 10.0
N_FACTORS, HIDDEN_SHARE = 5, 0.1
DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "bfi.csv"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", default=str(DEFAULT) if DEFAULT.exists() else None, help="a local bfi.csv")


def tasks(options: argparse.Namespace) -> list[Row]:
    parts = ("items", "masked", "masked_vae")
    return [{"part": p, "seed": s, "path": options.path} for s in report_seeds(options.seeds) for p in parts]


def run(part: str, seed: int, path: str | None, settings: Row | None = None) -> Row:
    from pyro_sparse.datasets import load_bfi

    table = load_bfi(path)
    x, scales = table.x.to_numpy(), table.features["scale"].to_numpy()
    if part == "items":
        fit = decoder_fit(x, seed, settings)
        edges = selected_edges(fit)
        return {
            "items_correct": items_correct(fit.effects[fit.best], scales),
            "edges_per_item": float(edges.sum(1).mean()),
            "empty_items": int((~edges.any(1)).sum()),
        }
    if part == "masked":
        from benchmarks._missing_fa import MissingFactorAnalysis

        hidden = hide(x, seed)
        seen = np.where(hidden, np.nan, x)
        fit = decoder_fit(seen, seed, settings)
        analysis = MissingFactorAnalysis(N_FACTORS).fit(seen)
        filled = {
            "masked_mse": fit.impute(seen),
            "masked_mse_factors": fit.predict(seen),
            "masked_mse_fa": analysis.predict(seen),
            "masked_mse_fa_residuals": analysis.impute(seen),
        }
        return {name: error(values, x, hidden) for name, values in filled.items()}
    return {"masked_mse_vae": masked_mse(lambda seen: vae_fit(seen, seed), x, seed)}


def decoder_fit(x: np.ndarray, seed: int, settings: Row | None = None):
    """The sparse decoder with the settings of this benchmark."""
    from pyro_sparse.priors import SpikeSlabLasso

    prior = SpikeSlabLasso(lambda0=SPIKE_RATE)
    return sparse_fit(x, N_FACTORS, seed, **{"prior": prior, **SETTINGS, **(settings or {})})


def vae_fit(x: np.ndarray, seed: int):
    """The unsparse VAE baseline, through the same front, with as many restarts."""
    import pyro_sparse as ps
    from pyro_sparse.rivals import VAE

    return ps.fit(
        VAE(n_features=x.shape[1], n_factors=N_FACTORS),
        x,
        seed=seed,
        restarts=SETTINGS["restarts"],
        progress=False,
    )


def items_correct(effects: np.ndarray, scales: np.ndarray) -> int:
    """Items whose strongest factor is the one matched to their scale, at the best matching."""
    strongest = np.abs(effects).argmax(1)
    strongest = np.where(np.abs(effects).max(1) > 0, strongest, -1)
    names = np.unique(scales)
    count = [[np.sum((strongest == k) & (scales == s)) for s in names] for k in range(effects.shape[1])]
    rows, columns = linear_sum_assignment(-np.array(count))
    return int(np.array(count)[rows, columns].sum())


def hide(x: np.ndarray, seed: int, share: float = HIDDEN_SHARE) -> np.ndarray:
    """Which observed cells to hide: bool, shape of x; a random share of them, no row left empty."""
    observed = ~np.isnan(x)
    hidden = observed & (np.random.default_rng([seed, 1]).random(x.shape) < share)
    hidden[~(observed & ~hidden).any(1)] = False
    return hidden


def error(filled: np.ndarray, x: np.ndarray, hidden: np.ndarray) -> float:
    """Mean squared error in the hidden cells, in standard deviations of the cells left."""
    from pyro_sparse.metrics import heldout_mse

    scale = np.nanstd(np.where(hidden, np.nan, x), axis=0)
    return heldout_mse(x / scale, filled / scale, hidden)


def masked_mse(fitted, x: np.ndarray, seed: int) -> float:
    """`error` of ``fitted(x with holes).predict``."""
    hidden = hide(x, seed)
    seen = np.where(hidden, np.nan, x)
    return error(fitted(seen).predict(seen), x, hidden)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    keys = (
        "items_correct", "edges_per_item", "masked_mse", "masked_mse_factors", "masked_mse_fa",
        "masked_mse_fa_residuals", "masked_mse_vae",
    )  # fmt: skip
    return {key: [row[key] for row in rows if key in row] for key in keys}


def table(rows: list[Row]) -> list[Row]:
    """One line per seed."""
    merged: dict[int, Row] = {}
    for row in rows:
        line = merged.setdefault(row["seed"], {"cpu_s": 0.0})
        cpu = line["cpu_s"] + row["cpu_s"]
        line.update({k: v for k, v in row.items() if k not in ("part", "path", "wall_s")}, cpu_s=cpu)
    return list(merged.values())
