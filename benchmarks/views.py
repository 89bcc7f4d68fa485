"""views: is the variance that factors explain in each view right, and are they active where it says so?

300 rows, three views of 20, 15 and 12 features, four factors, each active in a random set of views (all seven
that are not empty are as likely). Of the 900 blocks of cells (a row in a view) 30 % are missing at random; no
row is without a view. Where a factor is active, 10 to 60 % of the view's features have an edge. A linear
decoder with every default is fitted with six factors, and `ps.variance_explained` is asked. The true share of
a factor is the mean, over a view's features, of what it contributes to their population variance; a factor is
active from a share of 1 % on, the default of `ps.variance_explained`. Variants:

- `program` (even seeds): normal factors and noise, loadings from the slab.
- `off_model` (odd seeds): skewed, flat, heavy-tailed and two-humped factors, noise of Student's t with 5
  degrees of freedom, loadings uniform in size.
- `mixed`: as `program`, but the views are of numbers, of yes/no answers and of counts (Poisson). Shares of
  answers and counts are those of the linear predictor's variance plus pi^2/3 and 1 (`variance_beside`).
- `unadjusted`: the first two in turn. Elsewhere views are drawn until every active factor has a share of at
  least .03 there and at least three edges, so that there is no doubt where a factor is active. Here they are
  left as they come, and shares may be on either side of 1 %; a factor has at least three edges in all.

Fitted factors are matched to the true ones by the congruence of their loadings; a true factor is `matched` if
that is .8 or more. `views` has the figures of `program` and `off_model` together:

- `r2_error`: mean absolute error of shares, over views and matched factors; `r2_error_active`: of those where
  the factor is active, and `r2_bias_active` the mean error; `r2_error_total`, `r2_bias_total`: of the share
  of all factors in a view.
- `activity_ap`: average precision of `p_active`, over views and true factors, mean over tables. A factor that
  is not matched has 0, and a fitted factor that matches none is a false candidate in every view.
  `activity_ap_pooled`: of all tables as one. `brier`, `ece`, `ece_null` (that of perfect probabilities): of
  the same candidates. With `_matched` behind them: of matched factors only.
- `sure`, `sure_right`: candidates with a `p_active` of .95 or more, and how many of them are active.
- `cover`, `cover_total`: share of 90 % intervals that hold the true share, of matched factors where they are
  active, and of all factors.
- `spare_active`: tables where a fitted factor that matches none has a `p_active` of .95 or more in some view;
  `spare_single`: tables where such a factor has nine tenths of its squared loadings on one feature.
- `method_cpu_s`: CPU seconds of fit and chains, median.

With `_mofapy2` and `_mofaflex` behind them: the same of these packages, given the same views (numbers
standardised), likelihoods and number of factors; null where they are not installed. mofapy2 is at its
defaults; mofaflex has the weights and rate of its preset `MOFA`, and negative binomial counts, for it has no
Poisson likelihood. Shares are what they call variance explained (`calculate_variance_explained`, `get_r2`),
which is also the score of activity. Of answers and counts they are shares of something else; their error in
`mixed` is null.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

import pyro_sparse as ps
from benchmarks._common import Row, report_seeds
from benchmarks._peers import METHODS, QUICK_FIT, QUICK_SWEEPS, cpu
from benchmarks.batches import average_precision, mean_of, odd_factors
from pyro_sparse.calibrate.scores import ece, ece_when_calibrated
from pyro_sparse.graphs.alignment import match_columns, similarity
from pyro_sparse.posterior.draws import chain_weights
from pyro_sparse.posterior.variance import ACTIVE, TOTAL

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SEEDS, QUICK_SEEDS = 50, 2
OTHER_SEEDS = 20  # tables of `mixed` and of `unadjusted`
VARIANTS = ("normal", "mixed", "unadjusted")  # `normal` is `program` and `off_model`
DRAWN = ("program", "off_model", "mixed", "unadjusted")


class Size(NamedTuple):
    """Of a table; `offered` factors are fitted."""

    rows: int
    features: tuple[int, int, int]
    factors: int
    offered: int


SIZE, QUICK_SIZE = Size(300, (20, 15, 12), 4, 6), Size(150, (9, 8, 7), 2, 3)
NAMES = ("a", "b", "c")  # of the views
MISSING = 0.3  # of the blocks
EDGE_SHARE = (0.1, 0.6)  # of features, where a factor is active
CLEAR, EDGES = 0.03, 3  # share and edges that an active factor has at least
BESIDE = {"normal": 1.0, "bernoulli": np.pi**2 / 3, "poisson": 1.0}  # variance beside the predictor's
RATE = {"normal": 1.0, "bernoulli": 1.0, "poisson": 2.0}  # of the slab, Laplace
LOADING, NOISE_DF = (0.25, 1.0), 5  # off the model
INTERCEPT = 1.0  # linear predictors of answers and counts are centred between minus and plus it
MATCHED = 0.8  # congruence of loadings from which a factor is the true one
SURE, SINGLE = 0.95, 0.9
QUICK_EPOCHS = 200  # of mofaflex
PEERS = ("mofapy2", "mofaflex")
COMMON = (
    "r2_error", "r2_error_active", "r2_bias_active", "r2_error_total", "r2_bias_total", "activity_ap",
    "activity_ap_pooled", "matched", "factors", "spare_single", "method_cpu_s", "n",
)  # fmt: skip


class Known(NamedTuple):
    """A table in views, and what is behind it.

    Attributes
    ----------
    views : dict of str to DataFrame
        The rows that were seen.
    kinds : tuple of str
        Likelihood of each view.
    loading : ndarray (feature, factor)
        Standardised: their squares are shares of variance.
    offered : int
        How many factors are fitted.
    """

    views: dict[str, pd.DataFrame]
    kinds: tuple[str, ...]
    loading: Array
    offered: int


class Said(NamedTuple):
    """What a method says.

    Attributes
    ----------
    loading : ndarray (feature, factor)
    share, score : ndarray (view, factor)
        Share of variance, and how sure it is that the factor is active.
    total : ndarray (view,)
        Share of variance of all factors.
    limits, total_limits : ndarray (view, factor, 2), (view, 2), optional
        Of 90 % intervals of the shares.
    """

    loading: Array
    share: Array
    score: Array
    total: Array
    limits: Array | None = None
    total_limits: Array | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="only these")


def tasks(options: argparse.Namespace) -> list[Row]:
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    few = seeds[:1] if options.quick else seeds[:OTHER_SEEDS]
    return [
        {"variant": _half(seed) if variant == "normal" else variant, "seed": seed, "quick": options.quick}
        for variant in options.variants
        for seed in (seeds if variant == "normal" else few)
    ]


def _half(seed: int) -> str:
    return "off_model" if seed % 2 else "program"


def run(variant: str, seed: int, quick: bool = False) -> Row:
    known = table_of(variant, seed, QUICK_SIZE if quick else SIZE)
    row: Row = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, method in FITS.items():
            suffix = f"_{name}" if name else ""
            if name and not METHODS[name].installed:
                continue
            start = cpu()
            with quietly() if name else contextlib.nullcontext():
                said = method(known, seed, quick)
            row[f"method_cpu_s{suffix}"] = cpu() - start
            row |= {f"{figure}{suffix}": value for figure, value in scored(known, said).items()}
    return row


@contextlib.contextmanager
def quietly() -> Any:
    """Packages print, and the last line is ours."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield


