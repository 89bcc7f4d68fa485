"""Every container and unit rule of `as_sequences` on tables done by hand; time has a file of its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse.data import sequence_arrays as _sequence_arrays
from pyro_sparse.data.action_columns import contrasts
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.likelihoods import Bernoulli, Normal
from tests._framed import Convertible
from tests._sequences import LABELS, NAN, A, X, long

RNG = np.random.default_rng(0)


# ---- containers


def same(one, other):
    for name in (
        "x",
        "mask",
        "present",
        "linked",
        "actions",
        "centre",
        "scale",
        "action_centre",
        "action_scale",
    ):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_allclose(a, b, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "made",
    [
        X.tolist(),
        list(X),
        tuple(X),
        torch.as_tensor(X).requires_grad_(),
        list(torch.as_tensor(X)),
        [pd.DataFrame(x) for x in X],
    ],
    ids=["nested list", "list", "tuple", "tensor", "list of tensors", "list of frames"],
)
def test_containers_hold_the_same_numbers(made):
    same(as_sequences(made), as_sequences(X))


@pytest.mark.parametrize(
    "made",
    [A.tolist(), list(A), torch.as_tensor(A), [pd.DataFrame(a) for a in A]],
    ids=["nested list", "list", "tensor", "list of frames"],
)
def test_containers_of_actions_hold_the_same_numbers(made):
    same(as_sequences(X, actions=made), as_sequences(X, actions=A))


@pytest.mark.parametrize("made", [np.asarray, torch.as_tensor], ids=["array", "tensor"])
def test_stacked_sequences_are_read_at_once(made, monkeypatch):
    """There may be hundreds of thousands of them."""
    calls = []
    for name in ("read_array", "_columns_of"):
        own = getattr(_sequence_arrays, name)
        monkeypatch.setattr(_sequence_arrays, name, lambda *args, own=own: calls.append(own) or own(*args))
    same(as_sequences(made(X), actions=made(A)), as_sequences(list(X), actions=list(A)))
    assert len(calls) == 1 + 1 + len(X) + len(A)
    same(as_sequences(made(X), actions=made(A[..., 0])), as_sequences(X, actions=A[..., :1]))


def test_a_matrix_is_one_sequence():
    x, a = X.reshape(20, 3), A.reshape(20, 2)
    same(as_sequences(x, actions=a), as_sequences(x[None], actions=a[None]))
    same(as_sequences(x, actions=a[:, 0]), as_sequences(x[None], actions=a[None, :, :1]))
    same(as_sequences(x.tolist(), actions=a.tolist()), as_sequences([x], actions=[a]))
    assert as_sequences(x).sequence_names == ["0"]


def test_array_and_long_table_give_the_same_tensors():
    x, a, labels = X.copy(), A.copy(), LABELS.astype(object)
    x[1, 2], x[0, 0, 1], a[2, 3, 1], labels[3, 0] = NAN, NAN, NAN, None
    short = [5, 3, 4, 5]
    ragged = [v[:n] for v, n in zip(x, short, strict=True)]
    for xs, n in ((x, [5] * 4), (ragged, short)):
        both = [
            pd.DataFrame({"a1": a[s, :m, 0], "a2": a[s, :m, 1], "label": labels[s, :m]})
            for s, m in enumerate(n)
        ]
        ours = as_sequences(xs, actions=both, action_names=["a1", "a2", "label"])
        table = long(xs, a, labels)
        read = as_sequences(table, id="id", time="t", actions=["a1", "a2", "label"])
        same(ours, read)
        assert ours.feature_names == read.feature_names == ["x1", "x2", "x3"]
        assert ours.action_names == read.action_names == ["a1", "a2", "label"]
        assert read.sequence_names == ["s0", "s1", "s2", "s3"]
        one, other = ours.batch(dtype=torch.float64), read.batch(dtype=torch.float64)
        torch.testing.assert_close(one.x, other.x)
        torch.testing.assert_close(one.actions, other.actions)
        assert torch.equal(one.linked, other.linked) and torch.equal(one.mask, other.mask)
        # and back: what the caller gave
        back = np.where(ours.mask, ours.x * ours.scale + ours.centre, NAN)
        for s, v in enumerate(xs):
            np.testing.assert_allclose(back[s, : len(v)], v)


def test_id_and_time_may_be_index_levels():
    table = long(actions=A)
    same(
        as_sequences(table.set_index(["id", "t"]), id="id", time="t", actions=["a2"], feature_names=["x1"]),
        as_sequences(table, id="id", time="t", actions="a2", feature_names=["x1"]),
    )


def test_tables_of_other_libraries():
    table = long(actions=A)
    roles = {"id": "id", "time": "t", "actions": ["a1", "a2"]}
    same(as_sequences(Convertible(table), **roles), as_sequences(table, **roles))
    pieces = [pd.DataFrame(x, columns=list("uvw")) for x in X]
    acts = [pd.DataFrame(a) for a in A]
    got = as_sequences([Convertible(x) for x in pieces], actions=[Convertible(a) for a in acts])
    same(got, as_sequences(pieces, actions=acts))
    assert got.feature_names == list("uvw")


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        (["s10", "s2", "s1"], ["s1", "s2", "s10"]),
        ([10, 2, 1], ["1", "2", "10"]),
        ([2, "b", 1], ["1", "2", "b"]),
        (pd.Categorical(["low", "mid", "top"], ["top", "mid", "low"]), ["top", "mid", "low"]),
    ],
)
def test_the_order_of_rows_does_not_matter(ids, wanted):
    table = long(X[:3], A[:3]).sort_values(["id", "t"])
    table["id"] = pd.Series(ids).iloc[np.arange(15) // 5].to_numpy()
    if isinstance(ids, pd.Categorical):
        table["id"] = pd.Categorical(table["id"], ids.categories)
    read = [
        as_sequences(rows, id="id", time="t", actions=["a1", "a2"])
        for rows in (table, table.iloc[::-1], table.sample(frac=1, random_state=1))
    ]
    assert [one.sequence_names for one in read] == [wanted] * 3
    for name in ("x", "actions", "centre", "scale", "time"):
        for one in read[1:]:
            np.testing.assert_array_equal(getattr(one, name), getattr(read[0], name))
    for name, x in zip(read[0].sequence_names, read[0].x, strict=True):
        i = [str(label) for label in ids].index(name)
        np.testing.assert_allclose(x * read[0].scale + read[0].centre, X[i])


def test_columns_without_id_or_time():
    table = pd.DataFrame(X.reshape(20, 3))
    same(as_sequences(table), as_sequences(X.reshape(1, 20, 3)))
    assert as_sequences(table).feature_names == ["0", "1", "2"]
    table["who"] = np.tile([1, 0], 10)  # interleaved, sorted by id
    got = as_sequences(table, id="who")
    same(got, as_sequences(np.stack([X.reshape(20, 3)[1::2], X.reshape(20, 3)[::2]])))
    assert got.sequence_names == ["0", "1"] and got.time is None and got.step is None


def test_nullable_and_boolean_features():
    table = pd.DataFrame(
        {"i": pd.array([1, None, 3, 4] * 3, dtype="Int64"), "b": [True, False, False, True] * 3}
    )
    got = as_sequences(table, standardise=False)
    same(got, as_sequences(table.astype(object), standardise=False))
    with pytest.raises(TypeError, match="column 'b' holds complex128, wanted numbers"):
        as_sequences(table.assign(b=1j))
    np.testing.assert_array_equal(got.x[0, :4], [[1, 1], [0, 0], [3, 0], [4, 1]])
    np.testing.assert_array_equal(got.mask[0, :3], [[1, 1], [0, 1], [1, 1]])


# ---- units


def test_standardisation_by_hand():
    """Two sequences, one ended early and one cell missing: seen cells are 1, 2, 3, 6 and 0, 2, 4, 4, 5."""
    first, second = [[1.0, 0], [2, 2], [NAN, 4]], [[3.0, 4], [6, 5]]
    got = as_sequences([first, second] * 5)
    np.testing.assert_allclose(got.centre, [3, 3])
    np.testing.assert_allclose(got.scale, [np.sqrt((4 + 1 + 0 + 9) / 4), np.sqrt((9 + 1 + 1 + 1 + 4) / 5)])
    s = got.scale
    np.testing.assert_allclose(got.x[0], [[-2 / s[0], -3 / s[1]], [-1 / s[0], -1 / s[1]], [0, 1 / s[1]]])
    np.testing.assert_allclose(got.x[1], [[0, 1 / s[1]], [3 / s[0], 2 / s[1]], [0, 0]])
    np.testing.assert_array_equal(got.mask[:2], [[[1, 1], [1, 1], [0, 1]], [[1, 1], [1, 1], [0, 0]]])
    np.testing.assert_array_equal(got.present[:2], [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(got.linked, got.present)
    assert got.lengths.tolist() == [3, 2] * 5 and got.n_frames == 25 and len(got) == 10


def test_actions_by_hand():
    """Numbers 0, 2, 4 (one missing) have mean 2; labels b, a, b have shares 1/3 and 2/3."""
    x = RNG.normal(size=(4, 4, 1))
    number = np.tile([[0.0], [2], [NAN], [4]], (4, 1, 1))
    got = as_sequences(x, actions=number, action_names=["dose"])
    s = np.sqrt(8 / 3)
    np.testing.assert_allclose(got.actions[0, :, 0], [-2 / s, 0, 0, 2 / s], atol=1e-12)
    np.testing.assert_array_equal(got.linked, [[True, True, False, True]] * 4)
    assert got.mask is None and got.present is None and got.action_names == ["dose"]
    assert got.action_levels == {} and got.action_centre == [2]

    label = np.array([["b", "a", None, "b"]] * 4, dtype=object)
    got = as_sequences(x, actions=label, action_names=["do"])
    assert got.action_names == ["do"] and got.action_levels == {"do": ["a", "b"]}
    np.testing.assert_allclose(got.action_centre, [2 / 3])
    np.testing.assert_allclose(got.action_scale, [-np.sqrt(2) / 3])  # what is met first is negative
    r = np.sqrt(2)
    np.testing.assert_allclose(got.actions[0, :, 0], [-1 / r, r, 0, -1 / r])
    np.testing.assert_array_equal(got.linked, [[True, True, False, True]] * 4)
    assert as_sequences(x, actions=label, standardise=False).actions[0].tolist() == [[1], [0], [0], [1]]


def test_levels_are_equally_far_apart_and_vary_as_much_as_a_number():
    """Inner products, by hand: of indicators less their shares p, divided by the sum of their variances."""
    rng = np.random.default_rng(0)
    codes = rng.choice(4, 60, p=[0.4, 0.3, 0.2, 0.1])
    table = pd.DataFrame(
        {"x": rng.normal(size=60), "do": np.array(["a", "b", "c", "d"])[codes], "dose": 1.0 * codes}
    )
    got = as_sequences(table, actions=["dose", "do"])
    assert got.action_names == ["dose", "do"] and got.action_widths == [1, 3]
    design = got.actions[0, :, 1:]
    indicators = np.eye(4)[codes]
    centred = indicators - indicators.mean(0)
    np.testing.assert_allclose(design @ design.T, centred @ centred.T / indicators.var(0).sum(), atol=1e-12)
    np.testing.assert_allclose(design.var(0).sum(), 1.0)
    np.testing.assert_allclose(got.actions[0, :, 0].var(), 1.0)


@pytest.mark.parametrize("n_levels", [2, 3, 5])
def test_one_design_however_an_action_is_coded(n_levels):
    rng = np.random.default_rng(n_levels)
    codes = np.r_[np.arange(n_levels), rng.integers(0, n_levels, 40)]
    rng.shuffle(codes)
    x, text = rng.normal(size=len(codes)), np.array(list("abcde"))[codes]
    ways = [text, pd.Categorical(codes), pd.Categorical(codes, ordered=True), pd.Series(codes, dtype=object)]
    ways += [np.array(list("dbeca"))[codes], pd.Categorical(text, categories=list("cdbea"))]
    if n_levels == 2:
        ways += [codes, codes == 1, pd.array(codes == 1, dtype="boolean"), 1 - codes, 3.7 + 0.1 * codes]
    designs = [as_sequences(pd.DataFrame({"x": x, "do": way}), actions=["do"]) for way in ways]
    for other in designs:
        assert other.action_names == ["do"] and other.actions.shape == (1, len(x), n_levels - 1)
        np.testing.assert_array_equal(other.actions, designs[0].actions)
    again = as_sequences(pd.DataFrame({"x": x, "do": text})[::-1], actions=["do"], like=designs[0])
    np.testing.assert_array_equal(again.actions[:, ::-1], designs[0].actions)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (pd.Categorical(list("cacb") * 3, categories=list("zcba")), ["c", "b", "a"]),
        (pd.Categorical([3, 1, 3, None] * 3), [1, 3]),
        ([True, False, False, True] * 3, [False, True]),
        (pd.array([True, None, False, True] * 3, dtype="boolean"), [False, True]),
        (pd.array(["q", None, "p", "p"] * 3, dtype="string"), ["p", "q"]),
        (["None", None, "p", NAN] * 3, ["None", "p"]),
        (["10 mg", "2 mg", "2.5 mg", "0 mg"] * 3, ["0 mg", "2 mg", "2.5 mg", "10 mg"]),
    ],
    ids=["category", "numbers as category", "bool", "nullable bool", "string", "object", "doses"],
)
def test_what_is_a_label(values, levels):
    table = pd.DataFrame({"x": RNG.normal(size=12), "do": values})
    table = pd.concat([table] * 2, ignore_index=True)
    got = as_sequences(table, actions=["do"], standardise=False)
    assert got.action_levels == {"do": levels} and got.action_names == ["do"]
    known = ~table["do"].isna().to_numpy()
    assert (got.linked is None) == known.all()
    design = contrasts(len(levels))
    if len(levels) > 2:
        met = list(dict.fromkeys(table["do"].dropna()))
        design = design[[met.index(level) for level in levels]]
    for row, value, is_known in zip(got.actions[0], table["do"], known, strict=True):
        np.testing.assert_allclose(row, design[levels.index(value)] if is_known else 0, atol=1e-11)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (pd.cut([1.0, 5, 2, np.nan] * 3, [0, 3, 6]), ["(0, 3]", "(3, 6]"]),
        (pd.Categorical(pd.to_datetime(["2020-01-02", "2020-01-01"] * 6)), None),
        (pd.Series([("a", 1), ("b", 2)] * 6), ["('a', 1)", "('b', 2)"]),
    ],
    ids=["intervals", "dates", "tuples"],
)
def test_labels_that_no_file_can_hold_become_text(values, levels):
    table = pd.DataFrame(
        {"x": RNG.normal(size=24), "do": pd.concat([pd.Series(values)] * 2, ignore_index=True)}
    )
    got = as_sequences(table, actions=["do"])
    kept = got.action_levels["do"]
    assert len(kept) == 2 and all(type(level) is str for level in kept) and kept == (levels or kept)
    same(as_sequences(table, actions=["do"], like=got), got)
    same(as_sequences(table.assign(do=table["do"].map(str, na_action="ignore")), actions=["do"]), got)


def test_likelihoods_of_other_scales_keep_their_features():
    x = (X > 0).astype(float)
    got = as_sequences(x, actions=A, likelihood=Bernoulli())
    np.testing.assert_array_equal(got.x, x)
    np.testing.assert_allclose(got.actions, as_sequences(X, actions=A).actions)
    same(as_sequences(X, likelihood=Normal()), as_sequences(X))


def test_labels_of_an_array():
    text = LABELS.astype("U3")
    text[0, 0] = "nan"  # what numpy makes of NaN in an array of text
    got = as_sequences(X, actions=text)
    assert got.action_names == ["a1"] and got.action_levels == {"a1": ["u", "v", "w"]}
    np.testing.assert_array_equal(np.argwhere(~got.linked), [[0, 0]])
    same(got, as_sequences(X, actions=[[[None if v == "nan" else str(v)] for v in row] for row in text]))
    same(as_sequences(X, actions=[pd.Categorical(row) for row in LABELS]), as_sequences(X, actions=LABELS))
    same(as_sequences(X, actions=[pd.Series(row) for row in LABELS]), as_sequences(X, actions=LABELS))


# ---- tensors and rows


def test_tensors():
    whole = as_sequences(X, actions=A).batch()
    assert whole.x.dtype == whole.actions.dtype == torch.float32
    assert whole.mask is None and whole.present is None and whole.linked is None
    assert whole.total == len(whole) == 4
    assert as_sequences(X).batch().actions is None
    ragged = as_sequences([x[:n] for x, n in zip(X, [5, 2, 5, 4], strict=True)]).batch(dtype=torch.float64)
    assert ragged.x.dtype == torch.float64
    assert ragged.mask.dtype == ragged.present.dtype == ragged.linked.dtype == torch.bool
    assert ragged.mask.shape == (4, 5, 3) and ragged.present.sum(1).tolist() == [5, 2, 5, 4]


@pytest.mark.parametrize("full", [False, True], ids=["ragged", "full"])
def test_rows(full):
    x, a = X.copy(), A.copy()
    lengths = [5, 5, 5, 5] if full else [5, 2, 4, 5]
    if not full:
        x[0, 1, 2] = a[3, 2, 0] = NAN
    times = [np.arange(5) + 10 * s for s in range(4)]
    table = long([v[:n] for v, n in zip(x, lengths, strict=True)], a, times=times)
    data = as_sequences(table, id="id", time="t", actions=["a1", "a2"])
    batch = data.batch()
    part, mini = data.rows([3, 1]), batch.rows(torch.tensor([3, 1]))
    assert len(part) == len(mini) == 2 and mini.total == 4 and mini.whole().total == 2
    assert part.sequence_names == ["s3", "s1"]
    assert part.time[0, 0] == 30 and part.time[1, 1] == 11
    for name in ("x", "mask", "present", "linked", "actions"):
        everything, ours, tensor = getattr(data, name), getattr(part, name), getattr(mini, name)
        if everything is None:
            assert ours is None and tensor is None
            continue
        np.testing.assert_array_equal(ours, np.stack([everything[3], everything[1]]))
        np.testing.assert_allclose(tensor, ours, rtol=1e-6)
    same(data.rows(np.array([False, True, False, True])), data.rows([1, 3]))
    assert part.lengths.tolist() == [lengths[3], lengths[1]]


# ---- new data for a fit


def test_like_keeps_units_levels_and_step():
    fit = as_sequences(
        long(X, A, LABELS), id="id", time="t", actions=["a1", "label"], feature_names=["x1", "x3"]
    )
    new = long(X[:1, :2] + 1, A[:1], LABELS[:1])[["label", "x3", "id", "t", "a1", "x2", "x1"]]
    got = as_sequences(new, time="t", actions=["label", "a1"], like=fit)
    assert got.feature_names == ["x1", "x3"] and got.action_names == fit.action_names
    assert got.action_levels == fit.action_levels and got.step == 1
    np.testing.assert_allclose(got.x[0] * fit.scale + fit.centre, X[0, :2][:, [0, 2]] + 1)
    np.testing.assert_allclose(got.actions[0], fit.actions[0, :2])


@pytest.mark.parametrize("levels", [[], ["id"], ["id", "t"]])
def test_like_reads_the_columns_of_the_fit(levels):
    """Without it all sequences became one, and a forgotten action a complaint."""
    frames = long(X, A, LABELS)
    fit = as_sequences(
        frames if not levels else frames.set_index(levels), id="id", time="t", actions=["a1", "label"],
        feature_names=["x1", "x2", "x3"],
    )  # fmt: skip
    assert fit.roles == {"id": "id", "time": "t", "actions": ["a1", "label"]}
    got = as_sequences(frames, like=fit)
    np.testing.assert_array_equal(got.x, fit.x)
    np.testing.assert_array_equal(got.actions, fit.actions)
    assert got.roles == fit.roles and got.sequence_names == fit.sequence_names
    other = as_sequences(frames.rename(columns={"id": "who"}), id="who", like=fit)
    np.testing.assert_array_equal(other.x, fit.x)
    assert as_sequences(X, actions=A).roles == {}


def test_like_for_arrays_goes_by_position():
    given = [pd.DataFrame({"n": a[:, 0], "w": w}) for a, w in zip(A, LABELS, strict=True)]
    fit = as_sequences(X, actions=given, feature_names=["p", "q", "r"], action_names=["dose", "do"])
    actions = [pd.DataFrame({"n": [0.5, NAN], "w": ["w", "u"]})]
    got = as_sequences(X[:1, :2], actions=actions, like=fit)
    assert got.feature_names == ["p", "q", "r"] and got.action_names == ["dose", "do"]
    np.testing.assert_allclose(got.x, fit.x[:1, :2])
    raw = got.actions[0] * fit.action_scale + fit.action_centre
    np.testing.assert_allclose(raw[0], [0.5, *contrasts(3)[2]], atol=1e-11)
    np.testing.assert_allclose(raw[1, 1:], contrasts(3)[0], atol=1e-11)
    assert got.linked.tolist() == [[True, False]] and got.actions[0, 1, 0] == 0


def test_new_sequences_may_be_short():
    fit = as_sequences(X)
    assert as_sequences(X[:1, :1], like=fit).x.shape == (1, 1, 3)
