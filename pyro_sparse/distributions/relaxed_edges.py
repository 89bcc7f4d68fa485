r"""Edges of a graph that gradients can pass: 0/1 variables relaxed to (0, 1) by a sigmoid of logistic noise.

.. math:: g = \sigma\big((\alpha + L) / \tau\big), \qquad L \sim \mathrm{Logistic}(0, 1), \qquad
          P(g > \tfrac12) = \sigma(\alpha)

At every temperature :math:`\tau` the rounded gate is Bernoulli(:math:`\sigma(\alpha)`); as the temperature
falls the gate itself becomes it. The gate is what a likelihood sees; what the prior sees is the Bernoulli,
whose divergence `bernoulli_kl` has a closed form. Edges known to exist or not to exist are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, constraints
from torch.distributions.kl import register_kl
from torch.distributions.utils import broadcast_all, clamp_probs

__all__ = ["RelaxedEdges", "bernoulli_kl"]


class RelaxedEdges(TorchDistribution):
    r"""Relaxed Bernoulli edges (binary concrete, Gumbel-sigmoid), reparameterised; masks force edges.

    .. math:: \log p(g) = \log\tau + \log\sigma(u) + \log\sigma(-u) - \log g - \log(1-g), \qquad
              u = \tau\,\mathrm{logit}(g) - \alpha

    The batch shape is free: (restart, target, source) shares one draw among all samples of a minibatch,
    ``.expand((restart, sample, target, source))`` draws gates for each. A divergence to a Bernoulli is
    registered, so that Pyro's ``TraceMeanField_ELBO`` charges the Bernoulli behind the gate in closed form.

    Parameters
    ----------
    logits : Tensor
        :math:`\alpha`, shape (..., target, source). Not read where an edge is forced.
    temperature : Tensor or float
        :math:`\tau > 0`, broadcastable with `logits`.
    hard : bool
        Straight-through: values are exactly 0 or 1, gradients are those of the soft gate (biased), and
        ``log_prob`` is the Bernoulli's. Otherwise values lie in (0, 1).
    required, forbidden : Tensor, optional
        Boolean, broadcastable to the batch shape: edges that are constantly 1, or 0. They have no gradient,
        and log density 0.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.

    Raises
    ------
    ValueError
        If a mask does not fit, or an edge is both required and forbidden.

    References
    ----------
    Maddison, Mnih and Teh (2017), The concrete distribution, appendix B; Bengio et al. (2013) for the
    straight-through gradient; Lachapelle et al. (2024), arXiv 2401.04890, for masks of a transition.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.distributions import RelaxedEdges
    >>> edges = RelaxedEdges(torch.zeros(2, 2), 1.0, hard=True, required=torch.eye(2, dtype=torch.bool))
    >>> edges.edge_probability
    tensor([[1.0000, 0.5000],
            [0.5000, 1.0000]])
    >>> edges.expand((8, 2, 2)).rsample().shape
    torch.Size([8, 2, 2])
    """

    arg_constraints = {"logits": constraints.real, "temperature": constraints.positive}
    has_rsample = True
    logits: Tensor
    temperature: Tensor
    required: Tensor
    forbidden: Tensor

    def __init__(
        self,
        logits: Tensor,
        temperature: Tensor | float,
        hard: bool = False,
        required: Tensor | None = None,
        forbidden: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        logits, self.temperature = broadcast_all(logits, temperature)
        self.required = _mask(required, "required", logits)
        self.forbidden = _mask(forbidden, "forbidden", logits)
        if required is not None and forbidden is not None and (self.required & self.forbidden).any():
            first = tuple((self.required & self.forbidden).nonzero()[0].tolist())
            raise ValueError(
                f"required and forbidden: edge {first} is in both; take it out of one of the masks"
            )
        # Where nothing is drawn nothing may be infinite either, or gradients would be 0 * inf.
        self.logits = logits.masked_fill(self.forced, 0.0)
        self.hard = bool(hard)
        super().__init__(self.logits.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """The same distribution with a larger batch shape: independent draws along the new dimensions."""
        new: Self = self._get_checked_instance(RelaxedEdges, _instance)
        batch_shape = torch.Size(batch_shape)
        for name in ("logits", "temperature", "required", "forbidden"):
            setattr(new, name, getattr(self, name).expand(batch_shape))
        new.hard = self.hard
        super(RelaxedEdges, new).__init__(batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """0 and 1 if `hard`, else the unit interval (a forced edge sits at its end)."""
        return constraints.boolean if self.hard else constraints.unit_interval

    @property
    def forced(self) -> Tensor:
        """Edges that are required or forbidden: boolean, batch shape."""
        return self.required | self.forbidden

    @property
    def edge_probability(self) -> Tensor:
        r""":math:`P(g > \tfrac12) = \sigma(\alpha)`; 1 and 0 where forced."""
        return self._force(torch.sigmoid(self.logits))

    @property
    def relaxed_mean(self) -> Tensor:
        r""":math:`E[\sigma((\alpha + L)/\tau)]`, nearer to one half than the edge probability.

        .. math:: \int \sigma\Big(\frac{\alpha + \min(\tau, 1)\,s}{\max(\tau, 1)}\Big)\,\sigma'(s)\,ds

        by the trapezoid rule, with absolute error below 1e-8. For :math:`\tau < 1` this is
        :math:`\int_0^1 P(g > t)\,dt`, as smooth as the plain expectation is for :math:`\tau > 1`.
        """
        s = torch.linspace(-20, 20, 81, dtype=self.logits.dtype, device=self.logits.device)
        weight = torch.sigmoid(s) * torch.sigmoid(-s)
        tau = self.temperature[..., None]
        inner = (self.logits[..., None] + tau.clamp(max=1.0) * s) / tau.clamp(min=1.0)
        return self._force(torch.sigmoid(inner) @ (weight / weight.sum()))

    @property
    def mean(self) -> Tensor:
        """Mean of what is drawn: `edge_probability` if `hard`, else `relaxed_mean`."""
        return self.edge_probability if self.hard else self.relaxed_mean

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw gates, shape ``sample_shape + batch_shape``."""
        shape = self._extended_shape(torch.Size(sample_shape))
        uniform = torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device)
        noise = torch.logit(clamp_probs(uniform))
        gate = clamp_probs(torch.sigmoid((self.logits + noise) / self.temperature))
        if self.hard:
            gate = (gate > 0.5).to(gate.dtype) + (gate - gate.detach())
        return self._force(gate)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of soft gates, log mass of hard ones; 0 where forced.

        A soft value within one machine epsilon of 0 or 1 counts as lying that far inside.
        """
        if self._validate_args:
            self._validate_sample(value)
            wrong = (self.required & (value != 1)) | (self.forbidden & (value != 0))
            if wrong.any():
                raise ValueError(
                    f"value: {int(wrong.sum())} forced edges have another value; "
                    "required edges must be 1 and forbidden ones 0"
                )
        if self.hard:
            density = value * self.logits - F.softplus(self.logits)
        else:
            gate = clamp_probs(value.masked_fill(self.forced, 0.5))
            u = self.temperature * torch.logit(gate) - self.logits
            density = self.temperature.log() + F.logsigmoid(u) + F.logsigmoid(-u)
            density = density - gate.log() - torch.log1p(-gate)
        return density.masked_fill(self.forced, 0.0)

    def _force(self, value: Tensor) -> Tensor:
        return value.masked_fill(self.required, 1.0).masked_fill(self.forbidden, 0.0)


def _mask(mask: Tensor | None, name: str, logits: Tensor) -> Tensor:
    """The mask in the shape of the logits; nothing is masked by default."""
    if mask is None:
        return torch.zeros((), dtype=torch.bool, device=logits.device).expand(logits.shape)
    mask = torch.as_tensor(mask, device=logits.device)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name}: got dtype {mask.dtype}, wanted torch.bool; compare with 0 first")
    try:
        return mask.expand(logits.shape)
    except RuntimeError as error:
        raise ValueError(
            f"{name}: got shape {tuple(mask.shape)}, wanted one that broadcasts to the batch shape "
            f"{tuple(logits.shape)}, (..., target, source)"
        ) from error


def bernoulli_kl(logits: Tensor, eta: Tensor | float) -> Tensor:
    r"""Divergence of Bernoulli(sigmoid of logits) from Bernoulli(eta), in nats.

    .. math:: \sigma(\alpha) \log\frac{\sigma(\alpha)}{\eta}
              + \sigma(-\alpha) \log\frac{\sigma(-\alpha)}{1-\eta}

    Finite for infinite logits; infinite only where `eta` is 0 or 1 and excludes what the logits allow.

    Parameters
    ----------
    logits : Tensor
        :math:`\alpha`, any shape.
    eta : Tensor or float
        Prior probability of an edge, in [0, 1], broadcastable with `logits`.

    Returns
    -------
    Tensor
        Of the broadcast shape, at least 0.

    Raises
    ------
    ValueError
        If `eta` leaves [0, 1].

    Examples
    --------
    >>> import torch
    >>> bernoulli_kl(torch.tensor([0.0, 100.0]), 0.5)
    tensor([0.0000, 0.6931])
    """
    logits, eta = broadcast_all(logits, eta)
    if not ((eta >= 0) & (eta <= 1)).all():
        raise ValueError(
            f"eta: got values from {eta.min().item():g} to {eta.max().item():g}, wanted them in [0, 1]; "
            "apply a sigmoid to log odds first"
        )
    largest = torch.finfo(logits.dtype).max
    alpha = logits.clamp(-largest, largest)
    on, off = torch.sigmoid(alpha), torch.sigmoid(-alpha)
    negative_entropy = on * F.logsigmoid(alpha) + off * F.logsigmoid(-alpha)
    # Two rounding errors near zero may leave a negative number of their own size.
    divergence: Tensor = negative_entropy - torch.xlogy(on, eta) - torch.special.xlog1py(off, -eta)
    return divergence.clamp(min=0)


def _kl_of_the_edges(p: RelaxedEdges, q: Bernoulli) -> Tensor:
    """Divergence of the Bernoulli edges behind the gates; forced edges cost nothing."""
    return bernoulli_kl(p.logits, q.probs).masked_fill(p.forced, 0.0)


# Called here instead of decorating: torch's decorator has no types, and would take the function's.
register_kl(RelaxedEdges, Bernoulli)(_kl_of_the_edges)
