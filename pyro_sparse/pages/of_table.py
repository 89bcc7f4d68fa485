"""One self-contained HTML page about the fit of a table, for people who read graphs, not code.

`gather` turns a fit into plain facts (which edges, in which words, how far the restarts agree); the template
`templates/report.html.j2` sets them as a page. Pictures are inlined, once for light and once for dark
screens; names from the user's table are escaped by the template.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._utils.escaping import csv_bytes
from .._utils.torch_state import isolated
from ..certificates.facts import certificate_facts
from ..data.large_table import LargeTable
from ..graphs.alignment import SAME_FACTOR, agreement_matrix
from ..posterior.arviz import get_group
from ..posterior.covariates import covariate_effects
from ..posterior.edge_table import compared_runs
from ..posterior.rival_restarts import compared_restarts
from ..posterior.salience import SALIENT, salient_edges
from ..posterior.same_fit import check_labels
from ..posterior.tables import summary
from .conclusion import (
    SURE,
    Words,
    asked_for,
    cautions,
    counted,
    decided,
    in_doubt,
    in_letters,
    joined,
    known_edges,
    known_identified,
    not_asked,
    open_edges,
    open_identified,
    short,
)
from .edges import Column, edge_table, text
from .glossary import glossary
from .model_card import model_card
from .page import Drawing, inlined, need_libraries, page_to_write, percent, write_page
from .table_edges import EdgeCurves, edge_columns, factors_in_use, loading_columns

if TYPE_CHECKING:
    from .._utils.types import ArvizData, TableLike
    from ..graphs.venn import Groups
    from ..inference.table.result import Fit

__all__ = ["write_table"]

_STRONGEST, _MOST_COVARIATES = 5, 12  # effects that are listed of each covariate, and covariates
# Factors beyond which nobody reads who shares what; columns of a page's width.
_MOST_SETS, _MOST_REGIONS = 20, 9
_MOST_EIGENVALUES, _MOST_CELLS = 100, 300_000  # of a table whose eigenvalues take a second
WORDS = Words(
    "feature", "factor", "factor", "features", "factors",
    ("{names} depends on {group}", "{names} depend on {group}"), "{row} on {column}",
)  # fmt: skip


@isolated()
def write_table(
    fit: Fit,
    path: str | os.PathLike[str],
    idata: ArvizData,
    X: TableLike | None = None,
    fdr: float = 0.1,
    *,
    groups: Groups | None = None,
    salient: float = SALIENT,
    salient_only: bool = False,
    wording: Callable[[str], str] = str,
) -> Path:
    """The page of a table, for `report` and for the command line, which has its own words for advice.

    Parameters
    ----------
    fit, path, idata, X, fdr, groups, salient, salient_only
        As in `report`.
    wording : callable
        What is made of every sentence that may give advice.
    """
    path = page_to_write(fit, path)
    need_libraries()
    check_labels(fit, idata)
    facts = gather(fit, idata, fdr, salient, salient_only, X)
    for caution in facts["cautions"]:
        caution["messages"] = [wording(message) for message in caution["messages"]]
        caution["remedy"] = wording(caution["remedy"])
    facts["lead"] = [wording(sentence) for sentence in facts["lead"]]
    shown = salient_edges(idata, salient) if salient_only else idata
    pictures = _pictures(fit, shown, X, fdr, groups, salient)
    return write_page(path, "report.html.j2", {**facts, "pictures": pictures, "grouped": groups is not None})


def gather(
    fit: Fit,
    idata: ArvizData,
    fdr: float,
    salient: float = SALIENT,
    salient_only: bool = False,
    X: TableLike | None = None,
) -> dict[str, Any]:
    """Everything the page says, as plain facts."""
    shown = salient_edges(idata, salient) if salient_only else idata
    table = summary(shown, fdr, salient=salient)
    columns = loading_columns(table)
    is_score = bool(table.attrs["is_score"])
    word = "score" if is_score else "probability"
    chosen = table[table["selected"]]
    numbers = get_group(idata, "edge_posterior").transpose("feature", "factor", ...)
    effects = numbers["effect"].to_numpy()
    names, features = list(fit.factor_names), list(fit.feature_names)
    curves = EdgeCurves(fit, numbers["weight"].to_numpy())
    factors = factors_in_use(chosen, curves, effects, names)
    kept, rivals = compared_restarts(fit)
    run = compared_runs(idata)
    used = [k for k, name in enumerate(names) if name in set(chosen["factor"])]
    correlation = _correlation(np.asarray(fit.factor_cov))
    covariates = _covariates(fit, idata)
    certificate = certificate_facts(fit, idata)
    against = cautions(fit, idata, certificate["caution"] if certificate else ())
    helped = any(caution["remedy"] for caution in against)
    asked = asked_for(table, shown) | is_score  # a score of 0 is one, too
    is_open = (table["verdict"] == "open").to_numpy()[asked]
    verdict = _verdict(
        fit, chosen, fdr, rivals | kept, run, in_doubt(fit, idata), helped, bool(is_open.mean() > 0.5)
    )
    edges = edge_table(
        table, Column("Feature", "feature", lambda edge: text(edge["feature"]), False),
        edge_columns(table, word, columns, curves), "factor", names,
    )  # fmt: skip
    facts = {
        "kind": "table",
        "word": word,
        "runs": "the chains" if run == "chain" else "good restarts",
        "n_given": int(numbers.get("given", numbers["probability"] < 0).sum()),
        "note": table.attrs["note"],
        "fdr": fdr,
        "verdict": verdict,
        "lead": decided(fit, shown),
        "cautions": against,
        "n_features": len(features),
        "n_factors": len(names),
        "n_restarts": fit.n_restarts,
        "n_edges": len(chosen),
        "asked": "Which feature depends on which factor",
        "heading": f"{counted(len(chosen), 'edge')} between {counted(len(features), 'feature')} and "
        f"{counted(len(factors), 'factor')}",
        "size": f"{counted(len(fit.sample_names), 'row')}{_weighted(fit)}, "
        f"{counted(len(features), 'feature')}, {counted(len(names), 'factor')} offered, "
        f"{counted(fit.n_restarts, 'restart')}",
        "limits": f"An edge is here a loading of at least {salient:g} in size." if salient_only else "",
        "group_title": "Factor",
        "salient": salient,
        "salient_only": salient_only,
        "loadings": bool(columns),
        "sizes": "salience" in columns,
        "of_predictor": _noise_of_unit_variance(fit),
        "factors": factors,
        "not_in_fit": curves.unfitted,
        "edges": edges,
        "certificate": certificate,
        "correlated": [
            {"name": names[k], "values": [float(correlation[k, m]) for m in used]} for k in used
        ],
        "correlated_names": [names[k] for k in used],
        "covariates": covariates[:_MOST_COVARIATES],
        "n_covariates_more": max(len(covariates) - _MOST_COVARIATES, 0),
        "restarts": [
            {"number": r, "elbo": float(fit.elbo[r]), "heldout": float(fit.heldout_elbo[r]),
             "best": r == int(fit.best), "kept": bool(kept[r]), "alike": verdict["alike"][r]}
            for r in range(fit.n_restarts)
        ],
        "card": model_card(
            fit, idata, fdr,
            [("rows", f"{len(fit.sample_names):,}{_weighted(fit)}"), ("features", f"{len(features):,}")], X,
        ),
        "csv": base64.b64encode(csv_bytes(chosen, index=False)).decode(),
    }  # fmt: skip
    facts["known"] = _known(table, facts, columns, names)
    facts["open"] = _open(table, asked, facts, features, names)
    facts["tiles"] = _tiles(chosen, facts, float(np.clip(effects.sum(axis=1), 0, 1).mean()))
    facts["words"] = glossary("table", facts)
    return facts


def _known(
    table: pd.DataFrame, facts: dict[str, Any], columns: dict[str, str], names: list[str]
) -> list[str]:
    """What is known, a sentence each."""
    chosen, verdict = table[table["selected"]], facts["verdict"]
    if not len(chosen):
        return [f"No edge is selected at a false-discovery rate of {percent(facts['fdr'])}."]
    n = len(facts["factors"])
    by = ", by score" if facts["word"] == "score" else ""
    linked = f"{chosen['feature'].nunique()} of {facts['n_features']} features"
    said = [f"{in_letters(n)} factor{'' if n == 1 else 's'}{by}, with edges to {linked}."]
    said += known_edges(table, WORDS, names)
    if facts["n_given"]:
        verb = "was" if facts["n_given"] == 1 else "were"
        said.append(f"{counted(facts['n_given'], 'edge')} {verb} given to the model.")
    if "salience" in columns:
        large = int((chosen[columns["salience"]] >= SURE).sum())
        verb = "is" if large == 1 else "are"
        said.append(
            f"{large} of the {counted(len(chosen), 'selected edge')} {verb} salient: the loading is at least "
            f"{facts['salient']:g} in size (probability ≥ {short(SURE)})."
        )
    said += known_identified(facts["certificate"])
    if verdict["n_alike"] > 1:
        said.append(
            f"{verdict['n_alike']} of {counted(verdict['n'], _restart(facts))} found much the same loadings, "
            f"the best included (agreement of at least {verdict['threshold']:g})."
        )
    return said


def _restart(facts: dict[str, Any]) -> str:
    """A restart, or one of those that can be compared with the best."""
    return "restart" if facts["verdict"]["n"] == facts["n_restarts"] else "comparable restart"


def _open(
    table: pd.DataFrame,
    asked: NDArray[np.bool_],
    facts: dict[str, Any],
    features: list[str],
    factors: list[str],
) -> list[str]:
    """What is open, a sentence each."""
    said = open_edges(table, WORDS, asked)
    said += open_identified(facts["certificate"])
    if facts["verdict"]["n_alike"] == 1 < facts["verdict"]["n"]:
        n, others = facts["verdict"]["n"] - 1, f"other {_restart(facts)}"
        subject = f"The {others}" if n == 1 else f"Each of the {n} {others}s"
        said.append(f"{subject} found other loadings than the best.")
    chosen, left_out = table[table["selected"]], set(not_asked(table, "factor", asked))
    for noun, names, column in (("feature", features, "feature"), ("factor", factors, "factor")):
        without = [name for name in names if name not in set(chosen[column]) | left_out]
        if without:
            said.append(f"{counted(len(without), noun)} without a selected edge: {joined(without)}.")
    return said


def _tiles(chosen: pd.DataFrame, facts: dict[str, Any], explained: float) -> list[tuple[str, str, str]]:
    """Figures at a glance: what is large, what is said of it, and its word in the glossary."""
    linked, n_features, n_factors = chosen["feature"].nunique(), facts["n_features"], facts["n_factors"]
    return [
        (f"{len(chosen)} / {n_features * n_factors}", "selected edges", "selected"),
        (f"{linked} / {n_features}", "features with a selected edge", "feature"),
        (f"{len(facts['factors'])} / {n_factors}", "factors in use", "factor"),
        (percent(explained), "of an average feature's variance explained", "share-of-variance"),
        (str(int(chosen["unresolved"].sum())), "unresolved selected edges", "gap"),
    ]


def _weighted(fit: Fit) -> str:
    """How many rows weights make of the table's; empty without any."""
    weights = fit.settings.get("sample_weight")
    return "" if weights is None else f" that count as {weights['counted']:,} ({weights['type']} weights)"


