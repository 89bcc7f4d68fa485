r"""What the graph of a table identifies: every draw of it is asked, and what the theorems assume is checked.

For each draw, from the theorem that asks least beside the graph to the one that asks most:

* *anchors*: every factor has two features of its own (Moran et al. 2022; Bing et al. 2020 if linear);
* *zeros*: given the graph, its zeros leave no other axes, linear or not, whichever feature is left out;
* *structural sparsity*: for every other factor, a feature without it (Zheng et al. 2022), if features bend;
* *diversity*: no other factor reaches the same features (Zheng et al. 2026), on request.

A factor with a single feature cannot be told apart from that feature's noise, and counts as such. A straight
decoder of Gaussian factors fits as well in any rotation; there only anchors and zeros are asked.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..findings.finding import findings_of, sentences
from ..graphs.decoder_slopes import SlopeDirections, slope_directions
from ..graphs.dependence import may_depend
from ..graphs.diversity import anchors, sufficient_diversity
from ..graphs.identifiability import IdentifiabilityProbability
from ..graphs.zeros import free_given_zeros
from ..posterior import arviz as _arviz
from ..posterior.draws import MOST_DRAWS, graph_draws, pooled
from ..posterior.method_names import current_name
from .certificate import Certificate, doubted, verdicts
from .table_assumptions import OF_ANCHORS, assumptions
from .table_checks import Agreement, Curves, agreement_of, curves_of

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.program.result import ProgramFit
    from ..inference.table.result import Fit

__all__ = ["Criteria", "criteria_of", "table_certificate"]

Bools = NDArray[np.bool_]

# Share of the slopes' power that varies, up to which a decoder counts as straight. Its root, .22, is about
# the tolerance of `slope_directions`.
_STRAIGHT = 0.05
_HELP = {1: "one more feature that depends on {name} only", 2: "two features that depend on {name} only"}
_THEOREMS = {
    "anchors": "two anchors for every factor (Moran et al. 2022; linear: Bing et al. 2020)",
    "zeros": "more zeros than another choice of axes could have (Anderson and Rubin 1956)",
    "structural sparsity": "structural sparsity (Zheng et al. 2022)",
    "diversity": "sufficient diversity (Zheng et al. 2026, theorem 3)",
    "set differences": "no other factor with the same features (Zheng et al. 2026, theorem 1)",
}


_OF_PROGRAM = (
    "what a program's features do with its factors was not looked at: only anchors and zeros of the graph "
    "were asked, which need no curves; where they are straight and the factors Gaussian, every rotation fits "
    "the rows as well, and only the prior's liking for few edges chooses these axes"
)


class Criteria(NamedTuple):
    """What each criterion says of each draw.

    Attributes
    ----------
    there : ndarray of bool, shape (draw, factor)
        Factors with at least two features.
    alone : dict of ndarray of bool, shape (draw, factor)
        By criterion, the one that asks least beside the graph first: the factors that it singles out. Each
        implies the next.
    free : ndarray of bool, shape (draw, factor, factor)
        What the last criterion leaves: whether a factor may be a function of another estimate.
    bent : bool
        Whether all features were taken to bend.
    """

    there: Bools
    alone: dict[str, Bools]
    free: Bools
    bent: bool


def table_certificate(
    fit: Fit | ProgramFit | None, idata: ArvizData, sure: float, mode: Literal["support", "paper"] = "support"
) -> Certificate:
    """Say of every factor whether the graph from factors to features identifies it.

    Parameters
    ----------
    fit : Fit, ProgramFit or None
        From a fit of a ready model the assumptions on curves and restarts are checked, and straight features
        count as such. Whether those of a program bend is not looked at, and they count as straight.
    idata : InferenceData or DataTree
        Its edge posterior.
    sure : float
        Probability that a verdict wants.
    mode : {"support", "paper"}
        "paper" adds the criteria of diverse dictionary learning as published; see `graphs.may_depend` for why
        they are left out by default.

    Returns
    -------
    Certificate
        `table` has one more column, `by`: the criterion that asks least beside the graph among those that
        are sure enough and whose assumptions are not refuted. `criteria` has the probability of each.
    """
    edges = _arviz.get_group(idata, "edge_posterior")
    features, names = ([str(n) for n in edges[dim].to_numpy()] for dim in ("feature", "factor"))
    named = edges["probability"].transpose("feature", "factor").to_numpy() >= 0.5
    draws = pooled(graph_draws(idata), MOST_DRAWS)
    is_program = idata.attrs.get("weight_unit") == "program"
    decoder_fit = None if fit is None or is_program else cast("Fit", fit)
    curves = None if decoder_fit is None else curves_of(decoder_fit)
    slopes = None if curves is None else slope_directions(curves.slope, named)
    straight = is_program or _is_straight(curves, named, idata)
    criteria = criteria_of(draws, 1.0 if straight else _directions(slopes, named), mode)
    agreement = agreement_of(decoder_fit, idata, (draws.any(axis=1)).mean(axis=0) > 0.5)
    if is_program:
        agreement = agreement._replace(restarts="the findings name each factor that no other restart has")
    method = current_name(str(idata.attrs.get("edge_method", "")))
    assumed = assumptions(decoder_fit, named, names, curves, slopes, agreement, method, straight)
    if is_program:
        assumed.table.at["enough nonlinearity", "figure"] = "not measured of a program"
    advice = _advice(names, named, criteria)
    table = _verdicts(names, features, draws, criteria, sure, advice)
    table["by"] = [
        _by({name: alone[:, k].mean() for name, alone in criteria.alone.items()}, assumed.refuted, sure)
        if verdict == "identified"
        else ""
        for k, verdict in enumerate(table["verdict"])
    ]
    findings = findings_of(fit, idata)
    _doubt(table, agreement)
    table = doubted(table, findings)
    in_use = (table["verdict"] != "empty").to_numpy()
    last = list(criteria.alone.values())[-1][:, in_use]
    return Certificate(
        theorem="; ".join(_THEOREMS[name] for name in criteria.alone),
        table=table,
        all_identified=float(last.all(axis=1).mean()) if in_use.any() else 0.0,
        assumptions=assumed.table,
        caution=[
            *sentences(findings),
            *([_OF_PROGRAM] if is_program else _caution(criteria, table, straight, slopes, mode)),
        ],
        criteria=pd.DataFrame(
            {name: alone.mean(axis=0) for name, alone in criteria.alone.items()}, index=table.index
        ),
        set_aside=OF_ANCHORS if assumed.refuted else (),
    )


def criteria_of(draws: Bools, directions: ArrayLike = np.inf, mode: str = "support") -> Criteria:
    """Ask each draw of the graph.

    Parameters
    ----------
    draws : ndarray of bool, shape (draw, feature, factor)
    directions : array_like of number, shape () or (feature,)
        In how many directions each feature's slopes point, as in `free_given_zeros`. Where it is 1 for all,
        the criteria that want features to bend are left out; those of mode "paper" want `inf` for all.
    mode : {"support", "paper"}
    """
    common = draws & (draws.sum(axis=1, keepdims=True) >= 2)
    there = common.any(axis=1)

    def single(free: Bools) -> Bools:
        return there & (_of_those(free, there).sum(axis=-1) == 1)

    two = (anchors(common) >= 2) | ~there
    free = free_given_zeros(common, overdetermined=True)
    alone = {"anchors": two.all(axis=1, keepdims=True) & there, "zeros": single(free)}
    turns = np.asarray(directions, dtype=float)
    bent = bool(np.isinf(turns).all())
    if (turns > 1).any():
        free = may_depend(common) if bent else free_given_zeros(common, turns, overdetermined=True)
        alone["structural sparsity"] = single(free)
        if mode == "paper" and bent:
            free = may_depend(common, "paper")
            diverse = _diverse(common, there) | alone["structural sparsity"]
            alone |= {"diversity": diverse, "set differences": single(free)}
    return Criteria(there, alone, _of_those(free, there), bent)


def _of_those(free: Bools, there: Bools) -> Bools:
    """Pairs of factors that are there."""
    return free & there[:, :, None] & there[:, None, :]


def _diverse(common: Bools, there: Bools) -> Bools:
    """Sufficient diversity among the factors that are there, which differ between draws."""
    diverse = np.zeros_like(there)
    kinds, kind_of = np.unique(there, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        if kind.any():
            rows = np.flatnonzero(kind_of.ravel() == number)
            diverse[np.ix_(rows, kind)] = sufficient_diversity(common[rows][:, :, kind]).diverse
    return diverse


def _directions(slopes: SlopeDirections | None, named: Bools) -> float | NDArray[np.float64]:
    """Directions of each feature's slopes; without fit or edges the theory is taken on trust."""
    several = named.sum(axis=1) > 1
    if slopes is None or not named.any() or (several.any() and slopes.bends[several].all()):
        return np.inf
    return np.where(slopes.bends, np.inf, slopes.directions)


