"""calibration: do edge probabilities mean what they say, over data sets whose truth is drawn from the prior?

Asked of each setting's default method: the calibration error (ECE, 15 bins) above its null (what a perfect
forecaster would show at that sample size), the realised false-discovery rate where 10 % was asked for, and
the Brier score, against a gold standard (a long Gibbs run) or a number. The score beside it is a mode's p*
(or the like): if it passed, the test would be worth nothing (`map_fails`). A seed is a batch of data sets;
rows keep every probability, so that figures are made over all data sets at once. wrong_*: a fit that is told
a prior, a noise or an anchor that is not so; nothing is asked of it. linear_unpinned, linear_correlated: no
anchor at all, and in the latter correlations of the factors, which the fit learns. linear_informed: none
either, but odds of edges that are right, beside the same fits without ("untold"). *_salient: is a
standardised loading at least .3 in size? sbc_*: truths ranked among 63 joint draws of the posterior, 200 data
sets on one seed, all statistics within their 99 % band.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks import _calibration_data as draw
from benchmarks import _calibration_decoders as decoders
from benchmarks import _calibration_methods as methods
from benchmarks._calibration_data import Array, Data, RowLaw
from benchmarks._common import FDR, Row, report_seeds

SEEDS, QUICK_SEEDS = 8, 1
BAND = 0.99  # with which right draws pass the ranks

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
    ece, fdr, brier, brier_over_gold, brier_over_score : float or None
        Most that is allowed: of ECE less its null, of the realised rate, of the Brier score, and of its ratio
        to the gold's and to the score's. None: not asked.
    flagged : float, optional
        Least share of wrong edges (p on the wrong side of .5) whose verdict has to be "open": p between .05
        and .95, or chains that disagree by the method "gap".
    batch, quick_batch : int
        Data sets of one job.
    batches : int
        Jobs that one of ``--seeds`` stands for: more and smaller ones where a method takes minutes.
    quick_data : callable, optional
        In place of `data` with ``--quick``, where drawing takes long.
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
    brier_over_score: float | None = None
    flagged: float | None = None
    batch: int = 25
    quick_batch: int = 4
    batches: int = 1
    quick_data: Draw | None = None


@dataclass(frozen=True)
class Ranked:
    """Joint draws among which truths are ranked, and a score that is judged by its reliability.

    Attributes
    ----------
    data : callable
        As in `Setting`; `given` has ``weight``, ``features`` and ``targets``.
    draws : callable
        ``draws(data, rng)`` for one data set: "edge" and "weight", (draw, row, column).
    scores : callable
        A method as in `Setting`.
    """

    data: Draw
    draws: Callable[[Data, np.random.Generator], dict[str, Array]]
    scores: Method
    default: str = "draws"
    score: str = "map"
    batch: int = 200
    quick_batch: int = 20

    @property
    def methods(self) -> dict[str, Method | None]:
        """Names, and what puts numbers on edges; draws do not."""
        return {self.default: None, self.score: self.scores}


def row_setting(law: RowLaw, sweeps: int = methods.SWEEPS, **sizes: int) -> Setting:
    """Sparse regressions whose prior is known."""
    return Setting(
        data=partial(draw.rows, law),
        methods={
            "ep": methods.ep,
            "gibbs": partial(methods.gibbs, sweeps=sweeps),
            "bootstrap": methods.bootstrap,
            "map": methods.row_mode,
        },
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


def decoder_setting(law: decoders.DecoderLaw, gold: bool = True, **asked: Any) -> Setting:
    """A fit of a masked decoder to each data set, and Markov chains from it."""
    return Setting(
        data=partial(decoders.decoders, law),
        methods=decoders.METHODS if gold else decoders.SHORT_METHODS,
        default="polish",
        score="map",
        gold="long" if gold else None,
        quick_batch=1,
        **asked,
    )


LINEAR = decoders.DecoderLaw(decoder="linear", features=20, factors=4, samples=300)
COUNTS = replace(LINEAR, likelihood="poisson", factors=3, slab_rate=2.5, spike_rate=25)
FEW: dict[str, Any] = {"samples": 150, "steps": 200}  # with --quick
MIDDLING = decoders.DecoderLaw(features=30, factors=4, samples=400)
WIDE = decoders.DecoderLaw(features=60, factors=6, samples=1000)
MISTAKES = {  # what is so, and what the fit is told
    "wrong_prior": replace(LINEAR, told=replace(LINEAR, spike_rate=50, slab_rate=3)),
    "wrong_noise": replace(LINEAR, tails=3),
    "wrong_anchor": replace(LINEAR, told=replace(LINEAR, pinned=((LINEAR.factors, 0),))),
}
CURVED: dict[str, Any] = {"ece": 0.03, "fdr": 0.12, "brier_over_gold": 1.05}
LARGE: dict[str, Any] = {"gold": False, "ece": 0.04, "fdr": 0.12, "batches": 5, "batch": 5}

UNPINNED = Setting(
    data=decoders.unpinned,
    methods=decoders.UNPINNED,
    default="polish",
    score="map",
    ece=0.03,
    fdr=0.12,
    flagged=0.9,
    batch=5,
    batches=5,
    quick_batch=1,
)
HARD_ROWS = RowLaw(features=6, samples=25, correlation=0.9, spike_rate=10)

SETTINGS: dict[str, Setting | Ranked] = {
    "rows_d5": row_setting(RowLaw(features=5, samples=40, correlation=0.3, spike_rate=10)),
    "rows_d6": row_setting(HARD_ROWS),
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
        quick_data=partial(methods.fitted, steps=methods.QUICK_FIT_STEPS),
    ),
    "linear_10": decoder_setting(LINEAR, ece=0.02, fdr=0.12, brier_over_gold=1.05),
    "linear_50": decoder_setting(replace(LINEAR, spike_rate=50), ece=0.03, fdr=0.13, brier_over_gold=1.10),
    **{
        name: replace(decoder_setting(law, gold=False), methods=decoders.MISTAKEN)
        for name, law in MISTAKES.items()
    },
    "linear_salient": Setting(
        data=partial(decoders.salient, LINEAR),
        methods=decoders.SALIENT,
        default="polish",
        score="map",
        ece=0.02,
        fdr=0.12,
        quick_batch=1,
    ),
    "mlp_tanh": decoder_setting(decoders.DecoderLaw(), **CURVED),
    "mlp_relu": decoder_setting(decoders.DecoderLaw(activation="relu"), **CURVED),
    "mlp_g30": decoder_setting(
        MIDDLING,
        brier_over_score=0.75,
        quick_data=partial(decoders.decoders, replace(MIDDLING, **FEW)),
        **LARGE,
    ),
    "mlp_g60": decoder_setting(
        WIDE,
        brier_over_score=0.75,
        quick_data=partial(decoders.decoders, replace(WIDE, **FEW)),
        **LARGE,
    ),
    "poisson": decoder_setting(COUNTS, brier_over_score=0.8, **LARGE),
    "poisson_depth": decoder_setting(replace(COUNTS, depth=0.8), **LARGE),
    "negative_binomial": decoder_setting(replace(COUNTS, likelihood="negative_binomial"), **LARGE),
    "negative_binomial_depth": decoder_setting(
        replace(COUNTS, likelihood="negative_binomial", depth=0.8), **LARGE
    ),
    "bernoulli": decoder_setting(
        replace(LINEAR, likelihood="bernoulli", factors=3), brier_over_score=0.8, **LARGE
    ),
    "linear_unpinned": UNPINNED,
    "linear_correlated": replace(UNPINNED, data=partial(decoders.unpinned, correlated=True)),
    "linear_informed": Setting(
        data=decoders.informed,
        methods=decoders.INFORMED,
        default="polish",
        score="map",
        quick_batch=1,
        batch=5,
    ),
    "sbc_rows": Ranked(partial(draw.rows, HARD_ROWS), methods.gibbs_draws, methods.row_mode, quick_batch=5),
    "sbc_enumerate": Ranked(
        partial(draw.normal_rows, replace(HARD_ROWS, tasks=4)),
        methods.enumerate_draws,
        methods.likeliest_graph,
    ),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), help="only this (repeatable)")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    jobs = []
    for name in options.setting or SETTINGS:
        own = SETTINGS[name]
        count = options.seeds if options.quick else options.seeds * getattr(own, "batches", 1)
        seeds = report_seeds(1 if isinstance(own, Ranked) else count)
        jobs += [
            {"setting": name, "method": method, "seed": options.first_seed + seed, "quick": options.quick}
            for seed in seeds
            for method in own.methods
        ]
    return jobs


def run(setting: str, method: str, seed: int, quick: bool = False) -> Row:
    own = SETTINGS[setting]
    if isinstance(own, Ranked) and method == own.default:
        return ranked(own, seed, quick)
    data = _data(setting, seed, quick)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        start = time.process_time()
        found = own.methods[method](data, quick, seed)
        seconds = time.process_time() - start
    if found.shape != data.edge.shape:
        raise ValueError(f"{method}: numbers of shape {found.shape} for edges of shape {data.edge.shape}")
    return {
        "probability": data.asked(found).round(4).tolist(),
        "truth": data.asked(data.edge).astype(int).tolist(),
        "seconds": seconds,
        "warned": sorted({str(w.message)[:200] for w in said if issubclass(w.category, RuntimeWarning)}),
    }


def ranked(setting: Ranked, seed: int, quick: bool) -> Row:
    """Simulation-based calibration: `sbc`'s own statistics of graph and weights, and squares left over."""
    from pyro_sparse.calibrate import sbc

    def simulate(rng: np.random.Generator) -> tuple[dict[str, Array], Data]:
        data = setting.data(1, rng)
        return {"edge": data.edge[0], "weight": data.given["weight"][0]}, data

    def left_over(truth: dict[str, Array], data: Data) -> float:
        x, y = data.given["features"][0], data.given["targets"][0]
        return float(((y - (x @ truth["weight"][..., None])[..., 0]) ** 2).sum())

    start = time.process_time()
    found = sbc(
        simulate,
        setting.draws,
        {"left over": left_over},
        n_data_sets=setting.quick_batch if quick else setting.batch,
        num_draws=methods.RANKED_DRAWS,
        prob=BAND,
        seed=seed,
        progress=False,
    )
    return {
        "statistics": list(found.statistics),
        "ranks": found.ranks.T.tolist(),
        "inside": found.inside.tolist(),
        "p": found.table["p"].tolist(),
        "seconds": time.process_time() - start,
    }


