r"""A small model's pass forth and back in two compiled calls: encoder, masked decoder, and the divergence.

What `sparse_elbo.py` does in a hundred calls of torch, in loops over restarts and features whose hidden units
stay in the cache; a factor that a feature does not follow is left out. Products are BLAS's, in pieces so
small that it uses one thread. Shapes: R restarts, B rows, I inputs, H hidden units of the encoder, K factors,
G features, D hidden units of the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..._utils.arrays import COMPILED, compiled

if TYPE_CHECKING:
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["CompiledPass"]

_ONE_THREAD = 1 << 18  # multiplications up to which OpenBLAS does not share a product among threads
_FEWEST_ROWS = 20  # of a product's pieces; with fewer its one call in torch is quicker


@compiled
def _product(a, b, out):
    """a @ b, some rows at a time."""
    n = len(a)
    step = max(1, _ONE_THREAD // max(1, b.shape[0] * b.shape[1]))
    for at in range(0, n, step):
        end = min(n, at + step)
        np.dot(a[at:end], b, out[at:end])


@compiled
def _cross(a, b, out, product):
    """Add a.T @ b, some rows at a time."""
    n = len(a)
    step = max(1, _ONE_THREAD // max(1, a.shape[1] * b.shape[1]))
    for at in range(0, n, step):
        end = min(n, at + step)
        np.dot(a[at:end].T, b[at:end], product)
        out += product


@compiled
def _bend(h, bias):
    """relu(h + bias) in place."""
    for b in range(h.shape[0]):
        for i in range(h.shape[1]):
            h[b, i] = max(h[b, i] + bias[i], 0)


@compiled
def forward(x, noise, low, high, encoder, decoder, h1, h2, location, raw, z, first, second, f):
    """Encoder, draw of the factors and decoder.

    Given: `x` (B, I), `noise` (R, B, K), range of the log standard deviation, parameters as `SparseElbo` has
    them. Found: encoder's layers `h1`, `h2` (R, B, H), `location`, `raw`, `z` (R, B, K), decoder's layers
    `first`, `second` (R, G, B, D), linear predictor `f` (R, G, B).
    """
    skip, weight1, bias1, weight2, bias2, of_location, of_mean, of_log_sd, of_spread = encoder
    weights, a, trunk, bias, slope, head, intercept = decoder
    n_restarts, n_rows, n_factors = z.shape
    n_features, hidden = head.shape[1:]
    direct, zero = np.empty_like(location[0]), z.dtype.type(0)
    for r in range(n_restarts):
        _product(x, weight1[r], h1[r])
        _bend(h1[r], bias1[r, 0])
        _product(h1[r], weight2[r], h2[r])
        _bend(h2[r], bias2[r, 0])
        _product(x, skip[r], direct)
        _product(h2[r], of_location[r], location[r])
        _product(h2[r], of_log_sd[r], raw[r])
        for b in range(n_rows):
            for k in range(n_factors):
                location[r, b, k] += direct[b, k] + of_mean[r, 0, k]
                raw[r, b, k] += of_spread[r, 0, k]
                sd = np.exp(min(max(raw[r, b, k], low), high))
                z[r, b, k] = location[r, b, k] + sd * noise[r, b, k]
        for g in range(n_features):
            below, above = first[r, g], second[r, g]
            below[:] = 0
            for k in range(n_factors):
                w = weights[r, g, k]
                if w != 0:
                    for b in range(n_rows):
                        wz = w * z[r, b, k]
                        for i in range(hidden):
                            below[b, i] += wz * a[r, k, i]
            for b in range(n_rows):
                for i in range(hidden):
                    below[b, i] = max(below[b, i], 0)
            _product(below, trunk[r], above)
            for b in range(n_rows):
                total = intercept[r, 0, g]
                for i in range(hidden):
                    above[b, i] = max(above[b, i] + bias[r, 0, i], 0)
                    total += above[b, i] * head[r, g, i]
                line = zero
                for k in range(n_factors):
                    line += weights[r, g, k] * z[r, b, k]
                f[r, g, b] = total + slope[r, g, 0] * line


@compiled
def _decoder_back(r, score, z, decoder, grads, first, second, dz, product, back):
    """Gradients of restart r's decoder; `dz` (B, K) those of its factors."""
    weights, a, trunk, _, slope, head, _ = decoder
    d_weights, d_a, d_trunk, d_bias, d_slope, d_head, d_intercept = grads
    n_features, hidden = head.shape[1:]
    n_rows, n_factors = dz.shape
    of_a, zero = np.empty_like(a[0]), z.dtype.type(0)
    for g in range(n_features):
        below, above = first[r, g], second[r, g]
        d_head[r, g] = 0
        total = zero
        for b in range(n_rows):
            s = score[r, g, b]
            total += s
            for i in range(hidden):
                d_head[r, g, i] += s * above[b, i]
                above[b, i] = s * head[r, g, i] if above[b, i] > 0 else zero
                d_bias[r, 0, i] += above[b, i]
        d_intercept[r, 0, g] = total
        _cross(below, above, d_trunk[r], product)
        _product(above, trunk[r].T, back)
        for b in range(n_rows):
            for i in range(hidden):
                if not below[b, i] > 0:
                    back[b, i] = 0
        of_a[:] = 0
        d_slope[r, g, 0] = 0
        for k in range(n_factors):
            w, line = weights[r, g, k], zero
            ws = w * slope[r, g, 0]
            for b in range(n_rows):
                zk, pull = z[r, b, k], zero
                for i in range(hidden):
                    of_a[k, i] += zk * back[b, i]
                    pull += back[b, i] * a[r, k, i]
                line += zk * score[r, g, b]
                dz[b, k] += w * pull + ws * score[r, g, b]
            along = slope[r, g, 0] * line
            for i in range(hidden):
                along += of_a[k, i] * a[r, k, i]
                d_a[r, k, i] += w * of_a[k, i]
            d_weights[r, g, k] = along
            d_slope[r, g, 0] += w * line


