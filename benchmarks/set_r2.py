"""set_r2: are the sets of latents that two groups of features share, and do not share, kept apart?

R squared of a kernel regression from the estimated latents of one set to the true ones of another (Int: what
both groups depend on, from what one alone does; SymDiff the other way round; CompA, CompB: what one group
alone depends on, from what the other alone does), and of each set from its own estimate. Three features for
each latent: a cycle, where every latent is identified, and from four latents a table in which two of them
always come together, so that only their set is. A group is one feature, drawn until all sets exist; a seed is
one table of each cell.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 5, 1
LATENTS = (3, 4, 5)
STRUCTURES = ("cycle", "together")
SETS = {"int": "intersection", "symdiff": "difference", "comp_a": "complement_a", "comp_b": "complement_b"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {"structure": s, "d": d, "seed": options.first_seed + seed, "quick": options.quick}
        for seed in report_seeds(options.seeds)
        for d in (LATENTS[:1] if options.quick else LATENTS)
        for s in STRUCTURES
        if s == "cycle" or d > 3
    ]


def run(structure: str, d: int, seed: int, quick: bool = False) -> Row:
    import pyro_sparse as ps

    graph = np.tile(np.eye(d, dtype=int) | np.roll(np.eye(d, dtype=int), 1, axis=1), (3, 1))
    if structure == "together":
        graph[:, 1] = graph[:, 0]
    rng = np.random.default_rng([seed, d])
    data = ps.datasets.dependency_data(graph, n=2000 if quick else 10_000, seed=seed)
    groups = _groups(graph, rng)
    model = ps.models.DependencyVAE(graph.shape[0], d)
    settings = {"steps": 800, "restarts": 2} if quick else {}
    fit = ps.fit(model, data.x, seed=seed, progress=False, **settings)
    z = fit.transform(data.x)
    found = ps.metrics.set_r2(data.z, z, graph, groups, seed=seed)
    return {
        **{name: float(getattr(found.leak, field)) for name, field in SETS.items()},
        **{f"{name}_own": float(getattr(found.own, field)) for name, field in SETS.items()},
        "reference": found.reference,
        "mcc": float(ps.metrics.mcc(data.z, z, "spearman").value),
    }


def _groups(graph: np.ndarray, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Two features that share a latent and have one each for themselves."""
    while True:
        a, b = rng.permutation(len(graph))[:2]
        first, second = graph[a] == 1, graph[b] == 1
        if (first & second).any() and (first & ~second).any() and (second & ~first).any():
            return [int(a)], [int(b)]


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    keys = [*SETS, *(f"{name}_own" for name in SETS), "reference", "mcc"]
    return {
        s: {
            str(d): {k: [r[k] for r in rows if (r["structure"], r["d"]) == (s, d)] for k in keys}
            for d in sorted({r["d"] for r in rows if r["structure"] == s})
        }
        for s in dict.fromkeys(r["structure"] for r in rows)
    }
