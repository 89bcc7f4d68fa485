"""transition_peer: MCC against CPU time of a latent transition, ours beside the published training.

Small sets of the mechanism-sparsity paper (5 latents, 10 features, 20,000 training sequences), one thread,
the same arrays for all. Ours: a fit by `ps.fit` for each budget of steps, one restart, nothing said of the
graph; its CPU time is all of the fit. --peer PATH takes a checkout of
slachapelle/disentanglement_via_mechanism_sparsity, whose networks, masks and bound are imported; its
constrained training (`train.py` there does not run as it stands) is written out below from what it does, and
is told the true number of edges. "published" has the published settings; "reduced" small networks and faster
masks, which let the same method work in minutes. Both stop at --limit CPU minutes, MCC being
taken on the way and not counted.

`ratio_to_equal_mcc` is their CPU time until they reach the best MCC of ours, over our CPU time for it; where
they had not reached it by their limit that is a lower bound, and says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from benchmarks._common import Row, report_seeds
from benchmarks.transition import simulated

SEEDS, QUICK_SEEDS = 1, 1
DATASETS = ("ActionNonDiag", "TimeDiag")
BUDGETS, QUICK_BUDGETS = (175, 350, 700, 1400), (350, 1400)
LIMIT, QUICK_LIMIT = 30.0, 0.2  # CPU minutes
GRID = 30  # looks at MCC in a run of theirs, evenly in the logarithm of CPU time
Curve = list[tuple[float, float]]


class Settings(NamedTuple):
    """What a training of theirs is given."""

    layers: int  # of encoder and decoder
    hidden: int
    transition_layers: int
    transition_hidden: int
    batch_size: int
    rate: float
    mask_rate: float
    dual_rate: float
    log_variance: float  # of the decoder, where it begins
    schedule: int  # iterations until the bound on the edges is down at its end


PEERS = {
    "published": Settings(6, 512, 5, 512, 1024, 5e-4, 5e-4, 5e-4, -10.0, 150_000),
    "reduced": Settings(3, 128, 3, 64, 256, 5e-4, 1e-2, 1e-3, -4.6, 8_000),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peer", default="", help="a checkout of the published code")
    parser.add_argument(
        "--dataset", action="append", choices=[*DATASETS, "TimeNonDiag"], help="only this one"
    )
    parser.add_argument("--settings", action="append", choices=list(PEERS), help="only these of theirs")
    parser.add_argument("--limit", type=float, help=f"CPU minutes of a run of theirs (default {LIMIT:g})")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--picture", type=Path, help="draw the curves here")


def tasks(options: argparse.Namespace) -> list[Row]:
    limit = options.limit or (QUICK_LIMIT if options.quick else LIMIT)
    theirs = (options.settings or list(PEERS)) if options.peer else []
    rows: list[Row] = []
    for seed in report_seeds(options.seeds):
        for dataset in options.dataset or DATASETS:
            which = {"dataset": dataset, "seed": options.first_seed + seed}
            budgets = QUICK_BUDGETS if options.quick else BUDGETS
            rows += [{**which, "side": "ours", "steps": steps} for steps in budgets]
            rows += [{**which, "side": side, "peer": options.peer, "limit": limit} for side in theirs]
    return rows


def run(
    dataset: str, seed: int, side: str, steps: int = 0, peer: str = "", limit: float = LIMIT
) -> dict[str, Any]:
    data, settings = simulated(dataset, seed, quick=True)
    if side == "ours":
        return ours(data, {**settings, "steps": steps, "polish_steps": 3 * steps // 14}, seed)
    return theirs(data, PEERS[side], peer, 60 * limit, seed)


def ours(data: Any, settings: Row, seed: int) -> Row:
    """MCC of one fit and the CPU seconds of all of it."""
    import pyro_sparse as ps
    from pyro_sparse.metrics import mcc

    x, _, actions = data.part("train")
    model = ps.models.LatentTransition(
        x.shape[-1],
        data.z.shape[-1],
        n_actions=0 if actions is None else actions.shape[-1],
        lags=0 if data.graph_z is None else 1,
    )
    start = time.process_time()
    fit = ps.fit(model, x, actions=actions, seed=seed, progress=False, **settings)
    spent = time.process_time() - start
    x, z, actions = data.part("test")
    found = mcc(rows_of(z), rows_of(fit.transform(x, actions=actions))).value
    return {"curve": [(spent, found)]}


def rows_of(array: np.ndarray) -> np.ndarray:
    """(sequence, time, k) as (frame, k)."""
    return array.reshape(-1, array.shape[-1])


# ---- the other side ----------------------------------------------------------------------------------------
def theirs(data: Any, settings: Settings, peer: str, limit: float, seed: int) -> Row:
    """MCC of the published method at a grid of CPU seconds up to `limit`."""
    import torch

    from pyro_sparse.metrics import mcc

    torch.manual_seed(seed)
    model = networks(data, settings, peer)
    x, z, _ = data.part("test")
    frames = torch.as_tensor(rows_of(x), dtype=torch.float32)

    @torch.no_grad()
    def look() -> float:
        loc, _ = model.latent_model.transform_q_params(model.encode(frames))
        return mcc(rows_of(z), loc.flatten(1).double().numpy()).value

    x, _, actions = data.part("train")
    x = torch.as_tensor(x, dtype=torch.float32)
    a = torch.zeros(len(x), 1) if actions is None else torch.as_tensor(actions[:, 0], dtype=torch.float32)
    true = data.graph_a if data.graph_z is None else data.graph_z
    latent = model.latent_model
    edges = latent.gc_regularizer if data.graph_z is None else latent.g_regularizer
    step = constrained_step(model, edges, int(true.sum()), true.size, settings)
    order = iter(())
    curve: Curve = []
    spent, iteration = 0.0, 0
    for due in np.geomspace(limit / 500, limit, GRID):
        while spent < due:
            start = time.process_time()
            batch = next(order, None)
            if batch is None:
                cut = torch.randperm(len(x)).split(settings.batch_size)
                order = iter([b for b in cut if len(b) == settings.batch_size])
                batch = next(order)
            iteration += 1
            step(x[batch], a[batch], iteration)
            spent += time.process_time() - start
        curve.append((spent, look()))
    learned = float(edges().detach())
    return {"curve": curve, "iterations": iteration, "edges": learned, "true_edges": int(true.sum())}


def networks(data: Any, settings: Settings, peer: str) -> Any:
    """The published model of a set, its networks of the size that the settings name."""
    if not hasattr(np, "product"):  # theirs asks for it; NumPy 2 has no such name
        vars(np)["product"] = np.prod
    sys.path.insert(0, peer)
    from model.ilcm_vae import ILCM_VAE  # type: ignore[import-not-found]
    from model.latent_models_vae import FCGaussianLatentModel  # type: ignore[import-not-found]
    from model.nn import MLP  # type: ignore[import-not-found]

    d_z, d_x = data.z.shape[-1], data.x.shape[-1]
    lags = 0 if data.graph_z is None else 1
    latent = FCGaussianLatentModel(
        d_z,
        0 if data.graph_a is None else data.graph_a.shape[1],
        0,
        [],
        "MLP",
        n_lag=lags,
        n_layers=settings.transition_layers,
        hid_dim=settings.transition_hidden,
        freeze_m=True,
        freeze_dummies=True,
        no_drawhard=True,
        output_delta=False,
        var_p_mode="independent",
        one_gumbel_sample=True,
    )
    options = SimpleNamespace(
        z_max_dim=d_z,
        n_lag=lags,
        beta=1.0,
        learn_decoder_var=True,
        full_seq=lags > 0,
        encoder="tabular",
        decoder="tabular",
        encoder_depth_multiplier=1,
        decoder_depth_multiplier=1,
        bn_enc_dec=False,
        freeze_dummies=True,
        init_decoder_var=float(np.exp(settings.log_variance)),
    )
    model = ILCM_VAE(latent, (d_x,), latent.cont_c_dim, 0, [], options)
    size = {"nhidden": settings.hidden, "nlayers": settings.layers, "batch_norm": False}
    model.encoder = MLP(d_x, 2 * d_z, **size)
    model.decoder = MLP(d_z, d_x, **size)
    return model.train()


def constrained_step(
    model: Any, edges: Callable[[], Any], wanted: int, possible: int, settings: Settings
) -> Callable[[Any, Any, int], None]:
    """One iteration of the published training: Adam on the Lagrangian, then ascent of its multiplier."""
    import torch

    masks = [p for name, p in model.named_parameters() if p.requires_grad and "log_alpha" in name]
    others = [p for name, p in model.named_parameters() if p.requires_grad and "log_alpha" not in name]
    adam = torch.optim.Adam(
        [{"params": others, "lr": settings.rate}, {"params": masks, "lr": settings.mask_rate}]
    )
    multiplier = 0.0

    def step(x: Any, actions: Any, iteration: int) -> None:
        nonlocal multiplier
        # theirs moves the bound after an iteration, by that iteration's number
        defect = edges() - bound(iteration - 1, wanted, possible, settings.schedule)
        adam.zero_grad()
        (multiplier * defect - model.elbo(x, actions, None)[0].mean()).sum().backward()
        adam.step()
        multiplier = ascent(multiplier, float(defect.detach()), settings.dual_rate)

    return step


def bound(iteration: int, wanted: int, possible: int, schedule: int) -> float:
    """How many edges there may be: from all down to the wanted number along a line."""
    return wanted + (possible - wanted) * max(0.0, 1 - iteration / schedule)


def ascent(multiplier: float, defect: float, rate: float) -> float:
    """The next multiplier; one whose constraint is met starts anew at 0 ("dual restart")."""
    return 0.0 if defect < 0 else max(0.0, multiplier + rate * defect)


# ---- what is shown -----------------------------------------------------------------------------------------
def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Curves [[CPU seconds, MCC], ...] of every set, and the ratios."""
    figures: Row = {}
    for name, own in by_set(rows).items():
        curves = {
            side: sorted(p for row in own if row["side"] == side for p in row["curve"])
            for side in dict.fromkeys(row["side"] for row in own)
        }
        figures[name] = {side: [[c, m] for c, m in curve] for side, curve in curves.items()}
        figures[name] |= {
            f"{key}_{side}": value
            for side, curve in curves.items()
            if side != "ours"
            for key, value in compared(curves["ours"], curve).items()
        }
    if options.picture is not None:
        draw(figures, options.picture)
    return figures


