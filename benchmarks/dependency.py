"""dependency: are latents and graph found from the sparsity of the decoder's Jacobian alone?

Tables of 10,000 rows of 3 to 10 latents and three times as many features (--square: as many), of a cycle, a
triangular and a random diverse structure, decoder of the fit per feature or shared. MCC is Spearman's of the
fit's factors, F1 of edges more probable than not, MCC(x, z) what the features themselves score, and of square
tables, whose g folds, what the posterior means by the table's own law score on the first 200 rows. Beside it
(--rivals) the same program with the paper's penalty (L1, weight .05, its own axes), with the Hessian penalty,
OroJaR, with none, and varimax on principal components. --outside: structures that are not diverse and
mechanisms outside the family. A seed is one table of each cell.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds
from benchmarks._posterior_mean import posterior_mean

SEEDS, QUICK_SEEDS = 5, 1
STRUCTURES = ("cycle", "random", "triangular")
LATENTS = range(3, 11)
OURS = ("per_feature", "shared")
_JUDGED = 200  # rows of a square table whose posterior means are found
RIVALS = ("none", "paper", "hessian", "orojar", "varimax")
OUTSIDE = (
    ("ones", "leaky_relu"),
    ("duplicate", "leaky_relu"),
    ("cycle", "softplus"),
    ("cycle", "shared_mlp"),
    ("cycle", "sine"),
    ("cycle", "product"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--latents", type=int, action="append", help="only this number (repeatable)")
    parser.add_argument("--decoder", choices=OURS, action="append", help="only this decoder (repeatable)")
    parser.add_argument("--square", action="store_true", help="also as many features as latents")
    parser.add_argument("--rivals", action="store_true", help="also the other methods")
    parser.add_argument("--rival", choices=RIVALS, action="append", help="also this one (repeatable)")
    parser.add_argument("--outside", action="store_true", help="also what the theorem does not cover")


def tasks(options: argparse.Namespace) -> list[Row]:
    latents = options.latents or ([3] if options.quick else LATENTS)
    ours = options.decoder or (OURS[:1] if options.quick else OURS)
    methods = [*ours, *(RIVALS if options.rivals else options.rival or ())]
    jobs = []
    for seed in report_seeds(options.seeds):
        own = {"seed": options.first_seed + seed, "quick": options.quick}
        jobs += [
            {"structure": s, "d": d, "times": times, "method": method, **own}
            for times in ((3, 1) if options.square else (3,))
            for d in latents
            for s in STRUCTURES
            for method in methods
        ]
        if options.outside:
            jobs += [
                {"structure": s, "d": 5, "times": 3, "method": OURS[0], "mechanism": m, **own}
                for s, m in OUTSIDE
            ]
    return jobs


def run(
    structure: str,
    d: int,
    times: int,
    method: str,
    seed: int,
    mechanism: str = "leaky_relu",
    quick: bool = False,
) -> Row:
    from pyro_sparse.datasets import dependency_data
    from pyro_sparse.metrics import mcc, support_scores

    data = dependency_data(structure, d, times * d, 2000 if quick else 10_000, mechanism=mechanism, seed=seed)
    row: Row = {"mcc_x": float(mcc(data.z, data.x, "spearman").value)}
    if times == 1 and method == OURS[0]:
        row["mcc_best"] = _best(data)
    if method == "varimax":
        z, edges, extra = _varimax(data.x, d)
    else:
        z, edges, extra = _fitted(data.x, d, method, seed, quick)
    matched = mcc(data.z, z, "spearman")
    support = support_scores(data.support, edges > 0.5, matched.permutation)
    order = matched.permutation
    return {
        **row,
        "mcc": float(matched.value),
        "least": float(np.min(matched.correlation)),
        "f1": support.f1,
        "brier": float(((edges[:, order] - data.support) ** 2).mean()),
        "probability": edges[:, order].round(4).tolist(),
        "truth": data.support.tolist(),
        **extra,
    }


def _best(data: Any) -> float:
    from pyro_sparse.datasets.dependency import dependency_mean
    from pyro_sparse.metrics import mcc

    x, d = data.x[:_JUDGED], data.z.shape[1]
    z = posterior_mean(lambda z: dependency_mean(data, z), x, data.settings["noise"], d)
    return float(mcc(data.z[:_JUDGED], z, "spearman").value)


def _fitted(x: np.ndarray, d: int, method: str, seed: int, quick: bool) -> tuple[np.ndarray, np.ndarray, Row]:
    import pyro_sparse as ps

    decoder = method if method in OURS else OURS[0]
    settings: dict[str, Any] = {"steps": 800, "restarts": 2} if quick else {}
    if method not in OURS:
        settings |= {"axes_at": None, "dependency": _penalty(method)}
    model = ps.models.DependencyVAE(x.shape[1], d, decoder=decoder)
    fit = ps.fit(model, x, seed=seed, progress=False, **settings)
    found = fit.edge_posterior()["edge_posterior"]
    gap = found["gap"].to_numpy()
    return (
        fit.transform(x),
        found["probability"].to_numpy(),
        {
            "elbo": fit.elbo.tolist(),
            "heldout": fit.heldout_elbo.tolist(),
            "best": fit.best,
            "congruence": fit.alignment["congruence"].min(1).tolist(),
            "gap": float(np.nanmax(gap)),
            "warnings": fit.warnings,
        },
    )


def _penalty(method: str) -> Any:
    from pyro_sparse.inference import DependencyPenalty
    from pyro_sparse.rivals import HessianPenalty, OrthogonalJacobian

    kinds = {"paper": DependencyPenalty, "hessian": HessianPenalty, "orojar": OrthogonalJacobian}
    return kinds[method](weight=0.05) if method in kinds else None


def _varimax(x: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray, Row]:
    from sklearn.decomposition import PCA

    from pyro_sparse.inference import strength_mixture
    from pyro_sparse.inference.rotation.axes import varimax

    found = PCA(d, whiten=True).fit(x)
    loadings = found.components_.T * np.sqrt(found.explained_variance_)
    turn = varimax(loadings)
    share = np.abs(loadings @ turn)
    return (
        found.transform(x) @ turn,
        strength_mixture(share / np.linalg.norm(share, axis=1, keepdims=True)).probability,
        {},
    )


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    def cells(own: list[Row], key: str) -> Row:
        return {
            s: {
                str(d): [r[key] for r in own if (r["structure"], r["d"]) == (s, d)]
                for d in sorted({r["d"] for r in own})
            }
            for s in dict.fromkeys(r["structure"] for r in own)
        }

    result: Row = {}
    inside = [r for r in rows if "mechanism" not in r]
    for times in dict.fromkeys(r["times"] for r in inside):
        name = "" if times == 3 else "square_"
        for method in dict.fromkeys(r["method"] for r in inside):
            own = [r for r in inside if (r["times"], r["method"]) == (times, method)]
            for key in ("mcc", "f1"):
                result[f"{name}{key}_{method}"] = cells(own, key)
        own = [r for r in inside if r["times"] == times]
        if any("mcc_best" in r for r in own):
            result[f"{name}mcc_best"] = cells([r for r in own if "mcc_best" in r], "mcc_best")
        result[f"{name}mcc_x"] = cells([r for r in own if r["method"] == own[0]["method"]], "mcc_x")
    result["outside"] = [
        {key: r[key] for key in ("structure", "mechanism", "seed", "mcc", "f1", "mcc_x", "warnings")}
        for r in rows
        if "mechanism" in r
    ]
    return result
