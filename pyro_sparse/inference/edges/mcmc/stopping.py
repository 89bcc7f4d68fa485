r"""When to stop sampling, and which draws to keep of a stream whose end nobody knows yet.

Chains stop once as many sweeps again would hardly change the probabilities. With :math:`d_c` the difference
between the two halves of chain c, and :math:`\bar d` its mean over C chains, they would by about

.. math:: \frac1{4 C^2} \sum_c d_c^2 + \Big( \bar d^2 - \frac{\mathrm{var}_c\, d_c}{C} \Big)_+ ,

the Monte Carlo variance of their average, and what all chains move in one direction. As means over edges this
is compared with the edges' own variance :math:`p (1 - p)`: it is what a Brier score would gain. Chains that
stay apart do not run on for that; more sweeps would not bring them together, and the gap says so.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["BatchMeans", "Halves", "Thinned"]

Array = NDArray[np.float64]
ItemT = TypeVar("ItemT")

_FIRST = 20  # sweeps of the first half that is looked at


class Halves:
    """Looks at running sums whenever their number has doubled.

    Parameters
    ----------
    tolerance : float
        Share of the edges' own variance; 0 never has enough.
    """

    def __init__(self, tolerance: float):
        self.tolerance = tolerance
        self.number, self.total = 0, np.zeros(())

    def agree(self, total: Array, number: int) -> bool:
        """Whether sums (chain, feature, factor) over so many sweeps are enough; asked after every one."""
        if number != (2 * self.number or _FIRST):
            return False
        settled = False
        if self.number:
            change = self.total / self.number - (total - self.total) / (number - self.number)
            mean, chains = total.mean(0) / number, len(total)
            chance = change.var(0, ddof=1).mean() / chains if chains > 1 else 0.0
            drift = max(0.0, (change.mean(0) ** 2).mean() - chance)
            error = 0.25 * (change**2).mean() / chains + drift
            settled = bool(error < self.tolerance * (mean * (1 - mean)).mean())
        self.number, self.total = number, total.copy()
        return settled


class BatchMeans:
    """Monte Carlo error of a running mean, from means over stretches of a stream of unknown length.

    Parameters
    ----------
    wanted : int
        Stretches at least, once there are as many items; at most twice as many.
    """

    def __init__(self, wanted: int):
        self.wanted, self.width, self.filled = wanted, 1, 0
        self.sums: list[Array] = []

    def add(self, item: Array) -> None:
        """The next one; neighbouring stretches become one whenever there are too many."""
        if not self.filled:
            self.sums.append(np.zeros(item.shape))
        self.sums[-1] += item
        self.filled = (self.filled + 1) % self.width
        if len(self.sums) == 2 * self.wanted and not self.filled:
            self.sums = [a + b for a, b in zip(self.sums[::2], self.sums[1::2], strict=True)]
            self.width *= 2

    def error(self) -> Array:
        """Standard error of the mean over all whole stretches, of an item's shape; NaN of fewer than two."""
        whole = self.sums[:-1] if self.filled else self.sums
        if len(whole) < 2:
            return np.full(np.shape(self.sums[0]) if self.sums else (), np.nan)
        means = np.stack(whole) / self.width
        error: Array = means.std(0, ddof=1) / np.sqrt(len(whole))
        return error


class Thinned(Generic[ItemT]):
    """Evenly spread items of a stream, at most twice as many as wanted at a time.

    Parameters
    ----------
    wanted : int
    """

    def __init__(self, wanted: int):
        self.wanted, self.stride = wanted, 1
        self.items: list[ItemT] = []

    def wants(self, number: int) -> bool:
        """Whether the item of this number is to be added, numbers going up from 0."""
        return number % self.stride == 0

    def add(self, item: ItemT) -> None:
        """Keep it, and if there are too many every other one."""
        self.items.append(item)
        if len(self.items) == 2 * self.wanted:
            self.items, self.stride = self.items[::2], 2 * self.stride

    def chosen(self) -> list[ItemT]:
        """As many as wanted, or all there are."""
        return [self.items[i] for i in spread(len(self.items), self.wanted)]


def spread(n: int, wanted: int) -> list[int]:
    """At most so many of the numbers below n, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(wanted, n)).round().astype(int)).tolist()
