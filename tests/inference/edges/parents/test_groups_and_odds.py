"""Candidates of several columns, and odds of edges: against closed-form regressions and sums over graphs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, expit, logsumexp

from pyro_sparse.data.action_columns import contrasts
from pyro_sparse.inference.edges.parents.evidence import AMPLITUDES, NOISES, SetEvidence
from pyro_sparse.inference.edges.parents.parents import _rows, parent_posterior


def design(codes, n_levels):
    """Contrasts as `as_sequences` has them: centred, variances adding to one."""
    columns = contrasts(n_levels)[codes]
    columns = columns - columns.mean(0)
    return columns / np.sqrt(columns.var(0).sum())


def with_action(seed, n_levels, n=60, effect=0.6, noise=0.5):
    """Two latents and an action; the action moves the first target of two."""
    rng = np.random.default_rng(seed)
    latents, codes = rng.normal(size=(n, 2)), rng.integers(0, n_levels, n)
    y = np.c_[np.tanh(latents[:, 0]) + effect * rng.normal(size=n_levels)[codes], latents[:, 1]]
    return np.c_[latents, design(codes, n_levels)], y + noise * rng.normal(size=y.shape), codes


def regression_evidence(x, y, variance, noise):
    """Log evidence of a Bayesian regression with a constant, in weight space: weights N(0, variance)."""
    f = np.c_[np.ones(len(x)), x]
    precision = np.eye(f.shape[1]) / variance + f.T @ f / noise
    mean = np.linalg.solve(precision, f.T @ y / noise)
    fit = ((y - f @ mean) ** 2).sum() / noise + (mean**2).sum() / variance
    log_det = np.linalg.slogdet(precision * variance)[1]
    return -0.5 * (len(y) * np.log(2 * np.pi * noise) + log_det + fit)


@pytest.mark.parametrize("n_levels", [2, 3, 5])
def test_a_group_is_in_or_out_as_closed_form_regressions_say(n_levels):
    x, y, _ = with_action(n_levels, n_levels, n=40, noise=1.0)
    groups = [0, 1, *[2] * (n_levels - 1)]
    # units: of the three candidates, whose squares are 1 each but for chance
    unit = np.sqrt((x**2).sum() / (3 * len(x)))
    xs, ys = x / unit, y / np.sqrt((y**2).mean())
    sets = [np.array(s, dtype=bool) for s in itertools.product([0, 1], repeat=3)]

    def log_evidence(chosen, column, c):
        each = [regression_evidence(xs[:, chosen[groups]], column, c, v) for v in NOISES]
        return logsumexp(each) - np.log(len(NOISES))

    e = np.array([[[log_evidence(s, column, c) for column in ys.T] for c in AMPLITUDES] for s in sets])
    evidence = SetEvidence(x, y, "linear", groups=np.array(groups))
    np.testing.assert_allclose(evidence(np.array(sets)), e, atol=1e-6)
    logs, graphs = [], []
    for first, second in itertools.product(range(8), repeat=2):
        n = sets[first].sum() + sets[second].sum()
        logs.append(logsumexp(e[first, :, 0] + e[second, :, 1]) + betaln(1 + n, 7 - n))
        graphs.append([sets[first], sets[second]])
    wanted = np.tensordot(np.exp(np.array(logs) - logsumexp(logs)), np.array(graphs, dtype=float), 1)
    found = parent_posterior(x, y, kernel="linear", power=1.0, groups=groups, num_draws=2000)
    assert found.probability.shape == (2, 3) and found.n_sets == 8
    assert ((wanted > 0.02) & (wanted < 0.98)).sum() >= 2
    np.testing.assert_allclose(found.probability, wanted, atol=1e-6)
    np.testing.assert_allclose(found.draws.mean(0), wanted, atol=0.05)


def test_what_stands_for_the_levels_does_not_matter():
    """Rotated contrasts, levels in another order, and two levels as a number of one's own."""
    x, y, codes = with_action(0, 4)
    groups = [0, 1, 2, 2, 2]
    wanted = parent_posterior(x, y, groups=groups).probability
    assert 0.02 < wanted[0, 2] and wanted.shape == (2, 3)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    renamed = design(np.array([2, 0, 3, 1])[codes], 4)
    for columns in (x[:, 2:] @ turn, renamed):
        found = parent_posterior(np.c_[x[:, :2], columns], y, groups=groups).probability
        np.testing.assert_allclose(found, wanted, atol=1e-8)
    found = parent_posterior(x[:, [2, 0, 3, 4, 1]], y, groups=[2, 0, 2, 2, 1]).probability
    np.testing.assert_allclose(found, wanted, atol=1e-8)
    x, y, codes = with_action(0, 2)
    number = (codes - codes.mean()) / codes.std()
    np.testing.assert_allclose(x[:, 2], number)
    alone = parent_posterior(np.c_[x[:, :2], number], y).probability
    np.testing.assert_allclose(parent_posterior(x, y, groups=[0, 1, 2]).probability, alone, atol=1e-8)


def test_an_action_that_only_turns_the_effect_of_a_latent_is_a_parent():
    """Joint functions of a set: interactions need no term of their own."""
    rng = np.random.default_rng(3)
    z, codes = rng.normal(size=(300, 2)), rng.integers(0, 3, 300)
    y = np.array([1.0, -1.0, 0.3])[codes] * np.sin(2 * z[:, 0]) + 0.3 * rng.normal(size=300)
    found = parent_posterior(np.c_[z, design(codes, 3)], y[:, None], groups=[0, 1, 2, 2])
    assert found.probability[0, 2] > 0.99 and found.probability[0, 0] > 0.99 and found.probability[0, 1] < 0.3


