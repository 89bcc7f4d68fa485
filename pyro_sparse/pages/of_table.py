"""One self-contained HTML page about a fit, for people who read graphs, not code.

`gather` turns a fit into plain facts (which edges, in which words, how far the restarts agree); the template
`templates/report.html.j2` sets them as a page. Pictures are inlined, once for light and once for dark
screens; names from the user's table are escaped by the template.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._utils.escaping import csv_bytes
from .._utils.paths import file_to_write
from .._utils.quiet import ignored
from .._utils.torch_state import isolated
from ..certificates.facts import certificate_facts
from ..findings.finding import findings_of
from ..graphs.alignment import SAME_FACTOR, agreement_matrix
from ..inference.program.result import ProgramFit
from ..inference.training.restarts import compared_restarts
from ..posterior.arviz import get_group
from ..posterior.covariates import covariate_effects
from ..posterior.edge_table import SCORES, beside_verdict, compared_runs, left_open, verdict_of
from ..posterior.salience import SALIENT, goes_both_ways, salience_column, salient_edges
from ..posterior.same_fit import check_labels
from ..posterior.tables import summary
from .of_latents import write_latents
from .of_program import write_program
from .page import Drawing, how_made, inlined, need_libraries, write_page

if TYPE_CHECKING:
    from .._utils.types import ArvizData, TableLike
    from ..graphs.venn import Groups
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.table.result import Fit
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["report"]

# Where each factor is moved to when drawing how a feature answers to it, in its standard deviations: between
# the ends lie 95 % of a Gaussian factor's values.
_SWEEP = np.linspace(-2, 2, 17)
_TURN = 0.25  # of a curve's range: a way back that is shorter is a ripple, no turn
_NOT_IN_FIT = "not in the fit"  # said of an edge that the chains find, where there is no curve to draw
_SURE = 0.95  # probability at which a named edge counts as salient, as one counts as present
_NEAR = 12  # edges that are listed as not named and not ruled out
_STRONGEST, _MOST_COVARIATES = 5, 12  # effects that are listed of each covariate, and covariates
_MOST_SETS = 20  # factors beyond which nobody reads who shares what


@isolated()
def report(
    fit: Fit | ProgramFit | TransitionFit | MultiTaskFit,
    path: str | os.PathLike[str],
    X: TableLike | None = None,
    fdr: float = 0.1,
    *,
    idata: ArvizData | None = None,
    groups: Groups | None = None,
    salient: float = SALIENT,
    salient_only: bool = False,
) -> Path:
    """Write a fit as one HTML file that needs nothing else, and return its path.

    Parameters
    ----------
    fit : Fit, ProgramFit, TransitionFit or MultiTaskFit
        Of a table, a program, of sequences or of tasks; the pages of the latter two say what their latents
        allow, and that of a program all its numbers and how they were drawn.
    path : path
        File to write; its folder is made where there is none.
    X : array_like of shape (sample, feature), optional
        The data, for the posterior predictive check, left out without it; and for the edges of a loaded
        fit, which holds none.
    fdr : float
        Bayesian false-discovery rate at which edges are selected, in [0, 1].
    idata : InferenceData or DataTree, optional
        Result of `fit.edge_posterior(...)`. Default: `fit.edge_posterior()`, of X if
        the fit was loaded.
    groups : mapping of name to features, optional
        Groups of features of which to draw what they share (`plot_sets`). Default: which features share
        factors.
    salient : float
        Size of a standardised loading, as for `summary`.
    salient_only : bool
        Name and draw only edges whose standardised loading is at least so large (`salient_edges`).

    Returns
    -------
    Path

    Raises
    ------
    ImportError
        If matplotlib or jinja2 is missing; both come with `pyro-sparse[plots,cli]`.
    IsADirectoryError
        If `path` is a folder.
    TypeError
        If fit and path are in the other order, `idata` is of another kind of fit, or X, `groups`, `salient`
        or `salient_only` come with one that is not a table's.
    ValueError
        If `path` ends in something else than .html or .htm, the features or factors of `idata` have other
        names than the fit's, or another order, or `salient` is out of range or asked of edges without draws
        of loadings.
    """
    path = _page_to_write(fit, path)
    need_libraries()
    of_program = isinstance(fit, ProgramFit)
    if of_program or not hasattr(fit, "factor_names"):
        beside = {"X": X is not None, "groups": groups is not None, "salient": salient != SALIENT}
        misplaced = [name for name, given in {**beside, "salient_only": salient_only}.items() if given]
        if misplaced:
            raise TypeError(
                f"{misplaced[0]}: is for a table's fit, not for a {type(fit).__name__}; leave it out"
            )
        idata = fit.edge_posterior() if idata is None else idata
        check_labels(fit, idata)
        if of_program:
            return write_program(cast("ProgramFit", fit), path, idata, fdr)
        return write_latents(cast("TransitionFit | MultiTaskFit", fit), path, idata, fdr)
    fit = cast("Fit", fit)
    idata = _edges(fit, X) if idata is None else idata
    check_labels(fit, idata)
    facts = gather(fit, idata, fdr, salient, salient_only)
    shown = salient_edges(idata, salient) if salient_only else idata
    pictures = _pictures(fit, shown, X, fdr, groups, salient)
    return write_page(path, "report.html.j2", {**facts, "pictures": pictures, "grouped": groups is not None})


def _page_to_write(fit: object, path: object) -> Path:
    """The path, if it can be that of a page."""
    if isinstance(fit, str | os.PathLike):
        raise TypeError(
            f"fit: got the path {os.fspath(fit)!r}; the fit comes first: report(fit, {os.fspath(fit)!r})"
        )
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f'path: want a file to write, such as "report.html", got a {type(path).__name__}: '
            'report(fit, "report.html")'
        )
    ending = Path(path).suffix
    if ending.lower() not in ("", ".html", ".htm") and not Path(path).is_dir():
        printed = "; a browser prints it to PDF" if ending.lower() == ".pdf" else ""
        raise ValueError(
            f"path: got {os.fspath(path)!r}, and the report is a page of HTML; give a name in .html, "
            f"such as {str(Path(path).with_suffix('.html'))!r}{printed}"
        )
    return file_to_write(path, "report.html")


def _edges(fit: Fit, X: TableLike | None) -> ArvizData:
    """Edges of the fit, of X where it holds no data of its own."""
    if X is None or fit.table is None or len(fit.table.x):
        return fit.edge_posterior()
    with ignored(".*; of no use to .*: X$", RuntimeWarning):  # a fit whose edges are scores all the same
        return fit.edge_posterior(X=X)


def gather(
    fit: Fit, idata: ArvizData, fdr: float, salient: float = SALIENT, salient_only: bool = False
) -> dict[str, Any]:
    """Everything the page says, as plain facts."""
    named = summary(idata, fdr, salient=salient)
    shown = salient_edges(idata, salient) if salient_only else idata
    table = summary(shown, fdr, salient=salient)
    columns = _loading_columns(table)
    word = "score" if table.attrs["is_score"] else "probability"
    chosen = table[table["selected"]]
    numbers = get_group(idata, "edge_posterior").transpose("feature", "factor", ...)
    effects, answers = numbers["effect"].to_numpy(), _answers(fit, numbers["weight"].to_numpy())
    names, features = list(fit.factor_names), list(fit.feature_names)
    factors, unfitted = [], False
    for k, name in enumerate(names):
        edges = chosen[chosen["factor"] == name].sort_values("effect", ascending=False)
        if len(edges):
            rows = [
                _edge_row(edge, answers[:, j, k], float(_span(answers[:, j])), word, columns)
                for j, (_, edge) in zip(edges["feature"].map(features.index), edges.iterrows(), strict=True)
            ]
            unfitted = unfitted or any(row["shape"] == _NOT_IN_FIT for row in rows)
            share = float(effects[:, k].mean())
            factors.append({"name": name, "share": share, "edges": rows, "groups": _in_words(rows)})
    linked = set(chosen["feature"])
    near = left_open(table)
    kept, rivals = compared_restarts(fit)
    run = compared_runs(idata)
    in_doubt = any(finding.is_doubt for finding in findings_of(fit, idata))
    verdict = _verdict(fit, chosen, fdr, rivals | kept, run, in_doubt)
    used = [k for k, name in enumerate(names) if name in set(chosen["factor"])]
    correlation = _correlation(np.asarray(fit.factor_cov))
    covariates = _covariates(fit, idata)
    return {
        "word": word,
        "run": run,
        "n_given": int(numbers.get("given", numbers["probability"] < 0).sum()),
        "note": table.attrs["note"],
        "method": table.attrs["edge_method"],
        "fdr": fdr,
        "interval": f"{100 * table.attrs['interval_prob']:g} % {table.attrs['interval_kind'].upper()}",
        "verdict": verdict,
        "chains": [line for line in verdict_of(shown) if line not in (SCORES, table.attrs["note"])],
        "warnings": beside_verdict(fit, idata),
        "n_samples": len(fit.sample_names),
        "n_features": len(features),
        "n_factors": len(names),
        "n_edges": len(chosen),
        "n_linked": len(linked),
        "n_unresolved": int(chosen["unresolved"].sum()),
        "decided": None
        if table.attrs["is_score"]  # of edges that are there, however small
        else named["verdict"].value_counts().to_dict(),
        "salient": salient,
        "salient_only": salient_only,
        "loadings": bool(columns),
        "sizes": "salience" in columns,
        "of_predictor": _noise_of_unit_variance(fit),
        "n_salient": int((chosen[columns["salience"]] >= _SURE).sum()) if "salience" in columns else None,
        "explained": float(np.clip(effects.sum(axis=1), 0, 1).mean()),
        "factors": factors,
        "not_in_fit": _NOT_IN_FIT if unfitted else "",
        "certificate": certificate_facts(fit, idata),
        "idle": [name for k, name in enumerate(names) if k not in used],
        "alone": [name for name in features if name not in linked],
        "near": [
            {"feature": e["feature"], "factor": e["factor"], "value": e[word], "effect": e["effect"],
             "gap": e["gap"], "unresolved": e["unresolved"], **_loading_of(e, columns)}
            for _, e in near.head(_NEAR).iterrows()
        ],
        "n_near_more": max(len(near) - _NEAR, 0),
        "n_open_named": 0 if salient_only else int((chosen["verdict"] == "open").sum()),
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
        **how_made(fit),
        "csv": base64.b64encode(csv_bytes(chosen, index=False)).decode(),
    }  # fmt: skip


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


def _sweeps(fit: Fit) -> NDArray:
    """Expected features while one factor moves and the others rest at 0: (step, feature, factor)."""
    n_factors = len(fit.factor_names)
    spread = np.sqrt(np.clip(np.diag(np.asarray(fit.factor_cov)), 0, None))
    z = np.einsum("s,k,kl->skl", _SWEEP, spread, np.eye(n_factors)).reshape(-1, n_factors)
    answer = np.asarray(fit.inverse_transform(z), dtype=float)
    return answer.reshape(len(_SWEEP), n_factors, -1).transpose(0, 2, 1)


def _answers(fit: Fit, loading: NDArray) -> NDArray:
    """`_sweeps`, and what stands in for them where the edge posterior has an edge that the fit lacks.

    For a straight decoder that is a line, as steep as its loading (feature, factor) beside the feature's
    others. Of a curve one number does not tell the shape: NaN.
    """
    sweeps, absent = _sweeps(fit), np.asarray(fit.weights)[int(fit.best)] == 0
    if getattr(fit.model, "decoder_kind", "") != "linear":
        return np.where(absent, np.nan, sweeps)
    largest = np.where(absent, 0.0, np.abs(loading)).max(axis=1)
    range_of_one = np.where(largest > 0, _span(sweeps) / np.where(largest > 0, largest, 1.0), 1.0)
    slope = range_of_one[:, None] * loading / np.ptp(_SWEEP)
    return np.where(absent, sweeps.mean(axis=0) + slope * _SWEEP[:, None, None], sweeps)


def _span(answers: NDArray) -> NDArray:
    """How far a feature's largest answer goes, of (step, ..., factor); 0 where none is known."""
    return np.nan_to_num(np.ptp(answers, axis=0), posinf=np.inf).max(axis=-1)