def _covariates(fit: Fit, idata: ArvizData) -> list[dict[str, Any]]:
    """Of each covariate the features that it has the largest effects on, in standard deviations of these."""
    if fit.table.design is None:
        return []
    drawn = "covariate_effect" in get_group(idata, "posterior")
    if drawn:
        table = covariate_effects(idata, prob=0.95, kind="eti").rename(
            columns={"eti95_lb": "lower", "eti95_ub": "upper"}
        )
    else:
        long = fit.covariate_effects.stack().rename("mean").reset_index()
        table = long.assign(lower=np.nan, upper=np.nan)
    scale = pd.Series(np.asarray(fit.table.scale), fit.feature_names)
    table["size"] = (table["mean"] / table["feature"].map(scale)).abs()
    return [
        {
            "name": name,
            "n_clear": int(((effects["lower"] > 0) | (effects["upper"] < 0)).sum()) if drawn else None,
            "effects": effects.nlargest(_STRONGEST, "size").to_dict("records"),
        }
        for name, effects in table.groupby("covariate", sort=False)
    ]


def _noise_of_unit_variance(fit: Fit) -> bool:
    """Whether shares of variance are beside a constant, not beside noise (`Likelihood.variance_beside`)."""
    likelihood = getattr(fit.model, "likelihood", None)
    return likelihood is not None and likelihood.noise_sd() is None


