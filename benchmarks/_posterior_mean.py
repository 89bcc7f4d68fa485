r"""What any method could know: the mean of latents given their features, by the law that made the table.

Particles of each row go from :math:`z \sim N(0, I)` to its posterior under :math:`x = g(z) + \sigma\epsilon`
through powers :math:`0 = \beta_0 < \dots < 1` of the likelihood, each as far as leaves half of the particles
effective; between them systematic resampling and Metropolis moves, two of random walk (its step tuned to one
acceptance in four) and one along the difference of two other particles, which knows the scale of a thin
posterior and leads from one of its parts to another (all move at once: exact as their number grows).

Del Moral, Doucet and Jasra (2006), Sequential Monte Carlo samplers, J. R. Stat. Soc. B 68.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["posterior_mean"]

_ROUNDS = 2  # of the three moves, at each power
_KEPT = 0.5  # effective share of the particles that a power leaves


def posterior_mean(
    g: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    noise: float,
    d: int,
    particles: int = 1000,
    seed: int = 0,
) -> np.ndarray:
    """Posterior mean of the latents of each row, (row, d).

    Parameters
    ----------
    g : callable
        Latents (n, d) to features (n, G) without noise.
    x : ndarray (row, G)
        Features.
    noise : float
        Standard deviation of the noise.
    d : int
        Latents.
    particles : int
        For each row.
    seed : int
    """
    rng = np.random.default_rng(seed)
    rows = len(x)

    def misfit(z: np.ndarray) -> np.ndarray:
        error = x[:, None] - g(z.reshape(-1, d)).reshape(rows, particles, -1)
        return (error**2).sum(-1) / (2 * noise**2)

    z = rng.standard_normal((rows, particles, d))
    energy, power, step = misfit(z), np.zeros(rows), np.ones((rows, 1, 1))
    while (power < 1).any():
        power, weight = _next_power(power, energy)
        kept = _resampled(weight, rng)
        z, energy = np.take_along_axis(z, kept[..., None], 1), np.take_along_axis(energy, kept, 1)
        for move in range(3 * _ROUNDS):
            walk = move % 3 < 2
            if walk:
                proposal = z + step * rng.standard_normal(z.shape)
            else:
                one, other = rng.integers(particles, size=(2, rows, particles, 1))
                size = 1.0 if move < 3 else 2.38 / np.sqrt(2 * d)
                ahead = np.take_along_axis(z, one, 1) - np.take_along_axis(z, other, 1)
                proposal = z + size * ahead + 1e-3 * rng.standard_normal(z.shape)
            there = misfit(proposal)
            gain = power[:, None] * (energy - there) + ((z**2).sum(-1) - (proposal**2).sum(-1)) / 2
            taken = np.log(rng.random(gain.shape)) < gain
            z, energy = np.where(taken[..., None], proposal, z), np.where(taken, there, energy)
            if walk:
                step = step * np.exp(taken.mean(1) - 0.25)[:, None, None]
    return z.mean(1)


def _next_power(power: np.ndarray, energy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next power of each row's likelihood, by bisection, and the weights of its particles."""

    def weights(to: np.ndarray) -> np.ndarray:
        weight = np.exp(-(to - power)[:, None] * (energy - energy.min(1, keepdims=True)))
        return weight / weight.sum(1, keepdims=True)

    def enough(to: np.ndarray) -> np.ndarray:
        return 1 / (weights(to) ** 2).sum(1) >= _KEPT * energy.shape[1]

    low, high = power, np.ones_like(power)
    end = enough(high)
    for _ in range(40):
        middle = (low + high) / 2
        good = enough(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    following = np.where(end, 1.0, np.maximum(low, power + 1e-9))
    return following, weights(following)


def _resampled(weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Systematic resampling in each row: (row, particle) of indices."""
    rows, particles = weight.shape
    total = weight.cumsum(1)
    total /= total[:, -1:]
    at = (rng.random((rows, 1)) + np.arange(particles)) / particles
    row = np.arange(rows)[:, None]
    found = np.searchsorted((total + row).ravel(), (at + row).ravel()).reshape(rows, particles)
    return np.clip(found - row * particles, 0, particles - 1)
