"""observed: which variable drives which, and at which lag, where variables are measured themselves.

Random systems of 3 to 20 variables, 1 to 3 lags and 100 to 2,000 steps (`_observed_data.py`): half of them
linear, half of tanh, products, thresholds and sines, noise normal or not. Every method looks three lags back
(ours chooses how many of them it has). Average precision over the edges of a system, mean over systems; ECE
of all edges together, and its null, what a calibrated method with the same probabilities would have. A
p-value is no probability: of PCMCI, PCMCI+ and the VAR the number is 1 - p, of the lasso and of VAR-LiNGAM
the share of bootstrap samples that select the edge (of both AP goes by the size of the coefficient,
and without ``--bootstrap`` VAR-LiNGAM has no ECE). The peers are in the extra `observed-peers`; those not
installed are left out. A seed is one system.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import TUNING, Row, report_seeds
from benchmarks._observed_data import draw_system

SEEDS, QUICK_SEEDS = 100, 3
MAX_LAG = 3
_RESAMPLES = 30  # of the lasso
_LINGAM_RESAMPLES = 10
_NULL_DRAWS = 200

Scores = tuple[NDArray[np.float64], NDArray[np.float64] | None]  # (lag, target, source): rank by, and P


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--ours", action="store_true", help="only our method")
    parser.add_argument("--bootstrap", action="store_true", help="also a bootstrap of VAR-LiNGAM: slow")


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {
            "seed": options.first_seed + seed,
            "ours_only": options.ours,
            "bootstrap": options.bootstrap,
            "quick": options.quick,
        }
        for seed in report_seeds(options.seeds)
    ]


def run(seed: int, ours_only: bool = False, bootstrap: bool = False, quick: bool = False) -> Row:
    from sklearn.metrics import average_precision_score

    system = draw_system(seed, **({"d": 4 + 2 * (seed % 3), "n": 300} if quick else {}))
    truth = np.zeros((MAX_LAG, *system.graph.shape[1:]), bool)
    truth[: len(system.graph)] = system.graph
    row: Row = {
        "d": truth.shape[1],
        "n": len(system.x),
        "lags": len(system.graph),
        "kind": system.kind,
        "noise": system.noise,
        "truth": truth.astype(int).ravel().tolist(),
    }
    _warm_up(ours_only)
    for name, method in methods(ours_only, bootstrap).items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                rank, probability = method(system.x, seed)
            except ImportError:
                continue
        row[f"cpu_s {name}"] = round(time.process_time() - start, 3)
        row[f"ap {name}"] = float(average_precision_score(truth.ravel(), rank.ravel()))
        if probability is not None:
            row[f"p {name}"] = np.round(probability.ravel(), 4).tolist()
    return row


def methods(ours_only: bool, bootstrap: bool) -> dict[str, Callable[[NDArray, int], Scores]]:
    """Each from (x, seed) to numbers by (lag, target, source)."""
    ours: dict[str, Callable[[NDArray, int], Scores]] = {
        "ours": _ours,
    }
    if ours_only:
        return ours
    return {
        **ours,
        "pcmci": _pcmci,
        "pcmci+": _pcmci_plus,
        "var": _var,
        "lasso": _lasso,
        "varlingam": lambda x, seed: _varlingam(x, seed, bootstrap),
    }


@cache
def _warm_up(ours_only: bool) -> None:
    """Imports, and what is compiled at the first call, are no part of a method's time."""
    x = draw_system(TUNING, d=3, n=100).x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in methods(ours_only, bootstrap=False).values():
            with suppress(ImportError):
                method(x, 0)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    from pyro_sparse.calibrate.scores import ece, ece_when_calibrated

    names = [key.removeprefix("ap ") for key in rows[0] if key.startswith("ap ")]
    result: Row = {"n": len(rows), "ap": {}, "ece": {}, "ece_null": {}, "cpu_s": {}}
    for kind in ("linear", "nonlinear"):
        result[f"ap_{kind}"] = {}
    for name in names:
        result["ap"][name] = float(np.mean([row[f"ap {name}"] for row in rows]))
        result["cpu_s"][name] = float(np.mean([row[f"cpu_s {name}"] for row in rows]))
        for kind in ("linear", "nonlinear"):
            of_kind = [row[f"ap {name}"] for row in rows if row["kind"] == kind]
            result[f"ap_{kind}"][name] = float(np.mean(of_kind)) if of_kind else None
        if f"p {name}" in rows[0]:
            p = np.concatenate([row[f"p {name}"] for row in rows])
            truth = np.concatenate([row["truth"] for row in rows])
            result["ece"][name] = float(ece(p, truth))
            result["ece_null"][name] = float(np.mean(ece_when_calibrated(p, simulations=_NULL_DRAWS)))
            sure = p >= 0.95
            result.setdefault("false_of_sure", {})[name] = [int((sure & (truth == 0)).sum()), int(sure.sum())]
    return result


