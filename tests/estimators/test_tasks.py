"""The scikit-learn fronts of tasks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import pyro_sparse as ps
from pyro_sparse.estimators.factors import seed_of
from pyro_sparse.inference.training.loop import Run
from tests._framed import Convertible
from tests._tasks import tasks_on_latents

X, Y, Z, W = tasks_on_latents()
ROWS, TARGETS, LABELS = X.reshape(-1, 5), Y.ravel(), np.repeat(np.arange(100), 30)


def regressor(**options):
    return ps.MultiTaskSparseRegressor(n_latents=3, steps=60, restarts=1, random_state=0, **options)


@pytest.fixture(scope="module")
def of_labels():
    """A fit of rows whose tasks have labels."""
    return regressor().fit(ROWS, TARGETS, task=LABELS)


def failures(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    return {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X. 1 task:RuntimeWarning")  # classes and counts as outcomes are said
def test_check_estimator():
    assert failures(ps.SparseTaskSVM()) == {}
    assert failures(ps.MultiTaskSparseRegressor(n_latents=1, steps=5, restarts=1, random_state=0)) == {}


@pytest.mark.slow
def test_ctrl_c_stops_a_cross_validation(monkeypatch):
    targets = ROWS[:60, :2] @ np.random.default_rng(0).normal(size=(2, 6))
    advance, steps = Run.advance, []

    def pressed(run):
        advance(run)
        steps.append(run.step)
        if len(steps) == 60:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "advance", pressed)
    model = ps.MultiTaskSparseRegressor(n_latents=2, steps=100, restarts=1, random_state=0)
    with pytest.raises(KeyboardInterrupt, match="interrupted at step 60 of 100 of restart 0; "):
        cross_val_score(model, ROWS[:60], targets, cv=2)
    assert len(steps) == 60


def test_tasks_by_label(of_labels):
    model = of_labels
    assert model.coef_.shape == (100, 3) and (model.coef_ == 0).mean() > 0.3
    found = model.predict(ROWS, task=LABELS)
    assert 1 - ((found - TARGETS) ** 2).sum() / ((TARGETS - TARGETS.mean()) ** 2).sum() > 0.95
    np.testing.assert_allclose(found, model.fit_.predict().ravel(), atol=1e-3)
    assert model.transform(ROWS).shape == (3000, 3)
    assert clone(model).get_params()["n_latents"] == 3
    with pytest.raises(ValueError, match="task: want one of"):
        model.predict(ROWS)
    with pytest.raises(ValueError, match="task: want one of"):
        model.predict(ROWS[:2], task=[0, 999])


@pytest.mark.slow
def test_names_of_tasks_and_features_reach_the_fit():
    order = np.random.default_rng(0).permutation(600)
    table = pd.DataFrame(ROWS[order], columns=list("abcde"))
    label = np.where(LABELS[order] % 2, "m", "w")
    quick = {"steps": 5, "restarts": 1, "random_state": 0}
    model = ps.MultiTaskSparseRegressor(2, **quick).fit(table, TARGETS[order], task=label)
    assert model.tasks_.tolist() == model.fit_.task_names == ["m", "w"]
    assert set(model.fit_.summary()["task"]) == {"m", "w"}
    assert model.fit_.tasks.feature_names == list("abcde")
    np.testing.assert_allclose(model.predict(table, label), model.fit_.predict(table, label), rtol=1e-5)
    many = np.char.add("site ", (LABELS[order] % 3 * 5).astype(str))  # 0, 5 and 10
    sorted_ = ps.MultiTaskSparseRegressor(2, **quick).fit(table, TARGETS[order], task=many)
    assert sorted_.tasks_.tolist() == sorted_.fit_.task_names == ["site 0", "site 5", "site 10"]
    np.testing.assert_allclose(sorted_.predict(table, many), sorted_.fit_.predict(table, many), rtol=1e-5)
    sizes = pd.Series(pd.Categorical(np.where(many == "site 5", "low", "high"), ["low", "high"]))
    assert ps.MultiTaskSparseRegressor(2, **quick).fit(table, TARGETS[order], task=sizes).tasks_[0] == "low"
    targets = pd.DataFrame(ROWS[order, :3], table.index, ["height", "weight", 3])
    named = ps.MultiTaskSparseRegressor(2, **quick).fit(table, targets).set_output(transform="pandas")
    assert named.tasks_.tolist() == ["height", "weight", 3] and named.predict(table).shape == (600, 3)
    assert named.fit_.task_names == ["height", "weight", "3"]
    assert list(named.transform(table).columns) == ["multitasksparseregressor0", "multitasksparseregressor1"]
    with pytest.raises(ValueError, match="y: has the rows of X in another order"):
        named.fit(table, targets[::-1])
    by_column = ps.MultiTaskSparseRegressor(2, **quick).fit(table, ROWS[order, :3])
    assert by_column.fit_.tasks.feature_names == list("abcde")
    with pytest.raises(ValueError, match=r"feature 'c' is constant; drop it, or ps.fit\("):
        ps.MultiTaskSparseRegressor(2, **quick).fit(table.assign(c=1.0), TARGETS[order], task=label)


@pytest.mark.slow
def test_weights_of_tasks_go_by_the_estimators_names():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)), rng.normal(size=(40, 3))
    quick = {"steps": 20, "restarts": 1, "random_state": 0}
    fits = [
        ps.MultiTaskSparseRegressor(2, **quick).fit(x, y, task_weight=weight)
        for weight in ([1, 2, 3], {2: 6, 0: 2, 1: 4})
    ]
    for model in fits:
        np.testing.assert_allclose(model.fit_.tasks.weight, [0.5, 1.0, 1.5])
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    with pytest.raises(ValueError, match="task_weight: got '3', which names no task"):
        ps.MultiTaskSparseRegressor(2, **quick).fit(x, y, task_weight={0: 1, 1: 1, 3: 1})


def test_scores_of_labelled_tasks(of_labels):
    model = of_labels
    want = r2_score(TARGETS, model.predict(ROWS, task=LABELS))
    assert model.score(ROWS, TARGETS, task=LABELS) == want
    weight = np.arange(len(ROWS))
    assert model.score(ROWS, TARGETS, weight, LABELS) != want
    x, y = load_iris(return_X_y=True)
    svm, task = ps.SparseTaskSVM(), np.arange(len(x)) % 2
    svm.fit(x, y, task=task)
    assert svm.score(x, y, task=task) == (svm.predict(x, task) == y).mean()
    named = ps.SparseTaskSVM().fit(x, y, task=[f"site {10 - 8 * t}" for t in task])
    assert named.tasks_.tolist() == ["site 2", "site 10"]
    np.testing.assert_array_equal(named.coef_, svm.coef_[::-1])
    np.testing.assert_array_equal(
        named.predict(x, [f"site {10 - 8 * t}" for t in task]), svm.predict(x, task)
    )
    for estimator, rows, values in ((model, ROWS, TARGETS), (svm, x, y)):
        with pytest.raises(ValueError, match="task: want one of"):
            estimator.score(rows, values)


@pytest.mark.parametrize("missing", [None, np.nan])
@pytest.mark.parametrize("label", [["m", "w"], [1.0, 2.0]])
def test_a_row_without_a_task_is_refused(missing, label):
    task = [*np.repeat(label, 10).tolist(), missing]
    for estimator in (regressor(), ps.SparseTaskSVM()):
        for given in (task, pd.Series(task)):
            with pytest.raises(ValueError, match="task: row 20 has no task; drop it or name its task"):
                estimator.fit(ROWS[:21], np.arange(21) % 2, task=given)


def test_tasks_by_column_and_missing_targets():
    rng = np.random.default_rng(0)
    y = ROWS[:200] @ rng.normal(size=(5, 3)) @ (W[:8].T)
    holes = np.where(rng.random(y.shape) < 0.2, np.nan, y)
    model = regressor(inner="lasso").fit(ROWS[:200], holes)
    found = model.predict(ROWS[:200])
    assert found.shape == y.shape and model.tasks_.tolist() == list(range(8))
    assert 1 - ((found - y) ** 2).sum() / ((y - y.mean(0)) ** 2).sum() > 0.95
    parts = [r2_score(t[~np.isnan(t)], p[~np.isnan(t)]) for t, p in zip(holes.T, found.T, strict=True)]
    np.testing.assert_allclose(model.score(ROWS[:200], holes), np.mean(parts))
    blank = np.where(np.arange(8) == 2, np.nan, holes)
    np.testing.assert_allclose(model.score(ROWS[:200], blank), np.mean(np.delete(parts, 2)))
    for bad in (y[:, :3], y.T, np.full_like(y, np.nan)):
        with pytest.raises(ValueError, match=r"y: got shape .* the predictions have \(200, 8\)"):
            model.score(ROWS[:200], bad)
    with pytest.raises(ValueError, match="columns of y, not labels"):
        model.predict(ROWS[:2], task=[0, 1])
    with pytest.raises(ValueError, match=r"task: got shape \(3,\)"):
        regressor().fit(ROWS, TARGETS, task=[1, 2, 3])


@pytest.mark.slow
def test_svm_uses_few_features_and_still_classifies():
    x, y = load_wine(return_X_y=True)
    few, all_ = ps.SparseTaskSVM(sparsity=0.5), ps.SparseTaskSVM(sparsity=0.0)
    few.fit(x, y), all_.fit(x, y)
    assert few.active_.sum() < all_.active_.sum() == 13 and (few.gap_ <= 1e-6).all()
    assert not few.coef_[:, ~few.active_].any()
    assert cross_val_score(few, x, y, cv=3).mean() > 0.9


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan")])
def test_svm_wants_a_share_below_one(share):
    with pytest.raises(ValueError, match=r"sparsity: got .*, wanted a share in \[0, 1\)"):
        ps.SparseTaskSVM(sparsity=share).fit(*load_wine(return_X_y=True))


@pytest.mark.slow
def test_svm_of_each_task():
    x, y = load_iris(return_X_y=True)
    task = np.arange(len(x)) % 2
    x = (x - x.mean(0)) / x.std(0)
    model = ps.SparseTaskSVM(standardise=False).fit(x, y, task=task)
    assert model.coef_.shape == (2, 3, 4)
    one = ps.SparseTaskSVM(standardise=False).fit(x[task == 1], y[task == 1])
    np.testing.assert_allclose(model.coef_[1], one.coef_, atol=1e-8)
    np.testing.assert_array_equal(model.predict(x, task)[task == 1], one.predict(x[task == 1]))
    two = ps.SparseTaskSVM().fit(x[:100], y[:100])
    assert two.decision_function(x[:100]).shape == (100,) and two.score(x[:100], y[:100]) == 1
    with pytest.raises(ValueError, match="task: want one of"):
        model.predict(x)
    with pytest.raises(ValueError, match="one class"):
        ps.SparseTaskSVM().fit(x[:50], y[:50])


def test_a_task_wants_a_label_for_every_row():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"task: got shape \(3,\), want one label for each of 150 rows"):
        ps.SparseTaskSVM().fit(x, y, task=[0, 1, 2])


def test_all_columns_at_once_are_the_tasks_one_by_one():
    model = regressor().fit(ROWS[:300], ROWS[:300] @ np.random.default_rng(0).normal(size=(5, 4)))
    one = model.fit_.predict(ROWS[:9], np.repeat(model.fit_.task_names[2], 9))
    np.testing.assert_allclose(model.predict(ROWS[:9])[:, 2], one, rtol=1e-5)


class Table(Convertible):
    """One that scikit-learn can read too."""

    def __array__(self, dtype=None, copy=None):
        return self.frame.to_numpy(dtype)


def test_names_of_a_table_of_another_library_reach_the_fit():
    table = Table(pd.DataFrame(ROWS[:60], columns=list("abcde")))
    model = ps.MultiTaskSparseRegressor(2, steps=5, restarts=1, random_state=0).fit(table, ROWS[:60, :3])
    assert model.fit_.tasks.feature_names == list("abcde")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_same_as_the_plain_call(dtype):
    settings = {"steps": 20, "restarts": 1}
    found = ps.MultiTaskSparseRegressor(2, random_state=3, dtype=dtype, **settings).fit(ROWS, TARGETS, LABELS)
    table = pd.DataFrame(ROWS, columns=[f"x{j + 1}" for j in range(5)])
    model = ps.models.MultiTaskRegression(5, 2)
    plain = ps.fit(model, table, TARGETS, task=LABELS, seed=3, dtype=dtype, progress=False, **settings)
    np.testing.assert_array_equal(found.coef_, plain.weights[plain.best])
    assert found.fit_.model.turn.dtype == getattr(torch, dtype)
    assert ps.MultiTaskSparseRegressor().dtype == ps.SparseFactorModel().dtype == "float64"


def test_seeds_of_both_fronts_are_the_same():
    assert seed_of(5) == seed_of(np.int64(5)) == 5
    assert seed_of(np.random.RandomState(1)) == seed_of(np.random.RandomState(1)) != 1
    assert seed_of(None) != seed_of(None)
    with pytest.raises(ValueError, match="cannot be used to seed"):
        seed_of("x")


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="device: 'nowhere' is not there"):
        ps.MultiTaskSparseRegressor(2, steps=1, device="nowhere").fit(ROWS, TARGETS, LABELS)
