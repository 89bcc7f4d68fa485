"""The benchmark of real tables: what is read, how factors and scales are matched, what is counted."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pandas as pd
import pytest

from benchmarks import _questionnaires, real
from benchmarks._questionnaires import Edges, factor_of_items, items_on_scale

pytestmark = pytest.mark.usefixtures("hurried_module")

SHORT = {"restarts": 1, "steps": 60, "sweeps": 40, "num_draws": 12}
SCALES = np.repeat(["A", "B", "C"], 3)


def options(data, **given):
    filled = {"seeds": 2, "quick": False, "first_seed": 1000, "tables": None, "methods": None, **given}
    return Namespace(data=str(data), **filled)


@pytest.fixture
def folder(tmp_path):
    """Holzinger's and Thurstone's tables made up: three factors, three tests each."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(150, 3)), 3, axis=1) + 0.6 * rng.normal(size=(150, 9))
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(1, 10)])
    frame.to_csv(tmp_path / "holzinger.csv", index=False)
    frame.corr().rename_axis("rownames").to_csv(tmp_path / "thurstone_correlations.csv")
    return tmp_path


def simple(order=(2, 0, 1)):
    """Loadings of nine items on three factors, one each."""
    return np.kron(np.eye(3)[list(order)], np.full((3, 1), 0.7))


def edges(loading, verdict="present"):
    """An answer that is sure of exactly the loadings that are not zero."""
    rng = np.random.default_rng(1)
    p = (loading != 0).astype(float)
    draws = loading + 0.01 * rng.normal(size=(4, 100, *loading.shape)) * p
    return Edges(
        p, np.full(p.shape, 0.1), np.abs(loading), np.full(p.shape, verdict), loading, loading, draws
    )


def test_items_are_counted_on_the_factor_of_their_scale():
    loading = simple()
    factor = factor_of_items(loading, SCALES)
    assert factor.tolist() == [2] * 3 + [0] * 3 + [1] * 3
    assert items_on_scale(loading, factor) == 9
    loading[0] = [0.9, 0, 0.2]
    assert items_on_scale(loading, factor_of_items(loading, SCALES)) == 8
    few = loading[:, :2]
    assert factor_of_items(few, SCALES)[:3].tolist() == [-1] * 3 and items_on_scale(few, factor) <= 6
    assert items_on_scale(np.zeros((9, 3)), factor_of_items(np.zeros((9, 3)), SCALES)) == 0


def test_of_matchings_with_as_many_items_the_larger_loadings_count():
    loading = np.array([[0.6, 0.0, 0.1], [0.6, 0.0, 0.4]])
    assert factor_of_items(loading, np.array(["A", "B"])).tolist() == [0, 2]


def test_figures_of_an_answer_that_is_known():
    loading = np.hstack([simple(), np.zeros((9, 2))])
    loading[8, 2] = 0.3
    found = real.figures(edges(loading), SCALES)
    rhat = found.pop("rhat")
    assert found == {
        "items": 9,
        "of": 9,
        "main_present": 9,
        "main_verdict": 9,
        "other_present": 1,
        "gap": pytest.approx(0.1),
        "kept": 4,
    }
    assert 0.99 < rhat < 1.1
    open_to = real.figures(edges(loading, "open"), SCALES)
    assert open_to["main_present"] == 9 and open_to["main_verdict"] == 0


def test_chains_apart_have_a_large_rhat_and_empty_factors_none():
    rng = np.random.default_rng(2)
    draws = rng.normal(size=(4, 200, 3, 2)) * [1, 0]
    assert real.largest_rhat(draws) < 1.05
    draws[2:, :, 1, 0] += 5
    assert real.largest_rhat(draws) > 1.5
    assert np.isnan(real.largest_rhat(np.zeros((4, 200, 3, 2))))


def test_rows_have_exactly_the_correlations_asked_for():
    wanted = np.array([[1, 0.8, 0.3], [0.8, 1, 0.4], [0.3, 0.4, 1]])
    x = real.rows_with(wanted, 213, seed=1000)
    np.testing.assert_allclose(np.corrcoef(x.T), wanted, atol=1e-12)
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(0), 1)
    assert not np.array_equal(x, real.rows_with(wanted, 213, seed=1001))


def test_tables_are_read_with_their_scales(folder):
    x, scales = real.read("thurstone", folder, 1000)
    same, _ = real.read("holzinger", folder, 1000)
    assert x.shape == (213, 9) and list(x.columns) == list(same.columns)
    np.testing.assert_allclose(x.corr(), same.corr(), atol=1e-9)
    assert scales.tolist() == ["verbal"] * 3 + ["fluency"] * 3 + ["reasoning"] * 3


@pytest.mark.skipif(not (real.DEFAULT / "bfi.csv").exists(), reason="../shared/data/bfi.csv is absent")
def test_bfi_is_read_with_its_scales():
    x, scales = real.read("bfi", real.DEFAULT, 1000)
    assert x.shape == (2800, 25) and int(x.isna().sum().sum()) == 508
    assert np.unique(scales, return_counts=True)[1].tolist() == [5] * 5


