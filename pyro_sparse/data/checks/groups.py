"""Groups of rows whose means differ: batches, sites, plates, days.

Differences of means between groups correlate columns as a factor does, across all others. Three signs: rows
near one another, or a fixed number of rows apart, are alike; rows whose names begin alike are alike; rows
fall into clusters, in all columns or in those of one view.
"""

from __future__ import annotations

import random
import re
import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, components_of, listed, normal_scores

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture as Mixture

__all__ = ["row_groups"]

_MOST_LAGS = 12
_LEAST_Z = 5.0  # of the best lag and component of some hundred
_LEAST_ROWS = 40
_MOST_PREFIXES = 20
_SEPARATORS = r"[\s_\-:./|,()']"
_MOST_PIECES = 6
_MOST_CLUSTERED = 1000  # rows that clusters are looked for in
_MOST_CLUSTERS = 5
_STARTS = 5  # of a mixture of several clusters: k-means from so many seeds
# Tuned on seeds from 1000: 60 tables with batches, 600 ordinary ones, half of them with curves.
# Curves of a factor make clusters, too, but of different shapes and in columns that are no normal ones.
_LEAST_CLUSTER = 0.12  # of the rows
_LEAST_GAIN = 12.0  # of the BIC over no clusters, in all (60 rows of noise had 9), and
_LEAST_GAIN_A_ROW = 0.025
_LEAST_SURE = {2: 0.91, 3: 0.79, 4: 0.79, 5: 0.79}  # mean probability of a row's cluster
_LEAST_ALIKE = 0.02  # BIC a row by which clusters of one shape are better than such of several
_MOST_KURTOSIS = 2.5  # mean over columns of n excess kurtosis^2 / 24, 1 of normal ones
_MOST_DIMENSIONS = 7
_CHANCE = 1e-3  # that normal batches depart so far from what the mixture takes for granted
_CLEAR_GAIN_A_ROW, _CLEAR_SURE, _CLEAR_KURTOSIS = (
    0.3,
    0.93,
    12.0,
)  # where columns are less normal, or are more
# Share of a principal component from which batches put edges in doubt: .49 to .77 in 22 tuning tables with
# batches of half a standard deviation and more (seeds 1000 to 1029), .19 in scikit-learn's breast-cancer
# measurements.
_DOUBTED = 0.4
_REMEDY = (
    "if rows come in batches, say which row is of which (groups=), so that factors are those within them, or "
    "fit each by itself"
)


def row_groups(cells: Cells, numbers: list[int] | None = None) -> list[Finding]:
    """Groups of rows that differ in the means of their columns.

    Parameters
    ----------
    cells : Cells
    numbers : list of int, optional
        Columns under the normal likelihood, where others have others.
    """
    n_rows, n_features = cells.view.shape
    if n_rows < _LEAST_ROWS or not 3 <= n_features <= MOST_COLUMNS:
        return []
    ranks = components_of(cells)
    for finding in (find(cells, ranks) for find in (_by_name, _by_order)):
        if finding is not None:
            return [finding]
    for block in _blocks(cells, numbers or []):
        which = "most columns" if block is cells else f"most of the columns {listed(block.features)}"
        if (finding := _by_cluster(block, which)) is not None:
            return [finding]
    return []


def _blocks(cells: Cells, numbers: list[int]) -> list[Cells]:
    """Columns of numbers in which clusters are looked for: all, then those that the same rows have not seen.

    In the principal components of all such a view is a block of zeros in many rows. Its own rows are asked.
    """
    if cells.is_normal:
        numbers = list(range(len(cells.features)))
    whole = [cells] if cells.is_normal else []
    if not numbers:
        return whole
    pattern = np.unique(cells.mask[:, numbers], axis=1, return_inverse=True)[1].reshape(-1)
    views = [[numbers[j] for j in np.flatnonzero(pattern == p)] for p in range(pattern.max() + 1)]
    blocks = []
    for view in views:
        unseen = np.flatnonzero(~cells.mask[:, view[0]])
        n_rows = len(cells.values) - len(unseen)
        if 3 <= len(view) < len(cells.features) and n_rows >= _LEAST_ROWS:
            blocks.append(cells.of(view, "normal").without(unseen))
    return whole + blocks


