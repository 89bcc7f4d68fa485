"""Beliefs about single edges: read as they are meant, and weighed as Bayes says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize
from scipy.special import expit, logit

import pyro_sparse as ps
from pyro_sparse.priors import em

pytestmark = pytest.mark.usefixtures("hurried_module")

NAMES = ["a", "b", "c", "d"]
ODDS = np.array([[20.0, 1.0], [1.0, 0.05], [3.0, 1.0], [1.0, 1.0]])
EDGES = {("a", 0): 20.0, (1, 1): 0.05, ("c", 0): 3}


def built(odds, names=NAMES, **options):
    model = ps.models.SparseDecoder(4, 2, edge_odds=odds, **options)
    model.setup(3, n_samples=50, feature_names=names)
    return model


@pytest.mark.parametrize(
    "odds",
    [
        EDGES,
        ODDS,
        ODDS.tolist(),
        torch.as_tensor(ODDS),
        pd.DataFrame(ODDS, index=NAMES, columns=["cell cycle", "stress"]),
        pd.DataFrame(ODDS, index=NAMES).iloc[[2, 0, 3, 1]],
    ],
    ids=["mapping", "array", "list", "tensor", "frame", "other order"],
)
def test_the_same_odds_however_they_are_written(odds):
    prior = built(odds).prior
    prior.eta.copy_(torch.tensor([0.2, 0.4]))
    assert prior.informed and prior.inclusion.shape == (3, 4, 2)
    wanted = expit(logit([0.2, 0.4]) + np.log(ODDS))
    np.testing.assert_allclose(prior.inclusion[1].numpy(), wanted, rtol=1e-5)
    w = torch.full((3, 4, 2), 0.01)
    slab, spike = (part.log_prob(w).numpy() for part in prior.components())
    np.testing.assert_allclose(prior.edge_log_odds(w).numpy(), logit(wanted) + slab - spike, rtol=1e-4)


def test_without_odds_nothing_changes():
    plain = ps.models.SparseDecoder(4, 2)
    plain.setup(3, n_samples=50)
    assert not plain.prior.informed and plain.prior.inclusion is plain.prior.eta
    ones = built(np.ones((4, 2)))
    w = 0.02 * torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    for prior in (plain.prior, ones.prior):
        prior.update(w)
    torch.testing.assert_close(ones.prior.eta, plain.prior.eta, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(ones.prior.prox(w, 0.01), plain.prior.prox(w, 0.01))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("a, b", [(1.0, 1.0), (1.0, 9.0), (2.5, 0.7)])
def test_the_rate_of_a_factor_is_the_arg_max(a, b, shared):
    rng = np.random.default_rng(0)
    prob, known, allowed = rng.random((9, 3)), 2 * rng.normal(size=(9, 3)), rng.random((9, 3)) < 0.7
    eta = em.informed_eta_step(
        *(torch.as_tensor(v) for v in (prob, known)), a, b, torch.as_tensor(allowed), shared
    )
    assert eta.shape == (1, 1 if shared else 3)
    for k in range(eta.shape[-1]):
        own = slice(None) if shared else slice(k, k + 1)

        def loss(odds, own=own):
            rate = expit(odds + known[:, own])
            each = prob[:, own] * np.log(rate) + (1 - prob[:, own]) * np.log1p(-rate)
            return (
                -(each * allowed[:, own]).sum()
                - (a - 1) * np.log(expit(odds))
                - (b - 1) * np.log(expit(-odds))
            )

        best = optimize.minimize_scalar(loss, bounds=(-13, 13), method="bounded", options={"xatol": 1e-9})
        assert eta[0, k].item() == pytest.approx(expit(best.x), abs=1e-6)


@pytest.mark.parametrize(
    ("odds", "error", "message"),
    [
        ({("e", 0): 2.0}, ValueError, "edge_odds: no feature is called 'e'"),
        ({(0, 2): 2.0}, ValueError, r"edge_odds: edge \(0, 2\) lies outside 4 features x 2 factors"),
        ({"a": 2.0}, TypeError, r"want pairs \(feature, factor\) as keys, got 'a'"),
        ({("a", 0): "often"}, TypeError, r"the edge \('a', 0\) has odds 'often', wanted a number"),
        (
            {("a", 0): 0.0},
            ValueError,
            r"the edge \('a', 0\) has odds of 0, wanted a positive number; an edge that",
        ),
        ({("b", 1): np.inf}, ValueError, "has odds of inf"),
        (ODDS[:3], ValueError, r"got shape \(3, 2\), wanted \(feature, factor\) = \(4, 2\)"),
        ([["much"] * 2] * 4, TypeError, "want numbers, one for each feature and factor"),
        (pd.DataFrame(ODDS, index=["a", "b", "c", "x"]), ValueError, "names 'x', which is none of them"),
        (pd.DataFrame(ODDS[:3], index=NAMES[:3]), ValueError, "lacks 'd'; edge_odds.reindex"),
        (pd.DataFrame(ODDS[[0, 1, 2, 3, 3]], index=[*NAMES, "d"]), ValueError, "names one of them twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(odds, error, message):
    with pytest.raises(error, match=message):
        built(odds)


def test_priors_that_odds_mean_nothing_to_are_refused():
    with pytest.raises(ValueError, match="edge_odds: Horseshoe has no probabilities of edges"):
        built(EDGES, prior="horseshoe")
    with pytest.raises(ValueError, match='edge_odds: column="ibp" has one rate for all edges of a factor'):
        built(EDGES, prior=ps.priors.SpikeSlabLasso(column="ibp"))


def table(n_rows=150, seed=0):
    """Three factors of five features each; every second loading is weak."""
    rng = np.random.default_rng(seed)
    truth = np.kron(np.eye(3, dtype=bool), np.ones((5, 1), dtype=bool))
    w = truth * np.tile([0.9, 0.3, 0.9, 0.3, 0.9], 3)[:, None]
    x = rng.normal(size=(n_rows, 3)) @ w.T + 0.7 * rng.normal(size=(n_rows, 15))
    return pd.DataFrame(x, columns=[f"gene {j}" for j in range(15)]), truth


def fitted(odds, **options):
    x, _ = table()
    prior = ps.priors.SpikeSlabLasso(lambda0=30.0)
    model = ps.models.SparseDecoder(15, 3, prior=prior, decoder="linear", edge_odds=odds)
    return ps.fit(model, x, **{"restarts": 2, "seed": 0, "steps": 300, "progress": False, **options})


def test_factors_take_the_places_that_the_odds_give_them(tmp_path):
    x, truth = table()
    turned = truth[:, [2, 0, 1]]
    odds = pd.DataFrame(np.where(turned, 10.0, 0.5), index=x.columns)
    fit = fitted(odds)
    frame = fit.alignment["permutation"][fit.best]
    strongest = (fit.effects[fit.best][:, np.argsort(frame)]).argmax(1)
    assert (strongest == turned.argmax(1)).mean() > 0.9
    assert [len(group) for group in fit.model.alike_factors()] == [1, 1, 1]
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    torch.testing.assert_close(loaded.model.prior.inclusion, fit.model.prior.inclusion)


@pytest.mark.usefixtures("hurried")
@pytest.mark.slow
def test_probabilities_weigh_odds_as_bayes_says():
    x, truth = table()
    weak = truth & ~(np.arange(15) % 5 % 2 == 0)[:, None]
    p = {}
    for name, odds in (
        ("none", None),
        ("right", np.where(truth, 8.0, 0.5)),
        ("wrong", np.where(weak.any(1, keepdims=True), 0.01, np.ones((15, 3)))),
    ):
        idata = fitted(odds, restarts=1, steps=150).edge_posterior("mcmc", sweeps=150, seed=1)
        found = idata["edge_posterior"]["probability"].to_numpy()
        order = np.abs(np.corrcoef(found.T, truth.T)[:3, 3:]).argmax(0)
        p[name] = found[:, order]
    assert p["right"][weak].mean() > p["none"][weak].mean() > p["wrong"][weak].mean() + 0.05
    strong = truth & ~weak
    assert p["wrong"][strong].min() > 0.9 and p["right"][~truth].max() < 0.5


@pytest.mark.slow(hurried=True)
def test_chains_that_begin_in_another_order_go_to_the_order_of_the_odds():
    """Odds of 8 and 1/2 of fifteen edges: another order is some 30 nats worse, with nothing in between."""
    x, truth = table()
    model = ps.models.SparseDecoder(15, 3, decoder="linear", edge_odds=np.where(truth, 8.0, 0.5))
    fit = ps.fit(model, x, restarts=1, seed=0, steps=150, progress=False)
    with torch.no_grad():
        fit.model.weights.copy_(fit.model.weights.clone()[..., [1, 2, 0]])
    found = fit.edge_posterior("mcmc", scores=True, seed=1, sweeps=60, warm_up=30)
    p = found["edge_posterior"]["probability"].to_numpy()
    strong = truth & (np.arange(15) % 5 % 2 == 0)[:, None]
    assert p[strong].min() > 0.9 and p[~truth].max() < 0.5


def test_simulated_tables_have_edges_as_the_odds_say():
    odds = np.where(np.arange(40)[:, None] % 2 == 0, 20.0, 0.05) * np.ones((40, 2))
    model = ps.models.SparseDecoder(
        40,
        2,
        prior=ps.priors.SpikeSlabLasso(lambda0=30.0, a=5, b=5),
        decoder="linear",
        edge_odds=odds,
        factor_cov=False,
    )
    simulate, _ = ps.calibrate.experiment(model, 20)
    edge = np.mean([simulate(np.random.default_rng(seed))[0]["edge"] for seed in range(20)], 0)
    assert edge[0::2].mean() > 0.8 and edge[1::2].mean() < 0.2
