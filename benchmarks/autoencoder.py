"""autoencoder: the graph between two dictionaries, where it is known, and whether another refit shows it.

Codes with a known graph (two or three parents, topics that make strangers fire together), a layer that has
learned the map, and `REFITS` pairs of small TopK dictionaries, trained here. `synthetic` compares the
posterior of all refits with the graph: average precision over all edges (those of latents that were not found
count as missed) and among latents found (cosine with the truth above .7), Brier skill and ECE there, and how
far it is above the plain correlation of the codes of the same latents. A latent that keeps another off is
hardly ever active with it, so `ap_exciting` leaves edges that inhibit out, and `inhibiting_named` is the
share of these that is found. `replication` asks whether a third refit shows (probability above one half by
itself) what the other two say of it: [said, found] for each bin of what is said.

``--real FOLDER`` instead trains pairs on activations that ``python -m benchmarks._minilm`` wrote there: each
of `ARMS` with three restarts of `ps.fit`, 1,536 latents on each side and 16 of them active, on `--tokens`
rows, steps in bfloat16. Figures are of held-out rows, a tenth as many.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 3, 1
REFITS = 3
ROWS, HELD = 300_000, 20_000
FULL: Row = {"rows": ROWS, "epochs": 3, "steps": 5000}
QUICK: Row = {"rows": 60_000, "epochs": 2, "steps": 800, "batch": 128, "lr": 5e-3, "small": True}
SIZES, K = (128, 64), 8
FOUND = 0.7  # cosine with a true direction
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0 + 1e-9)
ASKED = {"ap": 0.90, "ap_found": 0.96, "brier_skill": 0.85, "above_correlation": 0.10}
# Of the real pair: each trained with AuxK but where `aux` is 0
REAL_SIZES, REAL_K = (1536, 1536), 16
ARMS: dict[str, Row] = {
    "plain": {},
    "ratio": {"surrogate": "ratio", "weight": 0.5 / REAL_K},  # the ratio grows to the root of k
    "batchtopk": {"select": "batchtopk"},
    "plain_no_aux": {"aux": 0.0},
    "l1_no_aux": {"surrogate": "l1", "weight": 1.0, "aux": 0.0},
}
WITHIN, SURE, SURE_FOUND = 0.07, 0.9, 0.85


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--real", type=Path, help="folder with activations (benchmarks._minilm writes one)")
    parser.add_argument("--tokens", type=int, default=1_200_000, help="of --real, to learn from")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="of --real")
    parser.add_argument(
        "--edges", action="store_true", help="of --real: also whether refits show edges again"
    )


def tasks(options: argparse.Namespace) -> list[Row]:
    if options.real is not None:
        shared = {"seed": options.first_seed, "real": str(options.real), "tokens": options.tokens}
        return [{**shared, "arm": arm, "edges": options.edges} for arm in options.arms]
    return [
        {"seed": options.first_seed + seed, "quick": options.quick} for seed in report_seeds(options.seeds)
    ]


def run(
    seed: int,
    quick: bool = False,
    real: str | None = None,
    tokens: int = 0,
    arm: str = "plain",
    edges: bool = False,
) -> Row:
    if real is not None:
        return real_pair(Path(real), arm, tokens, seed, edges)
    return measured(seed, **(QUICK if quick else FULL))


def real_pair(folder: Path, arm: str, tokens: int, seed: int, edges: bool) -> Row:
    """Refits of one arm on recorded activations: cost of the training by itself, and figures of each."""
    import pyro_sparse as ps
    from benchmarks._minilm import read

    x, y, layer = read(folder)
    held = tokens // 9  # a tenth of all
    arguments = {"restarts": REFITS, "seed": seed, "dtype": "bfloat16", "holdout": held / (tokens + held)}
    if (penalty := ARMS[arm].get("surrogate")) is not None:
        weight = ARMS[arm]["weight"]
        arguments["dependency"] = ps.inference.DependencyPenalty(weight=weight, surrogate=penalty)
    own = {name: ARMS[arm][name] for name in ("select", "aux") if name in ARMS[arm]}
    pair = ps.models.AutoencoderPair(*REAL_SIZES, k=REAL_K, between=layer, **own)
    rows = x[: tokens + held], y[: tokens + held]
    arguments["steps"] = max(1, tokens // 512)  # one pass, however few rows there are
    with tempfile.TemporaryDirectory() as parts:
        paths = [f"{parts}/{i}.pt" for i in range(REFITS)]
        begun = time.process_time()
        for i, path in enumerate(paths):
            ps.fit_restart(i, path, pair, rows, **arguments)
        cost = time.process_time() - begun
        fit = ps.merge(paths, pair, rows, **arguments)
    figures: Row = {name: fit.metrics[name].tolist() for name in fit.metrics}
    figures |= {"cpu_s_per_M": cost / (REFITS * tokens) * 1e6, "held": held}
    if edges:
        graphs = fit.latent_graphs()
        figures["replication"] = [said_and_found(graphs, one, seed) for one in range(REFITS)]
    return figures


def measured(
    seed: int, rows: int, epochs: int, steps: int, batch: int = 256, lr: float = 2e-3, small: bool = False
) -> Row:
    """One known graph, its refits, and their figures."""
    import pyro_sparse as ps
    from benchmarks._autoencoders import Scaled, known_graph, learned_layer, trained

    shape = {"n_in": 32, "n_out": 16, "d": 32, "active": 3.0, "topics": 4} if small else {}
    sizes, k = ((40, 20), 5) if small else (SIZES, K)
    known = known_graph(seed, rows + HELD, **shape)
    x, y = known.x[:rows], known.y[:rows]
    layer = learned_layer(x, y, seed, hidden=256 if small else 768, steps=steps)
    units = [float(v.std(0).square().mean().sqrt()) for v in (x, y)]
    graphs, correlations = [], []
    for refit in range(REFITS):
        pair = [
            Scaled(trained(v / unit, n, k, 1000 * seed + 10 * refit + side, batch, lr, epochs), unit)
            for side, (v, unit, n) in enumerate(zip((x, y), units, sizes, strict=True))
        ]
        graphs.append(ps.latent_graph(*pair, layer, known.x[rows:], known.y[rows:]))
        f_in, f_out = (sae.encode(v[rows:]).numpy() for sae, v in zip(pair, (known.x, known.y), strict=True))
        correlations.append(correlation(f_out, f_in))
    idata = ps.edge_posterior(graphs, seed=seed)
    numbers = numbers_of(idata)
    places = [
        found_places(directions_of(graphs, number, side), true.numpy())
        for side, number, true in zip(
            ("out", "in"), numbers, (known.directions_out, known.directions_in), strict=True
        )
    ]
    rival = np.nanmean([chosen(c, numbers[0][:, r], numbers[1][:, r]) for r, c in enumerate(correlations)], 0)
    p = ps.edge_prob(idata).to_numpy()
    return {
        **figures(p, rival, known.graph, places),
        **by_sign(p, known.graph, known.weight < 0, places),
        "edges": int(known.graph.sum()),
        "in_found": len(places[1][0]) / known.graph.shape[1],
        "out_found": len(places[0][0]) / known.graph.shape[0],
        "ap_one": ap_of_one(graphs[0], known, seed),
        "replication": [pair for held in range(REFITS) for pair in said_and_found(graphs, held, seed)],
    }


def correlation(f_out: np.ndarray, f_in: np.ndarray) -> np.ndarray:
    """Size of the correlation of the codes, (output latent, input latent); 0 of latents that do not vary."""
    a, b = f_out - f_out.mean(0), f_in - f_in.mean(0)
    size = np.outer(np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=0))
    return np.abs(a.T @ b) / np.where(size > 0, size, 1.0)


def numbers_of(idata: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of output and input latents in each refit, (latent, refit)."""
    from pyro_sparse.posterior.arviz import get_group

    refits = get_group(idata, "refits")
    return refits["number_out"].to_numpy(), refits["number_in"].to_numpy()


