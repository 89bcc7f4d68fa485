"""batches: do edges survive batch effects, or persons with several rows, if `ps.fit` is told of them?

`batches`: 300 rows in three batches (half, a third and a sixth of them), 24 features, 4 factors. To every
feature each batch adds an effect drawn from N(0, 1), in units of the feature's standard deviation within
batches. Three fits of a linear decoder: the table before the effects are added (`_without`), with them and
`groups=` (no suffix), with them and not told (`_ignored`). `ap`: average precision of the edge
probabilities, mean over tables; `ap_se`: standard error of the mean of `ap` less `ap_without`, table by
table; Brier score and ECE beside that of perfect probabilities (`ece_null`), of all tables together.
`ap_mofa`: mofapy2 by the size of its loadings, batch means subtracted beforehand; null where it is not
installed. Variants:

- `program`: truths drawn from the program, an anchor for each factor (its edges are not counted); mofapy2
  knows of no anchors, its factors are matched to the true ones.
- `off_model`: skewed, flat, heavy-tailed and two-humped factors, noise of Student's t with 5 degrees of
  freedom, loadings uniform in size; no anchors, factors matched by the congruence of their loadings.
- `normal`: the tables of both.
- `confounded`: those of `off_model`, the mean of a factor lower by half a standard deviation in one batch and
  higher by as much in another.
- `poisson`, `bernoulli`: loadings, factors and intercepts drawn from the program, effects on the linear
  predictor with standard deviation 1 there; fitted without anchors, factors matched.

`people`: 150 persons with three rows each and 12 features. What stays with a person has standard deviation 1
and two factors behind it; from row to row there is independent noise, of standard deviation 1, and nothing
else. Rows come in random order, four factors are offered. `noise_edges`: tables where `ps.summary` calls any
edge present, told of persons by `groups=`; `noise_edges_ignored`: not told. `sure_edges` and
`sure_edges_ignored`: tables where any edge has a probability of .95 or more, in doubt or not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

import pyro_sparse as ps
from benchmarks._common import Row, report_seeds
from benchmarks._peers import METHODS, QUICK_FIT, QUICK_SWEEPS, Table, zscored
from benchmarks._questionnaires import SURE, edges_of
from pyro_sparse.calibrate.scores import ece, ece_when_calibrated
from pyro_sparse.graphs.alignment import match_columns, similarity
from pyro_sparse.inference.edges.mcmc.simulate import draw_decoder

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

SEEDS, QUICK_SEEDS = 50, 2
PARTS = ("batches", "people")
OTHER_SEEDS = 10  # tables of each likelihood that is not normal
FITS = ("", "_without", "_ignored")


class Size(NamedTuple):
    """Of a table."""

    rows: int
    features: int
    factors: int


SIZE, QUICK_SIZE = Size(300, 24, 4), Size(120, 10, 2)
SHARES = (1 / 2, 1 / 3, 1 / 6)  # of the rows, by batch
EFFECT = 1.0  # standard deviation of batch effects
SHIFT = (0.0, 0.5, -0.5)  # of the mean of the first factor, by batch, where the two are confounded
ETA_PRIOR, SPIKE = (2.0, 4.0), 20.0  # the spike is Laplace and so is the slab, of these rates
SLAB = {"normal": 1.0, "poisson": 2.0, "bernoulli": 1.0}
EDGE_SHARE, LOADING, NOISE_DF = 0.25, (0.25, 1.0), 5  # off the model
PERSONS, REPEATS, ITEMS, TRAITS, OFFERED = 150, 3, 12, 2, 4
TRAIT_LOADING = 0.8


class Known(NamedTuple):
    """A table with batch effects, the same without, and what is behind both.

    Attributes
    ----------
    x, without : ndarray (row, feature)
    batch : ndarray of int (row,)
    edge : ndarray of bool (feature, factor)
    loading : ndarray (feature, factor)
        In any units in which the factors' columns can be told apart.
    """

    x: Array
    without: Array
    batch: Labels
    edge: NDArray[np.bool_]
    loading: Array


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these")


def tasks(options: argparse.Namespace) -> list[Row]:
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    of_variant: list[tuple[str, str, list[int]]] = []
    if "batches" in options.parts:
        of_variant += [("batches", "program", seeds[::2]), ("batches", "off_model", seeds[1::2])]
        if not options.quick:
            of_variant += [("batches", "confounded", seeds[1::2])]
            of_variant += [("batches", kind, seeds[:OTHER_SEEDS]) for kind in ("poisson", "bernoulli")]
    if "people" in options.parts:
        of_variant += [("people", "noise", seeds[:1] if options.quick else seeds)]
    return [
        {"part": part, "variant": variant, "seed": seed, "quick": options.quick}
        for part, variant, own in of_variant
        for seed in own
    ]


def run(part: str, variant: str, seed: int, quick: bool = False) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return noise_only(seed, quick) if part == "people" else three_fits(variant, seed, quick)


# ---- tables ------------------------------------------------------------------------------------------------
def simulated(variant: str, seed: int, size: Size) -> Known:
    """The table of a variant and a seed; `off_model` and `confounded` differ in the shift alone."""
    if variant in ("off_model", "confounded"):
        return off_model(np.random.default_rng([seed, 41]), size, variant == "confounded")
    rng = np.random.default_rng([seed, 42])
    return from_program(rng, size) if variant == "program" else other_likelihood(variant, rng, size)


def model(size: Size, likelihood: Any = "normal", anchors: bool = True) -> ps.models.SparseDecoder:
    """The linear decoder that tables are drawn from and fitted by."""
    name = likelihood if isinstance(likelihood, str) else likelihood.name
    return ps.models.SparseDecoder(
        size.features,
        size.factors,
        prior=ps.priors.SpikeSlabLasso(SLAB[name], SPIKE, *ETA_PRIOR),
        likelihood=likelihood,
        decoder="linear",
        factor_cov=False,
        anchors={k: k for k in range(size.factors)} if anchors else None,
    )


def likelihood_of(variant: str) -> Any:
    """Rows of counts do not differ in depth here."""
    if variant == "poisson":
        return ps.likelihoods.Poisson(size_factors=False)
    return "bernoulli" if variant == "bernoulli" else "normal"


def batches(rng: np.random.Generator, n_rows: int) -> Labels:
    """Batches of `SHARES` of the rows, in random order."""
    ends = np.round(np.cumsum(SHARES) * n_rows)
    return rng.permutation(np.searchsorted(ends, np.arange(n_rows), side="right"))


def group_means(x: Array, group: Labels) -> Array:
    """Of each row's group."""
    count = np.bincount(group)[:, None]
    total = np.zeros((len(count), x.shape[1]))
    np.add.at(total, group, x)
    return (total / count)[group]


