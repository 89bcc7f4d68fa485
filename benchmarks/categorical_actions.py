"""categorical_actions: one edge of an action, whether text, categories or numbers, and how well it is found.

Three latents of sines, tanh and lines, two actions of 2 to 5 levels (as many as seed % 4 + 2), each of which
drives a latent with probability .4: a third of these effects only turn the sign of what a latent does, the
others shift the mean by N(0, s^2) a level, s from .1 to .6. 20 sequences of 50 frames. `coding` asks the
parent-set evidence of `fit.edge_posterior`, given the true latents, with the actions as text, as declared
categories 0 to L-1, ordered ones, and for two levels as numbers and bool; `apart` is the largest difference
of any P(edge). Beside it `one_hot`, as before: a column and an edge for each level, the largest P of which is
an action's. `fit` is whole fits (eight features, a linear mixing and a bend; 800 dense steps and one
restart, fewer than by default) of text, of categories and for two levels of numbers: largest differences of
P(edge), and edges of the latents that correlate most with the true ones.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 50, 4
SEQUENCES, FRAMES, LATENTS, ACTIONS = 20, 50, 3, 2
WORDS = np.array(["rest", "walk", "run", "swim", "ride"])  # not in the order of the alphabet
SHORT = {"steps": 800, "polish_steps": 100, "edge_steps": 100, "batch_size": 32, "restarts": 1}
QUICKER = {"steps": 200, "polish_steps": 20, "edge_steps": 20, "batch_size": 32, "restarts": 1}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--what", action="append", choices=["coding", "fit"], help="only this (repeatable)")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    jobs = [
        {"what": what, "seed": seed, "quick": options.quick}
        for what in options.what or ["coding", "fit"]
        for seed in seeds
    ]
    # one whole fit shows that it runs
    return [job for job in jobs if not (job["what"] == "fit" and options.quick and job["seed"] != seeds[0])]


def run(what: str, seed: int, quick: bool = False) -> Row:
    z, codes, graph = simulated(seed)
    return codings(z, codes, graph) if what == "coding" else fits(z, codes, graph, seed, quick)


def levels_of(seed: int) -> int:
    """Levels of both actions of a set."""
    return 2 + seed % 4


def simulated(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Latents (sequence, frame, latent), levels (sequence, frame, action), edges (latent, action)."""
    rng = np.random.default_rng(seed)
    n_levels = levels_of(seed)
    time = np.eye(LATENTS) + (rng.random((LATENTS, LATENTS)) < 0.3) * (1 - np.eye(LATENTS))
    weight = time * rng.uniform(0.4, 0.9, time.shape) * rng.choice([-1, 1], time.shape)
    kind = rng.integers(0, 3, time.shape)
    graph = rng.random((LATENTS, ACTIONS)) < 0.4
    turns = graph & (rng.random(graph.shape) < 1 / 3)
    shift = rng.normal(size=(LATENTS, ACTIONS, n_levels)) * rng.uniform(0.1, 0.6, (LATENTS, ACTIONS, 1))
    shift *= (graph & ~turns)[..., None]
    sign = np.where(turns[..., None], np.resize([1.0, -1.0], n_levels), 1.0)
    codes = rng.integers(0, n_levels, (SEQUENCES, FRAMES, ACTIONS))
    z = rng.normal(size=(SEQUENCES, FRAMES + 20, LATENTS))
    codes = np.concatenate([codes[:, :20], codes], 1)
    own, action = np.arange(LATENTS)[:, None], np.arange(ACTIONS)[None]
    for t in range(1, FRAMES + 20):
        past = z[:, t - 1, None, :]
        terms = (
            np.choose(kind, [np.sin(2 * past), np.tanh(1.5 * past), past * np.ones((LATENTS, 1))]) * weight
        )
        now = codes[:, t, None, :]
        turned = sign[own, action, now].prod(-1)  # of the latent's own past
        terms[:, range(LATENTS), range(LATENTS)] *= turned
        z[:, t] = (
            terms.sum(-1) + shift[own, action, now].sum(-1) + 0.3 * rng.normal(size=(SEQUENCES, LATENTS))
        )
    return z[:, 20:], codes[:, 20:], graph


def coded(codes: np.ndarray, way: str) -> pd.DataFrame:
    """Both actions of all frames, one after the other."""
    columns: dict[str, Any] = {}
    for j in range(ACTIONS):
        level = codes[..., j].ravel()
        columns[f"do{j + 1}"] = {
            "text": lambda level=level: WORDS[level],
            "categories": lambda level=level: pd.Categorical(level),
            "ordered": lambda level=level: pd.Categorical(level, ordered=True),
            "bool": lambda level=level: level == 1,
            "numbers": lambda level=level: level,
        }[way]()
    return pd.DataFrame(columns)


def ways_of(codes: np.ndarray) -> list[str]:
    """Codings of actions of so many levels; numbers are something else where there are three or more."""
    return ["text", "categories", "ordered"] + (["numbers", "bool"] if codes.max() == 1 else [])


def table_of(values: np.ndarray, codes: np.ndarray, way: str) -> pd.DataFrame:
    """A long table of features or latents, and of the actions."""
    table = pd.DataFrame(
        values.reshape(-1, values.shape[-1]), columns=[f"x{j + 1}" for j in range(values.shape[-1])]
    )
    table["who"], table["t"] = (
        np.repeat(np.arange(len(values)), values.shape[1]),
        np.tile(np.arange(values.shape[1]), len(values)),
    )
    return pd.concat([table, coded(codes, way)], axis=1)


