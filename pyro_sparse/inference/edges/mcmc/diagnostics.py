"""What the chains of a fit come to, in plain sentences: constraints, the prior, agreement, axes.

In this order: edges that a constraint forbids and the data want; what the chains take as given; weights
unlike their prior, or of one kind only; chains that disagree; factors of a straight decoder that chains see
in other axes than the fit. Chains also speak for a factor: those that began in other axes and came back.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...._utils.wording import listed
from ....findings.finding import Finding
from ....graphs._mixing import split_rhat
from ....graphs.alignment import SAME_FACTOR, similarity
from ....graphs.chain_groups import ChainPool, gap_within
from ....graphs.chain_starts import came_back
from ....graphs.chain_verdict import (
    alternative_graphs,
    contradictions,
    disputed_columns,
    left_out,
    uneven,
)
from ....graphs.chains import co_membership_rhat
from ....graphs.selection import unresolved
from ..density.mixture import MixtureDensity
from ..density.scales import ScaleCheck, check_scales, of_one_kind, unlike_prior
from .accumulator import ChainSummary
from .initialise import parameters_of, weight_density
from .plan import pivot_of

if TYPE_CHECKING:
    from ...table.result import Fit

__all__ = ["Spoken", "left_out_factors", "spoken"]

Array = NDArray[np.float64]

_LEAST_SWEEPS = 30  # after the warm-up, for chains that agree to mean something
_NAMED = 3  # factors in a message
_MOST_PAIRS = 200  # features, beyond which pairs of them are too many to follow
# Vehtari et al. (2021) ask for 1.01 of one quantity; the largest of many pairs is higher by chance.
_RHAT = 1.05
_LEAST_LOADING = 0.1  # a factor with no larger mean loading is empty, and its direction is noise
_APART = 1.5  # R-hat from which the chains' means of a weight lie further apart than its draws within a chain


class Spoken(NamedTuple):
    """What the chains file, those of them that are warnings, and what was found of the prior.

    Attributes
    ----------
    findings, warned : list of Finding
    confirmed : list of str
        Factors that chains from other axes came back to.
    scales : tuple of float
        Of slab and spike, that suit the weights; learned, if they were; NaN for densities of one's own.
    p_value : float
        Of the prior's own scales; NaN where they were learned, or are none.
    """

    findings: list[Finding]
    warned: list[Finding]
    confirmed: list[str]
    scales: tuple[float, float]
    p_value: float


def spoken(
    fit: Fit,
    chains: ChainSummary,
    pool: ChainPool,
    gap: Array,
    if_permitted: Array,
    learned: bool,
    n_rows: int,
    of_prior: bool = True,
    began: Array | None = None,
) -> Spoken:
    """All findings on some chains of a fit.

    Parameters
    ----------
    fit : Fit
    chains : ChainSummary
    pool : ChainPool
        Chains by the graph they hold.
    gap : ndarray (feature, factor)
        Between these chains.
    if_permitted : ndarray (feature, factor)
        Probabilities of forbidden edges, NaN elsewhere.
    learned : bool
        Whether the chains drew the scales of spike and slab.
    n_rows : int
        Rows that the chains used.
    of_prior : bool
        Whether an edge is what the fit's prior says, so that its scales are checked.
    began : ndarray (chain, feature, factor), optional
        Loadings that the chains began at, as `came_back` wants them.
    """
    keep = pool.keep
    rates = chains.eta[keep].mean((0, 1))
    against = contradictions(if_permitted, rates, fit.feature_names, fit.factor_names)
    findings = [Finding("constraints", sentence, source="chains") for sentence in against]
    findings += [Finding("parameters", sentence, source="chains") for sentence in _held(fit)]
    warned = list(findings)
    check = None if learned or not of_prior else _scale_check(fit, chains, pool.counts)
    if check is None:
        has_scales = learned or isinstance(weight_density(fit.model.prior), MixtureDensity)
        slab, spike = np.median(chains.scales, 0).tolist() if has_scales else (np.nan, np.nan)
        one_kind = of_one_kind(slab, spike) if learned else []
        findings += [Finding("scales", sentence, source="chains") for sentence in one_kind]
    else:
        slab, spike = check.slab, check.spike
        unlike = unlike_prior(fit.model.prior, check)
        about_prior = [
            Finding("scales", sentence, source="chains", size=check.p_value) for sentence in unlike
        ]
        findings += about_prior
        warned += about_prior if check.too_many else []
    unused = _unused_rows(fit, n_rows)
    findings += _agreement(fit, chains, pool, gap, bool(unused))
    findings += _uneven_weights(fit, chains, keep)
    findings += _other_axes(fit, chains.weight[keep].mean((0, 1)))
    findings = [*unused, *findings]  # the first line of the verdict: all others are of these rows
    confirmed = []
    if began is not None:
        returned = came_back(chains.weight.mean(1), began, pivot_of(fit), pool)
        confirmed = list(compress(fit.factor_names, returned))
    p_value = np.nan if check is None else check.p_value
    return Spoken(findings, warned, confirmed, (slab, spike), p_value)


def left_out_factors(fit: Fit, kept: int | None, engine_can: bool = True) -> list[Finding]:
    """Factors that chains did not run over, since the fit had left them empty: their zeros are the fit's.

    Parameters
    ----------
    fit : Fit
    kept : int or None
        Factors that the chains ran over; None: all.
    engine_can : bool
        Whether the engine's chains, which run over all factors, can ask for the same edges.
    """
    names = tuple(fit.factor_names[kept:]) if kept is not None else ()
    if not names:
        return []
    empty = f"{len(names)} factors" if len(names) > _NAMED else listed(names)
    message = (
        f"Chains ran over the {kept} factor{'s' if kept != 1 else ''} that the fit kept, and do not say "
        f"whether the data want edges of {empty}, which it left empty"
    )
    remedy = 'edge_posterior("program") asks for them, too, and takes longer' if engine_can else ""
    # no doubt of what the fit kept; but edges of these are open, for nobody has asked whether they are absent
    return [Finding("empty", message, remedy, source="chains", factors=names)]


def _held(fit: Fit) -> list[str]:
    """Parameters of the likelihood that the chains do not draw."""
    return [
        f"The likelihood's {name} stays where the fit left it, since `priors` does not speak of it alone: "
        "the edges do not know how uncertain it is, and may be too sure. Give `priors` and `values` a "
        "quantity that depends on it only."
        for name in parameters_of(fit.model.likelihood.unadjusted).held
    ]


def _scale_check(fit: Fit, chains: ChainSummary, keep: NDArray[np.bool_]) -> ScaleCheck | None:
    """Whether the weights of these chains look like draws from the fit's prior."""
    weight, log_odds = (draws[keep].reshape(-1, *draws.shape[2:]) for draws in chains.weights)
    sound = np.isfinite(weight).all((-1, -2))
    if not sound.any():
        return None
    weight, log_odds = weight[sound], log_odds[sound]
    model = fit.model
    density = weight_density(model.prior)
    if not isinstance(density, MixtureDensity):  # it may have no scales
        return None
    k = weight.shape[-1]  # that the chains run over; fewer only where all factors are alike
    permitted, must = (mask.cpu().numpy()[:, :k] for mask in (model.permitted, model.must))
    edge_offset = model.prior.known.cpu().double().numpy() if model.prior.informed else None
    return check_scales(weight, log_odds, density, permitted, must, model.prior.shared, edge_offset)


