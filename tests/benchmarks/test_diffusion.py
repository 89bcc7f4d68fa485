"""The diffusion benchmark: tokens, noise, the penalty against an exact Jacobian, known axes, sums."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

from benchmarks import diffusion
from benchmarks._diffusion_nets import ConceptDiffusion, ConceptTokens
from pyro_sparse.inference import jacobian_l1

K = 3


def small(seed=0):
    """A tiny model in double precision, with every layer that starts at zero moved away from it."""
    torch.manual_seed(seed)
    model = ConceptDiffusion(8, K, channels=8).double()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model, torch.rand(6, 3, 8, 8, dtype=torch.float64), torch.rand(6, dtype=torch.float64)


def options(**values):
    return Namespace(**{"seeds": 2, "quick": False, "first_seed": 0, "method": None, "size": 16, **values})


def test_arm_by_arm():
    jobs = diffusion.tasks(options())
    assert [(job["method"], job["seed"]) for job in jobs[:3]] == [("base", 0), ("base", 1), ("dependency", 0)]
    only = diffusion.tasks(options(first_seed=1000, method=["dependency"], seeds=1))
    assert only == [{"method": "dependency", "seed": 1000, "size": 16, "quick": False}]


def test_a_concept_feeds_its_own_token_only():
    tokens = ConceptTokens(K, n_token=5).double()
    jacobian = torch.func.jacrev(tokens)(torch.randn(2, K, dtype=torch.float64))
    slope = jacobian.abs().sum(2)  # (row, token, row, concept)
    for row in range(2):
        for k in range(K):
            assert slope[row, k, row, k] > 0
            slope[row, k, row, k] = 0
    assert not slope.any()


def test_noise_is_predicted_row_by_row_and_needs_the_concepts():
    model, x, time = small()
    concepts = model.encoder(x)
    whole = model.noise(x, time, concepts)
    torch.testing.assert_close(model.noise(x[2:4], time[2:4], concepts[2:4]), whole[2:4])
    assert not torch.allclose(model.noise(x, time, concepts + 1), whole)
    at_0, at_1 = (model.corrupted(x, torch.zeros_like(x), torch.full((6,), t).double()) for t in (0.0, 1.0))
    torch.testing.assert_close(at_0, 2 * x - 1)
    torch.testing.assert_close(at_1, torch.zeros_like(x))


@pytest.mark.slow
def test_the_penalty_is_that_of_the_exact_jacobian():
    model, x, time = small()
    concepts = model.encoder(x).detach()
    jacobian = torch.func.vmap(torch.func.jacrev(model.noise, argnums=2))(
        x.unsqueeze(1), time.unsqueeze(1), concepts.unsqueeze(1)
    )  # (row, 1, channel, height, width, 1, concept)
    exact = float(
        (jacobian.abs().flatten(1, -2).sum(1) * concepts.std(0, correction=0)).sum(1).mean().detach()
    )

    def fn(c):
        return model.noise(x, time, c)

    for estimator in ("column", "difference"):
        torch.manual_seed(0)
        drawn = torch.stack([jacobian_l1(fn, concepts, estimator=estimator).detach() for _ in range(60)])
        error = float(drawn.std() / len(drawn) ** 0.5)
        assert float(drawn.mean()) == pytest.approx(exact, abs=4 * error + 1e-6)
    assert float(jacobian_l1(fn, concepts, estimator="exact").detach()) == pytest.approx(exact)


def test_penalties_reach_encoder_and_noise_predictor():
    model, x, _ = small()
    model.float()
    for method, reached in (("latent_l1", {"encoder"}), ("dependency", {"encoder", "noise"})):
        loss, penalty = diffusion.losses_of(model, x.float(), method)
        model.zero_grad()
        penalty.backward()
        assert {
            name.split(".")[0] for name, own in model.named_parameters() if own.grad is not None
        } == reached
        assert penalty > 0 and loss > 0
    assert float(diffusion.losses_of(model, x.float(), "base")[1]) == 0


@pytest.mark.slow
def test_training_lowers_the_noise_loss():
    x = torch.rand(4, 3, 8, 8).round()
    few, many = (
        diffusion.trained(x, "base", 0, steps=steps, batch=16, n_concepts=K, channels=8, rate=5e-3)[1]
        for steps in (10, 120)
    )
    assert many < 0.9 * few


def test_axes_of_a_known_model():
    """Pixels of one concept each, at all noise levels, seen through a rotation."""
    model, *_ = small()
    rotation = torch.as_tensor(ortho_group.rvs(K, random_state=0), dtype=torch.float32)
    concepts = torch.randn(800, K)

    def noise(noisy, time, mixed):
        own = mixed @ rotation.T
        return own.repeat(1, 4) * (1 + time[:, None]) + noisy.flatten(1)[:, :1]

    model.noise.forward, model.encoder.forward = noise, lambda images: concepts @ rotation
    codes, found = diffusion.on_axes(model, torch.rand(800, 3, 8, 8), (concepts @ rotation).numpy(), 0)
    between = np.abs(np.corrcoef(codes, concepts.numpy(), rowvar=False)[:K, K:])
    assert sorted(between.argmax(1)) == [0, 1, 2] and between.max(1).min() > 0.98 and found > 0


def test_codes_are_in_units_of_the_widest():
    torch.manual_seed(0)
    encoder, images = torch.nn.Linear(3, 2), torch.randn(1200, 3)
    codes = diffusion.codes_of(encoder, images)
    assert codes.std(0).max() == pytest.approx(1)
    plain = encoder(images).detach().numpy()
    np.testing.assert_allclose(codes * plain.std(0).max(), plain, atol=1e-6)


def row(method, seed, value, **more):
    keys = ("dci_d", "factor_vae_score", "dci_c", "dci_i", "mig", "cpu_s")
    return {"method": method, "seed": seed, **dict.fromkeys(keys, value), **more}


def test_gains_are_of_means_over_seeds_with_their_errors():
    axes = row("axes", 0, 0.24)
    rows = [row("base", 0, 0.1, axes=axes), row("base", 1, 0.3, axes=axes), row("dependency", 0, 0.21)]
    found = diffusion.collect(rows, options())
    assert found["base"]["dci"] == [0.1, 0.3] and found["axes"]["factorvae"] == [0.24, 0.24]
    assert "latent_l1" not in found and found["gain_dci"] == pytest.approx({"axes": 0.04, "dependency": 0.01})
    assert not found["met"]
    lines = {line["arm"]: line for line in diffusion.table(rows)}
    assert set(lines) == {"base", "dependency", "axes"} and lines["base"]["n"] == 2
    assert lines["base"]["dci"] == pytest.approx(0.2) and lines["base"]["dci se"] == pytest.approx(0.1)
    assert "dci se" not in lines["dependency"]


@pytest.mark.slow
def test_the_quick_run_has_every_figure():
    found = diffusion.run("base", 1000, quick=True)
    assert {"dci_d", "factor_vae_score", "mig", "noise_loss", "axes"} <= set(found)
    assert np.isfinite(found["noise_loss"]) and 0 < found["axes"]["found"] <= 1
