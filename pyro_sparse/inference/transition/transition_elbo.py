r"""The evidence lower bound of a `LatentTransition` in closed form: its two programs without a trace.

.. math:: \mathrm{ELBO} = E_q[\log p(x|z)] + E_q[\log p(z|G)] + H[q(z|x)] - KL(q(G)\|p(G)) + \log p(\sigma^2)

The networks are small, so that tracing two programs and terms nobody asks for took half of a step. The
programs in `models/latent_transition.py` stay the definition: a test holds both to the same figures, at the
same draws, and a subclass that writes programs of its own is traced.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ..._utils.declared import keeps
from ...data.sequences import SequenceBatch
from ...distributions import RelaxedEdges
from ...distributions.relaxed_edges import bernoulli_kl
from ...models.latent_transition import LatentTransition

if TYPE_CHECKING:
    from ...nets.transition import FrameEncoder

__all__ = ["has_closed_form", "transition_elbo"]


def has_closed_form(model: LatentTransition) -> bool:
    """Whether `transition_elbo` is the bound of its programs: no subclass, no other encoder changed them.

    Parameters
    ----------
    model : LatentTransition
    """
    return keeps(model, "closed-form ELBO") and keeps(model.encoder, "frame encoder network")


def transition_elbo(model: LatentTransition, batch: SequenceBatch, skip: tuple[str, ...] = ()) -> Tensor:
    """Differentiable ELBO of each restart on one minibatch, scaled to the full data.

    Parameters
    ----------
    model : LatentTransition
        Set up; the dense program or, folded, the gated one.
    batch : SequenceBatch
    skip : tuple of str
        Sites to leave out: what only they need is not computed.

    Returns
    -------
    Tensor of shape (restart,)
        In nats, over all sequences, as `elbo_by_restart` of the two programs.

    Raises
    ------
    FloatingPointError
        A log-density is not finite; names the site and the restarts.
    """
    scale = batch.total / len(batch)
    terms: dict[str, Tensor] = {}
    gates = None if model.dense else _gates(model, len(batch))
    if gates is not None and "G" not in skip:
        terms["G"] = -_divergence(model)
    values = {name: value for name, value in model.likelihood.values().items() if name not in skip}
    if values:
        priors = model.likelihood.priors()
        terms |= {name: priors[name].log_prob(value) for name, value in values.items()}
    n, t = batch.x.shape[:2]
    x, observed = batch.x.flatten(0, 1), None if batch.mask is None else batch.mask.flatten(0, 1)
    noise = torch.randn(model.n_restarts, n, t, model.n_latents, dtype=x.dtype, device=x.device)
    z, log_det = cast("FrameEncoder", model.encoder).draw(x, observed, noise.flatten(1, 2))
    inside = z
    if not model.dense:
        z = z @ model.axes.mT
        log_det = log_det + torch.linalg.slogdet(model.axes)[1].unsqueeze(1)
    if "z" not in skip:
        chain = model.chain(batch, gates)
        frames: float = n * t
        if batch.present is not None:
            log_det, frames = log_det * batch.present.flatten(), float(batch.present.sum())
        entropy = log_det.sum(1) + 0.5 * frames * model.n_latents * (1 + math.log(2 * math.pi))
        term = chain.log_prob(z.unflatten(1, (n, t))).sum(1) + entropy
        terms["z"] = term * (scale * model.kl_weight * model.beta)
    if "x" not in skip:
        f = model.decoder(inside)
        terms["x"] = model.likelihood.observation(f, observed).log_prob(x).sum(1) * scale
    total = sum(terms.values(), torch.zeros(()))
    if not torch.isfinite(total.detach()).all():
        for name, term in terms.items():
            if not torch.isfinite(term.detach()).all():
                bad = (~torch.isfinite(term.detach())).nonzero().flatten().tolist()
                raise FloatingPointError(f"site {name!r} has a non-finite log-density in restart(s) {bad}")
    return total


def _gates(model: LatentTransition, n: int) -> Tensor:
    """Edges of every sequence, drawn; of all together, (restart, latent, parent), where each is forced."""
    forced = model.must | ~model.allowed
    if forced.all():
        return model.must.to(model.logits.dtype).expand_as(model.logits)
    # One draw for each sequence, where the published code has one for a minibatch: its noise averages out.
    logits = model.logits.unsqueeze(1).expand(-1, n, -1, -1)
    return RelaxedEdges(logits, model.temperature, model.hard_gates, model.must, ~model.allowed).rsample()


def _divergence(model: LatentTransition) -> Tensor:
    """Divergence of the edges' posterior from their prior, (restart,)."""
    kl = bernoulli_kl(model.logits, model.inclusion)
    return kl.masked_fill(model.must | ~model.allowed, 0.0).sum((1, 2))
