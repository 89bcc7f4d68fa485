"""The benchmark beside other packages: its truth, its scores, what it says of packages that are missing."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import _peers, peers
from benchmarks._peers import METHODS, Found, Method, Table, available


def options(**given):
    return Namespace(
        **{"quick": False, "seeds": 2, "first_seed": 1000, "methods": None, "data": None, **given}
    )


def test_linear_tables_have_the_noise_and_the_edges_they_say(monkeypatch):
    monkeypatch.setitem(peers.SIZES, "linear", (20_000, 12, 3))
    table, z, edge = peers.simulated("linear", 1000)
    assert not table.counts and table.x.shape == (20_000, 12)
    assert table.x.mean(0) == pytest.approx(np.zeros(12), abs=1e-9)
    assert table.x.std(0) == pytest.approx(np.ones(12))
    assert np.corrcoef(z.T) == pytest.approx(np.eye(3), abs=0.03)
    found, left_over, *_ = np.linalg.lstsq(z, table.x, rcond=None)
    assert np.array_equal(np.abs(found.T) > 0.05, edge)
    noise = (left_over / len(z))[edge.any(1)]
    assert ((noise > 0.3) & (noise < 0.53)).all()


def test_counts_are_negative_binomial_with_log_linear_rates(monkeypatch):
    from sklearn.linear_model import PoissonRegressor

    monkeypatch.setitem(peers.SIZES, "counts", (5000, 8, 2))
    monkeypatch.setattr(peers, "SHARE", 0.5)
    table, z, edge = peers.simulated("counts", 1000)
    assert table.counts and (table.x >= 0).all() and (table.x % 1 == 0).all()
    assert 0 < edge.sum() < edge.size
    for x, own in zip(table.x.T, edge, strict=True):
        fit = PoissonRegressor(alpha=0).fit(z, x)
        assert np.array_equal(np.abs(fit.coef_) > 0.15, own)
        mean = fit.predict(z)
        assert np.mean(((x - mean) ** 2 - mean) / mean**2) == pytest.approx(1 / 5, abs=0.06)
    assert table.gaussian.std(0) == pytest.approx(np.ones(8))


def test_curved_tables_are_those_of_the_package():
    from pyro_sparse.datasets import anchored

    table, z, edge = peers.simulated("curved", 1000)
    known = anchored(300, 30, 4, seed=1000)
    assert np.array_equal(edge, known.support == 1) and np.array_equal(z, known.z)
    assert table.x == pytest.approx((known.x - known.x.mean(0)) / known.x.std(0))


def test_a_gene_without_a_count_gets_one():
    assert peers._not_constant(np.zeros((3, 2))).sum() == 2


def test_the_truth_scores_one_whatever_its_order_signs_and_scale():
    _, z, edge = peers.simulated("linear", 1000, quick=True)
    turn = [1, 0]
    factors, said = (z * [-1, 3])[:, turn], edge[:, turn].astype(float)
    row = peers.score(Found(factors, -2 * said, 1.0, 0.5, said), z, edge)
    assert [row[name] for name in peers.FIGURES] == pytest.approx([1, 1, 1, 1])
    (line,) = peers.table([{"data": "linear", "method": "fake", **row}])
    assert line["brier"] == line["ece"] == line["ece_null"] == line["fdr10"] == 0
    assert line["power"] == 1 and line["cpu_seconds"] == 1.5 and line["edge_seconds"] == 0.5


def test_noise_scores_as_chance_does():
    rng = np.random.default_rng(0)
    z, edge = rng.normal(size=(2000, 4)), rng.random((500, 4)) < 0.25
    found = Found(rng.normal(size=z.shape), rng.normal(size=edge.shape), 0.0, 0.0, rng.random(edge.shape))
    row = peers.score(found, z, edge)
    assert row["mcc"] < 0.1
    assert row["average_precision"] == pytest.approx(edge.mean(), abs=0.05)
    assert row["average_precision_p"] == pytest.approx(edge.mean(), abs=0.05)
    assert row["f1_best"] == pytest.approx(2 * edge.mean() / (1 + edge.mean()), abs=0.05)  # all edges
    (line,) = peers.table([{"data": "linear", "method": "fake", **row}])
    assert line["brier"] == pytest.approx(1 / 3, abs=0.03)  # mean of (U - Bernoulli(1/4))^2
    assert line["ece"] > 0.2


def test_a_factor_that_is_not_found_has_no_edges():
    _, z, edge = peers.simulated("linear", 1000, quick=True)
    row = peers.score(Found(z[:, :1], edge[:, :1].astype(float), 0.0), z, edge)
    assert row["mcc"] == pytest.approx(0.5)
    assert row["probability"] is None and np.isnan(row["average_precision_p"])
    assert row["average_precision"] < 1


def test_rows_without_probabilities_have_no_calibration():
    row = {"data": "linear", "method": "fake", "package": "fake", "version": "1"}
    row |= dict.fromkeys(("mcc", "average_precision", "f1_best", "fit_seconds", "edge_seconds"), 0.5)
    # As a record gives it back: null for what is not a number.
    rows = [row | {"probability": None, "average_precision_p": None}] * 2
    found = peers.collect(rows, options())
    assert found["peers"] == {"fake": "1"}
    own = found["linear"]["fake"]
    assert own["n"] == 2 and own["mcc"] == 0.5 and own["cpu_seconds"] == 1
    assert all(np.isnan(own[name]) for name in (*peers.SURE, "average_precision_p"))


def test_jobs(monkeypatch):
    monkeypatch.setattr(Method, "installed", property(lambda own: True))
    jobs = peers.tasks(options())
    assert {job["seed"] for job in jobs} == {1000, 1001}
    of = {data: {job["method"] for job in jobs if job["data"] == data} for data in peers.DATA}
    assert of["counts"] == set(METHODS)
    assert of["linear"] == of["curved"] == {name for name, own in METHODS.items() if not own.needs_counts}
    quick = peers.tasks(options(quick=True, methods=["fa"]))
    assert [job["data"] for job in quick] == ["linear", "linear"]


def test_a_missing_package_is_left_out_with_a_word_and_is_an_error_if_asked_for(monkeypatch, capsys):
    monkeypatch.setitem(METHODS, "muvi", replace(METHODS["muvi"], module="no_such_package"))
    assert "muvi" not in available(None, METHODS)
    said = capsys.readouterr().err
    assert "muvi is not installed (pip install muvi)" in said and len(said.splitlines()) == 1
    with pytest.raises(SystemExit, match=r"--methods muvi: muvi is not installed \(pip install muvi\)"):
        available(["fa", "muvi"], METHODS)
    assert available(["fa"], METHODS) == ["fa"]
    assert replace(METHODS["fa"], package="no-such-package").version == "source tree"


def test_loadings_are_for_unit_factors_and_features():
    factors = np.array([[-2.0, 0.5], [2.0, -0.5]])
    weight = np.ones((3, 2))
    assert _peers.standardised(weight, factors, np.array([1.0, 2.0, 4.0])) == pytest.approx(
        np.array([[2, 0.5], [1, 0.25], [0.5, 0.125]])
    )
    assert Table(np.eye(3), 1).gaussian is not None


def test_scikit_learn_and_ours_end_to_end(monkeypatch):
    monkeypatch.setattr(peers, "QUICK_SIZE", (60, 8, 2))
    monkeypatch.setattr(_peers, "QUICK_FIT", {"restarts": 1, "steps": 60})
    monkeypatch.setattr(_peers, "QUICK_SWEEPS", 20)
    rows = []
    for data, method in [
        ("linear", "fa"),
        ("linear", "fa_varimax"),
        ("linear", "ours_linear"),
        ("counts", "fa"),
    ]:
        row = peers.run(data, method, 1000, quick=True)
        rows.append({"data": data, "method": method, **row})
    assert rows[1]["mcc"] > 0.6
    assert rows[0]["mcc"] == pytest.approx(rows[1]["mcc"], abs=0.5)
    sure = np.array(rows[2]["probability"])
    assert sure.shape == (8, 2) and (sure >= 0).all() and (sure <= 1).all() and rows[2]["edge_seconds"] > 0
    found = peers.collect(rows, options())
    assert set(found) == {"linear", "counts", "peers"} and np.isnan(found["counts"]["fa"]["brier"])
    assert found["linear"]["ours_linear"]["brier"] < 0.5