def shape_of(curve: NDArray) -> str:
    """What a feature does while the factor goes up: "rises", "falls", "dips", "peaks", "waves", or "flat".

    It turns where it goes back by more than a quarter of its range: never when it rises or falls, once when
    it dips or peaks, more often when it waves.
    """
    span = float(np.ptp(curve))
    if not np.isfinite(curve).all() or span <= 1e-12 * (1 + np.abs(curve).max()):
        return "flat"
    legs = _legs(curve, _TURN * span)
    if len(legs) == 1:
        return "rises" if legs[0] > 0 else "falls"
    if len(legs) == 2:
        return "dips" if legs[0] < 0 else "peaks"
    return "waves"


def _legs(curve: NDArray, least: float) -> list[int]:
    """Ways up (1) and down (-1) by more than `least`, in turn; smaller ones belong to the way they are on."""
    legs: list[int] = []
    low = high = curve[0]  # since the last turn
    for value in curve[1:]:
        low, high = min(low, value), max(high, value)
        if legs[-1:] != [1] and value - low > least:
            legs.append(1)
            low = high = value
        elif legs[-1:] != [-1] and high - value > least:
            legs.append(-1)
            low = high = value
    return legs


def _loading_columns(table: pd.DataFrame) -> dict[str, str]:
    """Columns of a summary that say how large the loadings are, by what they are; none of scores."""
    about = table.attrs
    if "salient" not in about:
        return {}
    interval = f"{about['interval_kind']}{100 * about['interval_prob']:g}"
    bounds = {"lower": f"{interval}_lb", "upper": f"{interval}_ub"}
    columns = {"loading": "weight", **bounds, "salience": salience_column(about["salient"])}
    return {name: column for name, column in columns.items() if column in table}


