"""Masked dense decoders against loops in float64; a turn of the latents changes nothing but their names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.nets.dependency import CorrelatedEncoder, FeatureDecoder, SharedDecoder, smooth_leaky

R, N, G, K, H = 2, 6, 5, 3, 4
KINDS = (FeatureDecoder, SharedDecoder)


def made(kind):
    torch.manual_seed(0)
    return kind(R, G, K, H).double()


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def bend(h):
    return np.where(h > 0, h, 0.2 * h)


def test_smooth_leaky_is_a_leaky_relu_without_its_corner():
    h = torch.linspace(-40, 40, 81, dtype=torch.float64)
    smooth = smooth_leaky(h).numpy()
    assert np.abs(smooth - bend(h.numpy())).max() == pytest.approx(0.4 * 0.3)  # at the corner
    assert np.abs(smooth - bend(h.numpy()))[[0, -1]].max() < 1e-3


def test_derivatives_of_smooth_leaky():
    h = (3 * draw(4, 5)).requires_grad_(True)
    assert torch.autograd.gradcheck(smooth_leaky, h, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(smooth_leaky, h)
    one = torch.ones_like(h)
    slope = torch.func.jvp(smooth_leaky, (h.detach(),), (one,))[1]
    by_row = torch.func.vmap(torch.func.grad(lambda row: smooth_leaky(row).sum()))(h.detach())
    torch.testing.assert_close(by_row, slope)


def by_hand(decoder, z, r, j):
    """One feature of one restart, with the mask on its inputs."""
    phi = lambda h: 0.6 * h + 0.4 * np.sqrt(h**2 + 0.09)  # noqa: E731
    own = {name: p.detach().numpy() for name, p in decoder.named_parameters()}
    seen = z[r].numpy() * decoder.mask[r, j].numpy()
    out = own["intercept"][r, 0, j] + seen @ own["slope"][r, :, j]
    if isinstance(decoder, FeatureDecoder):
        units = slice(j * H, (j + 1) * H)
        return out + phi(seen @ own["first"][r][:, units] + own["bias"][r, 0, units]) @ own["head"][r, 0, j]
    return out + phi(seen @ own["first"][r] + own["bias"][r, 0]) @ own["head"][r][:, j]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dense", [True, False])
def test_a_feature_sees_its_own_masked_factors(kind, dense):
    decoder, z = made(kind), draw(R, N, K)
    if not dense:
        decoder.mask.copy_(torch.rand(R, G, K, generator=torch.Generator().manual_seed(1)) < 0.5)
        decoder.mask[1, 1:] = decoder.mask[1, 0]  # restarts with different numbers of different masks
    found = decoder(z).detach().numpy()
    for r in range(R):
        for j in range(G):
            np.testing.assert_allclose(found[r, :, j], by_hand(decoder, z, r, j), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_turned_decoder_says_the_same_of_new_latents(kind):
    decoder, z, maps = made(kind), draw(R, N, K), draw(R, K, K)
    before = decoder(z)
    decoder.turn(maps)
    torch.testing.assert_close(decoder(z @ torch.linalg.inv(maps).mT), before)


def test_a_turned_encoder_says_the_same_of_new_latents():
    torch.manual_seed(0)
    encoder, x, maps = CorrelatedEncoder(R, G, K, H, missing=True).double(), draw(N, G), draw(R, K, K)
    with torch.no_grad():
        encoder.below.weight.normal_()
    mask = draw(N, G) > -1
    location, root, log_det = encoder.gaussian(x, mask)
    encoder.turn(maps)
    turned, other, other_det = encoder.gaussian(x, mask)
    torch.testing.assert_close(turned @ maps.mT, location)
    torch.testing.assert_close(maps.unsqueeze(1) @ other, root)
    torch.testing.assert_close(other_det, torch.linalg.slogdet(other)[1])
    torch.testing.assert_close(log_det, torch.linalg.slogdet(root)[1])
    sd = torch.sqrt(torch.einsum("rnij,rnij->rni", other, other))
    torch.testing.assert_close(encoder(x, mask), (turned, sd))
    assert (root.triu(1) == 0).all() and (root.tril(-1) != 0).any()
