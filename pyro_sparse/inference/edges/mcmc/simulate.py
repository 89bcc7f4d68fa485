"""A masked decoder and a table drawn from the program that the chains sample: what they should give back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit

from ....likelihoods import NegativeBinomial
from ..density.curves import Trunk
from ..density.likelihood_parameters import LikelihoodParameters
from ..density.rates import rate_prior
from .initialise import DecoderPrior, has_normal_noise, refuse_other_programs, weight_density
from .kernels import curve_loadings

if TYPE_CHECKING:
    from ....likelihoods import Likelihood, Normal
    from ....models import SparseDecoder
    from ....priors import SpikeSlabPrior

__all__ = ["DrawnDecoder", "draw_decoder"]


class DrawnDecoder(NamedTuple):
    """One draw.

    Attributes
    ----------
    edge : ndarray of bool (feature, factor)
    weight : ndarray (feature, factor)
    loading : ndarray (feature, factor)
        In the units of the chains' draws: the signed root of the share of the feature's variance.
    z : ndarray (row, factor)
    x : ndarray (row, feature)
        In model units. A column of counts that came out constant has its first cell changed by one, since no
        fit takes it.
    """

    edge: NDArray[np.bool_]
    weight: NDArray[np.float64]
    loading: NDArray[np.float64]
    z: NDArray[np.float64]
    x: NDArray[np.float64]


@torch.no_grad()
def draw_decoder(
    model: SparseDecoder, n_rows: int, rng: np.random.Generator, prior: DecoderPrior | None = None
) -> DrawnDecoder:
    """Rates, edges, weights, layers, noise, factors and cells, one after the other.

    Parameters
    ----------
    model : SparseDecoder
        It is set up anew. Its factors are drawn uncorrelated; parameters of its likelihood of which no prior
        speaks stay where a fit starts.
    n_rows : int
    rng : numpy.random.Generator
    prior : DecoderPrior, optional
        Of the decoder's layers.

    Raises
    ------
    ValueError
        The model's prior has no spike and slab; its program is not the one that is drawn from; its likelihood
        has a prior that no parameter can reach.
    """
    prior = DecoderPrior() if prior is None else prior
    weight_prior = cast("SpikeSlabPrior", model.prior)
    density = weight_density(weight_prior)
    model.setup(n_restarts=1, n_samples=n_rows)
    refuse_other_programs(model)
    permitted, must = model.permitted.numpy(), model.must.numpy()
    a, b = rate_prior(weight_prior)
    eta = rng.beta(a[:1], b[:1]) if weight_prior.shared else rng.beta(a, b)
    rate = expit(logit(eta) + weight_prior.known.numpy())
    edge = ((rng.random(permitted.shape) < rate) | must) & permitted
    weight = density.drawn(edge, rng) * permitted
    z = rng.standard_normal((n_rows, model.n_factors))

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values), dtype=torch.float32).unsqueeze(0)

    curve = prior.curve(model)
    k, h = (model.n_factors, curve.hidden) if curve.activation else (1, 1)
    trunk = Trunk(*(tensor(rng.standard_normal(size)) for size in ((k, h), (h, h), (1, h))))
    sd = curve.head_precision(torch.zeros(1)).numpy() ** -0.5
    head = tensor(sd * rng.standard_normal((model.n_features, len(sd))))

    def value(z: torch.Tensor) -> torch.Tensor:
        return curve.value(z, tensor(weight), trunk, head)

    predictor = value(tensor(z))
    f = predictor.mT
    spread: torch.Tensor | float = 1.0
    likelihood = model.likelihood
    if has_normal_noise(likelihood):
        normal = cast("Normal", likelihood)
        shape = 1 if normal.shared else model.n_features
        drawn = normal.prior_scale / rng.gamma(normal.prior_shape, size=shape)
        noise = np.broadcast_to(drawn, model.n_features).copy()
        spread = tensor(noise)
        x = f[0].double().numpy() + np.sqrt(noise) * rng.standard_normal(f.shape[1:])
    else:
        for part, _ in likelihood.families():
            _draw_parameters(part, rng)
        # A ceiling that the chains' program does not have: counts at it make edges too sure (NOTEBOOK.md).
        x = likelihood.observation(f.clamp(max=12.0)).sample()[0].double().numpy()
        still = np.ptp(x, axis=0) == 0
        x[0, still] += np.where(x[0, still] > 0, -1, 1)
        spread = likelihood.variance_beside()
    if has_normal_noise(likelihood) and not curve.activation:
        loading = weight / np.sqrt((weight**2).sum(1) + noise)[:, None]
    else:
        loading = curve_loadings(value, tensor(z), predictor, spread, rng)[0].double().numpy()
    return DrawnDecoder(edge, weight, loading, z, x)


def _draw_parameters(likelihood: Likelihood, rng: np.random.Generator) -> None:
    """Put a likelihood's parameters at draws from their priors."""
    if isinstance(
        likelihood, NegativeBinomial
    ):  # beyond the ends of `log_theta` there is nothing to look for
        extra = np.abs(likelihood.prior_scale * rng.standard_normal(likelihood.log_theta.shape))
        likelihood.log_theta.copy_(torch.as_tensor(-2 * np.log(extra)))
    parameters = LikelihoodParameters(likelihood, leave_out=("log_theta",))
    named = dict(likelihood.named_parameters())
    for name, value in zip(parameters.drawn, parameters.from_prior(), strict=True):
        named[name].copy_(value)
