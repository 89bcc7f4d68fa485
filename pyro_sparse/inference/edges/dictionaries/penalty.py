r"""A penalty for training two dictionaries together: the mean \|J\| over the block of active latents.

.. math:: \mathrm{mean}_b\; \frac{1}{k_b k'_b} \sum_{i,j\ \mathrm{active}} |J_{ij}(x_b)|

One active input latent of each row, drawn at random, gives a column of J, and its mean over draws is the
block's. The 16 or so active columns are drawn from alone: of all of a dictionary's columns nearly all would
be zero, and the estimate 20 times as noisy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...table.jacobian_penalty import directional, graph, l1_over_l2

__all__ = ["SURROGATES", "latent_jacobian_penalty"]

SURROGATES = ("l1", "ratio")


def latent_jacobian_penalty(
    dec_in: Tensor,
    enc_out: Tensor,
    mlp: Callable[[Tensor], Tensor],
    x: Tensor,
    f_in: Tensor,
    f_out: Tensor,
    *,
    surrogate: str = "l1",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Size or concentration of the Jacobian between active latents, to be added to a loss.

    Parameters
    ----------
    dec_in : Tensor (input latent, d_in)
        Decoder directions of the dictionary before the layer.
    enc_out : Tensor (output latent, d_out)
        Encoder rows of the dictionary after it.
    mlp : callable
        The layer, (row, d_in) to (row, d_out), row by row; autograd must reach through it twice.
    x : Tensor (row, d_in)
        Activations before the layer.
    f_in, f_out : Tensor (row, latent)
        Codes before and after it; only which of them are not zero is used.
    surrogate : {"l1", "ratio"}
        "l1": the mean :math:`|J|` over the active block, which makes J smaller and hardly sparser. "ratio":
        the L1 norm of a column over its L2 norm, which is free of scale: 1 if one output latent depends on
        the input latent, :math:`\sqrt{k'}` if all active ones do alike.
    generator : torch.Generator, optional
        Of the random latents.

    Returns
    -------
    Tensor of shape ()
        Mean over rows with active latents on both sides. Its gradient reaches `dec_in`, `enc_out` and the
        parameters of `mlp`.

    Raises
    ------
    ValueError
        `surrogate` is unknown, or shapes do not fit.

    Notes
    -----
    Decoder directions should have unit norm, else the cheapest way down is to make them shorter.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(3, 2, bias=False)
    >>> layer.weight.data = torch.tensor([[2.0, 2.0, 2.0], [4.0, 4.0, 4.0]])
    >>> x, codes_in, codes_out = torch.randn(5, 3), torch.ones(5, 3), torch.ones(5, 2)
    >>> latent_jacobian_penalty(torch.eye(3), torch.eye(2), layer, x, codes_in, codes_out).item()
    3.0
    """
    if surrogate not in SURROGATES:
        raise ValueError(f"surrogate: got {surrogate!r}, wanted one of {list(SURROGATES)}")
    wanted = {"f_in": (len(x), len(dec_in)), "f_out": (len(x), len(enc_out))}
    for name, codes in (("f_in", f_in), ("f_out", f_out)):
        if tuple(codes.shape) != wanted[name]:
            raise ValueError(f"{name}: got shape {tuple(codes.shape)}, wanted (row, latent) = {wanted[name]}")
    on_in, on_out = f_in.detach() != 0, f_out.detach() != 0
    rows = torch.nonzero(on_in.any(1) & on_out.any(1)).squeeze(1)
    if not len(rows):
        return (dec_in.sum() + enc_out.sum()) * 0.0
    latent = torch.multinomial(on_in[rows].float(), 1, generator=generator).squeeze(1)
    y, inputs = graph(mlp, x[rows], None)
    slope = (directional(y, inputs, dec_in[latent]) @ enc_out.T).to(enc_out.dtype) * on_out[rows]
    if surrogate == "ratio":
        return l1_over_l2(slope).mean()
    return (slope.abs().sum(1) / on_out[rows].sum(1)).mean()
