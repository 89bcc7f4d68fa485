"""Drawn rooms against signed distances and hues, the published file against one written here."""

from __future__ import annotations

import builtins
import colorsys

import numpy as np
import pytest

from pyro_sparse.datasets import load_3dshapes, proxy_data, shapes_data
from pyro_sparse.datasets._shapes_grid import LEVELS, levels_of
from pyro_sparse.datasets._shapes_scene import _hit, weights_of_pixels
from pyro_sparse.datasets.shapes import SHAPES_FACTORS, render_shapes

h5py = pytest.importorskip("h5py")
COUNTS = (10, 10, 10, 8, 4, 15)


@pytest.fixture(scope="module")
def levels():
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(n, size=600) for n in COUNTS], axis=-1)


@pytest.fixture(scope="module")
def images(levels):
    return render_shapes(levels)


def signed_distance(shape, s, p):
    """Of points to each object, written down by themselves."""
    x, y, z = p.T
    if shape == 0:
        q = np.abs(np.stack([x, y, z - 0.46 * s])) - 0.46 * s
        return np.linalg.norm(np.maximum(q, 0), axis=0) + np.minimum(q.max(0), 0)
    if shape == 1:
        q = np.stack([np.hypot(x, y) - 0.48 * s, np.abs(z - 0.525 * s) - 0.525 * s])
        return np.linalg.norm(np.maximum(q, 0), axis=0) + np.minimum(q.max(0), 0)
    low, high, radius = (0.58, 0.58, 0.58) if shape == 2 else (0.36, 1.0, 0.36)
    return np.sqrt(x**2 + y**2 + (z - np.clip(z, low * s, high * s)) ** 2) - radius * s


@pytest.mark.parametrize("shape", range(4))
@pytest.mark.parametrize("scale", [0.75, 1.25])
def test_rays_meet_the_object_where_its_signed_distance_is_zero(shape, scale):
    rng = np.random.default_rng(shape)
    start = rng.standard_normal((4000, 3))
    start *= 3 / np.linalg.norm(start, axis=1, keepdims=True)
    start[:, 2] = np.abs(start[:, 2])
    ray = [0, 0, 0.6 * scale] + rng.uniform(-1, 1, start.shape) * scale - start
    ray /= np.linalg.norm(ray, axis=1, keepdims=True)
    distance, normal = _hit(shape, scale, start, ray)
    marched = np.zeros(len(ray))
    for _ in range(400):
        marched += np.minimum(signed_distance(shape, scale, start + marched[:, None] * ray), 1)
    hits = signed_distance(shape, scale, start + marched[:, None] * ray) < 1e-9
    clear = hits | (marched > 20)  # neither: a grazing ray, still creeping along
    assert clear.mean() > 0.98 and 0.2 < hits.mean() < 0.95
    np.testing.assert_array_equal(np.isfinite(distance)[clear], hits[clear])
    np.testing.assert_allclose(distance[hits], marched[hits], atol=1e-5)
    point, step = start[hits] + distance[hits, None] * ray[hits], 1e-6
    slope = np.stack(
        [
            signed_distance(shape, scale, point + step * e) - signed_distance(shape, scale, point - step * e)
            for e in np.eye(3)
        ],
        axis=1,
    )
    agree = (slope / (2 * step) * normal[hits]).sum(1)
    assert (agree > 0.999).mean() > 0.99  # all but points on an edge


def test_images_are_colours_between_0_and_1(images):
    assert images.shape == (600, 3, 32, 32) and images.dtype == np.float32
    assert images.min() >= 0 and images.max() <= 1
    weights = weights_of_pixels(32)
    assert weights.shape == (8, 4, 15, 4, 1024) and weights.min() >= 0
    assert weights.sum(3).max() <= 1 + 1e-6
    with pytest.raises(ValueError, match="read-only"):
        weights[0] = 0


