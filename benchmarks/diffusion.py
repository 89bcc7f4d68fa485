"""diffusion: does dependency sparsity disentangle the concepts that a diffusion model of drawn shapes reads?

EncDiff's form, small: an encoder to 10 scalar concepts, one token a concept, cross attention of a U-Net that
predicts the noise; L1 loss. Images of 3D Shapes' six factors, drawn uniformly (16 x 16). `base` has no
penalty, `latent_l1` the L1 norm of the concepts, `dependency` that of the Jacobian of the noise prediction in
the concepts (times their standard deviations; one random column of each image, in every fourth step); `axes`
is no fit of its own: the rotation of base's concepts with the sparsest Jacobian, over images and noise
levels. FactorVAE score, DCI (boosted trees, classes) and MIG of 3,000 other images. Asked: dependency or axes
at least .05 above base in DCI.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks._common import Row, report_seeds
from benchmarks._diffusion_nets import ConceptDiffusion
from benchmarks.shapes_dependency import drawn, figures

SEEDS, QUICK_SEEDS = 3, 1
METHODS = ("base", "dependency", "latent_l1")
WEIGHTS = {"base": 0.0, "latent_l1": 0.01, "dependency": 0.02}  # the last chosen on seed 1000
CONCEPTS, SIZE, N, N_TEST = 10, 16, 20_000, 3_000
STEPS, BATCH, RATE, EVERY = 4000, 32, 1e-3, 4
ROWS_OF_AXES, ASKED = 1000, 0.05


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")
    parser.add_argument("--method", choices=METHODS, action="append", help="only this (repeatable)")
    parser.add_argument(
        "--size", type=int, choices=(16, 32, 64), default=SIZE, help=f"rows and columns (default {SIZE})"
    )


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {"method": m, "seed": options.first_seed + seed, "size": options.size, "quick": options.quick}
        for m in options.method or METHODS
        for seed in report_seeds(options.seeds)
    ]


def run(method: str, seed: int, size: int = SIZE, quick: bool = False) -> Row:
    return measured(method, seed, size, **(QUICK if quick else {}))


QUICK: Row = {"n": 1000, "n_test": 600, "method_of_dci": "histogram", "steps": 20, "rows_of_axes": 100}


def measured(
    method: str,
    seed: int,
    size: int = SIZE,
    n: int = N,
    n_test: int = N_TEST,
    method_of_dci: str = "boosting",
    rows_of_axes: int = ROWS_OF_AXES,
    **settings: Any,
) -> Row:
    """One fit and its figures; what is not given is as in the benchmark."""
    _, x = drawn(n, size, [seed, 0])
    levels, others = drawn(n_test, size, [seed, 1])
    images, others = (torch.as_tensor(own).view(-1, 3, size, size) for own in (x, others))
    model, loss = trained(images, method, seed, **settings)
    codes = codes_of(model.encoder, others)
    row = {**figures(levels, codes, seed, method_of_dci), "noise_loss": loss}
    if method == "base":
        rotated, found = on_axes(model, images[:rows_of_axes], codes, seed)
        row["axes"] = {**figures(levels, rotated, seed, method_of_dci), "found": found}
        row["axes_importance"] = row["axes"].pop("importance")
    return row


@torch.no_grad()
def codes_of(encoder: torch.nn.Module, images: Tensor) -> np.ndarray:
    """What an encoder says of images, (image, code)."""
    return in_widest(torch.cat([encoder(some) for some in images.split(500)]).numpy())


def in_widest(codes: np.ndarray) -> np.ndarray:
    """Codes in units of the widest: its own are arbitrary, and FactorVAE's score drops narrow ones."""
    widened: np.ndarray = codes / codes.std(0).max()
    return widened


