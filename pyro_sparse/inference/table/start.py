r"""Data-driven starts: space by principal or factor analysis, axes by rotation, choice by what is explained.

One start costs milliseconds. There are two kinds, and restarts take turns: "principal" (principal axes above
the Marchenko–Pastur edge, varimax), from which a curved decoder finds curved features, and "oblique"
(maximum-likelihood factors, which see a small direction if little noise hides it, and correlated axes where
they pay), right for nearly linear tables. Candidates have up to twice as many factors as wanted. Of the
candidates those are kept whose quadratic polynomial leaves the least residual log-variance: a feature such as
``z1 * z2`` makes a linear direction of its own that is not a factor. Every restart begins with its own number
of factors (a *cap*); the grid is neutral.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..rotation.axes import simple, varimax

__all__ = ["Start", "cap_grid", "factor_analysis", "find_start", "no_start", "noise_edge"]


@dataclass(frozen=True)
class Start:
    """A guess at the factors of a table.

    Attributes
    ----------
    scores : ndarray (row, factor)
        Unit variance; zero columns where the data support fewer factors.
    maps : ndarray (feature, factor)
        ``scores = x @ maps``.
    loadings : ndarray (feature, factor)
    residual_sd : ndarray (feature,)
        Standard deviation of what a quadratic polynomial of the scores leaves unexplained.
    """

    scores: np.ndarray
    maps: np.ndarray
    loadings: np.ndarray
    residual_sd: np.ndarray


def noise_edge(n_rows: int, n_features: int) -> float:
    r"""Largest eigenvalue of a correlation matrix of pure noise (Marchenko–Pastur).

    .. math:: (1 + \sqrt{G/N})^2
    """
    return float((1.0 + np.sqrt(n_features / n_rows)) ** 2)


def cap_grid(n_factors: int, n_restarts: int) -> np.ndarray:
    """Number of factors each restart begins with: K, evenly down to 1, and again (a grid that knows nothing).

    >>> cap_grid(5, 8).tolist()
    [5, 4, 3, 2, 1, 5, 4, 3]
    >>> cap_grid(20, 4).tolist()
    [20, 15, 10, 5]
    """
    grid = np.unique(np.ceil(np.linspace(0, n_factors, min(n_factors, n_restarts) + 1)[1:]).astype(int))[::-1]
    return np.resize(grid, n_restarts)


def factor_analysis(
    correlation: np.ndarray, n_factors: int, max_iter: int = 300, floor: float = 0.02
) -> tuple[np.ndarray, np.ndarray]:
    r"""Maximum-likelihood factor analysis of a correlation matrix by EM (Rubin & Thayer 1982).

    .. math:: R \approx \Lambda\Lambda^\top + \mathrm{diag}(\psi)

    Parameters
    ----------
    correlation : ndarray (feature, feature)
        May come from pairs of cells seen together (missing data).
    n_factors : int
    floor : float
        Least unique variance (a Heywood case ends there).

    Returns
    -------
    loadings : ndarray (feature, factor)
    unique : ndarray (feature,)
    """
    values, vectors = np.linalg.eigh(correlation)
    values, vectors = values[::-1][:n_factors], vectors[:, ::-1][:, :n_factors]
    loadings = vectors * np.sqrt(np.maximum(values - 0.5, 0.05))
    unique = np.maximum(np.diag(correlation) - (loadings**2).sum(1), 0.2)
    for _ in range(max_iter):
        weighted = loadings / unique[:, None]
        posterior = np.linalg.inv(np.eye(n_factors) + loadings.T @ weighted)
        gain = posterior @ weighted.T
        cross = correlation @ gain.T
        new = cross @ np.linalg.inv(posterior + gain @ cross)
        change = np.abs(new - loadings).max()
        loadings = new
        unique = np.maximum(np.diag(correlation) - (new * cross).sum(1), floor)
        if change < 1e-5:
            break
    return loadings, unique


def no_start(n_rows: int, n_features: int) -> Start:
    """No factor at all: for models that begin at random, whatever the data.

    Parameters
    ----------
    n_rows, n_features : int

    Returns
    -------
    Start
    """
    nothing = np.zeros((n_features, 0))
    return Start(np.zeros((n_rows, 0)), nothing, nothing, np.zeros(n_features))


def find_start(x: np.ndarray, mask: np.ndarray | None, n_factors: int, kind: str = "oblique") -> Start:
    """Guess `n_factors` factors of a roughly Gaussian, z-scored table.

    Parameters
    ----------
    x : ndarray (row, feature)
        Missing cells 0.
    mask : ndarray of bool (row, feature), optional
        True where seen.
    n_factors : int
        How many to guess; columns beyond what the data support are left at zero.
    kind : {"principal", "oblique"}
        How space and axes are guessed; see the head of this file.

    Returns
    -------
    Start
    """
    n_rows, n_features = x.shape
    observed = np.ones_like(x) if mask is None else mask.astype(float)
    correlation = (x.T @ x) / np.maximum(observed.T @ observed, 1.0)
    correlation = _proper(correlation)
    best: tuple[float, Start] | None = None
    for loadings, maps in _candidates(correlation, n_rows, n_factors, kind):
        maps = maps / (x @ maps).std(0)
        keep, residual = _choose(x, x @ maps, min(n_factors, maps.shape[1]))
        terms = 1 + len(keep) * (len(keep) + 3) // 2
        residual = np.minimum(residual / max(1 - terms / n_rows, 0.1), 1.0)  # what so many terms fit to noise
        cost = float(np.log(residual).sum())
        if best is None or cost < best[0]:
            best = cost, Start(x @ maps[:, keep], maps[:, keep], loadings[:, keep], np.sqrt(residual))
    assert best is not None
    start = best[1]

    def widen(a: np.ndarray) -> np.ndarray:
        return np.pad(a, ((0, 0), (0, n_factors - a.shape[1])))

    return Start(
        scores=widen(start.scores),
        maps=widen(start.maps),
        loadings=widen(start.loadings),
        residual_sd=start.residual_sd,
    )


def _proper(covariance: np.ndarray, least: float = 0.01) -> np.ndarray:
    """Correlation matrix with eigenvalues of at least `least`, which pairs of cells need not give."""
    values, vectors = np.linalg.eigh(covariance)
    if values[0] < least:
        covariance = (vectors * np.maximum(values, least)) @ vectors.T
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def _candidates(
    correlation: np.ndarray, n_rows: int, n_factors: int, kind: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Loadings and score maps (both feature x candidate) of every width."""
    n_features = len(correlation)
    values, vectors = np.linalg.eigh(correlation)
    values, vectors = values[::-1], vectors[:, ::-1]
    n_signal = max(1, int((values > noise_edge(n_rows, n_features)).sum()))
    if kind == "principal":
        ridge = np.linalg.inv(correlation + 0.1 * np.eye(n_features))
        for width in sorted(
            {min(n_factors, n_signal), min(2 * n_factors, n_signal, max(1, n_features // 2))}
        ):
            loadings = vectors[:, :width] * np.sqrt(np.maximum(values[:width], 0.0))
            loadings = loadings @ varimax(loadings)
            yield loadings, ridge @ loadings
        return
    # Beyond Ledermann's bound a factor model has more parameters than the correlation matrix has entries.
    bound = max(1, int(n_features + 0.5 - np.sqrt(2 * n_features + 0.25)))
    for width in sorted({min(n_factors, bound), min(2 * n_factors, n_signal + 1, bound)}):
        loadings, unique = factor_analysis(correlation, width)
        rotated, factor_correlation = simple(loadings)
        implied = rotated @ factor_correlation @ rotated.T + np.diag(unique)
        yield rotated, np.linalg.solve(implied, rotated @ factor_correlation)


def _choose(x: np.ndarray, z: np.ndarray, n_keep: int) -> tuple[list[int], np.ndarray]:
    """Drop one candidate at a time, each time the one whose quadratic polynomial is missed least.

    Returns the columns kept and the residual variance of each feature.
    """
    n_rows, n_candidates = z.shape
    pairs = [(i, j) for i in range(n_candidates) for j in range(i, n_candidates)]
    terms = np.column_stack([np.ones(n_rows), z, *(z[:, i] * z[:, j] for i, j in pairs)])
    members = [(), *((i,) for i in range(n_candidates)), *pairs]
    gram, cross, total = terms.T @ terms + 1e-3 * n_rows * np.eye(terms.shape[1]), terms.T @ x, (x**2).sum(0)

    def residual(kept: set[int]) -> np.ndarray:
        use = [t for t, who in enumerate(members) if set(who) <= kept]
        fit = np.linalg.solve(gram[np.ix_(use, use)], cross[use])
        return np.maximum((total - (cross[use] * fit).sum(0)) / n_rows, 0.02)

    kept = set(range(n_candidates)) - _curves(z)
    while len(kept) > n_keep:
        kept.remove(min(kept, key=lambda k: float(np.log(residual(kept - {k})).sum())))
    return sorted(kept), residual(kept)


def _curves(z: np.ndarray, share: float = 0.5) -> set[int]:
    """Candidates that are a quadratic of the others, the clearest first: a curve of factors is not a factor.

    A candidate goes when squares and products of the others explain `share` of its variance more than a
    linear function of them does; being correlated with them is no ground.
    """
    kept = set(range(z.shape[1]))
    gone: set[int] = set()
    while len(kept) > 1:
        bend = {}
        for k in kept:
            others = z[:, sorted(kept - {k})]
            lines = np.column_stack([np.ones(len(z)), others])
            i, j = np.triu_indices(others.shape[1])
            curves = np.column_stack([lines, others[:, i] * others[:, j]])
            if curves.shape[1] > len(z) // 5:  # too many terms for so few rows to say anything
                return gone
            left = [
                ((z[:, k] - t @ np.linalg.lstsq(t, z[:, k], rcond=None)[0]) ** 2).mean()
                for t in (lines, curves)
            ]
            bend[k] = (left[0] - left[1]) / z[:, k].var()
        worst = max(bend, key=lambda k: bend[k])
        if bend[worst] < share:
            break
        kept.remove(worst)
        gone.add(worst)
    return gone
