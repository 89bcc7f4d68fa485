"""A fit without a fit: the attributes and methods that results code reads, filled by a small known model.

The truth is a linear factor model with two to four features per factor. Restarts are the truth with a little
noise; the last one has lost a factor and is far worse, and one edge is disputed by a good restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch

from pyro_sparse.findings.finding import Finding, sentences
from pyro_sparse.models import DependencyVAE


@dataclass
class FakeFit:
    weights: np.ndarray
    effects: np.ndarray
    edge_score: np.ndarray
    eta: np.ndarray
    elbo: np.ndarray
    heldout_elbo: np.ndarray
    best: int
    feature_names: list[str]
    factor_names: list[str]
    sample_names: list[str]
    history: pd.DataFrame
    factor_cov: np.ndarray
    noise_sd: np.ndarray | None
    alignment: dict[str, np.ndarray]
    settings: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    model: Any = None
    table: Any = field(
        default_factory=lambda: SimpleNamespace(design=None, x=[0], weights=None, taken=(), n_counted=200)
    )

    @property
    def warnings(self) -> list[str]:
        return sentences(self.findings)

    @property
    def n_restarts(self) -> int:
        return len(self.weights)

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng(seed)
        k = self.weights.shape[2]
        z = rng.multivariate_normal(np.zeros(k), self.factor_cov, size=n)
        return z @ self.weights[self.best].T + rng.normal(size=(n, len(self.feature_names))) * self.noise_sd

    def inverse_transform(self, z: np.ndarray) -> np.ndarray:
        mean = np.asarray(z, dtype=float) @ self.weights[self.best].T
        mean[:, -1] += 0.4 * np.asarray(z)[:, 0] ** 2  # the last feature bends with the first factor
        return mean

    def edge_posterior(
        self, method: str = "score", num_draws: int = 500, seed: int = 0, **options: Any
    ) -> Any:
        from pyro_sparse.inference.edges import edge_posterior

        return edge_posterior(self, method=method, num_draws=num_draws, seed=seed, **options)


def fake_fit(
    n_features: int = 12,
    n_factors: int = 4,
    n_active: int = 3,
    n_restarts: int = 6,
    n_samples: int = 200,
    seed: int = 0,
    feature_names: list[str] | None = None,
    findings: list[Finding] | None = None,
) -> FakeFit:
    """Build one; feature 0 -> factor 1 is disputed by restart 1 when there are at least two restarts."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((n_features, n_factors))
    for j in range(n_features):
        truth[j, j % n_active] = rng.choice([-1, 1]) * rng.uniform(0.5, 0.95)
        if j % 5 == 4 and n_active > 1:
            truth[j, (j + 1) % n_active] = rng.choice([-1, 1]) * rng.uniform(0.25, 0.4)
    support = truth != 0
    restarts = np.arange(n_restarts)
    weights = np.where(support, truth + 0.02 * rng.normal(size=(n_restarts, n_features, n_factors)), 0.0)
    score = np.where(support, rng.uniform(0.97, 1.0, size=weights.shape), 0.004)
    score[:, :, n_active:] = 0.0
    score[:, 1, (1 + 1) % n_active] = 0.35  # a near miss in every restart
    elbo = -1.2 - 0.0002 * restarts
    if n_restarts > 2:  # a poor restart: lost its last factor
        weights[-1, :, n_active - 1] = 0.0
        score[-1, :, n_active - 1] = 0.0
        elbo[-1] -= 0.9
    if n_restarts > 1:  # a good restart that disagrees about one edge
        weights[1, 0, 0] = 0.0
        score[1, 0, 0] = 0.02
    correlation = np.eye(n_factors)
    if n_active > 1:
        correlation[0, 1] = correlation[1, 0] = 0.3
    noise_sd = np.sqrt(np.clip(1 - (truth**2).sum(1), 0.1, None))
    variance = np.einsum("jk,kl,jl->j", truth, correlation, truth) + noise_sd**2
    effects = np.clip(weights**2 / variance[:, None], 0, 1)
    steps = np.arange(0, 1500, 25)
    curves = []
    for r in restarts:
        path = (
            elbo[r] - (2.5 + 0.3 * rng.random()) * np.exp(-steps / 180) + 0.01 * rng.normal(size=len(steps))
        )
        curves.append(
            pd.DataFrame(
                {
                    "step": steps,
                    "restart": r,
                    "elbo": path,
                    "heldout_elbo": path - 0.03,
                    "edges": (n_features * 2 * np.exp(-steps / 400) + support.sum()).astype(int),
                    "stage": np.where(steps < 450, "dense", np.where(steps < 1100, "sparse", "polish")),
                }
            )
        )
    identity = np.tile(np.arange(n_factors), (n_restarts, 1))
    return FakeFit(
        weights=weights,
        effects=effects,
        edge_score=score,
        eta=np.full((n_restarts, n_factors), 0.3),
        elbo=elbo,
        heldout_elbo=elbo - 0.03,
        best=0,
        feature_names=feature_names or [f"item {j + 1}" for j in range(n_features)],
        factor_names=[f"factor {k + 1}" for k in range(n_factors)],
        sample_names=[f"row {i}" for i in range(n_samples)],
        history=pd.concat(curves, ignore_index=True),
        factor_cov=correlation,
        noise_sd=noise_sd,
        alignment={
            "permutation": identity,
            "sign": np.ones((n_restarts, n_factors)),
            "congruence": np.where(identity < n_active, 0.99, np.nan),
        },
        settings={
            "model": "SparseDecoder",
            "likelihood": "normal",
            "prior": "SpikeSlabLasso",
            "restarts": n_restarts,
            "seed": seed,
        },
        findings=list(findings or []),
    )


def fit_with_strengths(**options: Any) -> FakeFit:
    """One whose edges are read off the strengths of slopes, as those of a `DependencyVAE` are."""
    fit = fake_fit(**options)
    noise = 0.005 * np.abs(np.random.default_rng(1).normal(size=fit.weights.shape))
    fit.model = DependencyVAE(n_features=fit.weights.shape[1], n_factors=fit.weights.shape[2])
    fit.model.setup(n_restarts=fit.n_restarts)
    fit.model.strength = torch.as_tensor(np.clip(np.abs(fit.weights) + noise, 0, 1))
    return fit
