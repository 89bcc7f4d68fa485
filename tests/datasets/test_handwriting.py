"""Glyphs: a known curve is drawn where it is; classes differ more than the drawings of one class do."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.datasets import Episodes, glyphs
from pyro_sparse.datasets.handwriting import _draw, _strokes


class Still(np.random.Generator):
    """A hand that does not shake: normal draws are 0, and uniform ones the middle of their range."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def normal(self, loc, scale, size):
        return np.zeros(size)

    def uniform(self, low, high, size):
        return np.full(size, (low + high) / 2)


def test_a_known_curve_is_drawn_where_it_is(monkeypatch):
    control = np.array([[-0.6, -0.5], [0.2, 0.9], [0.7, -0.3]])
    monkeypatch.setattr("pyro_sparse.datasets.handwriting._strokes", lambda rng: control[None])
    (image,) = _draw(1, 40, Still()) / 255
    t = np.linspace(0, 1, 2001)[:, None]
    curve = ((1 - t) ** 2 * control[0] + 2 * t * (1 - t) * control[1] + t**2 * control[2]) * 0.975
    middle = (np.arange(40) + 0.5) / 20 - 1
    x, y = np.meshgrid(middle, middle)
    distance = np.sqrt(((np.stack([x, y], -1)[:, :, None] - curve) ** 2).sum(-1)).min(-1)
    assert (image[distance < 0.1 - 0.03] == 1).all() and (image[distance > 0.1 + 0.03] == 0).all()
    assert np.abs(image - np.clip(0.5 + (0.1 - distance) * 20, 0, 1)).max() < 0.1  # 49 points, not a curve


def test_every_class_has_strokes_that_can_be_seen():
    strokes = [_strokes(np.random.default_rng(s)) for s in range(200)]
    assert {len(s) for s in strokes} == {1, 2, 3, 4}
    assert all((np.linalg.norm(s[:, 2] - s[:, 0], axis=-1) > 0.6).all() for s in strokes)
    ink = glyphs(40, 5).x.mean((1, 2, 3)) / 255
    assert 0.01 < ink.min() and ink.max() < 0.5


def test_drawings_of_a_class_are_alike_and_none_is_the_same():
    images = glyphs(60, 10, seed=2)
    assert len({x.tobytes() for x in images.x}) == 600
    right = []
    for _, found in zip(range(60), Episodes(images.x, images.labels, n_way=5, n_query=3), strict=False):
        a, b = found.query_x.reshape(15, -1), found.support_x.reshape(5, -1)
        nearest = ((a[:, None] - b) ** 2).sum(-1).argmin(1)
        right.append((found.support_y[nearest] == found.query_y).mean())
    assert 0.6 < np.mean(right) < 0.98  # chance is .2; a task without errors would teach nothing


def test_more_classes_leave_the_first_as_they_are():
    few, many, other = glyphs(3, 4, seed=1), glyphs(5, 4, seed=1), glyphs(3, 4, seed=2)
    np.testing.assert_array_equal(few.x, many.x[:12])
    assert (few.x != other.x).any()
    assert many.labels.tolist() == [k for k in range(5) for _ in range(4)] and len(many.class_names) == 5
    assert few.x.shape == (12, 1, 28, 28) and few.x.dtype == np.uint8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_classes": 0}, "n_classes: want a whole number of at least .*, got 0"),
        ({"n_classes": 2, "n_per_class": 0}, "n_per_class: want .* got 0"),
        ({"n_classes": 2, "size": 7}, "size: want a whole number of at least 8, got 7"),
        ({"n_classes": 2, "seed": 0.5}, "seed: want .* got 0.5"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        glyphs(**arguments)
