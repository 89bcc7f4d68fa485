"""The GAN benchmark: orthonormal directions, the contrastive loss, a generator whose directions are known."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

from benchmarks import gan
from benchmarks._gan_nets import Generator, Navigator, contrast, downwards, trained_generator


def options(**values):
    return Namespace(**{"seeds": 2, "quick": False, "first_seed": 0, "method": None, **values})


def test_one_job_a_seed():
    assert gan.tasks(options())[1] == {
        "methods": ["base", "latent_l1", "dependency", "axes"], "seed": 1, "quick": False
    }  # fmt: skip
    assert gan.tasks(options(seeds=1, first_seed=1000, method=["axes"]))[0]["methods"] == ["axes"]


def test_directions_stay_orthonormal_and_can_be_given():
    torch.manual_seed(0)
    navigator = Navigator(5, 3)
    optimiser = torch.optim.Adam(navigator.parameters(), lr=0.1)
    before = navigator.directions.detach().clone()
    for _ in range(20):
        optimiser.zero_grad()
        (navigator.directions * torch.randn(5, 3)).sum().backward()
        optimiser.step()
        torch.testing.assert_close(
            navigator.directions.T @ navigator.directions, torch.eye(3), atol=1e-5, rtol=0
        )
    assert not torch.allclose(navigator.directions, before, atol=0.1)


def test_the_contrast_is_least_where_each_direction_has_its_own_code():
    direction = torch.tensor([0, 0, 1, 1, 2, 2])
    own = torch.nn.functional.one_hot(direction, 3).float()
    loss, entropy = contrast(3 * own, direction)
    assert float(loss) == pytest.approx(np.log(2) + np.log1p(np.exp(-10)), abs=1e-5)  # cosines 0 and 1
    assert float(entropy) == pytest.approx(0, abs=1e-6)
    loss_alike, entropy_alike = contrast(torch.ones(6, 3), direction)
    assert float(loss_alike) > float(loss) + 5 and float(entropy_alike) == pytest.approx(np.log(3), abs=1e-5)


def known_generator(rotation):
    """Pixels of one latent each, behind a rotation: latents (row, 10) to images of 16 x 16."""
    return lambda z: torch.sigmoid((z @ rotation).repeat_interleave(77, 1)[:, :768]).view(-1, 3, 16, 16)


@pytest.mark.slow
def test_sparse_directions_of_a_known_generator():
    rotation = torch.as_tensor(ortho_group.rvs(10, random_state=0), dtype=torch.float32)
    directions = gan.sparse_directions(known_generator(rotation), 400, 0)
    torch.testing.assert_close(directions.T @ directions, torch.eye(10), atol=1e-5, rtol=0)
    cosines = (rotation.T @ directions).abs()
    assert sorted(cosines.argmax(0).tolist()) == list(range(10)) and cosines.max(0).values.min() > 0.95


@pytest.mark.slow
def test_slopes_along_directions_are_those_of_the_exact_jacobian():
    torch.manual_seed(0)
    generator, z = Generator(16, 10).double(), torch.randn(4, 10, dtype=torch.float64)
    rotation = torch.as_tensor(ortho_group.rvs(10, random_state=2))
    jacobian = torch.func.vmap(torch.func.jacrev(lambda own: generator(own[None])[0]))(z).detach()
    exact = float((jacobian.flatten(1, 3) @ rotation).abs().mean((0, 1)).sum())
    drawn = torch.stack([gan.slopes_along(generator, z, rotation).detach() for _ in range(80)])
    error = float(drawn.std() / len(drawn) ** 0.5)
    assert error < 0.05 * exact and float(drawn.mean()) == pytest.approx(exact, abs=4 * error)


def test_given_directions_stay_and_the_penalty_turns_free_ones():
    rotation = torch.as_tensor(ortho_group.rvs(10, random_state=1), dtype=torch.float32)
    generator = known_generator(rotation)
    _, kept, _ = gan.trained(generator, "axes", 0, directions=rotation, steps=3, batch=8)
    torch.testing.assert_close(kept, rotation, atol=1e-5, rtol=0)

    def dense(directions):
        return float((rotation.T @ directions).abs().sum())

    _, start, _ = gan.trained(generator, "base", 0, steps=1, batch=8, rate=0.0)
    _, end, _ = gan.trained(generator, "dependency", 0, weight=1000.0, steps=60, batch=16, rate=0.03)
    torch.testing.assert_close(end.T @ end, torch.eye(10), atol=1e-4, rtol=0)
    assert dense(end) < 0.9 * dense(start)


@pytest.mark.slow
def test_a_generator_learns_the_colour_of_images():
    x = torch.zeros(32, 3, 16, 16)
    x[:, 0] = 0.9
    generator = trained_generator(x, 2, seed=0, steps=100, batch=8, averaging=0.9)
    assert not any(own.requires_grad for own in generator.parameters())
    with torch.no_grad():
        mean = generator(torch.randn(16, 2)).mean((0, 2, 3))
    assert mean[0] > 0.6 and mean[1:].max() < 0.3
    assert downwards(16, 7)(x).shape == (32, 7)


@pytest.mark.slow
def test_the_quick_run_has_every_arm():
    found = gan.run(list(gan.METHODS), 1000, quick=True)
    result = gan.collect([found], options())
    assert set(gan.METHODS) < set(result) and len(result["axes"]["dci"]) == 1
    assert [line["arm"] for line in gan.table([found])] == list(gan.METHODS)
