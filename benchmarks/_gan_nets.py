"""A small GAN of images, and what tells directions of its latent space apart, in DisCo's form.

The generator is frozen after its training. A navigator is an orthogonal matrix of directions; an encoder
reads an image before and after a step along one of them, and pairs of images must be recognised by the
direction that made them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import orthogonal

__all__ = ["Generator", "Navigator", "contrast", "downwards", "trained_generator"]

R1, R1_EVERY, AVERAGING = 1.0, 8, 0.998


class Generator(nn.Module):
    """Latents (row, d) to images (row, 3, size, size) in [0, 1]."""

    def __init__(self, size: int, n_latents: int, width: int = 48, hidden: int = 256):
        super().__init__()
        self.small = (2 * width, size // 4, size // 4)
        n_small = 2 * width * (size // 4) ** 2
        self.dense = nn.Sequential(
            nn.Linear(n_latents, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, n_small), nn.LeakyReLU(0.2)
        )
        self.convolutions = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, z: Tensor) -> Tensor:
        images: Tensor = self.convolutions(self.dense(z).view(-1, *self.small))
        return images


def downwards(size: int, n_out: int, width: int = 48, hidden: int = 256) -> nn.Sequential:
    """Images (row, 3, size, size) to (row, n_out): the discriminator, and the encoder of codes."""
    return nn.Sequential(
        nn.Conv2d(3, width, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * width * (size // 4) ** 2, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, n_out),
    )


def trained_generator(
    x: Tensor,
    n_latents: int,
    seed: int,
    steps: int,
    batch: int = 64,
    rate: float = 1e-3,
    averaging: float = AVERAGING,
) -> Generator:
    """A generator trained against a discriminator on images (image, 3, size, size), then frozen.

    Non-saturating loss; the discriminator's slope at real images is penalised every eighth step (R1); the
    weights are averages over the last steps.
    """
    torch.manual_seed(seed)
    size = x.shape[-1]
    generator, averaged = (Generator(size, n_latents) for _ in range(2))
    discriminator = downwards(size, 1)
    averaged.load_state_dict(generator.state_dict())
    averaged.requires_grad_(False)
    optimisers = [
        torch.optim.Adam(net.parameters(), lr=rate, betas=(0.0, 0.99)) for net in (generator, discriminator)
    ]
    for step in range(steps):
        real = x[torch.randint(len(x), (batch,))].requires_grad_(step % R1_EVERY == 0)
        fake = generator(torch.randn(batch, n_latents))
        logit = discriminator(real)
        loss = F.softplus(-logit).mean() + F.softplus(discriminator(fake.detach())).mean()
        if step % R1_EVERY == 0:
            (slope,) = torch.autograd.grad(logit.sum(), real, create_graph=True)
            loss = loss + R1_EVERY * R1 / 2 * slope.square().sum((1, 2, 3)).mean()
        descend(optimisers[1], loss)
        descend(optimisers[0], F.softplus(-discriminator(fake)).mean())
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(generator.parameters()), 1 - averaging)
    return averaged


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


class Navigator(nn.Module):
    """K orthonormal directions of a latent space, the columns of `directions` (d, K); at first random."""

    def __init__(self, n_latents: int, n_directions: int):
        super().__init__()
        self.rotation = orthogonal(
            nn.Linear(n_directions, n_latents, bias=False), orthogonal_map="householder"
        )

    @property
    def directions(self) -> Tensor:
        directions: Tensor = self.rotation.weight
        return directions


def contrast(variations: Tensor, direction: Tensor, temperature: float = 0.1) -> tuple[Tensor, Tensor]:
    r"""Contrastive loss of variations (pair, code), and the mean entropy of a variation over codes.

    A variation is :math:`v = |E(G(z + \epsilon a_k)) - E(G(z))|`, of unit length. Two of one direction should
    be alike (positive), two of different directions not:
    :math:`-\mathrm{mean} \log \sigma(v \cdot v' / \tau)` over positive, the same of
    :math:`\log (1 - \sigma)` over negative pairs. Small entropies give each direction a code of its own.

    Parameters
    ----------
    variations : Tensor (pair, code)
        Not negative.
    direction : Tensor of int (pair,)
    temperature : float
    """
    unit = F.normalize(variations, dim=1)
    likeness = (unit @ unit.T) / temperature
    same = direction[:, None] == direction[None]
    apart = ~same
    same = same & ~torch.eye(len(direction), dtype=torch.bool)
    loss = F.softplus(-likeness[same]).mean() + F.softplus(likeness[apart]).mean()
    share = unit.square().clamp_min(1e-12)
    return loss, -(share * share.log()).sum(1).mean()