def by_set(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows of each set, and seed where there are several."""
    several = len({row["seed"] for row in rows}) > 1
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["dataset"] + (f" seed {row['seed']}" if several else ""), []).append(row)
    return found


def compared(our_curve: Curve, curve: Curve) -> Row:
    """Their CPU time over ours at our best MCC, and at their best MCC (None where we never reach that)."""
    spent, best = max(our_curve, key=lambda p: (p[1], -p[0]))
    there, reached = first(curve, best)
    their_best = max(m for _, m in curve)
    at_their_best, also_ours = first(our_curve, their_best)
    return {
        "ratio_to_equal_mcc": there / spent,
        "is_lower_bound": not reached,
        "ratio_at_their_best": first(curve, their_best)[0] / at_their_best if also_ours else None,
        "best_mcc": their_best,
    }


def first(curve: Curve, level: float) -> tuple[float, bool]:
    """Least CPU time at which a curve is at `level`; where it never is, its last, and False."""
    there = [c for c, m in curve if m >= level]
    return (min(there), True) if there else (max(c for c, _ in curve), False)


def draw(figures: Row, path: Path) -> None:
    """MCC over CPU seconds, a panel for each set."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(4.2 * len(figures), 3.4), layout="constrained")
    axes = picture.subplots(1, len(figures), squeeze=False)[0]
    for ax, (name, own) in zip(axes, figures.items(), strict=True):
        curves = {side: curve for side, curve in own.items() if isinstance(curve, list)}
        for side, curve in curves.items():
            label = "pyro_sparse" if side == "ours" else f"published method, {side} settings"
            ax.plot(*np.transpose(curve), marker="o", ms=3, label=label)
        ax.set(xscale="log", ylim=(0, 1.02), title=name, xlabel="CPU seconds", ylabel="MCC, test frames")
        ax.grid(alpha=0.3)
    ax.legend(fontsize="small")
    picture.savefig(path)


def table(rows: list[Row]) -> list[Row]:
    """One line for each run: its best MCC, when, and how many iterations it had."""
    lines: list[Row] = []
    for row in rows:
        spent, best = max(row["curve"], key=lambda p: p[1])
        line = {key: row.get(key, "") for key in ("dataset", "seed", "side", "steps", "iterations", "edges")}
        lines.append({**line, "mcc": best, "at_cpu_s": spent, "last_mcc": row["curve"][-1][1]})
    return lines
