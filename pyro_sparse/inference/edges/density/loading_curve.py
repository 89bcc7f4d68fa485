"""Log-likelihoods of loadings on one factor under any noise but normal, compiled where that is possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ....likelihoods._compiled_cells import loading_jets
from .cells import Cells
from .loadings import ENDS, FARTHEST, HERMITE, WIDE, Curve, Shape, projected, slopes_along

__all__ = ["loading_curve"]

Array = NDArray[np.float64]


def loading_curve(
    cells: Cells, f: Tensor, terms: tuple[Tensor, ...], noise: Tensor, z: Tensor, loading: Array,
    unit: Tensor | float,
) -> Curve:  # fmt: skip
    """`Curve.along`, whose four looks at the cells are one call of levels of a logistic response."""
    cuts = cells.logistic_cuts
    if cuts is not None and f.device.type == "cpu":
        by = unit * z.unsqueeze(1)
        pull, sharp = slopes_along(terms[1], terms[2], z, unit)
        jets = loading_jets(
            cells.whole(f), cells.x, cells.mask, cuts, (pull.numpy(), sharp.numpy()), by.double().numpy(),
            projected(f, z, unit).numpy(), WIDE, FARTHEST, ENDS,
        )  # fmt: skip
        if jets is not None:
            return _curve(*jets, loading)
    return Curve.along(cells, f, terms, noise, z, loading, unit)


def _curve(step: Array, sd: Array, jets: Array, loading: Array) -> Curve:
    """Of values, slopes and bends (derivative, place, chain, feature) below, at and above the mode."""
    width = ENDS * sd
    values, slopes, bends = jets[0] - jets[0, 1], jets[1] * width, jets[2] * width**2
    known = np.concatenate([values, slopes, -bends])
    power = (HERMITE @ known.reshape(len(known), -1)).reshape(-1, *sd.shape)
    return Curve(loading + step, Shape(sd, power, np.stack([values, slopes, bends])[:, [0, 2]]))
