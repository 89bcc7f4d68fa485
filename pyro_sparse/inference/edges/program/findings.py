"""What chains over a program file against their own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....findings.finding import Finding
from ....graphs._mixing import split_rhat
from ....graphs.alignment import SAME_FACTOR
from ....graphs.chain_groups import ChainPool, gap_within
from ....graphs.chain_verdict import alternative_graphs, disputed_columns, left_out
from ....graphs.selection import unresolved

if TYPE_CHECKING:
    from ...program.result import ProgramFit
    from ...table.result import Fit
    from .sampler import ProgramDraws

__all__ = ["chain_findings", "loose_factors"]

Array = NDArray[np.float64]

_LEAST_SWEEPS = 30  # after the warm-up, for chains that agree to mean something
_IN_USE = 0.5  # expected edges, from which a factor's axis is looked at
_LOW_ACCEPTANCE = 0.15  # of a block, below which its draws hardly move
_APART = 1.5  # R-hat from which chains' means of a number lie further apart than its draws within a chain


def chain_findings(
    fit: Fit | ProgramFit, draws: ProgramDraws, pool: ChainPool, wanted: int, has_axes: bool
) -> list[Finding]:
    """What the chains file against their own numbers.

    Parameters
    ----------
    fit : Fit or ProgramFit
        Its names.
    draws : ProgramDraws
    pool : ChainPool
    wanted : int
        Sweeps after the warm-up.
    has_axes : bool
        Whether nothing but the data says which direction a factor has.
    """
    features, factors, done = fit.feature_names, fit.factor_names, draws.sweeps
    findings = [Finding("chains", sentence, source="chains") for sentence in left_out(pool)]
    if draws.stopped_by == "time":
        message = f"The time budget ended the chains after {done} of {wanted} sweeps"
        findings.append(Finding("time", message, "give them more time", source="chains", size=done / wanted))
    if int(pool.keep.sum()) < 2:
        message = "There is only one chain to look at, and nothing says whether another would agree"
        return [*findings, Finding("chains", message, "run more", "doubt", "chains")]
    message, differ = alternative_graphs(pool, draws.prob)
    if message:
        edges = tuple((features[j], factors[k]) for j, k in np.argwhere(differ))
        remedy = (
            "read both (`sample_stats` says which chain holds which), or tell the program more of its edges"
        )
        findings.append(
            Finding("graphs", message, remedy, "doubt", "chains", edges=edges, size=float(pool.share[0]))
        )
    within = gap_within(pool, draws.prob)
    names = [name.removeprefix("factor ") for name in factors]
    flagged = unresolved(within)
    for k, (message, remedy) in disputed_columns(within, features, names, int(pool.keep.sum())).items():
        edges = tuple((features[j], factors[k]) for j in np.flatnonzero(flagged[:, k]))
        findings.append(Finding("chains", message, remedy, "doubt", "chains", edges=edges))
    findings += _open_axes(fit, draws, pool) if has_axes else []
    findings += _apart(draws, pool)
    slow = [
        f"{name} ({how})"
        for name, how in draws.methods.items()
        if float(how.rsplit(" ", 1)[1]) < _LOW_ACCEPTANCE
    ]
    if slow:
        message = f"Hardly a proposal was accepted for {', '.join(slow)}: the chains creep there"
        findings.append(
            Finding("kernels", message, "run them longer, or write the site in other terms", source="chains")
        )
    if done < _LEAST_SWEEPS:
        message = f"Only {done} sweeps count, too few to say that no edge is disputed between the chains"
        findings.append(
            Finding("sweeps", message, f"want {_LEAST_SWEEPS} at least", source="chains", size=done)
        )
    return findings


def loose_factors(weight: Array, probability: Array) -> dict[int, float]:
    """Factors in use whose draws have no axis in common, and the median congruence of these with their mean.

    Parameters
    ----------
    weight : ndarray (draw, feature, factor)
    probability : ndarray (feature, factor)
        Of edges.
    """
    mean = weight.mean(0)
    size = np.linalg.norm(weight, axis=1) * np.linalg.norm(mean, axis=0)
    congruence = np.median((weight * mean).sum(1) / np.where(size > 0, size, 1.0), axis=0)
    loose = (congruence < SAME_FACTOR) & (probability.sum(0) >= _IN_USE)
    return {int(k): float(congruence[k]) for k in np.flatnonzero(loose)}


def _open_axes(fit: Fit | ProgramFit, draws: ProgramDraws, pool: ChainPool) -> list[Finding]:
    """Where edges are unsure because a factor's axis is, and mean weights are of no axis."""
    weight = draws.weight[pool.keep].astype(float).reshape(-1, *draws.weight.shape[2:])
    findings = []
    for k, congruence in loose_factors(weight, draws.prob[pool.keep].mean(0)).items():
        name = fit.factor_names[k]
        message = (
            f"The data leave the axis of {name} open: half of its draws have a congruence below "
            f"{congruence:.2f} with their mean, so that its mean weights are those of no axis"
        )
        remedy = "read its probabilities and not its weights; more rows or an anchor would settle it"
        findings.append(Finding("axes", message, remedy, source="chains", factors=(name,), size=congruence))
    return findings


def _apart(draws: ProgramDraws, pool: ChainPool) -> list[Finding]:
    """Sites other than edges in whose values the chains differ."""
    if int(pool.keep.sum()) < 2 or draws.weight.shape[1] < 8:
        return []
    worst = {}
    for name, value in draws.sites.items():
        rhat = np.nan_to_num(
            split_rhat(value[pool.keep].reshape(*value[pool.keep].shape[:2], -1).astype(float))
        )
        if rhat.size and rhat.max() > _APART:
            worst[name] = float(rhat.max())
    if not worst:
        return []
    listed = ", ".join(f"{name} (R-hat {size:.2f})" for name, size in worst.items())
    message = f"Chains differ in {listed}: intervals of these pool chains that disagree"
    return [Finding("sites", message, "run them longer", source="chains", size=max(worst.values()))]