def effects(rng: np.random.Generator, batch: Labels, n_features: int) -> Array:
    """Batch effects of rows, in standard deviations."""
    return EFFECT * rng.normal(size=(len(SHARES), n_features))[batch]


def with_effects(x: Array, batch: Labels, rng: np.random.Generator) -> Array:
    """Add them, in units of what varies within batches."""
    within = (x - group_means(x, batch)).std(0)
    return x + within * effects(rng, batch, x.shape[1])


def from_program(rng: np.random.Generator, size: Size) -> Known:
    truth, x = ps.calibrate.experiment(model(size), n_rows=size.rows).simulate(rng)
    batch = batches(rng, size.rows)
    return Known(with_effects(x, batch, rng), x, batch, truth["edge"].astype(bool), truth["weight"])


def off_model(rng: np.random.Generator, size: Size, is_confounded: bool) -> Known:
    n, g, k = size
    batch, z = batches(rng, n), odd_factors(rng, n, k)
    if is_confounded:
        z[:, 0] += np.array(SHIFT)[batch]
    edge = rng.random((g, k)) < EDGE_SHARE
    edge[:k] |= np.eye(k, dtype=bool)  # no factor is without edges
    loading = edge * rng.uniform(*LOADING, edge.shape) * rng.choice([-1.0, 1.0], edge.shape)
    noise = rng.standard_t(NOISE_DF, (n, g)) * np.sqrt((NOISE_DF - 2) / NOISE_DF)
    x = z @ loading.T + noise
    return Known(with_effects(x, batch, rng), x, batch, edge, loading)


def odd_factors(rng: np.random.Generator, n_rows: int, n_factors: int) -> Array:
    """Factors of mean 0 and variance 1, in turn skewed, flat, heavy-tailed and two-humped."""
    skewed = (rng.gamma(2.0, size=(n_rows, n_factors)) - 2) / np.sqrt(2)
    flat = rng.uniform(-np.sqrt(3), np.sqrt(3), (n_rows, n_factors))
    heavy = rng.standard_t(5, (n_rows, n_factors)) * np.sqrt(3 / 5)
    humps = 0.8 * rng.choice([-1, 1], (n_rows, n_factors)) + 0.6 * rng.normal(size=(n_rows, n_factors))
    return np.stack([(skewed, flat, heavy, humps)[k % 4][:, k] for k in range(n_factors)], 1)


