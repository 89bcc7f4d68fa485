"""certificates: does a certificate say what its theorem says, and is what it calls identified really found?

Graphs: 100 random graphs a seed and theorem, given as if they were known for sure; the verdicts of
`ps.identify` against the theorem's own words, over all groups of features (`disagree` counts latents).
--fits: simulated data instead, `ps.fit` as it comes; of the latents that are called identified, the share
whose estimate has a rank correlation of at least .9 with a true latent (asked: .95). On the block sets no
latent should be called identified; `ActionNonDiag` and `proxy bernoulli` (by --setting) are like them without
blocks, and of `dependency cycle` all, of `dependency triangular` one factor can be. The other transitions are
those whose latents no fit recovers: a graph too dense, too little influence, mechanisms of another kind.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks import _by_definition as wanted
from benchmarks._common import Row, report_seeds, sparse_fit

SEEDS, QUICK_SEEDS = 10, 1
GRAPHS = 100
THEOREMS = (
    "anchors", "zeros", "structural sparsity", "diversity", "set algebra (support)", "set algebra (paper)",
    "(a, z)-consistency", "task supports",
)  # fmt: skip
FITS = ("anchored60", "ActionBlockNonDiag", "proxy block2")
MORE_FITS = (
    "ActionNonDiag", "TimeRandom(0.9)", "TimeNonDiag no_suff", "TimeNonDiag leaky_relu",
    "proxy bernoulli", "dependency cycle", "dependency triangular",
)  # fmt: skip
SURE, FOUND, ASKED = 0.95, 0.9, 0.95


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fits", action="store_true", help="simulated fits instead of random graphs (slow)")
    choices = [*THEOREMS, *FITS, *MORE_FITS]
    parser.add_argument("--setting", action="append", choices=choices, help="only this (repeatable)")
    parser.add_argument("--first-seed", type=int, default=0, help="begin here (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    names = options.setting or (FITS if options.fits else THEOREMS)
    return [
        {
            "setting": name,
            "seed": options.first_seed + seed,
            **({} if name in THEOREMS else {"quick": options.quick}),
        }
        for seed in report_seeds(options.seeds)
        for name in names
    ]


def run(setting: str, seed: int, quick: bool = False) -> Row:
    if setting not in THEOREMS:
        return _fit(setting, seed, quick)
    rng = np.random.default_rng([seed, THEOREMS.index(setting)])
    figures = [compare(setting, rng) for _ in range(GRAPHS)]
    return {
        "graphs": GRAPHS,
        "latents": sum(len(ours) for ours, _ in figures),
        "identified": sum(sum(theirs) for _, theirs in figures),
        "disagree": sum(a != b for ours, theirs in figures for a, b in zip(ours, theirs, strict=True)),
    }


# ---- random graphs -----------------------------------------------------------------------------------------
def compare(theorem: str, rng: np.random.Generator) -> tuple[list[bool], list[bool]]:
    """Latents that the certificate calls identified, and those that the theorem's own words do."""
    import pyro_sparse as ps

    if theorem == "(a, z)-consistency":
        d, n_actions = rng.integers(2, 6), rng.integers(1, 5)
        action, time = rng.random((d, n_actions)) < 0.4, rng.random((d, d)) < 0.4
        found = ps.identify(transition_idata(action, time), sure=SURE).table["verdict"] == "identified"
        return found.tolist(), wanted.completely_disentangled(action.astype(int), time.astype(int))
    if theorem == "task supports":
        supports = (rng.random((rng.integers(1, 9), rng.integers(2, 6))) < rng.uniform(0.2, 0.8)).astype(int)
        found = ps.identify(task_idata(supports), sure=SURE).table["verdict"] == "identified"
        return found.tolist(), wanted.supports_differ(supports)
    graph = _random_graph(rng)
    mode = "paper" if theorem in ("diversity", "set algebra (paper)") else "support"
    idata = table_idata(graph[None, None], decoder="linear" if theorem == "zeros" else "mlp")
    found = ps.identify(idata, sure=SURE, mode=mode)
    several = graph.sum(axis=0) > 1  # a factor of one feature is that feature's noise
    theirs = np.zeros(graph.shape[1], dtype=bool)
    theirs[several] = _by_words(theorem, graph[:, several], rng)
    if theorem in ("anchors", "diversity"):
        return (found.criteria[theorem] >= SURE).tolist(), theirs.tolist()
    return found.table["verdict"].isin(["identified", "alone"]).tolist(), theirs.tolist()


