r"""Missing cells: what the factors say, and what the row's other residuals add to it.

A sparse graph leaves correlations between features that it does not explain (two questions with the same
wording). They are no factor, but they predict. With :math:`\Sigma_0` the covariance that the model implies
and :math:`\Sigma = \Sigma_0 + E` the one the table shows, the cells of a row that were not seen are

.. math:: \hat x_h = E[x_h \mid x_o, \text{model}]
          + (\Sigma_{ho}\Sigma_{oo}^{-1} - \Sigma_{0,ho}\Sigma_{0,oo}^{-1}) (x_o - \mu_o)

The excess E is shrunk to zero as far as the rows can tell: the share is chosen on two halves of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from ...distributions.correlated_normal import CorrelatedNormal

if TYPE_CHECKING:
    from ...models.base import FactorModel

__all__ = ["add_residuals", "excess_covariance", "implied_moments", "positive"]

# Candidates for alpha of `excess_covariance`; the halves of a table choose.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)


@torch.no_grad()
def implied_moments(model: FactorModel, num_draws: int = 8000) -> tuple[np.ndarray, np.ndarray]:
    """Mean (feature,) and covariance (feature, feature) of a row under the model, noise included.

    Parameters
    ----------
    model : FactorModel
        With a normal likelihood, of one restart; model units.
    num_draws : int
        Draws of the factors, in antithetic pairs.
    """
    prior = model.factor_prior()
    half = prior.expand((*prior.batch_shape[:-1], num_draws // 2)).sample()
    if isinstance(prior, CorrelatedNormal):
        half = _matched(half, prior.root)
    f = model.decode(torch.cat([half, -half], 1), getattr(model, "weights", None))[0].double()
    noise = cast(torch.Tensor, model.likelihood.noise_sd())[0, 0].double()
    return f.mean(0).cpu().numpy(), (f.T.cov(correction=0) + torch.diag(noise**2)).cpu().numpy()


def _matched(z: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
    """Draws (restart, row, factor) with exactly the second moments of N(0, L L'), L being `root`."""
    own = torch.linalg.cholesky(z.mT @ z / z.shape[1])
    return torch.linalg.solve_triangular(own, z.mT, upper=False).mT @ root[:, 0].mT


def excess_covariance(
    x: np.ndarray, mask: np.ndarray | None, mean: np.ndarray, implied: np.ndarray
) -> np.ndarray:
    r"""Covariance of a table beyond the implied one, shrunk to zero: :math:`(1-\alpha)(S - \Sigma_0)`.

    Parameters
    ----------
    x : ndarray (row, feature)
    mask : ndarray of bool (row, feature), optional
        True where a cell was seen; S is formed of the pairs seen together.
    mean, implied : ndarray (feature,), (feature, feature)
        See `implied_moments`.

    Returns
    -------
    ndarray (feature, feature)
        With :math:`\alpha` of the highest Gaussian likelihood of each half of the rows given the other.
    """
    observed = np.ones(x.shape) if mask is None else mask.astype(float)
    centred = np.where(observed > 0, x - mean, 0.0)

    def moments(rows: slice) -> np.ndarray:
        pairs = observed[rows].T @ observed[rows]
        covariance = centred[rows].T @ centred[rows] / np.maximum(pairs, 1)
        return np.where(pairs > 20, covariance, implied)  # columns seldom seen together say too little

    halves = [moments(slice(start, None, 2)) for start in (0, 1)]

    def fit(share: float) -> float:
        total = 0.0
        for fitted, judged in (halves, halves[::-1]):
            blend = positive(share * implied + (1 - share) * fitted)
            total -= np.linalg.slogdet(blend)[1] + np.trace(np.linalg.solve(blend, judged))
        return float(total)

    share = max(SHARES, key=fit)
    return positive(share * implied + (1 - share) * moments(slice(None))) - implied


def add_residuals(
    predicted: np.ndarray,
    x: np.ndarray,
    mask: np.ndarray,
    mean: np.ndarray,
    implied: np.ndarray,
    excess: np.ndarray,
) -> np.ndarray:
    """Predicted cells (row, feature) plus what the seen cells of each row say through the excess covariance.

    Parameters
    ----------
    predicted : ndarray (row, feature)
        Expectation under the model given the seen cells.
    x, mask : ndarray (row, feature)
    mean, implied, excess : ndarray
        See `implied_moments` and `excess_covariance`.
    """
    filled = predicted.copy()
    whole = implied + excess
    patterns, pattern_of_row = np.unique(mask, axis=0, return_inverse=True)
    for number, observed in enumerate(patterns):
        if observed.all() or not observed.any():
            continue
        rows = np.flatnonzero(pattern_of_row.ravel() == number)
        centred = (x[rows][:, observed] - mean[observed]).T
        for covariance, sign in ((whole, 1), (implied, -1)):
            gain = covariance[np.ix_(~observed, observed)] @ np.linalg.solve(
                covariance[np.ix_(observed, observed)], centred
            )
            filled[np.ix_(rows, ~observed)] += sign * gain.T
    return filled


def positive(covariance: np.ndarray, least: float = 1e-3) -> np.ndarray:
    """The nearest matrix with eigenvalues of at least `least` of the mean variance."""
    values, vectors = np.linalg.eigh(covariance)
    floor = least * float(np.trace(covariance)) / len(covariance)
    return (vectors * np.maximum(values, floor)) @ vectors.T
