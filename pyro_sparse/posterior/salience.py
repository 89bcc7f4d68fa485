r"""Edges that matter: not whether a loading is nonzero, but whether it is large.

With many rows every effect that is not exactly zero is found, and its edge has probability 1. Who reads a
table of loadings asks another question:

.. math:: P\big(|\lambda_{jk}| \ge t \mid x\big), \qquad
          \lambda_{jk} = w_{jk}\, \frac{\mathrm{sd}(z_k)}{\mathrm{sd}(x_j)}

for a straight line, in each draw with its own standard deviations of factor and feature. Its square is the
share of the variance of feature j that goes with factor k when the other factors rest, which is
what :math:`\lambda_{jk}^2` is for a curve. Where the likelihood has no noise of its own, the
variance is that of the linear predictor plus :math:`\pi^2/3` for yes/no answers and levels (logistic noise,
as in categorical factor analysis) and plus 1, a convention, for counts.

Factor analysis calls such loadings salient (at .3 by custom, 9 % of the variance). The draws hold the answer:
`salience` counts it, `summary` has it beside the probability of the edge, and so have report, command line
and the forest of edges; `salient_edges` returns an object of the same kind, which tables, pictures and
decisions take.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..findings.finding import doubted_edges, findings_of
from ..graphs.selection import edge_gap
from . import arviz as _arviz
from .draws import chain_weights
from .edge_table import (
    check_is_of_table,
    compared_runs,
    edge_numbers,
    has_loadings,
    holds_scores,
    weights_vary,
)
from .verdicts import agreed, counts_of, decided, edges_left_empty

if TYPE_CHECKING:
    import xarray as xr

    from .._utils.types import ArvizData

__all__ = ["SALIENT", "check_has_loadings", "goes_both_ways", "salience", "salience_column", "salient_edges"]

SALIENT = 0.3  # by custom of factor analysis: 9 % of a feature's variance
_EDGE = ("feature", "factor")


def check_has_loadings(idata: ArvizData) -> None:
    """Raise unless an edge posterior holds draws of standardised loadings.

    Parameters
    ----------
    idata : InferenceData or DataTree

    Raises
    ------
    TypeError
        The object is of a transition or of tasks, whose weights have no common scale.
    ValueError
        It holds scores or strengths, whose weights do not vary.
    """
    check_is_of_table(idata, "only loadings of a table have a common scale")
    if weights_vary(idata) and not has_loadings(idata):
        raise ValueError(
            "idata: its weights are in the units of the program, and only standardised loadings have a size "
            "by custom; ask its draws: (abs(idata.posterior['weight']) >= size).mean(('chain', 'draw'))"
        )
    if not weights_vary(idata):
        contents = "scores" if holds_scores(idata) else "edges by the strengths of slopes"
        raise ValueError(
            f"idata: it holds {contents}, and every draw of a restart has the same weights; wanted draws of "
            'weights, such as fit.edge_posterior("mcmc") of a SparseDecoder gives'
        )


def salience(idata: ArvizData, loading: float = SALIENT) -> xr.DataArray:
    r"""Posterior probability that a standardised loading is at least so large, its sign aside.

    Parameters
    ----------
    idata : InferenceData or DataTree
        With draws of standardised loadings (`check_has_loadings`).
    loading : float
        t, in (0, 1).

    Returns
    -------
    DataArray (feature, factor)
        :math:`P(|\lambda_{jk}| \ge t)`: the share of the kept chains' draws, each chain with its weight, so
        its Monte Carlo error is that of so many draws.

    Raises
    ------
    ValueError
        `loading` is not in (0, 1).
    """
    _check_size("salient", loading)
    kept = _arviz.get_group(idata, "sample_stats")["kept"].to_numpy().astype(bool)
    by_chain = _is_large(idata, loading).isel(chain=np.flatnonzero(kept)).mean("draw")
    share: xr.DataArray = (by_chain * chain_weights(idata)[:, None, None]).sum("chain")
    return share


def salience_column(loading: float) -> str:
    """Name of the column of `summary` that holds `salience`, such as ``"p_salient_0.3"``."""
    return f"p_salient_{loading:g}"


def goes_both_ways(verdict: str, lower: float, upper: float) -> bool:
    """Whether draws of an edge that is there have loadings of either sign: a curve that rises and falls.

    Parameters
    ----------
    verdict : str
        Of `summary`.
    lower, upper : float
        Interval of the loading.
    """
    return verdict == "present" and lower < 0 < upper


def salient_edges(idata: ArvizData, loading: float = SALIENT) -> ArvizData:
    r"""The posterior of which standardised loadings are at least so large.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table, by a method with probabilities.
    loading : float
        t, in (0, 1): the least size of a loading, its sign aside.

    Returns
    -------
    InferenceData or DataTree
        As `idata`, but an edge, its probability, q-value, gap and each chain's share are of
        :math:`|\lambda_{jk}| \ge t`; the attribute `salient_loading` is t, and note and
        verdict say so. For `summary`, `edge_prob`,
        pictures and decisions; a certificate asks for zeros and so for `idata` itself.

    Raises
    ------
    TypeError
        The object is of a transition or of tasks, whose weights have no common scale.
    ValueError
        `loading` is not in (0, 1), or the object holds scores or strengths, whose weights do not vary.

    Notes
    -----
    The probability is the share of the kept chains' draws, so its Monte Carlo error is that of so many draws;
    the probability of any edge at all, in `idata`, is averaged exactly over each draw's conditional.

    References
    ----------
    Gorsuch (1983), Factor Analysis, chapter 10, on salient loadings.
    """
    _check_size("loading", loading)
    groups = {name: _arviz.get_group(idata, name) for name in _arviz.group_names(idata)}
    check_has_loadings(idata)
    large = _is_large(idata, loading)
    by_chain = large.mean("draw").to_numpy()
    kept = groups["sample_stats"]["kept"].to_numpy().astype(bool)
    groups["posterior"] = groups["posterior"].assign(edge=large.astype(np.int8))
    p, gap = salience(idata, loading).to_numpy(), edge_gap(by_chain, kept)
    edges = groups["edge_posterior"].drop_vars("if_permitted", errors="ignore")
    # None is given: that an edge is there says not how large it is.
    groups["edge_posterior"] = edges.assign(edge_numbers(_EDGE, p, by_chain, {}, gap=gap))
    note = f"Posterior probability that a standardised loading is at least {loading:g} in size."
    run = compared_runs(idata)
    verdict = "\n".join([note, *_of_large(idata, p, gap, agreed(gap, run), run)])
    about = {"note": note, "verdict": verdict, "salient_loading": float(loading)}
    return _arviz.from_datasets(groups, {**idata.attrs, **about})


def _of_large(
    idata: ArvizData, p: NDArray[np.float64], gap: NDArray[np.float64], agreement: list[str], run: str
) -> list[str]:
    """The verdict's sentences, with those that count edges said of large loadings."""
    edges = _arviz.get_group(idata, "edge_posterior")
    possible = (edges["restart_probability"].to_numpy() > 0).any(0)
    findings = findings_of(idata=idata)
    names = [[str(name) for name in edges[dim].to_numpy()] for dim in _EDGE]
    doubted, rest = doubted_edges(findings, *names), edges_left_empty(findings, len(p))
    counts, of_edges = counts_of(idata, findings), agreed(edges["gap"].to_numpy(), run)
    lines: list[str] = []
    for line in str(idata.attrs.get("verdict", "")).splitlines():
        if line == counts:
            lines.append(decided(p, gap, possible, doubted, of_size=True, not_asked=rest))
        else:
            lines += agreement if line in of_edges else [line]
    return lines


def _is_large(idata: ArvizData, loading: float) -> xr.DataArray:
    """Which draws are, (chain, draw, feature, factor); without a copy of their sizes."""
    weight = _arviz.get_group(idata, "posterior")["weight"].transpose("chain", "draw", *_EDGE)
    return (weight >= loading) | (weight <= -loading)


def _check_size(argument: str, loading: float) -> None:
    if not (isinstance(loading, Real) and 0 < loading < 1):
        raise ValueError(
            f"{argument}: got {loading!r}, wanted a standardised loading strictly between 0 and 1, such as "
            f"{SALIENT:g}"
        )
