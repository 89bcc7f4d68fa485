r"""programs: chains over programs that users write, against special chains and their own truths.

`same`: a `SparseDecoder` as a program (`model_program`), sampled by the engine, and by the package's
special chains, two seeds of either. `mean`, `max` of the differences between their mean probabilities;
`mc_error` the Monte Carlo standard error of these means, by the variance between the four chains of a seed
(root mean square over edges and seeds), of the engine and of the special chains (`mc_error_special`). `cost`:
CPU seconds to the same variance, engine by special chains.
250 x 12, two factors, with an anchor each or without; `record_cpu_s` is what recording takes.

`calibrated`: programs that the package does not have, and two that it has (`_programs.py`), and six priors
over graphs (`_graph_programs.py`). Truths are drawn from each, fifty tables a seed (or `--tables`), all in
one pass; chains begin at the tables' components or at draws from the prior. ECE of the edge probabilities
beside that of perfect ones (`ece_null`), false discoveries where 10 % was asked for, power, share of 90 %
intervals that cover (`cover`: over all sites outside of the rows, weights too), and share of tables whose
factors are all there with a congruence of .9, or whose chains say that they disagree.

`seeds`: two seeds of `edge_posterior` on 200 x 12 tables of two factors without an anchor: the largest
difference over all edges that both call decided, and over all.

`growth`: CPU milliseconds of a sweep of four chains by rows and by features, the sizes in turns; the slope of
logarithms over the larger half of the sizes is the exponent.

`large`: a fit of four restarts and chains of 400 sweeps, 1,000 x 50, five factors: CPU seconds, R-hat, Brier.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import pyro_sparse as ps
from benchmarks._common import Row, report_seeds
from benchmarks._graph_programs import GRAPH_PROGRAMS
from benchmarks._programs import PROGRAMS
from pyro_sparse.calibrate.programs import program_experiment
from pyro_sparse.calibrate.scores import ece, ece_when_calibrated
from pyro_sparse.graphs._mixing import split_rhat
from pyro_sparse.graphs.alignment import match_columns, similarity
from pyro_sparse.graphs.selection import bayesian_fdr, edge_verdicts
from pyro_sparse.inference.edges.program.model_program import model_program
from pyro_sparse.inference.edges.program.sampler import run_program
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.program.sweeps import ProgramChains
from pyro_sparse.inference.training.restarts import pick

Array = NDArray[np.float64]

CASES = PROGRAMS | GRAPH_PROGRAMS
SEEDS, QUICK_SEEDS = 2, 1
TABLES = 50  # of a program and a seed
SAME = ("normal", "bernoulli", "poisson")
ROWS, FEATURES, FACTORS = 250, 12, 2
SWEEPS, WARM_UP = 2300, 300
SPECIAL_SWEEPS = {"normal": 4400, "bernoulli": 4400, "poisson": 4400}
SEED_TABLES = 25  # of a seed
GROWTH = {"rows": (250, 500, 1000, 2000, 4000, 8000), "features": (10, 20, 40, 80, 160, 320)}
TURNS, TURN = 5, 4  # sweeps of one size before the next has its turn
WHAT = ("same", "calibrated", "seeds", "growth", "large")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=WHAT, help="only these")
    parser.add_argument("--programs", nargs="+", choices=list(CASES), help="only these")
    parser.add_argument("--device", default="cpu", help="where the chains of `calibrated` are sampled")
    parser.add_argument("--tables", type=int, default=TABLES, help="of a program and a seed of `calibrated`")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    only = options.only or list(WHAT)
    rows: list[Row] = []
    device: Row = {} if options.device == "cpu" else {"device": options.device}
    tables: Row = {} if options.tables == TABLES else {"tables": options.tables}
    for seed in (options.first_seed + s for s in report_seeds(options.seeds)):
        if "calibrated" in only:
            names = options.programs or (["linear", "mechanism"] if options.quick else list(CASES))
            rows += [
                {"what": "calibrated", "name": n, "seed": seed, "quick": options.quick} | device | tables
                for n in names
            ]
        if "same" in only:
            kinds = SAME[:1] if options.quick else SAME
            rows += [
                {"what": "same", "name": f"{kind}, {axes}", "seed": seed, "quick": options.quick}
                for kind in kinds
                for axes in ("anchored", "free")
            ]
        if "growth" in only and not options.quick:
            rows += [
                {"what": "growth", "name": f"{program}, {by}", "seed": seed, "quick": False}
                for program in ("linear", "bernoulli")
                for by in ("rows", "features")
            ]
        if "large" in only and not options.quick:
            rows.append({"what": "large", "name": "linear", "seed": seed, "quick": False})
        if "seeds" in only and not options.quick:
            rows.append({"what": "seeds", "name": "linear", "seed": seed, "quick": False})
    return rows


def run(what: str, name: str, seed: int, quick: bool, **settings: Any) -> Row:
    torch.set_num_threads(1)
    kinds = {"calibrated": calibrated, "same": same, "seeds": two_seeds, "growth": growth, "large": large}
    return kinds[what](name, seed, quick, **settings)


# ---- truths of programs ------------------------------------------------------------------------------------
def calibrated(name: str, seed: int, quick: bool, device: str = "cpu", tables: int = TABLES) -> Row:
    case = CASES[name]
    data = case.data(np.random.default_rng(seed))
    length = {"sweeps": 60, "warm_up": 30} if quick else {}
    experiment = program_experiment(
        ps.Program(case.program, case.n_factors),
        data,
        2 if quick else tables,
        seed=seed,
        device=device,
        **length,
    )
    return {
        "probability": experiment.probability.round(4).tolist(),
        "truth": experiment.edge.astype(int).tolist(),
        "cover": experiment.coverage(0.9),
        "axes": experiment.right_axes.astype(int).tolist(),
        "flagged": experiment.flagged.astype(int).tolist(),
    }


# ---- the same posterior ------------------------------------------------------------------------------------
def simulated(kind: str, seed: int) -> Array:
    """Two factors, 40 % of edges of middling size, and two features that hold the axes."""
    rng = np.random.default_rng([seed, 41])
    weight = (rng.random((FEATURES, FACTORS)) < 0.4) * rng.normal(0, 0.6, (FEATURES, FACTORS))
    weight[:FACTORS] = 0.8 * np.eye(FACTORS)
    f = rng.standard_normal((ROWS, FACTORS)) @ weight.T
    if kind == "normal":
        return f + 0.7 * rng.standard_normal(f.shape)
    if kind == "bernoulli":
        return (rng.random(f.shape) < 1 / (1 + np.exp(-2 * f))).astype(float)
    return rng.poisson(np.exp(0.5 * f + 0.7)).astype(float)


def same(name: str, seed: int, quick: bool) -> Row:
    kind, axes = name.split(", ")
    normal = kind == "normal"
    prior = ps.priors.SpikeSlabNormal(
        slab_scale=0.6 if normal else 1.2, spike_scale=0.05 if normal else 0.1, b=2.0
    )
    anchors = {"anchors": {"x1": 0, "x2": 1}} if axes == "anchored" else {}
    likelihood = ps.likelihoods.Poisson(size_factors=False) if kind == "poisson" else kind
    model = ps.models.SparseDecoder(
        FEATURES, FACTORS, decoder="linear", likelihood=likelihood, prior=prior, factor_cov=False, **anchors
    )
    fit = ps.fit(model, simulated(kind, seed), seed=seed, restarts=4, progress=False)
    special, engine, cpu = [], [], [0.0, 0.0]
    of_chains: tuple[list[Array], list[Array]] = [], []
    record = 0.0
    for again in (0, 1):
        before = time.process_time()
        idata = fit.edge_posterior(
            "mcmc", seed=again, sweeps=60 if quick else SPECIAL_SWEEPS[kind], tolerance=0.0, chains=4
        )
        cpu[0] += time.process_time() - before
        special.append(ps.edge_prob(idata).to_numpy())
        of_chains[0].append(idata["edge_posterior"]["restart_probability"].to_numpy())
        reference = idata["edge_posterior"]["weight"].transpose("feature", "factor").to_numpy()
        before = time.process_time()
        probability, recorded = _engine(fit, reference, again, quick)
        cpu[1] += time.process_time() - before - recorded
        record = recorded
        of_chains[1].append(probability)
        engine.append(probability.mean(0))
    first, second = (np.mean(both, axis=0) for both in (special, engine))
    errors = [float(np.sqrt(np.mean([p.var(0, ddof=1) / len(p) for p in both]))) for both in of_chains]
    apart = np.abs(first - second)
    return {
        "mean": float(apart.mean()),
        "max": float(apart.max()),
        "mc_error": errors[1],
        "mc_error_special": errors[0],
        "factors": int((fit.weights[fit.best] != 0).any(0).sum()),
        "middling": int(((first > 0.05) & (first < 0.95)).sum()),
        "special_cpu_s": cpu[0] / 2,
        "engine_cpu_s": cpu[1] / 2,
        "record_cpu_s": record,
    }


def _engine(fit: Any, reference: Array, seed: int, quick: bool) -> tuple[Array, float]:
    """Probabilities of each chain in the order of factors of `reference`, and CPU seconds of recording."""
    model = model_program(pick(fit.model, [fit.best]), fit.table).program
    data = ps.Data(np.asarray(fit.table.x, dtype=float))
    density = RecordedDensity(model, data, 4, seed=seed)
    torch.manual_seed(seed)
    weight = fit.model.weights[fit.best].detach().double()
    frame, sign = (fit.alignment[name][fit.best] for name in ("permutation", "sign"))
    scores = np.zeros((ROWS, FACTORS))
    scores[:, frame] = fit.transform() * sign
    start = {name: value.clone() for name, value in density.start.items()}
    start["W"] = weight + 0.02 * torch.randn(4, *weight.shape, dtype=torch.float64)
    start["z"] = torch.as_tensor(scores).reshape(1, ROWS, 1, FACTORS).repeat(4, 1, 1, 1)
    draws = run_program(
        density, start, "W", pivot=reference, sweeps=60 if quick else SWEEPS,
        warm_up=20 if quick else WARM_UP, num_draws=50, heated=[False] * 4,
    )  # fmt: skip
    return draws.prob, density.recording_seconds


# ---- two seeds ---------------------------------------------------------------------------------------------
def two_seeds(name: str, seed: int, quick: bool) -> Row:
    largest, decided = [], []
    for number in range(SEED_TABLES):
        rng = np.random.default_rng([seed, number, 43])
        weight = (rng.random((12, 2)) < 0.4) * rng.normal(0, 0.6, (12, 2))
        x = rng.standard_normal((200, 2)) @ weight.T + 0.7 * rng.standard_normal((200, 12))
        fit = ps.fit(ps.models.SparseDecoder(12, 2, decoder="linear"), x, seed=seed, progress=False)
        answers = [fit.edge_posterior(seed=again) for again in (0, 1)]
        p = [ps.edge_prob(idata).to_numpy() for idata in answers]
        verdicts = [ps.summary(idata).sort_index()["verdict"].to_numpy() for idata in answers]
        open_edges = ((verdicts[0] == "open") | (verdicts[1] == "open")).reshape(-1)
        table_of = [ps.summary(idata).sort_index()["probability"].to_numpy() for idata in answers]
        apart = np.abs(table_of[0] - table_of[1])
        largest.append(float(np.abs(p[0] - p[1]).max()))
        decided.append(float(np.max(apart[~open_edges], initial=0.0)))
    return {"largest": largest, "decided": decided}


# ---- what it costs -----------------------------------------------------------------------------------------
def sparse_table(kind: str, rows: int, features: int, factors: int, seed: int) -> tuple[Array, Array]:
    """Cells of a sparse linear decoder, and its weights."""
    rng = np.random.default_rng([seed, rows, features, 47])
    weight = (rng.random((features, factors)) < 0.3) * rng.normal(0, 0.8, (features, factors))
    f = rng.standard_normal((rows, factors)) @ weight.T
    noisy = f + 0.6 * rng.standard_normal(f.shape)
    return (noisy if kind == "linear" else (rng.random(f.shape) < 1 / (1 + np.exp(-f))) * 1.0), weight


def growth(name: str, seed: int, quick: bool) -> Row:
    kind, by = name.split(", ")
    program = PROGRAMS[kind].program
    sizes = (
        [(rows, 20) for rows in GROWTH["rows"]] if by == "rows" else [(500, g) for g in GROWTH["features"]]
    )
    chains = []
    for rows, features in sizes:
        x, _ = sparse_table(kind, rows, features, 3, seed)
        density = RecordedDensity(ps.Program(program, 3), ps.Data(x), 4, seed=seed, record_after=1)
        chains.append(ProgramChains(density, density.start, 30))
        for _ in range(40):  # graphs are recorded, and the warm-up is over
            chains[-1].sweep()
    spent = np.zeros((TURNS, len(sizes)))
    for turn in range(TURNS):
        for i, some in enumerate(chains):
            before = time.process_time()
            for _ in range(TURN):
                some.sweep()
            spent[turn, i] = (time.process_time() - before) / TURN * 1e3
    ms = np.median(spent, axis=0)
    return {"sizes": sizes, "ms": ms.round(2).tolist(), "exponent": _slope(np.prod(sizes, axis=1), ms)}


def _slope(size: Array, ms: Array) -> float:
    half = len(size) // 2
    return float(np.polyfit(np.log(size[half:]), np.log(ms[half:]), 1)[0])


def large(name: str, seed: int, quick: bool) -> Row:
    x, weight = sparse_table("linear", 1000, 50, 5, seed)
    before = time.process_time()
    fit = ps.fit(ps.Program(PROGRAMS[name].program, 5), x, restarts=4, seed=seed, progress=False)
    fitted = time.process_time()
    idata = fit.edge_posterior(seed=seed, sweeps=400)
    drawn = idata["posterior"]["weight"].to_numpy()  # of chains in the frame of the fit
    p = ps.edge_prob(idata).to_numpy()
    order, _ = match_columns(similarity(weight, drawn.mean((0, 1))))
    return {
        "fit_cpu_s": fitted - before,
        "chains_cpu_s": time.process_time() - fitted,
        "rhat": float(split_rhat(drawn.reshape(*drawn.shape[:2], -1)).max()),
        "brier": float(np.mean((p[:, order] - (weight != 0)) ** 2)),
        "decided": int((ps.summary(idata)["verdict"] != "open").sum()),
    }


# ---- figures -----------------------------------------------------------------------------------------------
def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{"same": {kind: figures}, "calibrated": {program: figures}, "cost": {kind: ratio}, …}."""
    by = {what: [row for row in rows if row["what"] == what] for what in WHAT}
    answer: Row = {"same": {}, "calibrated": {}, "cost": {}}
    for kind in sorted({row["name"] for row in by["same"]}):
        of_kind = [row for row in by["same"] if row["name"] == kind]
        # Where the fit lost a factor the special chains run over the other one, and sample another model.
        chosen = [row for row in of_kind if row.get("factors", FACTORS) == FACTORS]
        if not chosen:
            continue
        answer["same"][kind] = {
            "mean": float(np.mean([row["mean"] for row in chosen])),
            "max": float(np.max([row["max"] for row in chosen])),
            **{
                n: float(np.sqrt(np.mean([row[n] ** 2 for row in chosen])))
                for n in ("mc_error", "mc_error_special")
            },
            "tables": len(chosen),
            "left_out": len(of_kind) - len(chosen),
        }
        costs = [
            row["engine_cpu_s"] * row["mc_error"] ** 2
            / max(row["special_cpu_s"] * row["mc_error_special"] ** 2, 1e-12)
            for row in chosen
        ]  # fmt: skip
        answer["cost"][kind] = float(np.exp(np.mean(np.log(costs))))
    if by["same"]:
        answer["record_cpu_s"] = float(np.median([row["record_cpu_s"] for row in by["same"]]))
    for name in sorted({row["name"] for row in by["calibrated"]}):
        answer["calibrated"][name] = _calibration([row for row in by["calibrated"] if row["name"] == name])
    for row in by["growth"]:
        answer.setdefault("growth", {}).setdefault(row["name"], []).append(row["exponent"])
    if by["large"]:
        answer["large"] = [
            {k: row[k] for k in ("fit_cpu_s", "chains_cpu_s", "rhat", "brier", "decided")}
            for row in by["large"]
        ]
    if by["seeds"]:
        answer["seeds_differ_max"] = max(v for row in by["seeds"] for v in row["decided"])
        answer["seeds_differ_open"] = max(v for row in by["seeds"] for v in row["largest"])
    return answer