def chosen(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Entries of latents by their numbers; NaN where a number is -1."""
    there = (rows >= 0)[:, None] & (columns >= 0)
    return np.where(there, table[np.ix_(rows, columns)], np.nan)


def directions_of(graphs: list[Any], number: np.ndarray, side: str) -> np.ndarray:
    """Mean direction of each latent over the refits that have it."""
    per_refit = [getattr(graph, f"directions_{side}") for graph in graphs]
    return np.array([sum(per_refit[r][i] for r, i in enumerate(row) if i >= 0) for row in number])


def found_places(directions: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True codes that were found, and the latent of each."""
    from scipy.optimize import linear_sum_assignment

    cosine = true @ (directions / np.linalg.norm(directions, axis=1, keepdims=True)).T
    code, latent = linear_sum_assignment(-cosine)
    good = cosine[code, latent] > FOUND
    return code[good], latent[good]


def figures(
    p: np.ndarray,
    rival: np.ndarray,
    graph: np.ndarray,
    places: list[tuple[np.ndarray, np.ndarray]],
) -> Row:
    """Of probabilities and rival scores (output latent, input latent) against the known graph."""
    from sklearn.metrics import average_precision_score

    from pyro_sparse.calibrate.scores import ece

    (code_out, out), (code_in, into) = places
    of_true = np.zeros((2, *graph.shape))
    for whole, scores in zip(of_true, (p, rival), strict=True):
        whole[np.ix_(code_out, code_in)] = np.nan_to_num(scores[np.ix_(out, into)])
    at = np.ix_(code_out, code_in)
    ap, ap_correlation = (float(average_precision_score(graph.ravel(), t.ravel())) for t in of_true)
    mine, truth = of_true[0][at], graph[at]
    return {
        "ap": ap,
        "ap_found": float(average_precision_score(truth.ravel(), mine.ravel())),
        "brier_skill": skill(mine, truth),
        "brier_skill_all": skill(of_true[0], graph),
        "ece": ece(mine, truth),
        "ap_correlation": ap_correlation,
        "above_correlation": ap - ap_correlation,
    }


def by_sign(
    p: np.ndarray, graph: np.ndarray, inhibits: np.ndarray, places: list[tuple[np.ndarray, np.ndarray]]
) -> Row:
    """Among latents found: share (p > .5) of edges that inhibit, and precision without these edges."""
    from sklearn.metrics import average_precision_score

    (code_out, out), (code_in, into) = places
    at = np.ix_(code_out, code_in)
    mine, truth, against = p[np.ix_(out, into)], graph[at], inhibits[at]
    return {
        "ap_exciting": float(average_precision_score(truth[~against], mine[~against])),
        "inhibiting": int(against.sum()),
        "inhibiting_named": float((mine[against] > 0.5).mean()) if against.any() else float("nan"),
    }


def skill(p: np.ndarray, truth: np.ndarray) -> float:
    """Brier skill against saying the base rate of every edge."""
    return float(1 - ((p - truth) ** 2).mean() / (truth.mean() * (1 - truth.mean())))


def ap_of_one(graph: Any, known: Any, seed: int) -> float:
    """Average precision over all edges of the posterior of one pair of dictionaries alone."""
    import pyro_sparse as ps

    idata = ps.edge_posterior(graph, seed=seed)
    places = [
        found_places(directions_of([graph], number, side), true.numpy())
        for side, number, true in zip(
            ("out", "in"), numbers_of(idata), (known.directions_out, known.directions_in), strict=True
        )
    ]
    p = ps.edge_prob(idata).to_numpy()
    return float(figures(p, p, known.graph, places)["ap"])


def said_and_found(graphs: list[Any], held: int, seed: int) -> list[list[float]]:
    """What the other refits say of each edge, and whether the one that is held out shows it."""
    import pyro_sparse as ps

    others = [r for r in range(len(graphs)) if r != held]
    shared = [shared_by_all(graphs, side) for side in ("out", "in")]
    if not all(map(len, shared)):
        return binned(np.zeros(0), np.zeros(0, dtype=bool))
    idata, alone = (ps.edge_posterior([graphs[r] for r in some], seed=seed) for some in (others, [held]))
    p, shown = (ps.edge_prob(posterior).to_numpy() for posterior in (idata, alone))
    pairs = []
    for same, ours, theirs in zip(shared, numbers_of(idata), numbers_of(alone), strict=True):
        place, place_held = ({n: i for i, n in enumerate(of[:, 0])} for of in (ours, theirs))
        rows = [
            (place[row[others[0]]], place_held[row[held]])
            for row in same
            if row[others[0]] in place and row[held] in place_held
        ]
        pairs.append(np.array(rows, dtype=int).reshape(-1, 2).T)
    (out, out_held), (into, into_held) = pairs
    said, shown_again = p[np.ix_(out, into)].ravel(), shown[np.ix_(out_held, into_held)].ravel() > 0.5
    return binned(said, shown_again)


def shared_by_all(graphs: list[Any], side: str) -> np.ndarray:
    """Numbers of the latents that all refits have, (latent, refit)."""
    from pyro_sparse.inference.edges.dictionaries import match_latents

    living = [getattr(graph, f"rate_{side}") > 0 for graph in graphs]
    same = match_latents([getattr(graph, f"directions_{side}") for graph in graphs], living).number
    return same[(same >= 0).all(1)]


def binned(said: np.ndarray, shown_again: np.ndarray) -> list[list[float]]:
    """Of each bin of what is said: its sum, how many were shown again, and how many there are."""
    home = np.digitize(said, BINS) - 1
    return [
        [float(said[home == b].sum()), int(shown_again[home == b].sum()), int((home == b).sum())]
        for b in range(len(BINS) - 1)
    ]


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Means over data sets, bins of all, and what of the asked is met."""
    if rows and "arm" in rows[0]:
        return {"real": {row["arm"]: real_summary(row) for row in rows}}
    names = (
        *ASKED, "ece", "brier_skill_all", "ap_correlation", "ap_one", "ap_exciting", "inhibiting_named",
        "in_found", "out_found",
    )  # fmt: skip
    synthetic = {name: float(np.nanmean([row[name] for row in rows])) for name in names}
    sums = np.sum([np.reshape(row["replication"], (-1, len(BINS) - 1, 3)).sum(0) for row in rows], 0)
    there = sums[:, 2] > 0
    bins = sums[there, :2] / sums[there, 2:]
    sure = bins[-1, 1] if there[-1] else float("nan")
    met = {name: bool(synthetic[name] >= least) for name, least in ASKED.items()}
    met |= {"bins": bool((np.abs(bins[:, 0] - bins[:, 1]) <= WITHIN).all()), "sure": bool(sure >= SURE_FOUND)}
    return {
        "synthetic": synthetic,
        "replication": bins.tolist(),
        "replication_n": sums[there, 2].astype(int).tolist(),
        "sure_found": float(sure),
        "met": met,
    }


def real_summary(row: Row) -> Row:
    """Means over the refits of an arm, and, of its edges, what was said and found in each bin."""
    names = [n for n, v in row.items() if isinstance(v, list) and n != "replication"]
    summary = {name: float(np.mean(row[name])) for name in names} | {"cpu_s_per_M": row["cpu_s_per_M"]}
    if "replication" in row:  # empty where refits share no latent
        sums = np.sum(row["replication"], 0)
        there = sums[:, 2] > 0
        summary["replication"] = (sums[there, :2] / sums[there, 2:]).tolist()
        summary["replication_n"] = sums[there, 2].astype(int).tolist()
    return summary


def table(rows: list[Row]) -> list[Row]:
    """One line per data set."""
    return [{k: v for k, v in row.items() if k not in {"replication", "task", "commit"}} for row in rows]
