r"""Variational Sparse Coding (Tonolini, Jensen, Murray-Smith 2020): each row uses only some factors.

Sparse in the *factors of a row*, where `SparseDecoder` is sparse in the *factors of a feature*: q(z|x) is
exactly zero with probability 1 − γ(x), and the prior is that same encoder at a few learned pseudo-inputs,
each pressed to use a share α of the factors.  The decoder is the dense one of the VAE.  The divergence is
the exact one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    constraints,
    kl_divergence,
    register_kl,
)
from torch.nn import functional as F

from ..data.read import Batch
from ..likelihoods import Likelihood
from ..nets.layers import Encoder
from .vae import VAE

__all__ = ["VSC", "PseudoInputPrior", "ZeroOrNormal"]


class ZeroOrNormal(TorchDistribution):
    r"""Exactly zero with probability 1 − γ, else normal.

    .. math:: z \sim \gamma N(\mu, \sigma^2) + (1 - \gamma) \delta_0

    Parameters
    ----------
    log_odds, loc, scale : Tensor
        logit γ, μ, σ; broadcast together.
    slope : float
        Steepness of the indicator's surrogate gradient.
    validate_args : bool, optional
        As in `torch.distributions.Distribution`.

    Notes
    -----
    Draws are exact, zeros included; the gradient of an indicator :math:`1[u > 1 - \gamma]` is that of
    :math:`\mathrm{sigmoid}(c (u - 1 + \gamma))` (the paper uses it for the draw itself).
    The density is with respect to Lebesgue measure plus a point mass at zero.
    """

    arg_constraints = {"log_odds": constraints.real, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        log_odds: Tensor,
        loc: Tensor,
        scale: Tensor,
        slope: float = 20.0,
        validate_args: bool | None = None,
    ) -> None:
        self.log_odds, self.loc, self.scale = torch.broadcast_tensors(log_odds, loc, scale)
        self.slope = slope
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> ZeroOrNormal:
        """The same distribution with a larger batch shape."""
        return self.mapped(lambda tensor: tensor.expand(batch_shape))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> ZeroOrNormal:
        """The distribution whose parameters are changed alike (unsqueezed, expanded, picked from)."""
        return ZeroOrNormal(
            change(self.log_odds), change(self.loc), change(self.scale), self.slope, validate_args=False
        )

    @property
    def gamma(self) -> Tensor:
        """Probability that the value is not zero."""
        return torch.sigmoid(self.log_odds)

    @property
    def mean(self) -> Tensor:
        r""":math:`\gamma \mu`."""
        return self.gamma * self.loc

    @property
    def variance(self) -> Tensor:
        r""":math:`\gamma \sigma^2 + \gamma (1 - \gamma) \mu^2`."""
        return self.gamma * (self.scale**2 + (1 - self.gamma) * self.loc**2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Exact draws with a surrogate gradient, shape ``sample_shape + batch_shape``."""
        shape = self._extended_shape(torch.Size(sample_shape))
        margin = torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device) - 1 + self.gamma
        soft = torch.sigmoid(self.slope * margin)
        on = (margin > 0).to(soft) + (soft - soft.detach())
        return on * (self.loc + self.scale * torch.randn_like(margin))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, batch shape."""
        if self._validate_args:
            self._validate_sample(value)
        slab = F.logsigmoid(self.log_odds) + Normal(self.loc, self.scale, validate_args=False).log_prob(value)
        return torch.where(value == 0, F.logsigmoid(-self.log_odds), slab)


class PseudoInputPrior(TorchDistribution):
    r"""Mixture :math:`\sum_u w_u \prod_k q(z_k \mid x_u)` of the encoder's answers to U pseudo-inputs.

    Parameters
    ----------
    components : ZeroOrNormal
        Batch shape (R, U, K).
    log_weight : Tensor of shape (R, U)
        log w; the weights may sum to less than one, the rest is the price of the sparsity target (see `VSC`).
    batch_shape : torch.Size, optional
        (R, B); default (R, 1).
    validate_args : bool, optional
        As in `torch.distributions.Distribution`.

    Notes
    -----
    Event shape (K,).
    """

    arg_constraints = {"log_weight": constraints.real}
    support = constraints.real_vector

    def __init__(
        self,
        components: ZeroOrNormal,
        log_weight: Tensor,
        batch_shape: torch.Size | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.components, self.log_weight = components, log_weight
        n_restarts, _, n_factors = components.batch_shape
        batch = torch.Size((n_restarts, 1)) if batch_shape is None else batch_shape
        super().__init__(batch, torch.Size((n_factors,)), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> PseudoInputPrior:
        """The same distribution for more rows."""
        return PseudoInputPrior(
            self.components, self.log_weight, torch.Size(batch_shape), validate_args=False
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density (R, B) of values (R, B, K)."""
        components = self.components.mapped(lambda tensor: tensor.unsqueeze(1))
        return torch.logsumexp(
            components.log_prob(value.unsqueeze(-2)).sum(-1) + self.log_weight.unsqueeze(1), -1
        )

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Pick a pseudo-input per row, then draw; weights normalised."""
        shape = torch.Size(sample_shape) + self.batch_shape
        with torch.no_grad():
            logits = self.log_weight.unsqueeze(-2).expand((*shape, -1))
            index = (
                Categorical(logits=logits).sample()[..., None, None].expand((*shape, 1, *self.event_shape))
            )

            def pick(tensor: Tensor) -> Tensor:
                return tensor.unsqueeze(1).expand((*shape, *tensor.shape[1:])).gather(-2, index).squeeze(-2)

            return self.components.mapped(pick).sample()


@register_kl(ZeroOrNormal, ZeroOrNormal)
def _kl_zero_or_normal(q: ZeroOrNormal, p: ZeroOrNormal) -> Tensor:
    r""":math:`KL(\mathrm{Bern}(\gamma_q) \| \mathrm{Bern}(\gamma_p)) + \gamma_q KL(N_q \| N_p)`, exact."""
    slabs = kl_divergence(
        Normal(q.loc, q.scale, validate_args=False), Normal(p.loc, p.scale, validate_args=False)
    )
    on = F.logsigmoid(q.log_odds) - F.logsigmoid(p.log_odds)
    off = F.logsigmoid(-q.log_odds) - F.logsigmoid(-p.log_odds)
    return q.gamma * (on + slabs) + (1 - q.gamma) * off


@register_kl(Independent, PseudoInputPrior)
def _kl_pseudo_inputs(q: Independent, p: PseudoInputPrior) -> Tensor:
    r"""The tightest bound that assigns each row to pseudo-inputs, :math:`-\log \sum_u w_u e^{-KL(q \| p_u)}`.

    The paper learns a classifier to choose u; this is the value at its optimum.
    """
    row = q.base_dist.mapped(lambda tensor: tensor.unsqueeze(-2))
    components = p.components.mapped(lambda tensor: tensor.unsqueeze(1))
    divergence = kl_divergence(row, components).sum(-1)
    return -torch.logsumexp(p.log_weight.unsqueeze(1) - divergence, -1)


class SpikeSlabEncoder(Encoder):
    """An `Encoder` with twice the outputs, locations and log odds; it answers with mean and sd of q(z|x)."""

    def __init__(
        self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 64, missing: bool = False
    ):
        super().__init__(n_restarts, n_features, 2 * n_factors, hidden, missing)
        with torch.no_grad():  # start with most factors on: a factor that is off learns nothing
            self.location.bias[..., n_factors:] = 2.0  # type: ignore[index]

    def posterior(self, x: Tensor, mask: Tensor | None = None) -> ZeroOrNormal:
        """q(z | x) of each factor, batch shape (restart, row, factor)."""
        (loc, log_odds), (scale, _) = (t.chunk(2, -1) for t in super().forward(x, mask))
        return ZeroOrNormal(log_odds.clamp(-10.0, 10.0), loc, scale)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of q(z | x), each (restart, row, factor)."""
        q = self.posterior(x, mask)
        return q.mean, q.variance.clamp(min=1e-12).sqrt()


