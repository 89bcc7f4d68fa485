r"""The mixture of `_strength_mixture.py` for large tables: the strengths of a column are binned and counted.

Edges whose strengths fall into one bin of one column are exchangeable given the scale of the column and the
rate, so a Gibbs sweep draws *how many* of them are edges, a binomial number, in place of each. The likelihood
of all scales is then a product of an (80, bin) table with the counts (bin, factor), however many features
there are. Bins are of equal width on a log scale, .058 at the default; the probability of an edge is read
between the middles of bins, at its own strength.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csc_array, issparse
from scipy.special import expit

from ..._utils.checks import check_whole
from ._strength_mixture import CENTRE, GRID, categorical, check_strengths, log_priors, log_slab, log_spike

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix

    Strengths: TypeAlias = ArrayLike | sparray | spmatrix

__all__ = ["BinnedStrengthMixture", "binned_strength_mixture"]

# A tenth of the least scale on the grid: below, an edge's absence has the density of a strength of zero.
_LEAST = 0.1 * float(GRID[0])


Array: TypeAlias = NDArray[np.float64]


class BinnedStrengthMixture(NamedTuple):
    """Posterior of the edges given one table of binned strengths; edges are drawn on demand.

    Parameters
    ----------
    probability : ndarray (feature, factor)
        Rao-Blackwellised.
    rate : ndarray (draw,)
        Share of edges.
    scale : ndarray (draw, factor)
        Size of strengths without an edge.
    strength : ndarray (bin,)
        Strength that stands for each bin.
    bin : ndarray of int16 (feature, factor)
        Bin of each strength.
    """

    probability: Array
    rate: Array
    scale: Array
    strength: Array
    bin: NDArray[np.int16]

    def edge(self, draw: int, seed: int | np.random.SeedSequence = 0) -> NDArray[np.int8]:
        """The graph of one draw, (feature, factor).

        Parameters
        ----------
        draw : int
            Which of the draws of rate and scale.
        seed : int or SeedSequence

        Raises
        ------
        IndexError
            There is no such draw.
        """
        scale = np.searchsorted(GRID, self.scale[draw] * (1 - 1e-9))
        odds = np.log(self.rate[draw]) - np.log1p(-self.rate[draw]) + log_slab(self.strength)
        p = expit(odds[:, None] - log_spike(self.strength)[scale].T)
        chance = np.random.default_rng(seed).random(self.bin.shape)
        return (chance < p[self.bin, np.arange(p.shape[1])]).astype(np.int8)


def binned_strength_mixture(
    strength: Strengths,
    num_draws: int = 200,
    burn_in: int = 100,
    seed: int | np.random.SeedSequence = 0,
    bins: int = 200,
) -> BinnedStrengthMixture:
    """`strength_mixture` for tables of millions of strengths, dense or sparse.

    Parameters
    ----------
    strength : array_like or sparse array (feature, factor)
        In [0, 1], relative to the feature's row. What a sparse array does not hold is zero.
    num_draws, burn_in : int
        Gibbs sweeps kept and left out.
    seed : int or SeedSequence
    bins : int
        The first holds strengths below 1e-5, the others have equal width on a log scale; 2 to 32,000.

    Returns
    -------
    BinnedStrengthMixture

    Raises
    ------
    ValueError
        The strengths are no matrix of numbers in [0, 1], or a number of sweeps or bins is out of range.

    Examples
    --------
    >>> r = np.array([[1.0, 0.01, 0.02], [0.6, 0.8, 0.01], [0.02, 0.7, 0.7]])
    >>> (binned_strength_mixture(r).probability > 0.5).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    check_whole(1, num_draws=num_draws)
    check_whole(0, burn_in=burn_in)
    check_whole(2, bins=bins)
    if bins > 32_000:
        raise ValueError(f"bins: got {bins}, wanted at most 32,000")
    middle, home, place = _binned(strength, bins)
    rng = np.random.default_rng(seed)
    n_factors = home.shape[1]
    columns = np.arange(n_factors)
    count = np.bincount((home + bins * columns).ravel(), minlength=bins * n_factors)
    count = count.reshape(n_factors, bins).T  # (bin, factor)
    spike, slab = log_spike(middle), log_slab(middle)
    between, centre_prior = log_priors()

    n_edges = np.where(middle[:, None] > 0.1, count, 0)
    centre = CENTRE
    total = np.zeros(count.shape)
    rates, scales = np.zeros(num_draws), np.zeros((num_draws, n_factors))
    for sweep in range(burn_in + num_draws):
        rate = rng.beta(1 + n_edges.sum(), 1 + (count - n_edges).sum())
        scale = categorical(spike @ (count - n_edges) + between[:, [centre]], rng)
        centre = int(categorical((between[scale].sum(0) + centre_prior)[:, None], rng)[0])
        p = expit(np.log(rate) - np.log1p(-rate) + slab[:, None] - spike[scale].T)
        n_edges = rng.binomial(count, p)
        if sweep >= burn_in:
            d = sweep - burn_in
            total += p
            rates[d], scales[d] = rate, GRID[scale]
    total /= num_draws
    return BinnedStrengthMixture(_between_middles(total, home, place), rates, scales, middle, home)


def _between_middles(table: Array, home: NDArray[np.int16], place: NDArray[np.float32]) -> Array:
    """The table (bin, factor) at the place of each strength, by straight lines between middles of bins."""
    columns = np.arange(home.shape[1])
    last = len(table) - 1
    lower = np.clip(np.floor(place), 1, last).astype(np.int16)
    share = np.clip(place - lower, 0.0, 1.0)
    low, high = table[lower, columns], table[np.minimum(lower + 1, last), columns]
    return np.where(home == 0, table[0], low + share * (high - low))


def _binned(strength: Strengths, bins: int) -> tuple[Array, NDArray[np.int16], NDArray[np.float32]]:
    """What stands for each bin, the bin of each strength, and its place, 3.5 half-way from middle 3 to 4."""
    stored = csc_array(strength) if issparse(strength) else None
    values = np.asarray(strength if stored is None else stored.data, dtype=float)
    shape = values.shape if stored is None else stored.shape
    check_strengths(values, shape)
    edges = np.geomspace(_LEAST, 1.0, bins)
    middle = np.concatenate([[0.0], np.sqrt(edges[:-1] * edges[1:])])
    home = np.searchsorted(edges[:-1], values, side="right").astype(np.int16)
    width = np.log(edges[1] / edges[0])
    place = (np.log(np.maximum(values, 1e-12) / _LEAST) / width + 0.5).astype(np.float32)
    if stored is None:
        return middle, home, place
    at = stored.indices, np.repeat(np.arange(shape[1]), np.diff(stored.indptr))
    whole_home, whole_place = np.zeros(shape, np.int16), np.zeros(shape, np.float32)
    whole_home[at], whole_place[at] = home, place
    return middle, whole_home, whole_place
