"""What do the other restarts of a fit say against the best one?

A restart counts that explains the data as well as the best one, or that had room for its factors and lacks
them. Where it does not agree, its factors are in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..findings.finding import Finding, found_by_one_restart, replaced_in_rivals
from ..graphs.alignment import SAME_FACTOR, SAME_LATENTS
from ..graphs.restart_choice import bic, found_factors
from ..graphs.selection import kept_restarts

if TYPE_CHECKING:
    from ..inference.table.result import Fit
    from ..models.base import Model

__all__ = [
    "compared_restarts",
    "criterion_of",
    "doubted_factors",
    "level_of",
    "only_restart",
    "prescribed_edges",
    "prescribed_in_fit",
    "restart_findings",
    "rival_restarts",
    "unconfirmed",
]

_REPLACED = "a restart that explains the data as well has another factor in its place"
_UNFOUND = "no other restart found it"
_AS_GOOD = 0.05  # nats per row below the best up to which a restart explains the data as well
# Nats below the best criterion of a graph at its maximum, an approximate log evidence, up to which its graph
# has a share of one in twenty: what an edge must not have against it to be present.
_AS_LIKELY = 3.0
# The same where BIC stands for the evidence, whose charge for a parameter may be half a nat off.
_ABOUT_AS_LIKELY = 5.0


def prescribed_edges(model: Model) -> np.ndarray:
    """Edges that anchors or the user's list require, of bool (feature, factor), or a single False."""
    must = getattr(model, "must", None)
    return np.array(False) if must is None else must.cpu().numpy()


def prescribed_in_fit(fit: Fit) -> np.ndarray:
    """`prescribed_edges` of a fit's model, of bool (restart, feature, factor), in the fit's order of factors.

    Parameters
    ----------
    fit : Fit
    """
    prescribed = prescribed_edges(fit.model)
    if not prescribed.any():
        return np.zeros(np.shape(fit.weights), dtype=bool)
    return np.moveaxis(prescribed[:, np.asarray(fit.alignment["permutation"])], 0, 1)


def level_of(fit: Fit) -> np.ndarray:
    """How well each restart explains the data, (restart,): the ELBO of held-out rows, or of all.

    Parameters
    ----------
    fit : Fit
    """
    return np.where(np.isfinite(fit.heldout_elbo), fit.heldout_elbo, fit.elbo)


def criterion_of(fit: Fit) -> tuple[np.ndarray, float]:
    """What says which restart is better, (restart,), and how far below the best one another is as good.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    level : ndarray (restart,)
        The criterion of graphs at their maxima (`graph_search.graph_level`, nats) where restarts are there;
        BIC by the rows' log densities where factors are summed out; else `level_of`, in nats per row.
    margin : float
    """
    if "graph_level" in fit.settings:
        return np.asarray(fit.settings["graph_level"], dtype=float), _AS_LIKELY
    if "correlations" in fit.settings:
        parameters = (np.asarray(fit.weights) != 0).sum((1, 2)) + np.asarray(fit.settings["correlations"])
        per_row = np.asarray(fit.settings["log_likelihood"], dtype=float)[:, None]
        return bic(per_row, parameters, fit.table.n_counted), _ABOUT_AS_LIKELY
    return level_of(fit), _AS_GOOD


def rival_restarts(fit: Fit, n_factors: int | None = None) -> np.ndarray:
    """Restarts whose disagreement with the best one says something: with room for it, or as good.

    Restarts begin with different numbers of factors, and one with fewer could not have found them all.

    Parameters
    ----------
    fit : Fit
    n_factors : int, optional
        That a restart needs in use. Default: as many as the best one has.

    Returns
    -------
    ndarray of bool, shape (2, restart)
        Whether it has as many factors, and whether it explains the data as well; False for the best one.
    """
    best = int(fit.best)
    used = found_factors(np.asarray(fit.weights) != 0, prescribed_in_fit(fit))
    level, margin = criterion_of(fit)
    wanted = used[best] if n_factors is None else n_factors
    rivals = np.stack([used >= wanted, level >= level[best] - margin])
    rivals[:, best] = False
    return rivals