@lru_cache(maxsize=1)  # methods of a batch come one after the other, and some data sets are fits
def _data(setting: str, seed: int, quick: bool) -> Data:
    own = SETTINGS[setting]
    rng = np.random.default_rng([seed, crc32(setting.encode())])
    if not quick:
        return own.data(own.batch, rng)
    return (getattr(own, "quick_data", None) or own.data)(own.quick_batch, rng)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """For every setting the figures of its default method, what is met, and the other methods beside it."""
    result: Row = {}
    for name in dict.fromkeys(row["setting"] for row in rows):
        own = SETTINGS[name]
        by_method = {
            method: [row for row in rows if (row["setting"], row["method"]) == (name, method)]
            for method in own.methods
        }
        default = by_method.pop(own.default)
        found = {method: figures(these) for method, these in by_method.items() if method != "gap"}
        judged = rank_figures(default) if isinstance(own, Ranked) else figures(default)
        if isinstance(own, Setting):
            judged["brier_gold"] = found[own.gold]["brier"] if own.gold else float("nan")
            judged["brier_score"] = found[own.score]["brier"]
            if own.flagged is not None:
                judged |= flagged(default, by_method["gap"])
            judged["met"] = met(own, judged)
        result[name] = {
            "method": own.default,
            **judged,
            "map_fails": not found[own.score]["passes"],
            "beside": found,
        }
    return result