def table(rows: list[Row]) -> list[Row]:
    """One line per kind and program."""
    answer = collect(rows, argparse.Namespace())
    lines = [{"same": kind, **line, "cost": answer["cost"][kind]} for kind, line in answer["same"].items()]
    for name, line in answer["calibrated"].items():
        lines.append({"program": name, **{key: value for key, value in line.items() if key != "covers"}})
    return lines


def _calibration(rows: list[Row]) -> Row:
    p = np.concatenate([np.array(row["probability"]) for row in rows])
    truth = np.concatenate([np.array(row["truth"]) for row in rows])
    selected = [bayesian_fdr(table, 0.1) for table in p]
    false = [float((s & (t == 0)).sum() / max(1, s.sum())) for s, t in zip(selected, truth, strict=True)]
    power = sum((s & (t == 1)).sum() for s, t in zip(selected, truth, strict=True)) / max(1, truth.sum())
    sure = np.array([edge_verdicts(table, np.zeros(table.shape)) == "present" for table in p])
    axes, flagged = (np.concatenate([np.array(row[n]) for row in rows]) for n in ("axes", "flagged"))
    covers = {n: float(np.mean([row["cover"][n] for row in rows])) for n in rows[0]["cover"]}
    return {
        "n": len(p),
        "ece": ece(p.ravel(), truth.ravel()),
        "ece_null": float(ece_when_calibrated(p.ravel()).mean()),
        "brier": float(np.mean((p - truth) ** 2)),
        "brier_expected": float(np.mean(p * (1 - p))),
        "fdr10": float(np.mean(false)),
        "power": float(power),
        "present_false": float((truth[sure] == 0).mean()) if sure.any() else 0.0,
        "cover": float(np.mean(list(covers.values()))),
        "covers": covers,
        "axes_right": float(axes.mean()),
        "axes_right_or_flagged": float((axes | flagged).mean()),
    }
