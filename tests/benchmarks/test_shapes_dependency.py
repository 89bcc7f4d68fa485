"""The shapes_dependency benchmark: its jobs, its sums, and the axes of a decoder that is known."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import shapes_dependency
from pyro_sparse.data.read import as_table
from pyro_sparse.inference import DependencyPenalty
from pyro_sparse.rivals import VAE, LatentL1


def options(**values):
    return Namespace(
        **{"seeds": 2, "quick": False, "first_seed": 0, "backbone": None, "method": None, **values}
    )


def test_every_seed_has_every_backbone_with_every_method():
    jobs = shapes_dependency.tasks(options())
    assert len(jobs) == 2 * 2 * 3 and [job["seed"] for job in jobs[:6]] == [0] * 6
    only = shapes_dependency.tasks(options(first_seed=1000, backbone=["vae"], method=["base"], seeds=1))
    assert only == [{"backbone": "vae", "method": "base", "seed": 1000, "quick": False}]
    assert len(shapes_dependency.tasks(options(quick=True, seeds=1))) == 2


def test_penalties():
    assert shapes_dependency.penalty("base") is None
    assert isinstance(shapes_dependency.penalty("latent_l1", 2.0), LatentL1)
    found = shapes_dependency.penalty("dependency")
    assert isinstance(found, DependencyPenalty) and found.scaled
    assert found.weight == shapes_dependency.WEIGHTS["dependency"]


def row(backbone, method, seed, value, **more):
    figures = dict.fromkeys(shapes_dependency.FIGURES, value)
    return {"backbone": backbone, "method": method, "seed": seed, "cpu_s": 9.0, **figures, **more}


def test_gains_are_of_means_over_seeds():
    axes = dict.fromkeys(shapes_dependency.FIGURES, 0.7)
    rows = [
        row("vae", "base", 0, 0.1, axes=axes),
        row("vae", "base", 1, 0.3, axes=axes),
        row("vae", "dependency", 0, 0.4, axes=axes),
        row("vae", "dependency", 1, 0.2, axes=axes),
    ]
    found = shapes_dependency.collect(rows, options())["vae"]
    assert found["base"]["dci_d"] == [0.1, 0.3] and "latent_l1" not in found
    assert found["dependency - base, dci_d"] == pytest.approx(0.1)
    assert found["axes - base, dci_d"] == pytest.approx(0.5) and found["met"]
    lines = shapes_dependency.table(rows)
    assert [line["method"] for line in lines] == ["base", "dependency", "axes", "dependency + axes"]
    assert {line["n"] for line in lines} == {2}


@pytest.mark.slow
def test_codes_that_are_the_levels_score_one():
    levels, _ = shapes_dependency.drawn(600, 16, [0, 0])
    found = shapes_dependency.figures(levels, levels[:, ::-1] * 2.0, 0, "histogram")
    assert found["factor_vae_score"] == 1 and found["dci_d"] > 0.95 and found["active"] == 6


def test_axes_of_a_known_decoder_in_the_order_of_the_codes():
    """Three groups of features, a latent each, turned; a fourth latent that no feature depends on."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 4))
    loadings = np.kron(np.eye(3), np.ones((4, 1))) * rng.uniform(1, 2, (12, 1)) * [3.0, 2.0, 1.0]
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    x = z[:, :3] @ loadings.T + 1e-3 * rng.normal(size=(400, 12))
    model = VAE(12, 4)
    torch.manual_seed(0)
    model.setup(1)
    table = as_table(x, likelihood=model.likelihood, standardise=False)
    mixed = z @ turn
    with torch.no_grad():
        for parameter in (model.decoder.head.weight, model.encoder.location.weight):
            parameter.zero_()
        full = np.column_stack([loadings, np.zeros(12)])
        model.decoder.skip[0] = torch.as_tensor(turn.T @ full.T)
        model.encoder.skip[0] = torch.as_tensor(np.linalg.pinv(x) @ mixed)
    location = model.encode(table.batch())[0][0].detach().double().numpy()
    order, sign = [2, 0, 3, 1], np.array([1.0, -1.0, -1.0, 1.0])
    fit = SimpleNamespace(
        model=model, table=table, alignment={"permutation": np.array([order]), "sign": sign[None]}
    )
    codes, found = shapes_dependency.on_axes(fit, x, x, location[:, order] * sign)
    between = np.abs(np.corrcoef(codes, z[:, :3], rowvar=False)[:4, 4:])
    best = between.argmax(1)
    strong = np.argsort(-codes.std(0))[:3]
    assert sorted(best[strong]) == [0, 1, 2] and between[strong, best[strong]].min() > 0.99
    assert codes.std(0).min() < 0.05 * codes.std(0).max() and 0 < found <= 1
