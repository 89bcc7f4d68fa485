r"""One sparse regression, y = w'z + noise, on the latents z themselves or on a rotation of them.

A rotation changes nothing for least squares and ridge regression, and takes from the lasso what makes it
work: w is sparse, and R'w is not. `fig1_data` is the experiment of figure 1 of the paper.

Lachapelle, Deleu et al. (2023), *Synergies between disentanglement and sparsity*, arXiv 2211.14666.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import ortho_group

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets._stream import stream

__all__ = ["Fig1", "fig1_data"]


@dataclass(frozen=True, eq=False)
class Fig1:
    """A regression on features that are either the latents themselves or a rotation of them.

    Parameters
    ----------
    z : ndarray of shape (n + n_test, m)
        Latents.
    y : ndarray of shape (n + n_test,)
        Labels.
    weights : ndarray of shape (m,)
        True weights of the latents; zero where the task does not use one.
    rotation : ndarray of shape (m, m)
        Orthogonal R; the entangled features are ``z @ rotation``.
    splits : mapping of str to ndarray of int
        Rows of ``"train"`` and ``"test"``.
    settings : mapping
        The arguments that made it.
    """

    z: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    rotation: np.ndarray
    splits: Mapping[str, np.ndarray]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def part(self, split: str, entangled: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Features and labels of one split.

        Parameters
        ----------
        split : str
            ``"train"`` or ``"test"``.
        entangled : bool
            Rotated features rather than the latents.

        Returns
        -------
        features, y : ndarray of shape (n, m) and (n,)

        Raises
        ------
        KeyError
            If there is no such split.
        """
        if split not in self.splits:
            raise KeyError(f"split={split!r} is not one of {sorted(self.splits)}")
        rows = self.splits[split]
        return (self.z[rows] @ self.rotation if entangled else self.z[rows]), self.y[rows]


def fig1_data(
    share: float,
    n: int,
    seed: int = 0,
    *,
    n_test: int = 1000,
    m: int = 100,
    correlation: float = 0.5,
    snr: float = 5.0,
) -> Fig1:
    r"""The regression of the paper's figure 1.

    .. math::

        z \sim N(0, \Sigma),\ \Sigma_{ij} = c^{|i-j|}, \qquad y = w^\top z + \sigma\epsilon, \qquad
        \sigma = \sqrt{w^\top \Sigma w} / \mathrm{snr},

    with w standard normal on a random set of ``round(share * m)`` latents and zero elsewhere, and a uniformly
    random rotation R for the entangled features. The best :math:`R^2` is
    :math:`\mathrm{snr}^2/(1+\mathrm{snr}^2)`, .962 by default.

    The published code holds the scores of one w per share, not the generator. Its ratio of 5 is read here as
    one of standard deviations: a ratio of variances would cap :math:`R^2` at .833, below the published .949.

    Parameters
    ----------
    share : float
        :math:`\ell/m`, the share of the latents that the task uses: .05, .2 and .8 in the paper.
    n : int
        Training rows; 25 to 150 in the paper. Those of a smaller n are the first of a larger one,
        and all else stays.
    seed : int
        Seed of everything.
    n_test : int
        Test rows.
    m : int
        Latents.
    correlation : float
        c, of neighbouring latents.
    snr : float
        Standard deviation of the signal over that of the noise.

    Returns
    -------
    Fig1

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Lachapelle, Deleu et al. (2023), figure 1 and appendix D.1.

    Examples
    --------
    >>> data = fig1_data(share=0.05, n=50)
    >>> features, y = data.part("train", entangled=True)
    >>> features.shape, y.shape, int((data.weights != 0).sum())
    ((50, 100), (50,), 5)
    """
    check_whole(1, n=n, n_test=n_test, m=m)
    if not 0 < share <= 1 or round(share * m) < 1:
        raise ValueError(f"share={share}: want a share in (0, 1] of m={m} latents that holds at least one")
    if not -1 < correlation < 1:
        raise ValueError(f"correlation={correlation}: want a number strictly between -1 and 1")
    if not 0 < snr < np.inf:
        raise ValueError(f"snr={snr}: want a finite number above 0")
    of_w, of_rotation, *of_rows = (stream(seed, key) for key in range(6))
    weights = np.zeros(m)
    used = of_w.choice(m, size=round(share * m), replace=False)
    weights[used] = of_w.standard_normal(len(used))
    sigma = correlation ** np.abs(np.subtract.outer(np.arange(m), np.arange(m)))
    root = np.linalg.cholesky(sigma)
    train, train_noise, test, test_noise = of_rows
    z = np.concatenate([train.standard_normal((n, m)), test.standard_normal((n_test, m))]) @ root.T
    noise = np.concatenate([train_noise.standard_normal(n), test_noise.standard_normal(n_test)])
    return Fig1(
        z=z,
        y=z @ weights + np.linalg.norm(root.T @ weights) / snr * noise,
        weights=weights,
        rotation=ortho_group.rvs(m, random_state=of_rotation) if m > 1 else np.eye(1),
        splits={"train": np.arange(n), "test": np.arange(n, n + n_test)},
        settings={
            "share": share,
            "n": n,
            "seed": seed,
            "n_test": n_test,
            "m": m,
            "correlation": correlation,
            "snr": snr,
        },
    )
