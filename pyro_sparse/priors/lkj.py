r"""The LKJ prior of a correlation matrix, and mixtures that leave the data to say how large correlations are.

.. math:: p(C) = \sum_m \pi_m \frac{|C|^{c_m - 1}}{Z_K(c_m)}, \qquad
          Z_K(c) = \prod_{m=1}^{K-1} \pi^{m/2}\,
          \frac{\Gamma(c + \frac{K - 1 - m}{2})}{\Gamma(c + \frac{K - 1}{2})}

A concentration c of 1 is flat over correlation matrices; the larger c, the nearer they are to the identity.
The density depends on C through its determinant only, so that a mixture over concentrations costs no more
than one of them: it needs no draws of c.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from .._utils.recorded import Recorded

__all__ = ["LKJ"]

Array = NDArray[np.float64]


class LKJ(Recorded):
    """Prior of the factors' correlation matrix: one LKJ distribution, or a mixture of several.

    Parameters
    ----------
    concentration : float or sequence of float
        c, larger than 0. 1 is flat over correlation matrices. With (1, 1000) the factors are either
        correlated in any way or, but for some hundredths, not at all.
    share : sequence of float, optional
        Prior probability of each concentration, up to a factor; default each alike.

    Raises
    ------
    ValueError
        No concentration, or one that is not a positive number; as many shares are wanted, positive too.

    Examples
    --------
    >>> import numpy as np
    >>> import pyro_sparse as ps
    >>> flat = ps.priors.LKJ(1.0)
    >>> float(np.exp(flat.log_density(0.0, n_factors=2)))  # uniform between -1 and 1
    0.5
    >>> flat.draw(5, 3, np.random.default_rng(0)).shape
    (5, 3, 3)

    References
    ----------
    Lewandowski, Kurowicka and Joe (2009), Generating random correlation matrices based on vines and extended
    onion method, Journal of Multivariate Analysis 100(9).
    """

    def __init__(
        self, concentration: float | Sequence[float] = 1.0, share: Sequence[float] | None = None
    ) -> None:
        values = np.atleast_1d(np.asarray(concentration, dtype=float))
        if not _positive(values):
            raise ValueError(
                f"concentration: got {concentration!r}, wanted a positive number or several of them; 1 is "
                "flat over correlation matrices"
            )
        shares = np.ones(len(values)) if share is None else np.asarray(share, dtype=float)
        if not _positive(shares) or len(shares) != len(values):
            raise ValueError(
                f"share: got {share!r}, wanted a positive number for each of {len(values)} concentrations"
            )
        self.concentration = tuple(float(value) for value in values)
        self.share = tuple(float(value) for value in shares / shares.sum())

    def __repr__(self) -> str:
        if len(self.concentration) == 1:
            return f"LKJ({self.concentration[0]})"
        return f"LKJ({self.concentration}, {self.share})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LKJ) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def log_density(self, log_det: Array | float, n_factors: int) -> Array:
        """Log density of correlation matrices, with respect to their entries below the diagonal.

        Parameters
        ----------
        log_det : ndarray or float
            Logarithms of their determinants, of any shape.
        n_factors : int
            K, their size.

        Returns
        -------
        ndarray
            Of the shape of `log_det`.
        """
        first, *others = self._levels(log_det, n_factors)
        return np.asarray(reduce(np.logaddexp, others, first))

    def slope(self, log_det: Array | float, n_factors: int) -> Array:
        """Derivative of `log_density` in the logarithm of the determinant.

        Parameters
        ----------
        log_det : ndarray or float
        n_factors : int

        Returns
        -------
        ndarray
            Of the shape of `log_det`.

        Examples
        --------
        >>> float(LKJ(3.0).slope(-0.5, n_factors=4))
        2.0
        """
        if len(self.concentration) == 1:
            return np.full(np.shape(log_det), self.concentration[0] - 1)
        levels = self._levels(log_det, n_factors)
        whole = reduce(np.logaddexp, levels)
        shares = [np.exp(level - whole) for level in levels]
        return np.asarray(sum((c - 1) * p for c, p in zip(self.concentration, shares, strict=True)))

    def log_weights(self, n_factors: int) -> Array:
        """Log share of each concentration less its log normaliser: without the determinant, its log density.

        Parameters
        ----------
        n_factors : int

        Returns
        -------
        ndarray (concentration,)

        Examples
        --------
        >>> np.exp(LKJ((1.0, 2.0)).log_weights(2)).round(3)  # half of 1/2 and of 3/4 (1 - r^2)
        array([0.25 , 0.375])
        """
        return np.array(_log_weight(self.concentration, self.share, n_factors))

    def _levels(self, log_det: Array | float, n_factors: int) -> list[Array]:
        """Log density of each concentration and its share."""
        log_det = np.asarray(log_det, dtype=float)
        weights = _log_weight(self.concentration, self.share, n_factors)
        return [
            np.full(log_det.shape, weight) if c == 1 else (c - 1) * log_det + weight  # 0 times -inf
            for c, weight in zip(self.concentration, weights, strict=True)
        ]

    def draw(self, n: int, n_factors: int, rng: np.random.Generator) -> Array:
        """Independent draws by the onion method, one row of the Cholesky factor after the other.

        Parameters
        ----------
        n : int
        n_factors : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray (n, factor, factor)
            Correlation matrices.
        """
        c = rng.choice(np.array(self.concentration), size=n, p=self.share)
        root = np.zeros((n, n_factors, n_factors))
        root[:, 0, 0] = 1.0
        for m in range(1, n_factors):
            explained = rng.beta(m / 2, c + (n_factors - 1 - m) / 2)
            direction = rng.standard_normal((n, m))
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            root[:, m, :m] = np.sqrt(explained)[:, None] * direction
            root[:, m, m] = np.sqrt(1 - explained)
        cov: Array = root @ np.swapaxes(root, -1, -2)
        cov[:, range(n_factors), range(n_factors)] = 1.0
        return cov


@lru_cache(maxsize=64)
def _log_weight(concentration: tuple[float, ...], share: tuple[float, ...], n_factors: int) -> list[float]:
    """Log share of each concentration less that of its normaliser; chains ask for it in every step."""
    c, m = np.array(concentration), np.arange(1, n_factors)
    last = c[:, None] + (n_factors - 1) / 2
    log_norm = (m / 2 * np.log(np.pi) + gammaln(last - m / 2) - gammaln(last)).sum(1)
    weight: list[float] = (np.log(share) - log_norm).tolist()
    return weight


def _positive(values: Array) -> bool:
    """Whether it is a list of positive numbers, with at least one."""
    return bool(values.ndim == 1 and values.size and (np.isfinite(values) & (values > 0)).all())
