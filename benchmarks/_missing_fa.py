r"""Maximum-likelihood factor analysis of a table with holes, by EM: the linear rival for masked cells.

:math:`x_{ij} \sim N(\mu_j + \lambda_j^\top z_i, \psi_j)`, :math:`z_i \sim N(0, I)`, over observed cells only.
Given the factors, features are independent, so a missing cell simply drops out of both steps: nothing is
imputed.
"""

from __future__ import annotations

import numpy as np

__all__ = ["MissingFactorAnalysis"]


class MissingFactorAnalysis:
    """EM for factor analysis with missing cells.

    Parameters
    ----------
    n_factors : int
        K.
    tolerance : float
        Stop when the mean log-likelihood of a row rises by less.
    max_steps : int
        Stop anyway.

    Attributes
    ----------
    mean, loadings, noise : ndarray of shape (G,), (G, K), (G,)
        mu, lambda and psi after `fit`.
    log_likelihood : list of float
        Mean log-likelihood of a row, step by step; it never falls.
    """

    def __init__(self, n_factors: int, tolerance: float = 1e-8, max_steps: int = 5000):
        self.n_factors, self.tolerance, self.max_steps = n_factors, tolerance, max_steps

    def fit(self, x: np.ndarray) -> MissingFactorAnalysis:
        """Fit to x of shape (N, G), NaN where missing."""
        seen = ~np.isnan(x)
        filled = np.where(seen, x, 0.0)
        self.mean, self.noise = np.nanmean(x, axis=0), np.nanvar(x, axis=0)
        centred = np.where(seen, x - self.mean, 0.0)
        _, singular, directions = np.linalg.svd(centred, full_matrices=False)
        k = self.n_factors
        self.loadings = directions[:k].T * singular[:k] / np.sqrt(len(x))
        self.noise = np.maximum(self.noise - (self.loadings**2).sum(1), 0.1 * self.noise)
        self.log_likelihood: list[float] = []
        for _ in range(self.max_steps):
            z, covariance, value = self._posterior(x)
            self.log_likelihood.append(value)
            if len(self.log_likelihood) > 1 and value - self.log_likelihood[-2] < self.tolerance:
                break
            ones = np.ones((len(x), 1))
            design = np.hstack([z, ones])  # loadings and mean are one regression on (z, 1)
            second = design[:, :, None] * design[:, None, :]
            second[:, :k, :k] += covariance
            left = np.tensordot(seen.astype(float), second, axes=(0, 0))
            right = filled.T @ design
            solution = np.linalg.solve(left, right[..., None])[..., 0]
            self.loadings, self.mean = solution[:, :k], solution[:, k]
            self.noise = ((filled**2).sum(0) - (solution * right).sum(1)) / seen.sum(0)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Expectation of every cell given the row's observed ones."""
        return self.mean + self._posterior(x)[0] @ self.loadings.T

    def impute(self, x: np.ndarray) -> np.ndarray:
        """`predict` with the same help from residuals that `Fit.impute` gives: learned from x itself."""
        from pyro_sparse.inference.table.impute import add_residuals, excess_covariance

        seen = ~np.isnan(x)
        filled = np.where(seen, x, 0.0)
        implied = self.loadings @ self.loadings.T + np.diag(self.noise)
        excess = excess_covariance(filled, seen, self.mean, implied)
        return add_residuals(self.predict(x), filled, seen, self.mean, implied, excess)

    def _posterior(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean (N, K) and covariance (N, K, K) of z, and the mean log-likelihood of a row."""
        seen = ~np.isnan(x)
        residual = np.where(seen, x - self.mean, 0.0)
        weight = seen / self.noise
        products = (self.loadings[:, :, None] * self.loadings[:, None, :]).reshape(len(self.mean), -1)
        k = self.n_factors
        precision = np.eye(k) + (weight @ products).reshape(-1, k, k)
        covariance = np.linalg.inv(precision)
        score = (residual * weight) @ self.loadings
        z = (covariance @ score[..., None])[..., 0]
        quadratic = (residual**2 * weight).sum(1) - (score * z).sum(1)
        log_det = (seen * np.log(self.noise)).sum(1) + np.linalg.slogdet(precision)[1]
        value = -0.5 * (quadratic + log_det + seen.sum(1) * np.log(2 * np.pi))
        return z, covariance, float(value.mean())
