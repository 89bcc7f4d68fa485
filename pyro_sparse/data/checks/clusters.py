r"""Clusters of rows in columns of counts or levels: batches that are shuffled, and that no name tells apart.

Factors alone make clusters, too: where few values are left of a steep one, or where it is curved. Three
things tell batches from them. Normal factors, whatever the columns' margins are, make a Gaussian copula:
clusters are reported only where tables of the copula with the same margins and correlations have none as
clear. Batches shift most columns: a factor that is yes or no shifts its own. And batches shift columns in
directions that have nothing to do with how columns correlate within them, while the two ends of a curved
factor differ in the columns that correlate within either end: with :math:`B` the covariance of columns
between clusters and :math:`W` that within, :math:`\sum_{i \neq j} s_i s_j B_{ij} W_{ij}` is as large for any
signs :math:`s_i` of columns' shifts as for their own.

Yes/no answers are not asked: of batches 1 and 1.5 standard deviations apart 0 and 12 % were reported, at a
false alarm in a hundred clean tables (seeds 1000 to 1010, 1000 to 1199).
"""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding
from ._cells import Cells, correlation
from .copula import column_scores, copula_tables

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture as Mixture

__all__ = ["clustered_rows"]

Array = NDArray[np.float64]

_LIKELIHOODS = ("poisson", "negative_binomial", "ordinal")
_LEAST_ROWS, _MOST_ROWS = 40, 1000  # that are looked at
_LEAST_COLUMNS, _MOST_COLUMNS = 8, 300  # signs of seven columns have a chance of 1 in 64, at least
_MOST_ZEROS = 0.3  # of the counts; documents have more, and their topics are clusters
_MOST_CLUSTERS = 5
_MOST_COMPONENTS = 8
_STARTS = 3
_SMALLEST = 0.1  # cluster, of the rows
_NEAR_BEST = 0.5  # of the largest gain of the BIC: of such mixtures the one whose clusters are most apart
# Thresholds are tuned on seeds from 1000 (benchmarks/NOTEBOOK.md, "Clusters of counts and levels").
_LEAST_GAIN = 12.0  # of the BIC over one cluster
_LEAST_GAIN_A_ROW = 0.05
_TIMES_COPULA = 2.0  # that gain, too: strong traits cut into two levels make clear clusters of their own
_COPULA_TABLES = 5
_DIFFERENT = 2.0  # standard errors between two clusters' means of a column
_LEAST_DIFFERENT = 0.6  # of the columns
# Standard errors from the share of columns that normal shifts of this size make differ. From -2 on 11 of 600
# clean tables were reported (seeds 2000 to 2359 and 2000 to 2239), six of them of factors that are yes or no.
_AS_NORMAL_SHIFTS = -1.2
_EXTREME = 10  # one column in so many may have shifts of any size: levels and counts that hardly vary within
_FLIPS = 999
_LEAST_SIGN_CHANCE = 0.02


class _Apart(NamedTuple):
    """How clear clusters have to be: pairs of the mean probability of a row's cluster and of the gain of the
    BIC a row over the best of the copula's tables that go together; and whether equal cells are spread first.
    """

    excess: tuple[tuple[float, float], ...]
    ties_spread: bool = False


# A level that many rows share makes a cluster of its own, in the table and in its copula, and hides batches;
# spread at random it does not, but small differences are lost (notebook, "Ties that hide batches").
_APART = {
    "counts": (_Apart(((0.95, 0.1), (0.85, 0.2))),),
    "levels": (
        _Apart(((0.95, 0.1), (0.85, 0.2))),
        _Apart(((0.95, 0.25), (0.85, 0.35)), ties_spread=True),
    ),
}


class _Partition(NamedTuple):
    """Rows in clusters: their number, each row's, how sure rows' clusters are, and the gain of the BIC.

    Of a mixture that may have a few rows more in components of their own.
    """

    k: int
    n_components: int
    labels: NDArray[np.int_]
    sure: float
    gain: float


class _Means(NamedTuple):
    """Of the cells of each cluster, (cluster, column), and the share of rows, (cluster,)."""

    mean: Array
    variance: Array
    n_seen: Array
    share: Array


