"""Sequences and tasks that mislead; each kind is silent, told or right, seed by seed.

A helper of `faults`. "told" means that a finding of the right kind names the columns, frames or tasks;
"right" that what is wrong elsewhere was put right. Most kinds are asked of the checks before a fit;
`off_model` fits whole sets.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import pyro_sparse as ps
from pyro_sparse.data.checks.sequences import sequence_findings
from pyro_sparse.data.checks.tasks import task_findings
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.datasets import transition_data
from pyro_sparse.findings.finding import Finding, doubted_edges
from pyro_sparse.inference.transition.transition_checks import AxisChecks, axis_findings, mixing_error

__all__ = ["KINDS", "clean", "off_model", "run_kind"]

SURE = 0.95


def dynamics(
    seed: int,
    n: int = 200,
    frames: int = 20,
    d: int = 3,
    width: int = 8,
    second: float = 0.0,
    noise: float = 0.4,
) -> tuple[np.ndarray, np.random.Generator]:
    """Frames (sequence, time, feature) of latents that tanh and sines drive; `second`: of lag 2, too."""
    rng = np.random.default_rng(seed)
    z = np.zeros((n, frames + 20, d))
    z[:, :2] = rng.normal(size=(n, 2, d))
    for t in range(2, frames + 20):
        z[:, t] = (
            0.5 * np.tanh(1.5 * z[:, t - 1])
            + 0.5 * np.sin(1.5 * np.roll(z[:, t - 1], 1, -1))
            + second * np.sin(1.5 * np.roll(z[:, t - 2], 1, -1))
            + noise * rng.normal(size=(n, d))
        )
    h = z[:, 20:] @ rng.normal(size=(d, width))
    x = h + 0.3 * np.tanh(h)
    return x + 0.05 * rng.normal(size=x.shape), rng


def shape(rng: np.random.Generator) -> dict[str, int]:
    """Many short sequences, or few long ones."""
    return {"n": 200, "frames": 20} if rng.random() < 0.5 else {"n": 4, "frames": 500}


def found_in(x: Any, lags: int = 1, n_latents: int = 3, **columns: Any) -> list[Finding]:
    """What is said of sequences before a fit."""
    data = as_sequences(x, lag=lags, **columns)
    model = ps.models.LatentTransition(data.x.shape[-1], n_latents, lags=lags)
    return sequence_findings(data, model)


def told(findings: Iterable[Finding], kind: str, columns: Iterable[str] = ()) -> str:
    """ "told" if a finding of that kind names those columns."""
    named = [finding for finding in findings if finding.kind == kind]
    return "told" if any(set(columns) <= set(finding.columns) for finding in named) else "silent"


def counter(seed: int) -> str:
    """A frame number, or a time stamp of uneven steps, among the features."""
    rng = np.random.default_rng([seed, 1])
    x, _ = dynamics(seed, **shape(rng))
    steps = rng.uniform(0.5, 1.5, x.shape[:2]) if rng.random() < 0.5 else np.ones(x.shape[:2])
    count = np.cumsum(steps, 1) + rng.integers(0, 1000, (len(x), 1))
    j = int(rng.integers(x.shape[2] + 1))
    return told(found_in(np.insert(x, j, count, axis=2)), "columns", [f"x{j + 1}"])


def trend(seed: int) -> str:
    """Half of the features rise or fall with time, by 1.5 to 3 standard deviations over a sequence."""
    rng = np.random.default_rng([seed, 2])
    x, _ = dynamics(seed, **shape(rng))
    moving = rng.permutation(x.shape[2])[:4]
    size = rng.uniform(1.5, 3) * rng.choice([-1, 1], 4) * x.std((0, 1))[moving]
    x[:, :, moving] += np.linspace(0, 1, x.shape[1])[None, :, None] * size
    found = found_in(x)
    return told(found, "trend") if {f.columns for f in found} else "silent"


def season(seed: int) -> str:
    """Half of the features have a period of 4 to 10 frames, of half their variance."""
    rng = np.random.default_rng([seed, 3])
    x, _ = dynamics(seed, **shape(rng))
    moving = rng.permutation(x.shape[2])[:4]
    wave = np.sin(2 * np.pi * np.arange(x.shape[1]) / rng.integers(4, 11) + rng.uniform(0, 6))
    x[:, :, moving] += wave[None, :, None] * rng.uniform(0.8, 1.4, 4) * x.std((0, 1))[moving]
    found = found_in(x)
    return "told" if {f.kind for f in found} & {"season", "means"} else "silent"


def lag_too_few(seed: int) -> str:
    """Frame t-2 acts, too, and the model reads frame t-1."""
    rng = np.random.default_rng([seed, 4])
    x, _ = dynamics(seed, second=rng.uniform(0.6, 1.2), **shape(rng))
    return told(found_in(x), "lags")


def within_step(seed: int) -> str:
    """Noise of two of three latents that correlates by .5 to .9, as a fit with right axes measures it."""
    rng = np.random.default_rng([seed, 5])
    d, names = 3, ["latent 1", "latent 2", "latent 3"]
    graph = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]]) == 1
    i, j = rng.choice(d, 2, replace=False)
    noise = np.eye(d)
    noise[i, j] = noise[j, i] = rng.uniform(0.5, 0.9) * rng.choice([-1, 1])
    jacobian = graph * np.cos(rng.normal(size=(500, d, d))) + 0.03 * rng.normal(size=(500, d, d))
    checks = AxisChecks(noise, np.full(d, 0.3), mixing_error(jacobian, graph, np.ones(d)))
    found = [f for f in axis_findings(checks, names, 1) if f.kind == "noise"]
    return "told" if found and set(found[0].factors) == {names[i], names[j]} else "silent"


def simple_tasks(seed: int, rows: int = 30, tasks: int = 60) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Tasks on three latents behind six inputs."""
    rng = np.random.default_rng(seed)
    mixing, xs, ys = rng.normal(size=(3, 6)), [], []
    for _ in range(tasks):
        z, w = rng.normal(size=(rows, 3)), rng.normal(size=3) * (rng.random(3) < 0.5)
        xs.append(z @ mixing)
        ys.append(z @ w + 0.3 * rng.normal(size=rows))
    return xs, ys