def _verdict(
    fit: Fit,
    chosen: pd.DataFrame,
    fdr: float,
    compared: NDArray[np.bool_],
    run: str,
    doubt: str,
    helped: bool,
    mostly_open: bool,
) -> dict[str, Any]:
    """How far the restarts that can be compared agree, in one word, a title and a sentence.

    What would help is left to the cautions where they say it (`helped`).
    """
    best = int(fit.best)
    alike = agreement_matrix(fit.weights)[best]
    others = alike[compared & (np.arange(len(alike)) != best)]
    n_alike = int((others >= SAME_FACTOR).sum())
    unresolved = float(chosen["unresolved"].mean()) if len(chosen) else 0.0
    n = len(others) + 1
    if doubt == "all":
        level, title = "poor", "Every edge is in doubt"
        advice = "A caution below touches all edges: do not rely on single ones."
    elif len(chosen) == 0:
        level, title = "poor", "No edge stands out"
        advice = (
            f"At a false-discovery rate of {fdr:g} no edge can be selected. "
            f"{'Read the cautions first.' if helped else 'Try fewer factors, more rows, or a weaker prior.'}"
        )
    elif n == 1:
        only = "One restart only" if fit.n_restarts == 1 else "No other restart had as many factors"
        end = "the chains alone say how sure it is" if run == "chain" else "nothing to compare it with"
        level, title = "unknown", f"{only}, so {end}"
        advice = (
            "Another start may find another graph. Fit with "
            f"{'several' if fit.n_restarts == 1 else 'more'} restarts before reading single edges."
        )
    elif n_alike + 1 >= max(2, n / 2) and unresolved <= 0.1:
        level, title = "good", "The restarts found the same graph"
        advice = "What they share is a property of the data and the model, not of one lucky start."
        if doubt:
            level, title = "mixed", f"{title}, and yet there are doubts"
            advice = "Edges that a doubt touches are open and not selected: read the cautions first."
    elif run == "chain" and doubt:
        level, title = "mixed", "Some edges are in doubt"
        advice = "Edges that a doubt touches are open and not selected: read the cautions first."
    elif run == "chain":
        level, title = "mixed", "The restarts differ, and no doubt is left on the chains"
        advice = "Rely on edges that are present; treat the rest as open."
    elif n_alike == 0 or unresolved > 0.3:
        level, title = "poor", "The restarts found different graphs"
        advice = "Do not rely on single edges."
        if not helped:
            advice += (
                " More restarts, fewer factors, more rows, or anchors (features known to belong to one "
                "factor) usually settle it."
            )
    else:
        level, title = "mixed", "The restarts found much the same graph, with differences"
        advice = "Rely on what is not marked unresolved; treat the rest as open."
    if run == "chain" and doubt == "some" and len(chosen) and mostly_open:
        level, title = "poor", "Most edges are open"
        advice = "Rely on no edge but those that are present; the cautions say why."
    return {
        "level": level,
        "title": title,
        "advice": advice,
        "n": n,
        "n_alike": n_alike + 1,
        "alike": [float(value) for value in alike],
        "threshold": SAME_FACTOR,
    }


