"""A Gaussian Markov chain against the multivariate normal of the whole path, its covariance rolled out."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal

from pyro_sparse.distributions import GaussMarkov

B, T, D = 4, 3, 2


def parts():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    factor = draw(B, T, D, D) + 2 * torch.eye(D)
    return draw(B, T, D), 0.5 * draw(B, T, D, D), factor, torch.linalg.slogdet(factor)[1]


def path(loc, link, factor):
    """The path as a linear function of all noise: row t of blocks is A_t times row t-1, and L_t."""
    rows = [torch.zeros(B, D, T * D, dtype=torch.float64)]
    for t in range(loc.shape[1]):
        row = link[:, t] @ rows[-1]
        row[:, :, t * D : (t + 1) * D] = factor[:, t]
        rows.append(row)
    root = torch.cat(rows[1:], 1)
    return MultivariateNormal(loc.flatten(1), root @ root.mT)


def test_density_and_entropy_are_those_of_the_whole_path():
    loc, link, factor, log_det = parts()
    ours, theirs = GaussMarkov(loc, link, factor, log_det), path(loc, link, factor)
    assert ours.batch_shape == (B,) and ours.event_shape == (T, D)
    z = torch.randn(B, T, D, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(z), theirs.log_prob(z.flatten(1)))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(ours.mean.flatten(1), theirs.mean)
    torch.testing.assert_close(ours.expand((2, B)).log_prob(z), theirs.log_prob(z.flatten(1)).expand(2, B))


def test_draws_have_its_moments():
    loc, link, factor, log_det = parts()
    theirs = path(loc, link, factor)
    torch.manual_seed(0)
    z = GaussMarkov(loc, link, factor, log_det).rsample((40_000,)).flatten(2)
    torch.testing.assert_close(z.mean(0), theirs.mean, atol=0.15, rtol=0)
    for b in range(B):
        scale = theirs.covariance_matrix[b].diagonal().sqrt()
        off = (z[:, b].T.cov() - theirs.covariance_matrix[b]) / torch.outer(scale, scale)
        assert off.abs().max() < 0.04


def test_turned_is_the_law_of_turned_frames():
    q = GaussMarkov(*parts())
    axes = torch.randn(B, D, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    axes = axes + 2 * torch.eye(D)
    z = torch.randn(B, T, D, dtype=torch.float64)
    new = torch.einsum("bij,btj->bti", axes, z)
    grown = T * torch.linalg.slogdet(axes)[1]
    torch.testing.assert_close(q.turned(axes).log_prob(new), q.log_prob(z) - grown)
    torch.testing.assert_close(q.turned(axes).entropy(), q.entropy() + grown)


@pytest.mark.parametrize("length", [1, 2])
def test_frames_after_the_end_do_not_count(length):
    whole = parts()
    present = torch.arange(T) < length
    q, short = GaussMarkov(*whole, present), GaussMarkov(*(part[:, :length] for part in whole))
    z = torch.randn(B, T, D, dtype=torch.float64)
    torch.testing.assert_close(q.log_prob(z), short.log_prob(z[:, :length]))
    torch.testing.assert_close(q.entropy(), short.entropy())
    torch.testing.assert_close(q.rsample()[:, length:], q.mean[:, length:])
