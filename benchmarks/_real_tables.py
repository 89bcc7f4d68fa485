"""Factor models of a real table behind one call, and how far the edges of two fits agree.

`fitted` gives each method the same rows and the same number of factors; what comes back can tell the factors
and the expected cells of new rows. Ours and the rivals of the Sparse VAE paper see the table as it is (yes/no
or counts), and so does LDA; factor analysis, NMF and, of counts, mofapy2 see what their users would give
them: yes/no as 0 and 1, counts as log(1 + x) at equal depth, and what they expect is turned back into counts.

`put_aside`, `halved`, `by_method` and `means` are what the benchmarks of real tables share beside it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks._common import Row
from benchmarks._peers import QUICK_FIT, QUICK_SWEEPS, cpu, standardised
from pyro_sparse.graphs.alignment import match_columns, similarity
from pyro_sparse.likelihoods import Likelihood

Array = NDArray[Any]

SURE, CONFIRMED = 0.95, 0.85  # an edge said of one fit, and what another has to say of it
SAME_FACTOR = 0.8  # congruence
NEURAL = {"vae": 1.0, "beta_vae": 2.0}
RESTARTS = 2  # of the rivals that have restarts
PRACTICAL = "ours_practical"  # the same fit, asked for loadings that cross-loadings do not explain
METHODS = ("ours", PRACTICAL, "vae", "beta_vae", "vsc", "nmf", "fa_varimax", "mofapy2")
ASIDE = 0.2  # share of the rows that no method sees
OF_FITS = ("cpu_method", "factors", "sure", "open", "present", "mean_gap", "edges_per_factor")


def put_aside(n_rows: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows no method sees: a fifth, at random."""
    aside = np.zeros(n_rows, dtype=bool)
    aside[rng.choice(n_rows, max(1, round(ASIDE * n_rows)), replace=False)] = True
    return aside


