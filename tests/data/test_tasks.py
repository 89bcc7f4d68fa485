"""Tasks as callers have them, brought to model units: every form says the same, and the way back is exact."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse.data.columns import in_order
from pyro_sparse.data.tasks import as_tasks
from tests._framed import Convertible

RNG = np.random.default_rng(0)
T, N, G = 3, 5, 2
X = RNG.normal(size=(T, N, G)) * [3.0, 0.5] + [1e3, -2.0]
Y = RNG.normal(size=(T, N)) * [[1.0], [20.0], [0.1]] + [[0.0], [100.0], [-3.0]]
LABELS = np.repeat(["a", "b", "c"], N)


def same(one, other, names=True):
    for field in ("x", "y", "mask", "centre", "scale", "target_centre", "target_scale", "lengths"):
        a, b = getattr(one, field), getattr(other, field)
        assert (a is None) == (b is None), field
        if a is not None:
            np.testing.assert_allclose(a, b, err_msg=field)
    if names:
        assert one.task_names == other.task_names
        assert one.feature_names == other.feature_names


def test_units_by_hand():
    tasks = as_tasks(X, Y)
    flat = X.reshape(-1, G)
    np.testing.assert_allclose(tasks.centre, flat.mean(0))
    np.testing.assert_allclose(tasks.scale, flat.std(0))
    np.testing.assert_allclose(tasks.target_centre, Y.mean(1))
    np.testing.assert_allclose(tasks.target_scale, Y.std(1))
    np.testing.assert_allclose(tasks.y * tasks.target_scale[:, None] + tasks.target_centre[:, None], Y)
    assert tasks.mask is None
    assert tasks.shape == (G,)
    assert len(tasks) == T
    assert tasks.task_names == ["task 1", "task 2", "task 3"]
    assert tasks.feature_names == ["x1", "x2"]
    batch = tasks.batch(dtype=torch.float64)
    np.testing.assert_allclose(batch.inputs.reshape(-1, G), (flat - flat.mean(0)) / flat.std(0))
    assert batch.total == len(batch) == T


def test_single_precision_keeps_what_is_far_from_zero():
    """Years in seconds: standardised first, rounded after."""
    x = X + 1e9
    got = as_tasks(x, Y).batch(dtype=torch.float32).inputs
    want = (x - x.mean((0, 1))) / x.std((0, 1))
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    "form",
    [
        lambda: as_tasks(list(X), list(Y)),
        lambda: as_tasks(tuple(X.tolist()), Y.tolist()),
        lambda: as_tasks(torch.as_tensor(X), torch.as_tensor(Y)),
        lambda: as_tasks(X.reshape(-1, G), Y.ravel(), np.repeat([1, 2, 3], N)),
        lambda: as_tasks(X.reshape(-1, G).tolist(), Y.ravel().tolist(), LABELS.tolist()),
        lambda: as_tasks(X.reshape(-1, G), pd.Series(Y.ravel()), pd.Categorical(LABELS)),
        lambda: as_tasks([pd.DataFrame(x, columns=["u", "v"]) for x in X], list(Y)),
        lambda: as_tasks(pd.DataFrame(X.reshape(-1, G)), Y.ravel(), LABELS),
    ],
    ids=["lists", "nested lists", "tensors", "labels", "label lists", "series", "tables", "table"],
)
def test_every_form_says_the_same(form):
    same(form(), as_tasks(X, Y), names=False)


def test_a_table_with_named_columns():
    table = pd.DataFrame(
        {"dose": X[..., 0].ravel(), "age": X[..., 1].ravel(), "y": Y.ravel(), "site": LABELS}
    )
    tasks = as_tasks(table, "y", "site")
    same(tasks, as_tasks(X, Y), names=False)
    assert tasks.task_names == ["a", "b", "c"]
    assert tasks.feature_names == ["dose", "age"]
    shuffled = table.sample(frac=1, random_state=2)
    mixed = as_tasks(shuffled, "y", "site")
    assert shuffled["site"].iloc[0] != "a" and mixed.task_names == ["a", "b", "c"], "sorted, not as they come"
    rows = [shuffled[shuffled["site"] == name] for name in mixed.task_names]
    np.testing.assert_array_equal(mixed.x, [r[["dose", "age"]] for r in rows])
    np.testing.assert_allclose(mixed.target_centre, [r["y"].mean() for r in rows])


def test_a_table_of_targets_is_a_task_for_each_column():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(20, 3)), columns=list("abc"))
    targets = pd.DataFrame(rng.normal(size=(20, 2)), columns=["height", 7])
    targets.iloc[3, 0] = np.nan
    found = as_tasks(table, targets)
    assert found.task_names == ["height", "7"] and found.lengths.tolist() == [19, 20]
    seen = targets["height"].notna()
    lists = as_tasks([table[seen], table], [targets["height"][seen], targets[7]])
    np.testing.assert_array_equal(found.x, lists.x)
    np.testing.assert_array_equal(found.y, lists.y)
    arrays = as_tasks(table.to_numpy(), targets.to_numpy())
    np.testing.assert_array_equal(arrays.y, found.y)
    assert arrays.task_names == ["task 1", "task 2"] and arrays.feature_names == ["x1", "x2", "x3"]


def test_tasks_are_sorted_as_what_their_labels_are():
    x, y = np.arange(12.0).reshape(6, 2) ** 2, [1, 2, 4, 3, 5, 9]
    assert as_tasks(x, y, [10, 10, 9, 9, 8, 8]).task_names == ["8", "9", "10"], "as numbers"
    size = pd.Categorical(["low", "low", "high", "high", "mid", "mid"], ["low", "mid", "high"], ordered=True)
    assert as_tasks(x, y, pd.Series(size)).task_names == ["low", "mid", "high"], "as categories"
    assert as_tasks(x, y, size).task_names == ["low", "mid", "high"], "as categories without an index"
    places = ["site 10", "site 10", "site 2", "site 2", "a 0.5", "a 0.25"]
    assert as_tasks(x, y, places[:4] + ["a 3", "a 3"]).task_names == ["a 3", "site 2", "site 10"]
    assert in_order(places)[1].tolist() == ["a 0.25", "a 0.5", "site 2", "site 10"]
    assert in_order(["01", "1", "b", "1", "a7b10", "a7b9"])[0].tolist() == [0, 1, 4, 1, 3, 2]
    assert in_order(np.array([None, "b", 10, 9], dtype=object))[0].tolist() == [-1, 2, 1, 0]
    mixed = as_tasks(x, y, np.array(["b", "b", 1, 1, 1, 1], dtype=object))
    assert mixed.task_names == ["1", "b"] and mixed.lengths.tolist() == [4, 2], "by type"
    with pytest.raises(ValueError, match="task: 1 and '1' read alike"):  # one task, or two?
        as_tasks(x, y, np.array(["b", "b", 1, 1, "1", "1"], dtype=object))


def test_rows_of_targets_and_labels_go_by_position():
    """Where they have the labels of X's rows in another order `as_tasks` complains, else it cannot tell."""
    table, y, task = pd.DataFrame(X.reshape(-1, G)), pd.Series(Y.ravel()), pd.Series(LABELS)
    want = as_tasks(table, y, task)
    same(want, as_tasks(X, Y), names=False)
    other = y[::-1].index + 100
    same(as_tasks(table, y.set_axis(other), task.set_axis(other)), want)
    same(as_tasks(X.reshape(-1, G), y.set_axis(y.index[::-1]), task), want, names=False)


