"""Small transitions to fit."""

from __future__ import annotations

import pyro_sparse as ps

SMALL = {
    "steps": 120,
    "polish_steps": 20,
    "edge_steps": 20,
    "batch_size": 64,
    "progress": False,
    "evaluate_every": 60,
}


def model_of(x, n_latents=3, **options):
    return ps.models.LatentTransition(
        x.shape[-1], n_latents, **{"hidden": 16, "units": 16, "gated_units": 8, **options}
    )
