"""transition: which latent drives which, on the sets of the mechanism-sparsity paper, without an edge count.

Ten latents, twenty features, 200,000 training sequences of two frames (one where only actions act); a decoder
of its own for every seed, or with --published-decoder one for all. MCC, R and R_con are of test frames (R
and R_con regress on validation frames); SHD is under MCC's permutation, and under the best one. Every run is
two fits (dense, axes, polish, axes, edges); `flagged` says that the fit itself warns (a graph with a narrow
gap, or restarts that disagree), `missed` that MCC, R_con or SHD fell short of what is asked. --baselines adds
the other methods (MCC, R and R_con; they learn no graph) on the block sets. --off-model: other mechanisms
instead (`_transition_off_model.py`).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks import _transition_off_model as off_model
from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 5, 1
RESTARTS = 2
BASELINES = ("ivae", "beta_tcvae", "slow_vae", "pcl", "supervised", "random", "mask_off")
N_TRAIN, N_OTHER = 200_000, 10_000
PUBLISHED_DECODER = 0

# name: (arguments of transition_data, least MCC, least R_con, most SHD)
SETS: dict[str, tuple[dict[str, Any], float, float, float]] = {
    "ActionDiag": ({}, 0.996, 0.996, 0),
    "ActionNonDiag": ({}, 0.996, 0.996, 0),
    "TimeDiag": ({}, 0.975, 0.975, 0),
    "TimeNonDiag": ({}, 0.98, 0.98, 2),
    "ActionBlockDiag": ({}, 0, 0.99, 1),
    "ActionBlockNonDiag": ({}, 0, 0.99, 1),
    "TimeBlockDiag": ({}, 0, 0.99, 1),
    "TimeBlockNonDiag": ({}, 0, 0.99, 1),
    "TimeRandom(0.2)": ({}, 0.97, 0.97, 1),
    "TimeRandom(0.4)": ({}, 0.97, 0.97, 1),
    "TimeRandom(0.6)": ({}, 0.97, 0.97, 1),
    "ActionRandom(0.4)": ({}, 0.97, 0.97, 2),
    "ActionRandom(0.6)": ({}, 0.95, 0.95, 2),
    "ActionNonDiag k=2": ({"name": "ActionNonDiag", "k": 2}, 0.985, 0, np.inf),
    "TimeNonDiag k=2": ({"name": "TimeNonDiag", "k": 2}, 0.90, 0, np.inf),
    "TimeNonDiag leaky_relu": ({"name": "TimeNonDiag", "mechanism": "leaky_relu"}, 0, 0, np.inf),
    "TimeNonDiag gp": ({"name": "TimeNonDiag", "mechanism": "gp"}, 0, 0, np.inf),
    "TimeRandom(0.9)": ({}, 0, 0, np.inf),
    "TimeNonDiag no_suff": ({"name": "TimeNonDiag", "sufficient": False}, 0, 0, np.inf),
    "ActionTimeCross": ({}, 0, 0, np.inf),
}
BLOCKS = tuple(name for name in SETS if "Block" in name)
QUICK = ("ActionNonDiag", "TimeDiag", "ActionTimeCross")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset", action="append", choices=list(SETS), help="only this one (repeatable)")
    parser.add_argument("--baselines", action="store_true", help="also the baselines, on the block sets")
    parser.add_argument("--off-model", action="store_true", help="mechanisms unlike those of the paper")
    parser.add_argument("--published-decoder", action="store_true", help="one mixing for all seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    names = options.dataset or list(QUICK if options.quick else SETS)
    jobs: list[Row] = [{"dataset": name} for name in names]
    if options.off_model:
        families = list(off_model.FAMILIES)[: 2 if options.quick else None]
        jobs = [{"dataset": "off_model", "family": family} for family in families]
    if options.baselines:
        jobs += [{"dataset": name, "method": m} for name in BLOCKS for m in BASELINES if suits(m, name)]
    decoder = {"decoder_seed": PUBLISHED_DECODER} if options.published_decoder else {}
    return [
        {**job, "seed": options.first_seed + seed, "quick": options.quick, **decoder}
        for seed in report_seeds(options.seeds)
        for job in jobs
    ]


def suits(method: str, dataset: str) -> bool:
    """Whether a baseline has what it needs: SlowVAE and PCL compare a frame with the one before."""
    return "Time" in dataset or method not in ("slow_vae", "pcl")


def run(
    dataset: str, seed: int, quick: bool = False, decoder_seed: int | None = None, method: str = "sparse",
    family: str | None = None,
) -> Row:  # fmt: skip
    if family is not None:
        return off_model.run(family, seed, quick)
    if method == "sparse":
        return score(*fitted(dataset, seed, quick, decoder_seed))
    from pyro_sparse.rivals import SequenceBaseline

    data, _ = simulated(dataset, seed, quick, decoder_seed)
    x, z, actions = data.part("train")
    short = {"steps": 300} if quick else {}
    baseline = SequenceBaseline(method, data.z.shape[-1], seed=seed, **short)
    return score_latents(baseline.fit(x, actions, z if method == "supervised" else None), data)


def simulated(dataset: str, seed: int, quick: bool, decoder_seed: int | None = None) -> tuple[Any, Row]:
    """A set, and the settings its fit takes."""
    import pyro_sparse as ps

    made = {"name": dataset, **SETS[dataset][0]}
    size = {"n": N_TRAIN, "n_validation": N_OTHER, "n_test": N_OTHER}
    settings: Row = {"restarts": RESTARTS}
    if quick:
        d_z = 6 if "Block" in dataset or "Cross" in dataset else 5  # blocks are of two latents
        size = {"n": 20_000, "n_validation": 2000, "n_test": 2000, "d_z": d_z, "d_x": 2 * d_z}
        settings = {"restarts": 1, "steps": 1400, "polish_steps": 300, "edge_steps": 100, "batch_size": 256}
    return ps.datasets.transition_data(**made, **size, seed=seed, decoder_seed=decoder_seed), settings


def fitted(dataset: str, seed: int, quick: bool, decoder_seed: int | None = None) -> tuple[Any, Any]:
    """`ps.fit` of one set, and the set."""
    import pyro_sparse as ps

    data, settings = simulated(dataset, seed, quick, decoder_seed)
    x, _, actions = data.part("train")
    model = ps.models.LatentTransition(
        x.shape[-1],
        data.z.shape[-1],
        n_actions=0 if actions is None else actions.shape[-1],
        lags=0 if data.graph_z is None else 1,
    )
    return ps.fit(model, x, actions=actions, seed=seed, progress=False, **settings), data


def score(fit: Any, data: Any) -> Row:
    """Figures of one fit: its latents on test frames, its graph, and what it says of itself."""
    from pyro_sparse.metrics import mechanism_shd

    figures = score_latents(fit, data)
    order = figures.pop("order")
    time = None if fit.graph_time is None else fit.graph_time[fit.best].max(0)
    action = None if fit.graph_action is None else fit.graph_action[fit.best]
    shd = mechanism_shd(data.graph_a, action, data.graph_z, time, permutation=order)
    others = fit.agreement.drop(index=fit.best)
    return {
        **figures,
        "shd": int(shd.value),
        "shd_best": int(shd.best),
        "edges": sum(int(g.sum()) for g in (time, action) if g is not None),
        "true_edges": sum(int(g.sum()) for g in (data.graph_z, data.graph_a) if g is not None),
        "gap": float(fit.gap[fit.best]),
        "recovered": float(others["recovered"].max()) if len(others) else float("nan"),
        "flagged": bool(fit.unsure),
    }


def score_latents(fit: Any, data: Any) -> Row:
    """MCC, R and R_con on test frames, and the order of the latents that MCC took."""
    from pyro_sparse.graphs import consistency
    from pyro_sparse.metrics import mcc, r_con, r_score

    frames = []
    for split in ("validation", "test"):
        x, z, actions = data.part(split)
        found = fit.transform(x, actions=actions)
        frames += [z.reshape(-1, z.shape[-1]), found.reshape(-1, z.shape[-1])]
    z_fit, found_fit, z, found = frames
    match = mcc(z, found)
    allowed = consistency(data.graph_a, data.graph_z)
    return {
        "mcc": match.value,
        "r": r_score(z_fit, found_fit, z, found),
        "r_con": r_con(z_fit, found_fit, allowed, match.permutation, z, found),
        "order": [int(k) for k in match.permutation],
    }


def missed(dataset: str, row: Row) -> bool:
    """Whether a run fell short of what is asked of its set."""
    _, least_mcc, least_r_con, most_shd = SETS[dataset]
    return row["mcc"] < least_mcc or row["r_con"] < least_r_con or row["shd_best"] > most_shd


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    if any("family" in row for row in rows):
        return {"off_model": off_model.figures(rows)}
    figures: Row = {}
    others = [row for row in rows if "method" in row]
    for name, method in dict.fromkeys((row["dataset"], row["method"]) for row in others):
        own = [row for row in others if (row["dataset"], row["method"]) == (name, method)]
        keys = ("mcc", "r_con", "r", "cpu_s")
        figures.setdefault("baselines", {}).setdefault(name, {})[method] = {
            k: [row[k] for row in own] for k in keys
        }
    rows = [row for row in rows if "method" not in row]
    for name in dict.fromkeys(row["dataset"] for row in rows):
        own = [row for row in rows if row["dataset"] == name]
        keys = ("mcc", "r_con", "r", "shd", "shd_best", "edges", "true_edges", "gap", "recovered", "flagged")
        figures[name] = {key: [row[key] for row in own] for key in keys}
        figures[name]["cpu_seconds"] = [row["cpu_s"] for row in own]
        misses = [missed(name, row) for row in own]
        figures[name]["missed"] = misses
        figures[name]["missed_silently"] = sum(
            miss and not row["flagged"] for miss, row in zip(misses, own, strict=True)
        )
    return figures


def table(rows: list[Row]) -> list[Row]:
    """One line per set: medians, least and most, misses and how many of them the fit flagged."""
    if any("family" in row for row in rows):
        return [{name: value for name, value in row.items() if name != "task"} for row in rows]
    lines: list[Row] = []
    others = [row for row in rows if "method" in row]
    rows = [row for row in rows if "method" not in row]
    for name in dict.fromkeys(row["dataset"] for row in rows):
        own = [row for row in rows if row["dataset"] == name]
        misses = [row for row in own if missed(name, row)]
        lines.append(
            {
                "dataset": name,
                "n": len(own),
                "mcc": float(np.mean([row["mcc"] for row in own])),
                "mcc_median": float(np.median([row["mcc"] for row in own])),
                "r_con": float(np.mean([row["r_con"] for row in own])),
                "r": float(np.mean([row["r"] for row in own])),
                "shd": " ".join(str(row["shd"]) for row in own),
                "missed": len(misses),
                "flagged": sum(row["flagged"] for row in misses),
                "false alarms": sum(row["flagged"] for row in own) - sum(row["flagged"] for row in misses),
                "cpu_s": float(np.median([row["cpu_s"] for row in own])),
            }
        )
    for name, method in dict.fromkeys((row["dataset"], row["method"]) for row in others):
        own = [row for row in others if (row["dataset"], row["method"]) == (name, method)]
        means = {key: float(np.mean([row[key] for row in own])) for key in ("mcc", "r_con", "r", "cpu_s")}
        lines.append({"dataset": f"{name}: {method}", "n": len(own), **means})
    return lines