def trained(
    images: Tensor,
    method: str,
    seed: int,
    weight: float | None = None,
    steps: int = STEPS,
    batch: int = BATCH,
    rate: float = RATE,
    **sizes: int,
) -> tuple[ConceptDiffusion, float]:
    """Model fitted to images (image, 3, size, size), and its mean noise loss over the last tenth of steps."""
    torch.manual_seed(seed)
    model = ConceptDiffusion(images.shape[-1], **({"n_concepts": CONCEPTS} | sizes))
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    weight = WEIGHTS[method] if weight is None else weight
    losses = []
    for step in range(steps):
        clean = images[torch.randint(len(images), (batch,))]
        with_penalty = step % EVERY == 0  # it doubles the price of a step
        loss, penalty = losses_of(model, clean, method if with_penalty else "base")
        rising = min(1.0, 2 * step / steps)  # from the start it would keep concepts from ever being read
        optimiser.zero_grad()
        (loss + EVERY * rising * weight * penalty).backward()
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return model, float(np.mean(losses[-max(1, steps // 10) :]))


def losses_of(model: ConceptDiffusion, clean: Tensor, method: str) -> tuple[Tensor, Tensor]:
    """Noise loss of a batch, and the penalty of a method: both per pixel and channel."""
    from pyro_sparse.inference import jacobian_l1

    noise, time = torch.randn_like(clean), times(len(clean))
    noisy, concepts = model.corrupted(clean, noise, time), model.encoder(clean)
    predicted = model.noise(noisy, time, concepts)
    loss = (predicted - noise).abs().mean()
    if method == "latent_l1":
        return loss, concepts.abs().sum(1).mean()
    if method == "dependency":
        total = jacobian_l1(
            lambda c: model.noise(noisy, time, c), concepts, estimator="difference", x_hat=predicted
        )
        return loss, total / clean[0].numel()
    return loss, loss.new_zeros(())


def times(n: int) -> Tensor:
    """Noise levels in [0, 1], high ones more often: there an image says little, and concepts matter."""
    return torch.rand(n).sqrt()


def on_axes(
    model: ConceptDiffusion, images: Tensor, codes: np.ndarray, seed: int
) -> tuple[np.ndarray, float]:
    """Codes in the sparse axes of the noise prediction; share of the search's starts that found them."""
    from pyro_sparse.inference import sparse_jacobian_axes

    torch.manual_seed(seed)
    time = times(len(images))
    noisy = model.corrupted(images, torch.randn_like(images), time)
    with torch.no_grad():
        concepts = model.encoder(images)
    axes = sparse_jacobian_axes(
        lambda c, noisy, time: model.noise(noisy, time, c), concepts, noisy, time, n_starts=24
    )
    return in_widest(axes.codes(codes)), axes.found


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Of each arm the figures of all seeds, and what it gains in DCI over base."""
    cells = {m: [row for row in rows if row["method"] == m] for m in METHODS}
    cells["axes"] = [{**row["axes"], "cpu_s": row["cpu_s"]} for row in cells["base"]]
    result = by_arm(cells)
    if gains := result.get("gain_dci"):
        result["met"] = max(gains.get(name, 0.0) for name in ("dependency", "axes")) >= ASKED
    return result


def by_arm(cells: dict[str, list[Row]]) -> Row:
    """The figures of each arm over seeds, and the gain of its mean DCI over base's."""
    result: Row = {
        name: {
            "dci": [row["dci_d"] for row in cell],
            "factorvae": [row["factor_vae_score"] for row in cell],
            **{key: [row[key] for row in cell] for key in ("dci_c", "dci_i", "mig", "cpu_s")},
        }
        for name, cell in cells.items()
        if cell
    }
    if cells["base"]:
        base = np.mean(result["base"]["dci"])
        result["gain_dci"] = {
            name: float(np.mean(arm["dci"]) - base) for name, arm in result.items() if name != "base"
        }
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per arm: means over seeds, each with its standard error."""
    return means(collect(rows, argparse.Namespace()))


def means(result: Row) -> list[Row]:
    """Means and standard errors (of the mean, over seeds) of every figure of every arm."""
    lines: list[Row] = []
    for name, arm in result.items():
        if isinstance(arm, dict) and "dci" in arm:
            line: Row = {"arm": name, "n": len(arm["dci"])}
            for key, values in arm.items():
                line[key] = float(np.mean(values))
                if len(values) > 1 and key != "cpu_s":
                    line[f"{key} se"] = float(np.std(values, ddof=1) / len(values) ** 0.5)
            lines.append(line)
    return lines
