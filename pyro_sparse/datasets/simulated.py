"""Tables drawn from a known sparse factor graph.

Each generator draws factors z, pushes every feature's own few factors through a simple function,
adds Gaussian noise, and returns the table together with the truth: z, the 0/1 support, what kind of
function each feature is, and a train/test split. The same arguments give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from pyro_sparse._utils.checks import check_whole

__all__ = ["Simulated", "anchored", "anchored60", "sim1"]

ANCHORED_KINDS = ("identity", "tanh", "sin", "square")


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated table and the truth behind it.

    Parameters
    ----------
    name : str
        Generator that made it.
    x : ndarray of shape (N, G)
        Observed table, in original units.
    z : ndarray of shape (N, K)
        True factors, row by row.
    support : ndarray of shape (G, K), dtype int
        1 where the feature depends on the factor.
    kind : tuple of str, length G
        What sort of feature each is (``"anchor"``, ``"sin"`` ...).
    feature_names, factor_names : list of str
        Labels of the columns of `x` and of `z`.
    splits : mapping of str to ndarray of int
        Row numbers of ``"train"`` and ``"test"``; disjoint, together all rows.
    settings : mapping
        The arguments that made it.
    """

    name: str
    x: np.ndarray
    z: np.ndarray
    support: np.ndarray
    kind: tuple[str, ...]
    feature_names: list[str]
    factor_names: list[str]
    splits: Mapping[str, np.ndarray]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame of shape (N, G) with feature names."""
        return pd.DataFrame(self.x, columns=self.feature_names)

    def part(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Rows of one split.

        Parameters
        ----------
        split : str
            A key of `splits`.

        Returns
        -------
        x, z : ndarray of shape (n, G) and (n, K)
            Table and factors of those rows.

        Raises
        ------
        KeyError
            If there is no such split.
        """
        if split not in self.splits:
            raise KeyError(f"split={split!r} is not one of {sorted(self.splits)}")
        rows = self.splits[split]
        return self.x[rows], self.z[rows]