def test_jobs(folder, monkeypatch):
    monkeypatch.setattr(real, "find_spec", lambda name: None if name != "sklearn" else True)
    jobs = real.tasks(options(folder, tables=["holzinger", "thurstone"]))
    assert len(jobs) == 2 * 2 * 2 * 3 and {job["seed"] for job in jobs} == {1000, 1001}
    assert {job["method"] for job in jobs} == {"practical", "prior", "varimax"}
    if (real.DEFAULT / "bfi.csv").exists():
        both = real.tasks(options(real.DEFAULT, tables=["bfi", "holzinger"], methods=[real.ORDINAL]))
        assert {job["table"] for job in both} == {"bfi"} and len(both) == 4
    quick = real.tasks(options(folder, quick=True, seeds=1, methods=["practical"]))
    assert [(job["table"], job["k"]) for job in quick] == [("holzinger", "right"), ("holzinger", "double")]


def test_a_folder_without_the_files_is_named(folder):
    with pytest.raises(SystemExit, match=r"has no bfi\.csv; name the folder"):
        real.tasks(options(folder))


@pytest.mark.filterwarnings("ignore:X.*:RuntimeWarning", "ignore:edge_posterior.*:RuntimeWarning")
@pytest.mark.parametrize("edge", [*real.EDGES, real.ORDINAL])
def test_a_short_run_has_all_figures(folder, edge, hurried, monkeypatch):
    if edge == real.ORDINAL:
        x, scales = real.read("holzinger", folder, 0)
        levels = ((x - x.mean()) / x.std()).round().clip(-2, 2) + 3
        monkeypatch.setattr(real, "read", lambda *given: (levels, scales))
    row = real.run("holzinger", "right", edge, 1000, str(folder), SHORT)
    assert row["of"] == 9 and row["items"] == 9 and row["kept"] >= 2 and 1 <= row["factors"] <= 3
    assert 0 <= row["gap"] <= 1 and row["rhat"] > 0.9
    assert row["fit_cpu_s"] > 0 and row["chains_cpu_s"] > 0


def test_varimax_finds_what_is_plain(folder):
    row = real.run("thurstone", "right", "varimax", 1000, str(folder))
    assert row["items"] == row["of"] == 9 and row["peer_cpu_s"] >= 0
    assert real.run("thurstone", "double", "varimax", 1000, str(folder))["of"] == 9


@pytest.mark.parametrize(("n_items", "offered"), [(9, 6), (5, 4)])
def test_doubled_factors_are_fewer_than_features(monkeypatch, n_items, offered):
    seen = []

    def peer(x, n_factors, seed):
        seen.append(n_factors)
        return simple()[:n_items], 0.0

    table = pd.DataFrame(np.random.default_rng(0).normal(size=(20, n_items)))
    scales = np.repeat(["A", "B", "C"], [3, 3, 3] if n_items == 9 else [2, 2, 1])
    monkeypatch.setattr(real, "read", lambda *given: (table, scales))
    monkeypatch.setitem(real.PEERS, "varimax", ("sklearn", peer))
    real.run("holzinger", "double", "varimax", 1000, "")
    assert seen == [offered]


def test_the_worst_seed_and_median_seconds_are_quoted():
    one = {"table": "bfi", "k": "right", "method": "practical", "of": 25, "main_verdict": 20, "kept": 4}
    rows = [
        {
            **one,
            "seed": s,
            "items": i,
            "main_present": i,
            "other_present": o,
            "gap": g,
            "rhat": r,
            "factors": 5,
        }
        | {"chains_cpu_s": c, "fit_cpu_s": 1.0}
        for s, i, o, g, r, c in (
            (0, 25, 0, 0.1, None, 3.0),
            (1, 24, 2, 0.3, 1.2, 5.0),
            (2, 25, 1, 0.2, 1.1, 4.0),
        )
    ]
    rows.append({"table": "bfi", "k": "right", "method": "varimax", "seed": 0, "items": 23, "of": 25})
    found = real.collect(rows, options("."))["bfi"]
    cell = found["k_right"]
    assert (cell["items"], cell["other_present"], cell["gap"], cell["rhat"]) == (24, 2, 0.3, 1.2)
    assert cell["chains_cpu_s"] == 4.0 and cell["by_seed"]["items"] == [25, 24, 25]
    assert found["k_right_varimax"]["items"] == 23
    lines = real.table(rows)
    assert [line["cell"] for line in lines] == ["k_right", "k_right_varimax"] and lines[0]["n"] == 3


@pytest.mark.filterwarnings("ignore:edge_posterior.*:RuntimeWarning")
def test_arrays_of_an_edge_posterior_are_in_its_own_order(folder, hurried):
    import pyro_sparse as ps

    x, _ = real.read("holzinger", folder, 1000)
    answer = _questionnaires.edges_with_defaults(x[x.columns[::-1]], 3, 1000, "practical", SHORT)
    got = _questionnaires.edges_of(answer.idata)
    table = ps.summary(answer.idata).set_index(["feature", "factor"])
    for j, feature in enumerate(answer.fit.feature_names):
        for k, factor in enumerate(answer.fit.factor_names):
            line = table.loc[(feature, factor)]
            assert line["probability"] == got.probability[j, k] and line["verdict"] == got.verdict[j, k]
            assert (line["hdi90_lb"], line["hdi90_ub"]) == (got.lower[j, k], got.upper[j, k])
            assert line["weight"] == pytest.approx(got.draws[:, :, j, k].mean(), abs=1e-6)
