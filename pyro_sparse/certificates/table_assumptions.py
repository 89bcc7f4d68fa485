"""The assumptions behind a table's certificate, each with the figure found, or as an open one.

What a fit shows is measured: curves and slopes of its decoder, the factors' correlation, whether restarts and
chains agree. What no table can show (that two factor vectors never look alike, that nothing else moves the
features together) is listed too, so that nobody takes it for granted unknowingly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..graphs.decoder_slopes import SlopeDirections, anchor_likeness, anchor_scale
from ..graphs.diversity import anchors
from .table_checks import Agreement, Curves

if TYPE_CHECKING:
    from ..inference.table.result import Fit

__all__ = ["OF_ANCHORS", "Assumptions", "assumptions"]

Bools = NDArray[np.bool_]
Row = tuple[bool | None, str]

_ALIKE_CURVES = 0.95  # correlation from which two anchors answer alike, as far as a fit can tell
_NEARLY_ONE = 0.95  # correlation above which two factors are hardly two
OF_ANCHORS = ("anchors answer alike", "anchors are steep enough", "factors are not collinear")
_OPEN = {
    "one-to-one decoder": "two different sets of factors never have the same expected row",
    "small is not zero": "an edge too weak for these rows to show counts as none",
    "no hidden common cause": "all that moves several features at once is a factor; rows are independent",
    "noise distribution": "each feature's noise is distributed as was fitted, independent of the others",
    "positive density": "the factors' density has no holes; they are fitted as Gaussian",
}


class Assumptions(NamedTuple):
    """What was found of the assumptions.

    Attributes
    ----------
    table : DataFrame
        Index `assumption`; columns `holds` (True, False or None) and `figure`.
    refuted : set of str
        Criteria of which an assumption fails.
    """

    table: pd.DataFrame
    refuted: set[str]


def assumptions(
    fit: Fit | None,
    named: Bools,
    names: list[str],
    curves: Curves | None,
    slopes: SlopeDirections | None,
    agreement: Agreement,
    method: str,
    straight: bool = False,
) -> Assumptions:
    """Collect them.

    Parameters
    ----------
    fit : Fit or None
    named : ndarray of bool, shape (feature, factor)
        Edges that are at least as probable as not.
    names : list of str
        Of the factors.
    curves, slopes
        Of the fit's decoder, or None.
    agreement : Agreement
    method : str
        How the edge probabilities were made.
    straight : bool
        Whether the decoder is linear.
    """
    used = np.flatnonzero(named.sum(axis=0) >= 2)
    rows: dict[str, Row] = {
        "edges are probabilities": (True, f'method "{method}"'),
        "chains agree" if agreement.runs == "chains" else "restarts agree on edges": (
            agreement.chains_agree,
            agreement.chains,
        ),
        "restarts agree": (agreement.restarts_agree, agreement.restarts),
        "two anchors for every factor": _two_anchors(named, used, names),
    }
    if fit is not None and curves is not None:
        rows |= _curves_of_anchors(fit, named, names, curves)
        rows["factors are not collinear"] = _correlation(np.asarray(fit.factor_cov, dtype=float), used)
    if straight and len(used):
        rows["three features for every factor"] = _three_features(named, used, names)
    rows["enough nonlinearity"] = _bends(slopes, named)
    rows |= {name: (None, figure) for name, figure in _OPEN.items()}
    table = pd.DataFrame(list(rows.values()), index=list(rows), columns=["holds", "figure"], dtype=object)
    table.index.name = "assumption"
    refuted = {"anchors"} if any(rows.get(name, (None,))[0] is False for name in OF_ANCHORS) else set()
    return Assumptions(table, refuted)


def _two_anchors(named: Bools, used: NDArray[np.intp], names: list[str]) -> Row:
    if not len(used):
        return None, "no factor has two features"
    count = anchors(named)
    least = int(used[count[used].argmin()])
    return bool(count[least] >= 2), f"{int(count[least])} for {names[least]}, the fewest"


def _three_features(named: Bools, used: NDArray[np.intp], names: list[str]) -> Row:
    """Anderson and Rubin (1956), theorem 5.6: fewer leave open what is the factor's and what is noise."""
    count = named.sum(axis=0)
    least = int(used[count[used].argmin()])
    figure = f"{int(count[least])} for {names[least]}, the fewest"
    if count[least] >= 3:
        return True, figure
    return None, f"{figure}; two are enough only for a factor that is correlated with another"


def _curves_of_anchors(fit: Fit, named: Bools, names: list[str], curves: Curves) -> dict[str, Row]:
    """Moran et al., assumptions A1 (the second half) and A2."""
    alike, steep = anchor_likeness(curves.mean, named), anchor_scale(curves.slope, named)
    some = np.flatnonzero(np.isfinite(alike))
    if not len(some):
        return {}
    a, b = int(some[alike[some].argmin()]), int(some[steep[some].argmin()])
    rows: dict[str, Row] = {
        "anchors answer alike": (
            bool(alike[a] >= _ALIKE_CURVES),
            f"the best pair of anchors correlates {alike[a]:.2f} for {names[a]}, the lowest",
        )
    }
    anchored = list((getattr(fit.model, "anchors", None) or {}).values())
    if all(anchored.count(k) >= 2 for k in np.flatnonzero(named.any(axis=0))):
        rows["anchors are steep enough"] = (True, "not needed: anchors were given")
    elif np.isfinite(steep[b]):
        rows["anchors are steep enough"] = (
            bool(steep[b] >= 1),
            f"against features of several factors, at least {steep[b]:.2f} times what is wanted ({names[b]})",
        )
    return rows


def _correlation(cov: NDArray[np.float64], used: NDArray[np.intp]) -> Row:
    """Moran et al., assumption A3, with a margin: an estimate of 1 is never quite 1."""
    if len(used) < 2:
        return True, "one factor"
    cov = cov[np.ix_(used, used)]
    sd = np.sqrt(np.clip(np.diag(cov), 1e-12, None))
    values = np.linalg.eigvalsh(cov / np.outer(sd, sd))
    most = float(np.abs(np.triu(cov / np.outer(sd, sd), 1)).max())
    rank = int((values > 1e-6 * values[-1]).sum())
    condition = values[-1] / max(values[0], 1e-12)
    return (
        rank == len(used) and most < _NEARLY_ONE,
        f"largest correlation {most:.2f}, rank {rank} of {len(used)}, condition {condition:.3g}",
    )


def _bends(slopes: SlopeDirections | None, named: Bools) -> Row:
    several = named.sum(axis=1) > 1
    if slopes is None:
        return None, "not measured: give the fit"
    if not several.any():
        return None, "no feature has several factors"
    even = slopes.evenness[several]
    return (
        bool(slopes.bends[several].all()),
        f"{int(slopes.bends[several].sum())} of {int(several.sum())} features of several factors bend; "
        f"evenness of slopes {np.nanmin(even):.2f} to {np.nanmax(even):.2f}",
    )
