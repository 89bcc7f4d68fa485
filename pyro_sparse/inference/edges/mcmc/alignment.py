"""Order and signs that carry each chain's factors into one frame, sweep by sweep.

The fit's loadings say which factor is which. A factor that the fit left empty has none to go by, and chains
may fill it, each with another of several such factors: there stands the mean of what they had in it in the
later half of the warm-up, once these loadings have been aligned with one another. Loadings that are next to
nothing point anywhere and are taken for none: else noise might tell a factor apart from an
empty one.

Of a curved decoder the sign of a loading is that of a mean slope: noise where a feature is even in a factor.
There the order goes by sizes, and signs only by what is left when the order is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....graphs.alignment import align, apply_alignment, match_columns, similarity

__all__ = ["Frame"]

Array = NDArray[np.float64]

_STARTS = 4  # draws, of the alignment
_NOTHING = 0.1  # norm of a factor's loadings: a hundredth of one feature's variance


class Frame:
    """The frame of some chains.

    Parameters
    ----------
    pivot : ndarray (feature, factor) or (chain, feature, factor)
        Loadings that set order and signs; of chains with a pivot each, empty columns stay empty.
    groups : list of ndarray of int
        Sets of factors that can change places.
    n_chains : int
    signed : bool
        Whether the signs of loadings say which factor is which.
    """

    def __init__(self, pivot: Array, groups: list[NDArray[np.intp]], n_chains: int, signed: bool = True):
        self.groups, self.signed = groups, signed
        self.empty = ~pivot.any(0) if pivot.ndim == 2 else np.zeros(pivot.shape[-1], bool)
        self.pivot = np.array(np.broadcast_to(pivot, (n_chains, *pivot.shape[-2:])))

    def turns(self, loading: Array | None) -> tuple[NDArray[np.intp], Array]:
        """Order and signs (chain, factor) for loadings (chain, feature, factor); without any, no change."""
        n, _, k = self.pivot.shape
        turn, sign = np.tile(np.arange(k), (n, 1)), np.ones((n, k))
        for c, chain_loading in enumerate([] if loading is None else _solid(loading)):
            turn[c], sign[c] = self._of(chain_loading, self.pivot[c])
        return turn, sign

    @property
    def learns(self) -> bool:
        """Whether there is an empty factor that loadings can fill."""
        return bool(self.empty.any())

    def fill(self, loadings: Array) -> None:
        """Let loadings (draw, feature, factor) of all chains say what stands for empty factors."""
        loadings = self._compared(_solid(loadings))
        pivot = self._compared(self.pivot[0])
        labels = np.zeros(self.pivot.shape[-1], int)
        for number, members in enumerate(self.groups):
            labels[members] = number
        tried = []
        for draw in loadings[-_STARTS:]:  # begun with no draw's columns, factors of equal rank stay mixed
            turn, sign = self._of(draw, pivot)
            start = np.where(self.empty, draw[:, turn] * sign, pivot)
            tried.append(align(loadings, start, repivot=True, groups=labels))
        best = max(tried, key=lambda alignment: float(np.nan_to_num(alignment.congruence).mean()))
        mean = apply_alignment(loadings, best).mean(0)
        turn, sign = self._of(mean, pivot)  # filled ones may have moved a little
        self.pivot[:, :, self.empty] = (mean[:, turn] * sign)[:, self.empty]

    def _of(self, loading: Array, pivot: Array) -> tuple[NDArray[np.intp], Array]:
        turn, sign = np.arange(pivot.shape[1]), np.ones(pivot.shape[1])
        for members in self.groups:
            alike = similarity(self._compared(pivot[:, members]), self._compared(loading[:, members]))
            order, signs = match_columns(alike)
            if not self.signed:
                signs = np.where((pivot[:, members] * loading[:, members[order]]).sum(0) < 0, -1.0, 1.0)
            turn[members], sign[members] = members[order], signs
        return turn, sign

    def _compared(self, loadings: Array) -> Array:
        return loadings if self.signed else np.abs(loadings)


def _solid(loading: Array) -> Array:
    return np.where(np.linalg.norm(loading, axis=-2, keepdims=True) < _NOTHING, 0.0, loading)