def clustered_rows(cells: Cells) -> list[Finding]:
    """A note where rows fall into clusters that differ in most columns.

    Parameters
    ----------
    cells : Cells
        Of one likelihood: counts or levels. Of others nothing is said, and nothing where covariates or groups
        are given: what is left of few values is clusters of its own.
    """
    n_rows, n_columns = cells.view.shape
    if cells.likelihood not in _LIKELIHOODS or cells.given is not None or n_rows < _LEAST_ROWS:
        return []
    if not _LEAST_COLUMNS <= n_columns <= _MOST_COLUMNS:
        return []
    share_of_zeros = (cells.values == 0).sum() / max(cells.mask.sum(), 1)
    if cells.likelihood != "ordinal" and share_of_zeros > _MOST_ZEROS:
        return []
    rng = np.random.default_rng(0)
    rows = rng.permutation(n_rows)[:_MOST_ROWS]
    values, mask = cells.view[rows], cells.mask[rows]
    if not mask.any(0).all():
        return []
    kind = "levels" if cells.likelihood == "ordinal" else "counts"
    for apart in _APART[kind]:
        partition, share = _apart(values, mask, apart, cells.amount is not None, rng)
        if partition is not None:
            break
    else:
        return []
    return [
        Finding(
            "groups",
            f"rows fall into {partition.k} clusters that differ in most columns ({share:.0%} of them; which "
            f"one a row is of is known with probability {partition.sure:.2f}): batches, or kinds of rows, "
            "whose differences factors then describe",
            "if rows come in batches, say which row is of which (groups=), so that factors are those within "
            "them",
            source="data",
            size=partition.gain,
        )
    ]