def _is_straight(curves: Curves | None, named: Bools, idata: ArvizData) -> bool:
    """Whether the decoder is linear, by name or, where it has slopes to look at, as good as."""
    if curves is None or not curves.slope[:, named].any():
        return json.loads(str(idata.attrs.get("settings", "{}"))).get("decoder") == "linear"
    slope = curves.slope[:, named]
    return bool(slope.var(axis=0).sum() <= _STRAIGHT * (slope**2).mean(axis=0).sum())


def _advice(names: list[str], named: Bools, criteria: Criteria) -> list[str]:
    """Anchors help under every criterion: a second one too, where zeros of straight features count."""
    wanted = 1 if criteria.bent else 2
    missing = np.maximum(1, wanted - anchors(named & (named.sum(axis=0) >= 2)))
    return [_HELP[int(n)].format(name=name) for name, n in zip(names, missing, strict=True)]


def _verdicts(
    names: list[str], features: list[str], draws: Bools, criteria: Criteria, sure: float, advice: list[str]
) -> pd.DataFrame:
    alone = list(criteria.alone.values())[-1]
    free = criteria.free
    table = verdicts(
        names,
        IdentifiabilityProbability(
            consistency=free.mean(axis=0),
            disentangled=alone.mean(axis=0),
            all_disentangled=float(alone.all(axis=1).mean()),
            mixed=(free | free.swapaxes(-1, -2)).mean(axis=0),
        ),
        sure,
        "",
    )
    sizes = draws.sum(axis=1)
    empty, single = (sizes == 0).mean(axis=0), (sizes == 1).mean(axis=0)
    others = ((empty <= 0.5) & (single <= 0.5)).sum() - 1
    for k, name in enumerate(names):
        verdict, p = table.at[name, "verdict"], table.at[name, "probability"]
        if empty[k] > 0.5:
            table.loc[name, ["verdict", "would_help"]] = ["empty", ""]
            table.at[name, "mixed_with"] = []
        elif p >= sure:
            table.at[name, "verdict"] = "identified" if others else "alone"
        else:
            table.at[name, "verdict"] = "mixed" if p <= 1 - sure else "unresolved"
            table.at[name, "would_help"] = advice[k]
            if single[k] > (1 - sure if verdict == "unresolved" else 0.5):
                feature = features[int(draws[sizes[:, k] == 1][:, :, k].sum(axis=0).argmax())]
                table.at[name, "mixed_with"] = [*table.at[name, "mixed_with"], f"the noise of {feature}"]
            elif not table.at[name, "mixed_with"]:
                table.at[name, "would_help"] = f"more rows, or {advice[k]}"
    return table


