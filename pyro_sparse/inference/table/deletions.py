r"""Which edges earn their place: deletions that raise the objective, made on all the data at once.

Gradient steps on a spike-and-slab objective cannot jump: a spurious weight that sits in the slab stays there.
The jump itself is cheap to evaluate. For every edge (j, k) compare the log-likelihood of feature j with and
without factor k (noise refitted) and the log-prior of ``w_jk`` against that of zero:

.. math:: \Delta_{jk} = \ell_j(W) - \ell_j(W_{jk} = 0) + \log p(w_{jk}) - \log p(0)

An edge with :math:`\Delta_{jk} < 0` is set to zero. A factor is dropped when everything it explains is
worth less than the divergence :math:`\sum_i KL(q(z_{ik}) \| p)` that it costs, plus its prior. Of a
linear decoder that is no density at zero, which grows with the spike's rate and made five edges cost
twenty nats too many: an edge costs :math:`-\log[p(w_{jk}) \sqrt{2\pi}\, s_{jk}]`, the weight integrated
out (Laplace's method; Kass and Raftery 1995, Journal of the American Statistical Association 90), with
:math:`s = |w| / \sqrt{2\ell}` from a log-likelihood that is a parabola.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from ...data.large_table import SEARCH_CELLS, LargeBatch
from ...data.read import Batch
from ...distributions import CorrelatedNormal
from ..training.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["edge_gains", "factor_costs", "prune"]

_LEAST_GAIN = 1e-3  # nats, of an edge whose weight's standard deviation is asked for


@torch.no_grad()
def edge_gains(
    model: SparseDecoder,
    batch: Batch,
    *,
    num_draws: int = 2,
    max_rows: int = 2000,
    chunk: int = 500,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Log-likelihood each edge is worth, in nats over all rows: shape (restart, feature, factor).

    Parameters
    ----------
    model : SparseDecoder
    batch : Batch
        The training rows; at most `max_rows` of them are used, scaled up.
    num_draws : int
        Draws of z from the guide per row.
    ranks : Ranks
        Who shares the rows.
    """
    likelihood, weights = model.likelihood, model.weights
    used = [k for k in range(weights.shape[-1]) if weights[..., k].any()]
    sample = batch.rows(torch.arange(min(len(batch), max_rows), device=batch.x.device))
    size = (len(weights), weights.shape[-1])
    noise = torch.cat(
        [
            torch.stack([weights.new_empty(size[0], n, size[1]).normal_() for _ in range(num_draws)])
            for n in (min(chunk, len(sample) - at) for at in range(0, len(sample), chunk))
        ],
        2,
    )
    full: Tensor | float = 0.0
    reduced: dict[int, Tensor | float] = dict.fromkeys(used, 0.0)
    rank_rows = ranks.share(sample)
    noise = ranks.kept(noise, rank_rows)
    for index in torch.arange(len(rank_rows), device=batch.x.device).split(chunk):
        rows = rank_rows.rows(index)
        cells = rows.x, rows.mask, rows.per_row
        location, sd = model.encode(rows)
        for draw in noise[:, :, index]:
            z = location + sd * draw
            f = model.decode(z, weights)
            full = full + likelihood.feature_statistic(f, f, *cells) / num_draws
            for k in used:
                without = weights.clone()
                without[..., k] = 0.0
                reduced[k] = (
                    reduced[k] + likelihood.feature_statistic(model.decode(z, without), f, *cells) / num_draws
                )
    ranks.sum(cast("list[Tensor]", [full, *reduced.values()]), rank_rows)
    gains = torch.zeros_like(weights)
    for k in used:
        gains[..., k] = likelihood.feature_gain(cast(Tensor, full), cast(Tensor, reduced[k]))
    return gains * (batch.total / len(sample))


