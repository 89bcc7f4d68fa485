"""Networks against loops over features and restarts in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pyro_sparse.nets.layers import BatchLinear, DenseDecoder, Encoder, LinearDecoder, MaskedDecoder

R, N, G, K, H = 2, 6, 5, 3, 4


def randomise(module):
    module.double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def relu(x):
    return np.maximum(x, 0.0)


def test_batch_linear_is_one_affine_map_per_restart():
    layer = randomise(BatchLinear(R, K, H))
    x = draw(R, N, K)
    out = layer(x).detach().numpy()
    for r in range(R):
        expected = x[r].numpy() @ layer.weight[r].detach().numpy() + layer.bias[r].detach().numpy()
        np.testing.assert_allclose(out[r], expected, rtol=1e-12)
    assert BatchLinear(R, K, H, bias=None).bias is None


def test_batch_linear_initial_scale():
    torch.manual_seed(0)
    weight = BatchLinear(50, 30, 40, gain=3.0).weight
    assert weight.std().item() == pytest.approx(3.0 / math.sqrt(30), rel=0.02)


def test_masked_decoder_feature_by_feature():
    decoder = randomise(MaskedDecoder(R, G, K, H))
    z, w = draw(R, N, K), draw(R, G, K) * (torch.arange(G * K).reshape(G, K) % 2)
    out = decoder(z, w).detach().numpy()
    p = {name: value.detach().numpy() for name, value in decoder.named_parameters()}
    for r in range(R):
        for i in range(N):
            for j in range(G):
                own = w[r, j].numpy() * z[r, i].numpy()
                h = relu(own @ p["first"][r])
                h = relu(h @ p["trunk.weight"][r] + p["trunk.bias"][r, 0])
                expected = p["intercept"][r, 0, j] + (own * p["slope"][r, j]).sum() + h @ p["head"][r, j]
                assert out[r, i, j] == pytest.approx(expected, rel=1e-10)


def test_a_feature_does_not_see_a_factor_of_weight_zero():
    decoder = randomise(MaskedDecoder(R, G, K, H))
    z, w = draw(R, N, K), torch.ones(R, G, K, dtype=torch.float64)
    w[:, 2, 1] = 0.0
    moved = z.clone()
    moved[..., 1] += 10.0
    change = (decoder(moved, w) - decoder(z, w)).abs()
    assert change[..., 2].max() == 0
    assert change[..., [0, 1, 3, 4]].min() > 0


def test_project_restores_unit_norm():
    decoder = randomise(MaskedDecoder(R, G, K, H))
    direction = decoder.first / decoder.first.norm(dim=-1, keepdim=True)
    decoder.project()
    torch.testing.assert_close(decoder.first.norm(dim=-1), torch.ones(R, K, dtype=torch.float64))
    torch.testing.assert_close(decoder.first, direction)


def test_rescale_keeps_the_lines_and_leaves_the_head():
    decoder = randomise(MaskedDecoder(R, G, K, H))
    head = decoder.head.detach().clone()
    z, w = draw(R, N, K), draw(R, G, K)
    scale = w.abs().amax(-1)
    with torch.no_grad():
        decoder.head.zero_()
    before = decoder(z, w)
    decoder.rescale(scale)
    torch.testing.assert_close(decoder(z, w / scale.unsqueeze(-1)), before)
    assert (decoder.head == 0).all() and head.any()


def test_a_masked_decoder_starts_straight_or_as_a_curve():
    decoder = randomise(MaskedDecoder(R, G, K, H))
    head, slope = decoder.head.detach().clone(), draw(R, G, 1)
    decoder.start(slope, torch.tensor([False, True]))
    torch.testing.assert_close(decoder.slope.detach(), torch.stack([slope[0], torch.zeros_like(slope[1])]))
    torch.testing.assert_close(decoder.head.detach(), torch.stack([0.2 * head[0], head[1]]))


def test_linear_decoder_is_z_times_w_transposed():
    decoder = randomise(LinearDecoder(R, G, K))
    z, w = draw(R, N, K), draw(R, G, K)
    expected = np.einsum("rnk,rgk->rng", z.numpy(), w.numpy()) + decoder.intercept.detach().numpy()
    np.testing.assert_allclose(decoder(z, w).detach().numpy(), expected, rtol=1e-12)


def test_dense_decoder_by_hand():
    decoder = randomise(DenseDecoder(R, G, K, H))
    z = draw(R, N, K)
    for r in range(R):
        h = z[r].numpy()
        for layer in decoder.layers:
            h = relu(h @ layer.weight[r].detach().numpy() + layer.bias[r].detach().numpy())
        expected = h @ decoder.head.weight[r].detach().numpy() + decoder.intercept[r].detach().numpy()
        expected = expected + z[r].numpy() @ decoder.skip[r].detach().numpy()
        np.testing.assert_allclose(decoder(z)[r].detach().numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("missing", [False, True])
def test_encoder_by_hand(missing):
    encoder = randomise(Encoder(R, G, K, H, missing))
    x = draw(N, G)
    mask = torch.arange(N * G).reshape(N, G) % 3 != 0
    location, sd = encoder(x, mask)
    seen = mask.numpy().astype(float)
    inputs = np.hstack([x.numpy() * seen, seen - 1]) if missing else x.numpy()
    for r in range(R):
        h = inputs
        for layer in encoder.layers:
            h = relu(h @ layer.weight[r].detach().numpy() + layer.bias[r].detach().numpy())
        heads = {
            name: h @ head.weight[r].detach().numpy() + head.bias[r].detach().numpy()
            for name, head in (("location", encoder.location), ("log_sd", encoder.log_sd))
        }
        skip = inputs @ encoder.skip[r].detach().numpy()
        np.testing.assert_allclose(location[r].detach().numpy(), skip + heads["location"], rtol=1e-9)
        np.testing.assert_allclose(
            sd[r].detach().numpy(), np.exp(np.clip(heads["log_sd"], *Encoder.log_sd_range)), rtol=1e-9
        )


def test_encoder_tells_missing_from_average():
    encoder = randomise(Encoder(R, G, K, H, missing=True))
    x = torch.zeros(1, G, dtype=torch.float64)
    seen = torch.ones(1, G, dtype=torch.bool)
    assert not torch.allclose(encoder(x, seen)[0], encoder(x, ~seen)[0])
    torch.testing.assert_close(encoder(x, seen)[0], encoder(x)[0])  # no mask: all seen


def test_encoder_ignores_what_stands_in_a_missing_cell():
    encoder = randomise(Encoder(R, G, K, H, missing=True))
    x, seen = draw(N, G), torch.ones(N, G, dtype=torch.bool)
    seen[0, 2] = False
    other = x.clone()
    other[0, 2] = 99.0
    torch.testing.assert_close(encoder(x, seen), encoder(other, seen))
