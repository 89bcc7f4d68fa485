r"""The masked decoder as a curve with a linear last layer, and what that layer's Gaussian prior gives.

.. math:: f_j(z) = \beta_j^\top \phi(u) + o(u), \qquad u = w_j \odot z, \quad \beta_j \sim N(0, \Lambda^{-1})

MLP: :math:`\phi = [1, \sum_k u_k, \text{last hidden layer}]` and no offset o. Linear decoder:
:math:`\phi = [1]`, :math:`o = \sum_k u_k`. Summing out :math:`\beta_j` is exact under normal noise, and by
Laplace's method (Newton steps from the current value) under any other likelihood.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Cells", "Curve", "Summed", "Trunk", "masked_factors", "weighted"]

_NEWTON = 4


class Trunk(NamedTuple):
    """Hidden layers in units of their prior: every entry is standard normal before it sees data.

    Attributes
    ----------
    first : Tensor (chain, factor, hidden)
    second : Tensor (chain, hidden, hidden)
    bias : Tensor (chain, 1, hidden)
    """

    first: Tensor
    second: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class Curve:
    """Basis of a feature's curve, and the prior of its coefficients.

    Parameters
    ----------
    activation : {"relu", "tanh"} or None
        None: the linear decoder.
    hidden : int
    first_sd, second_sd, bias_sd : float
        Prior standard deviations of the hidden layers: entries of the first, the root of a sum over the
        second's inputs, biases.
    intercept_sd, slope_sd, head_sd : float
        Of the last layer: constant, slope, root of the sum of the head's variances.
    """

    activation: str | None
    hidden: int
    first_sd: float = 1.0
    second_sd: float = 1.4
    bias_sd: float = 0.5
    intercept_sd: float = 1.0
    slope_sd: float = 0.7
    head_sd: float = 1.0

    @property
    def scales(self) -> tuple[float, float, float]:
        """What `Trunk`'s entries are multiplied by."""
        return self.first_sd, self.second_sd / math.sqrt(self.hidden), self.bias_sd

    def head_precision(self, like: Tensor) -> Tensor:
        """Diagonal of Lambda, (basis,)."""
        if self.activation is None:
            sd = [self.intercept_sd]
        else:
            sd = [self.intercept_sd, self.slope_sd, *[self.head_sd / math.sqrt(self.hidden)] * self.hidden]
        return torch.tensor(sd, dtype=torch.float64, device=like.device) ** -2

    def basis(self, masked: Tensor, trunk: Trunk) -> Tensor:
        """phi of masked factors (chain, feature, factor, row): (chain, feature, basis, row)."""
        one = torch.ones_like(masked[..., :1, :])
        if self.activation is None:
            return one
        a, b, c = (scale * part.mT.unsqueeze(1) for scale, part in zip(self.scales, trunk, strict=True))
        h = self._bend(torch.matmul(a, masked))
        h = self._bend(torch.matmul(b, h) + c)
        return torch.cat([one, masked.sum(-2, keepdim=True), h], -2)

    def _bend(self, h: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return torch.relu(h) if self.activation == "relu" else torch.tanh(h)
        return h.relu_() if self.activation == "relu" else h.tanh_()

    def offset(self, masked: Tensor) -> Tensor | float:
        """The part of the curve without a coefficient, (chain, feature, row)."""
        return masked.sum(-2) if self.activation is None else 0.0

    def value(self, masked: Tensor, trunk: Trunk, head: Tensor) -> Tensor:
        """f, (chain, feature, row)."""
        return weighted(head, self.basis(masked, trunk)) + self.offset(masked)


def masked_factors(z: Tensor, weight: Tensor) -> Tensor:
    """u = w * z of every feature and row: (chain, feature, factor, row)."""
    return weight.unsqueeze(-1) * z.mT.unsqueeze(1)


def weighted(head: Tensor, phi: Tensor) -> Tensor:
    """Sum of the basis (chain, feature, basis, row) by its coefficients: (chain, feature, row)."""
    return (head.to(phi).unsqueeze(-2) @ phi).squeeze(-2)


class Summed(NamedTuple):
    """A last layer summed out: log evidence (chain, feature) up to what w does not move; mean; precision."""

    log_evidence: Tensor
    mean: Tensor
    root: Tensor

    def draw(self, normal: Tensor) -> Tensor:
        """Coefficients (chain, feature, basis) of their Gaussian, from standard normals of that shape."""
        step = torch.linalg.solve_triangular(self.root.mT, normal.to(self.root).unsqueeze(-1), upper=True)
        return self.mean + step.squeeze(-1)


@dataclass(frozen=True, eq=False)
class Cells:
    """The data, feature by feature, and what a last layer makes of them.

    Parameters
    ----------
    x : Tensor (chain or 1, feature, row)
        Missing cells hold 0.
    seen : Tensor of the same shape, or None
        1 where a cell was seen.
    exposure : Tensor (chain or 1, 1, row) or None
    likelihood : Likelihood or None
        None: normal noise, whose variance is given. Its parameters have a leading dimension of 1.
    """

    x: Tensor
    seen: Tensor | None
    exposure: Tensor | None
    likelihood: Any

    def features(self, part: slice | Tensor) -> Cells:
        """The cells of some features."""
        return Cells(
            self.x[:, part], None if self.seen is None else self.seen[:, part], self.exposure, self.likelihood
        )

    def log_prob(self, f: Tensor, noise: Tensor) -> Tensor:
        """log p(cell | f) of every cell, (chain, feature, row), up to a constant; 0 where missing."""
        if self.likelihood is None:
            each = -0.5 * (self.x - f) ** 2 / noise.unsqueeze(-1) - 0.5 * noise.log().unsqueeze(-1)
        else:
            exposure = None if self.exposure is None else self.exposure.mT
            each = self.likelihood(f.mT, exposure).log_prob(self.x.mT.expand_as(f.mT)).mT
        return each if self.seen is None else each * self.seen

    def expanded(self, f: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log p of every cell, its slope in f, and minus its second derivative (at least 0)."""
        at = f.detach().requires_grad_(True)
        with torch.enable_grad():
            each = self.log_prob(at, noise)
            (slope,) = torch.autograd.grad(each.sum(), at, create_graph=True)
            (bend,) = torch.autograd.grad(slope.sum(), at)
        return each.detach(), slope.detach(), (-bend).clamp(min=0)

    def sum_out(
        self,
        phi: Tensor,
        offset: Tensor | float,
        noise: Tensor,
        precision: Tensor,
        start: Tensor,
        newton: int = _NEWTON,
    ) -> Summed:
        """Integrate the last layer: exactly under normal noise, else by Laplace's method.

        Parameters
        ----------
        phi : Tensor (chain, feature, basis, row)
        offset : Tensor (chain, feature, row) or 0
        noise : Tensor (chain, feature)
        precision : Tensor (basis,)
        start : Tensor (chain, feature, basis)
            Where Newton's method begins; the answer does not depend on it.
        newton : int
            Its steps; fewer do where `start` is the mode of a close neighbour.
        """
        if self.likelihood is None:
            of_seen = phi if self.seen is None else phi * self.seen.unsqueeze(-2)
            pull = (of_seen @ (self.x - offset).unsqueeze(-1)).squeeze(-1).double()
            gram = (of_seen @ phi.mT).double()
            s = noise.double().unsqueeze(-1)
            root = torch.linalg.cholesky(gram / s.unsqueeze(-1) + precision.diag())
            half = torch.linalg.solve_triangular(root, (pull / s).unsqueeze(-1), upper=False)
            mean = torch.linalg.solve_triangular(root.mT, half, upper=True).squeeze(-1)
            log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            return Summed(
                0.5 * half.squeeze(-1).square().sum(-1) - log_det + self._own(offset, s), mean, root
            )
        return self._laplace(phi, offset, precision, start, newton)

    def _own(self, offset: Tensor | float, s: Tensor) -> Tensor | float:
        """What an offset alone does to the likelihood under normal noise."""
        if not isinstance(offset, Tensor):
            return 0.0
        left = (self.x - offset) if self.seen is None else (self.x - offset) * self.seen
        return -0.5 * left.double().square().sum(-1) / s.squeeze(-1)

    def _laplace(
        self, phi: Tensor, offset: Tensor | float, precision: Tensor, start: Tensor, newton: int
    ) -> Summed:
        beta, phi64 = start, phi.double()
        noise = start.new_ones(start.shape[:-1])
        for step in range(newton + 1):
            each, slope, curvature = self.expanded((weighted(beta, phi64) + offset).to(phi), noise)
            hessian = (phi64 * curvature.double().unsqueeze(-2)) @ phi64.mT + precision.diag()
            root = torch.linalg.cholesky(hessian)
            if step == newton:
                break
            pull = (phi64 @ slope.double().unsqueeze(-1)).squeeze(-1) - precision * beta
            move = torch.cholesky_solve(pull.unsqueeze(-1), root).squeeze(-1)
            largest = weighted(move, phi64).abs().amax(-1)
            damped = 3.0 / largest.clamp(min=3.0)  # no step moves f so far that it overshoots
            beta = beta + move * damped.unsqueeze(-1)
        log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        found = each.double().sum(-1) - 0.5 * (precision * beta**2).sum(-1) - log_det
        return Summed(found, beta, root)