def halved(x: Array, rng: np.random.Generator) -> Array:
    """The rows with half of their items, at random, at their counts; a row of one item without it."""
    given = np.zeros_like(x)
    for row, items in zip(given, x, strict=True):
        counted = np.flatnonzero(items)
        kept = rng.choice(counted, len(counted) // 2, replace=False)
        row[kept] = items[kept]
    return given


@dataclass(frozen=True, eq=False)
class MethodFit:
    """What a method says of a table, and can say of new rows.

    Attributes
    ----------
    transform, predict : callable
        Factors and expected cells of rows (row, feature).
    loading : ndarray (feature, factor)
    cpu_fit, cpu_edges : float
        CPU seconds of the fit and of what probabilities cost beyond it.
    probability : ndarray (feature, factor), optional
        Of edges.
    present : ndarray of bool (feature, factor), optional
        The edges that ours calls present.
    gap : ndarray (feature, factor), optional
        How far apart the chains' probabilities are.
    """

    transform: Callable[[Array], Array]
    predict: Callable[[Array], Array]
    loading: Array
    cpu_fit: float
    cpu_edges: float = 0.0
    probability: Array | None = None
    present: Array | None = None
    gap: Array | None = None

    def row(self) -> Row:
        """Figures of the fit and, as lists, what `agreement` needs of it."""
        row: Row = {
            "cpu_fit": self.cpu_fit,
            "cpu_edges": self.cpu_edges,
            "factors": int(self.loading.any(0).sum()),
            "loading": self.loading.round(3).tolist(),
            "probability": None,
            "present_edges": None,
        }
        if self.probability is not None:
            p = self.probability
            row |= {
                "probability": p.round(3).tolist(),
                "sure": int((p >= SURE).sum()),
                "edges_per_factor": (p >= SURE).sum(0).tolist(),
                "open": int(((p > 1 - SURE) & (p < SURE)).sum()),
            }
        if self.present is not None and self.gap is not None:
            row |= {"present_edges": self.present.astype(int).tolist(), "present": int(self.present.sum())}
            row |= {"mean_gap": float(self.gap.mean()), "max_gap": float(self.gap.max())}
        return row


def fitted(
    method: str, x: Array, n_factors: int, likelihood: str | Likelihood, seed: int, quick: bool
) -> MethodFit:
    """One of `METHODS`, or "lda" of counts; `likelihood` is "bernoulli" or one of counts."""
    if method in ("ours", PRACTICAL):
        return _ours(x, n_factors, likelihood, seed, quick, "prior" if method == "ours" else "practical")
    if method in NEURAL or method == "vsc":
        return _neural(method, x, n_factors, likelihood, seed, quick)
    if method == "mofapy2":
        return _mofapy2(x, n_factors, likelihood == "bernoulli", seed)
    return _classical(method, x, n_factors, likelihood == "bernoulli", seed)


@dataclass(frozen=True)
class EqualDepth:
    """Counts as logarithms at equal depth, and back.

    Attributes
    ----------
    typical : float
        Total of a row of usual depth, the median of the rows that a method sees.
    """

    typical: float

    @classmethod
    def of(cls, counts: Array) -> EqualDepth:
        return cls(float(np.median(counts.sum(1))))

    def logs(self, counts: Array) -> Array:
        """log(1 + x) of counts divided by their row's total and multiplied by the typical total."""
        shared: Array = np.log1p(counts * (self.typical / self._totals(counts)))
        return shared

    def counts(self, logs: Array, rows: Array) -> Array:
        """Expected counts, none below 0, of rows that have as much depth as `rows`."""
        expected: Array = np.expm1(logs).clip(min=0) * (self._totals(rows) / self.typical)
        return expected

    @staticmethod
    def _totals(counts: Array) -> Array:
        return np.maximum(counts.sum(1, keepdims=True), 1.0)


def _ours(
    x: Array, n_factors: int, likelihood: str | Likelihood, seed: int, quick: bool, edge: str
) -> MethodFit:
    import pyro_sparse as ps

    model = ps.models.SparseDecoder(n_factors=n_factors, decoder="linear", likelihood=likelihood)
    start = cpu()
    fit = ps.fit(model, x, seed=seed, progress=False, **(QUICK_FIT if quick else {}))
    fitted_at = cpu()
    shorter = {"sweeps": QUICK_SWEEPS, "num_draws": 10} if quick else {}
    idata = fit.edge_posterior("mcmc", edge=edge, progress=False, **shorter)
    seconds = cpu() - fitted_at
    summary = ps.summary(idata).set_index(["feature", "factor"])
    order = [(feature, factor) for feature in fit.feature_names for factor in fit.factor_names]
    shape = len(fit.feature_names), len(fit.factor_names)
    edges = summary.reindex(order)
    loading = np.sqrt(fit.effects[fit.best]) * np.sign(fit.weights[fit.best])
    return MethodFit(
        fit.transform,
        fit.predict,
        loading,
        fitted_at - start,
        seconds,
        edges["probability"].to_numpy().reshape(shape),
        (edges["verdict"] == "present").to_numpy().reshape(shape),
        edges["gap"].to_numpy(dtype=float).reshape(shape),
    )


def _neural(
    method: str, x: Array, n_factors: int, likelihood: str | Likelihood, seed: int, quick: bool
) -> MethodFit:
    import pyro_sparse as ps

    if method == "vsc":
        model: Any = ps.rivals.VSC(x.shape[1], n_factors, likelihood=likelihood)
    else:
        model = ps.rivals.VAE(x.shape[1], n_factors, likelihood=likelihood, beta=NEURAL[method])
    start = cpu()
    settings = QUICK_FIT if quick else {"restarts": RESTARTS}
    fit = ps.fit(model, x, seed=seed, progress=False, **settings)
    return MethodFit(fit.transform, fit.predict, np.sqrt(fit.effects[fit.best]), cpu() - start)


def _classical(method: str, x: Array, n_factors: int, binary: bool, seed: int) -> MethodFit:
    from pyro_sparse.rivals import Classical

    depth = None if binary or method == "lda" else EqualDepth.of(x)
    name, options = {"nmf": ("nmf", {"max_iter": 1000}), "lda": ("lda", {})}.get(
        method, ("factor_analysis", {})
    )

    def prepared(rows: Array) -> Array:
        return rows if depth is None else depth.logs(rows)

    def predict(rows: Array) -> Array:
        cells = fit.predict(prepared(rows))
        return cells if depth is None else depth.counts(cells, rows)

    start = cpu()
    fit = Classical(name, n_factors, seed=seed, **options).fit(prepared(x))
    seconds = cpu() - start
    return MethodFit(lambda rows: fit.transform(prepared(rows)), predict, fit.weights[0], seconds)


def _mofapy2(x: Array, n_factors: int, binary: bool, seed: int) -> MethodFit:
    """At its defaults; of new rows, which it does not know, the mode of z given its mean weights.

    Factors of new rows are a priori as those of the rows that it saw.
    """
    from mofapy2.run.entry_point import entry_point

    depth = EqualDepth.of(x)
    logs = depth.logs(x)
    centre, scale = logs.mean(0), np.maximum(logs.std(0), 1e-12)
    start = cpu()
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        np.errstate(divide="ignore", invalid="ignore"),  # 0 log 0, which it replaces itself
    ):
        run = entry_point()
        cells = np.array(x) if binary else (logs - centre) / scale
        run.set_data_matrix([[cells]], likelihoods=["bernoulli" if binary else "gaussian"])
        run.set_model_options(factors=n_factors)
        run.set_train_options(seed=seed, quiet=True)
        run.build()
        run.run()
    nodes = run.model.getNodes()
    seconds = cpu() - start
    weights = nodes["W"].getNodes()[0]
    w, factors = np.asarray(weights.getExpectation()), np.asarray(nodes["Z"].getExpectation())
    mean, cov = factors.mean(0), np.cov(factors.T).reshape(len(w.T), -1)

    def transform(rows: Array) -> Array:
        if binary:
            return logistic_scores(rows, w, mean, cov)
        precision = np.asarray(nodes["Tau"].getNodes()[0].getExpectation())[0]
        return normal_scores((depth.logs(rows) - centre) / scale, w, precision, mean, cov)

    def predict(rows: Array) -> Array:
        cells = transform(rows) @ w.T  # of yes/no the order of logits is that of probabilities
        return cells if binary else depth.counts(cells * scale + centre, rows)

    return MethodFit(
        transform,
        predict,
        standardised(w, factors),
        seconds,
        probability=np.asarray(weights.Q.getParameters()["theta"]),
    )