def _by_words(theorem: str, graph: np.ndarray, rng: np.random.Generator) -> Any:
    if graph.shape[1] == 0:
        return []
    if theorem == "anchors":
        return wanted.anchored(graph)
    if theorem == "structural sparsity":
        return wanted.structurally_sparse(graph)
    if theorem == "diversity":
        return wanted.diversity(graph).any(axis=0)
    if theorem == "zeros":
        ones = np.ones(len(graph), dtype=int)
        return wanted.free_given_zeros(graph, ones, rng, overdetermined=True).sum(axis=1) == 1
    apart = wanted.apart(graph, ("i", "iii") if theorem == "set algebra (support)" else ("i", "ii", "iii"))
    return (apart | np.eye(len(apart), dtype=bool)).all(axis=1)


def _random_graph(rng: np.random.Generator) -> np.ndarray:
    """Up to seven features of five factors, half of them with some anchors."""
    k = rng.integers(1, 6)
    graph = rng.random((rng.integers(2, 8), k)) < rng.choice([0.3, 0.5, 0.7])
    if rng.random() < 0.5:
        kinds = np.eye(k, dtype=bool)[rng.integers(0, k, size=rng.integers(1, 2 * k + 1))]
        graph = np.vstack([graph[:3], kinds, kinds[: rng.integers(0, 3)]])[:9]
    return graph.astype(int)


def table_idata(draws: np.ndarray, decoder: str = "mlp", **attrs: Any) -> Any:
    """Draws (chain, draw, feature, factor) as what `fit.edge_posterior` returns, as far as it is read."""
    import json

    from pyro_sparse.posterior import arviz as _arviz

    draws = np.asarray(draws, dtype=np.int8)
    edge, dims = ("feature", "factor"), ("chain", "draw", "feature", "factor")
    by_chain = draws.mean(axis=1)
    gap = np.ptp(by_chain, axis=0) if len(draws) > 1 else np.full(draws.shape[2:], np.nan)
    g, k = draws.shape[2:]
    return _arviz.from_dict(
        {
            "posterior": {"edge": (dims, draws), "weight": (dims, draws.astype(float))},
            "edge_posterior": {"probability": (edge, by_chain.mean(axis=0)), "gap": (edge, gap)},
            "sample_stats": {"kept": (("chain",), np.ones(len(draws), dtype=bool))},
        },
        {"feature": [f"x{j + 1}" for j in range(g)], "factor": [f"factor {i + 1}" for i in range(k)]},
        {"edge_method": "given", "is_score": 0, "settings": json.dumps({"decoder": decoder}), **attrs},
    )


def transition_idata(action: np.ndarray, time: np.ndarray) -> Any:
    """Two graphs known for sure as what `TransitionFit.edge_posterior` returns, as far as it is read."""
    from pyro_sparse.posterior import arviz as _arviz

    graphs = {"edge_time": (("target", "source"), time), "edge_action": (("target", "action"), action)}
    posterior = {
        name: (("chain", "draw", *dims), np.asarray(graph, dtype=np.int8)[None, None])
        for name, (dims, graph) in graphs.items()
    }
    names = [f"latent {i + 1}" for i in range(len(time))]
    return _arviz.from_dict(
        {
            "posterior": posterior,
            "edge_posterior": {"probability_time": (("target", "source"), np.asarray(time, dtype=float))},
            "sample_stats": {"kept": (("chain",), np.ones(1, dtype=bool))},
        },
        {"target": names, "source": names},
        {"kind": "transition", "is_score": 0, "best_restart": 0},
    )


def task_idata(supports: np.ndarray) -> Any:
    """Supports known for sure as what `MultiTaskFit.edge_posterior` returns, as far as it is read."""
    from pyro_sparse.posterior import arviz as _arviz

    edge, n = ("task", "latent"), supports.shape[1]
    own = {"block": np.arange(n)[None], "similarity": np.ones((1, n))}
    return _arviz.from_dict(
        {
            "posterior": {"edge": (("chain", "draw", *edge), supports[None, None])},
            "edge_posterior": {"probability": (edge, supports.astype(float))},
            "sample_stats": {"kept": (("chain",), np.ones(1, dtype=bool))},
            "alignment": {name: (("chain", "latent"), values) for name, values in own.items()},
        },
        {"latent": [f"latent {i + 1}" for i in range(n)]},
        {"kind": "tasks", "is_score": 0, "best_restart": 0},
    )