def compared_restarts(fit: Fit, chain_restart: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Which restarts are good enough for their disagreement to mean something, and which could have agreed.

    Parameters
    ----------
    fit : Fit
    chain_restart : ndarray of int (chain,), optional
        For chains that began at these restarts, among them the best. Default: one a restart, in order.

    Returns
    -------
    kept, rivals : ndarray of bool (chain,)
        As `graphs.selection.kept_restarts` and either row of `rival_restarts` say.
    """
    origin = np.arange(len(fit.weights)) if chain_restart is None else chain_restart
    rivals = np.logical_or(*rival_restarts(fit))[origin]
    best = list(origin).index(int(fit.best))
    level = np.asarray(fit.settings.get("log_likelihood", fit.elbo))[origin]
    return kept_restarts(level, fit.table.n_counted, best=best, rivals=rivals), rivals


def doubted_factors(fit: Fit, used: np.ndarray | None = None) -> list[str]:
    """Of each factor of the best restart why other restarts make it doubtful, or an empty text.

    A factor is doubtful if a restart that explains the data as well lacks it, or if no restart with room for
    it has it.

    Parameters
    ----------
    fit : Fit
    used : ndarray of bool (factor,), optional
        Factors to ask about. Default: those with an edge in the best restart.
    """
    n_factors = None if used is None else int(used.sum())
    if used is None:
        used = (np.asarray(fit.weights)[int(fit.best)] != 0).any(0)
    confirmed = np.nan_to_num(np.asarray(fit.alignment["congruence"], dtype=float)) >= SAME_FACTOR
    room, equal = rival_restarts(fit, n_factors)
    rivals, doubt = room | equal, [""] * len(used)
    for k in np.flatnonzero(used):
        if (equal & room & ~confirmed[:, k]).any():
            doubt[k] = _REPLACED
        elif rivals.any() and not confirmed[rivals, k].any():
            doubt[k] = _UNFOUND
    return doubt


def restart_findings(fit: Fit) -> list[Finding]:
    """Doubts about factors of the best restart that others lack.

    One of those that a rival has others for, and one of those that none has; chains may dispel them
    (`findings.finding.confirmed_by_chains`).

    Parameters
    ----------
    fit : Fit
    """
    # what `unconfirmed` has said of a dense fit is not said again
    known = {name for f in fit.findings if f.kind == "restarts" and f.is_doubt for name in f.factors}
    findings, reasons = [], doubted_factors(fit)
    remedy = "more restarts, or an anchor, would settle it"
    for reason, doubt in ((_REPLACED, replaced_in_rivals), (_UNFOUND, found_by_one_restart)):
        names = [name for name, why in zip(fit.factor_names, reasons, strict=True) if why == reason]
        names = [name for name in names if reason != _UNFOUND or name not in known]
        findings += [doubt(names, remedy)] if names else []
    return findings


def only_restart(n_restarts: int) -> list[Finding]:
    """What to say of a fit with a single restart: nothing speaks against it, and nothing for it.

    Parameters
    ----------
    n_restarts : int
    """
    message = "one restart only: nothing here says whether another start would agree"
    return [Finding("restarts", message)] if n_restarts == 1 else []


def unconfirmed(congruence: np.ndarray, best: int, names: list[str]) -> list[Finding]:
    """What to say of factors of the best restart that no other restart found.

    Parameters
    ----------
    congruence : ndarray (restart, factor)
        Of each restart's loadings with the best one's.
    best : int
    names : list of str
        Of the factors.

    Returns
    -------
    list of Finding
        One doubt, or none. Of a single restart nothing is said here.

    Examples
    --------
    >>> print(*unconfirmed(np.array([[1.0, 1.0], [0.99, 0.6], [0.7, 0.9]]), 0, ["a", "b"]))
    no other restart found b: its axis is a guess
    """
    others = np.delete(np.asarray(congruence, dtype=float), best, axis=0)
    if not len(others):
        return []
    lost = [name for name, top in zip(names, np.nan_to_num(others).max(0), strict=True) if top < SAME_LATENTS]
    if not lost:
        return []
    subject = "its axis is" if len(lost) == 1 else "their axes are"
    message = f"no other restart found {', '.join(lost)}: {subject} a guess"
    return [Finding("restarts", message, severity="doubt", factors=tuple(lost))]
