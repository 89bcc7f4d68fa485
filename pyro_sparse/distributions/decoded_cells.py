r"""A row of a table given its factors: masked decoder and likelihood as one distribution, in one sweep.

.. math:: \log p(x_i \mid z_i, W) = \sum_{j\ \mathrm{seen}} \log p\big(x_{ij} \mid f_j(w_j \odot z_i)\big)

The same numbers as the likelihood of the decoder's linear predictor. But as each term needs one feature only,
a few features at a time go through the decoder and back at once: their gradients are ready when their values
are, and no hidden unit is kept (`_sweep.py`). Where the likelihood couples the features (a softmax),
`recomputed_predictor` keeps nothing either and computes the hidden units a second time on the way back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributions import Distribution, constraints

from .._utils.types import AutogradContext
from ._sweep import MaskedNet, sweep, values

__all__ = ["DecodedCells", "predictor", "recomputed_predictor"]


def predictor(net: MaskedNet, z: Tensor, activation: str = "relu") -> Tensor:
    """Linear predictor of a masked decoder, without gradients, a few features at a time.

    Parameters
    ----------
    net : MaskedNet
        Tensors with a leading restart dimension.
    z : Tensor (restart, row, factor)
    activation : {"relu", "tanh"}

    Returns
    -------
    Tensor (restart, row, feature)
    """
    return torch.stack([values(net.restart(r), latents, activation) for r, latents in enumerate(z)])


def recomputed_predictor(
    net: MaskedNet,
    z: Tensor,
    permitted: Tensor | None = None,
    activation: str = "relu",
    rounded: bool = False,
) -> Tensor:
    """Linear predictor with gradients (once differentiable) whose hidden units are computed again for them.

    Parameters
    ----------
    net : MaskedNet
        Tensors with a leading restart dimension.
    z : Tensor (restart, row, factor)
    permitted : Tensor of bool (restart, feature, factor), optional
        As in `DecodedCells`.
    activation : {"relu", "tanh"}
    rounded : bool
        As in `DecodedCells`; of the way back only.

    Returns
    -------
    Tensor (restart, row, feature)
    """
    f: Tensor = _Recomputed.apply(permitted, activation, rounded, z, *net)
    return f


class DecodedCells(TorchDistribution):
    r"""Rows given their factors: batch shape (restart, row), event shape (feature,).

    Parameters
    ----------
    likelihood : Module
        ``likelihood(f, per_row)`` is the distribution of the cells given the linear predictor (restart, row,
        feature), each cell depending on its own entry of `f` and on its own feature's entry of parameters
        (restart, 1, feature). If it has a ``scorer(per_row)``, that is the derivative (see `Likelihood`).
    net : MaskedNet
        Tensors of the decoder with a leading restart dimension; weights (restart, feature, factor).
    z : Tensor (restart, row, factor)
    mask : Tensor of bool (row, feature) or (restart, row, feature), optional
        True where a cell was seen.
    per_row : mapping of str to Tensor (row, 1), optional
        What the likelihood reads of rows beside their cells.
    permitted : Tensor of bool (restart, feature, factor), optional
        Edges that may be there, default all. A weight that is zero and stays so gets no gradient, which is
        what lets a feature of one factor be evaluated without hidden units of its own.
    activation : {"relu", "tanh"}
        Of the decoder.
    rounded : bool
        Keep hidden units as bfloat16 where gradients are asked for (see `sweep`).

    Notes
    -----
    `log_prob` computes its gradients at once, for rows of equal weight; if the rows turn out to be weighted
    unequally the sweep is made again. It can be differentiated once.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.independent(constraints.real, 1)

    def __init__(
        self,
        likelihood: nn.Module,
        net: MaskedNet,
        z: Tensor,
        *,
        mask: Tensor | None = None,
        per_row: Mapping[str, Tensor] | None = None,
        permitted: Tensor | None = None,
        activation: str = "relu",
        rounded: bool = False,
    ):
        self.likelihood, self.net, self.z, self.rounded = likelihood, net, z, rounded
        self.cell_mask, self.per_row, self.permitted, self.activation = (
            mask,
            per_row or {},
            permitted,
            activation,
        )
        super().__init__(z.shape[:-1], net.weights.shape[1:2], validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> DecodedCells:
        """Itself: the batch shape is given by the factors.

        Raises
        ------
        ValueError
            Another batch shape than (restart, row).
        """
        if torch.Size(batch_shape) != self.batch_shape:
            raise ValueError(
                f"batch_shape: got {tuple(batch_shape)}, these rows have {tuple(self.batch_shape)} (restart, "
                "row); expand the factors z instead"
            )
        return self

    def cells(self) -> TorchDistribution:
        """The same distribution by way of the linear predictor, without gradients: batch (restart, row)."""
        distribution = self.likelihood(predictor(self.net, self.z, self.activation), self.per_row)
        return (
            distribution if self.cell_mask is None else distribution.mask(self.cell_mask.bool())
        ).to_event(1)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, shape ``sample_shape + (restart, row, feature)``."""
        draws: Tensor = self.cells().sample(sample_shape)
        return draws

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of the seen cells of each row, (restart, row).

        Parameters
        ----------
        value : Tensor (row, feature) or (restart, row, feature)
        """
        parameters = dict(self.likelihood.named_parameters())
        tensors = (self.z, *self.net, *parameters.values())
        log_p: Tensor
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            log_p = _OneSweep.apply(self._plan(value), *tensors)
        else:
            with torch.no_grad():
                log_p = self.cells().log_prob(value)
        return log_p

    def slopes(self, value: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`log_prob` and the gradients of its sum, outside autograd.

        Parameters
        ----------
        value : Tensor (row, feature) or (restart, row, feature)

        Returns
        -------
        Tensor (restart, row), list of Tensor
            Gradients by the factors, by the tensors of the decoder and by the likelihood's parameters.
        """
        return self._plan(value).run((self.z, *self.net, *self.likelihood.parameters()), None)

    def _plan(self, value: Tensor) -> _Plan:
        names = tuple(name for name, _ in self.likelihood.named_parameters())
        return _Plan(
            self.likelihood, names, value, self.cell_mask, self.per_row, self.permitted, self.activation,
            self.rounded,
        )  # fmt: skip


class _Plan(NamedTuple):
    """What a sweep needs besides the tensors it differentiates by."""

    likelihood: nn.Module
    names: tuple[str, ...]
    x: Tensor
    mask: Tensor | None
    per_row: Mapping[str, Tensor]
    permitted: Tensor | None
    activation: str
    rounded: bool

    def run(self, tensors: tuple[Tensor, ...], row_weight: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Log density (restart, row), and the gradients of its (weighted) sum by everything given."""
        z, net, parameters = tensors[0], MaskedNet(*tensors[1:8]), tensors[8:]
        f = z.new_empty(z.shape[0], net.weights.shape[1], z.shape[1])
        x = self.x.mT.contiguous().expand(f.shape)
        mask = None if self.mask is None else self.mask.mT.contiguous().bool().expand(f.shape)
        of_likelihood = getattr(self.likelihood, "scorer", lambda per_row: None)(self.per_row)
        of_cell = of_likelihood or self._by_autograd
        by_restart = []
        for r, latents in enumerate(z):

            def score(features: Tensor, line: Tensor, r: int = r) -> Tensor:
                derivatives = of_cell(line, x[r, features], r, features)
                if mask is not None:
                    derivatives = torch.where(mask[r, features], derivatives, torch.zeros_like(derivatives))
                return derivatives if row_weight is None else derivatives * row_weight[r]

            permitted = None if self.permitted is None else self.permitted[r]
            dnet, dz, f[r] = sweep(net.restart(r), latents, score, permitted, self.activation, self.rounded)
            by_restart.append((dz, *dnet))
        grads = [torch.stack(gradients) for gradients in zip(*by_restart, strict=True)]
        with torch.enable_grad():  # the likelihood's own parameters: all features at once
            leaves = [parameter.detach().requires_grad_() for parameter in parameters]
            log_probs = self._log_prob(leaves, f.mT, self.x)
            if self.mask is not None:
                log_probs = torch.where(self.mask.bool(), log_probs, torch.zeros_like(log_probs))
            rows = log_probs.sum(-1)
            total = rows.sum() if row_weight is None else (rows * row_weight).sum()
            if leaves:
                grads += torch.autograd.grad(total, leaves, materialize_grads=True)
        return rows.detach(), grads

    def _log_prob(self, parameters: Sequence[Tensor], f: Tensor, x: Tensor) -> Tensor:
        """Log density of cells (restart, row, feature) at these values of the likelihood's parameters."""
        named = dict(zip(self.names, parameters, strict=True))
        log_p: Tensor = torch.func.functional_call(self.likelihood, named, (f, self.per_row)).log_prob(x)
        return log_p

    def _by_autograd(self, f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
        """What a likelihood's `scorer` says, for one that has none."""
        named = dict(self.likelihood.named_parameters())
        parameters = [named[name][r : r + 1, :, features].detach() for name in self.names]
        with torch.enable_grad():
            leaf = f.T.unsqueeze(0).detach().requires_grad_()
            log_probs = self._log_prob(parameters, leaf, x.T)
            return torch.autograd.grad(log_probs.sum(), leaf)[0][0].T


class _Swept(AutogradContext, Protocol):
    """What `_OneSweep` keeps for the way back."""

    plan: _Plan
    grads: list[Tensor]


class _OneSweep(torch.autograd.Function):
    """Log density of each row; its gradients are computed with it."""

    @staticmethod
    def forward(ctx: _Swept, plan: _Plan, *tensors: Tensor) -> Tensor:
        total, ctx.grads = plan.run(tensors, None)
        ctx.plan = plan
        ctx.save_for_backward(*tensors)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: _Swept, grad: Tensor) -> tuple[Tensor | None, ...]:
        share = grad[:, :1]
        if (grad == share).all():
            grads = [gradient * share.view(-1, *[1] * (gradient.dim() - 1)) for gradient in ctx.grads]
        else:
            grads = ctx.plan.run(ctx.saved_tensors, grad)[1]
        return (None, *grads)


class _Settings(AutogradContext, Protocol):
    """What `_Recomputed` keeps for the way back, beside tensors."""

    permitted: Tensor | None
    activation: str
    rounded: bool


class _Recomputed(torch.autograd.Function):
    """Linear predictor whose hidden units are computed again for the gradients."""

    @staticmethod
    def forward(
        ctx: _Settings, permitted: Tensor | None, activation: str, rounded: bool, z: Tensor, *net: Tensor
    ) -> Tensor:
        ctx.permitted, ctx.activation, ctx.rounded = permitted, activation, rounded
        ctx.save_for_backward(z, *net)
        return predictor(MaskedNet(*net), z, activation)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Settings, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, *net_tensors = ctx.saved_tensors
        net = MaskedNet(*net_tensors)
        by_restart = []
        for r, latents in enumerate(z):
            toward = grad[r].T

            def score(features: Tensor, f: Tensor, toward: Tensor = toward) -> Tensor:
                return toward[features]

            permitted = None if ctx.permitted is None else ctx.permitted[r]
            dnet, dz, _ = sweep(net.restart(r), latents, score, permitted, ctx.activation, ctx.rounded)
            by_restart.append((dz, *dnet))
        return (None, None, None, *(torch.stack(gradients) for gradients in zip(*by_restart, strict=True)))