def test_tables_of_other_libraries():
    table = pd.DataFrame({"y": Y.ravel(), "a": X[..., 0].ravel(), "site": LABELS, "b": X[..., 1].ravel()})
    tasks = as_tasks(Convertible(table), "y", "site")
    same(tasks, as_tasks(table, "y", "site"))
    np.testing.assert_array_equal(tasks.inputs(Convertible(table[["b", "a"]])), table[["a", "b"]])
    pieces = [pd.DataFrame(x, columns=["u", "v"]) for x in X]
    turned = [pieces[0], *(piece[["v", "u"]] for piece in pieces[1:])]
    same(as_tasks([Convertible(one) for one in turned], list(Y)), as_tasks(pieces, list(Y)))


def test_columns_of_objects_and_of_complex_numbers():
    table = pd.DataFrame({"a": [1, 2, 3, 5] * 2, "b": [True, False] * 4, "y": [1.0, None] + [3, 4] * 3})
    who = np.repeat([1, 2], 4)
    same(as_tasks(table.astype(object), "y", who), as_tasks(table, "y", who))
    for name in "ay":
        with pytest.raises(TypeError, match=f"column '{name}' holds complex128, wanted numbers"):
            as_tasks(table.assign(**{name: 1j}), "y", who)
    with pytest.raises(TypeError, match=r"X: want numbers \(it holds complex128\)"):
        as_tasks(X * 1j, Y)


