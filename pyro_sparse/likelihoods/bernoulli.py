"""Yes/no data through a logit link."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from .base import CELL_TERMS, CELLS, NOTHING, Likelihood, PerRow
from .given_cells import refuse_where

__all__ = ["Bernoulli"]


class Bernoulli(Likelihood):
    r"""Yes/no data (0, 1, NaN): :math:`x_{ij} \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1} f_{ij})`."""

    declares = (CELLS, CELL_TERMS)
    name = "bernoulli"
    capturable = True
    separable = True
    latent_variance = math.pi**2 / 3  # of a standard logistic variable

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        refuse_where(
            ~np.isin(x, (0.0, 1.0)) & ~np.isnan(x),
            x,
            feature_names,
            f'likelihood="{self.name}" wants 0, 1 or NaN',
            'Recode the column to 0/1, or use likelihood="normal" or "poisson".',
        )

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        return torch.logit((total + 0.5) / (seen + 1.0))  # finite where all answers are alike

    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        return dist.Bernoulli(logits=f)

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        return lambda f, x, r, features: x - torch.sigmoid(f)

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        log_p = logsigmoid((2 * x - 1) * f)
        if order == 0:
            return (log_p,)
        p = torch.sigmoid(f)
        return (log_p, x - p, p * (1 - p))[: order + 1]

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return torch.sigmoid(f)
