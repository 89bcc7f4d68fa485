"""Log-likelihoods of loadings on one factor, compiled where cells are levels of a logistic response."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ....likelihoods._compiled_cells import loading_jets
from .cells import Cells
from .loadings import _ENDS, _FARTHEST, _HERMITE, _WIDE, Curve, Shape

__all__ = ["loading_curve"]

Array = NDArray[np.float64]


def loading_curve(
    cells: Cells, f: Tensor, terms: tuple[Tensor, ...], noise: Tensor, z: Tensor, loading: Array,
    unit: Tensor | float,
) -> Curve:  # fmt: skip
    """`Curve.along`, whose four looks at the cells are one call where that is possible."""
    cuts = cells.logistic_cuts
    if cuts is not None and f.device.type == "cpu":
        by = unit * z.unsqueeze(1)
        _, slope, bend = terms
        projection = (f * by).sum(-1).double() / by.square().sum(-1).double().clamp(min=1e-30)
        begun = (slope * by).double().sum(-1).numpy(), (bend * by.square()).double().sum(-1).numpy()
        found = loading_jets(
            cells.whole(f), cells.x, cells.mask, cuts, begun, by.double().numpy(), projection.numpy(), _WIDE,
            _FARTHEST, _ENDS,
        )  # fmt: skip
        if found is not None:
            return _curve(*found, loading)
    return Curve.along(cells, f, terms, noise, z, loading, unit)


def _curve(step: Array, sd: Array, jets: Array, loading: Array) -> Curve:
    """Of values, slopes and bends (derivative, place, chain, feature) below, at and above the mode."""
    width = _ENDS * sd
    values, slopes, bends = jets[0] - jets[0, 1], jets[1] * width, jets[2] * width**2
    known = np.concatenate([values, slopes, -bends])
    power = (_HERMITE @ known.reshape(len(known), -1)).reshape(-1, *sd.shape)
    return Curve(loading + step, Shape(sd, power, np.stack([values, slopes, bends])[:, [0, 2]]))
