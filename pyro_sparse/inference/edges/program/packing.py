"""What chains over a program come to: one ArviZ object, with findings and verdict as of any other table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...._utils.types import ArvizData
from ....findings.finding import Finding, confirmed_by_chains, doubted_edges
from ....graphs.chain_groups import ChainPool
from ....graphs.selection import edge_gap
from ....posterior.edge_table import attributes, edge_numbers, packed
from ....posterior.verdicts import concluded, decided
from .findings import chain_findings

if TYPE_CHECKING:
    from ...program.result import ProgramFit
    from .sampler import ProgramDraws

__all__ = ["packed_edges"]

Array = NDArray[np.float64]

_EDGE = ("feature", "factor")


def packed_edges(
    fit: ProgramFit,
    site: str,
    draws: ProgramDraws,
    pool: ChainPool,
    restarts: list[int],
    turned: list[bool],
    confirmed: Sequence[str],
    wanted: int,
    is_score: bool = False,
) -> ArvizData:
    """An edge posterior of a program.

    Parameters
    ----------
    fit : ProgramFit
    site : str
        Whose edges.
    draws : ProgramDraws
    pool : ChainPool
        Chains by the graph they hold.
    restarts : list of int
        That chains began at.
    turned : list of bool
        Whether in other axes.
    confirmed : sequence of str
        Factors that chains from other axes came back to.
    wanted : int
        Sweeps after the warm-up, of each chain.
    is_score : bool
    """
    keep, gap = pool.keep, edge_gap(draws.prob, pool.keep)
    probability = np.average(draws.prob[keep], axis=0, weights=pool.weight[keep]).clip(0, 1)
    weight = np.average(draws.weight.mean(1)[keep], axis=0, weights=pool.weight[keep])
    effect = np.average(_shares(draws.weight)[keep], axis=0, weights=pool.weight[keep])
    findings = [] if is_score else chain_findings(fit, draws, pool, wanted, fit.layout.has_axes)
    findings += _held(fit)
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
            f"Posterior probability of an edge of {site!r} from {int(keep.sum())} Markov chains of "
            f"{draws.sweeps} sweeps over all sites of the program, {sum(turned)} of them begun in other "
            "axes."
        )
    more = {
        "sweeps": draws.sweeps, "sweeps_wanted": wanted, "stopped_by": draws.stopped_by,
        "interrupted": int(draws.stopped_by == "interrupt"), "site": site, "weight_unit": "program",
        "declares_factors": int(fit.layout.has_axes),
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


def _held(fit: ProgramFit) -> list[Finding]:
    """Parameters, of which nothing says what is believed."""
    names = [site.name for site in fit.layout.parameters]
    if not names:
        return []
    it, each = ("them", "each of them") if len(names) > 1 else ("it", "it")
    message = (
        f"The chains estimate {', '.join(names)} in their warm-up and then hold {it}: edges do not know how "
        f"uncertain {'these are' if len(names) > 1 else 'that is'}, and may be too sure"
    )
    remedy = f"give {each} a prior, pyro.sample in place of pyro.param"
    return [Finding("parameters", message, remedy, source="chains")]


def _shares(weight: Array) -> Array:
    """Mean share of each factor in a feature's squared weights, (chain, feature, factor); 0 without any."""
    squares = weight.astype(float) ** 2
    total = squares.sum(-1, keepdims=True)
    shares: Array = (squares / np.where(total > 0, total, 1.0)).mean(1)
    return shares


def _dims(fit: ProgramFit, name: str, value: Array) -> tuple[str, ...]:
    """Names of the dimensions of a site's draws (chain, draw, ...)."""
    site, k = {**fit.layout.sites, **fit.layout.derived}[name], fit.model.n_factors
    names = [f"{name}_dim_{i}" for i in range(value.ndim - 2)]
    if site.group == "features" and value.shape[2:3] == (len(fit.feature_names),):
        names[0] = "feature"
    if site.kind == "correlation":
        return ("chain", "draw", "factor", "other_factor")
    if site.kind in ("axis", "each", "edges", "gates") and value.shape[-1] == k:
        names[-1] = "factor"
    return ("chain", "draw", *names)


def _score_dims(value: Array) -> tuple[str, ...]:
    """(row, ..., factor) of posterior means."""
    return ("row", *[f"event_{i}" for i in range(value.ndim - 2)], "factor")
