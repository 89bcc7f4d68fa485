r"""What is not known of a likelihood's own parameters: edge probabilities averaged over it.

.. math:: p(\gamma \mid y) = \int p(\gamma \mid y, \phi)\, p(\phi \mid y)\, d\phi, \qquad
          p(\phi \mid y) \propto p(y \mid \phi)\, p(\phi)

:math:`\phi` are the parameters of one task (logarithms of gaps between cuts, say). Their posterior is taken
at the nodes of a normal rule, about where the evidence of expectation propagation has its mode, and weighed
by that evidence. With parameters held at their mode, tasks of few samples have edges that are too sure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc
from torch import nn

from ....likelihoods import Likelihood
from .rows import RowDraws, RowPosterior

__all__ = ["Coordinates", "averaged", "located", "node_rule"]

_ALONE, _PAIR, _MANY = 9, 3, 16  # nodes of one parameter, of each of two, of more (a power of 2)
_STEP = 0.5  # of the differences that find mode and spread: parameters are logarithms
_LEAST_SD, _MOST_SD, _FARTHEST = 0.05, 1.5, 1.5
_NEGLIGIBLE = 0.01  # weight of a node in every row, below which nothing is drawn from it

Array = NDArray[np.float64]


class Coordinates:
    """The parameters of each task, by number: tensors of a likelihood that have an entry for each.

    Parameters
    ----------
    likelihood : Likelihood
        Set up for the tasks; it is copied.
    n_tasks : int

    Attributes
    ----------
    count : int
        Parameters of the task that has most; others' further coordinates move nothing. 0 where what is
        known a priori of parameters cannot be told task by task.
    """

    def __init__(self, likelihood: Likelihood, n_tasks: int):
        self.likelihood, self.n_tasks = copy.deepcopy(likelihood), n_tasks
        self.tensors: list[list[tuple[nn.Parameter, NDArray[np.intp]]]] = []
        for part, columns in self.likelihood.families():
            of_part = np.arange(n_tasks) if columns is None else np.array(columns)
            of_tasks = [p for p in part.parameters() if p.numel() == p.shape[-1] == len(of_part)]
            for c, parameter in enumerate(of_tasks):
                if c == len(self.tensors):
                    self.tensors.append([])
                self.tensors[c].append((parameter, of_part))
        self.origin = [[p.detach().clone() for p, _ in of_number] for of_number in self.tensors]
        if self.log_prior() is None:
            self.tensors = []
        self.count = len(self.tensors)

    def at(self, shift: Array) -> Likelihood:
        """The likelihood with parameters so far (parameter, task) from where they were."""
        with torch.no_grad():
            for of_number, begun, by in zip(self.tensors, self.origin, shift, strict=True):
                for (parameter, columns), origin in zip(of_number, begun, strict=True):
                    parameter.copy_(origin + torch.as_tensor(by[columns]).to(origin))
        return copy.deepcopy(self.likelihood)

    def log_prior(self) -> Array | None:
        """Log density (task,) of the parameters themselves, of which the priors' values are functions."""
        total = np.zeros(self.n_tasks)
        priors = self.likelihood.priors()
        for name, value in self.likelihood.values().items():
            base = getattr(priors[name], "base_dist", None)
            of_value = [
                (slope, columns)
                for of_number in self.tensors
                for parameter, columns in of_number
                if (slope := _slope(value, parameter)) is not None
            ]
            if base is None or len(of_value) != 1 or value.numel() != len(of_value[0][1]):
                return None
            slope, columns = of_value[0]
            density = base.log_prob(value).detach().double().reshape(-1)
            total[columns] += (density + slope.abs().double().reshape(-1).clamp(min=1e-30).log()).numpy()
        return total


