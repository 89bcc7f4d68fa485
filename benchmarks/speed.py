"""speed: CPU time and memory of a training step of the Sparse VAE, against published code or a plain pass.

A step is that of `ps.fit` in its last stage (one thread, float32, encoder as wide as the decoder, spike-and-
slab lasso with its EM): minibatch, ELBO, gradients, AdamW, proximal map, projection. --peer PATH takes a
checkout of gemoran/sparse-vae-code, whose own training loop runs in the same process; without it the same
model with `chunked = False` is the rival. They take turns, and the median over turns of the ratio within a
turn counts. "one_factor" is the share of features whose row of W has one edge left, the others keep all; with
restarts, the rival's step counts once for each. "bf16" are our dense steps with hidden units in bfloat16 (not
of tiny). "rss" is the peak of memory in a process of its own above what it had after its imports. A ratio is
the rival's figure over ours throughout.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds
from benchmarks._step import SIZES, started, usual

SEEDS, QUICK_SEEDS = 3, 1
SHARES = (0.0, 0.7, 0.95)
QUICK = ("tiny", "ml")
TURNS, QUICK_TURNS, TURN = 7, 3, 0.2  # CPU seconds of our side in a turn, at least
ROOT = Path(__file__).resolve().parent.parent


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peer", default="", help="a checkout of the published code")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, help="only these sizes")


def tasks(options: argparse.Namespace) -> list[Row]:
    sizes = options.sizes or (QUICK if options.quick else tuple(SIZES))
    turns = QUICK_TURNS if options.quick else TURNS
    common = {"turns": turns, "peer": options.peer}
    rows: list[Row] = []
    for seed in report_seeds(options.seeds):
        for size in sizes:
            cases = [(0.0, 1), (0.0, 8)] if size == "tiny" else [(share, 1) for share in SHARES]
            rows += [{"size": size, "one_factor": s, "restarts": r, "seed": seed, **common} for s, r in cases]
    return rows


def run(size: str, one_factor: float, restarts: int, seed: int, turns: int, peer: str) -> Row:
    figures = times(size, one_factor, restarts, seed, turns, peer)
    if size != "tiny" and not one_factor:
        ours, theirs = memory("ours", size, seed, ""), memory("peer" if peer else "plain", size, seed, peer)
        figures |= {"mb": ours, "mb_rival": theirs, "rss_ratio": theirs / ours}
    return figures


def times(size: str, one_factor: float, restarts: int, seed: int, turns: int, peer: str) -> Row:
    """Milliseconds of a step and ratios: ours, the plain pass, and if given the published code."""
    import torch

    torch.set_num_threads(1)
    ours = started(SIZES[size], one_factor, restarts, seed, True).advance
    plain = started(SIZES[size], one_factor, restarts, seed, False).advance
    found: dict[str, list[float]] = {"ours": [], "plain": [], "bf16": [], "peer": []}
    rounds = size != "tiny" and not one_factor
    if rounds:
        bf16 = started(SIZES[size], one_factor, restarts, seed, True)
        bf16.rounded = True

    def turn() -> None:
        found["ours"].append(usual(ours, TURN))
        found["plain"].append(usual(plain, TURN) if size != "tiny" else found["ours"][-1])
        if rounds:
            found["bf16"].append(usual(bf16.advance, TURN))

    usual(ours, 0.0)
    if size != "tiny":
        usual(plain, 0.0, 1)
    if rounds:
        usual(bf16.advance, 0.0)
    if peer:
        for theirs in published(size, seed, turns, peer, turn):
            found["peer"].append(theirs)
    else:
        for _ in range(turns):
            turn()
    figures: Row = {f"ms_{name}": 1e3 * float(np.median(each)) for name, each in found.items() if each}
    rival, times_rival = ("peer", restarts) if peer else ("plain", 1)
    ratio = np.array(found[rival]) * times_rival / np.array(found["ours"])
    figures["ratio"] = float(np.median(ratio))
    if rounds:
        figures["ratio_bf16"] = float(np.median(np.array(found[rival]) / np.array(found["bf16"])))
    figures["plain_ratio"] = float(np.median(np.array(found["plain"]) / np.array(found["ours"])))
    return figures


def published(
    size: str,
    seed: int,
    turns: int,
    peer: str,
    between: Callable[[], None],
    device: str = "cpu",
    clock: Callable[[], float] = time.process_time,
) -> Iterator[float]:
    """Seconds of a step of the published loop in each turn; `between` is called before each turn.

    The loop is theirs, unchanged: what it takes its minibatches from looks at the clock.
    """
    import torch

    sys.path.insert(0, peer)
    from model.model_trainer import ModelTrainer  # type: ignore[import-not-found]
    from model.models import SparseVAESpikeSlab  # type: ignore[import-not-found]

    n_features, n_factors, width, n_rows = SIZES[size]
    torch.manual_seed(seed)
    trainer = ModelTrainer(SparseVAESpikeSlab(n_rows, n_features, n_factors, hidden_dim=width), "spikeslab")
    trainer.model.to(device)
    x = torch.randn(n_rows, n_features)
    steps = 50 if size == "tiny" else 1
    found: list[float] = []

    def minibatches() -> Iterator[dict[str, Any]]:
        yield {"data": x}
        for _ in range(turns):
            with contextlib.redirect_stdout(sys.stderr):
                between()
            each = []
            for _ in range(steps):
                start = clock()
                yield {"data": x}
                each.append(clock() - start)
            found.append(float(np.median(each)))

    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train_vae_model(minibatches(), epochs=1)
    return iter(found)


# ---- memory ------------------------------------------------------------------------------------------------
def memory(which: str, size: str, seed: int, peer: str) -> float:
    """Peak resident megabytes of three steps above the imports, in a process of its own (Linux)."""
    code = f"from benchmarks.speed import _memory; _memory({which!r}, {size!r}, {seed}, {peer!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _memory(which: str, size: str, seed: int, peer: str) -> None:
    import torch

    torch.set_num_threads(1)
    torch.randn(2, 2, requires_grad=True).exp().sum().backward()
    if which == "peer":
        sys.path.insert(0, peer)
        import model.model_trainer
        import model.models  # noqa: F401
    else:
        started(SIZES["tiny"], 0.0, 1, seed, False).advance()  # imports what a step imports
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    if which == "peer":
        list(published(size, seed, 2, peer, lambda: None))
    else:
        run_ = started(SIZES[size], 0.0, 1, seed, which == "ours")
        for _ in range(3):
            run_.advance()
    print((_status("VmHWM") - before) / 1024)


def _status(key: str) -> float:
    """A figure of this process, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(key)).split()[1])


# ---- what is shown -----------------------------------------------------------------------------------------
def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Medians over seeds, by size: ``ratio``, ``rss_ratio``, ratios with one-factor rows or restarts."""
    result: Row = {"against": "published" if options.peer else "plain"}
    for row in rows:
        own = [other for other in rows if all(other[k] == row[k] for k in ("size", "one_factor", "restarts"))]
        name = "ratio" + (f"_{100 * row['one_factor']:.0f}" if row["one_factor"] else "")
        name += f"_{row['restarts']}_restarts" if row["restarts"] > 1 else ""
        figures = result.setdefault(row["size"], {})
        figures[name] = float(np.median([other["ratio"] for other in own]))
        for key in ("ratio_bf16", "rss_ratio", "mb", "mb_rival"):
            if key in row:
                figures[key] = float(np.median([other[key] for other in own]))
    return result