@compiled
def _encoder_back(r, x, h1, h2, encoder, grads, d_location, d_log_sd, product, down, upper):
    """Gradients of restart r's encoder."""
    _, weight1, _, weight2, _, of_location, _, of_log_sd, _ = encoder
    d_skip, d_weight1, d_bias1, d_weight2, d_bias2, d_of_location, d_mean, d_of_log_sd, d_spread = grads
    (n_rows, n_factors), zero = d_location.shape, x.dtype.type(0)
    small, direct = np.empty_like(of_location[0]), np.empty_like(d_skip[0])
    _cross(x, d_location, d_skip[r], direct)
    _cross(h2[r], d_location, d_of_location[r], small)
    _cross(h2[r], d_log_sd, d_of_log_sd[r], small)
    for b in range(n_rows):
        for k in range(n_factors):
            d_mean[r, 0, k] += d_location[b, k]
            d_spread[r, 0, k] += d_log_sd[b, k]
    _product(d_location, of_location[r].T, down)
    _product(d_log_sd, of_log_sd[r].T, upper)
    for b in range(n_rows):
        for i in range(down.shape[1]):
            down[b, i] = down[b, i] + upper[b, i] if h2[r, b, i] > 0 else zero
            d_bias2[r, 0, i] += down[b, i]
    _cross(h1[r], down, d_weight2[r], product)
    _product(down, weight2[r].T, upper)
    for b in range(n_rows):
        for i in range(upper.shape[1]):
            upper[b, i] = upper[b, i] if h1[r, b, i] > 0 else zero
            d_bias1[r, 0, i] += upper[b, i]
    _cross(x, upper, d_weight1[r], np.empty_like(weight1[r]))


