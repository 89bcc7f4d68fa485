"""Parents by Gaussian-process evidence: against densities of scipy, loops over all graphs, and the truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, erf, logsumexp
from scipy.stats import multivariate_normal

from pyro_sparse.inference.edges.parents.evidence import AMPLITUDES, NOISES, SCALES, SetEvidence
from pyro_sparse.inference.edges.parents.parents import _rows, parent_posterior


def transition(rng, n=80, targets=3, candidates=3, density=0.5, noise=0.3):
    """Rows of a random one-layer transition, and its graph."""
    graph = rng.random((targets, candidates)) < density
    x = rng.normal(size=(n, candidates))
    weights, bias = rng.normal(size=(targets, 8, candidates)), rng.normal(size=(targets, 8))
    hidden = np.tanh(np.einsum("thc,nc,tc->nth", weights, x, graph) + bias)
    y = (hidden * rng.normal(size=(targets, 8)) / 2).sum(-1) + noise * rng.normal(size=(n, targets))
    return x, y, graph


def dense_evidence(x, y, covariance, scales):
    """Log evidence (hyperparameter, target) from scipy's density, one term at a time."""
    found = []
    for s in scales:
        k = covariance(x, s) + 1
        for c in AMPLITUDES:
            terms = [
                [multivariate_normal.logpdf(column, cov=c * k + v * np.eye(len(x))) for v in NOISES]
                for column in y.T
            ]
            found.append(logsumexp(terms, axis=1) - np.log(len(NOISES)))
    return np.array(found)


def arcsine(x, s):
    k = np.empty((len(x), len(x)))
    for i, j in itertools.product(range(len(x)), repeat=2):
        u, v = np.r_[1, x[i]], np.r_[1, x[j]]
        k[i, j] = 2 / np.pi * np.arcsin(2 * s * u @ v / np.sqrt((1 + 2 * s * u @ u) * (1 + 2 * s * v @ v)))
    return k


@pytest.mark.parametrize("kernel", ["arcsine", "linear", "features"])
def test_evidence_is_the_normal_density(kernel):
    x, y, _ = transition(np.random.default_rng(0), n=22, targets=2)
    evidence = SetEvidence(x, y, kernel, num_features=15, seed=4)
    sets = np.array([[False] * 3, [True, False, True], [True] * 3])
    found = evidence(sets)
    assert found.shape == (3, *evidence.shape)
    xs, ys = x / np.sqrt((x**2).mean()), y / np.sqrt((y**2).mean())
    w = np.random.default_rng(4).normal(size=(4, 15))

    def features(x, s):
        f = erf(np.sqrt(s) * (np.c_[np.ones(len(x)), x] @ w)) / np.sqrt(15)
        return f @ f.T

    covariance = {"arcsine": arcsine, "linear": lambda x, s: x @ x.T, "features": features}[kernel]
    for chosen, e in zip(sets, found, strict=True):
        want = dense_evidence(xs * chosen, ys, covariance, (1.0,) if kernel == "linear" else SCALES)
        np.testing.assert_allclose(e, want, rtol=1e-7, atol=1e-6)
    assert len(evidence) == 3
    np.testing.assert_array_equal(evidence(sets[::-1]), found[::-1])
    assert len(evidence) == 3


def test_many_features_are_the_arcsine_kernel():
    x, y, _ = transition(np.random.default_rng(1), n=25, targets=1)
    sets = np.array([[True, False, True]])
    many = SetEvidence(x, y, "features", num_features=20_000)
    x = many._x * sets
    f = many._features(sets[0], 0.8)
    np.testing.assert_allclose(f @ f.T, arcsine(x, 0.8) + 1, atol=0.05)


