r"""scikit-learn's linear factor models behind this package's front, missing cells included.

Each of them says :math:`x_i \approx c + C^\top z_i`; what differs is how C and z are found.  Missing cells
are filled with the model's own prediction until nothing changes, for factor analysis the conditional mean
given the seen cells.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.decomposition import NMF, PCA, FactorAnalysis, LatentDirichletAllocation

from .._utils.types import TableLike
from ..data.read import Table, as_table
from ..likelihoods import Normal, Poisson

__all__ = ["Classical", "ClassicalFit"]

Estimator: TypeAlias = FactorAnalysis | PCA | NMF | LatentDirichletAllocation
METHODS = ("factor_analysis", "pca", "nmf", "lda")


class Classical:
    """Factor analysis with varimax, PCA, NMF or LDA (topics), from scikit-learn.

    Parameters
    ----------
    method : {"factor_analysis", "pca", "nmf", "lda"}
        The first two work on z-scored columns, NMF and LDA on the values as they are.
    n_factors : int
        K.
    seed : int
        Passed on as ``random_state``.
    max_fill : int
        At most this many rounds of filling missing cells (20 times as many for new rows).
    tolerance : float
        Stop filling when no cell moves by more than this many column standard deviations.
    **options
        Passed on to the scikit-learn class; `rotation` of factor analysis defaults to "varimax".

    Raises
    ------
    ValueError
        Unknown method, impossible `n_factors`, or data the method cannot describe.

    Notes
    -----
    Filling by prediction treats filled cells as seen when the noise is estimated, which understates it a
    little.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 6))
    >>> Classical("pca", n_factors=2).fit(x).transform(x).shape
    (50, 2)
    """

    def __init__(
        self,
        method: str,
        n_factors: int,
        seed: int = 0,
        max_fill: int = 50,
        tolerance: float = 1e-4,
        **options: object,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method: got {method!r}, wanted one of {', '.join(map(repr, METHODS))}")
        self.method, self.n_factors, self.seed = method, int(n_factors), seed
        self.max_fill, self.tolerance, self.options = max_fill, tolerance, options

    def _estimator(self) -> Estimator:
        k, seed, options = self.n_factors, self.seed, dict(self.options)
        if self.method == "factor_analysis":
            options.setdefault("rotation", "varimax")
            return FactorAnalysis(k, random_state=seed, **options)
        if self.method == "lda":
            return LatentDirichletAllocation(k, random_state=seed, **options)
        return {"pca": PCA, "nmf": NMF}[self.method](k, random_state=seed, **options)

    def fit(self, X: TableLike, feature_names: list[str] | None = None) -> ClassicalFit:
        """Fit to a table (row, feature); NaN marks a missing cell.  Returns a `ClassicalFit`."""
        table = as_table(
            X,
            likelihood=Poisson(size_factors=False) if self.method == "lda" else Normal(),
            standardise=self.method in ("factor_analysis", "pca"),
            feature_names=feature_names,
        )
        n_features = table.x.shape[1]
        if not 1 <= self.n_factors < n_features:
            raise ValueError(
                f"n_factors: got {self.n_factors} for n_features={n_features}; wanted "
                "1 <= n_factors < n_features (a factor must be shared by features; lower n_factors)"
            )
        observed = np.ones(table.x.shape, bool) if table.mask is None else table.mask
        x = table.x
        if self.method == "nmf" and (x < 0).any():
            i, j = np.argwhere(x < 0)[0]
            raise ValueError(
                f'X: column {table.feature_names[j]!r} holds {x[i, j]:g} (row {i}); method="nmf" wants '
                'values >= 0. Shift the column, or use method="factor_analysis".'
            )
        mean = x.sum(0) / observed.sum(0)
        spread = np.sqrt((((x - mean) * observed) ** 2).sum(0) / observed.sum(0))
        x = np.where(observed, x, mean)
        for _ in range(self.max_fill if not observed.all() else 1):
            estimator = self._estimator().fit(x)
            fit = ClassicalFit(self, estimator, table, mean, spread)
            if observed.all():
                break
            x, moved = fit._refilled(x, observed)
            if moved < self.tolerance:
                break
        fit._scores = estimator.transform(x) * fit._totals(x)
        return fit


class ClassicalFit:
    """What `Classical.fit` returns; arrays have the names and shapes of a `Fit` with one restart.

    Parameters
    ----------
    settings : Classical
        What was asked for.
    estimator : object
        The fitted scikit-learn estimator (of z-scored columns for factor analysis and PCA).
    table : Table
        The training rows.
    mean, spread : ndarray (feature,)
        Of the seen cells of each column, in the method's units.

    Attributes
    ----------
    best, n_restarts : int
        0 and 1.
    """

    best = 0
    n_restarts = 1

    def __init__(
        self, settings: Classical, estimator: Estimator, table: Table, mean: np.ndarray, spread: np.ndarray
    ) -> None:
        self.settings, self.estimator, self.table = settings, estimator, table
        self.method = settings.method
        self._mean, self._spread = mean, spread
        components = estimator.components_
        self._components = (
            components / components.sum(1, keepdims=True) if self.method == "lda" else components
        )
        self._offset = getattr(estimator, "mean_", np.zeros(components.shape[1]))
        self._scores = np.ones((2, len(components)))

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns."""
        return self.table.feature_names

    @property
    def factor_names(self) -> list[str]:
        """ "factor 1", …"""
        return [f"factor {k + 1}" for k in range(len(self._components))]

    @property
    def sample_names(self) -> list[str]:
        """Names of the rows of the fit."""
        return self.table.sample_names

    @property
    def weights(self) -> np.ndarray:
        """Loadings (1, feature, factor) of factors with unit variance, in the units the method works in."""
        return (self._components * self._factor_sd()[:, None]).T[None]

    @property
    def effects(self) -> np.ndarray:
        """Share of each feature's variance due to each factor, (1, feature, factor), in [0, 1]."""
        return np.clip((self.weights / self._spread[:, None]) ** 2, 0.0, 1.0)

    @property
    def noise_sd(self) -> np.ndarray | None:
        """Noise standard deviation (feature,) in original units; None for NMF and LDA."""
        if self.method in ("nmf", "lda"):
            return None
        return np.sqrt(self.estimator.noise_variance_) * self.table.scale

    def _factor_sd(self) -> np.ndarray:
        return np.ones(len(self._components)) if self.method == "factor_analysis" else self._scores.std(0)

    def _totals(self, x: np.ndarray) -> np.ndarray | float:
        return x.sum(1, keepdims=True) if self.method == "lda" else 1.0

    def _decode(self, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self._offset + (z * self._totals(x)) @ self._components

    def _refilled(self, x: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, float]:
        """Rows with missing cells at their prediction, and the farthest that one moved."""
        filled = np.where(observed, x, self._decode(self.estimator.transform(x), x))
        return filled, (np.abs(filled - x) / self._spread).max()

    def _fill(self, X: TableLike) -> tuple[np.ndarray, np.ndarray]:
        """New rows in the method's units, missing cells at their prediction, and which cells were seen."""
        likelihood = Poisson(size_factors=False) if self.method == "lda" else Normal()
        table = as_table(X, likelihood=likelihood, like=self.table)
        if table.mask is None:
            return table.x, np.ones(table.x.shape, bool)
        x = np.where(table.mask, table.x, self._mean)
        for _ in range(20 * self.settings.max_fill):
            x, moved = self._refilled(x, table.mask)
            if moved < 0.1 * self.settings.tolerance:
                break
        return x, table.mask

    def transform(self, X: TableLike) -> np.ndarray:
        """Factor scores (row, factor): scikit-learn's, at the filled table."""
        return self.estimator.transform(self._fill(X)[0])

    def predict(self, X: TableLike) -> np.ndarray:
        """Expectation of every cell (row, feature) in original units, missing cells included."""
        x, _ = self._fill(X)
        return self._decode(self.estimator.transform(x), x) * self.table.scale + self.table.centre

    def inverse_transform(self, Z: np.ndarray) -> np.ndarray:
        """Cells (row, feature) in original units from scores; for LDA shares of the row's total."""
        return (self._offset + np.asarray(Z) @ self._components) * self.table.scale + self.table.centre

    def log_likelihood(self, X: TableLike) -> np.ndarray:
        """Gaussian log-likelihood (row,) of the seen cells, in nats, of z-scored columns; FA and PCA only.

        Raises
        ------
        NotImplementedError
            For NMF and LDA, which have none in closed form.
        """
        if self.method in ("nmf", "lda"):
            raise NotImplementedError(
                f'method="{self.method}" has no likelihood in closed form; compare `predict` on hidden cells'
            )
        x, observed = self._fill(X)
        cov, mean = self.estimator.get_covariance(), self.estimator.mean_
        out = np.zeros(len(x))
        patterns, pattern_of_row = np.unique(observed, axis=0, return_inverse=True)
        for p, pattern in enumerate(patterns):
            rows = pattern_of_row.reshape(-1) == p
            if pattern.any():
                block = cov[np.ix_(pattern, pattern)]
                out[rows] = multivariate_normal.logpdf(x[np.ix_(rows, pattern)], mean[pattern], block)
        return out

    def score(self, X: TableLike) -> float:
        """Average of `log_likelihood` over rows."""
        return float(self.log_likelihood(X).mean())
