"""Effects of active input latents on active output latents, a batch of rows at a time: slopes or ablations.

Slopes have four ways that give the same numbers. Of a linear layer and a straight encoder they are the same
at every row: one matrix. In closed form, where the layer is linear, elementwise, linear and the encoder
straight: two gathers and one product of (latents, width) matrices. Else in reverse, once for each active
output latent: through the layer from the encoder's row, or, where the encoder has no fixed rows, through
both. Reverse derivatives are the ones that every trainer's functions have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .autoencoder import Autoencoder, codes_of

__all__ = ["Active", "ClosedForm", "Pair", "active_latents", "closed_form", "effects_of"]

_MOST_CELLS = 2**26  # of a gathered matrix (row, latent, width): 256 MB
# Activations that act on each unit by itself
_ELEMENTWISE = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.LeakyReLU, nn.Mish, nn.Hardswish,
    nn.ReLU6, nn.SELU, nn.CELU, nn.Identity,
)  # fmt: skip


class Pair(NamedTuple):
    """What effects are computed from.

    Attributes
    ----------
    sae_out : Autoencoder
    mlp : callable
    directions : Tensor (input latent, d_in)
    rows : Tensor (output latent, d_out) or None
        Of the encoder, where it is straight on active latents.
    """

    sae_out: Autoencoder
    mlp: Callable[[Tensor], Tensor]
    directions: Tensor
    rows: Tensor | None


class Active(NamedTuple):
    """The active latents of each row, filled up to the largest number of them.

    Attributes
    ----------
    number, code : Tensor (row, place)
    there : Tensor of bool (row, place)
        False where a place is only filled.
    """

    number: Tensor
    code: Tensor
    there: Tensor


class ClosedForm(NamedTuple):
    """Factors of the slopes of a layer linear, elementwise, linear: J = right diag(slope) left'.

    Attributes
    ----------
    first : Linear
    activation : Module
    left : Tensor (input latent, width)
    right : Tensor (output latent, width)
    """

    first: nn.Linear
    activation: nn.Module
    left: Tensor
    right: Tensor


def active_latents(codes: Tensor) -> Active:
    """Which latents are active in each row.

    Parameters
    ----------
    codes : Tensor (row, latent)
    """
    most = int((codes != 0).sum(1).max())
    _, number = codes.abs().topk(most, dim=1, sorted=False)
    code = codes.gather(1, number)
    return Active(number, code, code != 0)


def closed_form(pair: Pair) -> ClosedForm | Tensor | None:
    """The factors, or of a linear layer the slopes (output latent, input latent), or None of other forms."""
    if pair.rows is not None and type(pair.mlp) is nn.Linear:
        return (pair.rows @ pair.mlp.weight) @ pair.directions.T
    layers = list(pair.mlp) if isinstance(pair.mlp, nn.Sequential) else []
    if pair.rows is None or len(layers) != 3 or not isinstance(layers[1], _ELEMENTWISE):
        return None
    first, activation, last = layers
    if type(first) is not nn.Linear or type(last) is not nn.Linear:
        return None
    return ClosedForm(first, activation, pair.directions @ first.weight.T, pair.rows @ last.weight)


def effects_of(
    pair: Pair,
    x: Tensor,
    y: Tensor | None,
    active_in: Active,
    active_out: Active,
    effect: str,
    factors: ClosedForm | Tensor | None = None,
) -> Tensor:
    """Size of the effect of each active input latent on each active output latent.

    Parameters
    ----------
    pair : Pair
    x, y : Tensor (row, d)
        `y` is None where the layer's own output is meant.
    active_in, active_out : Active
    effect : {"slope", "ablation"}
    factors : ClosedForm or Tensor, optional
        Of the slopes, or these.

    Returns
    -------
    Tensor (row, output place, input place)
    """
    if effect == "ablation":
        return _ablations(pair, x, y, active_in, active_out).abs()
    if isinstance(factors, Tensor):
        slope = factors[active_out.number.unsqueeze(2), active_in.number.unsqueeze(1)]
    elif factors is not None:
        slope = _by_factors(factors, x, active_in, active_out)
    else:
        slope = _in_reverse(pair, x, y, active_in, active_out)
    return (slope * active_in.code.unsqueeze(1)).abs()


def _by_factors(factors: ClosedForm, x: Tensor, active_in: Active, active_out: Active) -> Tensor:
    width = factors.left.shape[1]
    places = active_in.number.shape[1] + active_out.number.shape[1]
    n = max(1, _MOST_CELLS // (places * width))
    parts = []
    for start in range(0, len(x), n):
        rows = slice(start, start + n)
        units = factors.first(x[rows]).detach().requires_grad_()
        with torch.enable_grad():
            slope = torch.autograd.grad(factors.activation(units).sum(), units)[0]
        right = factors.right[active_out.number[rows]] * slope.unsqueeze(1)
        parts.append(right @ factors.left[active_in.number[rows]].mT)
    return torch.cat(parts)


def _in_reverse(pair: Pair, x: Tensor, y: Tensor | None, active_in: Active, active_out: Active) -> Tensor:
    inputs = x.detach().clone().requires_grad_()
    along = pair.directions[active_in.number]  # (row, input, d)
    with torch.enable_grad():
        out = pair.mlp(inputs)
        if not out.requires_grad:
            raise ValueError(
                "mlp: autograd does not reach through it, so it has no slopes; wanted no detach(), no_grad() "
                'or NumPy in it, or effect="ablation"'
            )
        if pair.rows is None:
            if y is not None:  # the recorded value, with the slope of the layer
                out = y + out - out.detach()
            codes = codes_of(pair.sae_out, out, "sae_out")
            if not codes.requires_grad:
                raise ValueError('sae_out: autograd does not reach through encode; use effect="ablation"')
            values = codes.gather(1, active_out.number)
        parts = []
        n = active_out.number.shape[1]
        for place in range(n):
            if pair.rows is None:
                value = values[:, place]
            else:
                value = (out * pair.rows[active_out.number[:, place]]).sum(1)
            slope = torch.autograd.grad(value.sum(), inputs, retain_graph=place < n - 1)[0]
            parts.append(torch.einsum("rd,rjd->rj", slope, along))
    return torch.stack(parts, 1)


def _ablations(pair: Pair, x: Tensor, y: Tensor | None, active_in: Active, active_out: Active) -> Tensor:
    """Change of each output latent when an input latent is taken out."""
    out = pair.mlp(x)
    base = out if y is None else y
    rows = None if pair.rows is None else pair.rows[active_out.number]

    def watched(changed: Tensor) -> Tensor:
        """Codes of the active output latents."""
        return codes_of(pair.sae_out, changed, "sae_out").gather(1, active_out.number)

    before = watched(base) if rows is None else None
    parts = []
    for place in range(active_in.number.shape[1]):
        taken = active_in.code[:, place, None] * pair.directions[active_in.number[:, place]]
        change = out - pair.mlp(x - taken)
        if rows is not None:
            parts.append(torch.einsum("rid,rd->ri", rows, change))
        elif before is not None:
            parts.append(before - watched(base - change))
    return torch.stack(parts, 2)
