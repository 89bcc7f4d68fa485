r"""The total correlation of latents, by a network that tells draws from draws with their columns shuffled.

.. math:: TC = KL\Big(q(z) \,\Big\|\, \prod_k q(z_k)\Big) = E_q\Big[\log \frac{q(z)}{\prod_k q(z_k)}\Big]
          \approx E_q[D(z)]

A classifier of the two kinds of draws, trained by :math:`-\log \sigma(D(z)) - \log \sigma(-D(z'))`, has the
log-ratio as its best logit D. FactorVAE (Kim & Mnih 2018) adds :math:`\gamma E_q[D(z)]` to the loss: its
gradient in the guide, D held, is that of the total correlation itself, for the ratio's own derivative has the
mean 0. Both losses are of the same draws at the same parameters, so one step of one optimiser takes both, and
a checkpoint has nothing more to keep.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ..nets.layers import BatchLinear

__all__ = ["DensityRatio", "shuffled"]


class DensityRatio(nn.Module):
    r"""Logarithm of :math:`q(z) / \prod_k q(z_k)`, learned.

    Parameters
    ----------
    n_restarts, n_factors : int
        Sizes.
    hidden, depth : int
        Width and number of the hidden layers. The paper has 1000 and 6, on a GPU.

    Notes
    -----
    `forward` takes z (restart, row, factor) to logits (restart, row). The last layer starts at nearly zero:
    nothing is known, and the total correlation is 0.

    References
    ----------
    Kim and Mnih (2018), *Disentangling by factorising*, algorithm 2.
    """

    def __init__(self, n_restarts: int, n_factors: int, hidden: int = 256, depth: int = 3):
        super().__init__()
        widths = [n_factors, *[hidden] * depth]
        pairs = zip(widths[:-1], widths[1:], strict=True)
        gain = math.sqrt(2 / 1.04)  # of a leaky ReLU of slope .2
        self.layers = nn.ModuleList([BatchLinear(n_restarts, a, b, gain=gain) for a, b in pairs])
        self.head = BatchLinear(n_restarts, hidden, 1, gain=0.01)

    def forward(self, z: Tensor) -> Tensor:
        """Logits (restart, row)."""
        h = z
        for layer in self.layers:
            h = F.leaky_relu(layer(h), 0.2)
        return self.head(h).squeeze(-1)

    def total_correlation(self, z: Tensor) -> Tensor:
        """Estimate of each restart, (restart,), in nats: a gradient in `z`, none in this network."""
        frozen = {name: parameter.detach() for name, parameter in self.named_parameters()}
        return functional_call(self, frozen, (z,)).mean(-1)

    def loss(self, z: Tensor) -> Tensor:
        """What this network learns by, (restart,): a gradient in its parameters, none in `z`."""
        z = z.detach()
        return F.softplus(-self(z)).mean(-1) + F.softplus(self(shuffled(z))).mean(-1)


def shuffled(z: Tensor) -> Tensor:
    """Every column's rows in an order of their own: draws from the product of the marginals.

    Parameters
    ----------
    z : Tensor (restart, row, factor)
    """
    return z.gather(1, torch.rand_like(z).argsort(1))
