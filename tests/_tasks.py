"""A small set of tasks with a known answer, and a quick fit of it."""

from __future__ import annotations

import numpy as np

import pyro_sparse as ps

SHORT = {"steps": 60, "sparse_steps": 20, "learning_rate": 0.03, "progress": False}


def tasks_on_latents(seed=0, t=100, n=30, g=5, k=3, noise=0.2, laplace=False):
    """Tasks on latents that a linear map mixes: x, y, latents, weights."""
    rng = np.random.default_rng(seed)
    support = rng.random((t, k)) < 0.5
    support[np.arange(t), rng.integers(k, size=t)] = True
    w = support * rng.choice([-1, 1], (t, k)) * rng.uniform(0.5, 1.5, (t, k))
    z = rng.laplace(size=(t, n, k)) if laplace else rng.normal(size=(t, n, k))
    y = (z * w[:, None]).sum(-1) + noise * rng.normal(size=(t, n))
    return z @ rng.normal(size=(k, g)), 3 * y + 10, z, w


def quick_fit(x, y, n_latents=3, **options):
    model = ps.models.MultiTaskRegression(x.shape[-1], n_latents)
    return ps.fit(model, x, y, **{"seed": 1, **SHORT, **options})
