"""Negative binomial cells in machine code: against the distribution and its derivatives by autograd."""

import pytest
import torch
from torch.distributions import NegativeBinomial

from pyro_sparse.likelihoods import _compiled_counts
from pyro_sparse.likelihoods._compiled_counts import count_terms

pytestmark = pytest.mark.skipif(not _compiled_counts.COMPILED, reason="the extra 'fast' is not installed")
CHAINS, FEATURES, ROWS = 3, 4, 57


@pytest.fixture
def counts():
    """Predictors of two candidates, counts that chains share, and dispersions from small to large."""
    generator = torch.Generator().manual_seed(0)
    f = 4 * torch.randn(2, CHAINS, FEATURES, ROWS, generator=generator, dtype=torch.float64)
    x = torch.poisson(torch.exp(1.5 * torch.randn(1, FEATURES, ROWS, generator=generator))).double()
    dispersion = torch.exp(2 * torch.randn(CHAINS, FEATURES, generator=generator)).double()
    return f, x, dispersion


@pytest.mark.parametrize("order", [0, 1, 2])
def test_terms_are_those_of_the_distribution(counts, order):
    f, x, dispersion = counts
    theta = 1 / dispersion.unsqueeze(-1)
    at = f.clone().requires_grad_(True)
    log_p = NegativeBinomial(theta, logits=at - theta.log()).log_prob(x)
    (slope,) = torch.autograd.grad(log_p.sum(), at, create_graph=True)
    (bend,) = torch.autograd.grad(-slope.sum(), at)
    left_out = torch.lgamma(x + theta) - torch.lgamma(theta) - torch.lgamma(x + 1)
    wanted = ((log_p - left_out).detach(), slope.detach(), bend)
    terms = count_terms(f, x, dispersion, order)
    assert len(terms) == order + 1
    for term, want in zip(terms, wanted, strict=False):
        torch.testing.assert_close(term, want, rtol=1e-9, atol=1e-9)


def test_terms_do_not_depend_on_the_order_in_memory_and_keep_their_precision(counts):
    f, x, dispersion = (values.float() for values in counts)
    turned = f.transpose(-1, -2).contiguous().transpose(-1, -2)
    for mine, want in zip(count_terms(turned, x, dispersion, 2), count_terms(*counts, 2), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), want, rtol=1e-5, atol=1e-5)


def test_what_the_code_does_not_know_is_left_to_torch(counts):
    f, x, dispersion = counts
    for bad in (800.0, torch.inf, torch.nan):
        far = f.clone()
        far[1, 2, 3, 50] = bad
        assert count_terms(far, x, dispersion, 2) is None
    assert count_terms(f.clone().requires_grad_(True), x, dispersion, 0) is None
    assert count_terms(f[0, 0], x[0], dispersion[0], 0) is None  # no chain
    assert count_terms(f, x, dispersion[:1], 0) is None