def _by_order(cells: Cells, scores: NDArray[np.float64]) -> Finding | None:
    """Rows that are alike where they are near, or a fixed number apart."""
    n = len(scores)
    z = (scores - scores.mean(0)) / scores.std(0)
    lags = np.arange(1, min(_MOST_LAGS, n // 4) + 1)
    # in standard errors: of rows that are independent it is standard normal
    r = np.array([(z[lag:] * z[:-lag]).mean(0) * np.sqrt(n - lag) for lag in lags])
    together = r.sum(1) / np.sqrt(r.shape[1])
    best = max(float(together.max()), float(r.max()))
    if best < _LEAST_Z:
        return None
    lag = int(lags[np.maximum(together, r.max(1)).argmax()])
    r_best = float(r[lag - 1].max() / np.sqrt(n - lag))
    is_near = r[0].max() > 0.5 * best
    where = "rows near one another" if is_near else f"rows {lag} apart"
    return Finding(
        "groups",
        f"{where} are alike (correlation up to {r_best:.2f} of a principal component with itself), so "
        "rows are not independent: they come in batches or drift, and that makes factors of its own",
        f"{_REMEDY}; a time series is for LatentTransition",
        severity="doubt" if r_best >= _DOUBTED else "note",
        source="data",
        size=r_best,
    )


def _by_name(cells: Cells, scores: NDArray[np.float64]) -> Finding | None:
    """Rows that are alike where a part of their names is: sites, plates, persons with several rows."""
    z = (scores - scores.mean(0)) / scores.std(0)
    for where, parts in _parts_of_names(cells.rows):
        names, number, count = np.unique(parts, return_inverse=True, return_counts=True)
        n_groups = len(names)
        if not 2 <= n_groups <= len(z) / 2 or (n_groups <= _MOST_PREFIXES and count.min() < 5):
            continue
        between = np.zeros(z.shape[1])
        for column in range(z.shape[1]):
            between[column] = (np.bincount(number, z[:, column]) ** 2 / count).sum()
        # of names that say nothing the share follows a beta distribution: analysis of variance of one factor
        free = (n_groups - 1) / 2, (len(z) - n_groups) / 2
        chance = stats.beta.sf(np.clip(between / len(z), 0, 1), *free).min()
        of_one = float(stats.norm.isf(np.clip(chance, 1e-300, 1.0)))
        mean, variance = stats.beta.stats(*free)
        of_all = float((between / len(z) - mean).sum() / np.sqrt(variance * len(between)))
        if max(of_one, of_all) < _LEAST_Z:
            continue
        expected = (n_groups - 1) / (len(z) - 1)
        share = float((between.max() / len(z) - expected) / (1 - expected))
        shown = ", ".join(repr(str(name)) for name in names[:4]) + (", …" if n_groups > 4 else "")
        return Finding(
            "groups",
            f"rows whose names {where} alike ({shown}) have means of their own ({share:.0%} of a principal "
            "component), and that makes factors of its own, as batches do, or persons with several rows",
            _REMEDY,
            severity="doubt" if share >= _DOUBTED else "note",
            source="data",
            size=share,
        )
    return None


def _parts_of_names(rows: list[str]) -> list[tuple[str, list[str]]]:
    """Where rows' names may be alike, and that part of each: how they begin, a piece, the whole."""
    words = [[word for word in re.split(_SEPARATORS, str(name)) if word] for name in rows]
    parts = [("begin", [re.split(_SEPARATORS + r"|\d+$", str(name))[0] for name in rows])]
    n_words = {len(name) for name in words}
    if len(n_words) == 1:
        parts += [
            ("are in part", [name[at] for name in words]) for at in range(min(len(words[0]), _MOST_PIECES))
        ]
    kept = [(where, names) for where, names in parts if all(names)]
    return [(where, names) for i, (where, names) in enumerate(kept) if names not in [k[1] for k in kept[:i]]]


def _by_cluster(cells: Cells, which: str) -> Finding | None:
    """Rows that fall into clusters of one shape, in columns that are close to normal each."""
    if (cells.n_levels < 0.3 * cells.mask.sum(0)).any():
        return None
    kurtosis = _kurtosis(cells)
    if kurtosis > _CLEAR_KURTOSIS:
        return None
    order = np.random.default_rng(0).permutation(len(cells.view))[:_MOST_CLUSTERED]
    z = np.where(cells.mask, np.apply_along_axis(normal_scores, 0, cells.view), 0.0)[order]
    u, s, _ = np.linalg.svd(z - z.mean(0), full_matrices=False)
    # Noise is less than a column's variance: its eigenvalues reach to the edge that the lowest quarter has.
    eigenvalues = s**2 / len(z)
    edge = np.quantile(eigenvalues, 0.25) * (1 + np.sqrt(z.shape[1] / len(z))) ** 2
    y = u[:, : min(max(int((eigenvalues > edge).sum()), 2) + 1, 8)] * np.sqrt(len(z))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a mixture has not converged: its BIC is then lower, no more
        n_clusters, sure, gain = _clusters(y, kurtosis)
    if not n_clusters:
        return None
    return Finding(
        "groups",
        f"rows fall into {n_clusters} clusters that differ in the means of {which} (BIC {gain:.0f} "
        f"better than without, rows belong to theirs with probability {sure:.2f}): batches or kinds of rows "
        "make factors of their own",
        _REMEDY,
        severity="doubt",
        source="data",
        size=gain,
    )


def _kurtosis(cells: Cells) -> float:
    """How far columns are from normal ones by their kurtosis, 1 where they are normal."""
    departures = [len(column) * stats.kurtosis(column) ** 2 / 24 for column in cells.columns]
    return float(np.mean(departures))


def _clusters(y: NDArray[np.float64], kurtosis: float) -> tuple[int, float, float]:
    """Number of clusters (0: none), mean probability of a row's cluster, gain of the BIC."""
    state = random.getstate()  # importing scikit-learn's mixtures draws from it
    from sklearn.mixture import GaussianMixture

    random.setstate(state)

    n, d = y.shape

    def fitted(k: int, shape: str) -> Mixture:
        starts = _STARTS if k > 1 else 1  # one cluster has one place to begin at
        return GaussianMixture(k, covariance_type=shape, n_init=starts, random_state=0, reg_covar=1e-3).fit(y)

    none = fitted(1, "tied").bic(y)
    mixtures = {k: fitted(k, "tied") for k in range(2, _MOST_CLUSTERS + 1)}
    smallest = {k: np.bincount(mixture.predict(y), minlength=k).min() / n for k, mixture in mixtures.items()}
    # A mixture with a cluster of a few rows can have the best BIC of all, and hide two large ones.
    bic = {k: mixture.bic(y) for k, mixture in mixtures.items() if smallest[k] >= _LEAST_CLUSTER}
    if not bic:
        return 0, 0.0, 0.0
    k = min(bic, key=lambda number: bic[number])
    mixture = mixtures[k]
    gain, sure = none - bic[k], float(mixture.predict_proba(y).max(1).mean())
    is_clear = gain >= _CLEAR_GAIN_A_ROW * n and sure >= _CLEAR_SURE
    is_plain = kurtosis <= _MOST_KURTOSIS and d <= _MOST_DIMENSIONS and sure >= _LEAST_SURE[k]
    if gain < max(_LEAST_GAIN, _LEAST_GAIN_A_ROW * n) or not (is_clear or is_plain):
        return 0, sure, gain
    full_bic = min(fitted(shapes, "full").bic(y) for shapes in {2, 3, k})
    is_alike = full_bic - bic[k] >= _LEAST_ALIKE * n
    return (k if is_alike and _chance_of_batches(y, mixture) >= _CHANCE else 0), sure, float(gain)


def _chance_of_batches(y: NDArray[np.float64], mixture: Mixture) -> float:
    r"""Probability, at most, that batches of normal rows depart so far from a mixture of one shape.

    In coordinates in which clusters are spheres let u be those in which their means differ and v the others.
    Of normal batches v is independent of u, and normal. Curves of a factor make clusters, too (its two ends,
    where a sigmoid is flat), and there means and sizes of v depend on u, or its tails are not normal. Means
    and sizes are regressed on u and its products (F tests), the kurtosis of v is tested by itself (Anscombe
    and Glynn 1983); the least p-value counts, times their number (Bonferroni).

    Parameters
    ----------
    y : ndarray (row, component)
    mixture : GaussianMixture
        Of components with one covariance.
    """
    n, d = y.shape
    n_differ = min(len(mixture.means_) - 1, d)
    if n_differ == d:
        return 1.0
    whiten = np.linalg.inv(np.linalg.cholesky(mixture.covariances_)).T
    centres = (mixture.means_ - mixture.weights_ @ mixture.means_) @ whiten
    axes = np.linalg.svd(np.sqrt(mixture.weights_)[:, None] * centres)[2].T
    rows = y @ whiten @ axes
    u, v = rows[:, :n_differ], rows[:, n_differ:] - rows[:, n_differ:].mean(0)
    u = (u - u.mean(0)) / u.std(0)
    i, j = np.triu_indices(n_differ)
    powers = [np.ones((n, 1)), u, u[:, i] * u[:, j], u**3 if n_differ == 1 else u[:, :0]]
    basis = np.linalg.qr(np.concatenate(powers, 1))[0]
    free = basis.shape[1] - 1, n - basis.shape[1]
    if free[1] < 1:
        return 1.0
    targets = np.concatenate([v, np.apply_along_axis(normal_scores, 0, np.abs(v))], 1)
    targets = (targets - targets.mean(0)) / targets.std(0)
    share = np.clip(((basis.T @ targets) ** 2).sum(0) / n, 0.0, 1 - 1e-12)
    of_means = stats.f.sf(share / (1 - share) * free[1] / free[0], *free)
    of_tails = np.asarray(stats.kurtosistest(v).pvalue)
    return float(min(1.0, min(of_means.min(), of_tails.min()) * (len(of_means) + len(of_tails))))
