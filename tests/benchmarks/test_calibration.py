"""The calibration benchmark: that its truths come from the priors it names, what it counts, small runs."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks import _calibration_data as draw
from benchmarks import _calibration_decoders as decoders
from benchmarks import _calibration_methods as methods
from benchmarks import calibration

pytestmark = pytest.mark.usefixtures("hurried_module")

LAW = draw.RowLaw(features=4, samples=30, correlation=0.8, spike_rate=10.0, slab_rate=0.5, tasks=6)


def options(**given):
    return Namespace(**{"quick": False, "seeds": 2, "first_seed": 0, "setting": None, **given})


def test_every_method_of_a_setting_for_every_seed():
    jobs = calibration.tasks(options())
    for name, own in calibration.SETTINGS.items():
        seeds = {0} if isinstance(own, calibration.Ranked) else set(range(2 * own.batches))
        found = {(job["method"], job["seed"]) for job in jobs if job["setting"] == name}
        assert found == {(method, seed) for method in own.methods for seed in seeds}
    assert len({tuple(job.items()) for job in jobs}) == len(jobs)
    (a, *others) = calibration.tasks(options(seeds=1, first_seed=1000, setting=["rows_d6"], quick=True))
    assert [job["method"] for job in (a, *others)] == ["ep", "gibbs", "bootstrap", "map"]
    assert a == {"setting": "rows_d6", "method": "ep", "seed": 1000, "quick": True}


def test_slow_settings_have_more_and_smaller_jobs(monkeypatch):
    slow = replace(calibration.SETTINGS["rows_d6"], batch=5, batches=5)
    monkeypatch.setitem(calibration.SETTINGS, "slow", slow)
    jobs = calibration.tasks(options(seeds=calibration.SEEDS, setting=["slow"]))
    assert len(jobs) == 4 * 40 and max(job["seed"] for job in jobs) == 39
    assert len(calibration.tasks(options(seeds=1, setting=["slow"], quick=True))) == 4


def test_a_full_run_has_two_hundred_data_sets_of_every_setting_with_a_target():
    for own in calibration.SETTINGS.values():
        assert {own.default, own.score} <= set(own.methods) and own.default != own.score
        if isinstance(own, calibration.Ranked):
            assert own.batch >= 200
            continue
        if own.ece is not None:
            assert own.batch * own.batches * calibration.SEEDS >= 200
        assert own.brier_over_gold is None or own.gold is not None


def test_rows_are_drawn_from_their_prior():
    data = draw.rows(LAW, 500, np.random.default_rng(1000))
    x, y = data.given["features"], data.given["targets"]
    assert x.shape == (500, 6, 30, 4) and y.shape == (500, 6, 30) and data.edge.shape == (500, 6, 4)
    np.testing.assert_array_equal(x[:, 0], x[:, 5])
    r = np.corrcoef(x[:, 0].reshape(-1, 4).T)
    assert r[0, 1] == pytest.approx(0.8, abs=0.02) and r[0, 3] == pytest.approx(0.512, abs=0.03)
    # Edges of a column share a Beta(1, 2) rate: their count is beta-binomial.
    count = np.bincount(data.edge.sum(1).ravel(), minlength=7)
    want = stats.betabinom(6, 1, 2).pmf(np.arange(7)) * count.sum()
    assert stats.chisquare(count, want).pvalue > 0.001
    # Var y = E[w' S w] + E[noise]: two moments of a Laplace, and the mean of an inverse gamma.
    want = 4 * (1 / 3 * 2 / 0.5**2 + 2 / 3 * 2 / 10**2) + 2 / (3 - 1)
    assert y.var() == pytest.approx(want, rel=0.15)


def test_normal_rows_are_those_of_a_conjugate_prior():
    data = draw.normal_rows(replace(LAW, features=2, samples=8, tasks=1), 20_000, np.random.default_rng(1000))
    weight, edge = data.given["weight"], data.edge
    np.testing.assert_array_equal(weight != 0, edge)
    assert edge.mean() == pytest.approx(1 / 3, abs=0.01)
    assert edge.all(-1).mean() == pytest.approx(stats.betabinom(2, 1, 2).pmf(2), abs=0.01)  # one rate a task
    # Weight over noise's deviation: a weight is Student's t with 2 x 3 degrees, scale sqrt(2 / 3).
    assert stats.kstest(weight[edge], stats.t(6, scale=np.sqrt(2 / 3)).cdf).pvalue > 0.001
    assert not np.array_equal(data.given["features"][0, 0], data.given["features"][1, 0])


def test_a_transition_sees_its_parents_only():
    rng = np.random.default_rng(1000)
    nets = draw.Networks.draw(400, 3, 1, rng)
    assert nets.edge.mean() == pytest.approx(1 / 3, abs=0.03)
    assert nets.edge.mean((1, 2)).std() > 0.2  # a rate of each data set: sd of Beta(1, 2) .236
    assert (1 / nets.noise).mean() == pytest.approx(3 / 0.2, rel=0.1)
    quiet = replace(nets, noise=np.zeros_like(nets.noise))
    x = rng.normal(size=(400, 1, 4))
    moved = x.copy()
    moved[..., 2] += 1
    changed = (quiet.step(moved, rng) != quiet.step(x, rng))[:, 0]
    np.testing.assert_array_equal(changed, nets.edge[..., 2])
    one = quiet.step(x, rng)[7, 0, 1]
    hidden = np.tanh(nets.inner[7, 1] @ (x[7, 0] * nets.edge[7, 1]) + nets.inner_offset[7, 1])
    assert one == pytest.approx(nets.outer[7, 1] @ hidden + nets.offset[7, 1])


def test_latents_are_seen_with_one_error_each():
    exact, noisy = (draw.transitions(5, np.random.default_rng(1000), error=e) for e in (0.0, 0.3))
    assert exact.given["inputs"].shape == (5, 200, 6) and exact.given["targets"].shape == (5, 200, 5)
    np.testing.assert_array_equal(exact.edge, noisy.edge)
    for data in (exact, noisy):  # what a step leads to is what the next one comes from
        np.testing.assert_allclose(data.given["inputs"][:, 1:, :5], data.given["targets"][:, :-1])
    off = noisy.given["targets"] - exact.given["targets"]
    ratio = off.std(1) / exact.given["targets"].std(1)
    assert ratio.mean() == pytest.approx(0.3, abs=0.02)
    np.testing.assert_array_equal(noisy.given["inputs"][..., 5], exact.given["inputs"][..., 5])


@pytest.mark.parametrize("likelihood", ["linear", "normal", "poisson", "negative_binomial", "bernoulli"])
def test_anchors_are_pinned_and_not_asked_about(likelihood):
    rng = np.random.default_rng(1000)
    density = decoders.DecoderLaw(likelihood=likelihood, samples=20)
    data = draw.linear_decoder(40, rng) if likelihood == "linear" else decoders.curved(density, 40, rng)
    weight, anchors = data.given["weight"], data.given["anchors"]
    n, features, factors = data.edge.shape
    assert anchors == [(k, k) for k in range(factors)]
    for feature, factor in anchors:
        others = np.delete(np.arange(factors), factor)
        assert weight[:, feature, factor].all() and not weight[:, feature, others].any()
        assert data.edge[:, feature, factor].all() and not data.edge[:, feature, others].any()
    assert data.asked(data.edge).shape == (n, (features - factors) * factors)
    np.testing.assert_array_equal(data.asked(data.edge), data.edge[:, factors:].reshape(n, -1))
    there, absent = (np.abs(weight[:, factors:][data.edge[:, factors:] == e]).mean() for e in (True, False))
    rates = {20: (50.0, 1.0), 12: (10.0, 0.7)}[features]
    assert absent == pytest.approx(1 / rates[0], rel=0.15) and there == pytest.approx(1 / rates[1], rel=0.15)


def test_a_linear_decoder_has_the_covariance_it_says():
    data = draw.linear_decoder(60, np.random.default_rng(1000), samples=2000)
    x, weight = data.given["x"], data.given["weight"]
    low_rank = weight @ weight.swapaxes(1, 2)
    seen = x.swapaxes(1, 2) @ x / x.shape[1]
    off = ~np.eye(x.shape[2], dtype=bool)
    scale = np.sqrt(np.einsum("djj,dkk->djk", seen, seen))
    assert np.abs((seen - low_rank) / scale)[:, off].max() < 6 / np.sqrt(x.shape[1])
    noise = np.einsum("djj->dj", seen - low_rank)
    assert np.median(noise) == pytest.approx(stats.invgamma(3, scale=1).median(), rel=0.1)


def test_a_mistaken_law_is_what_the_fit_is_told_and_not_what_is_drawn():
    densities = calibration.MISTAKES
    right, wrong = densities["wrong_prior"].model(), densities["wrong_prior"].told.model()
    assert (right.prior.spike_rate, wrong.prior.spike_rate) == (10, 50)
    assert densities["wrong_anchor"].told.model().anchors == {0: 0, 1: 1, 2: 2, 3: 3, 4: 0}
    fit = decoders._fit(
        replace(densities["wrong_prior"], steps=2), np.random.default_rng(0).normal(size=(40, 20)), 0
    )
    assert fit.model.prior.spike_rate == 50
    heavy, normal = (
        draw.linear_decoder(2, np.random.default_rng(0), samples=4000, tails=tails) for tails in (3, np.inf)
    )
    left_over = [d.given["x"] - d.given["z"] @ d.given["weight"].swapaxes(1, 2) for d in (heavy, normal)]
    tails = [stats.kurtosis(e / e.std(1, keepdims=True), axis=None) for e in left_over]
    assert tails[0] > 3 and abs(tails[1]) < 0.1


def test_salient_truths_are_loadings_in_standard_units(monkeypatch):
    monkeypatch.setattr(decoders, "_fit", lambda density, x, seed: None)
    density = replace(calibration.LINEAR, samples=20_000)
    data = decoders.salient(density, 1, np.random.default_rng(1000))
    x, z = data.given["x"][0], data.given["z"][0]
    correlation = np.corrcoef(x.T, z.T)[:20, 20:]  # independent factors: loadings
    clear = np.abs(np.abs(correlation) - decoders.LOADING) > 0.02
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(data.edge[0][clear], (np.abs(correlation) >= decoders.LOADING)[clear])


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_curved_feature_without_edges_hardly_moves_with_the_factors(activation):
    density = decoders.DecoderLaw(activation=activation, samples=4000, spike_rate=1e6)
    data = decoders.curved(density, 1, np.random.default_rng(1000))
    z, x = data.given["z"][0], data.given["x"][0]
    r = np.corrcoef(np.c_[z, x].T)[:2, 2:].T
    assert np.abs(r[~data.edge[0]]).max() < 0.06
    assert np.abs(r[data.edge[0]]).max() > 0.3


@pytest.mark.slow(hurried=True)
def test_a_mode_is_a_mode():
    """Nearby weights, rates and noises do not have a higher log posterior; p* is that of the weights."""
    data = draw.rows(replace(LAW, tasks=3), 1, np.random.default_rng(1001))
    x, y = data.given["features"][0], data.given["targets"][0]
    found = methods.ssl_fit(x, y, LAW.slab_rate, LAW.spike_rate)
    weight, eta, noise = (part.numpy() for part in found)

    def log_posterior(w, e, v):
        slab, spike = stats.laplace(scale=1 / LAW.slab_rate), stats.laplace(scale=1 / LAW.spike_rate)
        left = y - (x @ w[..., None])[..., 0]
        return (
            stats.norm(0, np.sqrt(v)[:, None]).logpdf(left).sum()
            + np.log(e * slab.pdf(w) + (1 - e) * spike.pdf(w)).sum()
            + stats.beta(1, 2).logpdf(e).sum()
            + stats.invgamma(3, scale=2).logpdf(v).sum()
        )

    best = log_posterior(weight, eta, noise)
    rng = np.random.default_rng(0)
    for _ in range(300):
        w = weight + 1e-3 * rng.normal(size=weight.shape)
        e = np.clip(eta * np.exp(1e-3 * rng.normal(size=eta.shape)), 1e-6, 1 - 1e-6)
        v = noise * np.exp(1e-3 * rng.normal(size=noise.shape))
        assert log_posterior(w, e, v) < best + 1e-5
    slab, spike = (r / 2 * np.exp(-r * np.abs(weight)) for r in (LAW.slab_rate, LAW.spike_rate))
    np.testing.assert_allclose(
        methods.ssl_mode(x, y, LAW.slab_rate, LAW.spike_rate), eta * slab / (eta * slab + (1 - eta) * spike)
    )


def rows_of(setting="rows_d6", **probabilities):
    """Made-up rows of a setting, 60 data sets of 40 edges in two batches, truths drawn from p."""
    rng = np.random.default_rng(0)
    p = rng.random((60, 40)) ** 2
    truth = (rng.random(p.shape) < p).astype(int)
    own = calibration.SETTINGS[setting].methods
    return [
        {
            "setting": setting,
            "method": method,
            "seed": seed,
            "probability": probabilities.get(method, lambda p: p)(p[half]).tolist(),
            "truth": truth[half].tolist(),
            "seconds": 3.0,
            "warned": [],
        }
        for seed, half in enumerate((slice(30), slice(30, 60)))
        for method in own
    ]


def sure(p):
    return p**2 / (p**2 + (1 - p) ** 2)


def test_a_calibrated_method_meets_its_targets_and_a_score_fails():
    found = calibration.collect(rows_of(map=sure), Namespace())["rows_d6"]
    assert found["method"] == "ep" and found["n_data_sets"] == 60 and found["n_edges"] == 2400
    assert found["met"] == {"ece": True, "fdr": True, "brier_over_gold": True}
    assert found["passes"] and found["map_fails"]
    assert "too sure" in found["beside"]["map"]["verdict"]
    assert found["cpu_seconds"] == pytest.approx(0.1)
    p, truth = (np.concatenate([row[k] for row in rows_of()[::4]]) for k in ("probability", "truth"))
    assert found["brier"] == pytest.approx(((p - truth) ** 2).mean()) == found["brier_gold"]


def test_what_misses_its_targets_is_said():
    rows = rows_of(ep=sure)
    found = calibration.collect(rows, Namespace())["rows_d6"]
    assert not found["met"]["ece"] and not found["met"]["brier_over_gold"] and not found["passes"]
    assert not found["map_fails"]  # here the score is the calibrated one
    line, *others = calibration.table(rows)
    assert line["missed"].split()[0] == "ece" and [o["method"] for o in others] == [
        "gibbs",
        "bootstrap",
        "map",
    ]
    only = calibration.collect(rows_of("transitions"), Namespace())["transitions"]
    assert np.isnan(only["brier_gold"]) and set(only["met"]) == {"ece", "fdr", "brier"}
    assert only["met"]["ece"] and not only["met"]["brier"]


def test_a_small_run_of_rows():
    found = {m: calibration.run("rows_d5", m, 1000, quick=True) for m in ("ep", "gibbs", "bootstrap", "map")}
    p = {m: np.array(row["probability"]) for m, row in found.items()}
    assert p["ep"].shape == (4, 50) and found["ep"]["truth"] == found["map"]["truth"]
    assert np.abs(p["ep"] - p["gibbs"]).mean() < 0.02 < np.abs(p["map"] - p["gibbs"]).mean()
    assert np.abs(p["bootstrap"] - p["gibbs"]).mean() < 0.8 * np.abs(p["map"] - p["gibbs"]).mean()
    again = calibration.run("rows_d5", "map", 1001, quick=True)
    assert again["truth"] != found["map"]["truth"]


@pytest.mark.slow(hurried=True)
def test_exact_draws_stay_within_their_band_and_those_of_another_prior_do_not(monkeypatch):
    own = replace(calibration.SETTINGS["sbc_enumerate"], batch=100)
    row = calibration.ranked(own, 1000, False)
    assert np.shape(row["ranks"]) == (len(row["statistics"]), 100)
    assert {"weight size", "left over"} <= set(row["statistics"])
    assert all(row["inside"])
    monkeypatch.setattr(methods, "ETA_PRIOR", (2.0, 1.0))
    assert not all(calibration.ranked(own, 1000, False)["inside"])


def test_ranks_pass_or_name_what_is_outside():
    rng = np.random.default_rng(0)
    p = rng.random((30, 24)) ** 2
    truth = (rng.random(p.shape) < p).astype(int).tolist()
    score = {"method": "map", "probability": sure(p).round().tolist(), "truth": truth, "seconds": 1.0}
    draws = {"method": "draws", "statistics": ["edges", "weights"], "ranks": [[1] * 30] * 2, "seconds": 60.0}
    rows = [
        {"setting": "sbc_rows", "seed": 0, "warned": [], **row}
        for row in ({**draws, "inside": [True, False], "p": [0.5, 0.001]}, score)
    ]
    found = calibration.collect(rows, Namespace())["sbc_rows"]
    assert not found["passes"] and found["verdict"] == "outside: weights" and found["met"] == {"band": False}
    assert found["map_fails"] and found["cpu_seconds"] == 2.0 and found["n_data_sets"] == 30
    first, second = calibration.table(rows)
    assert first["missed"] == "band" and np.isnan(first["brier"]) and second["brier"] > 0
    rows[0]["inside"] = [True, True]
    assert calibration.collect(rows, Namespace())["sbc_rows"]["met"] == {"band": True}


def test_gibbs_draws_are_joint_draws_of_its_own_law():
    data = draw.rows(calibration.HARD_ROWS, 1, np.random.default_rng(1000))
    drawn = methods.gibbs_draws(data, np.random.default_rng(0))
    assert drawn["edge"].shape == drawn["weight"].shape == (methods.RANKED_DRAWS, 10, 6)
    assert np.abs(drawn["edge"].mean(0) - methods.ep(data, True, 0)[0]).mean() < 0.06


def test_a_small_run_of_transitions(monkeypatch):
    own = replace(calibration.SETTINGS["transitions"], quick_batch=2)
    monkeypatch.setitem(calibration.SETTINGS, "two transitions", own)
    brier = {}
    for method in ("parents", "linear_map"):
        row = calibration.run("two transitions", method, 1000, quick=True)
        p, truth = np.array(row["probability"]), np.array(row["truth"])
        assert p.shape == (2, 30) and row["warned"] == []
        brier[method] = ((p - truth) ** 2).mean()
    assert brier["parents"] < min(brier["linear_map"], truth.mean() * (1 - truth.mean()) / 2)


def test_what_a_fit_says_is_put_in_the_order_of_the_true_latents():
    time = np.arange(9.0).reshape(3, 3) / 10
    action = np.arange(3.0).reshape(3, 1) / 10

    class Numbers(dict):
        def __getitem__(self, key):
            return Namespace(to_numpy=lambda: {"probability_time": time, "probability_action": action}[key])

    fit = Namespace(edge_posterior=lambda **given: {"edge_posterior": Numbers()})
    order = np.array([2, 0, 1])  # the found latent of each true one
    data = draw.Data(np.zeros((1, 3, 4), dtype=bool), {"fits": [fit], "orders": [order]})
    found = methods.fit_parents(data, True, 0)[0]
    assert found[0].tolist() == [time[2, 2], time[2, 0], time[2, 1], action[2, 0]]


@pytest.mark.slow
def test_edges_of_a_fit():
    row = calibration.run("transitions_fit", "parents", 1000, quick=True)
    assert np.shape(row["probability"]) == (1, 30)