def normal_scores(x: Array, w: Array, noise_precision: Array, mean: Array, cov: Array) -> Array:
    """Expectation of z ~ N(mean, cov) for x ~ N(z w', 1 / noise_precision), (row, factor)."""
    prior = np.linalg.inv(cov + 1e-6 * np.eye(len(cov)))
    weighted = w * noise_precision[:, None]
    scores: Array = np.linalg.solve(w.T @ weighted + prior, (x @ weighted + mean @ prior).T).T
    return scores


def logistic_scores(x: Array, w: Array, mean: Array, cov: Array, steps: int = 25) -> Array:
    """Mode of z ~ N(mean, cov) for x ~ Bernoulli(expit(z w')), (row, factor), by Newton's method.

    A model without intercepts has the columns' means in its factors, whose mean is then not 0.
    """
    z, precision = np.tile(mean, (len(x), 1)), np.linalg.inv(cov + 1e-6 * np.eye(len(cov)))
    for _ in range(steps):
        p = expit(z @ w.T)
        gradient = (x - p) @ w - (z - mean) @ precision
        curvature = np.einsum("ng,gk,gl->nkl", p * (1 - p), w, w, optimize=True) + precision
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        z += step / np.maximum(1.0, np.linalg.norm(step, axis=1, keepdims=True))
    return z