def _correlation(covariance: NDArray) -> NDArray:
    sd = np.sqrt(np.clip(np.diag(covariance), 1e-300, None))
    return np.round(covariance / np.outer(sd, sd), 2) + 0.0  # no "-0.00"


def _shows_numbers(fit: Fit) -> bool:
    """Whether eigenvalues of correlations say something of the factors, and take a second at most."""
    if fit.settings.get("decoder") != "linear" or isinstance(fit.table, LargeTable):
        return False
    n_rows, n_features = fit.table.x.shape
    return n_rows > 1 and n_features <= _MOST_EIGENVALUES and n_rows * n_features <= _MOST_CELLS


def _pictures(
    fit: Fit,
    idata: ArvizData,
    X: TableLike | None,
    fdr: float,
    groups: Groups | None = None,
    salient: float = SALIENT,
) -> dict[str, dict[str, str]]:
    """Every picture, by name, as `page.inlined` has it."""
    from .. import plots

    drawings: dict[str, Drawing] = {
        "edges": lambda: plots.plot_edges(idata, fdr=fdr),
        "graph": lambda: plots.plot_graph(idata, fdr=fdr),
        "forest": lambda: plots.plot_forest(idata, fdr=fdr, top=30, salient=salient),
        "elbo": lambda: plots.plot_elbo(fit),
    }
    if groups is not None or len(fit.factor_names) <= _MOST_SETS:
        drawings["sets"] = lambda: plots.plot_sets(idata, groups, max_regions=_MOST_REGIONS)
    if _shows_numbers(fit):
        numbers = fit.number_of_factors()
        drawings["number"] = lambda: plots.plot_number_of_factors(numbers)
    if fit.n_restarts > 1:
        drawings["agreement"] = lambda: plots.plot_agreement(idata)
    if X is not None:
        drawings["predictive"] = lambda: plots.plot_predictive(fit, X)
    return inlined(drawings)