# ---- simulated fits ----------------------------------------------------------------------------------------
def _fit(setting: str, seed: int, quick: bool) -> Row:
    import pyro_sparse as ps

    if setting == "anchored60":
        fit, z, found, idata = _anchored(seed, quick)
    elif setting.startswith("proxy "):
        fit, z, found, idata = _proxy(setting.removeprefix("proxy "), seed, quick)
    elif setting.startswith("dependency "):
        fit, z, found, idata = _dependency(setting.removeprefix("dependency "), seed, quick)
    else:
        fit, z, found, idata = _transition(setting, seed, quick)
    return called(ps.identify(fit, sure=SURE, idata=idata), z, found)


def called(certificate: Any, z: np.ndarray, found: np.ndarray) -> Row:
    """How many estimates the certificate calls identified, and how many of these are a true latent."""
    from pyro_sparse.metrics import mcc

    match = mcc(z, found, "spearman")
    correlation = np.zeros(found.shape[1])
    matched = match.permutation >= 0
    correlation[match.permutation[matched]] = match.correlation[matched]
    verdicts = certificate.table["verdict"].tolist()
    named = np.array([verdict == "identified" for verdict in verdicts])
    return {
        "latents": z.shape[1],
        "identified": int(named.sum()),
        "right": int((correlation[named] >= FOUND).sum()),
        "least": float(correlation[named].min()) if named.any() else float("nan"),
        "others": int((correlation[~named] >= FOUND).sum()),
        "mcc": match.value,
        "verdicts": verdicts,
        "correlation": correlation.tolist(),
        "probability": certificate.table["probability"].tolist(),
    }


def _anchored(seed: int, quick: bool) -> tuple[Any, ...]:
    from pyro_sparse.datasets import anchored

    n, n_features, n_factors = (400, 18, 3) if quick else (1000, 60, 6)
    data = anchored(n, n_features, n_factors, n_test=500, seed=seed)
    short: Row = {"steps": 400} if quick else {}
    fit = sparse_fit(data.part("train")[0], n_factors, seed, restarts=2, **short)
    x, z = data.part("test")
    idata = fit.edge_posterior("mcmc", sweeps=40) if quick else fit.edge_posterior()
    return fit, z, fit.transform(x), idata


def _transition(dataset: str, seed: int, quick: bool) -> tuple[Any, ...]:
    from benchmarks import transition

    fit, data = transition.fitted(dataset, seed, quick)
    x, z, actions = data.part("test")
    found = fit.transform(x, actions=actions)
    return fit, z.reshape(-1, z.shape[-1]), found.reshape(-1, z.shape[-1]), fit.edge_posterior()


def _proxy(setting: str, seed: int, quick: bool) -> tuple[Any, ...]:
    import pyro_sparse as ps
    from benchmarks import proxy

    kind, rho, _ = proxy.SETTINGS[setting]
    stream = ps.datasets.proxy_data(kind, rho, n_tasks=300 if quick else proxy.TASKS, seed=seed)
    batch = stream.batch(0)
    x, z = stream.test(5000)
    short: Row = {"steps": 200, "sparse_steps": 50} if quick else {}
    model = ps.models.MultiTaskRegression(batch.x.shape[-1], z.shape[-1])
    fit = ps.fit(model, batch.x, batch.y, seed=seed, progress=False, **short)
    return fit, z, fit.transform(x), fit.edge_posterior()


def _dependency(structure: str, seed: int, quick: bool) -> tuple[Any, ...]:
    import pyro_sparse as ps

    d = 3 if quick else 5
    data = ps.datasets.dependency_data(structure, d, 3 * d, 2000 if quick else 10_000, seed=seed)
    short: Row = {"steps": 800, "restarts": 2} if quick else {}
    fit = ps.fit(ps.models.DependencyVAE(3 * d, d), data.x, seed=seed, progress=False, **short)
    return fit, data.z, fit.transform(data.x), fit.edge_posterior()


# ---- figures -----------------------------------------------------------------------------------------------
def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    figures: Row = {}
    for name in dict.fromkeys(row["setting"] for row in rows):
        own = [row for row in rows if row["setting"] == name]
        keys = (
            "latents",
            "identified",
            *(("graphs", "disagree") if name in THEOREMS else ("right", "others")),
        )
        figures[name] = {key: sum(row[key] for row in own) for key in keys}
        if name not in THEOREMS:
            n = figures[name]["identified"]
            figures[name] |= {
                "share_right": figures[name]["right"] / n if n else float("nan"),
                "asked": ASKED,
            }
            figures[name] |= {key: [row[key] for row in own] for key in ("least", "mcc")}
    return figures


def table(rows: list[Row]) -> list[Row]:
    """One line per theorem, or per simulated set."""
    return [{"setting": name, **figures} for name, figures in collect(rows, argparse.Namespace()).items()]
