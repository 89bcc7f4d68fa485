r"""A likelihood's own parameters in a chain: drawn from their conditional, not held where the fit left them.

The likelihood says what it believes of quantities :math:`v(\theta)` (`priors`, `values`), each an elementwise
function of one parameter; a step of the chain is in :math:`\theta`, whose density is

.. math:: p(\theta \mid f, x) \propto p(x \mid f, \theta)\, p(v(\theta))\, |\partial v / \partial \theta|.

A parameter of which no prior speaks, or
not of it alone, stays where it is, and the verdict says so: its uncertainty is then missing from every edge.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyro
import torch
from torch import Tensor, nn
from torch.distributions import Independent

from .cells import Cells

if TYPE_CHECKING:
    from ....likelihoods import Likelihood

__all__ = ["LikelihoodParameters"]

Parameters = tuple[Tensor, ...]
Module = TypeVar("Module", bound=nn.Module)

_STRIDES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # one step of each: some suit, however much the data say
# A walk whose stride is learned: steps in a sweep, where the stride begins, how fast it is learned, and which
# share of its steps is taken in the end.
_STEPS, _FIRST_STRIDE, _SPEED, _WANTED = 2, 0.3, 0.3, 0.44
_FAR, _HALVINGS = 1e4, 100  # where a value of the prior's is looked for, and how closely


class LikelihoodParameters:
    """Which parameters of a likelihood are drawn, and how.

    Parameters
    ----------
    likelihood : Likelihood
        Set up for the chains: parameters are (chain, 1, feature) or (chain, 1, 1).
    leave_out : collection of str
        Parameters that are neither drawn nor held, since something else stands for them.

    Attributes
    ----------
    drawn : dict of str to str
        Of each parameter that is drawn, the quantity that a prior speaks of.
    held : list of str
        Parameters that the fit learned and no prior speaks of, or not one alone.
    """

    def __init__(self, likelihood: Likelihood, leave_out: Collection[str] = ()):
        self.likelihood = copy.deepcopy(likelihood)
        self.drawn: dict[str, str] = {}
        self.held: list[str] = []
        learned = {
            name: p
            for name, p in self.likelihood.named_parameters()
            if p.requires_grad and name not in leave_out
        }
        priors = self.likelihood.priors() if learned else {}
        with torch.enable_grad():
            values = {q: v for q, v in self.likelihood.values().items() if q in priors} if learned else {}
        # of which family, and under which name there
        local = [(i, q) for i, (part, _) in enumerate(self.likelihood.families()) for q in part.priors()]
        self._of_family = dict(zip(priors, local, strict=True)) if priors else {}
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
        named = self._named(self.likelihood)
        values = {
            name: nn.Parameter(value.detach().to(named[name]), requires_grad=False)
            for name, value in zip(self.drawn, parameters, strict=True)
        }
        return _with_parameters(self.likelihood, values)

    def log_prior(self, parameters: Parameters) -> list[Tensor]:
        """Log density of each parameter, (chain, feature) or, of one for all or a joint prior, (chain, 1)."""
        likelihood = self.at(parameters)
        return [self._level(likelihood, name)() for name in self.drawn]

    def _level(self, likelihood: Likelihood, name: str) -> Callable[[], Tensor]:
        """The log prior density of one parameter as it is when asked."""
        part_number, quantity = self._of_family[self.drawn[name]]
        part, _ = likelihood.families()[part_number]
        p = self._named(likelihood)[name]
        with pyro.validation_enabled(False):
            density = part.priors()[quantity]
        elementwise = isinstance(density, Independent) and density.reinterpreted_batch_ndims == 1

        def level() -> Tensor:
            p.requires_grad_()
            with torch.enable_grad(), pyro.validation_enabled(False):
                value = part.values()[quantity]
                (slope,) = torch.autograd.grad(value.sum(), p)
                value = value.detach()
            p.requires_grad_(False)
            log_p = (
                density.base_dist.log_prob(value) if elementwise else density.log_prob(value).unsqueeze(-1)
            )
            log_slope = slope.abs().log().reshape(len(slope), -1)
            log_slope = log_slope if log_p.shape == log_slope.shape else log_slope.sum(-1, keepdim=True)
            return (log_p.detach() + log_slope).double()

        return level

    def moved(
        self,
        parameters: Parameters,
        cells: Cells,
        f: Tensor,
        noise: Tensor,
        rng: np.random.Generator,
        strides: dict[str, Tensor] | None = None,
        warm: bool = False,
    ) -> Parameters:
        """The next draw of each parameter given the predictors: two steps of a random walk of each.

        Parameters
        ----------
        parameters : tuple of Tensor
        cells : Cells
            The data; its likelihood's parameters do not matter.
        f : Tensor (chain, feature, row)
        noise : Tensor (chain, feature)
        rng : numpy.random.Generator
        strides : dict of str to Tensor, optional
            Of each parameter, as long as its draws are independent of each other: changed in place while
            `warm`, until 44 % of the steps are taken (Roberts, Gelman and Gilks 1997). Default a ladder of
            strides, which has nothing to learn and takes three times as long.
        warm : bool
        """
        likelihood = self.at(parameters)  # one object, whose parameters are put to what is tried
        named, families = self._named(likelihood), likelihood.families()
        views, of_data = {}, dict[int, Tensor]()
        for i, name in enumerate(self.drawn):
            part_number, _ = self._of_family[self.drawn[name]]
            if part_number not in views:
                views[part_number] = _view(cells, f, noise, *families[part_number])
            view, of_f, of_noise = views[part_number]
            prior_level, p = self._level(likelihood, name), named[name]

            def level(value: Tensor, data: Tensor | None = None) -> tuple[Tensor, Tensor]:
                p.data = value  # noqa: B023
                prior = prior_level()  # noqa: B023
                data = view.log_probs(of_f, of_noise) if data is None else data  # noqa: B023
                alone = prior.shape[-1] == data.shape[-1] == value.shape[-1]
                return data + prior if alone else data.sum(-1, keepdim=True) + prior, data

            now = parameters[i].to(p)
            # what the data say where the family's last parameter ended
            here, data = level(now, of_data.get(part_number))
            if strides is not None:
                strides.setdefault(name, torch.full_like(here, _FIRST_STRIDE))
            for stride in _STRIDES if strides is None else (strides[name],) * _STEPS:
                size = stride.unsqueeze(1) if isinstance(stride, Tensor) else stride
                step = torch.as_tensor(rng.standard_normal(tuple(p.shape)), device=here.device) * size
                tried = now + step.to(p)
                there, tried_data = level(tried)
                u = torch.as_tensor(rng.random(tuple(here.shape)), device=here.device)
                yes = u.log() < there - here  # not where there is no number
                here, data = torch.where(yes, there, here), torch.where(yes, tried_data, data)
                now = torch.where(yes.unsqueeze(1), tried, now)
                if warm and isinstance(stride, Tensor):
                    stride *= torch.exp(_SPEED * (yes.double() - _WANTED))
            p.data, of_data[part_number] = now, data
            parameters = _put(parameters, i, now)
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


def _with_parameters(module: Module, values: Mapping[str, nn.Parameter], prefix: str = "") -> Module:
    """A module with these parameters that shares all else with the one given."""
    changed = copy.copy(module)
    changed._parameters = {name: values.get(prefix + name, p) for name, p in module._parameters.items()}
    changed._modules = {
        name: inner if inner is None else _with_parameters(inner, values, f"{prefix}{name}.")
        for name, inner in module._modules.items()
    }
    return changed


def _view(
    cells: Cells, f: Tensor, noise: Tensor, part: Likelihood, columns: list[int] | None
) -> tuple[Cells, Tensor, Tensor]:
    """The data of one family of columns, with its f and its noise."""
    if columns is None:
        return replace(cells, likelihood=part), f, noise
    mask = None if cells.mask is None else cells.mask[:, columns]
    offset = None if cells.offset is None else cells.offset[:, columns]
    view = Cells(cells.x[:, columns], mask, cells.per_row, part, offset=offset)
    return view, f[:, columns], noise[:, columns]


def _put(parameters: Parameters, i: int, p: Tensor) -> Parameters:
    return (*parameters[:i], p, *parameters[i + 1 :])


def _depends(value: Tensor, parameter: Tensor) -> bool:
    if not value.requires_grad:
        return False
    ones = torch.ones_like(value)
    (gradient,) = torch.autograd.grad(value, parameter, ones, retain_graph=True, allow_unused=True)
    return gradient is not None
