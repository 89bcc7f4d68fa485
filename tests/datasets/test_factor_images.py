"""Readers of Cars3D and MPI3D against small files of the published layouts."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from pyro_sparse.datasets import load_cars3d, load_mpi3d
from pyro_sparse.datasets.factor_images import FactorImages
from pyro_sparse.datasets.shapes import SHAPES_FACTORS, Shapes3D

SMALL = (2, 1, 2, 1, 1, 2, 3)  # stands for the counts of MPI3D


def images(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 64, 64, 3), dtype=np.uint8)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr("pyro_sparse.datasets.factor_images._MPI_COUNTS", {24: SMALL})
    return images(24)


def car(seed, pixels=128):
    return np.random.default_rng(seed).integers(0, 256, (pixels, pixels, 3, 24, 4), dtype=np.uint8)


def test_levels_are_ranks_of_values():
    labels = np.array([[0.5, -3.0], [0.1, 2.0], [0.5, 2.0], [0.9, -3.0]])
    record = FactorImages(images(4), labels, ("hue", "turn"))
    assert record.levels.tolist() == [[1, 0], [0, 1], [1, 1], [2, 0]]
    assert record.levels is record.levels  # sorted once
    shapes = Shapes3D(images(4), np.zeros((4, 6)))
    assert shapes.factor_names == tuple(SHAPES_FACTORS) and isinstance(shapes, FactorImages)


def test_rows_are_read_in_any_order():
    pictures = images(5)
    record = FactorImages(pictures, np.arange(5)[:, None], ("row",))
    found = record.read([[4, 0], [0, 2]])
    assert found.shape == (2, 2, 3, 64, 64) and found.dtype == np.float32
    wanted = pictures[[4, 0, 0, 2]].transpose(0, 3, 1, 2) / 255
    np.testing.assert_allclose(found.reshape(4, 3, 64, 64), wanted, atol=1e-6)
    for bad in ([5], [-1], [0.5]):
        with pytest.raises(ValueError, match="cells: want whole numbers from 0 to 4"):
            record.read(bad)


@pytest.mark.parametrize("size", [128, 64, 32])
def test_cars_are_views_in_order(tmp_path, size):
    cars = [car(seed) for seed in range(3)]
    for name, pixels in zip(("b", "c", "a"), cars, strict=True):
        savemat(tmp_path / f"car_{name}_mesh.mat", {"im": pixels})
    (tmp_path / "list.txt").write_text("not a car")
    record = load_cars3d(tmp_path, size=size)
    assert record.factor_names == ("elevation", "azimuth", "object")
    assert record.images.shape == (288, size, size, 3) and record.images.dtype == np.uint8
    np.testing.assert_array_equal(record.levels, record.labels)
    assert record.levels.max(0).tolist() == [3, 23, 2] and len(np.unique(record.levels, axis=0)) == 288
    step = 128 // size
    for row in (0, 5, 137, 287):
        elevation, azimuth, k = record.levels[row]
        view = cars[[2, 0, 1][k]][..., azimuth, elevation].astype(float)  # by name: a, b, c
        wanted = sum(view[i::step, j::step] for i in range(step) for j in range(step)) / step**2
        np.testing.assert_allclose(record.images[row], wanted, atol=0.5 + 1e-9)
        np.testing.assert_allclose(record.read(row) * 255, record.images[row].transpose(2, 0, 1), atol=1e-3)


def test_other_folders_are_no_cars(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_cars3d(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="want the folder of the .mat files of Cars3D, found none"):
        load_cars3d(tmp_path)
    with pytest.raises(ValueError, match="size: want a whole number of at least .*, got 0"):
        load_cars3d(tmp_path, size=0)
    (tmp_path / "a.mat").write_bytes(b"no" * 200)
    with pytest.raises(ValueError, match=r"a\.mat is not a MATLAB file of version 5"):
        load_cars3d(tmp_path)
    savemat(tmp_path / "whole.mat", {"im": car(0)}, do_compression=True)
    published = (tmp_path / "whole.mat").read_bytes()
    (tmp_path / "whole.mat").unlink()
    for length in (0, 100, 1000, len(published) - 50):
        (tmp_path / "a.mat").write_bytes(published[:length])
        with pytest.raises(ValueError, match=r"a\.mat is not a MATLAB file of version 5"):
            load_cars3d(tmp_path)
    savemat(tmp_path / "a.mat", {"pictures": car(0)})
    with pytest.raises(ValueError, match=r"a\.mat: want 'im', uint8 .* got nothing"):
        load_cars3d(tmp_path)
    savemat(tmp_path / "a.mat", {"im": car(0, pixels=8).swapaxes(3, 4)})
    with pytest.raises(ValueError, match=r"got uint8 of shape \(8, 8, 3, 4, 24\); is it a car of Cars3D"):
        load_cars3d(tmp_path)
    savemat(tmp_path / "a.mat", {"im": car(0, pixels=8)})
    with pytest.raises(ValueError, match=r"size=64 does not divide the 8 x 8 pixels of a\.mat"):
        load_cars3d(tmp_path)


@pytest.mark.parametrize("form", ["stored", "compressed", "npy", "behind another"])
def test_mpi3d_is_mapped_where_it_can_be(tmp_path, small, form):
    file = tmp_path / ("mpi3d_toy.npy" if form == "npy" else "mpi3d_toy.npz")
    if form == "npy":
        np.save(file, small)
    elif form == "compressed":
        np.savez_compressed(file, images=small)
    elif form == "stored":
        np.savez(file, images=small)
    else:
        np.savez(file, about=np.arange(7), images=small)
    record = load_mpi3d(file)
    assert isinstance(record.images, np.memmap) == (form != "compressed")
    np.testing.assert_array_equal(record.images, small)
    assert record.images.dtype == np.uint8 and not (form != "compressed" and record.images.flags.writeable)
    grid = np.stack(np.meshgrid(*map(np.arange, SMALL), indexing="ij"), -1).reshape(-1, 7)
    np.testing.assert_array_equal(record.labels, grid)
    np.testing.assert_array_equal(record.levels, grid)
    assert record.factor_names[0] == "object_color" and len(record.factor_names) == 7
    np.testing.assert_allclose(record.read([23])[0], small[23].transpose(2, 0, 1) / 255, atol=1e-6)


def test_arrays_by_column_are_mapped_too(tmp_path, small):
    np.savez(tmp_path / "a.npz", images=np.asfortranarray(small))
    np.testing.assert_array_equal(load_mpi3d(tmp_path / "a.npz").images, small)


def test_published_sizes():
    from pyro_sparse.datasets.factor_images import _MPI_COUNTS

    assert {n: int(np.prod(counts)) for n, counts in _MPI_COUNTS.items()} == {n: n for n in _MPI_COUNTS}


def test_other_files_are_no_mpi3d(tmp_path, small):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_mpi3d(tmp_path / "nowhere.npz")
    for name in ("text.npz", "text.npy", "empty.npy"):
        (tmp_path / name).write_text(
            "" if name == "empty.npy" else "no npz at all, but long enough to be read"
        )
        with pytest.raises(ValueError, match="is not an .npz or .npy file; want mpi3d"):
            load_mpi3d(tmp_path / name)
    np.savez(tmp_path / "a.npz", pictures=small)
    with pytest.raises(ValueError, match="want 'images', uint8 .* got nothing"):
        load_mpi3d(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=small[:5])
    with pytest.raises(ValueError, match=r"with N one of 24, got uint8 of shape \(5, 64, 64, 3\)"):
        load_mpi3d(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=small / 255)
    with pytest.raises(ValueError, match="got float64 of shape"):
        load_mpi3d(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", b"no array")
    with pytest.raises(ValueError, match="is not an .npz or .npy file"):
        load_mpi3d(tmp_path / "a.npz")
