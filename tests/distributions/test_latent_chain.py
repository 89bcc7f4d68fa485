"""The chain of latents against loops over frames."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal

from pyro_sparse.distributions.latent_chain import LatentChain

R, S, T, D, A = 2, 3, 6, 2, 1


def chain_of(lags=1, actions=True, linked=None, present=None):
    weight = torch.randn(R, lags * D + (A if actions else 0), D, generator=torch.Generator().manual_seed(3))

    def transition(inputs):
        mean = 0.5 * torch.tanh(inputs @ weight)
        return mean, -1.0 + 0.1 * mean

    whole = torch.ones(R, S, T, dtype=torch.bool)
    a = torch.randn(1, S, T, A, generator=torch.Generator().manual_seed(4)) if actions else None
    return LatentChain(
        transition,
        D,
        lags,
        whole if linked is None else linked.expand(R, S, T),
        whole if present is None else present.expand(R, S, T),
        a,
    ), transition


def by_hand(chain, transition, z, lags, linked, present):
    """Frame by frame, in plain words."""
    out = torch.zeros(R, S)
    for s in range(S):
        for t in range(T):
            if not present[s, t]:
                continue
            known = t >= lags and linked[s, t]
            if known:
                parts = [z[:, s, t - back] for back in range(1, lags + 1)]
                if chain.actions is not None:
                    parts.append(chain.actions[:, s, t].expand(R, A))
                mean, log_sd = transition(torch.cat(parts, -1).unsqueeze(1))
                distribution = Normal(mean[:, 0], log_sd[:, 0].exp())
            else:
                distribution = Normal(torch.zeros(R, D), torch.ones(R, D))
            out[:, s] += distribution.log_prob(z[:, s, t]).sum(-1)
    return out


@pytest.mark.parametrize(("lags", "actions"), [(1, True), (1, False), (2, True), (3, False), (0, True)])
def test_density_is_the_sum_over_frames(lags, actions):
    linked = torch.ones(S, T, dtype=torch.bool)
    linked[1, 3] = False
    present = torch.ones(S, T, dtype=torch.bool)
    present[2, 4:] = False
    linked &= present
    chain, transition = chain_of(lags, actions, linked, present)
    z = torch.randn(R, S, T, D)
    torch.testing.assert_close(chain.log_prob(z), by_hand(chain, transition, z, lags, linked, present))
    assert chain.log_prob(z).shape == chain.batch_shape == (R, S)


@pytest.mark.slow
@pytest.mark.parametrize("lags", [0, 1, 2])
def test_draws_follow_the_transition(lags):
    """Standardised by its own moments a draw is white noise; padding stays 0."""
    torch.manual_seed(0)
    chain, _ = chain_of(lags)
    draws = torch.stack([chain.sample() for _ in range(3000)])
    away = torch.stack([(z - m) * (-s).exp() for z in draws[:1500] for m, s in [chain.moments(z)]])
    assert away.mean((0, 1, 2)).abs().max() < 0.05
    torch.testing.assert_close(away.var((0, 1, 2)), torch.ones(T, D), atol=0.06, rtol=0)
    present = torch.ones(S, T, dtype=torch.bool)
    present[0, 2:] = False
    assert (chain_of(lags, present=present)[0].sample()[:, 0, 2:] == 0).all()


def test_draws_have_the_precision_of_the_transition():
    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.map = torch.nn.Linear(D, D, dtype=torch.float64)

        def forward(self, inputs):
            return self.map(inputs), torch.zeros_like(inputs)

    whole = torch.ones(R, S, T, dtype=torch.bool)
    assert LatentChain(Slow(), D, 1, whole, whole).sample().dtype == torch.float64


def test_short_sequences_have_no_transition():
    present = torch.ones(R, S, 1, dtype=torch.bool)
    chain = LatentChain(lambda u: (u, u), D, 1, present, present)
    z = torch.randn(R, S, 1, D)
    torch.testing.assert_close(chain.log_prob(z), Normal(0, 1).log_prob(z).sum((-1, -2)))


def test_it_cannot_be_resized():
    chain, _ = chain_of()
    assert chain.expand((R, S)) is chain
    with pytest.raises(ValueError, match="batch_shape"):
        chain.expand((R, S + 1))
    with pytest.raises(NotImplementedError, match="sample_shape"):
        chain.rsample((2,))
