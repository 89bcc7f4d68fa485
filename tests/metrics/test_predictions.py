"""Prediction metrics against SciPy, scikit-learn and loops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multinomial, norm
from sklearn.metrics import mean_squared_error, ndcg_score

from pyro_sparse.metrics import (
    crps,
    gaussian_log_likelihood,
    heldout_mse,
    multinomial_log_loss,
    ndcg_at_k,
    recall_at_k,
    reconstruction_ndcg_at_k,
    reconstruction_recall_at_k,
)


@pytest.fixture
def cells():
    rng = np.random.default_rng(0)
    x, guess = rng.standard_normal((2, 20, 4))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x, guess, rng.random(x.shape) < 0.5


def test_mse_over_observed_and_masked_cells(cells):
    x, guess, mask = cells
    seen = ~np.isnan(x)
    assert heldout_mse(x, guess) == pytest.approx(mean_squared_error(x[seen], guess[seen]))
    both = seen & mask
    assert heldout_mse(x, guess, mask) == pytest.approx(mean_squared_error(x[both], guess[both]))
    guess = guess.copy()
    guess[np.argwhere(seen)[0][0], np.argwhere(seen)[0][1]] = np.nan
    assert np.isnan(heldout_mse(x, guess))


def test_gaussian_log_likelihood(cells):
    x, guess, mask = cells
    sd = np.array([0.5, 1.0, 2.0, 3.0])
    expected = norm.logpdf(x, guess, sd)[~np.isnan(x) & mask].mean()
    assert gaussian_log_likelihood(x, guess, sd, mask) == pytest.approx(expected)
    with pytest.raises(ValueError, match="noise_sd"):
        gaussian_log_likelihood(x, guess, 0.0)


def test_cells_are_checked(cells):
    x, guess, mask = cells
    with pytest.raises(ValueError, match="prediction"):
        heldout_mse(x, guess[:3])
    with pytest.raises(ValueError, match="mask has shape"):
        heldout_mse(x, guess, mask[:3])
    with pytest.raises(ValueError, match="no observed cell"):
        heldout_mse(x, guess, np.isnan(x))


def test_a_word_that_was_given_no_share_costs_everything():
    assert multinomial_log_loss([[1, 0], [0, 2]], [[0, 0], [0.5, 0.5]]) == np.inf


def test_multinomial_log_loss():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 4, (6, 5)).astype(float)
    p = rng.dirichlet(np.ones(5), 6)
    coefficient = [
        multinomial.logpmf(c, c.sum(), q) - (c * np.log(q)).sum() for c, q in zip(counts, p, strict=True)
    ]
    full = -np.mean([multinomial.logpmf(c, c.sum(), q) for c, q in zip(counts, p, strict=True)])
    assert multinomial_log_loss(counts, 7 * p) == pytest.approx(full + np.mean(coefficient))
    assert multinomial_log_loss([[0.0, 2.0]], [[1.0, 0.0]]) == np.inf
    with pytest.raises(ValueError, match="negative"):
        multinomial_log_loss([[-1.0]], [[1.0]])


def test_recall_by_sets():
    rng = np.random.default_rng(2)
    scores = rng.standard_normal((30, 12))
    role = rng.choice(3, size=scores.shape, p=[0.6, 0.2, 0.2])
    seen, heldout = role == 1, role == 2
    expected = []
    for row in range(30):
        order = [j for j in np.argsort(-scores[row]) if not seen[row, j]][:4]
        wanted = set(np.flatnonzero(heldout[row]))
        if wanted:
            expected.append(len(wanted & set(order)) / min(4, len(wanted)))
    assert recall_at_k(scores, heldout, 4, seen) == pytest.approx(np.mean(expected))
    assert recall_at_k(scores, heldout, 12) == 1


def test_ndcg_is_scikit_learns():
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((25, 10))
    heldout = (rng.random(scores.shape) < 0.3).astype(float)
    heldout[:, 0] = 1
    for k in (1, 3, 10):
        assert ndcg_at_k(scores, heldout, k) == pytest.approx(ndcg_score(heldout, scores, k=k))
    seen = (rng.random(scores.shape) < 0.3) & (heldout == 0)
    lowest = np.where(seen, scores.min() - 1, scores)
    assert ndcg_at_k(scores, heldout, 3, seen) == pytest.approx(ndcg_score(heldout, lowest, k=3))


def test_reconstruction_variants_score_the_input():
    x = np.array([[1, 1, 0, 0, 1], [0, 1, 0, 0, 0]])
    perfect = x + np.array([0.1, 0.2, 0.0, 0.3, 0.0])
    assert reconstruction_recall_at_k(perfect, x, 2) == reconstruction_ndcg_at_k(perfect, x, 2) == 1
    assert reconstruction_recall_at_k(-perfect, x, 2) == 0
    assert reconstruction_ndcg_at_k([[3.0, 2.0, 1.0]], [[0, 1, 0]], 2) == pytest.approx(1 / np.log2(3))


def test_a_missing_cell_is_no_item():
    scores, x = [[4, 3, 2, 1.0]], [[1, np.nan, 0, 2.0]]
    assert reconstruction_recall_at_k(scores, x, 2) == 0.5
    assert ndcg_at_k(scores, x, 2) == ndcg_at_k(scores, [[1, 0, 0, 2]], 2)
    assert recall_at_k(scores, x, 2, [[0, np.nan, 1, 0]]) == recall_at_k(scores, x, 2, [[0, 0, 1, 0]])
    assert recall_at_k([[-np.inf, 3, 2, 1]], [[0, 0, 1, 0]], 2) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 2.0]], [[0, 0]], 1), "no item in any row"),
        (([[1.0, 2.0]], [[0, 1]], 3), "k=3"),
        (([[1.0, np.nan]], [[0, 1]], 1), "scores: want a number for every item, got 1 NaN"),
        (([[1.0, 2.0]], [[0, 1]], 1, [[0, 1]]), "both seen and held out"),
    ],
)
def test_ranking_refuses(arguments, message):
    for function in (recall_at_k, ndcg_at_k):
        with pytest.raises(ValueError, match=message):
            function(*arguments)


def test_crps_of_draws_is_that_of_a_normal_in_closed_form():
    """Gneiting and Raftery (2007), equation 21."""
    rng = np.random.default_rng(0)
    x = np.array([[-1.0, 0.3], [2.5, np.nan]])
    draws = 0.4 + 0.7 * rng.standard_normal((200_000, 2, 2))
    z = (x - 0.4) / 0.7
    wanted = 0.7 * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps(draws, x), wanted, atol=0.01)
    assert np.isnan(crps(draws, x)[1, 1])


def test_crps_of_few_draws_has_no_bias():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(100_000)
    few, many = (crps(rng.standard_normal((n, len(x))), x).mean() for n in (2, 30))
    assert abs(few - many) < 0.01
    np.testing.assert_allclose(crps([[1.0], [1.0]], [3.0]), [2.0])
    with pytest.raises(ValueError, match="two draws or more"):
        crps([[1.0]], [3.0])