def rank_figures(rows: list[Row]) -> Row:
    """Of the joint draws of one setting."""
    (row,) = rows
    n = len(row["ranks"][0])
    outside = [name for name, ok in zip(row["statistics"], row["inside"], strict=True) if not ok]
    return {
        "n_data_sets": n,
        "passes": not outside,
        "verdict": f"outside: {', '.join(outside)}" if outside else f"within the {BAND:.0%} band",
        "p": dict(zip(row["statistics"], row["p"], strict=True)),
        "met": {"band": not outside},
        "cpu_seconds": row["seconds"] / n,
    }


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


def met(setting: Setting, found: Row) -> dict[str, bool]:
    """What was asked of a setting, and whether it was met."""
    seen = {
        "ece": found["ece"] - found["ece_null"],
        "fdr": found["fdr10"],
        "brier": found["brier"],
        "brier_over_gold": found["brier"] / found["brier_gold"],
        "brier_over_score": found["brier"] / found["brier_score"],
    }
    asked = {name: getattr(setting, name) for name in seen}
    judged = {name: bool(seen[name] <= most) for name, most in asked.items() if most is not None}
    if setting.flagged is not None:
        judged["flagged"] = bool(found["flagged"] >= setting.flagged)
    return judged


def flagged(probabilities: list[Row], gaps: list[Row]) -> Row:
    """Shares of wrong edges (p on the wrong side of .5) that are open, unresolved; of right ones, open."""
    from pyro_sparse.graphs import edge_verdicts, unresolved

    gap_of = {row["seed"]: row["probability"] for row in gaps}
    p = np.concatenate([row["probability"] for row in probabilities])
    truth = np.concatenate([row["truth"] for row in probabilities])
    gap = np.concatenate([gap_of[row["seed"]] for row in probabilities])
    wrong, open_ = (p > 0.5) != truth, edge_verdicts(p, gap) == "open"
    return {
        "flagged": float(open_[wrong].mean()),
        "flagged_right": float(open_[~wrong].mean()),
        "unresolved": float(unresolved(gap)[wrong].mean()),
    }


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
                    **{figure: own.get(figure, float("nan")) for figure in SHOWN},
                    "verdict": own["verdict"],
                    "missed": " ".join(k for k, good in own.get("met", {}).items() if not good),
                }
            )
    return lines


SHOWN = ("brier", "ece", "ece_null", "fdr10", "power", "cpu_seconds")
