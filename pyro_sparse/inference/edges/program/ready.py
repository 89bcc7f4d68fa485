r"""A `SparseDecoder` as the program that chains sample, in the parts that users write programs with.

.. math:: \eta_k \sim \mathrm{Beta}(a, b), \quad w_{jk} \sim \text{spike and slab}(\eta_k), \quad
          c_j \sim N(0, s_c^2), \quad z_n \sim N(0, I), \quad x_{nj} \sim p(\cdot \mid f_j(z_n), \phi_j)

with f as in `DecoderPrior`, and for normal noise :math:`\phi_j \sim \mathrm{InvGamma}`. The special chains
of a decoder are tested against the engine on this program, and a change to the model becomes a change to
these lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ....programs.program import Program
from ....programs.sites import edges, factors, sample
from ..density.rates import rate_prior
from ..mcmc.initialise import DecoderPrior, has_normal_noise, refuse_other_programs

if TYPE_CHECKING:
    from ....likelihoods import Normal
    from ....models import SparseDecoder
    from ....priors import SpikeSlabPrior
    from ....programs.data import DataView

__all__ = ["decoder_program"]

_LARGEST = 12.0  # linear predictor of counts, as in the chains' own density


def decoder_program(model: SparseDecoder, prior: DecoderPrior | None = None) -> Program:
    """The program of a sparse decoder with uncorrelated factors, of data in model units.

    Parameters
    ----------
    model : SparseDecoder
        Set up, with a spike-and-slab prior of normal or Laplace densities, and normal noise, Bernoulli or
        Poisson cells.
    prior : DecoderPrior, optional
        Of the decoder's layers.

    Raises
    ------
    ValueError
        The model's density is not that of its class, or its likelihood is none of these.
    """
    refuse_other_programs(model)
    layers, weight_prior = prior or DecoderPrior(), cast("SpikeSlabPrior", model.prior)
    scales = weight_prior.scales()
    if scales is None or weight_prior.shared or weight_prior.informed:
        raise ValueError(
            "prior: want one of normal or Laplace densities with a rate for each factor and no edge_odds"
        )
    family = dist.Laplace if scales.family == "laplace" else dist.Normal
    a, b = (torch.as_tensor(value, dtype=torch.float64) for value in rate_prior(weight_prior))
    permitted, required = model.permitted, model.must
    constraints = {} if bool(permitted.all()) and not bool(required.any()) else {
        "permitted": permitted, "required": required,
    }  # fmt: skip
    decode = _decoder(model, layers)
    cells = _cells(model)

    def program(d: DataView) -> None:
        k = torch.ones(d.n_factors)
        eta = sample("eta", dist.Beta(a.to(k) * k, b.to(k) * k).to_event(1), each="factor")
        with d.features:
            slab, spike = family(0.0, scales.slab), family(0.0, scales.spike)
            weight = edges(
                "W", log_odds=torch.logit(eta), slab=slab, spike=spike, to=d.factors, **constraints
            )
        decoded = decode(d, weight)
        with d.rows:
            z = factors("z", dist.Normal(0 * k, 1.0))
        cells(d, decoded(z))

    return Program(program, model.n_factors)


def _decoder(
    model: SparseDecoder, layers: DecoderPrior
) -> Callable[[DataView, Tensor], Callable[[Tensor], Tensor]]:
    """Of data and weights the decoder, a function of factors, its layers drawn."""
    hidden = model.hidden
    activations: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}

    def linear(d: DataView, weight: Tensor) -> Callable[[Tensor], Tensor]:
        with d.features:
            intercept = pyro.sample("c", dist.Normal(0.0, layers.intercept))
        return lambda z: z @ weight.mT + intercept

    def curved(d: DataView, weight: Tensor) -> Callable[[Tensor], Tensor]:
        act = activations[model.activation]
        unit = torch.ones(())
        A = sample("A", dist.Normal(0.0, layers.first).expand([d.n_factors, hidden]).to_event(2))
        B = sample(
            "B", dist.Normal(0.0, layers.second * hidden**-0.5 * unit).expand([hidden, hidden]).to_event(2)
        )
        bias = sample("bias", dist.Normal(0.0, layers.bias).expand([hidden]).to_event(1))
        with d.features:
            intercept = pyro.sample("c", dist.Normal(0.0, layers.intercept))
            slope = pyro.sample("slope", dist.Normal(0.0, layers.slope))
            head = sample(
                "head", dist.Normal(0.0, layers.head * hidden**-0.5 * unit).expand([hidden]).to_event(1)
            )

        def decoded(z: Tensor) -> Tensor:
            gated = z.unsqueeze(-2) * weight  # row, feature, factor
            units = act(bias + act(gated @ A) @ B)
            return intercept + slope * gated.sum(-1) + (units * head).sum(-1)

        return decoded

    return linear if model.decoder_kind == "linear" else curved


def _cells(model: SparseDecoder) -> Callable[[DataView, Tensor], Any]:
    """Of data and linear predictors the statement that observes the cells."""
    likelihood = model.likelihood
    if has_normal_noise(likelihood):
        noise = cast("Normal", likelihood)
        shape, scale = torch.tensor(float(noise.prior_shape)), torch.tensor(float(noise.prior_scale))

        def normal(d: DataView, f: Tensor) -> None:
            with d.features:
                variance = pyro.sample("noise", dist.InverseGamma(shape, scale))
            with d.rows, d.features:
                pyro.sample("x", dist.Normal(f, variance.sqrt()).mask(d.seen), obs=d.x)

        return normal
    families = {
        "bernoulli": lambda f: dist.Bernoulli(logits=f),
        "poisson": lambda f: dist.Poisson(f.clamp(max=_LARGEST).exp()),
    }
    if likelihood.name not in families:
        raise ValueError(
            f"likelihood: {likelihood.name!r} has no program here; want normal, bernoulli or poisson"
        )

    def one_number(d: DataView, f: Tensor) -> None:
        with d.rows, d.features:
            pyro.sample("x", families[likelihood.name](f).mask(d.seen), obs=d.x)

    return one_number
