"""Scores of factors with levels: closed forms on full grids, the published protocols by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from pyro_sparse.metrics import factor_vae_score, mig, modularity, sap

FEW = {"n_train": 600, "n_test": 600}


def grid(*counts, times=1):
    cells = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, len(counts))
    return np.tile(cells, (times, 1))


def draws(n=4000, counts=(4, 6, 3), seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(c, size=n) for c in counts], 1), rng


SCORES = {
    "factor_vae": lambda levels, codes: factor_vae_score(levels, codes, **FEW).value,
    "mig": mig,
    "modularity": modularity,
    "sap": sap,
    "sap of correlations": lambda levels, codes: sap(levels, codes, discrete=False),
}


@pytest.mark.parametrize("name", SCORES)
def test_perfect_codes_and_their_order_sign_and_scale(name):
    levels, rng = draws()
    perfect = SCORES[name](levels, levels)
    # Thresholds on a code that says nothing are right in a quarter, a sixth, a third of the cases.
    wanted = 1 - np.mean([1 / 4, 1 / 6, 1 / 3]) if name == "sap" else 1.0
    assert perfect == pytest.approx(wanted, abs=0.02)
    codes = levels @ [[1, 0.4, 0, 0], [0, 1, 0.3, 0], [0, 0, 1, 0.1]]
    codes += 1.5 * rng.standard_normal((4000, 4))
    moved = codes[:, [2, 0, 3, 1]] * [4.0, -2.0, 8.0, 0.5] + 1
    first, second = SCORES[name](levels, codes), SCORES[name](levels, moved)
    assert 0.05 < first < perfect - 0.05
    # Turning a code round moves the edges of its bins by a rounding error.
    assert second == pytest.approx(
        first, abs=1e-12 if name in ("factor_vae", "sap of correlations") else 5e-3
    )


@pytest.mark.parametrize("name", ["mig", "sap", "sap of correlations"])
def test_gaps_of_independent_codes_vanish(name):
    levels, rng = draws()
    assert SCORES[name](levels, rng.standard_normal((4000, 5))) < 0.02


def test_factor_vae_of_independent_codes_is_chance():
    levels, rng = draws()
    score = factor_vae_score(levels, rng.standard_normal((4000, 5)), n_train=3000, n_test=3000)
    assert score.value == pytest.approx(1 / 3, abs=0.06)
    assert score.votes.sum() == 3000 and score.votes.shape == (5, 3)


def slow_factor_vae(levels, codes, n_train, n_test, seed):
    """The protocol, vote by vote."""
    rng = np.random.default_rng(seed)
    overall = codes.var(0, ddof=1)
    votes = []
    for _ in range(n_train + n_test):
        f = rng.integers(levels.shape[1])
        value = rng.choice(np.unique(levels[:, f]))
        rows = rng.choice(np.flatnonzero(levels[:, f] == value), size=64)
        votes.append((f, int((codes[rows].var(0, ddof=1) / overall).argmin())))
    majority = {}
    for k in range(codes.shape[1]):
        mine = [f for f, code in votes[:n_train] if code == k]
        majority[k] = max(set(mine), key=mine.count) if mine else 0
    return np.mean([majority[code] == f for f, code in votes[n_train:]])


def test_factor_vae_by_its_protocol():
    levels, rng = draws(n=1500)
    mixed = levels @ rng.standard_normal((3, 4)) + 1.5 * rng.standard_normal((1500, 4))
    wanted = np.mean([slow_factor_vae(levels, mixed, 1500, 1500, seed) for seed in range(2)])
    found = factor_vae_score(levels, mixed, n_train=6000, n_test=6000, seed=5)
    assert 0.4 < wanted < 0.95
    assert found.value == pytest.approx(wanted, abs=0.04)


def test_factor_vae_closed_form():
    """One code is the first factor, the other noise: of the second factor's votes half go to each."""
    levels, rng = draws(n=20_000, counts=(5, 5))
    codes = np.column_stack([levels[:, 0], np.sqrt(2) * rng.standard_normal(20_000)])
    score = factor_vae_score(levels, codes, batch=400)
    share = score.votes / score.votes.sum(0)
    assert share[:, 0].tolist() == [1.0, 0.0]
    # Uniform levels spread less from batch to batch than normal draws do: not quite a half, but both win.
    assert 0.2 < share[0, 1] < 0.8
    assert score.value == pytest.approx(1 - 0.5 * share[0, 1], abs=0.02)
    alone = factor_vae_score(levels, codes[:, :1])
    assert alone.value == pytest.approx(0.5, abs=0.03)


def test_codes_that_are_switched_off_have_no_vote():
    levels, rng = draws()
    codes = np.column_stack([np.full(4000, 3.0), levels, 0.01 * levels[:, 0], 0.04 * rng.random(4000)])
    score = factor_vae_score(levels, codes, **FEW)
    assert score.value == 1 and score.active.tolist() == [False, True, True, True, False, False]
    assert (score.votes[~score.active] == 0).all()
    assert factor_vae_score(levels, codes, min_sd=0.0, **FEW).active.sum() == 5
    assert factor_vae_score(levels, codes[:, :1], **FEW).value == 0
    again = factor_vae_score(levels, codes, seed=0, **FEW)
    np.testing.assert_array_equal(again.votes, score.votes)


