r"""A Gibbs step along a line: of equally spaced places around the present one, one by its density.

The grid's width is drawn anew each time and 0, where the state is, may be any of its places, so that the
grid is as likely seen from each of them and the density is left alone (Liu and Sabatti 2000, Biometrika
87(2)).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawn_grid", "grid", "moves", "place"]

Array = NDArray[np.float64]


def grid(shape: tuple[int, ...], places: int, widths: tuple[float, float], rng: np.random.Generator) -> Array:
    """Moves (place, *shape), one of them 0.

    Parameters
    ----------
    shape : tuple of int
        As many lines.
    places : int
        Of each.
    widths : (float, float)
        Of all places together: least and most, uniform in the logarithm.
    rng : numpy.random.Generator
    """
    return moves(*drawn_grid(shape, places, widths, rng), places)


def drawn_grid(
    shape: tuple[int, ...], places: int, widths: tuple[float, float], rng: np.random.Generator
) -> tuple[Array, NDArray[np.intp]]:
    """The random numbers of `grid`: logarithms of widths, and which place is the present one, (*shape)."""
    least, most = map(math.log, widths)
    return least + (most - least) * rng.random(shape), rng.integers(places, size=shape)


def moves(log_width: Array, present: NDArray[np.intp], places: int) -> Array:
    """Moves (place, any) of grids whose random numbers are these."""
    width = np.exp(log_width) / places
    return (np.arange(places).reshape(-1, *[1] * width.ndim) - present) * width


def place(level: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Which place to take, in proportion to exp(level), `level` (place, any)."""
    return np.asarray((level + rng.gumbel(size=level.shape)).argmax(0))
