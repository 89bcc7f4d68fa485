"""diffusion: does dependency sparsity disentangle the concepts that a diffusion model of drawn shapes reads?

EncDiff's form, small: an encoder to 10 scalar concepts, one token a concept, cross attention of a U-Net that
predicts the noise; L1 loss. Images of 3D Shapes' six factors, drawn uniformly (16 x 16). `base` has no
penalty, `latent_l1` the L1 norm of the concepts, `dependency` that of the Jacobian of the noise prediction in
the concepts (times their standard deviations, one random column of a quarter of the images); `axes` is no fit
of its own: the rotation of base's concepts with the sparsest Jacobian, over images and noise levels. FactorVAE
score, DCI (boosted trees, classes) and MIG of 6,000 other images. Asked: dependency or axes at least .05 above
base in DCI.
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
from pyro_sparse.inference import jacobian_l1

SEEDS, QUICK_SEEDS = 3, 1
METHODS = ("base", "latent_l1", "dependency")
WEIGHTS = {"base": 0.0, "latent_l1": 0.01, "dependency": 0.001}
CONCEPTS, SIZE, N, N_TEST = 10, 16, 20_000, 6_000
STEPS, BATCH, RATE, SHARE = 5000, 64, 1e-3, 4


def trained(
    x: np.ndarray, method: str, weight: float, seed: int, n_concepts: int = CONCEPTS, steps: int = STEPS, batch: int = BATCH, channels=32, rate=RATE,
) -> ConceptDiffusion:
    torch.manual_seed(seed)
    model = ConceptDiffusion(x.shape[-1], n_concepts, channels)
    images = torch.as_tensor(x)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        clean = images[torch.randint(len(images), (batch,))]
        noise, time = torch.randn_like(clean), torch.rand(batch)
        noisy, concepts = model.corrupted(clean, noise, time), model.encoder(clean)
        loss = (model.noise(noisy, time, concepts) - noise).abs().mean()
        total = loss
        if method == "latent_l1":
            total = loss + weight * concepts.abs().sum(1).mean()
        elif method == "dependency":
            few = slice(0, batch // SHARE)
            total = loss + weight * jacobian_l1(
                lambda c: model.noise(noisy[few], time[few], c), concepts[few], scale=concepts.std(0)
            )
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        schedule.step()
        yield step, float(loss.detach()), model