def other_likelihood(variant: str, rng: np.random.Generator, size: Size) -> Known:
    """Effects on the linear predictor; both tables are made of the same uniform variables."""
    drawn = draw_decoder(model(size, likelihood_of(variant)), size.rows, rng)
    batch = batches(rng, size.rows)
    predictor = drawn.z @ drawn.weight.T + rng.normal(size=size.features)
    u = rng.random(predictor.shape)
    with_batches = predictor + effects(rng, batch, size.features)
    return Known(
        cells(variant, with_batches, u), cells(variant, predictor, u), batch, drawn.edge, drawn.loading
    )


def cells(variant: str, predictor: Array, u: Array) -> Array:
    """Counts or bits of uniform variables; a constant column, which no fit takes, has one cell changed."""
    if variant == "poisson":
        x = stats.poisson.ppf(u, np.exp(predictor))
    else:
        x = (u < expit(predictor)).astype(float)
    still = np.ptp(x, axis=0) == 0
    x[0, still] += np.where(x[0, still] > 0, -1, 1)
    return x


# ---- fits --------------------------------------------------------------------------------------------------
def fitted(own: Any, x: Array, seed: int, quick: bool, groups: Labels | None = None, **settings: Any) -> Any:
    """Edges of a fit, told of groups or not."""
    settings |= QUICK_FIT if quick else {}
    fit = ps.fit(own, x, groups=groups, seed=seed, progress=False, **settings)
    of_chains = {"sweeps": QUICK_SWEEPS, "num_draws": 10} if quick else {}
    return fit.edge_posterior("mcmc", seed=seed, **of_chains)


def three_fits(variant: str, seed: int, quick: bool) -> Row:
    """Edge probabilities of one table, with the truth."""
    size = QUICK_SIZE if quick else SIZE
    known, counted = simulated(variant, seed, size), counted_edges(variant, size)
    row: Row = {"truth": known.edge[counted].astype(int).tolist()}
    for name, x, groups in (
        ("", known.x, known.batch),
        ("_without", known.without, None),
        ("_ignored", known.x, None),
    ):
        start = time.process_time()
        p = probabilities(variant, known, x, groups, seed, quick)[counted]
        row[f"fit_cpu_s{name}"] = time.process_time() - start
        row[f"p{name}"] = p.round(6).tolist()
        row[f"ap{name}"] = average_precision(row["truth"], p)
    if likelihood_of(variant) == "normal":
        row["ap_mofa"] = mofa(known, counted, seed, quick)
    return row


def counted_edges(variant: str, size: Size) -> NDArray[np.bool_]:
    """Edges that no anchor decides, (feature, factor)."""
    counted = np.ones((size.features, size.factors), dtype=bool)
    if variant == "program":
        counted[: size.factors] = False
    return counted


def probabilities(
    variant: str, known: Known, x: Array, groups: Labels | None, seed: int, quick: bool
) -> Array:
    """Of edges, (feature, true factor)."""
    size = Size(len(x), *known.edge.shape)
    if variant == "program":
        settings = {"restarts": 1, "holdout": 0.0, "patience": None, "standardise": False}
        return edges_of(fitted(model(size), x, seed, quick, groups, **settings)).probability
    edges = edges_of(fitted(unanchored(variant, size), x, seed, quick, groups))
    return like_truth(edges.probability, edges.draws.mean((0, 1)), known.loading)


def unanchored(variant: str, size: Size) -> ps.models.SparseDecoder:
    """With the prior that tables were drawn from, or with the default where they were drawn from none."""
    if variant in ("off_model", "confounded"):
        return ps.models.SparseDecoder(n_factors=size.factors, decoder="linear")
    return model(size, likelihood_of(variant), anchors=False)


def like_truth(values: Array, loading: Array, true_loading: Array) -> Array:
    """Columns of `values` in the order of the true factors whose loadings are most congruent."""
    place, _ = match_columns(similarity(true_loading, loading))
    return values[:, place]


def average_precision(truth: Any, score: Array) -> float:
    """Not a number where there is no edge to be found."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(truth, score)) if np.any(truth) else float("nan")


def mofa(known: Known, counted: NDArray[np.bool_], seed: int, quick: bool) -> float | None:
    """Average precision of the loadings' sizes, batch means subtracted; None where it is not installed."""
    method = METHODS["mofapy2"]
    if not method.installed:
        return None
    seen = Table(zscored(known.x - group_means(known.x, known.batch)), known.edge.shape[1])
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # it prints, and the last line is ours
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            loading = method.fit(seen, seed, quick).loading
    size = np.abs(like_truth(loading, loading, known.loading))
    return average_precision(known.edge[counted], size[counted])