def test_rows_of_each_rare_level_are_used():
    rng = np.random.default_rng(0)
    codes = rng.choice(3, 4000, p=[0.99, 0.005, 0.005])
    x = np.c_[rng.normal(size=(4000, 1)), design(codes, 3)]
    _, rows = _rows(x[None], 200, np.random.default_rng(0), np.array([0, 1, 1]))
    assert np.bincount(codes[rows])[1:].min() >= 10
    x[:, 1:] = design(np.where(codes == 1, 0, codes) // 2, 2)  # one level fewer, and two columns alike
    found = parent_posterior(x, rng.normal(size=(4000, 1)), groups=[0, 1, 1], num_draws=1)
    assert np.isfinite(found.probability).all()


ODDS = np.array([[1.0, 20.0, 0.05], [3.0, 1.0, 0.2]])


def by_all_graphs(evidence, odds, power, a, b, required, forbidden):
    """P(edge) and mean rate, summed over all graphs and hyperparameters, the rate by quadrature."""
    free = ~(required | forbidden)
    sets = [np.array(s, dtype=bool) for s in itertools.product([0, 1], repeat=3)]
    e = power * evidence(np.array(sets))

    def moments(n_in):
        """Of the rate and its prior's mass, over the free edges: n_in is a mask."""

        def integrand(u, k):
            p, own = expit(u), expit(u + np.log(odds[free]))
            mass = np.where(n_in, own, 1 - own).prod() * p**a * (1 - p) ** b
            return mass * p**k

        return [quad(integrand, -40, 40, args=(k,), limit=200, points=[0])[0] for k in (0, 1)]

    total, edges, rate = 0.0, np.zeros((2, 3)), 0.0
    top = e.max() * 2
    for pair in itertools.product(range(8), repeat=2):
        graph = np.array([sets[k] for k in pair])
        if not graph[required].all() or graph[forbidden].any():
            continue
        weight = np.exp(logsumexp(e[pair[0], :, 0] + e[pair[1], :, 1]) - top)
        mass, first = moments(graph[free])
        total, edges, rate = total + weight * mass, edges + weight * mass * graph, rate + weight * first
    return edges / total, rate / total


@pytest.mark.parametrize("masked", [False, True])
def test_odds_count_as_bayes_says(masked):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(25, 3))
    y = np.c_[0.5 * x[:, 0], 0.4 * x[:, 1] + 0.4 * x[:, 2]] + rng.normal(size=(25, 2))
    required, forbidden = np.zeros((2, 3), dtype=bool), np.zeros((2, 3), dtype=bool)
    if masked:
        required[0, 2] = forbidden[1, 0] = True
    options = {"power": 0.8, "prior": (1.5, 2.5), "required": required, "forbidden": forbidden}
    wanted, rate = by_all_graphs(SetEvidence(x, y), ODDS, 0.8, 1.5, 2.5, required, forbidden)
    found = parent_posterior(x, y, odds=ODDS, num_draws=4000, **options)
    np.testing.assert_allclose(found.probability, wanted, atol=2e-4)
    np.testing.assert_allclose(found.draws.mean(0), wanted, atol=0.04)
    assert found.eta.mean() == pytest.approx(rate, abs=0.015)
    plain = parent_posterior(x, y, **options).probability
    assert np.abs(plain - wanted).max() > 0.1
    sampled = parent_posterior(x, y, odds=ODDS, max_enumerate=0, num_draws=3001, seed=2, **options)
    assert sampled.method == "mcmc"
    np.testing.assert_allclose(sampled.probability, wanted, atol=0.04)
    assert sampled.eta.mean() == pytest.approx(rate, abs=0.03)


def test_odds_of_one_say_nothing_and_those_of_forced_edges_are_not_read():
    x, y, _ = with_action(1, 3)
    groups = [0, 1, 2, 2]
    wanted = parent_posterior(x, y, groups=groups)
    same = parent_posterior(x, y, groups=groups, odds=np.ones((2, 3)))
    np.testing.assert_array_equal(same.draws, wanted.draws)
    np.testing.assert_array_equal(same.probability, wanted.probability)
    forced = np.zeros((2, 3))
    forced[0, 1] = 1
    odds = np.where(forced, 1e6, 1.0)
    for name in ("required", "forbidden"):
        both = [
            parent_posterior(x, y, groups=groups, **{name: forced}, odds=o).probability for o in (None, odds)
        ]
        np.testing.assert_array_equal(*both)
    # in a sure edge of an action that says nothing: the odds alone, with the rate's own
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 1)), rng.normal(size=(60, 1))
    low, high = (
        parent_posterior(x, y, odds=[[o]], prior=(1e6, 1e6), power=1.0).probability[0, 0] for o in (1.0, 9.0)
    )
    assert high / (1 - high) == pytest.approx(9 * low / (1 - low), rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": [0, 1, 1]}, "groups: want the candidate of each of 4 columns"),
        ({"groups": [0, 1, 3, 3]}, "groups: .* leave none out"),
        ({"groups": [0.0, 1, 2, 2]}, "groups: .* whole numbers"),
        ({"groups": [0, 1, 2, 2], "required": np.eye(2, 4)}, r"required: .*\(2, 3\)"),
        ({"odds": np.ones((2, 3))}, r"odds: want positive numbers of shape \(target, candidate\) \(2, 4\)"),
        ({"odds": np.zeros((2, 4))}, "odds: want positive .* `forbidden`"),
        ({"odds": np.full((2, 4), np.inf)}, "odds: want positive"),
    ],
)
def test_bad_groups_and_odds_are_named(change, message):
    x, y, _ = with_action(0, 3)
    with pytest.raises(ValueError, match=message):
        parent_posterior(x, y, **change)
