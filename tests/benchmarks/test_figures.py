"""The figures each benchmark makes, from fits whose answer is known."""

from __future__ import annotations

import inspect
import pkgutil
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import ablation, anchored60, baselines, bfi, sim1
from benchmarks._common import report_seeds, tuning_seeds


def test_items_correct_counts_at_the_best_matching():
    scales = np.repeat(["A", "C", "E"], 3)
    effects = np.kron(np.eye(3)[[2, 0, 1]], np.ones((3, 1)))
    assert bfi.items_correct(effects, scales) == 9
    effects[0] = [0.9, 0, 0.1]
    assert bfi.items_correct(effects, scales) == 8
    assert bfi.items_correct(np.zeros((9, 3)), scales) == 0
    assert bfi.items_correct(np.ones((9, 1)), scales) == 3


def test_hidden_cells_are_observed_seeded_and_leave_no_row_empty():
    x = np.random.default_rng(0).standard_normal((3000, 10))
    x[:, 0] = np.nan
    x[:5, 2:] = np.nan  # one answer each
    hidden = bfi.hide(x, seed=3)
    assert not hidden[np.isnan(x)].any() and not hidden[:5].any()
    assert hidden.mean() == pytest.approx(0.09, abs=0.005)
    np.testing.assert_array_equal(hidden, bfi.hide(x, seed=3))
    assert not np.array_equal(hidden, bfi.hide(x, seed=4))


def test_masked_error_is_in_standard_deviations_of_hidden_cells_only():
    x = np.random.default_rng(1).standard_normal((4000, 3)) * [1, 10, 100]
    by_mean = bfi.masked_mse(lambda seen: SimpleNamespace(predict=lambda y: np.zeros_like(y)), x, 0)
    assert by_mean == pytest.approx(1, abs=0.1)
    copied = bfi.masked_mse(
        lambda seen: SimpleNamespace(predict=lambda y: np.where(np.isnan(y), x, 1e9)), x, 0
    )
    assert copied == 0


def oracle(data, surplus=0, flip=()):
    """A fit that knows the truth, with empty surplus factors and chosen cells of the graph turned over."""
    import pandas as pd

    n, k = data.z.shape[0], data.z.shape[1] + surplus
    edges = np.pad(data.support, ((0, 0), (0, surplus)))[:, ::-1].copy()
    for cell in flip:
        edges[cell] = 1 - edges[cell]
    lookup = {row.tobytes(): i for i, row in enumerate(data.x)}
    clean = data.x

    class Fit:
        feature_names = data.feature_names
        factor_names = [f"factor {i + 1}" for i in range(k)]

        def transform(self, x, refine=True):
            self.rows = [lookup[row.tobytes()] for row in x]
            z = np.hstack([data.z, np.zeros((n, surplus))])[:, ::-1]
            return z[self.rows]

        def inverse_transform(self, z):
            return clean[self.rows]

        def edge_posterior(self, method, num_draws=1):
            feature, factor = np.nonzero(edges)
            return pd.DataFrame(
                {
                    "feature": [self.feature_names[j] for j in feature],
                    "factor": [self.factor_names[i] for i in factor],
                }
            )

    return Fit()


@pytest.fixture
def known(monkeypatch):
    """Let the oracle's edges pass for those `ps.summary` selects."""
    import pyro_sparse as ps

    monkeypatch.setattr(ps, "summary", lambda table, fdr, selected_only: table, raising=False)


def test_sim1_figures(known):
    from pyro_sparse.datasets import sim1 as generate

    data = generate(n=200, seed=0)
    right = sim1.score(oracle(data, surplus=3), data)
    assert right == {
        "mse": 0,
        "mcc": pytest.approx(1),
        "success": True,
        "exact": True,
        "f1": 1,
        "edges": 8,
        "active": 2,
    }
    wrong = sim1.score(oracle(data, surplus=3, flip=[(0, 0)]), data)
    assert not wrong["exact"] and wrong["active"] == 3 and wrong["success"]
    rows = [
        {"cell": c, "seed": s, "cpu_s": 1.0, **(right if s else wrong)} for c in sim1.CELLS for s in range(4)
    ]
    figures = sim1.collect(rows, None)["k5_rho0"]
    assert (figures["success"], figures["n"], figures["exact_support"], figures["active_two"]) == (4, 4, 3, 3)