def _loading_of(edge: pd.Series, columns: dict[str, str]) -> dict[str, float | bool]:
    """How large the loading of an edge is, by the names of `_loading_columns`, and whether it has no sign."""
    sizes: dict[str, float] = {name: float(edge[column]) for name, column in columns.items()}
    if not sizes or not goes_both_ways(edge["verdict"], sizes["lower"], sizes["upper"]):
        return {**sizes, "both_ways": False}
    return {**sizes, "loading": float(edge["effect"]) ** 0.5, "both_ways": True}


def _noise_of_unit_variance(fit: Fit) -> bool:
    """Whether shares of variance are those of the linear predictor plus 1 (`inference.table.effects`)."""
    likelihood = getattr(fit.model, "likelihood", None)
    return likelihood is not None and likelihood.noise_sd() is None


def _edge_row(
    edge: pd.Series, curve: NDArray, span: float, word: str, columns: dict[str, str]
) -> dict[str, Any]:
    """One table row; `span` is the feature's largest answer to any factor, so that weak edges look weak."""
    height = (
        0.5 + (curve - (np.min(curve) + np.max(curve)) / 2) / span if span > 0 else np.full(len(curve), 0.5)
    )
    # In a box of 64 by 18 with a margin of 2, y downwards.
    drawn = not np.isnan(curve).all()
    points = zip(np.linspace(2, 62, len(curve)), 16 - 14 * height, strict=True) if drawn else ()
    return {
        "feature": edge["feature"],
        "shape": shape_of(curve) if drawn else _NOT_IN_FIT,
        "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        "effect": float(edge["effect"]),
        "value": float(edge[word]),
        "q_value": float(edge["q_value"]),
        "gap": float(edge["gap"]),
        "unresolved": bool(edge["unresolved"]),
        **_loading_of(edge, columns),
    }