def _apart(
    values: Array, mask: NDArray[np.bool_], apart: _Apart, is_relative: bool, rng: np.random.Generator
) -> tuple[_Partition, float] | tuple[None, float]:
    """Clusters that tell batches from factors, and the share of columns in which they differ; or None."""

    def scored(of_values: Array) -> Array:
        return _spread_scores(of_values, mask, rng) if apart.ties_spread else column_scores(of_values, mask)

    z = scored(values)
    y = _components(z, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a mixture has not converged: its BIC is then lower, no more
        partition = _partition(y)
        if partition is None or partition.gain < max(_LEAST_GAIN, _LEAST_GAIN_A_ROW * len(y)):
            return None, 0.0
        excess = [least for sure, least in apart.excess if partition.sure >= sure]
        means = _means(z, mask, partition)
        share = _share_that_differs(means, is_relative)
        if not excess or share is None or _sign_chance(z, mask, partition, means, rng) < _LEAST_SIGN_CHANCE:
            return None, 0.0
        tables = copula_tables(values, mask, rng)
        for _ in range(_COPULA_TABLES):
            of_copula = _gain(_components(scored(next(tables)), y.shape[1]), partition.n_components)
            if partition.gain < max(_TIMES_COPULA * of_copula, of_copula + min(excess) * len(y)):
                return None, 0.0
    return partition, share


def _spread_scores(values: Array, mask: NDArray[np.bool_], rng: np.random.Generator) -> Array:
    """`column_scores` with equal cells in random order, so that a level makes no cluster of its own."""
    spread = np.zeros(values.shape)
    for j, observed in enumerate(mask.T):
        order = np.lexsort((rng.random(int(observed.sum())), values[observed, j]))
        ranks = np.empty(len(order))
        ranks[order] = np.arange(len(order))
        spread[observed, j] = ranks
    return column_scores(spread, mask)


def _components(z: Array, n_components: int | None) -> Array:
    """Scores of leading principal components (row, component): so many, or one beyond those above noise."""
    u, s, _ = np.linalg.svd(z - z.mean(0), full_matrices=False)
    if n_components is None:
        eigenvalues = s**2 / len(z)
        # noise is less than a column's variance: its eigenvalues reach to the edge of the lowest quarter
        edge = np.quantile(eigenvalues, 0.25) * (1 + np.sqrt(z.shape[1] / len(z))) ** 2
        n_components = min(max(int((eigenvalues > edge).sum()), 2) + 1, _MOST_COMPONENTS)
    return u[:, :n_components] * np.sqrt(len(z))


def _partition(y: Array) -> _Partition | None:
    """The mixture whose clusters are most apart, of those with half of the largest gain; or None."""
    none = _mixture(y, 1, 1).bic(y)
    partitions = []
    for k in range(2, _MOST_CLUSTERS + 1):
        mixture = _mixture(y, k, _STARTS)
        probability = mixture.predict_proba(y)
        size = np.bincount(probability.argmax(1), minlength=k)
        large = size >= _SMALLEST * len(y)
        if large.sum() > 1 and size[~large].sum() < _SMALLEST * len(y):
            probability = probability[:, large] / np.maximum(
                probability[:, large].sum(1, keepdims=True), 1e-300
            )
            labels, sure = probability.argmax(1), float(probability.max(1).mean())
            gain = float(none - mixture.bic(y))
            partitions.append(_Partition(int(large.sum()), k, labels, sure, gain))
    if not partitions:
        return None
    best = max(partition.gain for partition in partitions)
    return max((p for p in partitions if p.gain >= _NEAR_BEST * best), key=lambda p: p.sure, default=None)


def _gain(y: Array, k: int) -> float:
    return float(_mixture(y, 1, 1).bic(y) - _mixture(y, k, 1).bic(y))


def _mixture(y: Array, k: int, starts: int) -> Mixture:
    """k normal clusters of one covariance."""
    state = random.getstate()  # importing scikit-learn's mixtures draws from it
    from sklearn.mixture import GaussianMixture

    random.setstate(state)
    return GaussianMixture(
        k, covariance_type="tied", n_init=starts, random_state=0, reg_covar=1e-3, max_iter=60
    ).fit(y)


def _means(z: Array, mask: NDArray[np.bool_], partition: _Partition) -> _Means:
    mean, variance, count = [], [], []
    for cluster in range(partition.k):
        inside = (partition.labels == cluster)[:, None] & mask
        seen = np.maximum(inside.sum(0), 1)
        mean.append((z * inside).sum(0) / seen)
        variance.append((((z - mean[-1]) * inside) ** 2).sum(0) / seen)
        count.append(seen)
    share = np.bincount(partition.labels, minlength=partition.k) / len(z)
    return _Means(np.array(mean), np.array(variance), np.array(count), share)


def _share_that_differs(means: _Means, is_relative: bool) -> float | None:
    """Mean share of columns in which two clusters differ; None if normal shifts made many more differ.

    Shifts of a factor of some columns are large there and none elsewhere, those of batches are of all sizes.

    Parameters
    ----------
    means : _Means
    is_relative : bool
        Whether rows were divided by their totals: what is more in some columns is then less in all others,
        so that shifts are those from the middle one, too.
    """
    k, p = means.mean.shape
    shares = []
    for from_middle in (False, True)[: 1 + is_relative]:
        differ, expected = [], []
        for a in range(k):
            for b in range(a):
                shift = means.mean[a] - means.mean[b]
                shift = shift - np.median(shift) if from_middle else shift
                t = shift / np.sqrt(
                    means.variance[a] / means.n_seen[a] + means.variance[b] / means.n_seen[b] + 1e-9
                )
                differ.append(float((np.abs(t) > _DIFFERENT).mean()))
                squares = np.sort(np.clip(t, -1e3, 1e3) ** 2)[: p - p // _EXTREME]
                spread = np.sqrt(max(float(squares.mean()), 1.0))
                expected.append(2 * stats.norm.sf(_DIFFERENT / spread))
        share, normal = float(np.mean(differ)), float(np.mean(expected))
        error = np.sqrt(normal * (1 - normal) / (p * (k - 1)) + 1e-4)
        if share < _LEAST_DIFFERENT or share - normal < _AS_NORMAL_SHIFTS * error:
            return None
        shares.append(share)
    return min(shares)


def _sign_chance(
    z: Array, mask: NDArray[np.bool_], partition: _Partition, means: _Means, rng: np.random.Generator
) -> float:
    """Share of random signs of columns for which shifts agree as well with correlations within clusters."""
    shifts = means.mean - means.share @ means.mean
    between = shifts.T @ (shifts * means.share[:, None])
    sd = np.sqrt(means.share @ means.variance)
    within = correlation((z - means.mean[partition.labels]) * mask, mask) * np.outer(sd, sd)
    agreement = between * within
    np.fill_diagonal(agreement, 0.0)
    signs = rng.choice([-1.0, 1.0], size=(_FLIPS, len(agreement)))
    return float((((signs @ agreement) * signs).sum(1) >= agreement.sum() - 1e-12).mean())
