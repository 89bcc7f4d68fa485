"""Effects of covariates and groups on the features, from the orthogonal design back to what was given.

A fit has effects of the columns of its design matrix (`data/design.py`): what least squares took from columns
under normal noise, and a parameter of any other likelihood (`likelihoods/adjusted.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .result import Fit

__all__ = ["contrasted", "covariate_effects"]


def covariate_effects(fit: Fit) -> pd.DataFrame:
    """Effects of the best restart, (covariate, feature).

    Parameters
    ----------
    fit : Fit
    """
    names: list[str] = []
    values = np.zeros((0, len(fit.feature_names)))
    if fit.table.design is not None:
        beside = getattr(fit.model.likelihood, "effects", None)
        fitted = 0.0 if beside is None else beside[fit.best].detach().cpu().double().numpy()
        names, values = contrasted(fit, np.broadcast_to(fitted, _slopes(fit).shape))
    columns = pd.Index(fit.feature_names, name="feature")
    return pd.DataFrame(values, pd.Index(names, name="covariate"), columns)


def contrasted(fit: Fit, effects: NDArray[np.float64]) -> tuple[list[str], NDArray[np.float64]]:
    """Names of contrasts, and their effects (..., contrast, feature) in the units that are reported.

    Parameters
    ----------
    fit : Fit
        With a design.
    effects : ndarray (..., effect, feature)
        Of the design's columns in model units, beside what least squares took.
    """
    design = fit.table.design
    if design is None:
        raise ValueError("fit: has no covariates, so that there are no effects of any")
    names, contrasts = design.contrasts()
    values: NDArray[np.float64] = contrasts @ (effects * fit.table.scale + _slopes(fit))
    return names, values


def _slopes(fit: Fit) -> NDArray[np.float64]:
    slopes = fit.table.slopes
    if slopes is None:
        raise ValueError("fit: has no covariates, so that there are no effects of any")
    return slopes
