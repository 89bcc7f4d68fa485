"""Ordinal levels: the battery, the density against scipy, levels learned or given, gradients, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import expit

from pyro_sparse.likelihoods import Bernoulli, Likelihood, Ordinal
from pyro_sparse.testing.likelihood import LikelihoodTestCase

MIXED = [(1, 5), (0, 1), (2, 4), (-1, 5)]  # of four columns


class TestOrdinal(LikelihoodTestCase):
    bad_values = (0.5, 40.0)

    def make(self):
        return Ordinal()


class TestOrdinalOfFiveLevels(LikelihoodTestCase):
    bad_values = (0.5, 6.0, 0.0)

    def make(self):
        return Ordinal(levels=(1, 5))


def _ready(n_restarts=1):
    """Columns of 5, 2, 3 and 7 levels with gaps of their own."""
    likelihood = Ordinal(levels=MIXED)
    likelihood.setup(4, n_restarts)
    with torch.no_grad():
        for p in likelihood.double().parameters():
            p.add_(0.5 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _levels(likelihood, n_rows):
    return torch.stack([torch.randint(0, int(n), (n_rows,)) for n in likelihood.n_levels], -1).double()


def test_density_is_a_difference_of_logistic_functions():
    likelihood = Ordinal(levels=(0, 3))
    likelihood.setup(2)
    with torch.no_grad():
        for gap, value in zip(likelihood.parameters(), ([[[0.2, 1.0]]], [[[-0.3, 0.5]]]), strict=True):
            gap.copy_(torch.tensor(value))
    likelihood.double()
    gaps = np.exp([[0.2, 1.0], [-0.3, 0.5]])
    cuts = np.array([[-gaps[0, j], 0.0, gaps[1, j]] for j in range(2)])
    f = np.array([[0.7, -1.2], [0.1, 3.0]])
    below = expit(cuts[None] - f[:, :, None])
    probability = np.diff(np.concatenate([np.zeros((2, 2, 1)), below, np.ones((2, 2, 1))], -1))
    for level in range(4):
        x = torch.full((2, 2), float(level), dtype=torch.float64)
        log_p = likelihood.log_prob(torch.as_tensor(f)[None], x)
        np.testing.assert_allclose(log_p[0].detach(), np.log(probability[..., level]).sum(-1), atol=1e-9)
    np.testing.assert_allclose(
        likelihood.mean(torch.as_tensor(f)[None])[0].detach(), probability @ np.arange(4.0), atol=1e-12
    )


def test_two_levels_are_yes_or_no():
    f, x = torch.randn(2, 7, 3), torch.randint(0, 2, (7, 3)).float()
    ordinal, yes_no = Ordinal(levels=(0, 1)), Bernoulli()
    ordinal.setup(3, 2)
    yes_no.setup(3, 2)
    torch.testing.assert_close(ordinal.log_prob(f, x), yes_no.log_prob(f, x))
    assert not list(ordinal.parameters())


def test_levels_are_those_of_the_table_and_start_at_its_shares():
    rng = np.random.default_rng(0)
    true_cuts = np.array([-2.0, -0.5, 0.5, 1.5])
    y = rng.logistic(size=(20_000, 1)) + 0.8
    x = np.column_stack([1 + (y > true_cuts).sum(1), 3 + (y > true_cuts[1:3]).sum(1)]).astype(float)
    x[:500, 0] = np.nan
    likelihood = Ordinal()
    likelihood.check(x)
    likelihood.calibrate(x)
    likelihood.setup(2)
    assert likelihood.lowest.tolist() == [1.0, 3.0]
    assert likelihood.n_levels.tolist() == [5, 3]
    centre, scale = likelihood.units(x, True)
    codes = (x - centre) / scale
    cuts, start = likelihood.cuts()[0, 0].detach().numpy(), likelihood.start(codes)
    assert np.isinf(cuts[1, 2:]).all()
    # the middle cut is 0, and the intercept says where it lies
    np.testing.assert_allclose(cuts[0] - start[0], true_cuts - 0.8, atol=0.08)
    np.testing.assert_allclose(cuts[1, :2] - start[1], true_cuts[1:3] - 0.8, atol=0.08)


def test_gradients_in_closed_form_are_those_of_autograd_with_columns_of_many_kinds():
    likelihood = _ready(n_restarts=3)
    f = torch.randn(3, 9, 4, dtype=torch.float64)
    x = _levels(likelihood, 9)
    mask = torch.rand(9, 4) < 0.7
    slopes = likelihood.slopes(f, x, mask, of_cells=2.0, of_priors=0.7)
    wanted = Likelihood.slopes(likelihood, f, x, mask, of_cells=2.0, of_priors=0.7)
    torch.testing.assert_close(slopes.by_f, wanted.by_f)
    for value, expected in zip(slopes.by_parameters, wanted.by_parameters, strict=True):
        torch.testing.assert_close(value, expected)
    assert all(torch.isfinite(value).all() for value in wanted.by_parameters)


def test_a_column_alone_has_the_density_that_it_has_among_others():
    likelihood, f = _ready(), torch.randn(1, 6, 4, dtype=torch.float64)
    x = _levels(likelihood, 6)
    for j, pair in enumerate(MIXED):
        alone = Ordinal(levels=pair)
        alone.setup(1)
        alone.double()
        with torch.no_grad():
            for gap, value in zip(alone.parameters(), likelihood.parameters(), strict=False):
                gap.copy_(value[..., j : j + 1])
        only = torch.zeros(6, 4, dtype=torch.bool)
        only[:, j] = True
        torch.testing.assert_close(
            likelihood.log_prob(f, x, only), alone.log_prob(f[..., [j]], x[:, [j]]), atol=1e-9, rtol=1e-9
        )


def test_restricted_to_some_columns_it_says_the_same_of_them():
    likelihood = _ready(n_restarts=2)
    f = torch.randn(2, 4, 11, dtype=torch.float64)  # chain, feature, row
    x = _levels(likelihood, 11).mT[None]
    whole = likelihood.cell_terms(f, x, torch.ones(2, 4), {}, 2)
    for some in (torch.tensor([3, 1]), slice(1, 3)):
        restricted = likelihood.of_features(some)
        terms = restricted.cell_terms(f[:, some], x[:, some], torch.ones(2, 2), {}, 2)
        for value, expected in zip(terms, whole, strict=True):
            torch.testing.assert_close(value, expected[:, some])
    assert likelihood.n_levels.tolist() == [5, 2, 3, 7]  # as it was


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ("1-5", "levels: got '1-5', wanted"),
        ((5, 1), "2 to 12 levels"),
        ((0, 40), "2 to 12 levels"),
        ([(1, 5), (1, 2, 3)], "wanted \\(lowest, highest\\)"),
        ((1.5, 4), "wanted \\(lowest, highest\\)"),
        ((True, 4), "wanted \\(lowest, highest\\)"),
    ],
)
def test_levels_that_are_none_are_refused(levels, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Ordinal(levels=levels)


def test_cells_that_are_no_levels_are_refused_by_name():
    table = np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 2.0]])
    likelihood = Ordinal()
    with pytest.raises(ValueError, match="column 'b' holds 2.5.*whole numbers"):
        likelihood.check(table + [0, 0.5], ["a", "b"])
    with pytest.raises(ValueError, match="column 'a' holds 30.*12 levels"):
        likelihood.check(np.array([[1.0, 2], [30.0, 3]]), ["a", "b"])
    likelihood.calibrate(table)
    with pytest.raises(ValueError, match="column 'b' holds 4 .row 0.; no such level"):
        likelihood.check(table + [0, 2], ["a", "b"])
    with pytest.raises(ValueError, match="2 pairs, and X has 3 columns"):
        Ordinal(levels=[(1, 5), (1, 5)]).check(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("levels", "labels", "words"),
    [
        ((0, 1), [("no", "yes")], "wanted levels of each"),
        ([(0, 1)], [("no", "yes"), None], "wanted levels of each"),
        ([(0, 2)], [("no", "yes")], "wanted 3, one for each level"),
    ],
)
def test_labels_that_do_not_fit_their_levels_are_refused(levels, labels, words):
    with pytest.raises(ValueError, match=words):
        Ordinal(levels=levels, labels=labels)


def test_prior_of_gaps_is_log_normal_around_four_units_between_the_outer_cuts():
    likelihood = Ordinal(levels=(1, 5))
    likelihood.setup(3)
    priors = likelihood.priors()
    assert list(priors) == ["gap_1", "gap_2", "gap_3"]
    assert math.isclose(priors["gap_2"].base_dist.base_dist.loc.exp().mean(), 1.0, rel_tol=1e-6)
