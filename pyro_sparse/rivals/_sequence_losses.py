r"""What each sequence baseline minimises, first as functions of tensors, then with the networks they need.

All posteriors are diagonal Gaussians given by `loc` and `log_sd`; all figures are in nats and summed over
latents, so that with every weight at 1 a variational baseline minimises a negative evidence lower bound and
nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..nets.transition import FrameDecoder, FrameEncoder, GatedTransition, SineTransition

__all__ = [
    "METHODS",
    "Decomposition",
    "Encoder",
    "Rows",
    "decomposed_divergence",
    "expected_distance",
    "gaussian_divergence",
    "laplace_divergence",
    "permutation_contrast",
]

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_FLOOR = 0.002  # of the noise sd of a standardised feature, as in `LatentTransition`


def gaussian_divergence(loc: Tensor, log_sd: Tensor, prior_loc: Tensor, prior_log_sd: Tensor) -> Tensor:
    r"""KL of one diagonal Gaussian from another, iVAE's divergence once the prior depends on u.

    .. math:: \sum_k \log\frac{s_k}{\sigma_k} + \frac{\sigma_k^2 + (\mu_k - m_k)^2}{2 s_k^2} - \frac12

    Parameters
    ----------
    loc, log_sd : Tensor (..., latent)
        :math:`\mu, \log\sigma` of the posterior.
    prior_loc, prior_log_sd : Tensor (..., latent)
        :math:`m, \log s` of the prior.

    Returns
    -------
    Tensor (...)

    References
    ----------
    Khemakhem, Kingma, Monti & Hyvärinen (2020), Variational autoencoders and nonlinear ICA: a unifying
    framework, AISTATS; the prior is its factorised exponential family with a Gaussian's two statistics.
    """
    apart = (loc - prior_loc) * (-prior_log_sd).exp()
    ratio = log_sd - prior_log_sd
    return (0.5 * ((2 * ratio).exp() + apart**2 - 1) - ratio).sum(-1)


class Decomposition(NamedTuple):
    """The averaged divergence of a posterior from N(0, I) in three parts.

    Parameters
    ----------
    mutual_information : Tensor ()
        Of row and latents.
    total_correlation : Tensor ()
        Of the latents under the aggregate posterior.
    dimensionwise : Tensor ()
        Divergence of each latent's aggregate posterior from N(0, 1), summed.
    """

    mutual_information: Tensor
    total_correlation: Tensor
    dimensionwise: Tensor


def decomposed_divergence(z: Tensor, loc: Tensor, log_sd: Tensor, total: int) -> Decomposition:
    r"""β-TCVAE's decomposition, with minibatch-weighted estimates of the aggregate posterior.

    .. math:: \log q(z_i) \approx \log \frac{1}{NM} \sum_{j=1}^M q(z_i \mid x_j), \qquad
              \log q(z_{ik}) \approx \log \frac{1}{NM} \sum_{j=1}^M q(z_{ik} \mid x_j)

    The three parts add up to the draws' :math:`\log q(z \mid x) - \log p(z)`.

    Parameters
    ----------
    z : Tensor (row, latent)
        A draw for each row of the minibatch.
    loc, log_sd : Tensor (row, latent)
        Posterior it comes from.
    total : int
        N, rows of the full data.

    Returns
    -------
    Decomposition

    References
    ----------
    Chen, Li, Grosse & Duvenaud (2018), Isolating sources of disentanglement in variational autoencoders,
    arXiv 1802.04942, equations 2 and 3.
    """
    apart = (z.unsqueeze(1) - loc) * (-log_sd).exp()  # [i, j] is the draw of row i under row j's posterior
    log_q = -0.5 * apart**2 - log_sd - _HALF_LOG_TWO_PI
    weight = math.log(total * len(z))
    joint = log_q.sum(-1).logsumexp(1) - weight
    marginals = (log_q.logsumexp(1) - weight).sum(-1)
    posterior = log_q.diagonal(dim1=0, dim2=1).sum(0)
    prior = (-0.5 * z**2 - _HALF_LOG_TWO_PI).sum(-1)
    return Decomposition((posterior - joint).mean(), (joint - marginals).mean(), (marginals - prior).mean())


def expected_distance(apart: Tensor, sd: Tensor) -> Tensor:
    r"""Mean of :math:`|d|`, :math:`d \sim N(\delta, s^2)`: a folded Gaussian's.

    .. math:: s \sqrt{2/\pi}\, e^{-\delta^2 / 2 s^2} + \delta\, \mathrm{erf}(\delta / s \sqrt 2)

    Parameters
    ----------
    apart, sd : Tensor
        :math:`\delta` and s, of any one shape.
    """
    scaled = apart / (sd * math.sqrt(2))
    return sd * math.sqrt(2 / math.pi) * (-(scaled**2)).exp() + apart * torch.erf(scaled)


def laplace_divergence(loc: Tensor, log_sd: Tensor, rate: float) -> Tensor:
    r"""SlowVAE's divergence of each frame but the first from a Laplace around the frame before it.

    .. math:: E_{q(z_{t-1})} KL\big(q(z_t) \,\|\, p(z_t \mid z_{t-1})\big), \qquad
              p(z_{tk} \mid z_{t-1,k}) = \tfrac\lambda2 e^{-\lambda |z_{tk} - z_{t-1,k}|}

    Both frames' posteriors are Gaussian, so their difference is, and the expectation over *both* is in closed
    form; as published, the earlier frame is a draw.

    Parameters
    ----------
    loc, log_sd : Tensor (sequence, time, latent)
        Posterior of every frame.
    rate : float
        λ.

    Returns
    -------
    Tensor (sequence, time - 1)

    References
    ----------
    Klindt et al. (2021), Towards nonlinear disentanglement in natural data with temporal sparse coding,
    ICLR, arXiv 2007.10930.
    """
    sd = log_sd.exp()
    between = torch.hypot(sd[:, 1:], sd[:, :-1])
    cross = rate * expected_distance(loc[:, 1:] - loc[:, :-1], between) - math.log(rate / 2)
    entropy = log_sd[:, 1:] + _HALF_LOG_TWO_PI + 0.5
    return (cross - entropy).sum(-1)


def permutation_contrast(
    now: Tensor, past: Tensor, permutation: Tensor, regression: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    r"""PCL's logistic loss: tell a frame with its own past from a frame with another one's.

    .. math:: -\log \varsigma\big(r(x_t, x_{t-1})\big) - \log \varsigma\big(-r(x_t, x_{t^*})\big), \qquad
              r(x, x') = \sum_k B_k\big(h_k(x), h_k(x')\big)

    Parameters
    ----------
    now, past : Tensor (pair, latent)
        h of the two frames of every real pair.
    permutation : Tensor of int (pair,)
        Whose past each frame gets in the second term.
    regression : callable
        r, of the shape of `now` to (pair,).

    Returns
    -------
    Tensor ()
        Mean over pairs.

    References
    ----------
    Hyvärinen & Morioka (2017), Nonlinear ICA of temporally dependent stationary sources, AISTATS.
    """
    return (softplus(-regression(now, past)) + softplus(regression(now, past[permutation]))).mean()


# ---- the methods: data, networks and a loss ----------------------------------------------------------------
class Rows(NamedTuple):
    """Standardised sequences, or some of them."""

    x: Tensor  # (sequence, time, feature)
    actions: Tensor | None  # (sequence, time, action)
    latents: Tensor | None  # (sequence, time, latent)

    def pick(self, index: Tensor) -> Rows:
        return Rows(*(None if tensor is None else tensor[index] for tensor in self))  # type: ignore[arg-type]

    def frames(self) -> Rows:
        """Each frame a sequence of its own."""
        return Rows(*(None if tensor is None else tensor.flatten(0, 1).unsqueeze(1) for tensor in self))  # type: ignore[arg-type]


class Encoder(nn.Module):
    """An encoder with a diagonal posterior: by itself the method "random"."""

    framewise = False

    def __init__(self, rows: Rows, n_latents: int, hidden: int):
        super().__init__()
        self.encoder = FrameEncoder(1, rows.x.shape[-1], n_latents, hidden)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Location and log-sd (..., latent) of frames (..., feature)."""
        loc, factor, _ = self.encoder(x.reshape(-1, x.shape[-1]))
        log_sd = factor.diagonal(dim1=-2, dim2=-1).log()
        return loc.reshape(*x.shape[:-1], -1), log_sd.reshape(*x.shape[:-1], -1)

    def loss(self, rows: Rows) -> Tensor:
        raise NotImplementedError


