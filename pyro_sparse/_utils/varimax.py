"""Varimax: the orthogonal rotation of loadings towards few large ones in each column."""

from __future__ import annotations

import numpy as np

__all__ = ["varimax"]


def varimax(loadings: np.ndarray, max_iter: int = 500, tol: float = 1e-8) -> np.ndarray:
    r"""Orthogonal rotation that maximises the variance of squared loadings (Kaiser 1958).

    Parameters
    ----------
    loadings : ndarray (feature, factor)

    Returns
    -------
    ndarray (factor, factor)
        Rotation T; the rotated loadings are ``loadings @ T``.
    """
    rotation = np.eye(loadings.shape[1])
    previous = 0.0
    for _ in range(max_iter):
        rotated = loadings @ rotation
        u, s, vt = np.linalg.svd(loadings.T @ (rotated**3 - rotated * (rotated**2).mean(0)))
        rotation = u @ vt
        if s.sum() < previous * (1 + tol):
            break
        previous = float(s.sum())
    return rotation