@pytest.mark.parametrize("unit", [1e-150, 1e-12, 1e12, 1e150])
def test_units_of_inputs_and_targets_do_not_matter(unit):
    plain, other = as_tasks(X, Y), as_tasks(X * unit, Y * unit)  # small ones were called constant
    np.testing.assert_allclose(other.y, plain.y, atol=1e-12)
    np.testing.assert_allclose(other.scale, plain.scale * unit)
    for constant in (0.1, 0.0, unit):
        with pytest.raises(ValueError, match="y: 'task 1' has a constant target"):
            as_tasks(X, np.concatenate([np.full_like(Y[:1], constant), Y[1:]]))


def test_columns_named_by_numbers():
    named = pd.DataFrame({"y": Y.ravel(), "task": LABELS, "a": X[..., 0].ravel(), "b": X[..., 1].ravel()})
    by_number = as_tasks(named.set_axis(range(4), axis=1), 0, 1)
    np.testing.assert_array_equal(by_number.x, as_tasks(named, "y", "task").x)
    np.testing.assert_array_equal(by_number.y, as_tasks(named, "y", "task").y)
    assert by_number.feature_names == ["2", "3"]


def test_nullable_columns_and_numbers_of_every_kind():
    table = pd.DataFrame({"a": pd.array([1, 2, 3, 5] * 2, dtype="Int64"), "b": [True, False] * 4})
    y = pd.array([1, None, 3, 4, 1, 2, 3, 4], dtype="Int64")
    tasks = as_tasks(table.assign(y=y), "y", np.repeat([1, 2], 4))
    np.testing.assert_array_equal(tasks.mask, [[True, False, True, True], [True] * 4])
    assert tasks.x.dtype == np.float64
    assert tasks.task_names == ["1", "2"]
    same(tasks, as_tasks(table, pd.Series(y), np.repeat([1, 2], 4)))


def test_whole_numbers_before_fractions_are_not_cut():
    x = [np.arange(6).reshape(3, 2), np.arange(6).reshape(3, 2) + 0.25]
    tasks = as_tasks(x, [[1, 2, 4], [1, 0, 1]])
    np.testing.assert_array_equal(tasks.x[1], x[1])


def test_ragged_tasks_are_padded_with_rows_of_their_own():
    xs, ys = [X[0], X[1, :3], X[2, :2]], [Y[0], Y[1, :3], Y[2, :2]]
    tasks = as_tasks(xs, ys)
    assert tasks.lengths.tolist() == tasks.sizes.tolist() == [5, 3, 2]
    np.testing.assert_array_equal(tasks.mask, np.arange(N) < np.array([[5], [3], [2]]))
    np.testing.assert_array_equal(tasks.x[1, 3:], [X[1, 0]] * 2)
    assert (tasks.y[~tasks.mask] == 0).all()
    np.testing.assert_allclose(tasks.centre, np.concatenate(xs).mean(0))
    np.testing.assert_allclose(tasks.target_scale, [y.std() for y in ys])