@torch.no_grad()
def factor_costs(model: FactorModel, batch: Batch, *, max_rows: int = 2000) -> Tensor:
    """Divergence each factor costs given the others, in nats over all rows: (restart, factor)."""
    sample = batch.rows(torch.arange(len(batch), device=batch.x.device)[:max_rows])
    location, sd = model.encode(sample)
    guide = dist.Normal(location, sd).to_event(1)
    try:
        total = kl_divergence(guide, model.factor_prior()).sum(-1)
    except NotImplementedError:  # a prior of the caller's, whose other factors have no known density
        total = kl_divergence(guide, CorrelatedNormal(model.factor_cov.unsqueeze(1))).sum(-1)
    costs = []
    for k in range(location.shape[-1]):
        keep = [i for i in range(location.shape[-1]) if i != k]
        if not keep:
            return total.unsqueeze(-1) * (batch.total / len(sample))
        marginal = dist.Normal(location[..., keep], sd[..., keep]).to_event(1)
        prior = CorrelatedNormal(model.factor_cov[:, keep][:, :, keep].unsqueeze(1))
        costs.append(total - kl_divergence(marginal, prior).sum(-1))
    return torch.stack(costs, -1) * (batch.total / len(sample))


@torch.no_grad()
def prune(model: SparseDecoder, batch: Batch, *, min_features: int = 2, ranks: Ranks = ALONE) -> int:
    """Delete every edge and factor that lowers the objective; return how many edges went.

    Edges the caller requires stay. A factor left with fewer than `min_features` features explains nothing
    that the feature's own noise would not, and goes too, unless an edge of it is required. A prior without
    edge odds has no "absent" to compare with (the horseshoe's density at zero is a pole): nothing is deleted.

    Raises
    ------
    FloatingPointError
        A feature's gain is no number, or minus infinity: nobody knows what its edges are worth.
    """
    prior = model.prior
    if prior.edge_log_odds(model.weights) is None:
        return 0
    at_zero = prior.distribution().expand(torch.Size(prior.shape)).log_prob(torch.zeros_like(model.weights))
    here = prior.distribution().expand(torch.Size(prior.shape)).log_prob(model.weights)
    cost = at_zero - here
    few: dict[str, int] = {}
    if isinstance(batch, LargeBatch):  # a pass for every factor: as much as a long stretch of training
        few = {"max_rows": batch.table.rows_together(500, 2000, SEARCH_CELLS)}
    gains = edge_gains(model, batch, ranks=ranks, **few, **({"num_draws": 1, "chunk": 100} if few else {}))
    unknown = (gains.isnan() | gains.isneginf()).any(0).any(-1)
    if unknown.any():
        raise FloatingPointError(
            f"feature_gain of {type(model.likelihood).__name__} is not finite for feature(s) "
            f"{unknown.nonzero().flatten().tolist()[:5]}: the log density of what was seen must be finite; "
            "look for extreme values in the data, and try a likelihood of your own with "
            "pyro_sparse.testing.LikelihoodTestCase"
        )
    before, linear = int((model.weights != 0).sum()), getattr(model, "decoder_kind", None) == "linear"
    keep = (gains > cost) | model.must
    in_factor = torch.minimum(cost, _evidence(model.weights, gains, here)) if linear else cost
    worth = torch.where(keep, gains - in_factor, torch.zeros_like(gains)).sum(1)
    worth = worth - factor_costs(model, batch, **few)
    used = (worth > 0) & ((keep & (model.weights != 0)).sum(1) >= min_features)
    keep &= used.unsqueeze(1) | model.must
    model.allowed &= keep
    model.project()
    return before - int((model.weights != 0).sum())


def _evidence(weights: Tensor, gains: Tensor, log_prior: Tensor) -> Tensor:
    """What an edge of a line costs, its weight integrated out by Laplace's normal, in nats."""
    sd = weights.abs().clamp_min(1e-12) / (2 * gains.clamp_min(_LEAST_GAIN)).sqrt()
    return -log_prior - sd.log() - 0.5 * math.log(2 * math.pi)