def brute_force(x, y, power, a, b, required, forbidden):
    """P(edge) from a loop over all graphs and hyperparameters, eta integrated by its beta function."""
    n_targets, d = y.shape[1], x.shape[1]
    evidence = SetEvidence(x, y)
    sets = [np.array(s, dtype=bool) for s in itertools.product([0, 1], repeat=d)]
    e = power * evidence(np.array(sets))
    free = ~(required | forbidden)
    permitted = [
        [k for k, s in enumerate(sets) if s[required[i]].all() and not s[forbidden[i]].any()]
        for i in range(n_targets)
    ]
    logs, graphs, rates = [], [], []
    for graph in itertools.product(*permitted):
        n = sum((sets[k] & free[i]).sum() for i, k in enumerate(graph))
        by_hyper = sum(e[k, :, i] for i, k in enumerate(graph))
        logs.append(logsumexp(by_hyper) + betaln(a + n, b + free.sum() - n) - betaln(a, b))
        graphs.append([sets[k] for k in graph])
        rates.append((a + n) / (a + b + free.sum()))
    weight = np.exp(np.array(logs) - logsumexp(logs))
    return np.tensordot(weight, np.array(graphs, dtype=float), 1), weight @ rates


@pytest.mark.parametrize("masked", [False, True])
def test_enumeration_is_the_sum_over_all_graphs(masked):
    x, y, _ = transition(np.random.default_rng(2), n=24, noise=0.8)
    required, forbidden = np.zeros((3, 3), dtype=bool), np.zeros((3, 3), dtype=bool)
    if masked:
        required[0, 1] = forbidden[1, 0] = forbidden[2, 2] = required[2, 0] = True
    want, rate = brute_force(x, y, 0.6, 1.5, 2.5, required, forbidden)
    found = parent_posterior(
        x, y, power=0.6, prior=(1.5, 2.5), required=required, forbidden=forbidden, num_draws=4000
    )
    assert found.method == "enumerate"
    assert ((want > 0.02) & (want < 0.98)).sum() >= 4  # there is something to get wrong
    np.testing.assert_allclose(found.probability, want, atol=1e-6)
    np.testing.assert_allclose(found.draws.mean(0), want, atol=0.04)
    assert found.eta.mean() == pytest.approx(rate, abs=0.015)
    assert np.isnan(found.gap).all()


def test_eta_without_free_edges_is_its_prior():
    x, y, _ = transition(np.random.default_rng(3), n=20)
    found = parent_posterior(x, y, forbidden=np.ones((3, 3)), prior=(2.0, 6.0), num_draws=4000)
    assert not found.probability.any() and not found.draws.any()
    mean, _ = quad(lambda p: p * p * (1 - p) ** 5 / np.exp(betaln(2, 6)), 0, 1)
    assert found.eta.mean() == pytest.approx(mean, abs=0.01)
    np.testing.assert_array_equal(found.log_bayes_factor, 0)


def test_sampler_agrees_with_enumeration():
    x, y, graph = transition(np.random.default_rng(4), n=50, targets=3, candidates=6, density=0.4, noise=0.8)
    required, forbidden = np.zeros(graph.shape, dtype=bool), np.zeros(graph.shape, dtype=bool)
    required[0, 2] = forbidden[1, 3] = forbidden[1, 4] = True
    options = {"required": required, "forbidden": forbidden}
    exact = parent_posterior(x, y, **options)
    sampled = parent_posterior(x, y, **options, max_enumerate=0, num_draws=2001, seed=1)
    assert (exact.method, sampled.method) == ("enumerate", "mcmc")
    assert ((exact.probability > 0.05) & (exact.probability < 0.95)).sum() >= 6
    np.testing.assert_allclose(sampled.probability, exact.probability, atol=0.05)
    np.testing.assert_allclose(sampled.draws.mean(0), exact.probability, atol=0.07)
    assert sampled.eta.mean() == pytest.approx(exact.eta.mean(), abs=0.03)
    assert sampled.draws.shape == (2001, *graph.shape) and sampled.eta.shape == (2001,)
    assert np.nanmax(sampled.gap) < 0.12
    assert 0 < sampled.diagnostics["flip_rate"] < 1 and 0 < sampled.diagnostics["swap_rate"] < 1
    for found in (exact, sampled):
        assert (found.probability[required] == 1).all() and (found.draws[:, required] == 1).all()
        assert (found.probability[forbidden] == 0).all() and not found.draws[:, forbidden].any()
        assert found.best[required].all() and not found.best[forbidden].any()