# ---- tables ------------------------------------------------------------------------------------------------
def table_of(variant: str, seed: int, size: Size) -> Known:
    """The table of a variant and a seed."""
    rng = np.random.default_rng([seed, 51 + DRAWN.index(variant)])
    off_model = variant == "off_model" or (variant == "unadjusted" and _half(seed) == "off_model")
    kinds = ("normal", "bernoulli", "poisson") if variant == "mixed" else ("normal",) * 3
    active = subsets(rng, size.factors)
    weights = drawn_weights(rng, size, active, kinds, off_model, clear=variant != "unadjusted")
    z = odd_factors(rng, size.rows, size.factors) if off_model else rng.normal(size=(size.rows, size.factors))
    seen = seen_blocks(rng, size.rows)
    names = np.array([f"row {i + 1}" for i in range(size.rows)])
    views = {}
    for m, (name, kind, weight) in enumerate(zip(NAMES, kinds, weights, strict=True)):
        x = cells(rng, kind, z @ weight.T, off_model)[seen[:, m]]
        columns = [f"x{j + 1}" for j in range(len(weight))]
        views[name] = pd.DataFrame(x, index=names[seen[:, m]], columns=columns)
    loading = np.concatenate([standardised(*pair) for pair in zip(weights, kinds, strict=True)])
    return Known(views, kinds, loading, size.offered)


def subsets(rng: np.random.Generator, n_factors: int) -> Mask:
    """Views in which each factor is active, (view, factor): one of the subsets that are not empty."""
    codes = rng.integers(1, 2 ** len(NAMES), size=n_factors)
    return (codes >> np.arange(len(NAMES))[:, None]) % 2 == 1