class VSC(VAE):
    r"""Variational Sparse Coding: a VAE whose rows use few factors.

    .. math:: q(z_i \mid x_i) = \prod_k \gamma_{ik} N(\mu_{ik}, \sigma_{ik}^2) + (1 - \gamma_{ik}) \delta_0,
              \qquad
              p(z) = \tfrac1U \sum_u e^{-K\, KL(\bar\gamma_u \| \alpha)} q(z \mid x_u)

    with pseudo-inputs :math:`x_u` learned and :math:`\bar\gamma_u` the average γ over the K factors of
    pseudo-input u.

    Parameters
    ----------
    n_features, n_factors, likelihood, hidden, encoder_hidden
        As in `VAE`.
    alpha : float
        Share of the factors a row is expected to use, in (0, 1).
    n_pseudo : int
        Number of pseudo-inputs U.
    data_start : bool
        As in `VAE`.

    Raises
    ------
    ValueError
        ``alpha`` outside (0, 1), ``n_pseudo < 1``, or impossible sizes.

    Notes
    -----
    The objective of Tonolini et al. (2020), with their classifier over pseudo-inputs replaced by its optimum
    (`_kl_pseudo_inputs`).  The divergence between two q is exact.
    `encoder` answers with the mean γμ and standard deviation of q, `posterior` with q itself.

    Examples
    --------
    >>> import torch
    >>> model = VSC(n_features=7, n_factors=2)
    >>> model.setup(n_restarts=3)
    >>> model.posterior(torch.zeros(10, 7)).gamma.shape
    torch.Size([3, 10, 2])
    """

    def __init__(
        self,
        n_features: int,
        n_factors: int,
        likelihood: str | Likelihood = "normal",
        hidden: int = 50,
        encoder_hidden: int = 64,
        alpha: float = 0.2,
        n_pseudo: int = 10,
        data_start: bool = True,
    ) -> None:
        super().__init__(n_features, n_factors, likelihood, hidden, encoder_hidden, data_start=data_start)
        if not 0 < alpha < 1:
            raise ValueError(f"alpha: got {alpha}, wanted a share of the factors between 0 and 1")
        if n_pseudo < 1:
            raise ValueError(f"n_pseudo: got {n_pseudo}, wanted at least 1")
        self.alpha, self.n_pseudo = float(alpha), int(n_pseudo)

    gaussian_guide = False

    def build(self, feature_names: list[str] | None) -> None:
        super().build(feature_names)
        shape = (self.n_restarts, self.n_features, self.n_factors)
        self.encoder = SpikeSlabEncoder(*shape, self.encoder_hidden, self.missing)
        self.pseudo_inputs = nn.Parameter(torch.randn(self.n_restarts, self.n_pseudo, self.n_features))

    def start(
        self,
        scores: Tensor,
        maps: Tensor,
        loadings: Tensor,
        intercept: Tensor,
        residual_sd: Tensor,
        bent: Tensor,
        unit: Tensor | float = 1.0,
    ) -> None:
        maps = maps / torch.as_tensor(unit).reshape(-1, 1)  # this encoder reads the features as they are
        maps = torch.cat([maps, torch.zeros_like(maps)], -1)  # nothing is known of the log odds
        super().start(scores, maps, loadings, intercept, residual_sd, bent, unit)

    def posterior(self, x: Tensor, mask: Tensor | None = None) -> ZeroOrNormal:
        """q(z | x) of each factor, batch shape (restart, row, factor)."""
        assert isinstance(self.encoder, SpikeSlabEncoder)
        return self.encoder.posterior(x, mask)

    def factor_prior(self) -> PseudoInputPrior:
        """The encoder at the pseudo-inputs, as a mixture: batch (restart, 1), event (factor,)."""
        components = self.posterior(self.pseudo_inputs)
        used = components.gamma.mean(-1)
        target = torch.full_like(used, self.alpha)
        dense = self.n_factors * kl_divergence(Bernoulli(used, validate_args=False), Bernoulli(target))
        return PseudoInputPrior(components, -math.log(self.n_pseudo) - dense)

    def factor_posterior(self, batch: Batch) -> TorchDistribution:
        """q(z | x) of each row, event (factor,): factors that may be zero."""
        return self.posterior(batch.x, batch.mask).to_event(1)