READ: dict[str, Any] = {"id": "who", "time": "t", "actions": ["do1", "do2"]}


def evidence(z: np.ndarray, actions: np.ndarray, owner: list[int]) -> np.ndarray:
    """P(edge) (latent, parent) given the true latents, in their own standard deviations from 0."""
    from pyro_sparse.inference.edges.parents.parents import parent_posterior

    z = z / z.std((0, 1))
    past, now = z[:, :-1].reshape(-1, LATENTS), z[:, 1:].reshape(-1, LATENTS)
    groups = [*range(LATENTS), *(LATENTS + a for a in owner)]
    inputs = np.concatenate([past, actions[:, 1:].reshape(len(past), -1)], 1)
    return parent_posterior(inputs, now, groups=groups, num_draws=1).probability


def codings(z: np.ndarray, codes: np.ndarray, graph: np.ndarray) -> Row:
    """P of actions' edges by the way that they are coded."""
    from pyro_sparse.data.sequences import as_sequences

    found = {}
    for way in ways_of(codes):
        data = as_sequences(table_of(z, codes, way), **READ)
        owner = np.repeat(np.arange(ACTIONS), data.action_widths)
        assert data.actions is not None
        found[way] = evidence(z, data.actions, owner.tolist())
    n_levels = int(codes.max()) + 1
    indicators = np.concatenate([codes[..., j, None] == np.arange(n_levels) for j in range(ACTIONS)], -1)
    indicators = (indicators - indicators.mean((0, 1))) / indicators.std((0, 1))
    apiece = evidence(z, indicators, list(range(indicators.shape[-1])))[:, LATENTS:]
    one_hot = apiece.reshape(LATENTS, ACTIONS, n_levels).max(-1)
    return {
        "levels": n_levels,
        "apart": max(float(np.abs(p - found["text"]).max()) for p in found.values()),
        "p": found["text"][:, LATENTS:].ravel().tolist(),
        "one_hot": one_hot.ravel().tolist(),
        "truth": graph.ravel().astype(int).tolist(),
    }


def fits(z: np.ndarray, codes: np.ndarray, graph: np.ndarray, seed: int, quick: bool) -> Row:
    """Whole fits of every coding: how far apart, how well the latents are found, and the edges' P."""
    import pyro_sparse as ps
    from pyro_sparse.metrics import mcc

    rng = np.random.default_rng([seed, 1])
    h = z / z.std((0, 1)) @ rng.normal(size=(LATENTS, 8))
    x = h + 0.3 * np.tanh(h) + 0.05 * rng.normal(size=h.shape)
    found, apart = {}, 0.0
    for way in [way for way in ways_of(codes) if way not in ("ordered", "bool")]:
        model = ps.models.LatentTransition(n_latents=LATENTS, n_actions=ACTIONS, hidden=32, units=64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the fit says of itself is a figure below
            settings = QUICKER if quick else SHORT
            fit = ps.fit(model, table_of(x, codes, way), seed=seed, progress=False, **READ, **settings)
            edges = fit.edge_posterior(num_draws=10)["edge_posterior"]
        p = np.concatenate([edges[f"probability_{graph}"].to_numpy() for graph in ("time", "action")], 1)
        found[way] = (fit, p)
        apart = max(apart, float(np.abs(p - found["text"][1]).max()))
    fit, p = found["text"]
    match = mcc(z.reshape(-1, LATENTS), fit.transform().reshape(-1, LATENTS))
    return {
        "levels": int(codes.max()) + 1,
        "apart": apart,
        "mcc": float(match.value),
        "flagged": bool(fit.unsure),
        "p": p[np.asarray(match.permutation), LATENTS:].ravel().tolist(),
        "truth": graph.ravel().astype(int).tolist(),
    }


def figures(rows: list[Row], key: str = "p") -> Row:
    """AP, Brier score and calibration in the large of actions' edges."""
    from sklearn.metrics import average_precision_score

    p, truth = (np.concatenate([row[name] for row in rows]) for name in (key, "truth"))
    return {
        "ap": float(average_precision_score(truth, p)),
        "brier": float(((p - truth) ** 2).mean()),
        "mean_p": float(p.mean()),
        "share_true": float(truth.mean()),
        "p_of_absent": float(p[truth == 0].mean()),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    result: Row = {}
    for what in dict.fromkeys(row["what"] for row in rows):
        own = [row for row in rows if row["what"] == what]
        result[what] = {"n": len(own), "apart": max(row["apart"] for row in own), **figures(own)}
        if what == "coding":
            result["one_hot"] = figures(own, "one_hot")
        else:
            good = [row for row in own if row["mcc"] >= 0.95]
            result["fit"]["mcc"] = float(np.median([row["mcc"] for row in own]))
            result["fit, MCC of .95"] = {"n": len(good), **(figures(good) if good else {})}
    return result


def table(rows: list[Row]) -> list[Row]:
    """A line for each part and number of levels."""
    lines: list[Row] = []
    for what, n_levels in sorted({(row["what"], row["levels"]) for row in rows}):
        own = [row for row in rows if (row["what"], row["levels"]) == (what, n_levels)]
        line = {"what": what, "levels": n_levels, "n": len(own), "apart": max(r["apart"] for r in own)}
        line |= figures(own)
        if what == "coding":
            line |= {
                f"one_hot {name}": value
                for name, value in figures(own, "one_hot").items()
                if name in ("ap", "brier")
            }
        else:
            line["mcc"] = float(np.median([row["mcc"] for row in own]))
        lines.append(line)
    return lines