def test_order_of_columns_does_not_matter():
    x, y, graph = transition(np.random.default_rng(5), n=40, targets=4, candidates=5)
    straight = parent_posterior(x, y)
    t, c = np.array([2, 0, 3, 1]), np.array([4, 2, 0, 1, 3])
    moved = parent_posterior(x[:, c], y[:, t])
    np.testing.assert_allclose(moved.probability, straight.probability[np.ix_(t, c)], atol=1e-8)
    np.testing.assert_array_equal(moved.best, straight.best[np.ix_(t, c)])
    np.testing.assert_allclose(moved.best_probability, straight.best_probability[t])
    scaled = parent_posterior(3 * x, 0.1 * y)
    np.testing.assert_allclose(scaled.probability, straight.probability, atol=1e-8)


def test_chains_are_averaged_and_compared():
    x, y, _ = transition(np.random.default_rng(6), n=40)
    other = y + 0.7 * np.random.default_rng(7).normal(size=y.shape)
    both = parent_posterior(np.stack([x, x]), np.stack([y, other]), num_draws=30)
    alone = [parent_posterior(x, one).probability for one in (y, other)]
    np.testing.assert_allclose(both.by_chain, alone)
    np.testing.assert_allclose(both.probability, np.mean(alone, axis=0))
    np.testing.assert_allclose(both.gap, np.abs(alone[0] - alone[1]))
    assert both.draws.shape == (60, 3, 3) and both.eta.shape == (60,)
    assert both.n_sets == 16


def test_best_set_and_what_it_is_worth():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(120, 4))
    y = np.c_[np.tanh(2 * x[:, 1]) + 0.5 * np.cos(x[:, 3]), rng.normal(size=120)]
    y += 0.1 * rng.normal(size=y.shape)
    found = parent_posterior(x, y)
    np.testing.assert_array_equal(found.best, [[0, 1, 0, 1], [0, 0, 0, 0]])
    assert found.best_probability[0] > 0.8 and found.log_bayes_factor[0] > 50
    assert found.log_bayes_factor[1] == 0
    again = parent_posterior(x, y)
    np.testing.assert_array_equal(again.draws, found.draws)
    assert (parent_posterior(x, y, seed=1).draws != found.draws).any()


def test_power_and_rows_hold_back():
    x, y, graph = transition(np.random.default_rng(9), n=200, noise=0.5)
    truth = graph.astype(float)
    error = [
        np.abs(parent_posterior(x, y, power=t, max_rows=n).probability - truth).mean()
        for t, n in ((0.05, 50), (0.7, 50), (0.7, 200))
    ]
    assert error[0] > error[1] > error[2]


def rare_action(rng, n=3000, taken=12, effect=0.8):
    """Two latents, and an action of standard deviation 1 that is seldom taken and moves the first."""
    action = np.zeros(n)
    action[rng.choice(n, taken, replace=False)] = 1
    action = (action - action.mean()) / action.std()
    x = np.c_[rng.normal(size=(n, 2)), action]
    y = np.c_[np.tanh(2 * x[:, 0]) + effect * (action > 1), np.tanh(x[:, 1])]
    return x, y + 0.3 * rng.normal(size=(n, 2))


def test_a_rare_action_is_among_the_rows_used():
    x, y = rare_action(np.random.default_rng(0))
    drawn, rows = _rows(x[None], 200, np.random.default_rng(0))
    assert len(drawn) == len(rows) == len(np.unique(rows)) == 200
    assert (x[rows, 2] > 1).sum() == 10 and len(np.intersect1d(drawn, rows)) >= 190
    common = x[None, :, :2]
    drawn, rows = _rows(common, 200, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn, rows)
    few, _ = _rows(np.tile(x, (1, 1, 40)), 60, np.random.default_rng(0))
    assert len(few) == 60