def test_anchored_figures(known):
    from pyro_sparse.datasets import anchored60 as generate

    data = generate(n=60, n_test=200, seed=0)
    right = anchored60.score(oracle(data), data)
    assert right["mcc"] == pytest.approx(1) and right["f1"] == 1 and right["mse"] == 0
    assert all(value == 1 for key, value in right.items() if key.startswith("recall"))
    j = data.kind.index("sin")
    k = 5 - int(np.flatnonzero(data.support[j])[0])
    missed = anchored60.score(oracle(data, flip=[(j, k)]), data)
    edges = data.support[np.array(data.kind) == "sin"].sum()
    assert missed["recall_sin"] == pytest.approx(1 - 1 / edges) and missed["recall_tanh"] == 1
    rows = [{"size": "anchored60", "seed": s, "cpu_s": 1.0, **row} for s, row in enumerate([right, missed])]
    rows.append({"size": "g200_k10", "seed": 0, "cpu_s": 1.0, **right})
    result = anchored60.collect(rows, None)
    assert len(result["mcc"]) == len(result["f1"]) == 2 and result["g200_k10"]["f1"] == [1.0]
    assert result["passed"] == 2


def options(**values):
    return SimpleNamespace(
        **{"seeds": 2, "quick": False, "path": None, "variant": None, "scale": True, **values}
    )


@pytest.mark.parametrize("module", [sim1, anchored60, bfi, baselines])
def test_quoted_figures_use_report_seeds(module):
    assert {task["seed"] for task in module.tasks(options())} == set(report_seeds(2))


def test_ablation_uses_tuning_seeds_and_every_variant():
    tasks = ablation.tasks(options())
    assert {task["seed"] for task in tasks} == set(tuning_seeds(2))
    assert len(tasks) == 2 * len(ablation.VARIANTS) * len(ablation.CELLS)
    assert len(ablation.tasks(options(quick=True, seeds=1))) == 2


@pytest.mark.parametrize("variant", [name for name, own in ablation.VARIANTS.items() if "patch" in own])
def test_what_an_ablation_replaces_is_there_and_is_called_alike(variant):
    target, substitute = ablation.VARIANTS[variant]["patch"]
    replaced = pkgutil.resolve_name(f"pyro_sparse.inference.{target}")
    ours, theirs = (inspect.signature(f).parameters for f in (getattr(ablation, substitute), replaced))
    assert list(ours)[: len(theirs)] == list(theirs)[: len(ours)]


def test_ablation_and_baseline_tables_average_over_seeds():
    one = {"cell": "k5_rho0", "variant": "defaults", "mcc": 0.9, "f1": 1.0, "mse": 0.3, "cpu_s": 1.0}
    rows = [
        {**one, "seed": 0, "success": True, "exact": False},
        {**one, "seed": 1, "success": True, "exact": True},
    ]
    line = ablation.collect(rows, None)["k5_rho0"]["defaults"]
    assert (line["n"], line["success"], line["exact"], line["mcc"]) == (2, 1.0, 0.5, pytest.approx(0.9))
    rows = [
        {"data": "sim1", "method": "PCA", "seed": s, "path": None, "wall_s": 1, "mcc": m}
        for s, m in ((0, 0.4), (1, 0.6))
    ]
    assert baselines.collect(rows, None) == {"sim1": {"PCA": {"n": 2, "mcc": pytest.approx(0.5)}}}


@pytest.mark.slow
def test_classical_baseline_on_sim1():
    row = baselines.run("sim1", "PCA", 0, None)
    assert 0.3 < row["mcc"] < 1 and row["mcc"] <= row["r"] + 0.05 and np.isnan(row["f1"])
    assert np.isfinite(baselines.run("sim1", "NMF", 0, None)["mse"])
