"""gpu: steps and whole fits on an accelerator, beside the published code there and ourselves on a processor.

"step": a training step as in `speed`, wall time with nothing left in the queue: as it is, call by call
(`plain`: no recorded graph), with hidden units in bfloat16, and that of --peer PATH, in turns; memory is the
allocator's peak above the model and data. `share` is the rate of the step's matrix products (counted as in
`roofline`) over that of the fastest of `torch.mm` there. "fit": `anchored60` with its settings, wall seconds
of the whole call on one device with one thread; run it with --device cpu too. Ratios are published over ours.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds, sparse_fit
from benchmarks._step import SIZES, Sizes, started
from benchmarks.anchored60 import RESTARTS, score
from benchmarks.anchored60 import SIZES as TABLES
from benchmarks.roofline import SQUARES, flops
from benchmarks.speed import published

SEEDS, QUICK_SEEDS = 3, 1
WIDE = {"wide": Sizes(20_000, 15, 50, 512)}
CASES = [
    *[(size, restarts, 0.0) for size in SIZES for restarts in (1, 8)],
    *[(size, 1, 0.95) for size in ("ml", "zeisel", "big")],
    ("wide", 1, 0.0),
]
TURNS, TURN = 3, 0.15  # seconds of each side in a turn, at least


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peer", default="", help="a checkout of the published code")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--what", nargs="+", choices=("step", "fit"), default=("step", "fit"))


def tasks(options: argparse.Namespace) -> list[Row]:
    seeds, device = report_seeds(options.seeds), {"device": options.device}
    cases, tables = (CASES[:1], ["anchored60"]) if options.quick else (CASES, [*TABLES])
    steps = [{"size": s, "restarts": r, "one_factor": one} for s, r, one in cases]
    short = {"steps": 50} if options.quick else {}
    own = {
        "step": [{**step, "peer": options.peer, **device} for step in steps],
        "fit": [{"size": size, **short, **device} for size in tables],
    }
    return [
        {"what": what, **task, "seed": seed} for what in options.what for seed in seeds for task in own[what]
    ]


def run(what: str, **task: Any) -> Row:
    return {"step": _step, "fit": _fit}[what](**task)


def _step(size: str, restarts: int, one_factor: float, seed: int, peer: str, device: str) -> Row:
    sizes = {**SIZES, **WIDE}[size]
    runs = {
        name: started(sizes, one_factor, restarts, seed, device=device) for name in ("ours", "plain", "bf16")
    }
    runs["plain"].captured, runs["bf16"].rounded = None, True
    found: dict[str, list[float]] = {name: [] for name in runs}

    def turn() -> None:
        for name, own in runs.items():
            found[name].append(_usual(own.advance, device))

    figures: Row = {"mb": _megabytes(runs["ours"].advance, device)}
    for own in runs.values():
        for _ in range(12):  # every kind of step is recorded by then
            own.advance()
    if peer and size in SIZES and not one_factor:
        clock = functools.partial(_clock, device)
        found["peer"] = list(published(size, seed, TURNS, peer, turn, device, clock))
        figures["ratio"] = restarts * float(np.median(np.array(found["peer"]) / np.array(found["ours"])))
    else:
        for _ in range(TURNS):
            turn()
    figures |= {f"ms_{name}": 1e3 * float(np.median(each)) for name, each in found.items()}
    if not one_factor:
        rate = restarts * flops(sizes) / (1e-3 * figures["ms_ours"])
        figures |= {"share": rate / max(_product(n, device) for n in SQUARES)}
    return figures


def _fit(size: str, seed: int, device: str, **settings: Any) -> Row:
    from pyro_sparse.datasets import anchored

    n_features, n_factors = TABLES[size]
    data = anchored(1000, n_features, n_factors, n_test=500, seed=seed)
    x = data.part("train")[0]
    for steps in (20, None):  # first a short one, for what is done once: compiling, the device's libraries
        own = settings | ({} if steps is None else {"steps": steps})
        start = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            fit = sparse_fit(x, n_factors, seed, restarts=RESTARTS, device=device, **own)
        seconds = time.perf_counter() - start
    return {"fit_s": seconds, "heldout": float(fit.heldout_elbo.max()), **score(fit, data)}


# ---- clocks ------------------------------------------------------------------------------------------------
def _clock(device: str) -> float:
    """Wall seconds, when all that was asked of the device is done."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def _usual(once: Callable[[], Any], device: str) -> float:
    """Seconds of one call, of as many as fit a turn; they may queue, as they do in a fit."""
    start, n = _clock(device), 0
    while n < 2 or time.perf_counter() - start < TURN:
        once()
        n += 1
    return (_clock(device) - start) / n


def _megabytes(once: Callable[[], Any], device: str) -> float:
    """The allocator's peak in a call above what was there before it; nan on a processor."""
    import torch

    if device == "cpu":
        return float("nan")
    once()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    once()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def _product(n: int, device: str) -> float:
    """Operations a second of a product of two float32 matrices (n, n)."""
    import torch

    a, b, c = torch.randn(3, n, n, device=device)
    torch.mm(a, b, out=c)
    return 2 * n**3 / _usual(lambda: torch.mm(a, b, out=c), device)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Medians over seeds of steps, by size, restarts and share of one-factor rows; of fits, lists by size."""
    result: Row = {}
    for row in rows:
        if row["what"] == "step":
            name = f"{row['size']}_{row['restarts']}_{100 * row['one_factor']:.0f}"
            keys = [key for key in row if key.startswith(("ms_", "mb", "ratio", "share"))]
            own = [
                r
                for r in rows
                if r["what"] == "step" and all(r[k] == row[k] for k in ("size", "restarts", "one_factor"))
            ]
            result[name] = {key: float(np.median([r[key] for r in own])) for key in keys}
        else:
            figures = result.setdefault(f"fit_{row['size']}", {})
            for key in ("fit_s", "heldout", "mcc", "f1"):
                figures.setdefault(key, []).append(row[key])
    return result