@compiled
def backward(
    x, noise, low, high, encoder, decoder, h1, h2, location, raw, z, first, second, score, precision, of_z,
    of_encoder, of_decoder, divergence,
):  # fmt: skip
    """Gradients by all parameters, and each restart's divergence from N(0, C), without its constants.

    Given: what `forward` was given and found (`second` is overwritten), the gradient `score` by the linear
    predictor (R, G, B), `precision` (R, K, K), and the weight of the divergence in the gradients. Found:
    `of_encoder` and `of_decoder`, shaped like the parameters, and `divergence` (R,).
    """
    n_restarts, n_rows, n_factors = z.shape
    zero = z.dtype.type(0)
    for gradient in of_encoder:
        gradient[:] = 0
    for gradient in of_decoder:
        gradient[:] = 0
    dz, d_log_sd = np.empty_like(z[0]), np.empty_like(z[0])
    hidden, encoder_hidden = first.shape[3], h1.shape[2]
    product, back = np.empty((hidden, hidden), z.dtype), np.empty((n_rows, hidden), z.dtype)
    square, down = (
        np.empty((encoder_hidden, encoder_hidden), z.dtype),
        np.empty((n_rows, encoder_hidden), z.dtype),
    )
    upper = np.empty_like(down)
    for r in range(n_restarts):
        dz[:] = 0
        _decoder_back(r, score, z, decoder, of_decoder, first, second, dz, product, back)
        total = zero
        for b in range(n_rows):
            for k in range(n_factors):
                log_sd = min(max(raw[r, b, k], low), high)
                sd, pulled = np.exp(log_sd), zero
                for j in range(n_factors):
                    pulled += precision[r, k, j] * location[r, b, j]
                spread = sd * sd * precision[r, k, k]
                total += pulled * location[r, b, k] + spread - 2 * log_sd
                inside = low < raw[r, b, k] < high
                slope = dz[b, k] * noise[r, b, k] * sd + of_z * (spread - 1)
                d_log_sd[b, k] = slope if inside else zero
            for k in range(n_factors):
                pulled = zero
                for j in range(n_factors):
                    pulled += precision[r, k, j] * location[r, b, j]
                dz[b, k] += of_z * pulled
        divergence[r] = total
        _encoder_back(r, x, h1, h2, encoder, of_encoder, dz, d_log_sd, square, down, upper)


class CompiledPass:
    """`forward` and `backward` on a model's own memory.

    Parameters
    ----------
    encoder, decoder : sequence of Parameter
        In the order of `SparseElbo`; their memory stays where it is.
    log_sd_range : tuple of float
    """

    def __init__(
        self, encoder: Sequence[Tensor], decoder: Sequence[Tensor], log_sd_range: tuple[float, float]
    ):
        self.encoder, self.decoder = (
            tuple(p.detach().numpy() for p in network) for network in (encoder, decoder)
        )
        kind = self.encoder[0].dtype.type
        self.range = kind(log_sd_range[0]), kind(log_sd_range[1])
        self.gradients = [[np.empty_like(p) for p in network] for network in (self.encoder, self.decoder)]
        self.gradient_tensors = [torch.from_numpy(g) for gradients in self.gradients for g in gradients]
        self.f = np.empty((0, 0, 0), kind)

    @staticmethod
    def suits(model: SparseDecoder) -> bool:
        """Whether numba is installed and a `SparseDecoder` is of the kind and size that is compiled here."""
        widest = max(model.hidden, model.encoder_hidden)
        small = _ONE_THREAD // widest**2 >= _FEWEST_ROWS
        relu = model.decoder_kind == "mlp" and model.activation == "relu"
        return COMPILED and relu and small and model.weights.device.type == "cpu"

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """Linear predictor (R, G, B) of what the encoder reads (B, I) and noise (R, B, K)."""
        (n_restarts, n_rows, _), (n_features, hidden) = noise.shape, self.decoder[5].shape[1:]
        if self.f.shape != (n_restarts, n_features, n_rows):
            layer = n_restarts, n_rows, self.encoder[1].shape[2]
            cube = n_restarts, n_features, n_rows, hidden
            shapes = [layer, layer, *[tuple(noise.shape)] * 3, cube, cube]
            self.room = [np.empty(shape, self.f.dtype) for shape in shapes]
            self.f, self.divergence = np.empty(cube[:3], self.f.dtype), np.empty(n_restarts, self.f.dtype)
        read = np.ascontiguousarray(x.numpy()), noise.numpy()
        self.arguments = *read, *self.range, self.encoder, self.decoder, *self.room
        forward(*self.arguments, self.f)
        return torch.from_numpy(self.f)

    def backward(
        self, score: Tensor, precision: np.ndarray | Tensor, of_z: float
    ) -> tuple[np.ndarray, list[Tensor]]:
        """The divergence of each restart, without its constants, and gradients by all parameters.

        Both hold until the next call. `score` (R, G, B) is the gradient by the linear predictor, `precision`
        (R, K, K) that of the factors' prior, and `of_z` the weight of the divergence in the gradients.
        """
        of_encoder, of_decoder = self.gradients
        backward(
            *self.arguments, score.contiguous().numpy(), np.ascontiguousarray(precision),
            self.f.dtype.type(of_z), tuple(of_encoder), tuple(of_decoder), self.divergence,
        )  # fmt: skip
        return self.divergence, self.gradient_tensors
