r"""Edges by their score: the spike-and-slab-lasso weight p* at the fitted loading.

:math:`p^*_{jk} = P(\gamma_{jk} = 1 \mid w_{jk} = \hat w_{jk}, \hat\eta_k)` treats the fitted loading as if it
were known without error. It is therefore too sure, in both directions: a useful ranking, not a probability to
bet on. Draws are Bernoulli(p*), one chain per aligned restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..._utils.checks import check_whole
from ..._utils.types import ArvizData, TableLike
from ...posterior.tables import to_arviz

if TYPE_CHECKING:
    from ..table.result import Fit

__all__ = ["SCORE_NOTE", "score_edges"]

SCORE_NOTE = (
    "These numbers are scores, not calibrated probabilities: each treats the fitted loading as if it were "
    "known exactly, so it ranks the edges but is too sure of them."
)


def score_edges(fit: Fit, num_draws: int = 500, seed: int = 0, X: TableLike | None = None) -> ArvizData:
    r"""Edge scores of the best restart, and Bernoulli draws from each restart's scores.

    .. math:: \gamma^{(r,d)}_{jk} \sim \mathrm{Bernoulli}(p^{*(r)}_{jk})

    Parameters
    ----------
    fit : Fit
        Uses `edge_score`, `weights`, `effects`, `eta`, all aligned to the best restart.
    num_draws : int
        Draws per restart, at least 1.
    seed : int
        Child generators are spawned per restart: restart r draws the same whatever the number of restarts.
    X : array_like of shape (sample, feature), optional
        The data, to be stored in `observed_data` when it is small.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        `posterior`: `edge` (0/1), `weight` and `eta`, the last two constant over the draws of a restart.
        `edge_posterior.probability`: p* of the best restart. Attributes `edge_method="score"`, `is_score`
        (1), `note`.

    Raises
    ------
    ValueError
        If `num_draws` is below 1, or the fit has no edge scores because its prior has no zeros, or has odds
        that are NaN.

    References
    ----------
    Ročková and George (2018), The Spike-and-Slab LASSO, JASA 113(521), equation 2.4.
    """
    check_whole(1, num_draws=num_draws)
    p = np.asarray(fit.edge_score, dtype=float)
    if not np.isfinite(p).all():
        prior = getattr(fit.model, "prior", None)
        if prior is None and getattr(fit.model, "strength", None) is not None:
            raise ValueError(
                f"fit: a {type(fit.model).__name__} has no prior on weights, so there are no scores; "
                'method="jacobian", the default, gives probabilities'
            )
        owner = f"a {type(fit.model).__name__}" if prior is None else type(prior).__name__
        if prior is not None and prior.edge_log_odds(fit.model.weights) is not None:
            raise ValueError(
                f"fit: {owner}.edge_log_odds(weights) is NaN at {int(np.isnan(p).sum())} of {p.size} weights "
                "of the fit, so there are no scores; want the log odds that the edge is there for each"
            )
        raise ValueError(
            f"fit: {owner} sets no weight to zero, so there are no edges to speak of: loadings are in "
            "fit.weights[fit.best], shares of variance in fit.effects[fit.best]; for edges fit with "
            "SpikeSlabLasso, SpikeSlabNormal, a SpikeSlabPrior of your own (probabilities), Laplace, or a "
            "prior of your own that has edge_log_odds (scores)"
        )
    n_restarts = len(p)
    edge = np.empty((n_restarts, num_draws, *p.shape[1:]), dtype=np.int8)
    for r, child in enumerate(np.random.SeedSequence(seed).spawn(n_restarts)):
        edge[r] = np.random.default_rng(child).random((num_draws, *p.shape[1:]), dtype=np.float32) < p[r]
    weights, eta = np.asarray(fit.weights), np.asarray(fit.eta)
    return to_arviz(
        fit,
        edge=edge,
        weight=np.broadcast_to(weights[:, None], edge.shape),
        eta=np.broadcast_to(eta[:, None], (n_restarts, num_draws, eta.shape[-1])),
        probability=p[int(fit.best)],
        method="score",
        is_score=True,
        note=SCORE_NOTE,
        X=X,
        attrs={"seed": int(seed)},
    )
