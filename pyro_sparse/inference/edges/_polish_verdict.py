"""What the chains of a fit come to, in plain sentences: constraints, the prior, agreement, axes.

In this order: edges that a constraint forbids and the data want; what the chains take as given; weights
unlike their prior, or of one kind only; chains that disagree; factors of a straight decoder that chains see
in other axes than the fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...graphs.alignment import SAME_FACTOR, similarity
from ...graphs.chain_verdict import UNDISPUTED, contradictions, verdict
from ...graphs.chains import KeptChains, co_membership_rhat
from ._mixture_law import MixtureLaw
from ._polish_setup import own_parameters, weight_law
from ._scales import ScaleCheck, check_scales, of_one_kind, unlike_prior
from ._tally import Polished

if TYPE_CHECKING:
    from ..result import Fit

__all__ = ["Spoken", "spoken"]

Array = NDArray[np.float64]

_LEAST_SWEEPS = 30  # after the warm-up, for chains that agree to mean something
_MOST_PAIRS = 200  # features, beyond which pairs of them are too many to follow


class Spoken(NamedTuple):
    """Sentences, those of them that are warnings, and what was found of the prior.

    Attributes
    ----------
    verdict, warned : list of str
    scales : tuple of float
        Of slab and spike, that suit the weights; learned, if they were; NaN for densities of one's own.
    p_value : float
        Of the prior's own scales; NaN where they were learned, or are none.
    """

    verdict: list[str]
    warned: list[str]
    scales: tuple[float, float]
    p_value: float


def spoken(
    fit: Fit,
    found: Polished,
    good: KeptChains,
    keep: NDArray[np.bool_],
    gap: Array,
    if_permitted: Array,
    learned: bool,
) -> Spoken:
    """All sentences on some chains of a fit.

    Parameters
    ----------
    fit : Fit
    found : Polished
    good : KeptChains
        Those within reach of the best: the prior is judged by them.
    keep : ndarray of bool (chain,)
        Those that are averaged.
    gap : ndarray (feature, factor)
        Between these chains.
    if_permitted : ndarray (feature, factor)
        Probabilities of forbidden edges, NaN elsewhere.
    learned : bool
        Whether the chains drew the scales of spike and slab.
    """
    said = contradictions(if_permitted, found.eta[keep].mean((0, 1)), fit.feature_names, fit.factor_names)
    said += _held(fit)
    warned = list(said)
    check = None if learned else _scale_check(fit, found, good.keep)
    if check is None:
        told = learned or isinstance(weight_law(fit.model.prior), MixtureLaw)
        slab, spike = np.median(found.scales, 0).tolist() if told else (np.nan, np.nan)
        said += of_one_kind(slab, spike) if learned else []
    else:
        slab, spike = check.slab, check.spike
        about_prior = unlike_prior(fit.model.prior, check)
        said += about_prior
        warned += about_prior if check.too_many else []
    said += _agreement(fit, found, good._replace(keep=keep), gap)
    said += _other_axes(fit, found.weight[keep].mean((0, 1)))
    return Spoken(said, warned, (slab, spike), np.nan if check is None else check.p_value)


def _held(fit: Fit) -> list[str]:
    """Parameters of the likelihood that the chains do not draw."""
    return [
        f"The likelihood's {name} stays where the fit left it, since `priors` does not speak of it alone: "
        "the edges do not know how uncertain it is, and may be too sure. Give `priors` and `values` a "
        "quantity that depends on it only."
        for name in own_parameters(fit.model.likelihood).held
    ]


def _scale_check(fit: Fit, found: Polished, keep: NDArray[np.bool_]) -> ScaleCheck | None:
    """Whether the weights of these chains look like draws from the fit's prior."""
    weight, log_odds = (part[keep].reshape(-1, *part.shape[2:]) for part in found.weights)
    sound = np.isfinite(weight).all((-1, -2))
    if not sound.any():
        return None
    weight, log_odds = weight[sound], log_odds[sound]
    model = fit.model
    law = weight_law(model.prior)
    if not isinstance(law, MixtureLaw):  # it may have no scales
        return None
    permitted, must = (part.cpu().numpy() for part in (model.permitted, model.must))
    known = model.prior.known.cpu().double().numpy() if model.prior.informed else None
    return check_scales(weight, log_odds, law, permitted, must, model.prior.shared, known)


def _agreement(fit: Fit, found: Polished, kept: KeptChains, gap: Array) -> list[str]:
    """Whether the chains agree with one another."""
    draws = found.edge[kept.keep]
    few = fit.weights.shape[1] <= _MOST_PAIRS and draws.shape[1] >= 8
    said = verdict(
        gap,
        co_membership_rhat(draws) if few else None,
        kept,
        rows=fit.feature_names,
        columns=[name.removeprefix("factor ") for name in fit.factor_names],
    )
    done = found.log_joint.shape[1]
    if done >= _LEAST_SWEEPS:
        return said
    short = (
        f"Only {done} sweeps count, too few to say that no edge is disputed between the chains: want "
        f"{_LEAST_SWEEPS} at least, by more time or more sweeps."
    )
    return [short if sentence == UNDISPUTED else sentence for sentence in said]


def _other_axes(fit: Fit, loading: Array) -> list[str]:
    """Which factors of a straight decoder are others in the chains, whose loadings are (feature, factor)."""
    if fit.model.decoder_kind != "linear":
        return []  # a curve has its axes, and its weights' signs are not those of its slopes
    own = np.sign(fit.weights[fit.best]) * np.sqrt(fit.effects[fit.best])
    alike = np.abs(np.diagonal(similarity(own, loading)))
    far = np.flatnonzero((alike < SAME_FACTOR) & own.any(0) & loading.any(0))
    return [
        f"The chains see {fit.factor_names[k]} in other axes than the fit (congruence {alike[k]:.2f}): "
        "go by their loadings, or pin it with an anchor."
        for k in far
    ]