def drawn_weights(
    rng: np.random.Generator, size: Size, active: Mask, kinds: tuple[str, ...], off_model: bool, clear: bool
) -> list[Array]:
    """Of each view, (feature, factor), in units of the noise or of the linear predictor."""
    while True:
        weights = [
            view_weights(rng, n, own, kind, off_model, clear)
            for n, own, kind in zip(size.features, active, kinds, strict=True)
        ]
        if (np.concatenate(weights) != 0).sum(0).min() >= EDGES:
            return weights


def view_weights(
    rng: np.random.Generator, n_features: int, active: Mask, kind: str, off_model: bool, clear: bool
) -> Array:
    """Of one view; `clear`: again until its active factors have `CLEAR` of its variance and `EDGES` edges."""
    while True:
        shape = (n_features, len(active))
        edge = (rng.random(shape) < rng.uniform(*EDGE_SHARE, len(active))) & active
        if off_model:
            weight = edge * rng.uniform(*LOADING, shape) * rng.choice([-1.0, 1.0], shape)
        else:
            weight = edge * rng.laplace(scale=1 / RATE[kind], size=shape)
        share = (standardised(weight, kind) ** 2).mean(0)
        if not clear or ((share >= CLEAR) & (edge.sum(0) >= EDGES))[active].all():
            return weight


def standardised(weight: Array, kind: str) -> Array:
    """Signed roots of shares of variance."""
    return weight / np.sqrt(BESIDE[kind] + (weight**2).sum(1, keepdims=True))


def seen_blocks(rng: np.random.Generator, n_rows: int) -> Mask:
    """Which views each row has, (row, view): one at random, and of the other blocks as many as are left."""
    n_views = len(NAMES)
    first = np.arange(n_rows) * n_views + rng.integers(n_views, size=n_rows)
    others = np.setdiff1d(np.arange(n_rows * n_views), first)
    seen = np.ones(n_rows * n_views, dtype=bool)
    seen[rng.choice(others, round(MISSING * n_rows * n_views), replace=False)] = False
    return seen.reshape(n_rows, n_views)


def cells(rng: np.random.Generator, kind: str, predictor: Array, off_model: bool) -> Array:
    """Of one view, with noise of variance 1 where it has any."""
    if off_model:
        tails = rng.standard_t(NOISE_DF, predictor.shape)
        return predictor + tails * np.sqrt((NOISE_DF - 2) / NOISE_DF)
    if kind == "normal":
        return predictor + rng.normal(size=predictor.shape)
    predictor = predictor + rng.uniform(-INTERCEPT, INTERCEPT, predictor.shape[1])
    u = rng.random(predictor.shape)
    return stats.poisson.ppf(u, np.exp(predictor)) if kind == "poisson" else (u < expit(predictor)) * 1.0


def by_view(known: Known, values: Array) -> Array:
    """Means over the features of each view, of values (feature, …)."""
    ends = np.cumsum([view.shape[1] for view in known.views.values()])
    return np.stack([part.mean(0) for part in np.split(values, ends[:-1])])


# ---- methods -----------------------------------------------------------------------------------------------
def ours(known: Known, seed: int, quick: bool) -> Said:
    """The linear decoder, its chains, and shares of variance in their draws."""
    likelihood = {f"{name}:*": kind for name, kind in zip(NAMES, known.kinds, strict=True)}
    model = ps.models.SparseDecoder(
        n_factors=known.offered,
        decoder="linear",
        likelihood="normal" if set(known.kinds) == {"normal"} else likelihood,
    )
    fit = ps.fit(model, known.views, seed=seed, progress=False, **(QUICK_FIT if quick else {}))
    of_chains = {"sweeps": QUICK_SWEEPS, "num_draws": 10} if quick else {}
    idata = fit.edge_posterior("mcmc", seed=seed, **of_chains)
    kept = np.flatnonzero(idata.sample_stats["kept"].to_numpy())
    draws = idata.posterior["weight"].transpose("chain", "draw", "feature", "factor").to_numpy()[kept]
    explained = ps.variance_explained(idata).set_index(["view", "factor"])
    single = explained.drop(TOTAL, level="factor")
    whole = explained.xs(TOTAL, level="factor").loc[list(NAMES)]

    def wide(column: str) -> Array:
        return single[column].unstack("factor").loc[list(NAMES), fit.factor_names].to_numpy()

    return Said(
        loading=np.tensordot(chain_weights(idata), draws.mean(1), 1),
        share=wide("variance"),
        score=wide("p_active"),
        total=whole["variance"].to_numpy(),
        limits=np.stack([wide("eti90_lb"), wide("eti90_ub")], -1),
        total_limits=whole[["eti90_lb", "eti90_ub"]].to_numpy(),
    )


