r"""Data-driven starts of a table read by rows: a sample of its rows, and no feature-by-feature matrix.

Up to 2,000 features `start.find_start` does the work on the sample. Beyond, its steps are taken on the n rows
themselves: principal axes from the n-by-n matrix of products, the ridge and the factor model's inverse in the
span of the factors (Woodbury), and what is not linear in the number of features (rotations, quadratic
polynomials) by the thousand features that the factors explain best. Same definitions, same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...data.large_table import LargeTable
from ..rotation.axes import simple, varimax
from .start import Start, _choose, find_start, noise_edge

if TYPE_CHECKING:
    from ...data.table import Table

__all__ = ["find_wide_start", "start_of"]

WIDE = 2000  # features beyond which no feature-by-feature matrix is made
SAMPLE_CELLS, FEWEST, MOST = 40_000_000, 500, 20_000  # of the sample of rows
CLIP = 10.0  # standard deviations; a rare feature's one large cell is no direction
LED_BY = 1000  # features that decide about rotations and about who goes


def start_of(table: Table, kept: np.ndarray, n_factors: int, kind: str) -> Start:
    """`find_start` on these rows of a table, or on a sample of them where the table is read by rows.

    Parameters
    ----------
    table : Table
    kept : ndarray of int
        Rows to learn from.
    n_factors : int
    kind : {"principal", "oblique"}
    """
    if not isinstance(table, LargeTable):
        observed = None if table.mask is None else table.mask[kept]
        return find_start(table.inputs[kept], observed, n_factors, kind)
    mixed = kept[table.x.shuffled(kept, 0)][: table.rows_together(FEWEST, MOST, SAMPLE_CELLS)]
    if len(table.feature_names) <= WIDE:
        _, inputs, mask, _ = table.cells(mixed, torch.float64)
        return find_start(inputs.numpy(), None if mask is None else mask.numpy(), n_factors, kind)
    return find_wide_start(table.cells(mixed, torch.float32)[1].numpy(), n_factors, kind)


def find_wide_start(x: np.ndarray, n_factors: int, kind: str = "oblique") -> Start:
    """Guess `n_factors` factors of a roughly Gaussian, z-scored table with more features than rows.

    Parameters
    ----------
    x : ndarray (row, feature)
        Missing cells 0, which counts as seen here. Overwritten.
    n_factors : int
    kind : {"principal", "oblique"}
        As in `find_start`.

    Returns
    -------
    Start
    """
    n_rows = len(x)
    np.clip(x, -CLIP, CLIP, out=x)
    x /= np.maximum(x.std(0), 1.0)
    variance = (x**2).mean(0)
    best: tuple[float, Start] | None = None
    for loadings, maps in _candidates(x, variance, n_factors, kind):
        lead = np.argsort(-(loadings**2).sum(1), kind="stable")[:LED_BY]
        z = _times(x, maps)
        maps, z = maps / z.std(0), z / z.std(0)
        keep, _ = _choose(x[:, lead].astype(float), z, min(n_factors, z.shape[1]))
        residual = _residual(x, z[:, keep]) / np.maximum(variance, 1e-3)
        terms = 1 + len(keep) * (len(keep) + 3) // 2
        residual = np.clip(residual / max(1 - terms / n_rows, 0.1), 0.02, 1.0)
        cost = float(np.log(residual).sum())
        if best is None or cost < best[0]:
            best = cost, Start(z[:, keep], maps[:, keep], loadings[:, keep], np.sqrt(residual))
    assert best is not None
    start = best[1]

    def widen(a: np.ndarray) -> np.ndarray:
        return np.pad(a, ((0, 0), (0, n_factors - a.shape[1])))

    return Start(widen(start.scores), widen(start.maps), widen(start.loadings), start.residual_sd)


def _times(x: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Product in the table's precision, as double."""
    return (x @ maps.astype(x.dtype)).astype(float)


def _candidates(
    x: np.ndarray, variance: np.ndarray, n_factors: int, kind: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Loadings and score maps (both feature x candidate) of every width; see `start._candidates`."""
    n_rows, n_features = x.shape
    values, vectors = np.linalg.eigh((x @ x.T).astype(float) / n_rows)
    values, vectors = values[::-1], vectors[:, ::-1]
    n_signal = max(1, int((values > noise_edge(n_rows, n_features) * variance.mean()).sum()))

    def axes(width: int) -> tuple[np.ndarray, np.ndarray]:
        size = np.maximum(values[:width], 1e-9)
        return size, _times(x.T, vectors[:, :width] / np.sqrt(n_rows * size))

    if kind == "principal":
        most = min(n_rows, n_features) // 2
        for width in sorted({min(n_factors, n_signal), min(2 * n_factors, n_signal, most)}):
            size, directions = axes(width)
            loadings = directions * np.sqrt(size)
            turn = varimax(loadings[_leading(loadings)])
            yield loadings @ turn, (directions * (np.sqrt(size) / (size + 0.1))) @ turn
        return
    for width in sorted({n_factors, min(2 * n_factors, n_signal + 1)}):
        size, directions = axes(width)
        loadings, unique = _factor_analysis(x, variance, directions * np.sqrt(np.maximum(size - 0.5, 0.05)))
        lead = _leading(loadings)
        rotated_lead, correlation = simple(loadings[lead])
        rotated = loadings @ np.linalg.lstsq(loadings[lead], rotated_lead, rcond=None)[0]
        weighted = rotated / unique[:, None]
        inner = np.linalg.inv(np.linalg.inv(correlation) + rotated.T @ weighted)
        yield rotated, weighted @ inner


def _leading(loadings: np.ndarray) -> np.ndarray:
    """Features that the factors explain best."""
    return np.argsort(-(loadings**2).sum(1), kind="stable")[:LED_BY]


def _factor_analysis(
    x: np.ndarray, variance: np.ndarray, loadings: np.ndarray, max_iter: int = 100, floor: float = 0.02
) -> tuple[np.ndarray, np.ndarray]:
    """`start.factor_analysis` of the matrix ``x.T @ x / n``, which is never formed."""
    unique = np.maximum(variance - (loadings**2).sum(1), 0.2)
    for _ in range(max_iter):
        weighted = loadings / unique[:, None]
        posterior = np.linalg.inv(np.eye(loadings.shape[1]) + loadings.T @ weighted)
        gain = posterior @ weighted.T
        cross = _times(x.T, _times(x, gain.T)) / len(x)
        new = cross @ np.linalg.inv(posterior + gain @ cross)
        change = np.abs(new - loadings).max()
        loadings = new
        unique = np.maximum(variance - (new * cross).sum(1), floor)
        if change < 1e-4:
            break
    return loadings, unique


def _residual(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Variance of each feature that a quadratic polynomial of z leaves."""
    i, j = np.triu_indices(z.shape[1])
    terms = np.column_stack([np.ones(len(z)), z, z[:, i] * z[:, j]])
    gram = terms.T @ terms + 1e-3 * len(z) * np.eye(terms.shape[1])
    cross = _times(terms.T.astype(x.dtype), x)
    return np.maximum(((x**2).sum(0) - (cross * np.linalg.solve(gram, cross)).sum(0)) / len(z), 0.0)
