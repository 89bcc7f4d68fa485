"""`ps.fit`: determinism, refusals, every likelihood and prior, one known graph."""

from __future__ import annotations

import re
import signal
import threading

import numpy as np
import pandas as pd
import pyro
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.models import SparseDecoder
from pyro_sparse.rivals import VAE, VSC
from tests.inference._quick import DATA, fit_module, in_a_hurry, quick, same, small

__all__ = ["in_a_hurry"]  # a fixture for every test here


# ---- determinism


def test_same_seed_same_bits_and_another_seed_others():
    one, two = quick(seed=5), quick(seed=5)
    same(one, two)
    assert not np.array_equal(one.elbo, quick(seed=6).elbo)


def test_the_callers_state_is_left_alone():
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    pyro.get_param_store().clear()
    pyro.param("mine", torch.ones(1))
    handler = signal.getsignal(signal.SIGINT)
    found = quick()
    found.predict(DATA[:3])
    found.transform(DATA[:3])
    found.sample(3)
    found.score(DATA[:3])
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert list(pyro.get_param_store().keys()) == ["mine"]
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.get_default_dtype() == torch.float32
    pyro.get_param_store().clear()


def test_two_models_in_one_process_do_not_meet():
    alone = quick(seed=1)
    other = quick(small(3, decoder="linear"), seed=2)
    elbo = alone.log_likelihood(DATA)
    same(alone, quick(seed=1))
    np.testing.assert_array_equal(alone.log_likelihood(DATA), elbo)
    assert other.weights.shape == (3, 7, 3)


def test_one_model_prior_and_likelihood_serve_several_fits():
    shared = {"prior": ps.priors.SpikeSlabLasso(), "likelihood": ps.likelihoods.Normal()}
    model = small(2, **shared)
    first = quick(model, steps=20)
    kept = first.log_likelihood(DATA)
    quick(model, steps=20, seed=3), quick(small(1, **shared), steps=20)
    np.testing.assert_array_equal(first.log_likelihood(DATA), kept)
    assert model.prior is shared["prior"] and model.prior.n_features == 1  # as it was made


# ---- refusals


def test_fits_in_two_threads_are_refused(monkeypatch):
    inside, leave = threading.Event(), threading.Event()
    advance = fit_module.Run.advance

    def waiting(run):
        inside.set()
        leave.wait(30)
        advance(run)

    monkeypatch.setattr(fit_module.Run, "advance", waiting)
    results = []
    thread = threading.Thread(target=lambda: results.append(quick()))
    thread.start()
    try:
        assert inside.wait(30)
        with pytest.raises(
            RuntimeError, match="another fit is running in this process; Pyro is not thread-safe"
        ):
            quick()
    finally:
        leave.set()
        thread.join(60)
    assert len(results) == 1  # the first was not harmed, in a thread that gets no signals
    quick()  # and the lock is free again


