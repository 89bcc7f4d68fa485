"""Episodes by their definition, splits without shared classes, class folders written here."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from pyro_sparse.datasets import Episodes, as_episode, load_image_folders, split_classes


@pytest.fixture
def rows():
    """Fifty rows of seven classes; a row is its own number, so that it can be found again."""
    labels = np.array(list("abcdefg") * 7 + ["a"])
    return np.arange(50.0)[:, None], labels


def test_an_episode_has_its_classes_and_shares_no_row(rows):
    x, labels = rows
    for step in range(30):
        found = Episodes(x, labels, n_way=4, n_shot=2, n_query=3, seed=5).episode(step)
        assert found.support_y.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert np.bincount(found.query_y).tolist() == [3, 3, 3, 3]
        support, query = (part[:, 0].astype(int) for part in (found.support_x, found.query_x))
        assert len(set(support) | set(query)) == 20
        name = dict(zip(found.support_y, labels[support], strict=True))
        assert len(set(name.values())) == 4
        assert [name[y] for y in found.support_y] == labels[support].tolist()
        assert [name[y] for y in found.query_y] == labels[query].tolist()


def test_classes_and_rows_are_uniform(rows):
    x, labels = rows
    episodes = Episodes(x, labels, n_way=2, n_shot=1, n_query=1, seed=0)
    seen = np.concatenate([episodes.episode(s).support_x[:, 0] for s in range(1500)]).astype(int)
    assert stats.chisquare(np.unique(labels[seen], return_counts=True)[1]).pvalue > 1e-3
    assert stats.chisquare(np.bincount(seen[labels[seen] == "a"], minlength=50)[labels == "a"]).pvalue > 1e-3
    first = np.array([labels[int(episodes.episode(s).support_x[0, 0])] for s in range(700)])
    assert stats.chisquare(np.unique(first, return_counts=True)[1]).pvalue > 1e-3


def test_a_seed_and_a_number_say_everything(rows):
    one, two, other = (Episodes(*rows, n_way=3, n_query=2, seed=s) for s in (1, 1, 2))
    for step, found in zip(range(6), one, strict=False):
        for a, b in zip(found, two.episode(step), strict=True):
            np.testing.assert_array_equal(a, b)
    batch = two.batch(step=1, n_episodes=3)
    assert batch.support_x.shape == (3, 3, 1) and batch.query_y.shape == (3, 6)
    for i in range(3):
        np.testing.assert_array_equal(batch.query_x[i], one.episode(3 + i).query_x)
    assert any((one.episode(s).query_x != other.episode(s).query_x).any() for s in range(3))


def test_bytes_become_shares_and_numbers_stay(rows):
    _, labels = rows
    pixels = np.random.default_rng(0).integers(0, 256, (50, 1, 3, 3)).astype(np.uint8)
    found = Episodes(pixels, labels, n_way=2, n_query=1).episode(0)
    assert found.support_x.dtype == np.float32 and found.support_x.shape == (2, 1, 3, 3)
    known = {tuple(p.ravel().tolist()) for p in pixels}
    assert {tuple(p.ravel().tolist()) for p in np.round(found.query_x * 255).astype(np.uint8)} <= known
    assert Episodes(*rows, n_way=2, n_query=1).episode(0).support_x.dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_way": 8}, "n_way=8 classes are wanted, but there are 7"),
        ({"n_way": 1}, "n_way: want a whole number of at least 2, got 1"),
        ({"n_shot": 5, "n_query": 3}, "class 'b' has 7 rows, but n_shot=5 and n_query=3 need 8"),
        ({"n_shot": 0}, "n_shot: want a whole number of at least .*, got 0"),
        ({"n_query": 1.5}, "n_query: want a whole number of at least .*, got 1.5"),
        ({"seed": -3}, "seed: want a whole number of at least 0, got -3"),
        ({"labels": list("ab")}, r"x, labels: want shape .* got \(50, 1\) and \(2,\)"),
        ({"labels": np.zeros((50, 1))}, r"got \(50, 1\) and \(50, 1\)"),
    ],
)
def test_bad_episodes_are_named(rows, arguments, message):
    with pytest.raises(ValueError, match=message):
        Episodes(**{"x": rows[0], "labels": rows[1], "n_query": 2, **arguments})


def test_bad_numbers_of_episodes_are_named(rows):
    episodes = Episodes(*rows, n_query=1)
    with pytest.raises(ValueError, match="step: want .* got -1"):
        episodes.episode(-1)
    with pytest.raises(ValueError, match="n_episodes: want .* got 0"):
        episodes.batch(0, 0)


def test_an_episode_of_ones_own():
    found = as_episode([[1], [2], [3]], [30, 10, 30], [[4], [5]], [10, 30])
    assert found.support_y.tolist() == [1, 0, 1] and found.query_y.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"query_labels: 20 is not in the support, which has \[10, 30\]"):
        as_episode([[1], [2]], [30, 10], [[4], [5]], [10, 20])
    with pytest.raises(ValueError, match=r"got \(2, 1\) and \(3,\)"):
        as_episode([[1], [2]], [30, 10, 10], [[4]], [10])


def test_splits_share_no_class_and_lose_no_row():
    labels = np.random.default_rng(0).integers(0, 12, 400)
    parts = split_classes(labels, n_train=6, n_validation=2, seed=3)
    classes = {name: set(labels[rows]) for name, rows in parts.items()}
    assert {name: len(c) for name, c in classes.items()} == {"train": 6, "validation": 2, "test": 4}
    assert sum(map(len, classes.values())) == len(set.union(*classes.values())) == 12
    np.testing.assert_array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(400))
    again, other = split_classes(labels, 6, 2, seed=3), split_classes(labels, 6, 2, seed=4)
    assert all((parts[k] == again[k]).all() for k in parts)
    assert set(labels[other["train"]]) != classes["train"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_train": 2, "n_validation": 1}, "n_train=2, n_validation=1: want fewer than the 3 classes"),
        ({"n_train": 0}, "n_train: want .* got 0"),
        ({"n_train": 1, "n_validation": -1}, "n_validation: want .* got -1"),
    ],
)
def test_bad_splits_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        split_classes(["a", "b", "c"], **arguments)


def write(file, colour, size=(12, 9), mode="RGB"):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(file)


def test_a_folder_for_each_class_as_in_miniimagenet(tmp_path):
    colours = {"n02": [(255, 0, 0), (0, 255, 0)], "n01": [(0, 0, 255)]}
    for name, every in colours.items():
        for i, colour in enumerate(every):
            write(tmp_path / name / f"{i}.png", colour)
    (tmp_path / "n01" / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    images = load_image_folders(tmp_path, size=6)
    assert images.class_names == ("n01", "n02") and images.labels.tolist() == [0, 1, 1]
    assert images.x.shape == (3, 3, 6, 6) and images.x.dtype == np.uint8
    np.testing.assert_array_equal(images.x[:, :, 3, 2], [(0, 0, 255), (255, 0, 0), (0, 255, 0)])


def test_alphabets_and_characters_as_in_omniglot(tmp_path):
    for alphabet, character in (("Greek", "character02"), ("Greek", "character01"), ("Anglo", "character01")):
        for i in range(2):
            write(tmp_path / alphabet / character / f"{i}.PNG", 1, size=(105, 105), mode="1")
    images = load_image_folders(tmp_path, size=28, depth=2, grayscale=True)
    assert images.class_names == ("Anglo/character01", "Greek/character01", "Greek/character02")
    assert images.x.shape == (6, 1, 28, 28) and (images.x == 255).all()
    assert images.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_rows_and_columns_are_not_exchanged(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4, :, 0] = 200
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "top.png")
    (image,) = load_image_folders(tmp_path, size=8).x
    np.testing.assert_array_equal(image, pixels.transpose(2, 0, 1))


def test_bad_folders_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there-is-none"):
        load_image_folders(tmp_path / "there-is-none", size=8)
    with pytest.raises(ValueError, match="no folder is 1 deep"):
        load_image_folders(tmp_path, size=8)
    write(tmp_path / "Greek" / "character01" / "0.png", 0)
    with pytest.raises(ValueError, match=r"class 'Greek' has no image .* 2 deep \(depth=2\)"):
        load_image_folders(tmp_path, size=8)
    with pytest.raises(ValueError, match="size: want a whole number of at least .*, got 0"):
        load_image_folders(tmp_path, size=0)
    with pytest.raises(ValueError, match="depth=3: want 1"):
        load_image_folders(tmp_path, size=8, depth=3)
    with pytest.raises(ValueError, match="got a file; unpack it"):
        load_image_folders(tmp_path / "Greek" / "character01" / "0.png", size=8)
    (tmp_path / "Greek" / "character01" / "1.png").write_text("not an image")
    with pytest.raises(ValueError, match="1.png is not an image"):
        load_image_folders(tmp_path, size=8, depth=2)
    plain = builtins.__import__
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *a: plain("no_such_pillow" if name == "PIL" else name, *a)
    )
    with pytest.raises(ImportError, match="needs Pillow: pip install"):
        load_image_folders(tmp_path, size=8, depth=2)
