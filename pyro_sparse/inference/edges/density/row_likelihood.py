r"""log p(x | weights, noise) of linear chains, factors of complete rows summed out, and its derivatives.

Complete rows say what they say by their second moments around their means, S, and their number n:

.. math:: -\tfrac n2 \log |\Psi V^{-1}| - \tfrac12 \mathrm{tr}\, \Psi^{-1} S
          + \tfrac12 \mathrm{tr}\, V W^\top \Psi^{-1} S \Psi^{-1} W, \qquad
          V^{-1} = C^{-1} + W^\top \Psi^{-1} W .

Other rows come with their factors as they were last drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FactorsDrawn", "RowLikelihood"]

Array = NDArray[np.float64]


class FactorsDrawn(NamedTuple):
    """Sums over the seen cells of rows whose factors were drawn.

    Attributes
    ----------
    gram : ndarray (chain, feature, factor, factor)
        Z'Z.
    pull : ndarray (chain, feature, factor)
        (x - mean)'Z.
    squares : ndarray (chain, feature)
        Of x - mean.
    cells : ndarray (1, feature)
        How many.
    """

    gram: Array
    pull: Array
    squares: Array
    cells: Array


@dataclass(frozen=True, eq=False)
class RowLikelihood:
    """The likelihood of all rows, with constants left out.

    Parameters
    ----------
    n : int
        Complete rows.
    moment : ndarray (chain, feature, feature)
        Their second moments around their means.
    precision : ndarray (chain, factor, factor)
        Of the factors.
    drawn : FactorsDrawn, optional
        The other rows; None where there are none.
    """

    n: int
    moment: Array
    precision: Array
    drawn: FactorsDrawn | None

    def __call__(self, weight: Array, noise: Array) -> tuple[Array, Array, Array]:
        """The log density (chain,), and its derivatives by weights and by noise, of their shapes.

        Parameters
        ----------
        weight : ndarray (chain, feature, factor)
        noise : ndarray (chain, feature)
        """
        n, s, drawn = self.n, self.moment, self.drawn
        diagonal = np.diagonal(s, axis1=-2, axis2=-1)
        scaled = weight / noise[..., None]
        inner = self.precision + np.swapaxes(scaled, -1, -2) @ weight
        moved = s @ scaled
        within, spread = np.swapaxes(scaled, -1, -2) @ moved, np.linalg.inv(inner)
        of_cells, moved = scaled @ spread, moved @ spread
        again = of_cells @ within @ spread
        level = -0.5 * n * (np.log(noise).sum(-1) + np.linalg.slogdet(inner)[1])
        level = level - 0.5 * (diagonal / noise).sum(-1) + 0.5 * (spread * within).sum((-1, -2))
        by_weight = moved / noise[..., None] - again - n * of_cells
        by_noise = diagonal / noise - 2 * (moved * scaled).sum(-1) - n
        by_noise = by_noise / noise + ((again + n * of_cells) * scaled).sum(-1)
        if drawn is None:
            return level, by_weight, 0.5 * by_noise
        said = (drawn.gram @ weight[..., None])[..., 0]
        left = drawn.squares - ((2 * drawn.pull - said) * weight).sum(-1)
        level = level - 0.5 * (drawn.cells * np.log(noise) + left / noise).sum(-1)
        by_noise = by_noise - (drawn.cells - left / noise) / noise
        return level, by_weight + (drawn.pull - said) / noise[..., None], 0.5 * by_noise

    def contiguous(self) -> tuple[int, Array, Array, Array, Array, Array, Array]:
        """All numbers, those of `drawn` without a feature where it is None, as machine code wants them."""
        n_chains, k = self.precision.shape[:2]
        if self.drawn is None:
            gram, pull = np.empty((n_chains, 0, k, k)), np.empty((n_chains, 0, k))
            squares = cells = np.empty((n_chains, 0))
        else:
            gram, pull, squares, cells = self.drawn
            squares, cells = (np.broadcast_to(sums, pull.shape[:2]).copy() for sums in (squares, cells))
        moment, precision, gram, pull = (
            np.ascontiguousarray(array) for array in (self.moment, self.precision, gram, pull)
        )
        return self.n, moment, precision, gram, pull, squares, cells
