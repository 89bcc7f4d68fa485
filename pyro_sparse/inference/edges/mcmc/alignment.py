"""Order and signs that carry each chain's factors into one frame, sweep by sweep.

The fit's loadings say which factor is which, until chains have axes of their own: an oblique rotation of the
fit's, or something in a factor that the fit left empty. So the frame is the mean of what chains had in the
later half of the warm-up, once these loadings have been aligned with one another; the fit says in which order
and with which signs. Against the fit's own axes two factors may be equally like one of its, and change places
from draw to draw (bfi as ordered levels: agreeableness and extraversion, of a fit with their sum and
difference; 18 main edges of 25 in place of 25). Loadings that are next to nothing point anywhere and are
taken for none: else noise might tell a factor apart from an empty one.

Chains that went astray, of which some have loadings of any size, would mix up the factors of the others. What
counts is how well the draws of a chain agree with one another once they are carried into a frame: chains are
left out of the mean where the rest then agree better, and not for being unlike. In the frame of all no chain
agrees much less than in its own mean, as a rule; then nothing is looked for, so that chains of weak factors,
whose means differ by chance, are taken together.

Of a curved decoder the sign of a loading is that of a mean slope: noise where a feature is even in a factor.
There the order goes by sizes, and signs only by what is left when the order is known; and since a mean over
such signs is no loading, only factors that the fit left empty are learned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....graphs.alignment import agreement_matrix, align, apply_alignment, match_columns, similarity
from ._compiled_alignment import AVAILABLE, matched

__all__ = ["Frame"]

Array = NDArray[np.float64]

_STARTS = 4  # draws, of the alignment
_LOSS = 0.1  # of agreement: as much as two factors lose that change places in a twentieth of the draws
_NOTHING = 0.1  # norm of a factor's loadings: a hundredth of one feature's variance


class Frame:
    """The frame of some chains.

    Parameters
    ----------
    pivot : ndarray (feature, factor) or (chain, feature, factor)
        Loadings that set order and signs; of chains with a pivot each, these stay.
    groups : list of ndarray of int
        Sets of factors that can change places.
    n_chains : int
    signed : bool
        Whether the signs of loadings say which factor is which.
    """

    def __init__(self, pivot: Array, groups: list[NDArray[np.intp]], n_chains: int, signed: bool = True):
        self.groups, self.signed = groups, signed
        self.labels = np.zeros(pivot.shape[-1], int)
        for number, members in enumerate(groups):
            self.labels[members] = number
        self.empty: NDArray[np.bool_] = np.zeros(pivot.shape[-1], bool)
        if pivot.ndim == 2:
            self.empty = np.asarray(~pivot.any(0))
        self.learned = self.empty.copy()
        for members in groups if pivot.ndim == 2 and signed else []:
            self.learned[members] |= len(members) > 1
        self.pivot = np.array(np.broadcast_to(pivot, (n_chains, *pivot.shape[-2:])))

    def turns(self, loading: Array | None) -> tuple[NDArray[np.intp], Array]:
        """Order and signs (chain, factor) for loadings (chain, feature, factor); without any, no change."""
        if loading is None:
            n, _, k = self.pivot.shape
            return np.tile(np.arange(k), (n, 1)), np.ones((n, k))
        if not (AVAILABLE and self.signed):
            return self._of(_solid(loading), self.pivot)
        turn, sign = self.turns(None)
        loading, clear = np.ascontiguousarray(loading, dtype=float), np.ones(len(turn), dtype=bool)
        for members in self.groups:
            clear &= matched(loading, self.pivot, members, _NOTHING, turn, sign)
        if not clear.all():
            turn[~clear], sign[~clear] = self._of(_solid(loading[~clear]), self.pivot[~clear])
        return turn, sign

    @property
    def learns(self) -> bool:
        """Whether there is a factor of which loadings can say where it is."""
        return bool(self.learned.any())

    def settle(self, loadings: Array) -> None:
        """Let loadings (draw, chain, feature, factor) of the warm-up say where factors are.

        A chain that went astray has no say: those least like the others are left out where the draws of the
        rest then agree better. A chain whose own draws agree better in the fit's frame keeps that.
        """
        loadings, fitted = _solid(loadings), self.pivot[0].copy()
        draws = loadings.swapaxes(0, 1)
        frame = self._frame(loadings)
        agreed = [self._agreement(of_chain, frame) for of_chain in draws]
        alone = [self._frame(of_chain[:, None]) for of_chain in draws]
        best = [self._agreement(*pair) for pair in zip(draws, alone, strict=True)]
        if np.max(np.subtract(best, agreed)) > _LOSS:
            frame = self._without_strays(loadings, frame, agreed, alone)
        self.pivot[:] = frame
        fitted = np.where(self.empty, frame, fitted)
        for chain, of_chain in enumerate(draws):
            if self._agreement(of_chain, fitted) - self._agreement(of_chain, frame) > _LOSS:
                self.pivot[chain] = fitted

    def _without_strays(
        self, loadings: Array, frame: Array, agreed: list[float], alone: list[Array]
    ) -> Array:
        """The frame of the chains that are most alike, where without the others these agree better."""
        alike = np.nan_to_num(agreement_matrix(self._compared(np.stack([*alone, self.pivot[0]]))))
        order = np.argsort(-(alike.sum(0) - alike.diagonal())[:-1], kind="stable")
        frames, gains = [frame], [0.0]
        for n_left in range(len(order) - 1, 1, -1):
            members = np.sort(order[:n_left])
            frames.append(self._frame(loadings[:, members]))
            gains.append(np.mean([self._agreement(loadings[:, c], frames[-1]) - agreed[c] for c in members]))
        return frames[int(np.argmax(np.array(gains) >= max(gains) - _LOSS))]

    def _frame(self, loadings: Array) -> Array:
        """Mean of loadings (draw, chain, feature, factor), aligned with one another, in the fit's order."""
        draws = self._compared(loadings.reshape(-1, *loadings.shape[2:]))
        pivot = self._compared(self.pivot[0])
        # With no draw's columns, factors of equal rank stay mixed.
        starts, taken = ([], [self.empty, self.learned]) if self.empty.any() else ([pivot], [self.learned])
        for draw in draws[-_STARTS:]:
            turn, sign = self._of(draw, pivot)
            starts += [np.where(where, draw[:, turn] * sign, pivot) for where in taken]
        tried = [align(draws, start, repivot=True, groups=self.labels) for start in starts]
        best = max(tried, key=lambda alignment: float(np.nan_to_num(alignment.congruence).mean()))
        mean = apply_alignment(draws, best).mean(0)
        turn, sign = self._of(mean, pivot)
        mean = mean[:, turn] * sign
        return np.where(self.learned & _solid(mean).any(0), mean, self.pivot[0])

    def _agreement(self, draws: Array, frame: Array) -> float:
        """How well draws agree with one another in a frame: lengths of means of unit columns, summed."""
        turn, sign = self._of(draws, frame)
        placed = self._compared(np.take_along_axis(draws, turn[:, None], -1) * sign[:, None])
        size = np.linalg.norm(placed, axis=1, keepdims=True)
        mean = (placed / np.where(size > 0, size, 1.0)).mean(0)
        return float(np.linalg.norm(mean, axis=0).sum())

    def _of(self, loading: Array, pivot: Array) -> tuple[NDArray[np.intp], Array]:
        """Order and signs (..., factor) for loadings (..., feature, factor), by a pivot or one of each."""
        shape = *loading.shape[:-2], loading.shape[-1]
        turn, sign = np.broadcast_to(np.arange(shape[-1]), shape).copy(), np.ones(shape)
        for members in self.groups:
            ours, theirs = loading[..., members], pivot[..., members]
            order, signs = match_columns(similarity(self._compared(theirs), self._compared(ours)))
            if not self.signed:
                ours = np.take_along_axis(ours, order[..., None, :], -1)
                signs = np.where((theirs * ours).sum(-2) < 0, -1.0, 1.0)
            turn[..., members], sign[..., members] = members[order], signs
        return turn, sign

    def _compared(self, loadings: Array) -> Array:
        return loadings if self.signed else np.abs(loadings)


def _solid(loading: Array) -> Array:
    return np.where(np.linalg.norm(loading, axis=-2, keepdims=True) < _NOTHING, 0.0, loading)
