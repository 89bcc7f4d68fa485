r"""The evidence lower bound of a model and guide, one figure per restart, one nat per nat.

Pyro's ``Trace_ELBO`` sums over everything; restarts that train side by side need their own figure each, and
the Kullback–Leibler term of a Gaussian latent is known in closed form. This is the package's whole objective:

.. math:: \mathrm{ELBO}_r = \sum_i E_q[\log p(x_i|z_i,W)] - KL(q(z_i)\|p(z_i)) + \log p(W, \ldots)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from pyro import poutine
from pyro.distributions import Delta
from pyro.distributions.util import scale_and_mask
from torch import Tensor
from torch.distributions import Distribution, kl_divergence

from .ranks import ALONE, Ranks

if TYPE_CHECKING:
    from pyro.poutine import Trace

    from ...models.base import FactorModel
    from ...models.latent_transition import LatentTransition
    from ._families import Minibatch

__all__ = ["elbo_by_restart", "rowwise_elbo"]


def elbo_by_restart(
    model: Callable, guide: Callable, batch: Minibatch, n_restarts: int, skip: tuple[str, ...] = ()
) -> Tensor:
    """Differentiable ELBO of each restart on one minibatch, scaled to the full data.

    Parameters
    ----------
    model, guide : callable
        Pyro programs of one argument. Global sites have batch shape (restart,), local ones (restart, row).
    batch : Batch
        Passed to both.
    n_restarts : int
        Number of restarts.
    skip : tuple of str
        Sites to leave out (the weights, when a proximal map takes care of their prior).

    Returns
    -------
    Tensor of shape (restart,)
        In nats, over all rows (the plate scales the minibatch up).

    Raises
    ------
    FloatingPointError
        A log-density is not finite; names the site and the restarts.
    ValueError
        The model has no sample site, or a site is in the model but not in the guide, or the other way round.
    """
    terms = _terms(model, guide, batch, skip)
    if not terms:
        raise ValueError("model: it has no sample site; got an empty trace, wanted at least one pyro.sample")
    total = torch.zeros(())
    for name, term in terms.items():
        by_restart = term.reshape(n_restarts, -1).sum(-1)
        if not torch.isfinite(by_restart.detach()).all():
            bad = (~torch.isfinite(by_restart.detach())).nonzero().flatten().tolist()
            raise FloatingPointError(f"site {name!r} has a non-finite log-density in restart(s) {bad}")
        total = total + by_restart
    return total


@torch.no_grad()
def rowwise_elbo(
    model: FactorModel | LatentTransition,
    batch: Minibatch,
    num_draws: int = 1,
    chunk: int = 1000,
    ranks: Ranks = ALONE,
) -> Tensor:
    """ELBO of each row by itself, (restart, row): local sites only, divergence at full weight.

    Parameters
    ----------
    model : FactorModel
    batch : Batch or SequenceBatch
    num_draws : int
        Draws of the guide to average.
    chunk : int
        Rows at a time.
    ranks : Ranks
        Who shares them; every rank gets all rows' answer.

    Notes
    -----
    A site with several terms for each row (the frames of a sequence) counts with their sum.
    """
    weight, beta = model.kl_weight, model.beta
    model.kl_weight, model.beta = 1.0, 1.0
    try:
        elbos = []
        for index in torch.arange(len(batch), device=batch.x.device).split(chunk):
            rows = ranks.rows(batch, index).whole()
            draws = torch.zeros(())
            for _ in range(num_draws):
                with ranks.sites(rows):
                    terms = _terms(model.model, model.guide, rows, ())
                local = [t.reshape(len(t), len(rows), -1).sum(-1) for t in terms.values() if t.dim() == 2]
                draws = draws + sum(local) / num_draws
            elbos.append(ranks.joined(draws, rows))
        return torch.cat(elbos, -1)
    finally:
        model.kl_weight, model.beta = weight, beta


def _terms(model: Callable, guide: Callable, batch: Minibatch, skip: tuple[str, ...]) -> dict[str, Tensor]:
    """Contribution of every site to the ELBO, scaled and masked, with its batch shape."""
    guide_trace = poutine.trace(guide).get_trace(batch)
    model_trace = poutine.trace(poutine.replay(model, trace=guide_trace)).get_trace(batch)
    _check_sites(model_trace, guide_trace)
    terms = {}
    for name, site in model_trace.nodes.items():
        if not _is_random(site) or name in skip:
            continue
        if site["is_observed"]:
            term = site["fn"].log_prob(site["value"])
        else:
            term = _negative_divergence(guide_trace.nodes[name]["fn"], site["fn"], site["value"])
        terms[name] = scale_and_mask(term, site["scale"], site["mask"])
    return terms


def _is_random(site: Mapping[str, Any]) -> bool:
    return site["type"] == "sample" and type(site["fn"]).__name__ != "_Subsample"


def _check_sites(model_trace: Trace, guide_trace: Trace) -> None:
    hidden = {n for n, site in model_trace.nodes.items() if _is_random(site) and not site["is_observed"]}
    guided = {n for n, site in guide_trace.nodes.items() if _is_random(site)}
    for name in sorted(hidden - guided):
        raise ValueError(
            f"guide: it has no site {name!r}, the model has; give every unobserved site a distribution "
            "in the guide (a prior with sites of its own does so in Prior.guide)"
        )
    for name in sorted(guided - hidden):
        raise ValueError(
            f"guide: its site {name!r} is not an unobserved site of the model; remove or rename it"
        )


def _negative_divergence(guide: Distribution, prior: Distribution, value: Tensor) -> Tensor:
    """E_q[log p - log q]: exact for a point mass and for Gaussians, else at the draw of the trace."""
    base = guide
    while hasattr(base, "base_dist"):
        base = base.base_dist
    if isinstance(base, Delta):
        return prior.log_prob(value)
    try:
        return -kl_divergence(guide, prior)
    except NotImplementedError:
        pass
    try:
        return prior.log_prob(value) + guide.entropy()
    except NotImplementedError:
        return prior.log_prob(value) - guide.log_prob(value)
