"""gan: does dependency sparsity tell the directions of a GAN's latent space apart?

DisCo's form, small: a generator of drawn shapes (16 x 16; 10 latents), trained once for each seed and frozen;
a navigator, an orthogonal matrix of 10 directions; and an encoder whose answers before and after a step along
one of them must tell which it was (contrastive loss). The encoder's answers are the codes. `base` has no
penalty, `latent_l1` the L1 norm of the codes, `dependency` that of the generator's Jacobian along the
directions; `axes` freezes the navigator at the rotation with the sparsest Jacobian of the generator.
FactorVAE score, DCI (boosted trees, classes) and MIG of 3,000 other images. Nothing is asked: the paper gains
.001 to .018.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks._common import Row, report_seeds
from benchmarks._gan_nets import Generator, Navigator, contrast, descend, downwards, trained_generator
from benchmarks.diffusion import by_arm, codes_of, means
from benchmarks.shapes_dependency import drawn, figures

SEEDS, QUICK_SEEDS = 3, 1
METHODS = ("base", "latent_l1", "dependency", "axes")
WEIGHTS = {"base": 0.0, "latent_l1": 0.1, "dependency": 30.0, "axes": 0.0}  # the third chosen on seed 1000
LATENTS, SIZE, N, N_TEST = 10, 16, 20_000, 3_000
STEPS_GAN, STEPS, BATCH, RATE, STEP = 3000, 1200, 64, 1e-3, 2.0
ENTROPY = 0.1
ROWS_OF_AXES = 2000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--method", choices=METHODS, action="append", help="only this (repeatable)")


def tasks(options: argparse.Namespace) -> list[Row]:
    """One job a seed: its arms share a generator."""
    return [
        {
            "methods": options.method or list(METHODS),
            "seed": options.first_seed + seed,
            "quick": options.quick,
        }
        for seed in report_seeds(options.seeds)
    ]


def run(methods: list[str], seed: int, quick: bool = False) -> Row:
    return measured(methods, seed, **(QUICK if quick else {}))


QUICK: Row = {
    "n": 1000,
    "n_test": 600,
    "method_of_dci": "histogram",
    "steps_gan": 20,
    "steps": 20,
    "rows_of_axes": 200,
}


def measured(
    methods: list[str],
    seed: int,
    n: int = N,
    n_test: int = N_TEST,
    method_of_dci: str = "boosting",
    steps_gan: int = STEPS_GAN,
    rows_of_axes: int = ROWS_OF_AXES,
    **settings: Any,
) -> Row:
    """A generator, and of each method the figures of the codes; what is not given is as in the benchmark."""
    _, x = drawn(n, SIZE, [seed, 0])
    levels, others = drawn(n_test, SIZE, [seed, 1])
    images, others = (torch.as_tensor(own).view(-1, 3, SIZE, SIZE) for own in (x, others))
    start = time.process_time()
    generator = trained_generator(images, LATENTS, seed, steps_gan)
    row: Row = {"cpu_s_generator": time.process_time() - start}
    for method in methods:
        start = time.process_time()
        axes = sparse_directions(generator, rows_of_axes, seed) if method == "axes" else None
        encoder, _, loss = trained(generator, method, seed, directions=axes, **settings)
        codes = codes_of(encoder, others)
        seconds = time.process_time() - start
        row[method] = {**figures(levels, codes, seed, method_of_dci), "cpu_s": seconds, "loss": loss}
    return row


def sparse_directions(generator: Generator, n: int, seed: int) -> Tensor:
    """Orthonormal directions (latent, latent) along which a pixel depends on the fewest."""
    from pyro_sparse.inference import sparse_jacobian_axes

    torch.manual_seed(seed)
    axes = sparse_jacobian_axes(generator, torch.randn(n, LATENTS), n_starts=24)
    u, _, v = np.linalg.svd(axes.map)  # the covariance of a sample is the identity up to its error
    return torch.as_tensor(u @ v, dtype=torch.float32)


def trained(
    generator: Generator,
    method: str,
    seed: int,
    weight: float | None = None,
    directions: Tensor | None = None,
    steps: int = STEPS,
    batch: int = BATCH,
    rate: float = RATE,
    entropy: float = ENTROPY,
) -> tuple[torch.nn.Module, Tensor, float]:
    """Encoder, directions (free or given), and the mean contrastive loss over the last tenth of steps."""
    torch.manual_seed(seed)
    navigator, encoder = Navigator(LATENTS, LATENTS), downwards(SIZE, LATENTS)
    if directions is not None:
        navigator.rotation.weight = directions
        navigator.requires_grad_(False)
    free = [p for p in (*navigator.parameters(), *encoder.parameters()) if p.requires_grad]
    optimiser = torch.optim.Adam(free, lr=rate)
    weight = WEIGHTS[method] if weight is None else weight
    losses = []
    for _ in range(steps):
        z, direction = torch.randn(batch, LATENTS), torch.randint(LATENTS, (batch,))
        columns = navigator.directions
        there = z + STEP * columns.T[direction]
        codes = encoder(generator(torch.cat([z, there])))
        variation = (codes[batch:] - codes[:batch]).abs()
        loss, spread = contrast(variation, direction)
        total = loss + entropy * spread
        if method == "latent_l1":
            total = total + weight * codes.abs().sum(1).mean()
        elif method == "dependency":
            total = total + weight * slopes_along(generator, z, columns)
        descend(optimiser, total)
        losses.append(float(loss.detach()))
    return encoder, navigator.directions.detach(), float(np.mean(losses[-max(1, steps // 10) :]))


def slopes_along(generator: Generator, z: Tensor, directions: Tensor) -> Tensor:
    """Mean over images and pixels of the generator's absolute slopes along the directions, summed over these.

    The directions are a basis, so that none can escape to where the generator does nothing.
    """
    from pyro_sparse.inference import jacobian_l1

    total = jacobian_l1(lambda step: generator(z + step @ directions.T), torch.zeros_like(z), scale=None)
    return total / (3 * SIZE**2)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Of each arm the figures of all seeds, and what it gains in DCI over base."""
    result = by_arm({m: [row[m] for row in rows if m in row] for m in METHODS})
    return {**result, "cpu_s_generator": [row["cpu_s_generator"] for row in rows]}


def table(rows: list[Row]) -> list[Row]:
    """One line per arm: means over seeds, each with its standard error."""
    return means(collect(rows, argparse.Namespace()))