def test_hues_are_those_asked_for(levels, images):
    """Top corners show the wall, bottom corners the floor, the middle the object, whatever the shading."""
    for level, image in zip(levels, images, strict=True):
        wall, floor, thing = image[:, 0, 31], image[:, 31, 0], image[:, 17, 16]
        for k, colour in ((0, floor), (1, wall), (2, thing)):
            hue = colorsys.rgb_to_hsv(*map(float, colour))[0]
            assert hue == pytest.approx(level[k] / 10, abs=1e-3), (k, level)


def test_every_level_can_be_seen(levels, images):
    """One factor moved by one level: pixels that change, over the image and at most."""
    for k, n in enumerate(COUNTS):
        other = levels.copy()
        other[:, k] = np.where(levels[:, k] + 1 < n, levels[:, k] + 1, levels[:, k] - 1)
        change = np.abs(render_shapes(other) - images).reshape(len(levels), -1)
        assert change.mean(1).min() > 0.003, list(SHAPES_FACTORS)[k]
        assert (change > 0.1).mean(1).min() > 0.008, list(SHAPES_FACTORS)[k]


def test_no_geometry_and_no_image_occurs_twice():
    rng = np.random.default_rng(1)
    cells = rng.choice(480_000, size=5000, replace=False)
    pictures = np.round(render_shapes(levels_of(cells), size=16) * 255).astype(np.uint8)
    assert len({picture.tobytes() for picture in pictures}) == 5000
    weights = weights_of_pixels(32).reshape(480, -1)
    square = (weights**2).sum(1)
    distance = square[:, None] + square - 2 * weights @ weights.T
    assert distance[~np.eye(480, dtype=bool)].min() > 1.0


def test_orientation_turns_the_room_and_scale_the_size():
    weights = weights_of_pixels(32).reshape(8, 4, 15, 4, 32, 32)
    thing = weights[:, :, :, 2:].sum(3) > 0.2
    size = thing.sum((-1, -2))
    assert (np.diff(size, axis=0) > 0).all()
    # The corner between the walls: the largest step along the top row. It goes one way.
    steps = np.abs(np.diff(weights[0, 0, :, 1, 0, :], axis=-1))
    corner = (steps * np.arange(31)).sum(-1) / steps.sum(-1)
    assert (np.diff(corner) > 0.5).all() or (np.diff(corner) < -0.5).all()
    assert corner[7] == pytest.approx(15.0, abs=0.1)


def test_leading_axes_and_sizes(levels, images):
    np.testing.assert_array_equal(
        render_shapes(levels[:6].reshape(2, 3, 6)).reshape(6, 3, 32, 32), images[:6]
    )
    np.testing.assert_allclose(render_shapes(levels[5]), images[5], atol=1e-6)
    assert render_shapes(levels[:2], size=16).shape == (2, 3, 16, 16)
    half = images[:2].reshape(2, 3, 16, 2, 16, 2).mean((3, 5))
    # Four rays a pixel against sixteen: edges differ by a share of a pixel, areas do not.
    assert np.abs(render_shapes(levels[:2], size=16) - half).mean() < 0.01
    assert render_shapes(levels[:0]).shape == (0, 3, 32, 32)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0, 0, 0, 8, 0, 0], "scale has the levels 0 to 7, got 8"),
        ([0, -1, 0, 0, 0, 0], "wall_hue has the levels 0 to 9, got -1"),
        ([0, 0, 0], r"want whole numbers of shape \(..., 6\), .* got shape \(3,\)"),
        ([0.0] * 6, "got shape .* of float64"),
    ],
)
def test_bad_levels_are_named(value, message):
    with pytest.raises(ValueError, match=message):
        render_shapes(value)


