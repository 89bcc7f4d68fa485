r"""A sparse autoencoder: activations as a sum of a few directions out of many, of unit length each.

.. math:: f = S\bigl(\mathrm{relu}(E(\tilde x - b) + c)\bigr), \qquad
          \hat x = m + s\,(D^\top f + b), \qquad \tilde x = (x - m)/s

S keeps the k greatest codes of a row ("topk"), or of B rows the kB greatest ("batchtopk"): a row then has as
many as it needs, k on average. Without its neighbours a row is coded by a threshold, the running mean of the
least code that batches kept. m is the mean of the activations and s one standard deviation for all
dimensions, so that the mean squared error of x̃ is the fraction of variance unexplained.

Training multiplies with the directions of active codes only: of 1,536 latents, 16 of them active, the decoder
costs next to nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._utils.checks import check_whole

__all__ = ["SELECTIONS", "ActiveCodes", "SparseAutoencoder"]

SELECTIONS = ("topk", "batchtopk")
_FOLLOWS = 0.01  # share by which the running threshold moves to that of each batch


class ActiveCodes(NamedTuple):
    """Codes that a batch kept, row after row.

    Attributes
    ----------
    row, latent : Tensor of int (code,)
    value : Tensor (code,)
        Not negative.
    start : Tensor of int (row,)
        Where each row's codes begin.
    """

    row: Tensor
    latent: Tensor
    value: Tensor
    start: Tensor

    def dense(self, n_rows: int, n_latents: int) -> Tensor:
        """The codes as (row, latent), without their gradient.

        Parameters
        ----------
        n_rows, n_latents : int
        """
        codes = self.value.new_zeros(n_rows, n_latents)
        mine = self.row < n_rows
        codes[self.row[mine], self.latent[mine]] = self.value.detach()[mine]
        return codes


class SparseAutoencoder(nn.Module):
    """A dictionary of unit directions of which a row uses k, or k on average.

    Parameters
    ----------
    d : int
        Dimensions of the activations.
    n_latents : int
    k : int
        Active latents of a row.
    select : {"topk", "batchtopk"}

    Attributes
    ----------
    dec, enc : Parameter (latent, d)
        Directions, of unit length, and what the encoder multiplies with; they start equal.
    b_dec, b_enc : Parameter (d,), (latent,)
    centre, scale : Tensor (d,), ()
        m and s above; 0 and 1 until `standardise_by`.
    threshold : Tensor ()
        Of "batchtopk": codes below it are left out.
    rows_since : Tensor (latent,)
        Rows of the training since each latent was last active.

    Raises
    ------
    ValueError
        A size is no whole number of at least 1, k is above `n_latents`, or `select` is unknown.

    Examples
    --------
    >>> sae = SparseAutoencoder(8, 20, k=3)
    >>> codes = sae.encode(torch.randn(5, 8))
    >>> bool(((codes > 0).sum(1) <= 3).all()), sae.decode(codes).shape
    (True, torch.Size([5, 8]))

    References
    ----------
    Gao, la Tour, Tillman, Goh, Troll, Radford, Sutskever, Leike, Wu (2024), Scaling and evaluating sparse
    autoencoders. Bussmann, Leask, Nanda (2024), BatchTopK sparse autoencoders.
    """

    centre: Tensor
    scale: Tensor
    threshold: Tensor
    rows_since: Tensor

    def __init__(self, d: int, n_latents: int, k: int, select: str = "topk"):
        super().__init__()
        check_whole(1, d=d, n_latents=n_latents, k=k)
        if k > n_latents:
            raise ValueError(f"k: got {k} of {n_latents} latents, wanted at most as many as there are")
        if select not in SELECTIONS:
            raise ValueError(f"select: got {select!r}, wanted one of {list(SELECTIONS)}")
        self.k, self.select = int(k), select
        start = F.normalize(torch.randn(n_latents, d), dim=1)
        self.dec, self.enc = nn.Parameter(start), nn.Parameter(start.clone())
        self.b_dec, self.b_enc = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(n_latents))
        self.register_buffer("centre", torch.zeros(d))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("threshold", torch.zeros(()))
        self.register_buffer("rows_since", torch.zeros(n_latents))

    @property
    def n_latents(self) -> int:
        """Latents, living or not."""
        return len(self.enc)

    # ---- use -----------------------------------------------------------------------------------------------
    def encode(self, x: Tensor) -> Tensor:
        """Codes (row, latent) of activations (row, d); zero where a latent is not active.

        Parameters
        ----------
        x : Tensor (row, d)
        """
        scores = self.scores(self.standardised(x))
        if self.select == "batchtopk":
            return scores * (scores >= self.threshold)
        value, latent = scores.topk(self.k, -1, sorted=False)
        return torch.zeros_like(scores).scatter(-1, latent, value)

    def decode(self, f: Tensor) -> Tensor:
        """Activations (row, d) of codes (row, latent).

        Parameters
        ----------
        f : Tensor (row, latent)
        """
        return (f @ self.dec + self.b_dec) * self.scale + self.centre

    def forward(self, x: Tensor) -> Tensor:
        """Activations as they are coded and decoded, (row, d).

        Parameters
        ----------
        x : Tensor (row, d)
        """
        return self.decode(self.encode(x))

    def standardised(self, x: Tensor) -> Tensor:
        """Activations (row, d) in units of their standard deviation, around their mean.

        Parameters
        ----------
        x : Tensor (row, d)
        """
        return (x - self.centre) / self.scale

    # ---- training, on standardised activations -------------------------------------------------------------
    @torch.no_grad()
    def standardise_by(self, centre: Tensor, scale: float) -> None:
        """Be a dictionary of activations with this mean and standard deviation.

        Parameters
        ----------
        centre : Tensor (d,)
        scale : float
        """
        self.centre.copy_(centre)
        self.scale.fill_(scale)

    def scores(self, x: Tensor) -> Tensor:
        """Codes (row, latent) before any is left out.

        Parameters
        ----------
        x : Tensor (row, d)
            Standardised.
        """
        # the bias goes to the other side of the product: its gradient would cost a product of its own
        return F.relu(F.linear(x, self.enc, self.b_enc - self.enc @ self.b_dec))

    def kept(self, scores: Tensor) -> ActiveCodes:
        """The codes of a batch that are not left out; the running threshold follows them.

        Parameters
        ----------
        scores : Tensor (row, latent)
        """
        n_rows, n = scores.shape
        per_row = torch.arange(n_rows, device=scores.device)
        if self.select == "topk":
            value, latent = scores.topk(self.k, -1, sorted=False)
            return ActiveCodes(
                per_row.repeat_interleave(self.k), latent.flatten(), value.flatten(), per_row * self.k
            )
        flat = scores.flatten()
        at = flat.detach().topk(self.k * n_rows, sorted=False).indices.sort().values
        value = flat[at]
        with torch.no_grad():
            least = value.min().to(self.threshold)
            self.threshold.lerp_(least, 1.0 if self.threshold == 0 else _FOLLOWS)
        row = at // n
        return ActiveCodes(row, at % n, value, torch.searchsorted(row, per_row))

    def decoded(self, codes: ActiveCodes) -> Tensor:
        """Standardised activations (row, d) of kept codes.

        Parameters
        ----------
        codes : ActiveCodes
        """
        value = codes.value.to(self.dec.dtype)
        total = F.embedding_bag(codes.latent, self.dec, codes.start, mode="sum", per_sample_weights=value)
        return total + self.b_dec

    def auxiliary(self, x: Tensor, error: Tensor, dead_after: float) -> Tensor:
        """Mean square of what dead latents leave of the error, by their d / 2 greatest codes (AuxK).

        Its gradient reaches dead latents only: the error is taken as it is, and the bias of the decoder,
        which the error is free of, is not added again.

        Parameters
        ----------
        x : Tensor (row, d)
            Standardised.
        error : Tensor (row, d)
            What the living leave.
        dead_after : float
            Rows since a latent was last active after which it is dead.
        """
        dead = torch.nonzero(self.rows_since > dead_after).squeeze(1)
        if not len(dead):
            return error.new_zeros(())
        enc = self.enc[dead]
        scores = F.relu(F.linear(x, enc, self.b_enc[dead] - enc @ self.b_dec.detach()))
        value, at = scores.topk(min(max(x.shape[1] // 2, 1), len(dead)), -1, sorted=False)
        revived = torch.zeros_like(scores).scatter(-1, at, value) @ self.dec[dead]
        return (revived.to(error.dtype) - error.detach()).square().mean()

    @torch.no_grad()
    def count(self, codes: ActiveCodes, n_rows: int) -> None:
        """Rows since each latent was active, after one more batch.

        Parameters
        ----------
        codes : ActiveCodes
        n_rows : int
        """
        self.rows_since += n_rows
        self.rows_since[codes.latent[codes.value > 0]] = 0

    @torch.no_grad()
    def only_turn(self) -> None:
        """Take from the gradient what would change the length of a direction."""
        if self.dec.grad is not None:
            self.dec.grad -= (self.dec.grad * self.dec).sum(1, keepdim=True) * self.dec

    @torch.no_grad()
    def normalise(self) -> None:
        """Bring the directions back to unit length, after a step."""
        self.dec.copy_(F.normalize(self.dec, dim=1))