def _slope(value: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor | None:
    """Derivative of values by the parameter that they are elementwise functions of; None if they are not."""
    if not (value.requires_grad and parameter.requires_grad):
        return None
    (slope,) = torch.autograd.grad(value.sum(), parameter, allow_unused=True, retain_graph=True)
    return None if slope is None or not bool(slope.any()) else slope


def node_rule(count: int) -> tuple[Array, Array]:
    """Nodes (node, parameter) of independent standard normals, and the log weights (node,) of a mean.

    Parameters
    ----------
    count : int
        Parameters.
    """
    if count <= 2:
        x, mass = hermegauss(_ALONE if count == 1 else _PAIR)
        log_mass = np.log(mass / mass.sum())
        nodes = np.array(list(product(x, repeat=count)))
        return nodes, np.array([sum(terms) for terms in product(log_mass, repeat=count)])
    nodes = ndtri(np.clip(qmc.Sobol(count, seed=0).random(_MANY), 1e-6, 1 - 1e-6))
    return (nodes - nodes.mean(0)) / nodes.std(0), np.full(_MANY, -np.log(_MANY))


def located(log_density: Callable[[Array], Array], count: int, n_tasks: int) -> tuple[Array, Array]:
    """Where parameters have their mode, and how widely they spread, (parameter, task), by differences.

    Parameters
    ----------
    log_density : callable
        Of shifts (parameter, task) of the parameters, (task,).
    count, n_tasks : int
    """
    middle = log_density(np.zeros((count, n_tasks)))
    centre, sd = np.zeros((2, count, n_tasks))
    for c in range(count):
        step = np.zeros((count, n_tasks))
        step[c] = _STEP
        above, below = log_density(step), log_density(-step)
        bend = np.maximum((2 * middle - above - below) / _STEP**2, _MOST_SD**-2)
        centre[c] = np.clip((above - below) / (2 * _STEP) / bend, -_FARTHEST, _FARTHEST)
        sd[c] = np.clip(bend**-0.5, _LEAST_SD, _MOST_SD)
    return centre, sd


def averaged(posteriors: list[RowPosterior], log_weight: Array) -> RowPosterior:
    """Posteriors given parameters at some nodes as one, by their weights.

    Parameters
    ----------
    posteriors : list of RowPosterior
        Of (task, feature) rows.
    log_weight : ndarray (node, task)
        Whatever they add up to: that is the evidence.
    """
    evidence = logsumexp(log_weight, axis=0)
    weight = np.exp(log_weight - evidence)

    def mean(values: list[Array]) -> Array:
        stacked = np.stack(values)
        return (weight.reshape(*weight.shape, *[1] * (stacked.ndim - 2)) * stacked).sum(0)

    first = mean([p.weight_mean for p in posteriors])
    second = mean([p.weight_sd**2 + p.weight_mean**2 for p in posteriors])
    counts = weight.max(1) > _NEGLIGIBLE
    return RowPosterior(
        edge_prob=mean([p.edge_prob for p in posteriors]),
        weight_mean=first,
        weight_sd=np.sqrt(np.maximum(second - first**2, 0)),
        eta=mean([p.eta for p in posteriors]),
        noise_variance=posteriors[0].noise_variance,
        log_evidence=evidence,
        converged=np.all(
            [p.converged | (w < _NEGLIGIBLE) for p, w in zip(posteriors, weight, strict=True)], 0
        ),
        gap=mean([p.gap for p in posteriors]),
        sampler=_sampler([p for p, at in zip(posteriors, counts, strict=True) if at], weight[counts]),
    )


def _sampler(posteriors: list[RowPosterior], weight: Array) -> Callable[[int, np.random.Generator], RowDraws]:
    def sample(n: int, rng: np.random.Generator) -> RowDraws:
        above = np.cumsum(weight / weight.sum(0), axis=0)
        ends = np.floor(n * above + rng.random(weight.shape[1])).astype(int).clip(max=n)
        ends[-1] = n
        counts = np.diff(ends, axis=0, prepend=0)
        draws = [p.sampler(max(1, int(c.max())), rng) for p, c in zip(posteriors, counts, strict=True)]
        # Of each task as many as its weights say, from one node after the other.
        edge = _joined([drawn.edge for drawn in draws], counts)
        w = _joined([drawn.weight for drawn in draws], counts)
        order = rng.permuted(np.tile(np.arange(n)[:, None], (1, weight.shape[1])), axis=0)
        row = np.arange(weight.shape[1])
        return RowDraws(edge[order, row], w[order, row])

    return sample


def _joined(values: list[NDArray[Any]], counts: NDArray[np.intp]) -> NDArray[Any]:
    """The first draws (draw, task, feature) of each node, of each task as many as `counts` (node, task)."""
    tasks = [
        np.concatenate([of_node[: count[t], t] for of_node, count in zip(values, counts, strict=True)])
        for t in range(counts.shape[1])
    ]
    return np.stack(tasks, axis=1)
