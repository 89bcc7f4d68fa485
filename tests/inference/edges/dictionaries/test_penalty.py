"""The penalty on slopes between active latents: unbiased for the exact block, differentiable, not noisy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pyro_sparse import latent_jacobian_penalty

from ._pairs import TopK, pair


def block(sae_in, sae_out, layer, x):
    """Every row's J over active latents, by the full Jacobian of the layer, and the two masks."""
    f_in, f_out = sae_in.encode(x), sae_out.encode(layer(x))
    slope = torch.stack([torch.autograd.functional.jacobian(layer, row) for row in x])
    whole = sae_out.enc @ slope @ sae_in.dec.T
    return f_in, f_out, whole * (f_in > 0).unsqueeze(1) * (f_out > 0).unsqueeze(2)


def penalty(sae_in, sae_out, layer, x, f_in, f_out, **options):
    return latent_jacobian_penalty(sae_in.dec, sae_out.enc, layer, x, f_in, f_out, **options)


def test_unbiased_for_the_exact_block():
    sae_in, sae_out, layer, x = pair()
    f_in, f_out, j = block(sae_in, sae_out, layer, x)
    size = j.abs().sum((1, 2)) / ((f_in > 0).sum(1) * (f_out > 0).sum(1))
    torch.manual_seed(0)
    estimates = [penalty(sae_in, sae_out, layer, x, f_in, f_out).item() for _ in range(400)]
    error = np.std(estimates) / 20
    assert abs(np.mean(estimates) - size.mean().item()) < 4 * error < 0.03 * size.mean().item()


def test_the_ratio_is_that_of_columns_and_free_of_scale():
    sae_in, sae_out, layer, x = pair(1)
    f_in, f_out, j = block(sae_in, sae_out, layer, x)
    ratio = j.abs().sum(1) / j.square().sum(1).sqrt().clamp_min(1e-12)  # (row, input latent)
    wanted = ratio.sum(1) / (f_in > 0).sum(1)
    torch.manual_seed(0)
    found = [penalty(sae_in, sae_out, layer, x, f_in, f_out, surrogate="ratio").item() for _ in range(400)]
    assert np.mean(found) == pytest.approx(wanted.mean().item(), rel=0.01)
    one = penalty(sae_in, sae_out, layer, x, f_in, f_out, generator=seeded()).item()
    twice = latent_jacobian_penalty(
        sae_in.dec, 2 * sae_out.enc, layer, x, f_in, f_out, generator=seeded(), surrogate="ratio"
    )
    same = penalty(sae_in, sae_out, layer, x, f_in, f_out, generator=seeded(), surrogate="ratio")
    assert twice.item() == pytest.approx(same.item(), rel=1e-6) and one != pytest.approx(same.item())


def seeded():
    return torch.Generator().manual_seed(3)


def test_the_gradient_is_that_of_the_exact_block_where_one_latent_is_active():
    sae_in, sae_out, layer, x = pair(2, k=1)
    f_in, f_out = sae_in.encode(x).detach(), sae_out.encode(layer(x)).detach()
    penalty(sae_in, sae_out, layer, x, f_in, f_out).backward()
    found = [p.grad.clone() for p in (sae_in.dec, sae_out.enc, layer[0].weight)]
    for p in (sae_in.dec, sae_out.enc, layer[0].weight):
        p.grad = None
    both = (f_in > 0).any(1) & (f_out > 0).any(1)
    jacobian = torch.func.vmap(torch.func.jacfwd(layer))(x[both])
    exact = (
        sae_out.enc[f_out[both].argmax(1)].unsqueeze(1)
        @ jacobian
        @ sae_in.dec[f_in[both].argmax(1)].unsqueeze(2)
    )
    exact.abs().mean().backward()
    for mine, p in zip(found, (sae_in.dec, sae_out.enc, layer[0].weight), strict=True):
        np.testing.assert_allclose(mine, p.grad, rtol=1e-6, atol=1e-12)


def test_noise_of_512_rows_is_small():
    """A relative sd of .02 on 512 tokens: drawing among all 256 latents instead has .3."""
    torch.manual_seed(0)
    sae_in, sae_out = TopK(32, 256, 16, 0), TopK(32, 256, 16, 1)
    layer = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).double()
    x = torch.randn(512, 32, dtype=torch.float64)
    with torch.no_grad():
        f_in, f_out = sae_in.encode(x), sae_out.encode(layer(x))
    found = [penalty(sae_in, sae_out, layer, x, f_in, f_out).item() for _ in range(30)]
    assert np.std(found) / np.mean(found) < 0.02


def test_rows_without_active_latents_do_not_count():
    sae_in, sae_out, layer, x = pair(3)
    f_in, f_out = sae_in.encode(x), sae_out.encode(layer(x))
    f_in[5:] = 0.0
    few = penalty(sae_in, sae_out, layer, x[:5], f_in[:5], f_out[:5], generator=seeded())
    assert penalty(sae_in, sae_out, layer, x, f_in, f_out, generator=seeded()).item() == pytest.approx(
        few.item()
    )
    none = penalty(sae_in, sae_out, layer, x, torch.zeros_like(f_in), f_out)
    none.backward()
    assert none.item() == 0 and not sae_in.dec.grad.any()


def test_bad_input_is_refused():
    sae_in, sae_out, layer, x = pair()
    f_in, f_out = sae_in.encode(x), sae_out.encode(layer(x))
    with pytest.raises(ValueError, match="surrogate: got 'l0'"):
        penalty(sae_in, sae_out, layer, x, f_in, f_out, surrogate="l0")
    with pytest.raises(ValueError, match=r"f_out: got shape \(40, 8\)"):
        penalty(sae_in, sae_out, layer, x, f_in, f_in)
