"""The model of what refits show: against enumeration, and calibrated on refits of its own kind."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln

from pyro_sparse.inference.edges.dictionaries.replication import _LEVEL, _SHARE, level_of, replication


def log_dirichlet_multinomial(counts, concentration):
    a = np.full(len(counts), concentration)
    return gammaln(a.sum()) - gammaln(a.sum() + counts.sum()) + (gammaln(a + counts) - gammaln(a)).sum()


def enumerated(probability, n_classes):
    """P(another refit shows each pair), summed over all assignments of pairs to classes."""
    level = level_of(probability)  # (refit, pair)
    n_pairs, n_levels = level.shape[1], 9
    shown = np.array([[(level[:, n] == at).sum() for at in range(n_levels)] for n in range(n_pairs)])
    rate = np.arange(n_levels) >= 4  # of log odds above 0
    weights, answers = [], []
    for classes in product(range(n_classes), repeat=n_pairs):
        classes = np.array(classes)
        log = log_dirichlet_multinomial(np.bincount(classes, minlength=n_classes), _SHARE)
        q = np.zeros(n_classes)
        for k in range(n_classes):
            counts = shown[classes == k].sum(0)
            log += log_dirichlet_multinomial(counts, _LEVEL)
            q[k] = (counts + _LEVEL) @ rate / (counts + _LEVEL).sum()
        weights.append(log)
        answers.append(q[classes])
    weights = np.exp(np.array(weights) - max(weights))
    return weights @ np.array(answers) / weights.sum()


@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_probabilities_are_those_of_enumeration(n_classes):
    shown = np.array([[0.999, 0.99, 0.7, 0.01, 0.002], [0.999, 0.03, 0.6, 0.02, np.nan]])
    found = replication(
        shown, n_classes=n_classes, num_draws=2000, burn_in=200, n_chains=4, seed=0
    ).probability
    wanted = enumerated(shown, n_classes)
    np.testing.assert_allclose(found, wanted, atol=0.02)
    assert wanted.max() - wanted.min() > 0.2


def test_levels_of_evidence():
    assert level_of([0.0, 1.0]).tolist() == [0, 8] and level_of(0.5 + 1e-9) == 4
    assert level_of([np.nan]).tolist() == [-1]


def refits_of(rng, n, n_refits):
    """Edges that refits show at three rates, each said with an evidence of its own."""
    rate = rng.choice([0.01, 0.5, 0.97], n, p=[0.9, 0.06, 0.04])
    there = rng.random((n_refits, n)) < rate
    odds = np.where(there, rng.normal(4, 2, there.shape).clip(0.1), -rng.normal(4, 2, there.shape).clip(0.1))
    return 1 / (1 + np.exp(-odds))


@pytest.mark.slow
@pytest.mark.parametrize(("n_refits", "most_off"), [(2, 0.2), (3, 0.12)])
def test_what_two_or_three_refits_say_is_found_in_the_next(n_refits, most_off):
    """The claim itself, over many pairs of dictionaries: of one pair the rates are known too badly.

    The rates are always the same three, so that means need not agree: .15 and .09 off in the worst bins.
    """
    said = []
    for seed in range(12):
        shown = refits_of(np.random.default_rng(seed), 4000, 4)
        p = replication(shown[:n_refits], num_draws=200, seed=seed).probability
        said.append(np.stack([p, shown[3] > 0.5]))
    p, again = np.concatenate(said, 1)
    for low, high in ((0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 0.9), (0.9, 1.01)):
        some = (p >= low) & (p < high)
        if some.sum() > 100:
            assert abs(p[some].mean() - again[some].mean()) < most_off, (low, high)


def test_edges_that_half_of_the_refits_show_are_not_called_sure():
    shown = refits_of(np.random.default_rng(3), 20_000, 4)
    for n_refits in (2, 3):
        p = replication(shown[:n_refits], num_draws=200, seed=1).probability
        assert (p > 0.7).sum() > 500 and p.max() < 0.98
    single = shown[0] > 0.9
    assert (shown[3][single] > 0.5).mean() < 0.8 < shown[0][single].mean()  # one refit says too much


def test_same_seed_same_numbers_and_draws_fit_the_mean():
    shown = refits_of(np.random.default_rng(4), 400, 3)
    one, again = (replication(shown, num_draws=50, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.probability, again.probability)
    np.testing.assert_allclose(one.pattern_probability.mean((0, 1))[one.pattern], one.probability)
    assert (np.diff(one.rate, axis=-1) >= 0).all() and one.share.sum(-1) == pytest.approx(1)


@pytest.mark.parametrize("bad", [np.ones((1, 4)), np.ones(3), np.full((2, 2), 1.5), np.ones((2, 0))])
def test_bad_probabilities_are_refused(bad):
    with pytest.raises(ValueError, match="probability: got shape"):
        replication(bad)