def given_views(known: Known) -> list[pd.DataFrame]:
    """Columns of numbers standardised, as other packages are given them."""
    return [
        (view - view.mean()) / view.std(ddof=0) if kind == "normal" else view
        for view, kind in zip(known.views.values(), known.kinds, strict=True)
    ]


def mofapy2(known: Known, seed: int, quick: bool) -> Said:
    """What it says; a row that a view has not seen is missing there."""
    from mofapy2.run.entry_point import entry_point

    views = given_views(known)
    rows = sorted(set().union(*(view.index for view in views)))
    run = entry_point()
    run.set_data_matrix(
        [[view.reindex(rows).to_numpy()] for view in views],
        likelihoods=["gaussian" if kind == "normal" else kind for kind in known.kinds],
    )
    run.set_model_options(factors=known.offered)
    run.set_train_options(seed=seed, quiet=True)
    run.build()
    run.run()
    nodes = run.model.getNodes()
    z = np.asarray(nodes["Z"].getExpectation())
    share = np.stack(run.model.calculate_variance_explained()[0])
    weights = [np.asarray(node.getExpectation()) for node in nodes["W"].getNodes()]
    total = np.asarray(run.model.calculate_variance_explained(total=True)[0])
    return of_peer(known, weights, z, share, total)


def mofaflex(known: Known, seed: int, quick: bool) -> Said:
    """What it says; a view has the rows that were seen."""
    import mofaflex as package
    from anndata import AnnData

    names = {"normal": "Normal", "bernoulli": "Bernoulli", "poisson": "NegativeBinomial"}
    of_training = {"max_epochs": QUICK_EPOCHS} if quick else {}
    tables = [AnnData(view.astype(np.float32)) for view in given_views(known)]
    model = package.MOFAFLEX(
        {"rows": dict(zip(NAMES, tables, strict=True))},
        package.DataOptions(plot_data_overview=False),
        package.ModelOptions(
            n_factors=known.offered,
            weight_prior="Horseshoe",
            likelihoods={name: names[kind] for name, kind in zip(NAMES, known.kinds, strict=True)},
        ),
        package.TrainingOptions(device="cpu", seed=seed, save_path=False, lr=0.05, **of_training),
    )
    z = model.get_factors("numpy")["rows"]
    weights = [model.get_weights("numpy")[name].T for name in NAMES]
    share = model.get_r2()["rows"][list(NAMES)].to_numpy().T
    total = model.get_r2(total=True)["rows"][list(NAMES)].to_numpy()
    return of_peer(known, weights, z, share, total)


def of_peer(known: Known, weights: list[Array], z: Array, share: Array, total: Array) -> Said:
    """With weights (feature, factor) of each view; the share is the score. What is no number counts as 0."""
    of_unit = [weight * z.std(0) for weight in weights]
    loading = np.concatenate([
        weight if kind == "normal" else standardised(weight, kind)  # numbers have variance 1 already
        for weight, kind in zip(of_unit, known.kinds, strict=True)
    ])  # fmt: skip
    loading, share, total = (np.nan_to_num(values) for values in (loading, share, total))
    return Said(loading, share, share, total)


FITS: dict[str, Callable[[Known, int, bool], Said]] = {
    "": ours,
    "mofapy2": mofapy2,
    "mofaflex": mofaflex,
}


# ---- figures -----------------------------------------------------------------------------------------------
def scored(known: Known, said: Said) -> Row:
    """Of one table and method: errors of shares; candidates for activity, matched factors first."""
    true = by_view(known, known.loading**2)
    total = by_view(known, (known.loading**2).sum(1))
    alike = np.abs(similarity(known.loading, said.loading))
    place, _ = match_columns(alike)
    found = alike[np.arange(len(place)), place] >= MATCHED
    own, spare = place[found], np.setdiff1d(np.arange(said.loading.shape[1]), place[found])
    score = np.zeros(true.shape)
    score[:, found] = said.score[:, own]
    active = true >= ACTIVE
    none = np.zeros((len(true), len(spare)), dtype=bool)
    row: Row = {
        "truth": _listed(active[:, found], active[:, ~found], none),
        "p": _listed(score[:, found], score[:, ~found], said.score[:, spare]),
        "n_matched": active[:, found].size,
        "share": _listed(true[:, found]),
        "error": _listed(said.share[:, own] - true[:, found]),
        "total_error": _listed(said.total - total),
        "matched": int(found.sum()),
        "factors": len(found),
        "spare_single": int((_largest(said.loading[:, spare]) >= SINGLE).any()),
    }
    row["ap"] = average_precision(row["truth"], np.array(row["p"]))
    if said.limits is not None and said.total_limits is not None:
        row["inside"] = _listed(_within(true[:, found], said.limits[:, own]))
        row["total_inside"] = _listed(_within(total, said.total_limits))
        row["spare_active"] = int((said.score[:, spare] >= SURE).any())
    return row