def table(rows: list[Row]) -> list[Row]:
    """One row a system, without its edges."""
    return [
        {k: v for k, v in row.items() if k not in ("task", "commit", "ours_only", "bootstrap", "quick")}
        for row in rows
    ]


def _ours(x: NDArray, seed: int) -> Scores:
    import pyro_sparse as ps

    model = ps.models.ObservedTransition(lags="auto", max_lags=MAX_LAG)
    fit = ps.fit(model, x, seed=seed, progress=False)
    d = x.shape[1]
    found = fit.probability.reshape(d, fit.lags, d).transpose(1, 0, 2)
    probability = np.zeros((MAX_LAG, d, d))
    probability[: fit.lags] = found
    return probability, probability


def _pcmci(x: NDArray, seed: int) -> Scores:
    return _tigramite(x, plus=False)


def _pcmci_plus(x: NDArray, seed: int) -> Scores:
    return _tigramite(x, plus=True)


def _tigramite(x: NDArray, plus: bool) -> Scores:
    from tigramite import data_processing
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    search = PCMCI(dataframe=data_processing.DataFrame(x), cond_ind_test=ParCorr(), verbosity=0)
    if plus:
        answer = search.run_pcmciplus(tau_min=0, tau_max=MAX_LAG, pc_alpha=0.01)
    else:
        answer = search.run_pcmci(tau_min=1, tau_max=MAX_LAG, pc_alpha=0.2)
    return _by_p(answer["p_matrix"][:, :, 1:].transpose(2, 1, 0))


def _var(x: NDArray, seed: int) -> Scores:
    from statsmodels.tsa.api import VAR

    d = x.shape[1]
    p = np.asarray(VAR(x).fit(MAX_LAG).pvalues)[1:]  # without the constant: (lag and source, target)
    return _by_p(p.reshape(MAX_LAG, d, d).transpose(0, 2, 1))


def _by_p(p: NDArray) -> Scores:
    # Ranked by log p: 1 - p is 1 for all that are sure.
    return -np.log(np.maximum(p, 1e-300)), 1 - p


def _lasso(x: NDArray, seed: int) -> Scores:
    from sklearn.linear_model import Lasso, LassoCV

    rng = np.random.default_rng(seed)
    inputs, targets, d = *_lagged(x), x.shape[1]
    share, size = np.zeros((d, inputs.shape[1])), np.zeros((d, inputs.shape[1]))
    for i in range(d):
        model = LassoCV(cv=5).fit(inputs, targets[:, i])
        size[i] = np.abs(model.coef_)
        refit = Lasso(alpha=model.alpha_)
        for _ in range(_RESAMPLES):
            rows = rng.integers(len(inputs), size=len(inputs))
            share[i] += (refit.fit(inputs[rows], targets[rows, i]).coef_ != 0) / _RESAMPLES
    by_lag = [a.reshape(d, MAX_LAG, d).transpose(1, 0, 2) for a in (size, share)]
    return by_lag[0], by_lag[1]


def _varlingam(x: NDArray, seed: int, bootstrap: bool) -> Scores:
    import lingam

    d, x = x.shape[1], (x - x.mean(0)) / x.std(0)
    model = lingam.VARLiNGAM(lags=MAX_LAG, criterion=None, prune=True, random_state=seed).fit(x)
    rank = np.abs(np.stack([np.asarray(b) for b in model.adjacency_matrices_[1:]]))
    if not bootstrap:
        return rank, None
    resampled = lingam.VARLiNGAM(lags=MAX_LAG, criterion=None, prune=True, random_state=seed).bootstrap(
        x, n_sampling=_LINGAM_RESAMPLES
    )
    share = np.asarray(resampled.get_probabilities(min_causal_effect=0.01))[1:]
    return rank, share.reshape(MAX_LAG, d, d)


def _lagged(x: NDArray) -> tuple[NDArray, NDArray]:
    x = (x - x.mean(0)) / x.std(0)
    n: Any = len(x)
    return np.concatenate([x[MAX_LAG - k : n - k] for k in range(1, MAX_LAG + 1)], 1), x[MAX_LAG:]