# ---- persons -----------------------------------------------------------------------------------------------
def people(seed: int) -> tuple[Array, Labels]:
    """Rows without a factor within persons, in random order, and which person each is of."""
    rng = np.random.default_rng([seed, 43])
    trait = rng.normal(size=(PERSONS, TRAITS))[:, np.arange(ITEMS) % TRAITS]
    own = rng.normal(size=(PERSONS, ITEMS))
    lasting = TRAIT_LOADING * trait + np.sqrt(1 - TRAIT_LOADING**2) * own
    person = rng.permutation(np.repeat(np.arange(PERSONS), REPEATS))
    return lasting[person] + rng.normal(size=(len(person), ITEMS)), person


def noise_only(seed: int, quick: bool) -> Row:
    """Edges that the summary calls present, and those that are as probable, in doubt or not."""
    x, person = people(seed)
    row: Row = {}
    for name, groups in (("", person), ("_ignored", None)):
        own = ps.models.SparseDecoder(n_factors=OFFERED, decoder="linear")
        start = time.process_time()
        idata = fitted(own, x, seed, quick, groups)
        row[f"fit_cpu_s{name}"] = time.process_time() - start
        table = ps.summary(idata)
        row[f"present{name}"] = int((table["verdict"] == "present").sum())
        row[f"sure{name}"] = int((table["probability"] >= SURE).sum())
        row[f"largest{name}"] = float(table["probability"].max())
    return row


# ---- summaries ---------------------------------------------------------------------------------------------
def of_tables(rows: list[Row]) -> Row:
    """Figures of tables of one variant, or of several."""
    result: Row = {}
    truth = np.concatenate([row["truth"] for row in rows])
    for name in FITS:
        p = np.concatenate([row[f"p{name}"] for row in rows])
        result[f"ap{name}"] = mean_of(rows, f"ap{name}")
        result[f"brier{name}"] = float(((p - truth) ** 2).mean())
        result[f"ece{name}"] = float(ece(p, truth))
        result[f"ece_null{name}"] = float(ece_when_calibrated(p).mean())
        result[f"fit_cpu_s{name}"] = float(np.median([row[f"fit_cpu_s{name}"] for row in rows]))
    gap = numbers(rows, "ap") - numbers(rows, "ap_without")
    gap = gap[np.isfinite(gap)]
    result["ap_se"] = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else None
    return {**result, "ap_mofa": mean_of(rows, "ap_mofa"), "n": len(rows)}


def numbers(rows: list[Row], name: str) -> Array:
    """A figure of all rows; a record has null where one is not a number."""
    return np.array([row.get(name) for row in rows], dtype=float)


def mean_of(rows: list[Row], name: str) -> float | None:
    """Over the tables that have it."""
    values = numbers(rows, name)
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def of_people(rows: list[Row]) -> Row:
    """Tables with an edge called present, and with one as probable."""
    result: Row = {}
    for name in ("", "_ignored"):
        result[f"noise_edges{name}"] = sum(row[f"present{name}"] > 0 for row in rows)
        result[f"sure_edges{name}"] = sum(row[f"sure{name}"] > 0 for row in rows)
        result[f"fit_cpu_s{name}"] = float(np.median([row[f"fit_cpu_s{name}"] for row in rows]))
    return {**result, "n": len(rows)}


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{part: {variant: figures}}, of persons the figures."""
    result: Row = {}
    if of_batches := [row for row in rows if row["part"] == "batches"]:
        variants = list(dict.fromkeys(row["variant"] for row in of_batches))
        by_variant = {name: [row for row in of_batches if row["variant"] == name] for name in variants}
        if {"program", "off_model"} <= set(variants):
            by_variant["normal"] = by_variant["program"] + by_variant["off_model"]
        result["batches"] = {name: of_tables(own) for name, own in by_variant.items()}
    if persons := [row for row in rows if row["part"] == "people"]:
        result["people"] = of_people(persons)
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per variant."""
    result = collect(rows, argparse.Namespace())
    lines = [{"variant": name, **figures} for name, figures in result.get("batches", {}).items()]
    return [*lines, *([{"variant": "people", **result["people"]}] if "people" in result else [])]