def _by(probability: dict[str, float], refuted: set[str], sure: float) -> str:
    """The criterion that asks least beside the graph, of those that are sure and not refuted."""
    return next((name for name, p in probability.items() if p >= sure and name not in refuted), "")


def _doubt(table: pd.DataFrame, agreement: Agreement) -> None:
    """A verdict is of the factor that was found; it stands only if others found it too."""
    for name, reason in zip(table.index, agreement.doubt, strict=True):
        if reason and table.at[name, "verdict"] == "identified":
            table.at[name, "verdict"], table.at[name, "by"] = "unresolved", ""
            table.at[name, "would_help"] = f"{reason}: an anchor for it, more rows, or more restarts"


def _caution(
    criteria: Criteria,
    table: pd.DataFrame,
    straight: bool,
    slopes: SlopeDirections | None,
    mode: str,
) -> list[str]:
    notes = []
    if straight:
        notes.append(
            "the decoder is linear: with Gaussian factors every rotation fits the rows equally well, and "
            "only the zeros of the graph, that is, the prior's preference for few edges, determine these axes"
        )
    if slopes is None and (table["by"] == "structural sparsity").any():
        notes.append(
            "nonlinearity of the features was assumed, not checked; identify(fit, idata=idata) measures it"
        )
    if mode == "paper" and "diversity" not in criteria.alone:
        notes.append("diversity wants every feature of several factors to bend: it was not asked")
    return notes
