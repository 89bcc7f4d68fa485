"""False edges called present on tables of curves that no prior here describes.

Four factors of correlation .5 stand behind 30 features; each feature is one of seven curves (straight,
saturating, even, exponential, a sine, a step) of a random mixture of one to three of them, plus noise. An
edge that `ps.summary` calls *present* is false if the true factor that its factor stands for does not reach
the feature, or if its factor stands for none: factors are matched by the correlation of their scores. Counts
are summed over tables, beside what the probabilities of these edges claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import pyro_sparse as ps

from . import _common

__all__ = ["COUNTS", "edge_counts", "off_model", "run", "simulate"]

Array = NDArray[np.float64]

COUNTS = ("present", "present_false", "claimed_false", "true", "true_present")
_ROWS, _FEATURES, _FACTORS, _CORRELATION = 400, 30, 4, 0.5
_OFFERED = 6  # factors
_RESTARTS = 8
_N_PARENTS = (0.45, 0.35, 0.2)  # probability of one, two and three
_CURVES: tuple[Callable[[Array], Array], ...] = (
    lambda u: u,
    lambda u: np.tanh(2 * u),
    np.square,
    lambda u: np.exp(0.8 * u),
    lambda u: np.sin(1.5 * u),
    lambda u: np.where(u > 0, 1.0, 0.0),
    np.abs,
)


def simulate(seed: int, n_rows: int = _ROWS) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A table, its factors (row, factor) and its true edges (feature, factor).

    Parameters
    ----------
    seed : int
    n_rows : int
    """
    rng = np.random.default_rng([seed, 38])
    cov = np.where(np.eye(_FACTORS, dtype=bool), 1.0, _CORRELATION)
    z = rng.multivariate_normal(np.zeros(_FACTORS), cov, size=n_rows)
    edges = np.zeros((_FEATURES, _FACTORS), dtype=bool)
    x = np.empty((n_rows, _FEATURES))
    for j in range(_FEATURES):
        parents = rng.permutation(_FACTORS)[: rng.choice([1, 2, 3], p=_N_PARENTS)]
        edges[j, parents] = True
        weight = rng.uniform(0.5, 1.5, len(parents)) * rng.choice([-1.0, 1.0], len(parents))
        index = z[:, parents] @ weight
        index /= np.sqrt(weight @ cov[np.ix_(parents, parents)] @ weight)
        signal = _CURVES[rng.integers(len(_CURVES))](index)
        signal = (signal - signal.mean()) / signal.std()
        noise = rng.uniform(0.15, 0.9) * rng.normal(size=n_rows)
        x[:, j] = rng.normal() + rng.uniform(0.5, 3.0) * (signal + noise)
    return x, z, edges


def edge_counts(
    verdict: NDArray[np.str_], probability: Array, scores: Array, z: Array, edges: NDArray[np.bool_]
) -> dict[str, float]:
    """Edges called present, false ones among them, what they claim, true ones, and true ones found.

    Parameters
    ----------
    verdict : ndarray of str (feature, factor)
        As `ps.summary` has it.
    probability : ndarray (feature, factor)
    scores : ndarray (row, factor)
        Of the fit.
    z : ndarray (row, true factor)
    edges : ndarray of bool (feature, true factor)
    """
    moving = scores.std(0) > 0
    between = np.zeros((z.shape[1], scores.shape[1]))
    between[:, moving] = np.corrcoef(z.T, scores[:, moving].T)[: z.shape[1], z.shape[1] :]
    between *= (verdict != "absent").any(0)  # a factor without edges stands for nothing
    which, place = linear_sum_assignment(-np.abs(between))
    truth = np.zeros(verdict.shape, dtype=bool)
    truth[:, place] = edges[:, which]
    present = verdict == "present"
    return {
        "present": int(present.sum()),
        "present_false": int((present & ~truth).sum()),
        "claimed_false": float((1 - probability[present]).sum()),
        "true": int(edges.sum()),
        "true_present": int((present & truth).sum()),
    }


def run(seed: int, quick: bool = False) -> dict[str, float]:
    """Counts of one table.

    Parameters
    ----------
    seed : int
    quick : bool
        Half of the rows, two restarts and short chains: to see that it runs.
    """
    x, z, edges = simulate(seed, _ROWS // 2 if quick else _ROWS)
    model = ps.models.SparseDecoder(n_features=_FEATURES, n_factors=_OFFERED)
    fit = ps.fit(model, x, restarts=2 if quick else _RESTARTS, seed=seed, progress=False)
    table = ps.summary(fit.edge_posterior(progress=False, **({"sweeps": 40} if quick else {})))
    shape = {"index": fit.feature_names, "columns": fit.factor_names}
    verdict, probability = (
        table.pivot(index="feature", columns="factor", values=name).reindex(**shape).to_numpy()
        for name in ("verdict", "probability")
    )
    return edge_counts(verdict.astype(str), probability.astype(float), fit.transform(), z, edges)


def off_model(
    seeds: Sequence[int], jobs: int = 1, quick: bool = False, cache: str | Path | None = None
) -> dict[str, float]:
    """Counts summed over tables.

    Parameters
    ----------
    seeds : sequence of int
    jobs : int
        Processes at a time.
    quick : bool
        As in `run`.
    cache : path, optional
        Folder that keeps each table's counts, so that the rest can go on later or elsewhere.

    Returns
    -------
    dict
        "present", "present_false", "claimed_false" (expected number), "true", "true_present".
    """
    record = None
    if cache is not None:
        record = Path(cache) / "off_model.jsonl"
        record.parent.mkdir(parents=True, exist_ok=True)
    tasks: list[dict[str, Any]] = [{"seed": int(seed), "quick": quick} for seed in seeds]
    if jobs == 1 and record is None:
        rows: list[dict[str, Any]] = [dict(run(**task)) for task in tasks]
    else:
        rows = _common.run_tasks(__name__, tasks, jobs, record)
    return {name: sum(row[name] for row in rows) for name in COUNTS}