def test_a_missing_target_is_masked_and_no_row_is_lost():
    y = Y.copy()
    y[1, 2] = np.nan
    tasks = as_tasks(X, y)
    assert not tasks.mask[1, 2]
    assert tasks.mask.sum() == T * N - 1
    assert tasks.lengths.tolist() == [N] * T
    assert tasks.sizes.tolist() == [N, N - 1, N]
    assert tasks.y[1, 2] == 0
    assert tasks.target_centre[1] == pytest.approx(np.nanmean(y[1]))
    np.testing.assert_allclose(tasks.centre, as_tasks(X, Y).centre)


def test_images_stay_bytes_until_they_are_read():
    x = RNG.integers(0, 256, size=(T, N, 3, 4, 4), dtype=np.uint8)
    tasks = as_tasks(x, Y)
    batch = tasks.batch()
    assert tasks.x.dtype == np.uint8
    assert batch.x.dtype == torch.uint8
    assert tasks.shape == (3, 4, 4)
    assert tasks.feature_names == []
    want = (x.astype(float) - x.mean()) / x.astype(float).std()
    np.testing.assert_allclose(batch.inputs, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(tasks.standardised(x), want, rtol=1e-5, atol=1e-5)
    part = batch.rows(torch.tensor([2, 0]))
    np.testing.assert_allclose(part.inputs, want[[2, 0]], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(as_tasks(x.astype("float32"), Y).batch().inputs, want, rtol=1e-5, atol=1e-5)


def test_without_standardising():
    tasks = as_tasks(X, Y, standardise=False)
    np.testing.assert_allclose(tasks.batch(dtype=torch.float64).inputs, X)
    flat = X.copy()
    flat[..., 1] = 7.0
    np.testing.assert_allclose(as_tasks(flat, Y, standardise=False).batch(dtype=torch.float64).inputs, flat)


def test_some_of_the_tasks():
    y = Y.copy()
    y[0, 0] = np.nan
    tasks = as_tasks(X, y)
    few = tasks.rows([2, 0])
    assert few.task_names == ["task 3", "task 1"]
    np.testing.assert_array_equal(few.mask, tasks.mask[[2, 0]])
    np.testing.assert_array_equal(few.target_scale, tasks.target_scale[[2, 0]])
    batch = tasks.batch()
    part = batch.rows(torch.tensor([1, 2]))
    assert part.index.tolist() == [1, 2]
    assert part.total == T
    whole = part.whole()
    assert whole.index.tolist() == [0, 1]
    assert whole.total == 2
    torch.testing.assert_close(whole.y, batch.y[1:])


def test_new_tasks_in_the_units_of_old_ones():
    old = as_tasks(pd.DataFrame(X.reshape(-1, G), columns=["u", "v"]), Y.ravel(), LABELS)
    table = pd.DataFrame({"v": X[0, :, 1] + 5, "other": "text", "u": X[0, :, 0], "y": Y[0]})
    new = as_tasks(table, "y", ["z"] * N, like=old)
    assert new.task_names == ["z"]
    np.testing.assert_array_equal(new.x[0], X[0] + [0, 5])
    np.testing.assert_array_equal(new.centre, old.centre)
    np.testing.assert_array_equal(new.scale, old.scale)
    assert new.target_centre[0] == pytest.approx(Y[0].mean())
    same(as_tasks(X[:1] + [0, 5], Y[:1], like=old), new, names=False)
    np.testing.assert_array_equal(old.inputs(table), X[0] + [0, 5])


def test_a_single_target_is_in_units_of_the_other_tasks():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 6, 2)), rng.normal(size=(4, 6)) * np.array([[1.0], [2.0], [3.0], [5.0]])
    y[3, 1:] = np.nan
    tasks = as_tasks(x, y)
    assert tasks.target_scale[3] == np.median(y[:3].std(1)) and tasks.target_centre[3] == y[3, 0]
    assert tasks.sizes.tolist() == [6, 6, 6, 1] and not tasks.y[3].any()
    new = as_tasks([x[0, :1]], [y[0, :1]], like=tasks)  # alone it has nobody else to ask
    assert new.target_scale[0] == np.median(tasks.target_scale)
