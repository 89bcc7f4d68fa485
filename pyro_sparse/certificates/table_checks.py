"""What a table's fit shows of the assumptions behind its certificate: curves, restarts, chains.

A decoder is asked as a function: its means at points drawn from the factors' distribution, and their slopes
by central differences, in standard deviations of feature and factor. So this holds for every decoder a fit
may have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..findings.finding import dispelled_by_chains, findings_of
from ..graphs.alignment import SAME_FACTOR
from ..graphs.selection import unresolved
from ..posterior import arviz as _arviz
from ..posterior.edge_table import compared_runs
from ..posterior.rival_restarts import doubted_factors, rival_restarts

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.table.result import Fit

__all__ = ["Agreement", "Curves", "agreement_of", "curves_of"]

Floats = NDArray[np.float64]

_POINTS, _LEAST_POINTS = 200, 40  # of the factors: fewer for a large decoder, as `_CELLS` allows
_STEP = 0.1  # standard deviations of the factor, on either side; the error of a slope goes with the square
_CELLS = 4_000_000  # asked of the decoder in all, which bounds the time
_CELLS_AT_ONCE = 200_000  # which bounds the memory


class Curves(NamedTuple):
    """A decoder's means and slopes at points drawn from the factors' distribution.

    Attributes
    ----------
    mean : ndarray (point, feature)
    slope : ndarray (point, feature, factor)
        Both in standard deviations of the feature, noise included where it is normal, and of the factor.
    """

    mean: Floats
    slope: Floats


def curves_of(fit: Fit) -> Curves:
    """Means and slopes of a fit's decoder.

    Parameters
    ----------
    fit : Fit
        With `inverse_transform` and `factor_cov`.
    """
    cov = np.asarray(fit.factor_cov, dtype=float)
    k, g = len(cov), len(fit.feature_names)
    sd = np.sqrt(np.clip(np.diag(cov), 1e-12, None))
    n = int(np.clip(_CELLS / (2 * k * g), _LEAST_POINTS, _POINTS))
    rng = np.random.default_rng(0)
    values, axes = np.linalg.eigh(cov)
    z = rng.normal(size=(n, k)) * np.sqrt(np.clip(values, 0, None)) @ axes.T
    moves = _STEP * np.diag(sd)
    at = np.concatenate([z[:, None], z[:, None] + moves, z[:, None] - moves], axis=1).reshape(-1, k)
    size = max(1, _CELLS_AT_ONCE // g)
    rows = [fit.inverse_transform(at[i : i + size]) for i in range(0, len(at), size)]
    x = np.concatenate(rows).astype(float).reshape(n, 1 + 2 * k, g)
    noise = 0.0 if fit.noise_sd is None else np.asarray(fit.noise_sd, dtype=float)
    spread = np.sqrt(x[:, 0].var(axis=0) + noise**2)
    x = x / np.where(spread > 0, spread, 1.0)
    slope = (x[:, 1 : 1 + k] - x[:, 1 + k :]) / (2 * _STEP)
    return Curves(x[:, 0], slope.swapaxes(1, 2))


class Agreement(NamedTuple):
    """Whether other restarts and chains have each factor.

    Attributes
    ----------
    doubt : list of str
        Why a factor is doubtful; empty where nothing speaks against it.
    restarts, chains : str
        What was compared, in words.
    restarts_agree, chains_agree : bool or None
        None where there was nothing to compare.
    runs : str
        What the edge posterior's chains are: "chains" or "restarts".
    """

    doubt: list[str]
    restarts: str
    chains: str
    restarts_agree: bool | None
    chains_agree: bool | None
    runs: str


def agreement_of(fit: Fit | None, idata: ArvizData, used: NDArray[np.bool_]) -> Agreement:
    """Compare restarts (of a fit, if there is one) and chains, factor by factor.

    A factor is doubtful if a restart that explains the data as well lacks it, or if no restart with room for
    it has it, unless chains dispelled that doubt; or if a chain turned it into another.

    Parameters
    ----------
    fit : Fit or None
    idata : InferenceData or DataTree
    used : ndarray of bool, shape (factor,)
        Factors that are to be compared.
    """
    dispelled = {
        name for finding in dispelled_by_chains(findings_of(idata=idata)) for name in finding.factors
    }
    names = [str(name) for name in _arviz.get_group(idata, "edge_posterior")["factor"].to_numpy()]
    lost_restarts, restarts, agree = _restarts(fit, used, np.isin(names, list(dispelled)))
    run = compared_runs(idata)
    lost_chains, chains, same = _chains(idata, used, run)
    doubt = [a or b for a, b in zip(lost_restarts, lost_chains, strict=True)]
    return Agreement(doubt, restarts, chains, agree, same, f"{run}s")


def _restarts(
    fit: Fit | None, used: NDArray[np.bool_], dispelled: NDArray[np.bool_]
) -> tuple[list[str], str, bool | None]:
    """Doubts of factors, (factor,), but those that chains dispelled."""
    if fit is None:
        return [""] * len(used), "ask the fit: its edge posterior does not know all restarts", None
    of_restarts = doubted_factors(fit, used)
    doubt = ["" if gone else reason for reason, gone in zip(of_restarts, dispelled, strict=True)]
    recovered = np.nan_to_num(np.asarray(fit.alignment["congruence"], dtype=float)) >= SAME_FACTOR
    rivals = np.logical_or(*rival_restarts(fit, int(used.sum())))
    if not rivals.any():
        why = "there is one only" if len(recovered) == 1 else "no other had as many factors"
        return doubt, f"nothing to compare with: {why}", None
    n_complete = int(recovered[rivals][:, used].all(axis=1).sum())
    text = f"{n_complete} of {int(rivals.sum())} other restarts with as many factors found all of them"
    if doubt != of_restarts:
        text += ", and chains that began in other axes came back to those that they lack"
    return doubt, text, not any(doubt)


def _chains(idata: ArvizData, used: NDArray[np.bool_], run: str) -> tuple[list[str], str, bool | None]:
    """What the chains' findings say of each factor, and the gap between edges."""
    doubt = [""] * len(used)
    kept = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy())
    if len(kept) < 2:
        return doubt, f"there is one {run} only", None
    names = [str(name) for name in _arviz.get_group(idata, "edge_posterior")["factor"].to_numpy()]
    for finding in findings_of(idata=idata):
        if finding.is_doubt and finding.source == "chains":
            for k in np.flatnonzero(used):
                if names[k] in finding.factors:
                    doubt[k] = finding.message
    edges = _arviz.get_group(idata, "edge_posterior")
    gap = edges["gap"].transpose("feature", "factor").to_numpy()
    open_ = int(unresolved(gap).sum())
    text = f"{len(kept)} {run}s, largest gap of an edge {np.nanmax(gap):.2f}, {open_} unresolved"
    return doubt, text, not open_ and not any(doubt)