def test_a_failed_fit_frees_the_lock():
    with pytest.raises(ValueError, match="has no rows"):
        quick(x=np.empty((0, 7)))
    quick()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"stepz": 3}, TypeError, "fit: unknown setting 'stepz'; wanted an argument of fit or one of"),
        ({"restarts": 0}, ValueError, "restarts: want a whole number of at least 1, got 0"),
        ({"restarts": 2.0}, ValueError, "restarts: want a whole number of at least 1, got 2.0"),
        ({"threads": 0}, ValueError, "threads: want a whole number of at least 1, got 0"),
        ({"threads": 1.5}, ValueError, "threads: want a whole number of at least 1, got 1.5"),
        ({"holdout": 1.0}, ValueError, "holdout: got 1.0, wanted a share of rows in [0, 1)"),
        ({"holdout": None}, ValueError, "holdout: got None, wanted a share of rows in [0, 1)"),
        ({"seed": 1.7}, ValueError, "seed: want a whole number of at least 0, got 1.7"),
        ({"seed": "3"}, ValueError, "seed: want a whole number of at least 0, got '3'"),
        ({"seed": None}, ValueError, "seed: want a whole number of at least 0, got None"),
        ({"seed": -1}, ValueError, "seed: want a whole number of at least 0, got -1"),
        ({"holdout": 0.99}, ValueError, "holdout: 0.99 of 120 rows leaves 1 to learn from"),
        (
            {"n_factors_init": [1, 2]},
            ValueError,
            "n_factors_init: got [1, 2], wanted one whole number per restart (3), each",
        ),
        ({"n_factors_init": [1, 2, 3]}, ValueError, "n_factors_init: got [1, 2, 3], wanted"),
        ({"n_factors_init": [0, 1, 2]}, ValueError, "n_factors_init: got [0, 1, 2], wanted"),
        (
            {"n_factors_init": [1.5, 1, 1]},
            ValueError,
            "n_factors_init: got [1.5, 1, 1], wanted one whole number per restart",
        ),
        ({"n_factors_init": 2}, ValueError, "n_factors_init: got 2, wanted one whole number per restart"),
        ({"device": "abacus"}, ValueError, "device: 'abacus' is not there ("),
        ({"exposure": np.ones(120)}, ValueError, "exposure: got some, and Normal has no use"),
        ({"model": SparseDecoder}, TypeError, "model: got the class SparseDecoder, wanted a model; make an"),
        ({"dtype": "float16"}, ValueError, "dtype: got 'float16', wanted 'float32', 'float64' or 'bfloat16'"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every: got 0, wanted at least 1 step"),
        ({"steps": 0}, ValueError, "steps: want a whole number of at least 1, got 0"),
        ({"x": DATA[:, :6]}, ValueError, "X: has 6 column(s), the model was made for n_features=7"),
        ({"model": torch.nn.Linear(2, 2)}, TypeError, "model: Linear has no 'setup'; wanted a FactorModel"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match="^" + re.escape(message)):
        quick(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_cuda_where_there_is_none():
    with pytest.raises(ValueError, match="device: 'cuda' is not there .*`pyro-sparse doctor` lists devices"):
        quick(device="cuda")


# ---- options


def test_whole_numbers_of_numpy(tmp_path):
    model = SparseDecoder(np.int64(7), np.int32(2), hidden=np.int64(5), encoder_hidden=np.int64(4))
    own, plain = (
        quick(model, seed=np.int64(3), n_factors_init=np.array([2, 1, 2])),
        quick(seed=3, n_factors_init=[2, 1, 2]),
    )
    same(own, plain)
    own.save(tmp_path / "fit.pt")
    assert ps.load(tmp_path / "fit.pt").weights.shape == (3, 7, 2)


@pytest.mark.parametrize("decoder", ["linear", "mlp"])
def test_every_edge_forbidden(decoder):
    none = [(j, k) for j in range(7) for k in range(2)]
    found = quick(small(decoder=decoder, forbidden=none), steps=60)
    assert not found.weights.any() and np.isfinite(found.elbo).all()


def test_a_prox_without_a_closed_form_is_a_prior_without_one():
    """Whether it is inherited or the subclass says so."""

    class Inherits(ps.priors.SpikeSlabLasso):
        prox = ps.priors.Prior.prox

    class Says(ps.priors.SpikeSlabLasso):
        def prox(self, weights, step):
            return None

    same(quick(small(prior=Says())), quick(small(prior=Inherits())))


@pytest.mark.parametrize("decoder", ["linear", "mlp"])
def test_factors_have_their_prior_scale_whatever_the_units(decoder):
    """Of a table that is not standardised too, and from the first steps on."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((200, 2))
    x = z @ rng.standard_normal((2, 8)) * [1, 2, 5, 10, 20, 50, 0.1, 1] + rng.standard_normal((200, 8)) + 30
    model = ps.models.SparseDecoder(8, 2, decoder=decoder)
    fit = ps.fit(model, x, restarts=1, steps=30, standardise=False, progress=False)
    np.testing.assert_allclose(fit.transform(x).std(0), 1.0, atol=0.35)
    explained = 1 - ((fit.inverse_transform(fit.transform(x)) - x) ** 2).mean(0) / x.var(0)
    assert (explained[[2, 3, 4, 5]] > 0.7).all()


def test_settings_may_be_numbers_of_numpy(tmp_path):
    found = quick(steps=np.int64(20), batch_size=np.int32(20), holdout=np.float32(0.125))
    same(found, quick(holdout=0.125))
    found.save(tmp_path / "a.fit")
    assert ps.load(tmp_path / "a.fit").settings["holdout"] == 0.125


def test_holdout_zero_one_restart_and_double_precision():
    found = quick(holdout=0, restarts=1, dtype="float64")
    assert np.isnan(found.heldout_elbo).all() and np.isfinite(found.elbo).all() and found.best == 0
    assert found.model.weights.dtype == torch.float64
    assert any("one restart only" in note for note in found.warnings)
    assert np.isfinite(found.predict(DATA)).all() and found.settings["dtype"] == "float64"


def test_caps_and_settings_are_recorded():
    found = quick(
        small(3), n_factors_init=[3, 1, 2], schedule=ps.inference.Schedule(em_every=3), learning_rate=1e-3
    )
    assert found.settings["n_factors_init"] == [3, 1, 2] and found.settings["em_every"] == 3
    assert found.settings["learning_rate"] == 1e-3 and found.settings["steps"] == 20
    assert ((found.weights != 0).any(1).sum(1) <= [3, 1, 2]).all()


def test_progress_goes_to_stderr_with_elbo_and_edges(capsys, monkeypatch):
    monkeypatch.setattr("pyro_sparse._utils.progress.is_watched", lambda: True)
    quick(progress=True)
    said = capsys.readouterr()
    assert said.out == "" and "nats/row" in said.err and "edges" in said.err


def test_few_rows_for_many_features_is_said():
    x = np.random.default_rng(0).normal(size=(40, 12))
    found = quick(small(2, 12), x, n_factors_init=[1, 1, 1])
    assert any("36 rows for 12 features" in note for note in found.warnings)


def test_a_diverged_fit_is_no_finding():
    found = quick(small(2, 7, decoder="linear"), restarts=1, learning_rate=50, steps=50)
    assert not np.isfinite(found.elbo).any()
    assert found.warnings[0].startswith("the ELBO of 1 of 1 restart(s) is not finite: they diverged")
    assert not any("no shared factor" in note for note in found.warnings)


def test_a_column_seen_only_in_rows_kept_aside():
    x = DATA.copy()
    aside = np.random.default_rng(0).permutation(len(x))[:12]
    x[np.setdiff1d(np.arange(len(x)), aside), 4] = np.nan
    found = quick(x=x)
    assert np.isfinite(found.elbo).all()


# ---- every likelihood, prior and baseline

COUNTS = np.random.default_rng(3).poisson(np.exp(0.4 * ps.datasets.sim1(n=80, seed=3).z @ np.ones((2, 6))))
TABLES = {
    "normal": ps.datasets.sim1(n=80, seed=3).x[:, :6],
    "bernoulli": (COUNTS > 1).astype(float),
    "poisson": COUNTS.astype(float),
    "negative_binomial": COUNTS.astype(float),
    "multinomial": COUNTS.astype(float),
    "categorical": (COUNTS > 1).astype(float),
}
COUNTED = ("poisson", "multinomial")  # counts with gaps: one likelihood of them is enough at once


@pytest.mark.parametrize(
    ("likelihood", "missing"),
    [
        pytest.param(likelihood, missing, marks=[pytest.mark.slow] * (missing and likelihood in COUNTED))
        for likelihood in sorted(TABLES)
        for missing in (False, True)
    ],
)
def test_every_likelihood_from_table_to_file(likelihood, missing, tmp_path):
    x = TABLES[likelihood].copy()
    x = x[x.sum(1) != 0]
    if missing:
        x[np.random.default_rng(0).random(x.shape) < 0.15] = np.nan
        x = x[(~np.isnan(x)).sum(1) > 2]
    found = quick(small(2, 6, likelihood=likelihood), x, steps=40, restarts=2, n_factors_init=[2, 2])
    n = len(x)
    assert np.isfinite(found.elbo).all() and np.isfinite(found.heldout_elbo).all()
    z, mean = found.transform(x), found.predict(x)
    assert z.shape == (n, 2) and mean.shape == (n, 6) and np.isfinite(mean).all()
    back = found.inverse_transform(z)
    assert back.shape == (n, 6) and np.isfinite(back).all()
    assert found.score(x) == pytest.approx(found.log_likelihood(x).mean())
    draws = found.sample(5, seed=1)
    assert draws.shape == (5, 6) and np.isfinite(draws).all()
    np.testing.assert_array_equal(draws, found.sample(5, seed=1))
    if likelihood != "normal":
        assert (mean >= 0).all() and (draws == np.round(draws)).all() and (draws >= 0).all()
        found.model.likelihood.check(draws) if likelihood != "categorical" else None
    found.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    same(found, again)
    np.testing.assert_array_equal(again.predict(x), mean)
    np.testing.assert_array_equal(again.transform(x), z)
    np.testing.assert_array_equal(again.sample(5, seed=1), draws)
    assert again.score(x) == found.score(x) and again.settings == found.settings
    assert (again.feature_names, again.sample_names) == (found.feature_names, found.sample_names)


@pytest.mark.parametrize(
    "prior",
    [
        ps.priors.SpikeSlabLasso(eta="global"),
        ps.priors.SpikeSlabLasso(column="ibp"),
        ps.priors.SpikeSlabLasso(expected_size=3, ladder="linear"),
        ps.priors.SpikeSlabNormal(),
        ps.priors.Laplace(learn=True),
        ps.priors.Horseshoe(),
        ps.priors.RegularisedHorseshoe(),
        ps.priors.ARDNormal(),
    ],
    ids=lambda p: type(p).__name__,
)
def test_every_prior(prior):
    before = {name: value.clone() for name, value in prior.named_buffers()}
    found = quick(small(3, prior=prior), restarts=2, n_factors_init=[3, 3], steps=60)
    assert np.isfinite(found.elbo).all() and np.isfinite(found.predict(DATA)).all()
    scored = isinstance(prior, ps.priors.SpikeSlabPrior)
    lasso = type(prior) is ps.priors.Laplace
    assert np.isfinite(found.edge_score).all() == (scored or lasso) and np.isfinite(found.eta).all() == scored
    if lasso:
        np.testing.assert_array_equal(found.edge_score, found.weights != 0)
        assert found.edge_posterior(num_draws=5).attrs["is_score"] and len(found.summary())
    after = dict(found.model.prior.named_buffers())
    moved = [
        n
        for n, v in after.items()
        if n not in before or v.shape != before[n].shape or not torch.equal(v, before[n])
    ]
    if type(prior) is not ps.priors.RegularisedHorseshoe:
        assert set(moved) & {"eta", "rate", "tau", "precision"}, moved
        learned = next(after[n] for n in ("eta", "rate", "tau", "precision") if n in after)
        assert learned.unique().numel() > 1  # updated, each restart its own


@pytest.mark.parametrize("make", [VAE, VSC])
@pytest.mark.parametrize("missing", [False, True])
def test_models_without_weights_give_a_fit(make, missing, tmp_path):
    x = DATA.copy()
    if missing:
        x[::7, 2] = np.nan
    found = quick(make(7, 2, hidden=5, encoder_hidden=4), x)
    assert np.isnan(found.edge_score).all() and (found.weights != 0).any() and found.effects.max() <= 1
    assert np.isfinite(found.predict(x)).all() and found.sample(3).shape == (3, 7)
    found.save(tmp_path / "fit.pt")
    same(found, ps.load(tmp_path / "fit.pt"))


# ---- constraints


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("decoder", ["mlp", "linear"])
def test_constraints_hold_in_the_result_by_the_callers_numbers(by_name, decoder):
    names = [f"q{j}" for j in range(7)]

    def name(j):
        return names[j] if by_name else j

    model = small(
        3,
        decoder=decoder,
        anchors={name(0): 2, name(3): 0},
        required=[(name(6), 1)],
        forbidden=[(name(1), 0), (name(4), 2)],
    )
    found = quick(model, pd.DataFrame(DATA, columns=names), restarts=2, n_factors_init=[3, 3], steps=40)
    for weights, score in zip(found.weights, found.edge_score, strict=True):
        for j, k in [(1, 0), (4, 2), (0, 0), (0, 1), (3, 1), (3, 2)]:
            assert weights[j, k] == 0 and score[j, k] == 0
        assert weights[0, 2] != 0 and weights[3, 0] != 0
    assert (found.model.weights[:, 6, 1] != 0).all() and (found.effects[:, 6, 1] >= 0).all()


def test_an_anchor_names_the_factor_that_moves_it():
    """Feature 3 is 4 z2: whatever order the start finds, its factor gets the number the caller gave."""
    for k in (0, 1):
        found = quick(small(2, decoder="linear", anchors={3: k}), steps=60, restarts=1, n_factors_init=[2])
        z = found.transform(DATA)
        truth = ps.datasets.sim1(n=120, seed=1).z[:, 1]
        assert abs(np.corrcoef(z[:, k], truth)[0, 1]) > 0.9


# ---- the known graph


@pytest.mark.slow
def test_the_papers_simulation():
    data = ps.datasets.sim1(1000, seed=1001)
    found = ps.fit(SparseDecoder(7, 5), data.x, seed=0, progress=False)
    edges = found.weights[found.best] != 0
    assert edges.any(0).sum() == 2
    best = edges[:, edges.any(0)].astype(int)
    assert (best == data.support).all() or (best[:, ::-1] == data.support).all()


@pytest.mark.parametrize(
    ("constraints", "none"),
    [
        ({"forbidden": [(j, k) for j in range(7) for k in range(2)]}, True),
        ({"anchors": {j: j % 2 for j in range(7)}}, False),  # told whole: the weights are what is asked for
        ({"anchors": {j: j % 2 for j in range(6)}}, False),
    ],
)
def test_constraints_that_leave_no_edge(constraints, none):
    notes = [note for note in quick(small(**constraints)).warnings if note.startswith("no edge was left")]
    assert len(notes) == none and all("every edge is forbidden" in note for note in notes)
