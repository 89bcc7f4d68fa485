r"""Folded factors: two values of the true factor in one, recognised by a lopsided estimate.

Where the feature that pins a factor down is not monotone in it, a dense fit may take that feature for the
factor: it goes up to the turning point and comes back. All restarts can agree on that, the ELBO is only some
tenths of a nat lower, and no residual stands out. But a factor that has the prior's distribution has a
skewness near zero,

.. math:: s_k = E[(z_k - \bar z_k)^3] \,/\, \mathrm{sd}(z_k)^3,

and a folded one ends in a cliff on one side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ...findings.finding import Finding
from ..training.restarts import in_frame

if TYPE_CHECKING:
    from .result import Fit

__all__ = ["MOST_SKEWED", "folded", "skewness"]

# On tuning tables right factors (rank correlation above .97) were within .3, most within .15; of five wrong
# ones four were beyond .4.
MOST_SKEWED = 0.35


def skewness(z: Tensor) -> Tensor:
    """Third standardised moment of each factor over rows, (restart, factor).

    Parameters
    ----------
    z : Tensor (restart, row, factor)
    """
    centred = z - z.mean(1, keepdim=True)
    return centred.pow(3).mean(1) / centred.square().mean(1).pow(1.5).clamp_min(1e-12)


def folded(fit: Fit) -> list[Finding]:
    """Factors of a fit whose values are too lopsided for their prior, and what to say of each.

    Parameters
    ----------
    fit : Fit
        Of a model that notes the skewness of its factors (`DependencyVAE`); others' may have any
        distribution.

    Returns
    -------
    list of Finding
        A doubt for each.
    """
    skewness = getattr(getattr(fit, "model", None), "skewness", None)
    if skewness is None:
        return []
    skew = in_frame(fit, skewness[int(fit.best)].cpu().numpy())
    return [
        Finding(
            "folded",
            f"{name}: its values end in a cliff (skewness {s:.2f}): it may be folded, two true values in one",
            severity="doubt",
            factors=(name,),
            size=float(s),
        )
        for name, s in zip(fit.factor_names, skew, strict=True)
        if abs(s) > MOST_SKEWED
    ]
