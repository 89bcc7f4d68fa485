"""Neural networks whose every parameter carries a leading restart dimension.

Restarts of a small model are nearly free when they share one pass, so each layer here is ``n_restarts``
independent layers evaluated by one batched product. Plain modules: no sample sites, no likelihood.
The masked decoder is the network of the Sparse VAE; `Encoder` reads a table with missing cells. The networks
of a latent transition (frames in and out, sines in between) are in `nets/transition.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .._utils.declared import Declared

__all__ = ["BatchLinear", "DenseDecoder", "Encoder", "LinearDecoder", "MaskedDecoder"]


class BatchLinear(nn.Module):
    r"""``n_restarts`` independent affine maps, :math:`y_r = x_r A_r + b_r`.

    Parameters
    ----------
    n_restarts, n_in, n_out : int
        Number of maps, inputs and outputs.
    gain : float
        Standard deviation of the initial weights is ``gain / sqrt(n_in)``.
    bias : float or None
        Initial bias, or None for a map without one.

    Notes
    -----
    Input (restart, row, n_in), output (restart, row, n_out).
    """

    def __init__(
        self, n_restarts: int, n_in: int, n_out: int, gain: float = math.sqrt(2.0), bias: float | None = 0.0
    ):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_restarts, n_in, n_out) * (gain / math.sqrt(n_in)))
        self.bias = None if bias is None else nn.Parameter(torch.full((n_restarts, 1, n_out), float(bias)))

    def forward(self, x: Tensor) -> Tensor:
        """Map (restart, row, n_in) to (restart, row, n_out)."""
        return torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)


class Encoder(nn.Module):
    r"""Amortised :math:`q(z|x) = N(\mu(x), \mathrm{diag}\, s^2(x))` that accepts missing cells.

    :math:`\mu(x) = x A + \mathrm{MLP}(x)`: the linear part `skip` is where a data-driven start is written,
    the network starts at nearly zero and learns the rest. A table with missing cells enters as
    ``[x * mask, mask - 1]``, so that "not answered" differs from "answered at the mean".

    Parameters
    ----------
    n_restarts, n_features, n_factors : int
        Sizes.
    hidden : int
        Width of the two hidden layers.
    missing : bool
        Whether a mask is part of the input.

    Notes
    -----
    Input ``x`` and ``mask`` (row, feature) or (restart, row, feature); output two tensors (restart, row,
    factor).
    """

    declares = (Declared("encoder network"),)
    log_sd_range = (-4.5, 1.5)

    def __init__(
        self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 64, missing: bool = False
    ):
        super().__init__()
        n_in = n_features * (2 if missing else 1)
        self.n_restarts, self.n_features, self.n_factors, self.missing = (
            n_restarts,
            n_features,
            n_factors,
            missing,
        )
        self.skip = nn.Parameter(torch.zeros(n_restarts, n_in, n_factors))
        self.layers = nn.ModuleList(
            [BatchLinear(n_restarts, n_in, hidden), BatchLinear(n_restarts, hidden, hidden)]
        )
        self.location = BatchLinear(n_restarts, hidden, n_factors, gain=0.1)
        self.log_sd = BatchLinear(n_restarts, hidden, n_factors, gain=0.1, bias=-1.0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return location and standard deviation of q(z | x)."""
        location, log_sd, _ = self.read(x, mask)
        return location, log_sd.exp()

    def read(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Location, log standard deviation and the last hidden layer."""
        if self.missing:
            mask = torch.ones_like(x) if mask is None else mask.to(x.dtype)
            x = torch.cat([x * mask, mask - 1.0], -1)
        x = x.expand(self.n_restarts, *x.shape[-2:])
        h = x
        for layer in self.layers:
            h = torch.relu(layer(h))
        location = torch.bmm(x, self.skip) + self.location(h)
        return location, self.log_sd(h).clamp(*self.log_sd_range), h


class MaskedDecoder(nn.Module):
    r"""The Sparse VAE decoder: one trunk shared by all features, fed with that feature's own masked factors.

    .. math:: f_j(z) = c_j + u_j\, w_j^\top z + v_j^\top \phi(b + B\, \phi(A (w_j \odot z)))

    The head of a feature reads its masked factors directly (`slope` u, one number, so that no edge can trade
    its weight for a slope of its own) and through the trunk (`head` v): a linear start is represented exactly
    and curvature is learned where the data ask for it. The first layer `A` has no bias (an empty row gives a
    constant) and columns of one norm (restored by `project`; 1 for relu, :math:`\sqrt{H}` for tanh, whose
    units then bend where factors are), otherwise a column of W could shrink while A grew and a penalty on W
    would mean nothing (Moran et al. 2022, Section 3, leaves this scale free).

    Parameters
    ----------
    n_restarts, n_features, n_factors : int
        Sizes.
    hidden : int
        Width of the two hidden layers.
    activation : {"relu", "tanh"}
        What :math:`\phi` is.

    Notes
    -----
    `forward` takes ``z`` (restart, row, factor) and ``weights`` (restart, feature, factor) and returns the
    linear predictor (restart, row, feature).
    """

    declares = (Declared("masked decoder network", free=frozenset({"start"})),)

    def __init__(
        self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 50, activation: str = "relu"
    ):
        super().__init__()
        self.activation = activation
        self.column_norm = 1.0 if activation == "relu" else math.sqrt(hidden)
        self.first = nn.Parameter(torch.randn(n_restarts, n_factors, hidden))
        self.trunk = BatchLinear(n_restarts, hidden, hidden)
        assert self.trunk.bias is not None
        # the first layer has no bias: without any here all units would bend at z = 0
        nn.init.normal_(self.trunk.bias, std=0.3)
        self.slope = nn.Parameter(torch.zeros(n_restarts, n_features, 1))
        self.head = nn.Parameter(torch.randn(n_restarts, n_features, hidden) * (0.5 / math.sqrt(hidden)))
        self.intercept = nn.Parameter(torch.zeros(n_restarts, 1, n_features))
        self.project()

    @torch.no_grad()
    def project(self) -> None:
        """Restore the norm of the first layer's columns."""
        norm = torch.linalg.vector_norm(self.first, dim=-1, keepdim=True)
        self.first.mul_(self.column_norm / norm.clamp_min_(1e-12))

    @torch.no_grad()
    def start(self, slope: Tensor, bent: Tensor, unit: Tensor | float = 1.0) -> None:
        """Begin as lines of slope (restart, feature, 1), or where `bent` (restart,) as random curves.

        Both in units (feature, 1) of the feature.
        """
        bent = bent.view(-1, 1, 1)
        self.slope.copy_(torch.where(bent, 0.0, slope * unit))
        self.head.mul_(torch.where(bent, 1.0, 0.2) * unit)

    @torch.no_grad()
    def rescale(self, scale: Tensor) -> None:
        """Keep the slope's lines when the caller divides ``W_j`` by `scale` (restart, feature).

        The head is not touched: a lasso then acts on the ratios within a row of W and not on its curve.
        """
        self.slope.mul_(scale.unsqueeze(-1))

    def forward(self, z: Tensor, weights: Tensor) -> Tensor:
        """Linear predictor (restart, row, feature)."""
        n_restarts, n_features, n_factors = weights.shape
        n_rows = z.shape[1]
        masked = z.unsqueeze(2) * weights.unsqueeze(1)
        bend = torch.relu if self.activation == "relu" else torch.tanh
        h = bend(torch.bmm(masked.reshape(n_restarts, n_rows * n_features, n_factors), self.first))
        h = bend(self.trunk(h)).view(n_restarts, n_rows, n_features, -1)
        linear = torch.baddbmm(self.intercept, z, (weights * self.slope).mT)
        return (h * self.head.unsqueeze(1)).sum(-1) + linear


class LinearDecoder(nn.Module):
    r"""Sparse factor analysis, the linear case of the masked decoder.

    .. math:: f_j(z) = c_j + w_j^\top z

    Parameters
    ----------
    n_restarts, n_features, n_factors : int
        Sizes.
    hidden, activation
        Ignored: there is no hidden layer.
    """

    declares = (Declared("linear decoder network"),)

    def __init__(
        self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 0, activation: str = ""
    ):
        super().__init__()
        self.intercept = nn.Parameter(torch.zeros(n_restarts, 1, n_features))

    def project(self) -> None:
        """Nothing to constrain: W is the loading matrix itself."""

    def forward(self, z: Tensor, weights: Tensor) -> Tensor:
        """Linear predictor (restart, row, feature)."""
        return torch.baddbmm(self.intercept, z, weights.transpose(1, 2))


class DenseDecoder(nn.Module):
    r"""The decoder of an ordinary VAE: every feature sees every factor.

    .. math:: f(z) = c + S z + V\,\mathrm{MLP}(z)

    Parameters
    ----------
    n_restarts, n_features, n_factors : int
        Sizes.
    hidden : int
        Width of the two hidden layers.
    """

    def __init__(self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 50):
        super().__init__()
        self.layers = nn.ModuleList(
            [BatchLinear(n_restarts, n_factors, hidden), BatchLinear(n_restarts, hidden, hidden)]
        )
        self.head = BatchLinear(n_restarts, hidden, n_features, gain=0.5)
        self.skip = nn.Parameter(torch.zeros(n_restarts, n_factors, n_features))

    @property
    def intercept(self) -> Tensor:
        """Constant of each feature, (restart, 1, feature)."""
        assert self.head.bias is not None
        return self.head.bias

    def project(self) -> None:
        """Nothing to constrain."""

    def forward(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Linear predictor (restart, row, feature); `weights` is ignored."""
        h = z
        for layer in self.layers:
            h = torch.relu(layer(h))
        return self.head(h) + torch.bmm(z, self.skip)