def agreement(rows: list[Row], sure: str = "probability") -> Row:
    """How often an edge that one fit is sure of is found by another, over all ordered pairs of fits.

    Parameters
    ----------
    rows : list
        Of `MethodFit.row`, one a fit, of the same features.
    sure : {"probability", "present_edges"}
        Sure: P of at least `SURE`, or called present.

    Returns
    -------
    dict
        `edge_agreement`: share of the sure edges of one fit with P of at least `CONFIRMED` in the other,
        factors matched by congruence, edges of factors whose match is below `SAME_FACTOR` left out;
        `edge_agreement_raw`: the same of all sure edges; `factors_matched`: share of the factors with a sure
        edge whose match is as good; `correlation`: of the probabilities of factors that match;
        `correlation_raw`: of all factors.
    """
    hits, hits_anywhere, kept, asked, alike, factors = 0, 0, 0, 0, 0, 0
    pairs: list[tuple[Array, Array]] = []
    all_pairs: list[tuple[Array, Array]] = []
    for a, b in permutations(rows, 2):
        la, lb = np.array(a["loading"]), np.array(b["loading"])
        pa, pb = np.array(a["probability"]), np.array(b["probability"])
        said = np.array(a["present_edges"]) > 0 if sure == "present_edges" else pa >= SURE
        congruence = similarity(la, lb)
        order, _ = match_columns(congruence)
        same = np.abs(congruence[np.arange(la.shape[1]), order]) >= SAME_FACTOR
        confirmed = said & (pb[:, order] >= CONFIRMED)
        hits, kept = hits + int(confirmed[:, same].sum()), kept + int(said[:, same].sum())
        hits_anywhere, asked = hits_anywhere + int(confirmed.sum()), asked + int(said.sum())
        alike, factors = alike + int((same & said.any(0)).sum()), factors + int(said.any(0).sum())
        pairs.append((pa[:, same].ravel(), pb[:, order][:, same].ravel()))
        all_pairs.append((pa.ravel(), pb[:, order].ravel()))
    return {
        "edge_agreement": hits / kept if kept else float("nan"),
        "edge_agreement_raw": hits_anywhere / asked if asked else float("nan"),
        "factors_matched": alike / factors if factors else float("nan"),
        "correlation": _correlation(pairs),
        "correlation_raw": _correlation(all_pairs),
    }


def _correlation(pairs: list[tuple[Array, Array]]) -> float:
    here, there = (np.concatenate(side) for side in zip(*pairs, strict=True))
    varies = len(here) > 1 and here.std() > 0 and there.std() > 0
    return float(np.corrcoef(here, there)[0, 1]) if varies else float("nan")


def by_method(rows: list[Row], figures: tuple[str, ...]) -> Row:
    """{method: {figure: [per seed]}}, how edges of the methods that have probabilities agree, cost."""
    result: Row = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        of_method = [row for row in rows if row["method"] == method]
        names = (*figures, *OF_FITS)
        result[method] = {name: [row[name] for row in of_method] for name in names if name in of_method[0]}
        if len(of_method) > 1 and of_method[0].get("probability") is not None:
            result[method] |= agreement(of_method)
        if len(of_method) > 1 and of_method[0].get("present_edges") is not None:
            result[method]["edge_agreement_present"] = agreement(of_method, "present_edges")["edge_agreement"]
    result["edge_agreement"] = result.get("ours", {}).get("edge_agreement")
    if "ours" in result and "mofapy2" in result:
        seconds = [float(np.mean(result[name]["cpu_method"])) for name in ("ours", "mofapy2")]
        result["cpu_over_mofapy2"] = seconds[0] / seconds[1]
    return result


def means(rows: list[Row], figures: tuple[str, ...], with_error: tuple[str, ...]) -> list[Row]:
    """One line per method: means over seeds, and standard errors of some."""
    lines: list[Row] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        of_method = [row for row in rows if row["method"] == method]
        line: Row = {"method": method, "n": len(of_method)}
        for name in figures:
            values = np.array([row[name] for row in of_method])
            line[name] = float(values.mean())
            if name in with_error:
                line[f"{name}_se"] = (
                    float(values.std(ddof=1) / np.sqrt(len(of_method))) if len(of_method) > 1 else np.nan
                )
        lines.append({**line, "cpu_method": float(np.mean([row["cpu_method"] for row in of_method]))})
    return lines
