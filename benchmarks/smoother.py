"""smoother: latents of noisy frames, and of missing ones, by frame and with a guide that sees the sequence.

Three latents that drive each other (TimeNonDiag), six features, 1,500 sequences of eight frames, transition
noise .2. "noisy": observation noise of half a feature's deviation. "missing": noise of a tenth, and 30 % of
the frames are missing. MCC is of all test frames, and of seen and missing ones apart; ELBO in nats a held-out
sequence; one restart.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 5, 1
CASES = {"noisy": (0.5, 0.0), "missing": (0.1, 0.3)}  # observation noise, share of frames missing
STEPS = {"steps": 1000, "polish_steps": 200, "edge_steps": 100}
SIZES = {"n": 1500, "n_validation": 2, "n_test": 500, "d_z": 3, "d_x": 6, "T": 8, "noise": 0.2}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {"case": case, "smoother": smoother, "seed": options.first_seed + seed, "quick": options.quick}
        for seed in report_seeds(options.seeds)
        for case in CASES
        for smoother in (False, True)
    ]


def run(case: str, smoother: bool, seed: int, quick: bool = False) -> Row:
    import pyro_sparse as ps
    from pyro_sparse.metrics import mcc, mechanism_shd

    noise, share = CASES[case]
    data = ps.datasets.transition_data("TimeNonDiag", **SIZES, observation_noise=noise, seed=seed)
    rng = np.random.default_rng(seed)
    x = with_gaps(data.part("train")[0], share, rng)
    model = ps.models.LatentTransition(
        SIZES["d_x"], SIZES["d_z"], hidden=64, units=64, gated_units=16, smoother=smoother
    )
    steps = {name: value // 10 if quick else value for name, value in STEPS.items()}
    fit = ps.fit(model, x, seed=seed, restarts=1, batch_size=128, progress=False, **steps)
    x, z, _ = data.part("test")
    x = with_gaps(x, share, rng)
    found, lost = fit.transform(x), np.isnan(x).all(-1)
    parts = {"mcc": np.ones_like(lost), "mcc_seen": ~lost, **({"mcc_missing": lost} if share else {})}
    matches = {name: mcc(z[own], found[own]) for name, own in parts.items()}
    figures: dict[str, Any] = {name: match.value for name, match in matches.items()}
    time, order = fit.graph_time[0].max(0), matches["mcc"].permutation
    shd = mechanism_shd(true_z=data.graph_z, estimated_z=time, permutation=order)
    return {**figures, "elbo": float(fit.heldout_elbo[0]), "gap": float(fit.gap[0]), "shd": int(shd.best)}


def with_gaps(x: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A copy with this share of the frames missing, though never all of a sequence."""
    x = x.copy()
    if share:
        gone = rng.random(x.shape[:2]) < share
        gone[gone.all(1)] = False
        x[gone] = np.nan
    return x


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Figures of each case and guide, seed by seed."""
    figures: Row = {}
    for row in rows:
        own = figures.setdefault(row["case"], {}).setdefault("sequence" if row["smoother"] else "frame", {})
        for key, value in row.items():
            if key.startswith("mcc") or key in ("elbo", "gap", "shd", "cpu_s"):
                own.setdefault(key, []).append(value)
    return figures
