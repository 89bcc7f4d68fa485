r"""The metric of Hamiltonian steps over all numbers outside of the rows, learned in one frame of the factors.

Factors change signs and places from sweep to sweep, so that the variance of a loading over sweeps is that of
its sign. Draws are therefore brought into the frame of a reference, factor by factor, before their moments
are taken: the metric is :math:`M^{-1} = (1 - a) \operatorname{diag} S + a S` in that frame, S being the
covariance of a window of the warm-up and a growing with its length; of many numbers a = 0. A step is taken in
the frame of the state it begins at and refused if it ends in another one, which leaves the posterior
invariant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...graphs.alignment import match_columns, similarity
from .recorded import Position, RecordedDensity

__all__ = ["AlignedMetric", "small_units"]

_FIRST_SCALE, _LEAST_VARIANCE = 0.05, 1e-5  # in units of 1, or of a site's prior if that is far narrower
_NARROW = 0.01
_ENDS = 0.1, 0.3, 0.6  # of windows, as shares of the sweeps that adapt
_FEWEST = 5  # sweeps of a window
_MOST_DENSE = 500  # numbers, whose square is kept for each chain; of more the variances alone
_STATE = ("root", "reference", "learned", "count", "total", "square")
_INDEPENDENT = 0.1  # share of draws, of the numbers that move slowly


class AlignedMetric:
    """Covariance of all numbers of some sites, in the frame of a reference.

    Parameters
    ----------
    density : RecordedDensity
    names : list of str
        Sites, in the order of the numbers.
    u : dict of Tensor
    length : int
        Sweeps that will be learned from.

    Attributes
    ----------
    root : Tensor (chain or 1, number, number), or (chain or 1, number)
        Cholesky factor of the covariance; of many numbers their standard deviations.
    """

    def __init__(self, density: RecordedDensity, names: list[str], u: Position, length: int):
        self.density, self.names, self.length = density, names, length
        self.pools = not density.has_tables
        self.n_factors = density.layout.n_factors
        self.loadings = next((s.name for s in density.layout.axes if s.kind == "edges"), "")
        size = sum(u[name][0].numel() for name in names)
        self.is_dense = size <= _MOST_DENSE
        self.unit = small_units(density, names)
        scale = (_FIRST_SCALE * self.unit).expand(1 if self.pools else density.n_chains, size).clone()
        self.root = scale.diag_embed() if self.is_dense else scale
        self.total = self.square = torch.zeros_like(scale)  # of a window, as soon as it has begun
        self.reference: Tensor | None = None  # (chain, number)
        self.learned = self.count = 0

    def scaled(self, step: Tensor) -> Tensor:
        """L v of steps v (chain, number), with covariance L L'."""
        return (self.root @ step[..., None])[..., 0] if self.is_dense else self.root * step

    def pulled_back(self, slope: Tensor) -> Tensor:
        """L' g of slopes g (chain, number)."""
        return (slope[:, None] @ self.root)[:, 0] if self.is_dense else self.root * slope

    def flat(self, u: Position) -> Tensor:
        """The numbers of all sites, (chain, number)."""
        return torch.cat([u[name].reshape(self.density.n_chains, -1) for name in self.names], -1)

    def _loadings(self, flat: Tensor, u: Position) -> NDArray[np.float64]:
        before = self.names[: self.names.index(self.loadings)]
        start = sum(u[name][0].numel() for name in before)
        weight = flat[:, start : start + u[self.loadings][0].numel()]
        return weight.reshape(len(flat), -1, self.n_factors).cpu().numpy()

    # ---- the frame -----------------------------------------------------------------------------------------
    def frame(self, u: Position) -> tuple[Tensor, Tensor]:
        """Which number stands at each place in the reference's frame, (chain, number), and its sign there."""
        n, k = self.density.n_chains, self.n_factors
        order, sign = np.tile(np.arange(k), (n, 1)), np.ones((n, k))
        if self.loadings and self.reference is not None:
            reference = self._loadings(self.reference, u)
            for c, loading in enumerate(self._loadings(self.flat(u), u)):
                order[c], sign[c] = match_columns(similarity(reference[c], loading))
        places, signs, offset = [], [], 0
        for name in self.names:
            size, kind = u[name][0].numel(), self.density.layout.sites[name].kind
            of_factors = kind in ("edges", "axis", "each") and u[name].shape[-1] == k
            place = np.tile(np.arange(size), (n, 1))
            signed = np.ones((n, size))
            if of_factors:
                place = np.take_along_axis(place.reshape(n, -1, k), order[:, None], -1).reshape(n, size)
            if of_factors and kind != "each":
                signed = np.tile(sign, (1, size // k))
            places.append(offset + place)
            signs.append(signed)
            offset += size
        like = u[self.names[0]]
        return (
            torch.as_tensor(np.concatenate(places, 1), device=like.device),
            torch.as_tensor(np.concatenate(signs, 1), device=like.device, dtype=like.dtype),
        )

    # ---- learning ------------------------------------------------------------------------------------------
    def learn(self, u: Position) -> bool:
        """Take the moments of a sweep; whether the metric is another one from now on."""
        flat = self.flat(u)
        if self.reference is None:
            self.reference = flat[:1].expand_as(flat).clone() if self.pools else flat.clone()
        place, sign = self.frame(u)
        away = flat.gather(1, place) * sign - self.reference
        outer = away[:, :, None] * away[:, None, :] if self.is_dense else away**2
        if self.count == 0:
            self.total, self.square = torch.zeros_like(away), torch.zeros_like(self.root)
        self.total = self.total + away
        self.square = self.square + (outer.sum(0, keepdim=True) if self.pools else outer)
        self.count += 1
        self.learned += 1
        if self.learned not in {int(end * self.length) for end in _ENDS} or self.count < _FEWEST:
            return False
        draws = self.count * (len(flat) if self.pools else 1)
        mean = (self.total.sum(0, keepdim=True) if self.pools else self.total) / draws
        self.root = self._root(self.square / draws, mean, draws)
        self.reference, self.count = self.reference + mean, 0
        return True

    def _root(self, square: Tensor, mean: Tensor, draws: int) -> Tensor:
        if not self.is_dense:
            return torch.maximum(square - mean**2, _LEAST_VARIANCE * self.unit**2).sqrt()
        covariance = square - mean[:, :, None] * mean[:, None, :]
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        share = _INDEPENDENT * draws / (_INDEPENDENT * draws + diagonal.shape[-1])
        rest = torch.maximum(diagonal, _LEAST_VARIANCE * self.unit**2) - share * diagonal
        root: Tensor = torch.linalg.cholesky(share * covariance + rest.diag_embed())
        return root

    def state(self) -> dict[str, Any]:
        """All that its next sweeps depend on."""
        return {name: getattr(self, name) for name in _STATE}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        for name, value in saved.items():
            setattr(self, name, value)


def small_units(density: RecordedDensity, names: list[str]) -> Tensor:
    """Of each number of some sites the size of draws from the site's prior where that is far below 1, else 1.

    A table in kilometres of what is measured in millimetres has intercepts and loadings of a millionth.

    Parameters
    ----------
    density : RecordedDensity
    names : list of str

    Returns
    -------
    Tensor (number,)
    """
    units = []
    for name in names:
        drawn = density.start[name]
        size = drawn.square().mean().sqrt()
        units.append((size if 0 < size < _NARROW else torch.ones_like(size)).expand(drawn[0].numel()))
    return torch.cat(units)
