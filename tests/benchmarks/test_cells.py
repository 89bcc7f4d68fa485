"""The cells and the abstracts: tasks, figures of halves, new rows of factors of counts, quick runs."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import abstracts, cells
from benchmarks._peers import METHODS
from benchmarks._real_tables import EqualDepth, fitted, normal_scores


def options(**given):
    usual = {"path": None, "quick": True, "methods": None, "seeds": 1, "first_seed": 0}
    return Namespace(**{**usual, "parts": cells.PARTS, "genes": [200], "documents": 10, **given})


def test_without_a_table_they_say_what_is_wanted():
    for benchmark in (cells, abstracts):
        with pytest.raises(SystemExit, match="--path"):
            benchmark.tasks(options(quick=False))


def test_halves_are_of_every_number_of_genes_and_methods_of_the_first():
    jobs = cells.tasks(options(genes=[20, 80], methods=["nmf"], first_seed=1000, seeds=2))
    methods = [(job["genes"], job["seed"]) for job in jobs if job["part"] == "methods"]
    halves = [(job["genes"], job["seed"], job["method"]) for job in jobs if job["part"] == "halves"]
    assert methods == [(20, 1000), (20, 1001)]
    assert len(halves) == 8 and halves[-1] == (80, 1001, "half 2")
    assert {job["part"] for job in cells.tasks(options(parts=["halves"]))} == {"halves"}


def half(probability, method, gap):
    return {
        "part": "halves",
        "genes": 20,
        "seed": 0,
        "method": method,
        "loading": [[1.0, 0], [1, 0], [0, 1]],
        "probability": probability,
        "present_edges": [[1, 0], [0, 0], [0, 0]],
        "factors": 2,
        "sure": 2,
        "open": 0,
        "present": 1,
        "mean_gap": gap,
        "cpu_method": 3.0,
    }


def test_halves_by_hand():
    a, b = [[0.99, 0], [0.97, 0], [0, 0.5]], [[0.9, 0], [0.5, 0], [0, 0.5]]
    found = cells.collect([half(a, "half 1", 0.01), half(b, "half 2", 0.03)], options())["halves"]["20"]
    # Of the first half's two sure edges the second has one at .85; it is sure of none.
    assert found["edge_agreement"] == [0.5] and found["edge_agreement_present"] == [1.0]
    assert found["mean_gap"] == [pytest.approx(0.02)] and found["cpu"] == [6.0]
    expected = np.corrcoef(np.ravel([a, b]), np.ravel([b, a]))[0, 1]  # either half is the first one once
    assert found["correlation"] == [pytest.approx(expected)]


def test_counts_come_back_from_logarithms_at_equal_depth():
    counts = np.random.default_rng(0).poisson(3.0, size=(20, 5)).astype(float)
    depth = EqualDepth.of(counts)
    logs = depth.logs(counts)
    np.testing.assert_allclose(np.expm1(logs).sum(1), np.median(counts.sum(1)))
    np.testing.assert_allclose(depth.counts(logs, counts), counts)
    np.testing.assert_allclose(depth.counts(logs, 2 * counts), 2 * counts)
    assert not depth.counts(np.full((1, 5), -1.0), counts[:1]).any()


def test_scores_of_new_rows_are_the_posterior_mean():
    rng = np.random.default_rng(1)
    w, precision = rng.normal(size=(8, 2)), rng.gamma(2.0, size=8)
    mean, cov = np.array([0.5, -1.0]), np.array([[1.0, 0.3], [0.3, 0.6]])
    x = rng.normal(size=(4, 8))
    seen = w @ cov @ w.T + np.diag(1 / precision)
    by_conditioning = mean + (x - w @ mean) @ np.linalg.solve(seen, w @ cov)
    np.testing.assert_allclose(normal_scores(x, w, precision, mean, cov), by_conditioning, atol=1e-4)


@pytest.mark.parametrize("method", ["nmf", "fa_varimax", "lda"])
def test_methods_of_logarithms_expect_counts(method):
    x, _, _ = cells.loaded(None, 24)
    answer = fitted(method, x, 3, cells.LIKELIHOOD, 0, True)
    expected = answer.predict(x)
    assert (expected >= 0).all()
    assert 0.75 < expected.sum() / x.sum() < 1.05  # turned back from logarithms: below the expectation
    # A row of twice the counts is of the same kind, and twice as many are expected.
    np.testing.assert_allclose(answer.predict(2 * x[:5]), 2 * expected[:5], rtol=0.2)


def test_a_method_without_factors_tells_labels_as_often_as_the_largest_is_there():
    row = cells.run("methods", 24, "average", 0, None, quick=True)
    assert 0.2 <= row["accuracy"] <= 0.5
    best = cells.run("methods", 24, "fa_varimax", 0, None, quick=True)
    assert best["accuracy"] > 0.9 and best["deviance"] < 0.8 * row["deviance"]


def test_totals_are_taken_for_depth_where_that_is_asked(monkeypatch):
    taken = []

    def recorded(method, x, n_factors, likelihood, seed, quick):
        taken.append((method, getattr(likelihood, "size_factors", likelihood)))
        return fitted("fa_varimax", x, n_factors, "poisson", seed, quick)

    monkeypatch.setattr(cells, "fitted", recorded)
    for method in ("ours_depth", "ours"):
        cells.run("methods", 24, method, 0, None, quick=True)
    assert taken == [("ours", True), ("ours", "negative_binomial")]


def test_abstracts_are_ranked_better_by_topics_than_by_frequency():
    rows = [abstracts.run(method, 0, None, 10, quick=True) for method in ("average", "lda")]
    assert rows[1]["recall5"] > rows[0]["recall5"]
    for loss in ("log_loss", "log_loss_reconstruction"):
        assert rows[1][loss] < rows[0][loss]


def test_abstracts_from_a_file(tmp_path):
    texts = ["deep nets learn deep nets", "graphs have edges and nets", "edges of graphs learn"] * 4
    file = tmp_path / "abstracts.csv"
    file.write_text("abstract_text\n" + "\n".join(texts) + "\n", encoding="utf-8")
    x, words = abstracts.loaded(str(file), 6)
    assert x.shape == (6, len(words)) and x.any(0).all() and "graphs" in words


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X. rows fall into 3 clusters:RuntimeWarning")  # cells of three types
@pytest.mark.parametrize("benchmark", [cells, abstracts])
def test_quick_run(benchmark):
    given = options()
    jobs = benchmark.tasks(given)
    rows = [{**job, **benchmark.run(**job)} for job in jobs]
    result = benchmark.collect(rows, given)
    methods = {
        job["method"] for job in jobs if job.get("part") != "halves"
    }  # mofapy2 among them if it is installed
    assert methods >= {"ours", "nmf"}
    for method in methods & {"ours", "nmf", "mofapy2"}:
        assert all(np.isfinite(result[method][name]).all() for name in benchmark.FIGURES)
    assert len(benchmark.table(rows)) == len(methods)
    assert ("cpu_over_mofapy2" in result) == ("mofapy2" in methods)


@pytest.mark.parametrize("benchmark", [cells, abstracts])
def test_without_mofapy2_the_others_run(benchmark, monkeypatch, capsys):
    monkeypatch.setitem(METHODS, "mofapy2", replace(METHODS["mofapy2"], module="no_such_package"))
    methods = {job["method"] for job in benchmark.tasks(options())}
    assert "ours" in methods and "mofapy2" not in methods
    assert "mofapy2 is not installed (pip install mofapy2)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="--methods mofapy2"):
        benchmark.tasks(options(methods=["mofapy2"]))