def test_levels_may_be_any_whole_numbers_and_unequally_frequent():
    levels, rng = draws(n=3000, counts=(3, 3))
    odd = np.where(levels == 2, 50, levels) - 7
    codes = levels + 0.3 * rng.standard_normal(levels.shape)
    for name in ("factor_vae", "mig", "modularity", "sap"):
        assert SCORES[name](odd * 1.0, codes) == pytest.approx(SCORES[name](levels, codes), abs=1e-12)
    kept = (levels[:, 0] > 0) | (rng.random(3000) < 0.02)
    assert factor_vae_score(levels[kept], codes[kept], **FEW).value == 1


def information(a, b):
    joint = np.histogram2d(a, b, bins=[np.arange(a.max() + 2), np.arange(b.max() + 2)])[0] / len(a)
    outer = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return (joint[joint > 0] * np.log(joint[joint > 0] / outer[joint > 0])).sum()


def test_mig_and_modularity_from_tables():
    levels, rng = draws(n=2000)
    codes = levels @ rng.standard_normal((3, 4)) + 0.5 * rng.standard_normal((2000, 4))
    low, high = codes.min(0), codes.max(0)
    binned = np.minimum((20 * (codes - low) / (high - low)).astype(int), 19)
    table = np.array([[information(c, f) for f in levels.T] for c in binned.T])
    top = np.sort(table, axis=0)[::-1]
    wanted = np.mean((top[0] - top[1]) / [information(f, f) for f in levels.T])
    assert mig(levels, codes) == pytest.approx(wanted, abs=1e-9)
    deviation = [(sum(row**2) - max(row) ** 2) / (2 * max(row) ** 2) for row in table]
    assert modularity(levels, codes) == pytest.approx(1 - np.mean(deviation), abs=1e-9)
    assert mig(levels, codes, bins=5) != pytest.approx(wanted, abs=1e-3)


def test_closed_forms_on_a_grid():
    levels = grid(4, 4)
    a, b = levels.T
    # Half of the first factor is in a second code; the second factor is in one.
    assert mig(levels, np.column_stack([a, a // 2, b])) == pytest.approx((0.5 + 1) / 2)
    assert mig(levels, a[:, None]) == pytest.approx(0.5)  # one code: the second best says nothing
    # All of the first factor and half of the second in one code: 1 - (ln 2 / ln 4)^2.
    assert modularity(levels, (2 * a + b // 2)[:, None]) == pytest.approx(0.75)
    assert modularity(levels, np.column_stack([a, np.full(16, 2.0)])) == pytest.approx(0.5)


def test_sap_closed_forms():
    levels, rng = draws(n=20_000, counts=(2, 2))
    codes = np.column_stack([2 * levels[:, 0] + rng.standard_normal(20_000), levels[:, 1]])
    # One threshold between two normals at distance 2, against one half.
    wanted = ((norm.cdf(1) - 0.5) + 0.5) / 2
    assert sap(levels, codes) == pytest.approx(wanted, abs=0.02)
    r2 = 1 / (1 + 1)  # between-group variance 1, noise 1
    assert sap(levels, codes, discrete=False) == pytest.approx((r2 + 1) / 2, abs=0.02)
    assert sap(levels, np.column_stack([codes[:, 0], np.zeros(20_000)])) == pytest.approx(
        (norm.cdf(1) + 0.5) / 2, abs=0.02
    )
    square = levels * 1.0
    square[:, 0] = np.abs(rng.standard_normal(20_000)) * (2 * levels[:, 0] - 1)
    assert sap(levels, square) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("score", [factor_vae_score, mig, modularity, sap])
@pytest.mark.parametrize(
    ("levels", "codes", "message"),
    [
        (np.zeros((4, 2)), np.zeros((3, 2)), r"levels has shape \(4, 2\), codes \(3, 2\)"),
        (np.full((4, 2), 0.5), np.zeros((4, 2)), "levels: want whole numbers"),
        (np.full((4, 2), np.nan), np.zeros((4, 2)), "levels: want finite numbers"),
        ([[0, 0], [1, 0]], np.zeros((2, 2)), "levels: factor 1 has one level only; leave it out"),
        ([[0, 0], [1, 1]], [[0.0], [np.nan]], "codes: want finite numbers"),
    ],
)
def test_bad_tables_are_named(score, levels, codes, message):
    with pytest.raises(ValueError, match=message):
        score(levels, codes)


def test_bad_arguments_are_named():
    levels = grid(2, 2, times=3)
    for arguments, message in (
        ({"batch": 1}, "batch: want a whole number of at least 2, got 1"),
        ({"n_train": 0}, "n_train: want a whole number of at least 1, got 0"),
        ({"n_test": 2.5}, "n_test: want a whole number of at least .*, got 2.5"),
        ({"min_sd": -1.0}, "min_sd=-1.0 is a standard deviation"),
    ):
        with pytest.raises(ValueError, match=message):
            factor_vae_score(levels, levels, **arguments)
    with pytest.raises(ValueError, match="a level of factor 1 has one row only.*; encode more images"):
        factor_vae_score([[0, 0], [1, 0], [0, 1], [1, 0]], np.zeros((4, 1)))
    for score in (mig, modularity):
        with pytest.raises(ValueError, match="bins: want a whole number of at least 2, got 1"):
            score(levels, levels, bins=1)
    with pytest.raises(ValueError, match="levels: want two factors or more"):
        modularity(levels[:, :1], levels)