def _unused_rows(fit: Fit, n_rows: int) -> list[Finding]:
    """Whether the chains used all rows of the table."""
    total = len(fit.table.x) or n_rows
    if n_rows >= total:
        return []
    message = f"The chains used {n_rows:,} of {total:,} rows: probabilities are those that so many rows give"
    remedy = f"max_rows={total} uses all, and takes {total / n_rows:.0f} times as long"
    return [Finding("rows", message, remedy, source="chains", size=n_rows / total)]


def _agreement(fit: Fit, chains: ChainSummary, kept: ChainPool, gap: Array, some_rows: bool) -> list[Finding]:
    """Whether the chains agree with one another."""
    features, factors = fit.feature_names, fit.factor_names
    findings = [Finding("chains", sentence, source="chains") for sentence in left_out(kept)]
    n_chains = int(kept.keep.sum())
    if n_chains == 1 or np.isnan(gap).all():
        message = "There is only one chain to look at, and nothing says whether another would agree"
        return [*findings, Finding("chains", message, "run more", "doubt", "chains")]
    findings += _other_graphs(fit, chains, kept)
    gap = gap_within(kept, chains.prob)  # between graphs that has just been said
    disputed = disputed_columns(
        gap,
        features,
        [name.removeprefix("factor ") for name in factors],
        n_chains,
        more="all rows (max_rows)" if some_rows else "more rows",
    )
    flagged = unresolved(gap)
    for k, (message, remedy) in disputed.items():
        edges = tuple((features[j], factors[k]) for j in np.flatnonzero(flagged[:, k]))
        findings.append(Finding("chains", message, remedy, "doubt", "chains", edges=edges))
    findings += _lost_in_chains(fit, chains.weight[kept.keep])
    draws = chains.edge[kept.keep]
    if fit.weights.shape[1] <= _MOST_PAIRS and draws.shape[1] >= 8:  # split R-hat takes halves, here of four
        rhat = co_membership_rhat(draws)
        if rhat.largest > _RHAT:
            message, remedy = uneven(rhat, features)
            findings.append(Finding("chains", message, remedy, source="chains", size=rhat.largest))
    done = chains.sweeps
    if done < _LEAST_SWEEPS:
        message = f"Only {done} sweeps count, too few to say that no edge is disputed between the chains"
        remedy = f"want {_LEAST_SWEEPS} at least, by more time or more sweeps"
        findings.append(Finding("sweeps", message, remedy, source="chains", size=done))
    return findings


