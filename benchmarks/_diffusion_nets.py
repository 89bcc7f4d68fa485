"""A diffusion model whose noise is predicted from scalar concepts of the image, in EncDiff's form, small.

An encoder gives each image K scalar concepts. Each concept becomes one token by a network of its own, and the
tokens are all that a U-Net is told of the image beside its noisy copy, by cross attention.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pyro_sparse.nets.layers import BatchLinear

GROUPS, PATCH = 8, 2  # channels are normalised in groups; the U-Net works on patches of 2 x 2 pixels


class ConceptEncoder(nn.Module):
    """Images (image, 3, size, size) to concepts (image, K), without noise and without bounds."""

    def __init__(self, size: int, n_concepts: int, width: int = 32):
        super().__init__()
        widths = (3, width, 2 * width, 2 * width)
        layers: list[nn.Module] = []
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Conv2d(n_in, n_out, 4, stride=2, padding=1), nn.SiLU()]
        n_flat = widths[-1] * (size // 8) ** 2
        layers += [nn.Flatten(), nn.Linear(n_flat, 4 * width), nn.SiLU(), nn.Linear(4 * width, n_concepts)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        concepts: Tensor = self.layers(2 * x - 1)
        return concepts


class ConceptTokens(nn.Module):
    """Concepts (row, K) to tokens (row, K, d): token k is a function of concept k alone."""

    def __init__(self, n_concepts: int, n_token: int, hidden: int = 32):
        super().__init__()
        self.first = BatchLinear(n_concepts, 1, hidden)
        self.bend = nn.Parameter(torch.randn(n_concepts, 1, hidden))  # else all bend at 0
        self.second = BatchLinear(n_concepts, hidden, n_token)

    def forward(self, concepts: Tensor) -> Tensor:
        h = F.silu(self.first(concepts.mT.unsqueeze(-1)) + self.bend)
        tokens: Tensor = self.second(h).transpose(0, 1)
        return tokens


class CrossAttention(nn.Module):
    """Each place of images (row, channel, height, width) reads the tokens; spelt out, for its Jacobian."""

    def __init__(self, channels: int, n_token: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.query = nn.Conv2d(channels, channels, 1)
        self.key_value = nn.Linear(n_token, 2 * channels)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, h: Tensor, tokens: Tensor) -> Tensor:
        n, channels, height, width = h.shape
        query = self.query(self.norm(h)).view(n, self.heads, channels // self.heads, -1)
        key, value = self.key_value(tokens).view(n, -1, 2, self.heads, channels // self.heads).unbind(2)
        # (row, head, place, token)
        logits = torch.einsum("nhcp,nkhc->nhpk", query, key) / math.sqrt(channels // self.heads)
        read = torch.einsum("nhpk,nkhc->nhcp", logits.softmax(-1), value)
        answer: Tensor = h + self.out(read.reshape(n, channels, height, width))
        return answer


class Residual(nn.Module):
    """Two convolutions beside the image itself, told the noise level between them."""

    def __init__(self, channels: int, n_level: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(GROUPS, channels) for _ in range(2)])
        self.convolutions = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)])
        self.level = nn.Linear(n_level, channels)
        nn.init.zeros_(self.convolutions[1].weight)

    def forward(self, h: Tensor, level: Tensor) -> Tensor:
        inner = self.convolutions[0](F.silu(self.norms[0](h)))
        inner = inner + self.level(level)[:, :, None, None]
        answer: Tensor = h + self.convolutions[1](F.silu(self.norms[1](inner)))
        return answer


class NoisePredictor(nn.Module):
    """Noise in images (row, 3, size, size) at times (row,) in [0, 1], given concepts (row, K).

    Two resolutions, at each of which the places read the tokens; nothing else depends on the concepts.
    """

    def __init__(self, n_concepts: int, channels: int = 32, n_token: int = 32):
        super().__init__()
        pixels, n_level, deep = 3 * PATCH**2, 2 * channels, 2 * channels
        self.tokens = ConceptTokens(n_concepts, n_token)
        self.level = nn.Sequential(
            nn.Linear(channels, n_level), nn.SiLU(), nn.Linear(n_level, n_level), nn.SiLU()
        )
        self.enter = nn.Conv2d(pixels, channels, 3, padding=1)
        self.fine = nn.ModuleList([Residual(channels, n_level) for _ in range(2)])
        self.coarse = nn.ModuleList([Residual(deep, n_level) for _ in range(2)])
        self.fine_reads = nn.ModuleList([CrossAttention(channels, n_token) for _ in range(2)])
        self.coarse_reads = nn.ModuleList([CrossAttention(deep, n_token) for _ in range(2)])
        self.down = nn.Conv2d(channels, deep, 4, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(deep, channels, 4, stride=2, padding=1)
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.leave = nn.Conv2d(channels, pixels, 3, padding=1)
        octaves = torch.exp2(torch.linspace(0, 6, channels // 2)) * math.pi / 2
        self.register_buffer("octaves", octaves)

    def forward(self, noisy: Tensor, time: Tensor, concepts: Tensor) -> Tensor:
        tokens = self.tokens(concepts)
        angle = time[:, None] * self.octaves
        level = self.level(torch.cat([angle.sin(), angle.cos()], 1))
        h = self.enter(F.pixel_unshuffle(noisy, PATCH))
        h = skip = self.fine_reads[0](self.fine[0](h, level), tokens)
        h = self.down(h)
        for residual, reads in zip(self.coarse, self.coarse_reads, strict=True):
            h = reads(residual(h, level), tokens)
        h = self.fine_reads[1](self.fine[1](self.up(h) + skip, level), tokens)
        return F.pixel_shuffle(self.leave(F.silu(self.norm(h))), PATCH)


class ConceptDiffusion(nn.Module):
    r"""Encoder and noise predictor, trained on images with noise.

    .. math:: x_t = \cos(\pi t / 2)\,(2x - 1) + \sin(\pi t / 2)\,\epsilon, \qquad t, x \in [0, 1]
    """

    def __init__(self, size: int, n_concepts: int, channels: int = 32):
        super().__init__()
        self.encoder = ConceptEncoder(size, n_concepts)
        self.noise = NoisePredictor(n_concepts, channels)

    @staticmethod
    def corrupted(x: Tensor, noise: Tensor, time: Tensor) -> Tensor:
        """Images in [0, 1] with noise, at times (row,)."""
        angle = (time * math.pi / 2)[:, None, None, None]
        return angle.cos() * (2 * x - 1) + angle.sin() * noise

    @torch.no_grad()
    def drawn(self, concepts: Tensor, size: int, steps: int = 40) -> Tensor:
        """Images of concepts, from noise alone, by the deterministic sampler (DDIM)."""
        h = torch.randn(len(concepts), 3, size, size)
        times = torch.linspace(0.98, 0.0, steps + 1)
        for now, then in zip(times[:-1], times[1:], strict=True):
            noise = self.noise(h, now.expand(len(h)), concepts)
            clean = ((h - (now * math.pi / 2).sin() * noise) / (now * math.pi / 2).cos()).clamp(-1, 1)
            h = (then * math.pi / 2).cos() * clean + (then * math.pi / 2).sin() * noise
        return (h + 1) / 2
