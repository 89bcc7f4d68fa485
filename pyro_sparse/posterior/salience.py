r"""Edges that matter: not whether a loading is nonzero, but whether it is large.

With many rows every effect that is not exactly zero is found, and its edge has probability 1. Who reads a
table of loadings asks another question:

.. math:: P\big(|\lambda_{jk}| \ge t \mid x\big), \qquad
          \lambda_{jk}^2 = \text{share of the variance of feature } j \text{ that goes with factor } k

Factor analysis calls such loadings salient (at .3 by custom, 9 % of the variance). The draws hold the answer:
`salient_edges` counts it and returns an object of the same kind, which tables, pictures and decisions take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..graphs.selection import edge_gap
from . import arviz as _arviz
from .edge_table import edge_numbers, holds_scores
from .tables import weights_vary

if TYPE_CHECKING:
    from .._utils.types import ArvizData

__all__ = ["salient_edges"]

_EDGE = ("feature", "factor")


def salient_edges(idata: ArvizData, loading: float = 0.3) -> ArvizData:
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
        :math:`|\lambda_{jk}| \ge t`; the attribute `salient_loading` is t. For `summary`, `edge_prob`,
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
    if not 0 < loading < 1:
        raise ValueError(
            f"loading: got {loading!r}, wanted a standardised loading strictly between 0 and 1, such as 0.3"
        )
    groups = {name: _arviz.get_group(idata, name) for name in _arviz.group_names(idata)}
    if kind := str(idata.attrs.get("kind", "")):
        raise TypeError(
            f"idata: got the posterior of {kind}, wanted that of a table; only loadings of a table have a "
            "common scale"
        )
    if not weights_vary(idata):
        contents = "scores" if holds_scores(idata) else "edges by the strengths of slopes"
        raise ValueError(
            f"idata: it holds {contents}, and every draw of a restart has the same weights; wanted draws of "
            'weights, such as fit.edge_posterior("mcmc") of a SparseDecoder gives'
        )
    posterior, edges = groups["posterior"], groups["edge_posterior"]
    large = np.abs(posterior["weight"].transpose("chain", "draw", *_EDGE)) >= loading
    by_chain = large.mean("draw").to_numpy()
    kept = groups["sample_stats"]["kept"].to_numpy().astype(bool)
    p = by_chain[kept].mean(axis=0)
    groups["posterior"] = posterior.assign(edge=large.astype(np.int8))
    # None is given: that an edge is there says not how large it is.
    numbers = edge_numbers(_EDGE, p, by_chain, {}, gap=edge_gap(by_chain, kept))
    groups["edge_posterior"] = edges.drop_vars("if_permitted", errors="ignore").assign(numbers)
    note = f"Posterior probability that a standardised loading is at least {loading:g} in size."
    return _arviz.from_datasets(groups, {**idata.attrs, "note": note, "salient_loading": float(loading)})
