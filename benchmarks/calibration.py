"""calibration: do edge probabilities mean what they say, over data sets whose truth is drawn from the prior?

Asked of each setting's default method: the calibration error (ECE, 15 bins) above its null (what a perfect
forecaster would show at that sample size), the realised false-discovery rate where 10 % was asked for, and
the Brier score, against a gold standard (a long Gibbs run) or a number. The score beside it is a mode's p*
(or the like): if it passed, the test would be worth nothing (`map_fails`). A seed is a batch of data sets;
rows keep every probability, so that figures are made over all data sets at once.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from zlib import crc32

import numpy as np

from benchmarks import _calibration_data as draw
from benchmarks import _calibration_methods as methods
from benchmarks._calibration_data import Array, Data, RowLaw
from benchmarks._common import FDR, Row, report_seeds

SEEDS, QUICK_SEEDS = 8, 1

Method = Callable[[Data, bool, int], Array]
Draw = Callable[[int, np.random.Generator], Data]


@dataclass(frozen=True)
class Setting:
    """One kind of data set, what is asked, and who answers.

    Attributes
    ----------
    data : callable
        ``data(n_sets, rng)`` draws data sets with their truth.
    methods : dict
        By name, ``method(data, quick, seed)``: numbers in [0, 1] of shape (set, row, column).
    default, score, gold : str
        Which of them is judged, which is only a score, and which is as good as the truth (or none).
    ece, fdr, brier, brier_over_gold : float or None
        Most that is allowed: of ECE less its null, of the realised rate, of the Brier score, and of its ratio
        to the gold's. None: not asked.
    batch, quick_batch : int
        Data sets of one seed.
    """

    data: Draw
    methods: dict[str, Method]
    default: str
    score: str
    gold: str | None = None
    ece: float | None = None
    fdr: float | None = None
    brier: float | None = None
    brier_over_gold: float | None = None
    batch: int = 25
    quick_batch: int = 4


def row_setting(law: RowLaw, sweeps: int = methods.SWEEPS, **sizes: int) -> Setting:
    """Sparse regressions whose prior is known."""
    return Setting(
        data=partial(draw.rows, law),
        methods={"ep": methods.ep, "gibbs": partial(methods.gibbs, sweeps=sweeps), "map": methods.row_mode},
        default="ep",
        score="map",
        gold="gibbs",
        ece=0.02,
        fdr=0.12,
        brier_over_gold=1.02,
        **sizes,
    )


TRANSITIONS = Setting(
    data=draw.transitions,
    methods={
        "parents": methods.parents,
        "parents_unit": methods.parents_unit,
        "linear_map": methods.linear_mode,
    },
    default="parents",
    score="linear_map",
    ece=0.015,
    fdr=0.10,
    brier=0.05,
)

SETTINGS: dict[str, Setting] = {
    "rows_d5": row_setting(RowLaw(features=5, samples=40, correlation=0.3, spike_rate=10)),
    "rows_d6": row_setting(RowLaw(features=6, samples=25, correlation=0.9, spike_rate=10)),
    "rows_d5_sharp": row_setting(
        RowLaw(features=5, samples=100, correlation=0.95, spike_rate=50, slab_rate=0.5)
    ),
    "rows_d40": row_setting(
        RowLaw(features=40, samples=80, correlation=0.7, spike_rate=30), sweeps=1000, quick_batch=1
    ),
    "transitions": TRANSITIONS,
    "transitions_noisy": replace(
        TRANSITIONS, data=partial(draw.transitions, error=0.3), ece=0.03, brier=None
    ),
    "transitions_fit": Setting(
        data=methods.fitted,
        methods={"parents": methods.fit_parents, "relaxed": methods.fit_relaxed},
        default="parents",
        score="relaxed",
        batch=1,
        quick_batch=1,
    ),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), help="only this (repeatable)")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {"setting": name, "method": method, "seed": options.first_seed + seed, "quick": options.quick}
        for name in options.setting or SETTINGS
        for seed in report_seeds(options.seeds)
        for method in SETTINGS[name].methods
    ]


def run(setting: str, method: str, seed: int, quick: bool = False) -> Row:
    data = _data(setting, seed, quick)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        start = time.process_time()
        found = SETTINGS[setting].methods[method](data, quick, seed)
        seconds = time.process_time() - start
    if found.shape != data.edge.shape:
        raise ValueError(f"{method}: numbers of shape {found.shape} for edges of shape {data.edge.shape}")
    return {
        "probability": data.asked(found).round(4).tolist(),
        "truth": data.asked(data.edge).astype(int).tolist(),
        "seconds": seconds,
        "warned": sorted({str(w.message)[:200] for w in said if issubclass(w.category, RuntimeWarning)}),
    }


@lru_cache(maxsize=1)  # methods of a batch come one after the other, and some data sets are fits
def _data(setting: str, seed: int, quick: bool) -> Data:
    own = SETTINGS[setting]
    rng = np.random.default_rng([seed, crc32(setting.encode())])
    return own.data(own.quick_batch if quick else own.batch, rng)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """For every setting the figures of its default method, what is met, and the other methods beside it."""
    result: Row = {}
    for name in dict.fromkeys(row["setting"] for row in rows):
        own = SETTINGS[name]
        found = {
            method: figures([row for row in rows if (row["setting"], row["method"]) == (name, method)])
            for method in own.methods
        }
        default = found.pop(own.default)
        gold = found[own.gold]["brier"] if own.gold else float("nan")
        result[name] = {
            "method": own.default,
            **default,
            "brier_gold": gold,
            "met": met(own, default, gold),
            "map_fails": not found[own.score]["passes"],
            "beside": found,
        }
    return result


def figures(rows: list[Row]) -> Row:
    """Of one method in one setting, over all its data sets at once."""
    from pyro_sparse.calibrate import reliability

    probability, truth = (np.concatenate([row[name] for row in rows]) for name in ("probability", "truth"))
    found = reliability(probability, truth, group=np.arange(len(probability)), fdr=FDR)
    return {
        "n_data_sets": found.n_data_sets,
        "n_edges": found.n_edges,
        "brier": found.brier,
        "ece": found.ece,
        "ece_null": found.ece_null,
        "fdr10": found.realised.fdr,
        "fdr10_se": found.realised.fdr_se,
        "power": found.realised.power,
        "passes": found.passes,
        "verdict": found.verdict,
        # Of a data set. The first batch of a process pays for imports: the median does not see it.
        "cpu_seconds": float(np.median([row["seconds"] / len(row["truth"]) for row in rows])),
        "warned": sum(bool(row["warned"]) for row in rows),
    }


def met(setting: Setting, found: Row, gold: float) -> dict[str, bool]:
    """What was asked of a setting, and whether it was met."""
    seen = {
        "ece": found["ece"] - found["ece_null"],
        "fdr": found["fdr10"],
        "brier": found["brier"],
        "brier_over_gold": found["brier"] / gold,
    }
    asked = {name: getattr(setting, name) for name in seen}
    return {name: bool(seen[name] <= most) for name, most in asked.items() if most is not None}


def table(rows: list[Row]) -> list[Row]:
    """One line per setting and method, the judged one first."""
    lines: list[Row] = []
    for name, found in collect(rows, argparse.Namespace()).items():
        for method, own in {found["method"]: found, **found["beside"]}.items():
            lines.append(
                {
                    "setting": name,
                    "method": method,
                    "sets": own["n_data_sets"],
                    "brier": own["brier"],
                    "ece": own["ece"],
                    "null": own["ece_null"],
                    "fdr10": own["fdr10"],
                    "power": own["power"],
                    "verdict": own["verdict"],
                    "cpu_s": own["cpu_seconds"],
                    "missed": " ".join(k for k, good in own.get("met", {}).items() if not good),
                }
            )
    return lines
