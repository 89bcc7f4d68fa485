"""What chains over a program come to: one ArviZ object, with findings and verdict as of any other table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...._utils.types import ArvizData
from ....findings.finding import Finding, confirmed_by_chains, doubted_edges
from ....graphs._mixing import split_rhat
from ....graphs.alignment import SAME_FACTOR, similarity
from ....graphs.chain_groups import ChainPool, gap_within
from ....graphs.chain_verdict import alternative_graphs, disputed_columns, left_out
from ....graphs.selection import edge_gap, unresolved
from ....posterior.edge_table import attributes, concluded, decided, edge_numbers, packed

if TYPE_CHECKING:
    from ...program.result import ProgramFit
    from .sampler import ProgramDraws

__all__ = ["packed_edges"]

Array = NDArray[np.float64]

_EDGE = ("feature", "factor")
_LEAST_SWEEPS = 30  # after the warm-up, for chains that agree to mean something
_LOW_ACCEPTANCE = 0.15  # of a block, below which its draws hardly move


def packed_edges(
    fit: ProgramFit,
    draws: ProgramDraws,
    pool: ChainPool,
    restarts: list[int],
    turned: list[bool],
    began: Array | None,
    wanted: int,
    is_score: bool = False,
) -> ArvizData:
    """An edge posterior of a program.

    Parameters
    ----------
    fit : ProgramFit
    draws : ProgramDraws
    pool : ChainPool
        Chains by the graph they hold.
    restarts : list of int
        That chains began at.
    turned : list of bool
        Whether in other axes.
    began : ndarray (chain, feature, factor) or None
        Weights where they began.
    wanted : int
        Sweeps after the warm-up, of each chain.
    is_score : bool
    """
    keep, gap = pool.keep, edge_gap(draws.prob, pool.keep)
    probability = np.average(draws.prob[keep], axis=0, weights=pool.weight[keep]).clip(0, 1)
    weight = np.average(draws.weight.mean(1)[keep], axis=0, weights=pool.weight[keep])
    effect = np.average(_shares(draws.weight)[keep], axis=0, weights=pool.weight[keep])
    findings = [] if is_score else _findings(fit, draws, pool, gap, wanted)
    confirmed = [] if is_score or began is None else _came_back(fit, draws, pool, began)
    of_fit = confirmed_by_chains(fit.findings, confirmed)
    conclusion = concluded(of_fit, findings, gap, "restart" if is_score else "chain")
    if not is_score:
        doubted = doubted_edges([*of_fit, *findings], fit.feature_names, fit.factor_names)
        conclusion.insert(0, decided(probability, gap, draws.asked, doubted))
    dims = {"edge": ("chain", "draw", *_EDGE), "weight": ("chain", "draw", *_EDGE)}
    posterior: dict[str, Any] = {"edge": (dims["edge"], draws.edge), "weight": (dims["weight"], draws.weight)}
    for name, value in draws.sites.items():
        posterior[name if name not in posterior else f"site_{name}"] = (_dims(fit, name, value), value)
    numbers = edge_numbers(
        _EDGE, probability, draws.prob.clip(0, 1), {"weight": weight, "effect": effect}, None, gap
    )
    groups: dict[str, Any] = {"posterior": posterior, "edge_posterior": numbers}
    if draws.scores:
        pooled = {n: np.average(v[keep], axis=0, weights=pool.weight[keep]) for n, v in draws.scores.items()}
        groups["factor_scores"] = {n: (_score_dims(v), v) for n, v in pooled.items()}
    stats = {
        "log_marginal": draws.log_marginal.mean(1), "graph": pool.group, "pool_weight": pool.weight,
        "turned": np.array(turned),
    }  # fmt: skip
    coords = {"feature": fit.feature_names, "factor": fit.factor_names, "row": fit.sample_names}
    if is_score:
        note = "Mean probability of each edge in the best restart: a score, for one mode was looked at."
    else:
        note = (
            f"Posterior probability of an edge of {fit.site!r} from {int(keep.sum())} Markov chains of "
            f"{draws.sweeps} sweeps over all sites of the program, {sum(turned)} of them begun in other "
            "axes."
        )
    more = {
        "sweeps": draws.sweeps, "sweeps_wanted": wanted, "stopped_by": draws.stopped_by,
        "interrupted": int(draws.stopped_by == "interrupt"), "site": fit.site, "weight_unit": "program",
        "rows_used": len(fit.data),
        "kernels": "; ".join(f"{name}: {how}" for name, how in draws.methods.items()),
        "graphs": pool.n_graphs, "graph_shares": pool.share.tolist(),
    }  # fmt: skip
    kind = "score" if is_score else "program"
    about = attributes(
        fit,  # type: ignore[arg-type]  # of it are read the names and settings that every fit has
        kind, is_score, note, more, findings, conclusion, of_fit,
    )  # fmt: skip
    return packed(fit, groups, stats, "factor", coords, about, np.array(restarts), keep)


def _shares(weight: Array) -> Array:
    """Mean share of each factor in a feature's squared weights, (chain, feature, factor); 0 without any."""
    squares = weight.astype(float) ** 2
    total = squares.sum(-1, keepdims=True)
    shares: Array = (squares / np.where(total > 0, total, 1.0)).mean(1)
    return shares


def _dims(fit: ProgramFit, name: str, value: Array) -> tuple[str, ...]:
    """Names of the dimensions of a site's draws (chain, draw, ...)."""
    site, k = fit.layout.sites[name], fit.model.n_factors
    names = [f"{name}_dim_{i}" for i in range(value.ndim - 2)]
    if site.group == "features":
        names[0] = "feature"
    if site.kind in ("axis", "each", "edges", "gates") and value.shape[-1] == k:
        names[-1] = "factor"
    return ("chain", "draw", *names)


def _score_dims(value: Array) -> tuple[str, ...]:
    """(row, ..., factor) of posterior means."""
    return ("row", *[f"event_{i}" for i in range(value.ndim - 2)], "factor")


def _findings(
    fit: ProgramFit, draws: ProgramDraws, pool: ChainPool, gap: Array, wanted: int
) -> list[Finding]:
    """What the chains file against their own numbers."""
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
    findings += _apart(fit, draws, pool)
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


_APART = 1.5  # R-hat from which chains' means of a number lie further apart than its draws within a chain


def _apart(fit: ProgramFit, draws: ProgramDraws, pool: ChainPool) -> list[Finding]:
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


def _came_back(fit: ProgramFit, draws: ProgramDraws, pool: ChainPool, began: Array) -> list[str]:
    """Factors that all chains kept have in common and that some chain did not have when it began."""
    means, kept = draws.weight.mean(1), np.flatnonzero(pool.keep)
    together = np.average(means[kept], axis=0, weights=pool.weight[kept])
    names = []
    for k, name in enumerate(fit.factor_names):
        factor = together[:, [k]]
        everywhere = [similarity(means[c][:, [k]], factor)[0, 0] for c in kept]
        elsewhere = [np.abs(similarity(began[c], factor)).max() < SAME_FACTOR for c in kept]
        if min(everywhere) >= SAME_FACTOR and any(elsewhere):
            names.append(name)
    return names
