"""roofline: the rate of arithmetic of a training step of the Sparse VAE, as a share of a large product's.

The step is that of `speed` with every feature dense: minibatch, ELBO, gradients, AdamW, proximal map and
projection, one thread, float32. What is counted (`flops`) is the arithmetic of its matrix products only, by
formula: two operations for a multiplication and an addition. The rate is that count over the CPU time of the
whole step, so that all else the step does counts against it. Beside it runs `torch.mm` of square float32
matrices of several sizes, in turns in the same process. A turn's share is the step's rate over that of the
fastest of these; "share" is the median over turns and seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds
from benchmarks._step import SIZES, Sizes, started, usual

SEEDS, QUICK_SEEDS = 3, 1
WHICH = ("ml", "zeisel", "big")
SQUARES = (1024, 2048, 3072)
TURNS, QUICK_TURNS, TURN = 7, 3, 0.5  # CPU seconds of the step in a turn, at least
ASKED = {"big": 0.55}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", choices=WHICH, help="only these sizes")


def tasks(options: argparse.Namespace) -> list[Row]:
    turns = QUICK_TURNS if options.quick else TURNS
    sizes = options.sizes or WHICH
    return [{"size": s, "turns": turns, "seed": seed} for seed in report_seeds(options.seeds) for s in sizes]


def flops(sizes: Sizes) -> int:
    """Floating-point operations of the matrix products in one dense step of one restart.

    A product (m, k) x (k, n) is 2 m k n. Each layer has one forth and two back, for its matrix and for what
    it reads; the table needs no gradient. A feature's head is a product with a vector and one back for its
    own gradient; the gradient by the units is an outer product, which is no sum and not counted. Nothing is
    counted twice where a pass computes it twice.
    """
    g, k, h, n = sizes
    encoder = 2 * g * h + 3 * h * h + 2 * g * k + 2 * 3 * h * k  # two layers, the skip, location and log sd
    divergence = k * k  # the location times the factors' precision
    decoder = g * (3 * k * h + 3 * h * h + 2 * h + 3 * k)  # first layer, trunk, head, straight part
    return 2 * n * (encoder + divergence + decoder)


def run(size: str, seed: int, turns: int) -> Row:
    import torch

    torch.set_num_threads(1)
    step = started(SIZES[size], 0.0, 1, seed).advance
    return rates(flops(SIZES[size]), step, [product(n) for n in SQUARES], turns)


def product(n: int) -> tuple[int, Callable[[], Any]]:
    """Operations of a product of two float32 matrices (n, n), and the product, into memory of its own."""
    import torch

    a, b, c = torch.randn(3, n, n)
    return 2 * n**3, lambda: torch.mm(a, b, out=c)


def rates(
    count: int, step: Callable[[], Any], products: list[tuple[int, Callable[[], Any]]], turns: int
) -> Row:
    """Operations per nanosecond of a step and of the fastest product, and the share, medians over turns."""
    calls = [step, *(once for _, once in products)]
    counts = np.array([count, *(n for n, _ in products)])
    least = [TURN, *[TURN / 4] * len(products)]
    for once in calls:
        once()
    seconds = [[usual(once, t) for once, t in zip(calls, least, strict=True)] for _ in range(turns)]
    rate = 1e-9 * counts / np.array(seconds)
    ours, best = rate[:, 0], rate[:, 1:].max(1)
    return {
        "share": float(np.median(ours / best)),
        "gflops_step": float(np.median(ours)),
        "gflops_gemm": float(np.median(best)),
        "gflop": 1e-9 * count,
        "ms": 1e3 * float(np.median(np.array(seconds)[:, 0])),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Medians over seeds by size, and what was asked of it."""
    result: Row = {}
    for size in dict.fromkeys(row["size"] for row in rows):
        own = [row for row in rows if row["size"] == size]
        figures = ("share", "gflops_step", "gflops_gemm", "gflop", "ms")
        result[size] = {name: float(np.median([row[name] for row in own])) for name in figures}
        if size in ASKED:
            result[size]["asked"] = ASKED[size]
    return result
