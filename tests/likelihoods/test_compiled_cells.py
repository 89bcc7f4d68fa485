import numpy as np
import pytest
import torch

from pyro_sparse.likelihoods import Bernoulli, Ordinal, _compiled_cells, ordinal
from pyro_sparse.likelihoods._compiled_cells import level_sums, level_terms, loading_jets

pytestmark = pytest.mark.skipif(not _compiled_cells.COMPILED, reason="the extra 'fast' is not installed")
NOTHING = torch.zeros(1)  # what nobody reads


@pytest.fixture
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def answers(no_gradients):
    """Likelihood of four chains with columns of two to nine levels, cells, a mask and predictors."""
    generator = torch.Generator().manual_seed(0)
    counts = [2, 3, 6, 9]
    likelihood = Ordinal(levels=[(0, n - 1) for n in counts])
    likelihood.setup(len(counts), 4)
    for p in likelihood.parameters():
        p += 0.5 * torch.randn(p.shape, generator=generator)
    x = torch.stack([torch.randint(0, n, (523,), generator=generator).float() for n in counts])[None]
    mask = (torch.rand(x.shape, generator=generator) > 0.1).float()
    f = 3 * torch.randn(4, 4, 523, generator=generator)
    return likelihood, x, mask, f


def plain(likelihood, monkeypatch):
    """`cell_terms` as torch has them, in double precision."""
    monkeypatch.setattr(ordinal, "level_terms", lambda *arguments: None)
    return lambda f, x, order: likelihood.double().cell_terms(f.double(), x.double(), NOTHING, {}, order)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_terms_are_those_of_torch(answers, monkeypatch, order):
    likelihood, x, _, f = answers
    f = torch.stack([f, f - 5])  # candidates lead
    terms = level_terms(f, x, likelihood.logistic_cuts(), order)
    monkeypatch.undo()
    wanted = plain(likelihood, monkeypatch)(f, x, order)
    assert len(terms) == len(wanted) == order + 1
    for term, by_torch in zip(terms, wanted, strict=True):
        assert term.dtype == torch.float32
        torch.testing.assert_close(term.double(), by_torch, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_sums_are_those_of_terms(answers, monkeypatch, masked):
    likelihood, x, mask, f = answers
    mask = mask if masked else None
    sums = level_sums(f, x, mask, likelihood.logistic_cuts())
    log_p = plain(likelihood, monkeypatch)(f, x, 0)[0]
    torch.testing.assert_close(sums, (log_p if mask is None else log_p * mask).sum(-1), rtol=1e-7, atol=1e-6)


def test_a_level_without_room_is_impossible(answers):
    likelihood, x, _, f = answers
    cuts = likelihood.logistic_cuts().double().clone()
    cuts[1, 2, 1] = cuts[1, 2, 2]
    sums = level_sums(f, x, None, cuts)
    impossible = torch.zeros(4, 4, dtype=torch.bool)
    impossible[1, 2] = True
    assert torch.equal(sums == -torch.inf, impossible)


def test_what_is_too_large_is_left_to_torch(answers):
    likelihood, x, _, f = answers
    cuts = likelihood.logistic_cuts()
    for bad in (40.0, torch.nan, -torch.inf):
        f[3, 1, 500] = bad
        assert level_terms(f, x, cuts, 2) is None
        assert level_sums(f, x, None, cuts) is None
        assert torch.isnan(torch.tensor(bad)) or likelihood.cell_terms(f, x, NOTHING, {}, 2) is not None
    f[3, 1, 500], cuts = 0.0, cuts.clone()
    for bad in (40.0, torch.nan, -torch.inf):
        cuts[0, 1, 0] = bad
        assert level_terms(f, x, cuts, 2) is None


def test_gradients_are_left_to_torch(answers):
    likelihood, x, _, f = answers
    with torch.enable_grad():
        log_p = likelihood.cell_terms(f.requires_grad_(), x, NOTHING, {}, 0)[0]
    assert log_p.requires_grad


def test_answers_of_two_levels_are_cut_at_zero(no_gradients):
    x, f = (torch.rand(1, 3, 50) > 0.5).float(), torch.randn(2, 3, 50)
    likelihood = Bernoulli()
    wanted = likelihood.cell_terms(f, x, NOTHING, {}, 2)
    for term, of_torch in zip(level_terms(f, x, likelihood.logistic_cuts(), 2), wanted, strict=True):
        torch.testing.assert_close(term, of_torch)
    assert Bernoulli("probit").logistic_cuts() is None
    assert Ordinal(link="probit").logistic_cuts() is None


def test_jets_are_of_the_mode_and_its_sides(answers, monkeypatch):
    likelihood, x, mask, f = answers
    along = np.random.default_rng(0).standard_normal((4, 1, 523))
    begun = np.zeros((4, 4)), np.ones((4, 4))
    cuts, projection, prior = likelihood.logistic_cuts(), np.full((4, 4), 0.3), 1 / 9
    step, sd, jets = loading_jets(f, x, mask, cuts, begun, along, projection, prior, 3.0, 2.0)
    terms = plain(likelihood, monkeypatch)
    for place, away in enumerate([-2.0, 0.0, 2.0]):
        at = torch.as_tensor((step + away * sd)[..., None] * along) + f.double()
        for i, term in enumerate(terms(at, x, 2)):
            wanted = (term * mask * torch.as_tensor(along) ** i).sum(-1).numpy()
            np.testing.assert_allclose(jets[i, place], wanted, rtol=1e-6, atol=1e-5)
    slope = jets[1, 1] - prior * (projection + step)
    assert (np.abs(slope) < 0.1 / sd).all()  # of the posterior: near its mode
