"""growth: how the CPU time of training a Sparse VAE grows with its sizes, as exponents on log-log axes.

One size grows, the others stay at `MIDDLE` (those of whole fits at `FITTED`). "features", "factors", "width"
and "restarts" (G, K, H, R) are the time of a training step as `speed` has it, all features dense. The rows N
of a table enter in four ways:
"minibatch" is a step whose minibatch grows, "epoch" one pass over a table that grows at the same minibatch,
"fit" all of `ps.fit` with as many passes whatever the table (checks, start, steps, judging, summary), and
"once" a fit of a few steps, so what is done once for each table. Fits are of simulated tables with anchors
and have every default of the schedule, so that edges go and held-out rows are judged as for a user.

All sizes are measured once, then all again in reverse, one thread, and the median over turns is a size's
time. The exponent is the least-squares slope of log time on log size, every seed with a constant of its own:
over "all" sizes, and over the "upper" half, where what does not grow no longer hides what does. At most 1.05
is asked in N and G; that is held against the upper half.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds
from benchmarks._step import Sizes, started, usual

SEEDS, QUICK_SEEDS = 3, 1
MIDDLE = Sizes(features=300, factors=10, width=64, rows=128)
FITTED = Sizes(features=100, factors=5, width=64, rows=128)
TABLE = (512, 1024, 2048, 4096, 8192)  # multiples of a minibatch
AXES = {
    "minibatch": (32, 64, 128, 256, 512, 1024),
    "epoch": (*TABLE, 16384),
    "fit": TABLE,
    "once": TABLE,
    "features": (75, 150, 300, 600, 1200, 2400),
    "factors": (2, 4, 8, 16, 32, 64),
    "width": (16, 32, 64, 128, 256, 512),
    "restarts": (1, 2, 4, 8, 16, 32),
}
QUICK_SIZES, QUICK_TABLE = slice(0, 4), slice(0, 3)
ASKED = {"minibatch": 1.05, "epoch": 1.05, "fit": 1.05, "once": 1.05, "features": 1.05}
PASSES, QUICK_PASSES, FEW = 10, 1, 8  # over the table, in "fit"; steps of a fit in "once"
TURNS, QUICK_TURNS, FIT_TURNS, TURN = 5, 2, 1, 0.2  # CPU seconds of a size in a turn, at least
LABELS = {
    "minibatch": "rows of a minibatch, one step",
    "epoch": "rows N, an epoch",
    "fit": "rows N, a fit",
    "once": "rows N, once in a fit",
    "features": "features G, one step",
    "factors": "factors K, one step",
    "width": "width H, one step",
    "restarts": "restarts, one step",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--axes", nargs="+", choices=AXES, help="only these")
    parser.add_argument("--picture", type=Path, help="draw the lines here")
    parser.add_argument("--first-seed", type=int, default=0, help="begin here (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    def settings(axis: str) -> Row:
        fits = axis in ("fit", "once")
        sizes = AXES[axis]
        if options.quick:
            sizes = sizes[QUICK_TABLE if fits else QUICK_SIZES]
        turns = FIT_TURNS if fits else QUICK_TURNS if options.quick else TURNS
        more = {"passes": QUICK_PASSES if options.quick else PASSES} if axis == "fit" else {}
        return {"axis": axis, "sizes": list(sizes), "turns": turns, **more}

    return [
        {**settings(axis), "seed": options.first_seed + seed}
        for seed in report_seeds(options.seeds)
        for axis in options.axes or AXES
    ]


def run(axis: str, sizes: list[int], turns: int, seed: int, passes: int = 0) -> Row:
    import torch

    torch.set_num_threads(1)
    if axis in ("fit", "once"):
        fitted(sizes[0], FEW, seed)  # compiles, imports
        steps = [passes * n // FITTED.rows or FEW for n in sizes]
        clocks = [lambda n=n, m=m: fitted(n, m, seed) for n, m in zip(sizes, steps, strict=True)]
    else:
        clocks = [clock(axis, size, seed) for size in sizes]
    return {"seconds": in_turns(clocks, turns)}


def clock(axis: str, size: int, seed: int) -> Callable[[], float]:
    """CPU seconds of a step, or of a pass over a table, each time it is called; it has been warmed up."""
    if axis == "epoch":
        run_ = started(MIDDLE, 0.0, 1, seed, n_rows=size)
        once = lambda: [run_.advance() for _ in range(size // MIDDLE.rows)]  # noqa: E731
        least = 0.0
    else:
        sizes = MIDDLE if axis == "restarts" else MIDDLE._replace(**{axis.replace("minibatch", "rows"): size})
        once = started(sizes, 0.0, size if axis == "restarts" else 1, seed).advance
        least = TURN
    usual(once, 0.0, 1)
    return lambda: usual(once, least, 1)


def fitted(n: int, steps: int, seed: int) -> float:
    """CPU seconds of `ps.fit` on n rows."""
    import pyro_sparse as ps

    x = ps.datasets.anchored(n, FITTED.features, FITTED.factors, seed=seed).x
    model = ps.models.SparseDecoder(
        FITTED.features, FITTED.factors, hidden=FITTED.width, encoder_hidden=FITTED.width
    )
    start = time.process_time()
    ps.fit(model, x, restarts=1, seed=seed, steps=steps, batch_size=FITTED.rows, progress=False)
    return time.process_time() - start


def in_turns(clocks: list[Callable[[], float]], turns: int) -> list[float]:
    """Medians over turns; the way back and forth, so that a machine that slows down bends no line."""
    found = np.empty((turns, len(clocks)))
    for turn in range(turns):
        for i in range(len(clocks))[:: -1 if turn % 2 else 1]:
            found[turn, i] = clocks[i]()
    return np.median(found, 0).tolist()


def exponent(sizes: Any, seconds: Any) -> tuple[float, float]:
    """Slope of log time on log size and its standard error; `seconds` (seed, size), a constant a seed.

    The error is that of least squares: it holds what the line does not follow, noise and bends alike. NaN
    where no point is left over for it.
    """
    x, y = np.log(sizes), np.log(seconds)
    x, y = x - x.mean(), y - y.mean(1, keepdims=True)
    square = len(y) * (x**2).sum()
    slope = (y @ x).sum() / square
    spare = y.size - len(y) - 1
    left = ((y - slope * x) ** 2).sum()
    return float(slope), float(np.sqrt(left / spare / square)) if spare > 0 else float("nan")


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """For each axis exponents with standard errors, and milliseconds by size; draws the picture."""
    result: Row = {}
    for axis in AXES:
        own = [row for row in rows if row["axis"] == axis]
        if not own:
            continue
        sizes, seconds = own[0]["sizes"], np.array([row["seconds"] for row in own])
        half = len(sizes) // 2
        upper, all_ = exponent(sizes[half:], seconds[:, half:]), exponent(sizes, seconds)
        figures: Row = {"upper": upper[0], "se_upper": upper[1], "all": all_[0], "se_all": all_[1]}
        if axis in ASKED:
            figures["asked"] = ASKED[axis]
        ms = 1e3 * np.median(seconds, 0)
        result[axis] = {**figures, "ms": dict(zip(map(str, sizes), ms.tolist(), strict=True))}
    if options.picture is not None:
        draw(rows, result, options.picture)
    return result


def table(rows: list[Row]) -> list[Row]:
    """A line for each size of each axis."""
    return [
        {"axis": row["axis"], "seed": row["seed"], "size": size, "ms": 1e3 * seconds}
        for row in rows
        for size, seconds in zip(row["sizes"], row["seconds"], strict=True)
    ]


def draw(rows: list[Row], figures: Row, path: Path) -> None:
    """A log-log panel for each axis, all of one scale: times of each seed, and the line of the upper half."""
    from pyro_sparse.plots._style import colours, new_figure, offscreen, styled

    measured = {axis: [row for row in rows if row["axis"] == axis] for axis in figures}
    times = {axis: np.array([row["seconds"] for row in own]) for axis, own in measured.items()}
    across = min(4, len(figures))
    down = -(-len(figures) // across)
    widest = 1.4 * max(own[0]["sizes"][-1] / own[0]["sizes"][0] for own in measured.values())
    tallest = 1.4 * max(each.max() / each.min() for each in times.values())

    @styled
    def picture() -> Any:
        with offscreen():
            page = new_figure(2.9 * across, 2.9 * down)
        panels = page.subplots(down, across, squeeze=False).ravel()
        for ax in panels[len(figures) :]:
            ax.set_visible(False)
        for ax, (axis, own) in zip(panels, figures.items(), strict=False):
            sizes, seconds = np.array(measured[axis][0]["sizes"]), times[axis]
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlim(around(sizes, widest))
            ax.set_ylim(around(seconds, tallest))
            upper, middle = sizes[len(sizes) // 2 :], np.exp(np.log(seconds[:, len(sizes) // 2 :]).mean())
            relative = upper / np.exp(np.log(upper).mean())
            ax.plot(upper, middle * relative ** own["upper"], color=colours()["best"], lw=2)
            ax.plot(
                np.tile(sizes, len(seconds)), seconds.ravel(), "o", ms=4, color=colours()["muted"], alpha=0.7
            )
            error = f" ± {own['se_upper']:.2f}" if np.isfinite(own["se_upper"]) else ""
            ax.set_title(f"exponent {own['upper']:.2f}{error}")
            ax.set_xlabel(LABELS[axis])
            plainly(ax, sizes)
        for ax in panels[::across]:
            ax.set_ylabel("CPU time")
        return page

    picture().savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def around(values: np.ndarray, times: float) -> tuple[float, float]:
    """Limits whose ratio is `times`, with the values in their middle on a log scale."""
    middle = np.sqrt(values.min() * values.max())
    return float(middle / np.sqrt(times)), float(middle * np.sqrt(times))


def plainly(ax: Any, sizes: np.ndarray) -> None:
    """Ticks as words a reader says: every second size, and milliseconds or seconds in powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    ax.minorticks_off()
    ax.set_xticks(sizes[1::2], [f"{n:,}" for n in sizes[1::2]])
    ax.yaxis.set_major_locator(LogLocator(base=10))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda s, _: f"{s:g} s" if s >= 1 else f"{1e3 * s:g} ms"))
