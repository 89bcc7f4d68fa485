r"""The latents of 3D Shapes: a grid of 480,000 cells in six dimensions, and a distribution over it.

A cell is a choice of level for each of six factors, counted in lexicographic order (the last factor runs
fastest). Its latent is the standardised value of the levels, optionally moved inside the cell by
:math:`u_k \sim U(\pm \tfrac12\,\mathrm{noise}\cdot\mathrm{gap}_k)`, drawn once, and its probability

.. math:: p(z) \propto N\bigl(z;\, 0,\, (1-\rho) I + \rho 11^\top\bigr).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["COUNTS", "LEVELS", "Grid", "grid", "levels_of"]

LEVELS: dict[str, np.ndarray] = {  # in the order of `3dshapes.h5`, the last running fastest
    "floor_hue": np.arange(10) / 10,
    "wall_hue": np.arange(10) / 10,
    "object_hue": np.arange(10) / 10,
    "scale": np.linspace(0.75, 1.25, 8),
    "shape": np.arange(4.0),
    "orientation": np.linspace(-30.0, 30.0, 15),
}
COUNTS = tuple(len(values) for values in LEVELS.values())


@dataclass(frozen=True, eq=False)
class Grid:
    """Latents of all cells, and the cumulated probabilities to draw cells by.

    Parameters
    ----------
    z : ndarray of shape (480000, 6)
        Standardised over the grid: mean 0 and variance 1 when all cells are equally probable.
    cdf : ndarray of shape (480000,)
    """

    z: np.ndarray
    cdf: np.ndarray

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Cells drawn by their probability."""
        # Rounding can leave the last sum a little under 1.
        return np.minimum(np.searchsorted(self.cdf, rng.random(shape), side="right"), len(self.z) - 1)


def levels_of(cells: np.ndarray) -> np.ndarray:
    """Level of each factor in a cell: shape (..., 6), dtype int."""
    return np.stack(np.unravel_index(cells, COUNTS), axis=-1)


def grid(rho: float, latent_noise: float, rng: np.random.Generator) -> Grid:
    """All cells, with the noise of the latents drawn from `rng`.

    Raises
    ------
    ValueError
        If `rho` gives no positive definite covariance, or `latent_noise` is not in [0, 1].
    """
    m = len(COUNTS)
    if not -1 / (m - 1) < rho < 1:
        raise ValueError(f"rho={rho}: want a common correlation of {m} latents, above -1/{m - 1} and below 1")
    if not 0 <= latent_noise <= 1:
        raise ValueError(
            f"latent_noise={latent_noise}: want a share of the gap between levels, from 0 to 1, "
            "or neighbouring levels change places"
        )
    z = np.stack(np.meshgrid(*LEVELS.values(), indexing="ij"), axis=-1).reshape(-1, m)
    if latent_noise:
        half = 0.5 * latent_noise * np.array([values[1] - values[0] for values in LEVELS.values()])
        z += rng.uniform(-half, half, z.shape)
    z -= z.mean(axis=0)
    z /= z.std(axis=0)
    # The inverse of (1 - rho) I + rho 11' by Sherman and Morrison.
    shared = rho / (1 + (m - 1) * rho)
    square = ((z**2).sum(axis=1) - shared * z.sum(axis=1) ** 2) / (1 - rho)
    cdf = np.cumsum(np.exp(-0.5 * (square - square.min())))
    return Grid(z, cdf / cdf[-1])