class _Supervised(Encoder):
    """Least squares of the true latents on the frame."""

    framewise = True

    def loss(self, rows: Rows) -> Tensor:
        return nn.functional.mse_loss(self.posterior(rows.x)[0], rows.latents)  # type: ignore[arg-type]


class _PCL(Encoder):
    """Permutation-contrastive learning; B_k is a line and sines of its two arguments."""

    def __init__(self, rows: Rows, n_latents: int, hidden: int, units: int):
        super().__init__(rows, n_latents, hidden)
        self.regressors = GatedTransition(1, 2 * n_latents, n_latents, units)
        self.register_buffer("graph", torch.eye(n_latents).repeat(1, 1, 2))

    graph: Tensor

    def regression(self, now: Tensor, past: Tensor) -> Tensor:
        """Sum of B_k(now_k, past_k), (pair,)."""
        return self.regressors(torch.cat([now, past], -1).unsqueeze(0), self.graph)[0][0].sum(-1)

    def loss(self, rows: Rows) -> Tensor:
        h, _ = self.posterior(rows.x)
        now, past = h[:, 1:].flatten(0, 1), h[:, :-1].flatten(0, 1)
        return permutation_contrast(now, past, torch.randperm(len(now)), self.regression)


class _VAE(Encoder):
    """Encoder, decoder, Gaussian noise with an sd for each feature; the divergence is the subclass's."""

    def __init__(self, rows: Rows, n_latents: int, hidden: int):
        super().__init__(rows, n_latents, hidden)
        self.decoder = FrameDecoder(1, n_latents, rows.x.shape[-1], hidden)
        self.log_noise = nn.Parameter(torch.full((rows.x.shape[-1],), math.log(0.45)))

    def loss(self, rows: Rows) -> Tensor:
        """Negative bound per sequence."""
        loc, log_sd = self.posterior(rows.x)
        z = loc + log_sd.exp() * torch.randn_like(loc)
        noise = _FLOOR + self.log_noise.exp()
        f = self.decoder(z.reshape(1, -1, z.shape[-1])).reshape(rows.x.shape)
        misfit = 0.5 * ((rows.x - f) / noise) ** 2 + noise.log() + 0.5 * math.log(2 * math.pi)
        return misfit.sum((1, 2)).mean() + self.divergence(loc, log_sd, z, rows)

    def divergence(self, loc: Tensor, log_sd: Tensor, z: Tensor, rows: Rows) -> Tensor:
        raise NotImplementedError


