"""Outcomes of some tasks, laid out by task, under a likelihood whose columns are all tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..likelihoods import Likelihood

__all__ = ["TaskOutcomes"]


class TaskOutcomes(TorchDistribution):
    """Outcomes given their linear predictors: batch shape (..., task, sample).

    Parameters
    ----------
    likelihood : Likelihood
        Set up, with a column for each of `total` tasks.
    predictor : Tensor (..., task, sample)
        Of some of them.
    index : Tensor of int (task,)
        Which.
    total : int
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.real

    def __init__(self, likelihood: Likelihood, predictor: Tensor, index: Tensor, total: int) -> None:
        self.likelihood, self.predictor, self.index, self.total = likelihood, predictor, index, total
        super().__init__(predictor.shape, validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> TaskOutcomes:
        """The same of a larger batch."""
        predictor = self.predictor.expand(torch.Size(batch_shape))
        return TaskOutcomes(self.likelihood, predictor, self.index, self.total)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of each outcome."""
        value = value.expand(torch.broadcast_shapes(value.shape, self.predictor.shape))
        log_probs = self._cells(self.predictor.expand(value.shape)).log_prob(self._columns(value, True))
        return log_probs[..., self.index].mT.reshape(value.shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, shape ``sample_shape + batch_shape``."""
        predictor = self.predictor.expand(*sample_shape, *self.predictor.shape)
        with torch.no_grad():
            drawn: Tensor = self._cells(predictor).sample()
        return drawn[..., self.index].mT.reshape(predictor.shape)

    @property
    def mean(self) -> Tensor:
        """Expected outcomes."""
        means = self.likelihood.mean(self._columns(self.predictor))
        return means[..., self.index].mT.reshape(self.predictor.shape)

    def _cells(self, predictor: Tensor) -> Distribution:
        return self.likelihood(self._columns(predictor))

    def _columns(self, values: Tensor, outcomes: bool = False) -> Tensor:
        """Values of these tasks in a table (..., sample, task) of all; elsewhere ones that do no harm."""
        flat = values.reshape(-1, *values.shape[-2:]).mT
        filler = self.likelihood.filler if outcomes else 0.0
        whole = flat.new_full((*flat.shape[:-1], self.total), filler)
        return whole.index_copy(-1, self.index, flat)