def test_a_stream_shows_the_cells_of_its_latents():
    tasks = shapes_data("block3", rho=0.8, size=16, n_tasks=2, n_samples=20, latent_noise=0.0, seed=3)
    batch = tasks.batch(5)
    assert batch.x.shape == (2, 20, 3, 16, 16) and batch.x.dtype == np.float32
    values = [(v - v.mean()) / v.std() for v in LEVELS.values()]
    level = np.stack([np.abs(batch.z[..., [k]] - v).argmin(-1) for k, v in enumerate(values)], axis=-1)
    np.testing.assert_array_equal(batch.x, render_shapes(level, size=16))
    x, z = tasks.test(7)
    assert x.shape == (7, 3, 16, 16) and z.shape == (7, 6)
    like = proxy_data("block3", rho=0.8, n_tasks=2, n_samples=20, latent_noise=0.0, seed=3).batch(5)
    np.testing.assert_array_equal(like.y, batch.y)


def test_bad_streams_are_named():
    with pytest.raises(ValueError, match="size: want a whole number of at least 8, got 4"):
        shapes_data(size=4)
    with pytest.raises(ValueError, match="rho=2"):
        shapes_data(rho=2)
    with pytest.raises(ValueError, match="kind='none'"):
        shapes_data("none")


def write(file, rows=480_000, images="images", order=None, dtype="u1"):
    """A file as published, but for its images, of which three are stored."""
    labels = np.stack(np.meshgrid(*LEVELS.values(), indexing="ij"), -1).reshape(-1, 6)[:rows]
    with h5py.File(file, "w") as f:
        f.create_dataset("labels", data=labels if order is None else labels[:, order], compression=1)
        pixels = f.create_dataset(images, (rows, 64, 64, 3), dtype=dtype, chunks=(1, 64, 64, 3))
        if rows == 480_000 and dtype == "u1":
            for cell in (3, 200_000, 479_999):
                pixels[cell] = np.random.default_rng(cell).integers(0, 256, (64, 64, 3))
    return file


def test_the_published_file_is_read_row_by_row(tmp_path):
    shapes = load_3dshapes(write(tmp_path / "3dshapes.h5"))
    assert isinstance(shapes.images, h5py.Dataset) and shapes.labels.shape == (480_000, 6)
    np.testing.assert_array_equal(shapes.levels, levels_of(np.arange(480_000)))
    found = shapes.read([[479_999, 3], [3, 200_000]])
    assert found.shape == (2, 2, 3, 64, 64) and found.dtype == np.float32
    for image, cell in zip(found.reshape(4, 3, 64, 64), (479_999, 3, 3, 200_000), strict=True):
        wanted = np.random.default_rng(cell).integers(0, 256, (64, 64, 3)).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(image, wanted, atol=1e-6)
    batch = shapes_data(images=shapes, n_tasks=2, n_samples=3).batch(0)
    assert batch.x.shape == (2, 3, 3, 64, 64)
    for bad in ([480_000], [-1], [0.5]):
        with pytest.raises(ValueError, match="cells: want whole numbers from 0 to 479999"):
            shapes.read(bad)


def test_other_files_are_refused(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="nowhere.h5"):
        load_3dshapes(tmp_path / "nowhere.h5")
    (tmp_path / "text.h5").write_text("no")
    with pytest.raises(ValueError, match="is not an HDF5 file"):
        load_3dshapes(tmp_path / "text.h5")
    with pytest.raises(ValueError, match="want 'images', uint8 .* got nothing"):
        load_3dshapes(write(tmp_path / "a.h5", images="pictures"))
    with pytest.raises(ValueError, match=r"want 'images', uint8 .* got uint8 of shape \(10, 64, 64, 3\)"):
        load_3dshapes(write(tmp_path / "b.h5", rows=10))
    with pytest.raises(ValueError, match="got float32 of shape"):
        load_3dshapes(write(tmp_path / "c.h5", dtype="f4"))
    with pytest.raises(ValueError, match="'labels' are not in the order"):
        load_3dshapes(write(tmp_path / "d.h5", order=[1, 0, 2, 3, 4, 5]))
    plain = builtins.__import__
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *a: plain("no_such_h5py" if name == "h5py" else name, *a)
    )
    with pytest.raises(ImportError, match="needs h5py: pip install"):
        load_3dshapes(tmp_path / "text.h5")