def _in_words(rows: list[dict[str, Any]]) -> list[tuple[str, list[str], int]]:
    """(what they do, the strongest features, how many more) for each kind of answer that occurs."""
    phrases = {
        "rises": ("is", "are", "higher"),
        "falls": ("is", "are", "lower"),
        "dips": ("is", "are", "high at both ends of the factor, low in the middle"),
        "peaks": ("is", "are", "high in the middle of the factor, low at both ends"),
        "waves": ("goes", "go", "up and down along the factor"),
        _NOT_IN_FIT: ("is", "are", "different, in a way of which the fit has no curve"),
    }
    groups = []
    for shape, (singular, several, how) in phrases.items():
        names = [row["feature"] for row in rows if row["shape"] == shape]
        if names:
            verb = singular if len(names) == 1 else several
            groups.append((f"{verb} {how}", names[:6], max(len(names) - 6, 0)))
    return groups


def _verdict(
    fit: Fit, chosen: pd.DataFrame, fdr: float, compared: NDArray[np.bool_], run: str, in_doubt: bool
) -> dict[str, Any]:
    """How far the restarts that can be compared agree, in one word and a few sentences."""
    best = int(fit.best)
    alike = agreement_matrix(fit.weights)[best]
    others = alike[compared & (np.arange(len(alike)) != best)]
    n_alike = int((others >= SAME_FACTOR).sum())
    unresolved = float(chosen["unresolved"].mean()) if len(chosen) else 0.0
    n = len(others) + 1
    if len(chosen) == 0:
        level, title = "poor", "No edge stands out"
        advice = (
            f"At a false-discovery rate of {fdr:g} no edge can be named. Check the warnings below; then try "
            "fewer factors, more rows, or a weaker prior."
        )
    elif n == 1:
        single = fit.n_restarts == 1
        only = "One restart only" if single else "No other restart had as many factors"
        end = "the chains alone say how sure it is" if run == "chain" else "nothing to compare it with"
        level, title = "unknown", f"{only}, so {end}"
        advice = (
            f"Another start may find another graph. Fit with {'several' if single else 'more'} restarts "
            "before reading single edges."
        )
    elif n_alike + 1 >= max(2, n / 2) and unresolved <= 0.1:
        level, title = "good", "The restarts found the same graph"
        advice = "What they share is a property of the data and the model, not of one lucky start."
        if in_doubt:
            level, title = "mixed", f"{title}, and yet there are doubts"
            advice = "Edges that a doubt touches are open, and not named here: read the warnings first."
    elif n_alike == 0 or unresolved > 0.3:
        level, title = "poor", "The restarts found different graphs"
        advice = (
            "Do not rely on single edges. More restarts, fewer factors, more rows, or anchors (features "
            "known to belong to one factor) usually settle it."
        )
    else:
        level, title = "mixed", "The restarts found much the same graph, with differences"
        advice = "Rely on what is not marked unresolved; treat the rest as open."
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


def _pictures(
    fit: Fit,
    idata: ArvizData,
    X: TableLike | None,
    fdr: float,
    groups: Groups | None = None,
    salient: float = SALIENT,
) -> dict[str, dict[str, str]]:
    """Every picture as SVG data addresses, `{name: {"light": ..., "dark": ...}}`."""
    from .. import plots

    drawings: dict[str, Drawing] = {
        "edges": lambda: plots.plot_edges(idata, fdr=fdr),
        "graph": lambda: plots.plot_graph(idata, fdr=fdr),
        "forest": lambda: plots.plot_forest(idata, fdr=fdr, top=30, salient=salient),
        "elbo": lambda: plots.plot_elbo(fit),
    }
    if groups is not None or len(fit.factor_names) <= _MOST_SETS:
        drawings["sets"] = lambda: plots.plot_sets(idata, groups)
    if fit.n_restarts > 1:
        drawings["agreement"] = lambda: plots.plot_agreement(idata)
    if X is not None:
        drawings["predictive"] = lambda: plots.plot_predictive(fit, X)
    return inlined(drawings)