def _listed(*parts: NDArray[Any]) -> list[float]:
    """One list of all; of truths, numbers 0 and 1."""
    return np.concatenate([part.ravel() for part in parts]).astype(float).round(6).tolist()


def _within(values: Array, limits: Array) -> Mask:
    return (limits[..., 0] <= values) & (values <= limits[..., 1])


def _largest(loading: Array) -> Array:
    """Share of a factor's squared loadings that one feature has; 0 of an empty factor."""
    squares = loading**2
    return squares.max(0) / squares.sum(0).clip(1e-12)


def figures(rows: list[Row], suffix: str = "") -> Row:
    """Of one method, on tables of one variant or of several; empty where it was not installed."""
    rows = [row for row in rows if f"p{suffix}" in row]
    if not rows:
        return {}

    def pooled(name: str) -> Array:
        return np.concatenate([row[f"{name}{suffix}"] for row in rows])

    share, error, total_error = pooled("share"), pooled("error"), pooled("total_error")
    truth, p, active = pooled("truth"), pooled("p"), share >= ACTIVE
    result: Row = {
        "r2_error": _mean(np.abs(error)),
        "r2_error_active": _mean(np.abs(error[active])),
        "r2_bias_active": _mean(error[active]),
        "r2_error_total": _mean(np.abs(total_error)),
        "r2_bias_total": _mean(total_error),
        "activity_ap": mean_of(rows, f"ap{suffix}"),
        "activity_ap_pooled": average_precision(truth, p),
        "matched": sum(row[f"matched{suffix}"] for row in rows),
        "factors": sum(row[f"factors{suffix}"] for row in rows),
        "spare_single": sum(row[f"spare_single{suffix}"] for row in rows),
        "method_cpu_s": float(np.median([row[f"method_cpu_s{suffix}"] for row in rows])),
        "n": len(rows),
    }
    if suffix:
        if any(row["variant"] == "mixed" for row in rows):
            result |= {name: None for name in result if name.startswith("r2_")}
        return result
    own = np.concatenate([np.arange(len(row["p"])) < row["n_matched"] for row in rows])
    sure = p >= SURE
    return {
        **result,
        **calibration(p, truth),
        "activity_ap_matched": average_precision(truth[own], p[own]),
        **{f"{name}_matched": value for name, value in calibration(p[own], truth[own]).items()},
        "sure": int(sure.sum()),
        "sure_right": int(truth[sure].sum()),
        "cover": _mean(pooled("inside")[active]),
        "cover_total": _mean(pooled("total_inside")),
        "spare_active": sum(row["spare_active"] for row in rows),
    }


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


def calibration(p: Array, truth: Array) -> Row:
    """Brier score, and the calibration error beside that of perfect probabilities."""
    if not len(p):
        return dict.fromkeys(("brier", "ece", "ece_null"))
    return {
        "brier": float(((p - truth) ** 2).mean()),
        "ece": ece(p, truth),
        "ece_null": float(ece_when_calibrated(p).mean()),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{variant: figures}; `views` are `program` and `off_model` together."""
    groups = {"views": ["program", "off_model"], **{name: [name] for name in DRAWN}}
    of_group = {name: [row for row in rows if row["variant"] in own] for name, own in groups.items()}
    return {name: with_peers(own) for name, own in of_group.items() if own}


def with_peers(rows: list[Row]) -> Row:
    """Ours, and those of other packages with their names behind; null where they are not installed."""
    result = figures(rows)
    for peer in PEERS:
        of_peer = figures(rows, f"_{peer}")
        names = of_peer or [name for name in result if name in COMMON]
        result |= {f"{name}_{peer}": of_peer.get(name) for name in names}
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per variant and method."""
    lines = []
    for variant, own in collect(rows, argparse.Namespace()).items():
        for method in ("", *PEERS):
            suffix = f"_{method}" if method else ""
            shown = {name: own.get(f"{name}{suffix}") for name in COMMON}
            if shown["n"]:
                lines.append({"variant": variant, "method": method or "ours", **shown})
    return lines