def sim1(n: int = 1000, rho: float = 0.0, noise: float = 0.5, seed: int = 0) -> Simulated:
    r"""Seven features of two factors: the first simulation of the Sparse VAE paper.

    .. math::

        z \sim N\!\left(0, \begin{pmatrix}1 & \rho \\ \rho & 1\end{pmatrix}\right), \qquad
        x = (z_1, 2z_1, 3z_1^2, 4z_2, 5z_2, 6\sin z_2, 7z_1z_2) + \mathrm{noise}\cdot N(0, I_7).

    Eight edges. The true factors reconstruct x with mean squared error ``noise**2``; a dense model with more
    than two factors can go below that, by copying the noise.

    Parameters
    ----------
    n : int
        Rows; half of them, at random, are the training split.
    rho : float
        Correlation of the two factors, in (-1, 1).
    noise : float
        Standard deviation of the noise, in the units of x.
    seed : int
        Seed of the draw.

    Returns
    -------
    Simulated
        Table of shape (n, 7) with two factors.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Moran, Sridhar, Wang and Blei (2022), *Identifiable deep generative models via sparse decoding*,
    section 5.

    Examples
    --------
    >>> data = sim1(n=100, seed=1)
    >>> data.x.shape, int(data.support.sum())
    ((100, 7), 8)
    """
    _check(n=n, noise=noise, seed=seed)
    if not -1 < rho < 1:
        raise ValueError(f"rho={rho} must lie strictly between -1 and 1")
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal(np.zeros(2), [[1.0, rho], [rho, 1.0]], size=n)
    a, b = z.T
    mean = np.column_stack([a, 2 * a, 3 * a**2, 4 * b, 5 * b, 6 * np.sin(b), 7 * a * b])
    x = mean + noise * rng.standard_normal(mean.shape)
    support = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [1, 1]])
    order = np.random.default_rng(10_000 + seed).permutation(n)
    return Simulated(
        name="sim1",
        x=x,
        z=z,
        support=support,
        kind=("anchor", "anchor", "square", "anchor", "anchor", "sin", "product"),
        feature_names=_names("x", 7),
        factor_names=_names("z", 2),
        splits={"train": np.sort(order[: n // 2]), "test": np.sort(order[n // 2 :])},
        settings={"n": n, "rho": rho, "noise": noise, "seed": seed},
    )


def anchored(
    n: int,
    n_features: int,
    n_factors: int,
    *,
    n_test: int = 0,
    anchors_per_factor: int = 2,
    max_parents: int = 3,
    kinds: tuple[str, ...] = ANCHORED_KINDS,
    rho: float = 0.0,
    noise: float = 0.5,
    seed: int = 0,
) -> Simulated:
    r"""Features of one to `max_parents` factors, with anchors that make the factors identifiable.

    Factors are :math:`z \sim N(0, (1-\rho) I + \rho 11^\top)`. The first ``anchors_per_factor * n_factors``
    features are anchors, :math:`x_j = c_j z_{k(j)}`; each other feature draws its parents
    :math:`S_j`, :math:`1 \le |S_j| \le` `max_parents`, and a function from `kinds`:

    .. math::

        x_j = f_j\Bigl(\sum_{k \in S_j} c_{jk} z_k\Bigr) + \mathrm{noise}\cdot\epsilon, \qquad
        |c_{jk}| \sim U(1, 3),\ \text{random sign},\qquad
        f \in \{u, \tanh u, \sin u, u^2/2\}.

    Parameters
    ----------
    n : int
        Training rows.
    n_features, n_factors : int
        Features G and factors K; G must be at least ``anchors_per_factor * K``.
    n_test : int
        Further rows, from the same distribution, for the test split.
    anchors_per_factor : int
        Anchor features of each factor; two suffice for identifiability.
    max_parents : int
        Most factors one feature may depend on.
    kinds : tuple of str
        Functions to choose from: ``"identity"``, ``"tanh"``, ``"sin"``, ``"square"``.
    rho : float
        Common correlation of the factors, in (-1/(K-1), 1).
    noise : float
        Standard deviation of the noise, in the units of x.
    seed : int
        Seed of the draw.

    Returns
    -------
    Simulated
        Table of shape (n + n_test, n_features), not standardised.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Moran, Sridhar, Wang and Blei (2022), assumption A3 (anchor features).
    """
    _check(n=n, noise=noise, seed=seed)
    check_whole(0, n_test=n_test, anchors_per_factor=anchors_per_factor)
    check_whole(1, n_features=n_features, n_factors=n_factors, max_parents=max_parents)
    anchors = anchors_per_factor * n_factors
    if n_features < anchors:
        raise ValueError(f"n_features={n_features} is fewer than the {anchors} anchors asked for; raise it")
    if not 1 <= max_parents <= n_factors:
        raise ValueError(f"max_parents={max_parents} must lie between 1 and n_factors={n_factors}")
    if not kinds or set(kinds) - set(ANCHORED_KINDS):
        raise ValueError(f"kinds={kinds!r} must be chosen from {ANCHORED_KINDS}")
    if not (-1.0 / max(n_factors - 1, 1) < rho < 1):
        raise ValueError(f"rho={rho} does not give a positive definite correlation of {n_factors} factors")
    functions: dict[str, Callable[[np.ndarray], np.ndarray]]
    functions = {
        "identity": lambda u: u,
        "anchor": lambda u: u,
        "tanh": np.tanh,
        "sin": np.sin,
        "square": lambda u: 0.5 * u**2,
    }
    rng = np.random.default_rng(seed)
    rows = n + n_test
    covariance = np.full((n_factors, n_factors), rho) + (1 - rho) * np.eye(n_factors)
    z = rng.multivariate_normal(np.zeros(n_factors), covariance, size=rows)
    support = np.zeros((n_features, n_factors), dtype=int)
    mean = np.empty((rows, n_features))
    kind = []
    for j in range(n_features):
        if j < anchors:
            parents, label = np.array([j % n_factors]), "anchor"
        else:
            size = rng.integers(1, max_parents + 1)
            parents = rng.choice(n_factors, size=size, replace=False)
            label = kinds[rng.integers(len(kinds))]
        weight = rng.uniform(1.0, 3.0, len(parents)) * rng.choice([-1, 1], len(parents))
        mean[:, j] = functions[label](z[:, parents] @ weight)
        support[j, parents] = 1
        kind.append(label)
    return Simulated(
        name="anchored",
        x=mean + noise * rng.standard_normal(mean.shape),
        z=z,
        support=support,
        kind=tuple(kind),
        feature_names=_names("x", n_features),
        factor_names=_names("z", n_factors),
        splits={"train": np.arange(n), "test": np.arange(n, rows)},
        settings={
            "n": n,
            "n_features": n_features,
            "n_factors": n_factors,
            "n_test": n_test,
            "anchors_per_factor": anchors_per_factor,
            "max_parents": max_parents,
            "kinds": kinds,
            "rho": rho,
            "noise": noise,
            "seed": seed,
        },
    )


def anchored60(
    n: int = 1000, *, n_test: int = 500, rho: float = 0.0, noise: float = 0.5, seed: int = 0
) -> Simulated:
    """`anchored` with 60 features, 6 factors and 2 anchors per factor.

    Parameters
    ----------
    n, n_test : int
        Training and test rows.
    rho, noise, seed : float, float, int
        As in `anchored`.

    Returns
    -------
    Simulated
        Table of shape (n + n_test, 60).
    """
    return anchored(n, 60, 6, n_test=n_test, rho=rho, noise=noise, seed=seed)


def _check(n: int, noise: float, seed: int) -> None:
    check_whole(0, seed=seed)
    check_whole(2, n=n)
    if not noise >= 0:
        raise ValueError(f"noise={noise} is a standard deviation: it cannot be negative")


def _names(letter: str, count: int) -> list[str]:
    return [f"{letter}{i + 1}" for i in range(count)]
