r"""Whether a fit that uses all its factors leaves covariance unexplained: then there are too few of them.

With :math:`\Sigma_0 = L L^\top` the covariance that the model implies and S that of the rows, the eigenvalues
of :math:`L^{-1} S L^{-\top}` lie below the edge of the Marchenko-Pastur distribution,
:math:`(1 + \sqrt{p / n})^2`, for n rows of p features that the model explains. A factor that is missing
stands out, and its eigenvector says which features share it.

References
----------
Johnstone (2001), On the distribution of the largest eigenvalue in principal components analysis, Annals of
Statistics 29(2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...data.large_table import LargeTable
from ...findings.finding import Finding

if TYPE_CHECKING:
    from .result import Fit

__all__ = ["excess_eigenvalue", "rows_covariance", "unexplained_findings"]

# Largest eigenvalue over the edge, of 24 short tuning fits (seeds 1000 to 1005, linear and curved, 150 to 600
# rows): with the right number of factors .90 to 1.04 in nine of twelve and 1.22 to 1.49 in three, where two
# restarts had missed some of the structure; with one factor too few 1.32 to 3.
_MARGIN = 1.2
_MOST_FEATURES = 2000  # of a dense covariance
_NAMED = 4  # features in a message
_LEAST_TOGETHER = 20  # rows that saw both features of a pair


def excess_eigenvalue(
    x: np.ndarray, mask: np.ndarray | None, mean: np.ndarray, implied: np.ndarray
) -> tuple[float, np.ndarray]:
    """Largest eigenvalue of the rows' covariance in units of the implied one, over its edge; its direction.

    Parameters
    ----------
    x : ndarray (row, feature)
    mask : ndarray of bool (row, feature), optional
        True where a cell was seen.
    mean, implied : ndarray (feature,), (feature, feature)
        Moments of a row under the model.

    Returns
    -------
    ratio : float
        Above 1 where the model leaves covariance unexplained.
    direction : ndarray (feature,)
        Squares add to 1: how far each feature shares it.
    """
    covariance, n_rows = rows_covariance(x, mask, mean, implied)
    lower = np.linalg.cholesky(implied)
    whitened = np.linalg.solve(lower, np.linalg.solve(lower, covariance).T)
    values, vectors = np.linalg.eigh((whitened + whitened.T) / 2)
    edge = (1 + np.sqrt(x.shape[1] / np.median(n_rows))) ** 2
    return float(values[-1] / edge), vectors[:, -1]


def rows_covariance(
    x: np.ndarray, mask: np.ndarray | None, mean: np.ndarray, implied: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of the rows about a mean, and how many rows saw each pair, both (feature, feature).

    Pairs seen together in 20 rows or fewer say nothing against the model and have its covariance.

    Parameters
    ----------
    x : ndarray (row, feature)
    mask : ndarray of bool (row, feature), optional
        True where a cell was seen.
    mean, implied : ndarray (feature,), (feature, feature)
        Moments of a row under the model.
    """
    observed = np.ones(x.shape) if mask is None else mask.astype(float)
    centred = np.where(observed > 0, x - mean, 0.0)
    n_rows = np.maximum(observed.T @ observed, 1.0)
    return np.where(n_rows > _LEAST_TOGETHER, centred.T @ centred / n_rows, implied), n_rows


def unexplained_findings(fit: Fit) -> list[Finding]:
    """What to say of a fit that uses all its factors and leaves covariance that one more would explain.

    Parameters
    ----------
    fit : Fit
        Under the normal likelihood, of a table in memory; of others nothing is said.
    """
    table = fit.table
    in_use = (np.asarray(fit.weights)[int(fit.best)] != 0).any(0)
    if not in_use.all() or fit.model.likelihood.noise_sd() is None or isinstance(table, LargeTable):
        return []
    if table.x.shape[1] > _MOST_FEATURES:
        return []
    mean, implied = fit.implied_moments()
    ratio, direction = excess_eigenvalue(table.x / np.sqrt(table.freedom), table.mask, mean, implied)
    if ratio < _MARGIN:
        return []
    order = np.argsort(-(direction**2))[:_NAMED]
    names = tuple(fit.feature_names[j] for j in order)
    message = (
        f"all {len(in_use)} factors are in use, and {', '.join(names)} share more than they explain "
        f"(largest residual eigenvalue {ratio:.1f} times what so many rows of noise have)"
    )
    return [Finding("size", message, "try a larger n_factors", columns=names, size=ratio)]