def tiny_tasks(seed: int) -> str:
    """As many rows a task as latents, or one more."""
    rows = 3 + seed % 2
    found = task_findings(as_tasks(*simple_tasks(seed, rows=rows)), 3)
    doubts = [f for f in found if f.kind == "rows" and f.is_doubt and f.touches_all]
    return "told" if doubts else "silent"


def tiny_tasks_fit(seed: int) -> str:
    """The same through a brief fit: all edges are in doubt, and the error is said to be unknown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, y = simple_tasks(seed, rows=3)
        model = ps.models.MultiTaskRegression(6, 3)
        fit = ps.fit(model, x, y, seed=seed, steps=60, sparse_steps=20, restarts=1, progress=False)
    touched = doubted_edges(fit.findings, fit.task_names, fit.latent_names).all()
    return "told" if touched and any(f.kind == "error" for f in fit.findings) else "silent"


def useless_error(seed: int) -> str:
    """Outcomes that no input predicts: the left-out error is 1 or more."""
    rng = np.random.default_rng([seed, 6])
    x, _ = simple_tasks(seed, rows=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ps.models.MultiTaskRegression(6, 3)
        y = [rng.normal(size=len(one)) for one in x]
        fit = ps.fit(model, x, y, seed=seed, steps=60, sparse_steps=20, restarts=1, progress=False)
    if fit.error[fit.best] < 1:
        return "right"
    return told(fit.findings, "error")


def yes_no(seed: int) -> str:
    """All outcomes, or half of them, are answers coded 0/1, 1/2 or -1/1."""
    rng = np.random.default_rng([seed, 7])
    x, y = simple_tasks(seed)
    low, high = ((0, 1), (1, 2), (-1, 1))[rng.integers(3)]
    coded = range(len(y)) if rng.random() < 0.5 else range(0, len(y), 2)
    for t in coded:
        y[t] = np.where(y[t] > np.quantile(y[t], rng.uniform(0.2, 0.8)), high, low).astype(float)
    return told(task_findings(as_tasks(x, y), 3), "outcomes", [f"task {t + 1}" for t in coded])


def counts(seed: int) -> str:
    """All outcomes are counts of a mean below ten."""
    rng = np.random.default_rng([seed, 8])
    x, y = simple_tasks(seed)
    y = [rng.poisson(np.exp(rng.uniform(0, 1.5) + 0.5 * one / one.std())).astype(float) for one in y]
    return told(task_findings(as_tasks(x, y), 3), "outcomes")


def frames(seed: int) -> str:
    """A cell or a frame far out, filled cells, levels, or sequences that are there twice."""
    rng = np.random.default_rng([seed, 10])
    x, _ = dynamics(seed, n=200, frames=20)
    at = int(rng.integers(200)), int(rng.integers(20))
    variant = seed % 5
    if variant == 0:
        x[(*at, 0)] = 10.0 ** rng.uniform(3, 8)
    elif variant == 1:
        x[at] *= rng.uniform(30, 100)
    elif variant == 2:
        x[rng.random(x.shape) < rng.uniform(0.06, 0.2)] = 0.0
    elif variant == 3:
        x[:, :, 0] = np.digitize(x[:, :, 0] / x[:, :, 0].std(), [-1, 0, 1])
    else:
        x = np.concatenate([x, x[: int(rng.integers(1, 200))]])
    return told(found_in(x), ("cells", "rows", "cells", "kinds", "rows")[variant])


def coded_cells(seed: int) -> str:
    """A code for missing cells, in outcomes of tasks or in a column of sequences."""
    rng = np.random.default_rng([seed, 12])
    code = float(rng.choice([-9999, -999, -99, 999, 9999]))
    if seed % 2:
        x, y = simple_tasks(seed)
        coded = rng.choice(len(y), int(rng.integers(3, 20)), replace=False)
        for t in coded:
            y[t][rng.integers(len(y[t]))] = code
        return told(task_findings(as_tasks(x, y), 3), "outcomes", [f"task {t + 1}" for t in coded])
    x, _ = dynamics(seed, **shape(rng))
    x[:, :, 0][rng.random(x.shape[:2]) < rng.uniform(0.01, 0.1)] = code
    return told(found_in(x), "kinds", ["x1"])


def coded_levels(seed: int) -> str:
    """Half of the features are answers in three to seven levels, numbered from 0 or 1 or in tenths."""
    rng = np.random.default_rng([seed, 13])
    x, _ = dynamics(seed, **shape(rng))
    cuts = np.linspace(-1.2, 1.2, int(rng.integers(2, 7))) + rng.uniform(-1, 1)
    answers = np.digitize(x[:, :, :4] / x[:, :, :4].std((0, 1)), cuts)
    x[:, :, :4] = (answers, answers + 1, answers / 10)[seed % 3]
    return told(found_in(x), "kinds", [f"x{j + 1}" for j in range(4)])


def still(seed: int) -> str:
    """A property of a whole sequence among the features."""
    rng = np.random.default_rng([seed, 11])
    x, _ = dynamics(seed, **shape(rng))
    j = int(rng.integers(x.shape[2] + 1))
    value = rng.normal(size=(len(x), 1)) if seed % 2 else rng.integers(0, 3, (len(x), 1))
    value[0] = value[1] + 1
    return told(found_in(np.insert(x, j, value, axis=2)), "columns", [f"x{j + 1}"])


KINDS: dict[str, Callable[[int], str]] = {
    "counter": counter,
    "trend": trend,
    "season": season,
    "lag too few": lag_too_few,
    "within a step": within_step,
    "tiny tasks": tiny_tasks,
    "tiny tasks, fitted": tiny_tasks_fit,
    "error of 1": useless_error,
    "yes/no outcomes": yes_no,
    "counts": counts,
    "frames": frames,
    "properties": still,
    "codes": coded_cells,
    "levels": coded_levels,
}


def run_kind(kind: str, seeds: Iterable[int]) -> dict[str, int]:
    """How often a kind of fault was silent, told or right.

    Parameters
    ----------
    kind : str
        A key of `KINDS`.
    seeds : iterable of int

    Returns
    -------
    dict
        Counts under "silent", "told" and "right".
    """
    seen = Counter(KINDS[kind](int(seed)) for seed in seeds)
    return {answer: seen[answer] for answer in ("silent", "told", "right")}


def clean(n: int, seed: int = 0) -> float:
    """Share of clean sequences and tasks, half and half, of which the checks before a fit say anything.

    Parameters
    ----------
    n : int
        Sets.
    seed : int
        Of the first one.
    """
    said = 0
    names = ("TimeRandom(0.4)", "TimeNonDiag", "TimeDiag", "ActionTimeNonDiag")
    for one in range(seed, seed + n):
        rng = np.random.default_rng([one, 9])
        if one % 2:
            x, y = simple_tasks(one, rows=int(rng.integers(8, 60)), tasks=int(rng.integers(10, 80)))
            said += bool(task_findings(as_tasks(x, y), 3))
        elif one % 4 == 0:
            x, _ = dynamics(one, noise=rng.uniform(0.1, 0.8), **shape(rng))
            said += bool(found_in(x))
        else:
            sizes = {"n": 150, "T": int(rng.integers(4, 15))} if rng.random() < 0.7 else {"n": 4, "T": 300}
            name = names[(one // 4) % 4]
            data = transition_data(
                name, d_z=3, d_x=8, seed=one, observation_noise=rng.uniform(0.01, 0.2), **sizes
            )
            x, _, actions = data.part("train")
            said += bool(found_in(x, actions=actions))
    return said / n


def off_model(seeds: Iterable[int], **settings: Any) -> dict[str, float]:
    """Edges called *present* on sequences of mechanisms that no sum of sines makes, and how many are false.

    Four latents behind ten features, 2,000 sequences of ten frames; a fit takes one to two CPU minutes.

    Parameters
    ----------
    seeds : iterable of int
    **settings
        Of `fit`.

    Returns
    -------
    dict
        "present", "present_false", "claimed_false" (their expected number by their own probabilities), "true"
        (edges there are) and "true_present".
    """
    total: Counter[str] = Counter()
    for seed in seeds:
        x, z, graph = off_model_data(int(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = ps.models.LatentTransition(x.shape[-1], z.shape[-1])
            fit = ps.fit(model, x, seed=int(seed), **{"progress": False, **settings})
        total.update(judged(fit, x, z, graph))
    return {
        name: float(total[name])
        for name in ("present", "present_false", "claimed_false", "true", "true_present")
    }


def judged(fit: Any, x: np.ndarray, z: np.ndarray, graph: np.ndarray) -> dict[str, float]:
    """Counts of one fit, its latents matched to the true ones by their correlations."""
    table = ps.summary(fit.edge_posterior())
    d = z.shape[-1]
    latents = np.asarray(fit.transform(x))
    order = ps.metrics.mcc(z.reshape(-1, d), latents.reshape(-1, d)).permutation
    of = {fit.latent_names[k]: i for i, k in enumerate(order)}
    doubted = doubted_edges(fit.findings, fit.latent_names, fit.latent_names, targets_are_factors=True)
    place = {name: k for k, name in enumerate(fit.latent_names)}
    counted = Counter({"true": float(graph.sum())})
    for row in table.itertuples():
        if (
            row.probability < SURE
            or row.verdict != "present"
            or doubted[place[row.target], place[row.source]]
        ):
            continue
        there = bool(graph[of[row.target], of[row.source]])
        counted["present"] += 1
        counted["claimed_false"] += 1 - row.probability
        counted["true_present" if there else "present_false"] += 1
    return dict(counted)


def off_model_data(
    seed: int, n: int = 2000, frames: int = 10, d: int = 4, width: int = 10, noise: float = 0.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Latents with sine, product, rectified or tanh mechanisms behind a smooth invertible map.

    Returns
    -------
    x : ndarray (sequence, time, feature)
    z : ndarray (sequence, time, latent)
    graph : ndarray of int (target, source)
    """
    rng = np.random.default_rng(seed)
    graph = np.eye(d, dtype=int)
    off = [(i, j) for i in range(d) for j in range(d) if i != j]
    for k in rng.choice(len(off), d + 1, replace=False):
        graph[off[k]] = 1
    weights = rng.choice([-1, 1], (d, d)) * rng.uniform(0.5, 1.2, (d, d)) * graph
    family = rng.choice(["sin", "prod", "relu", "tanh"], d)

    def step(z: np.ndarray) -> np.ndarray:
        mean = np.empty_like(z)
        for i in range(d):
            u = z[:, graph[i] == 1] * weights[i, graph[i] == 1]
            if family[i] == "sin":
                mean[:, i] = np.sin(1.5 * u).sum(1)
            elif family[i] == "prod" and u.shape[1] > 1:
                mean[:, i] = 0.6 * u[:, 0] + np.tanh(1.5 * np.prod(u, 1))
            elif family[i] == "relu":
                mean[:, i] = np.maximum(u, 0).sum(1) - 0.5
            else:
                mean[:, i] = np.tanh(1.5 * u.sum(1))
        return mean + noise * rng.normal(size=z.shape)

    z = rng.normal(size=(n, d))
    for _ in range(20):
        z = step(z)
    path = [z]
    for _ in range(frames - 1):
        path.append(step(path[-1]))
    z = np.stack(path, 1)
    z = (z - z.mean((0, 1))) / z.std((0, 1))

    def bend(u: np.ndarray) -> np.ndarray:
        return 0.3 * u + 0.7 * np.log1p(np.exp(3 * u)) / 3

    maps = [
        1.2 * np.linalg.qr(rng.normal(size=(max(s), max(s))))[0][: s[0], : s[1]]
        for s in ((d, width), (width, width), (width, width))
    ]
    x = bend(bend(z @ maps[0]) @ maps[1]) @ maps[2]
    return (x - x.mean((0, 1))) / x.std((0, 1)) + 0.02 * rng.normal(size=x.shape), z, graph