class _IVAE(_VAE):
    """Prior N(m(u), s²(u)) with u the frame before, where there is one, and the action, where there are any.

    The first frame of a sequence with a past has the prior N(0, I).
    """

    def __init__(self, rows: Rows, n_latents: int, hidden: int, units: int):
        super().__init__(rows, n_latents, hidden)
        self.prior = SineTransition(1, self.auxiliary(rows).shape[-1], 2 * n_latents, units)

    @staticmethod
    def auxiliary(rows: Rows) -> Tensor:
        """u of every frame that has one, (sequence, time or time - 1, input)."""
        past = rows.x.shape[1] > 1
        previous = [rows.x[:, :-1]] if past else []
        return torch.cat(previous + ([] if rows.actions is None else [rows.actions[:, int(past) :]]), -1)

    def divergence(self, loc: Tensor, log_sd: Tensor, z: Tensor, rows: Rows) -> Tensor:
        u = self.auxiliary(rows)
        out = self.prior(u.reshape(1, -1, u.shape[-1])).reshape(*u.shape[:-1], -1)
        first = loc.shape[1] - u.shape[1]
        prior_loc, prior_log_sd = (
            torch.cat([torch.zeros_like(loc[:, :first]), moment], 1) for moment in out.chunk(2, -1)
        )
        # the range that `FrameEncoder` keeps posteriors in
        return gaussian_divergence(loc, log_sd, prior_loc, prior_log_sd.clamp(-9, 2)).sum(1).mean()


class _BetaTCVAE(_VAE):
    """N(0, I), with the total correlation weighed by beta."""

    framewise = True

    def __init__(self, rows: Rows, n_latents: int, hidden: int, beta: float):
        super().__init__(rows, n_latents, hidden)
        self.beta, self.total = beta, len(rows.x)

    def divergence(self, loc: Tensor, log_sd: Tensor, z: Tensor, rows: Rows) -> Tensor:
        terms = decomposed_divergence(z[:, 0], loc[:, 0], log_sd[:, 0], self.total)
        return terms.mutual_information + self.beta * terms.total_correlation + terms.dimensionwise


class _SlowVAE(_VAE):
    """N(0, I) for the first frame, weighed by beta; a Laplace of steps for the others, weighed by gamma."""

    def __init__(self, rows: Rows, n_latents: int, hidden: int, beta: float, gamma: float, rate: float):
        super().__init__(rows, n_latents, hidden)
        self.beta, self.gamma, self.rate = beta, gamma, rate

    def divergence(self, loc: Tensor, log_sd: Tensor, z: Tensor, rows: Rows) -> Tensor:
        none = torch.zeros_like(loc[:, 0])
        first = gaussian_divergence(loc[:, 0], log_sd[:, 0], none, none)
        steps = laplace_divergence(loc, log_sd, self.rate).sum(1)
        return (self.beta * first + self.gamma * steps).mean()


# networks, and options with their defaults
METHODS: dict[str, tuple[type[Encoder] | None, dict[str, Any]]] = {
    "ivae": (_IVAE, {"units": 128}),
    "beta_tcvae": (_BetaTCVAE, {"beta": 4.0}),
    "slow_vae": (_SlowVAE, {"beta": 1.0, "gamma": 10.0, "rate": 6.0}),
    "pcl": (_PCL, {"units": 64}),
    "supervised": (_Supervised, {}),
    "random": (Encoder, {}),
    "mask_off": (None, {"units": 128}),
}