def test_probabilities_of_a_rare_action():
    found = [parent_posterior(*rare_action(np.random.default_rng(s)), num_draws=1) for s in range(6)]
    p = np.array([f.probability for f in found])
    assert (p[:, 0, 2] > 0.9).mean() > 0.8
    assert p[:, [0, 1], [0, 1]].min() > 0.99  # the latents' units are not those of the rare rows
    assert p[:, 1, 2].max() < 0.5
    x, y = rare_action(np.random.default_rng(0))
    still = np.zeros((len(x), 1))
    still[5] = 1
    with pytest.raises(ValueError, match="targets: column 0 is constant in the 50 rows used; raise max_rows"):
        parent_posterior(x[:, :2], still, max_rows=50, num_draws=1)
    (found,) = parent_posterior(still, y, max_rows=50, num_draws=1).probability[:1]
    assert np.isfinite(found).all()  # all rows first drawn are zero
    with pytest.raises(ValueError, match="inputs: column 2 is constant in the 20 rows used; raise max_rows"):
        parent_posterior(np.c_[x, np.random.default_rng(0).normal(size=(3000, 9))], y, max_rows=20)


def brier_of(n_sets, **options):
    p, g = [], []
    for seed in range(900, 900 + n_sets):
        rng = np.random.default_rng(seed)
        x, y, graph = transition(rng, n=80, targets=4, candidates=5, density=rng.beta(1, 2))
        p.append(parent_posterior(x, y, num_draws=1, **options).probability)
        g.append(graph)
    return np.array(p).ravel(), np.array(g, dtype=float).ravel()


@pytest.mark.slow
def test_probabilities_are_sharp_and_calibrated_on_random_networks():
    p, g = brier_of(15)
    base = g.mean() * (1 - g.mean())
    assert ((p - g) ** 2).mean() < 0.4 * base
    order = np.argsort(-p)
    named = order[np.cumsum(1 - p[order]) / np.arange(1, len(p) + 1) <= 0.1]
    assert 1 - g[named].mean() < 0.15
    assert g[named].sum() / g.sum() > 0.7
    z = (g - p).sum() / np.sqrt((p * (1 - p)).sum())
    assert abs(z) < 4
    assert ((brier_of(15, kernel="linear")[0] - g) ** 2).mean() > ((p - g) ** 2).mean()


GOOD = transition(np.random.default_rng(10), n=30)[:2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.full((30, 3), np.nan)}, "inputs: want finite numbers"),
        ({"targets": np.full((30, 3), np.inf)}, "targets: want finite numbers"),
        ({"inputs": np.ones(30)}, "inputs: want shape"),
        ({"targets": GOOD[1][:25]}, r"targets: want the rows \(and chains\) of inputs, \(30,\), got \(25,\)"),
        ({"targets": GOOD[1][None]}, "targets: want the rows"),
        ({"inputs": GOOD[0][:19], "targets": GOOD[1][:19]}, "at least 20 rows, got 19"),
        ({"inputs": GOOD[0] * [1, 0, 1]}, "inputs: column 1 is constant"),
        ({"targets": GOOD[1] * [1, 1, 0]}, "targets: column 2 is constant"),
        ({"required": np.eye(3), "forbidden": np.eye(3)}, "forbidden: edge 0 -> 0 .* is required too"),
        ({"required": np.eye(2)}, "required: want booleans of shape"),
        ({"forbidden": np.full((3, 3), 0.5)}, "forbidden: want booleans"),
        ({"kernel": "rbf"}, "kernel: want one of"),
        ({"power": 0.0}, "power: want a number above 0"),
        ({"prior": (1.0, 0.0)}, "prior: want two positive numbers"),
        ({"max_rows": 10}, "max_rows: want a whole number of at least 20, got 10"),
        ({"max_enumerate": 15}, "max_enumerate: want at most 14, got 15"),
        ({"num_draws": 0}, "num_draws: want a whole number"),
        ({"num_features": 1.5}, "num_features: want a whole number"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"inputs": GOOD[0], "targets": GOOD[1]} | change
    with pytest.raises(ValueError, match=message):
        parent_posterior(arguments.pop("inputs"), arguments.pop("targets"), **arguments)