def _other_graphs(fit: Fit, chains: ChainSummary, pool: ChainPool) -> list[Finding]:
    """Whether the chains kept hold more than one graph."""
    message, differ = alternative_graphs(pool, chains.prob)
    if not message:
        return []
    edges = tuple((fit.feature_names[j], fit.factor_names[k]) for j, k in np.argwhere(differ))
    remedy = "read both, `sample_stats` says which chain holds which, or give more rows or an anchor"
    return [Finding("graphs", message, remedy, "doubt", "chains", edges=edges, size=float(pool.share[0]))]


def _lost_in_chains(fit: Fit, weight: Array) -> list[Finding]:
    """Factors whose mean loadings, (chain, draw, feature, factor), are others in some chain than in all.

    Of a curved decoder sizes are compared: the weight of a feature that is even in a factor has either sign.
    """
    means = weight.mean(1)
    if fit.model.decoder_kind != "linear":
        means = np.abs(means)
    together = means.mean(0)
    size = np.linalg.norm(means, axis=1) * np.linalg.norm(together, axis=0)
    cosine = np.einsum("cjk,jk->ck", means, together) / np.where(size > 0, size, 1.0)
    used = (np.abs(together) >= _LEAST_LOADING).any(0)
    lost = tuple(fit.factor_names[k] for k in np.flatnonzero(used & (cosine.min(0) < SAME_FACTOR)))
    if not lost:
        return []
    message = f"{', '.join(lost)}: the chains of the edge posterior do not agree on it"
    remedy = "an anchor for it, more rows, or more restarts"
    return [Finding("chains", message, remedy, "doubt", "chains", factors=lost)]


def _uneven_weights(fit: Fit, chains: ChainSummary, keep: NDArray[np.bool_]) -> list[Finding]:
    """Weights of probable edges that differ between the chains, of which the interval is one over all."""
    draws = chains.weight[keep]
    if len(draws) < 2 or draws.shape[1] < 8:
        return []
    probable = (chains.prob[keep] > 0.5).all(0)
    rhat = np.zeros(probable.shape)
    if probable.any():
        rhat[probable] = np.nan_to_num(split_rhat(draws[:, :, probable]))
    factors = [name for name, column in zip(fit.factor_names, rhat.T, strict=True) if (column > _APART).any()]
    if not factors:
        return []
    j, k = np.unravel_index(rhat.argmax(), rhat.shape)
    message = (
        f"Chains differ in the size of {int((rhat > _APART).sum())} weights, most of all of "
        f"{fit.feature_names[j]} on {fit.factor_names[k]} (R-hat {rhat.max():.2f}): their intervals pool "
        "chains that disagree"
    )
    return [
        Finding(
            "weights", message, "run them longer", source="chains", factors=tuple(factors), size=rhat.max()
        )
    ]


def _other_axes(fit: Fit, loading: Array) -> list[Finding]:
    """Which factors of a straight decoder are others in the chains, whose loadings are (feature, factor)."""
    if fit.model.decoder_kind != "linear":
        return []  # a curve has its axes, and its weights' signs are not those of its slopes
    fitted = np.sign(fit.weights[fit.best]) * np.sqrt(fit.effects[fit.best])
    alike = np.abs(np.diagonal(similarity(fitted, loading)))
    far = np.flatnonzero((alike < SAME_FACTOR) & fitted.any(0) & loading.any(0))
    if not len(far):
        return []
    names, least, most = tuple(fit.factor_names[k] for k in far), alike[far].min(), alike[far].max()
    congruence = f"{least:.2f}" if len(far) == 1 else f"{least:.2f} to {most:.2f}"
    message = f"The chains see {', '.join(names)} in other axes than the fit (congruence {congruence})"
    remedy = f"go by their loadings, or pin {'it' if len(far) == 1 else 'each'} with an anchor"
    return [Finding("axes", message, remedy, source="chains", factors=names, size=float(least))]
