r"""A likelihood's own parameters in a chain: drawn from their conditional, not held where the fit left them.

The likelihood says what it believes of quantities :math:`v(\theta)` (`priors`, `values`), each an elementwise
function of one parameter; a step of the chain is in :math:`\theta`, whose density is

.. math:: p(\theta \mid f, x) \propto p(x \mid f, \theta)\, p(v(\theta))\, |\partial v / \partial \theta|.

Random walks with strides of several lengths have nothing to tune. A parameter of which no prior speaks, or
not of it alone, stays where it is, and the verdict says so: its uncertainty is then missing from every edge.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyro
import torch
from torch import Tensor, nn
from torch.distributions import Independent

if TYPE_CHECKING:
    from ....likelihoods import Likelihood

__all__ = ["LikelihoodParameters"]

Parameters = tuple[Tensor, ...]

_STRIDES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # one step of each: some suit, however much the data say
_FAR, _HALVINGS = 1e4, 100  # where a value of the prior's is looked for, and how closely


class LikelihoodParameters:
    """Which parameters of a likelihood are drawn, and how.

    Parameters
    ----------
    likelihood : Likelihood
        Set up for the chains: parameters are (chain, 1, feature) or (chain, 1, 1).

    Attributes
    ----------
    drawn : dict of str to str
        Of each parameter that is drawn, the quantity that a prior speaks of.
    held : list of str
        Parameters that the fit learned and no prior speaks of, or not one alone.
    """

    def __init__(self, likelihood: Likelihood):
        self.likelihood = copy.deepcopy(likelihood)
        self.drawn: dict[str, str] = {}
        self.held: list[str] = []
        learned = {name: p for name, p in self.likelihood.named_parameters() if p.requires_grad}
        priors = self.likelihood.priors() if learned else {}
        with torch.enable_grad():
            values = {q: v for q, v in self.likelihood.values().items() if q in priors} if learned else {}
        quantities_of = {
            name: [q for q, v in values.items() if _depends(v, p)] for name, p in learned.items()
        }
        mentions = [q for quantities in quantities_of.values() for q in quantities]
        for name, quantities in quantities_of.items():
            alone = len(quantities) == 1 and mentions.count(quantities[0]) == 1
            if alone and values[quantities[0]].numel() == learned[name].numel():
                self.drawn[name] = quantities[0]
            else:
                self.held.append(name)

    def start(self) -> Parameters:
        """The parameters that are drawn, as the fit left them."""
        return tuple(self._named(self.likelihood)[name].detach().clone() for name in self.drawn)

    def at(self, parameters: Parameters) -> Likelihood:
        """The likelihood with these parameters."""
        likelihood = copy.deepcopy(self.likelihood)
        named = self._named(likelihood)
        for name, value in zip(self.drawn, parameters, strict=True):
            named[name].data = value.to(named[name])
        return likelihood.requires_grad_(False)

    def log_prior(self, parameters: Parameters) -> list[Tensor]:
        """Log density of each parameter, (chain, feature) or, of one for all or a joint prior, (chain, 1)."""
        likelihood = self.at(parameters)
        named, log_densities = self._named(likelihood), []
        for name, quantity in self.drawn.items():
            p = named[name].requires_grad_()
            with torch.enable_grad(), pyro.validation_enabled(False):
                value = likelihood.values()[quantity]
                (slope,) = torch.autograd.grad(value.sum(), p)
                density, value = likelihood.priors()[quantity], value.detach()
            p.requires_grad_(False)
            elementwise = isinstance(density, Independent) and density.reinterpreted_batch_ndims == 1
            log_p = (
                density.base_dist.log_prob(value) if elementwise else density.log_prob(value).unsqueeze(-1)
            )
            log_slope = slope.abs().log().reshape(len(slope), -1)
            log_slope = log_slope if log_p.shape == log_slope.shape else log_slope.sum(-1, keepdim=True)
            log_densities.append((log_p.detach() + log_slope).double())
        return log_densities

    def moved(
        self, parameters: Parameters, log_cells: Callable[[Likelihood], Tensor], rng: np.random.Generator
    ) -> Parameters:
        """The next draw of each parameter given the predictors.

        Parameters
        ----------
        parameters : tuple of Tensor
        log_cells : callable
            Log-likelihood (chain, feature) under a likelihood, summed over rows.
        rng : numpy.random.Generator
        """
        for i, p in enumerate(parameters):

            def level(parameters: Parameters, i: int = i, p: Tensor = p) -> Tensor:
                data, prior = log_cells(self.at(parameters)).double(), self.log_prior(parameters)[i]
                alone = prior.shape[-1] == data.shape[-1] == p.shape[-1]
                return data + prior if alone else data.sum(-1, keepdim=True) + prior

            here = level(parameters)
            for stride in _STRIDES:
                step = torch.as_tensor(stride * rng.standard_normal(tuple(p.shape))).to(p)
                tried = _put(parameters, i, parameters[i] + step)
                there = level(tried)
                u = torch.as_tensor(rng.random(tuple(here.shape)), device=here.device)
                yes = u.log() < there - here  # not where there is no number
                here = torch.where(yes, there, here)
                parameters = _put(parameters, i, torch.where(yes.unsqueeze(1), tried[i], parameters[i]))
        return parameters

    def from_prior(self) -> Parameters:
        """Draws from the priors alone; each quantity must rise or fall with its parameter.

        Raises
        ------
        ValueError
            No parameter gives the value that was drawn.
        """
        parameters = self.start()
        for i, (name, quantity) in enumerate(self.drawn.items()):
            wanted = self.likelihood.priors()[quantity].sample().reshape(parameters[i].shape)
            low, high = torch.full_like(parameters[i], -_FAR), torch.full_like(parameters[i], _FAR)
            rising = self._value(parameters, i, high) > self._value(parameters, i, low)
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                above = (self._value(parameters, i, middle) > wanted) == rising
                low, high = torch.where(above, low, middle), torch.where(above, middle, high)
            if not torch.allclose(self._value(parameters, i, high), wanted, rtol=1e-3, atol=1e-6):
                raise ValueError(
                    f"likelihood: no {name} in -{_FAR:g} to {_FAR:g} gives {quantity} the value that its "
                    "prior drew; want a value that rises or falls with its parameter and a prior that keeps "
                    "to its range"
                )
            parameters = _put(parameters, i, high)
        return parameters

    def _value(self, parameters: Parameters, i: int, p: Tensor) -> Tensor:
        """The quantity of parameter `i` if that were `p`, in its shape."""
        quantity = [*self.drawn.values()][i]
        return self.at(_put(parameters, i, p)).values()[quantity].reshape(p.shape)

    @staticmethod
    def _named(likelihood: Likelihood) -> dict[str, nn.Parameter]:
        return dict(likelihood.named_parameters())


def _put(parameters: Parameters, i: int, p: Tensor) -> Parameters:
    return (*parameters[:i], p, *parameters[i + 1 :])


def _depends(value: Tensor, parameter: Tensor) -> bool:
    if not value.requires_grad:
        return False
    ones = torch.ones_like(value)
    (gradient,) = torch.autograd.grad(value, parameter, ones, retain_graph=True, allow_unused=True)
    return gradient is not None
