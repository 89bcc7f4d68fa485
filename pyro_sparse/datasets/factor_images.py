r"""Images of every combination of some factors, and readers of the published Cars3D and MPI3D files.

A record of images :math:`x_r` and of the factors' values :math:`v_r`, row by row; level :math:`\ell_{rk}` of
factor k is the rank of its value, so that metrics of discrete factors can be asked of any encoder:
``factor_vae_score(images.levels[rows], encode(images.read(rows)))``. `load_cars3d` and `load_mpi3d` read
local copies, `load_3dshapes` those of 3D Shapes; nothing is downloaded.
"""

from __future__ import annotations

import os
import struct
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets._fetch import locate

if TYPE_CHECKING:
    import h5py

__all__ = ["FactorImages", "load_cars3d", "load_mpi3d"]

_CARS = ("elevation", "azimuth", "object")
_CARS_VIEWS = (4, 24)
_MPI = (
    "object_color",
    "object_shape",
    "object_size",
    "camera_height",
    "background_color",
    "horizontal_axis",
    "vertical_axis",
)
# By the number of images: the toy, realistic and real files; the real one with complex shapes.
_MPI_COUNTS = {1_036_800: (6, 6, 2, 3, 3, 40, 40), 460_800: (4, 4, 2, 3, 3, 40, 40)}
_MPI_IMAGE = (64, 64, 3)


@dataclass(frozen=True, eq=False)
class FactorImages:
    """Images and the factors that they show.

    Parameters
    ----------
    images : array of shape (N, height, width, channel), dtype uint8
        All images: in memory, or on disk (h5py.Dataset, numpy.memmap).
    labels : ndarray of shape (N, F)
        The values of the factors, as published.
    factor_names : tuple of str, length F
        Labels of the columns.
    """

    images: np.ndarray | h5py.Dataset
    labels: np.ndarray
    factor_names: tuple[str, ...]

    @cached_property
    def levels(self) -> np.ndarray:
        """Level of each factor, counted from 0 in the order of its values: shape (N, F), dtype int."""
        return np.column_stack([np.unique(column, return_inverse=True)[1] for column in self.labels.T])

    def read(self, cells: ArrayLike) -> np.ndarray:
        """Images of some rows.

        Parameters
        ----------
        cells : array_like of int, shape (...)
            Row numbers, in any order, with repeats.

        Returns
        -------
        ndarray of shape (..., channel, height, width), dtype float32
            Red, green and blue in [0, 1].

        Raises
        ------
        ValueError
            If there is no such row.
        """
        rows = np.asarray(cells)
        if not np.issubdtype(rows.dtype, np.integer) or ((rows < 0) | (rows >= len(self.labels))).any():
            raise ValueError(
                f"cells: want whole numbers from 0 to {len(self.labels) - 1}, got {rows.dtype} "
                f"from {rows.min()} to {rows.max()}"
            )
        # HDF5 gives rows in increasing order, each once.
        once, back = np.unique(rows, return_inverse=True)
        pixels = np.moveaxis(self.images[once], -1, 1)
        return pixels[back.reshape(rows.shape)] / np.float32(255)


def load_cars3d(path: str | os.PathLike[str], size: int = 64) -> FactorImages:
    """Read the folder of Cars3D meshes: 4 elevations times 24 azimuths of each car, 183 cars as published.

    Every file is one car, an array ``im`` of shape (128, 128, 3, 24, 4): row, column, colour, azimuth,
    elevation. The cars are numbered in the order of the files' names.

    Parameters
    ----------
    path : path-like
        Folder of the ``.mat`` files (``data/cars`` of the published archive).
    size : int
        Rows and columns; smaller images are means over squares, so that it must divide the published 128.

    Returns
    -------
    FactorImages
        Factors elevation, azimuth, object; the last runs fastest. 216 MB at size 64, in memory.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no ``.mat`` file in it.
    ValueError
        If a file is not a car, or `size` does not divide its images.

    References
    ----------
    Reed, Zhang, Zhang and Lee (2015), *Deep visual analogy-making*.
    """
    check_whole(1, size=size)
    folder = locate("Cars3D", path, url=None, known_hash=None)
    assert isinstance(folder, Path)
    files = sorted(folder.glob("*.mat"))
    if not files:
        raise FileNotFoundError(
            f"path={str(path)!r}: want the folder of the .mat files of Cars3D, found none"
        )
    images = np.empty((*_CARS_VIEWS, len(files), size, size, 3), dtype=np.uint8)
    for car, file in enumerate(files):
        images[:, :, car] = _car(file, size)
    counts = images.shape[:3]
    return FactorImages(images.reshape(-1, size, size, 3), _all_levels(counts), _CARS)


def _car(file: Path, size: int) -> np.ndarray:
    """Views of one car: (elevation, azimuth, row, column, colour)."""
    from scipy.io import loadmat

    try:
        images = loadmat(file).get("im")
    except Exception as error:  # SciPy has an error for each place where a file may end
        raise ValueError(
            f"{file.name} is not a MATLAB file of version 5; want the files as published"
        ) from error
    if (
        images is None
        or images.ndim != 5
        or images.shape[2:] != (3, *_CARS_VIEWS[::-1])
        or images.dtype != np.uint8
    ):
        got = "nothing" if images is None else f"{images.dtype} of shape {images.shape}"
        raise ValueError(
            f"{file.name}: want 'im', uint8 of shape (rows, columns, 3, 24, 4), got {got}; "
            "is it a car of Cars3D?"
        )
    rows, columns = images.shape[:2]
    if rows != columns or rows % size:
        raise ValueError(f"size={size} does not divide the {rows} x {columns} pixels of {file.name}")
    views = images.transpose(4, 3, 0, 1, 2)
    step = rows // size
    squares = views.reshape(*_CARS_VIEWS, size, step, size, step, 3).mean((3, 5))
    return np.rint(squares).astype(np.uint8)


def load_mpi3d(path: str | os.PathLike[str]) -> FactorImages:
    """Open a file of MPI3D images; they are read when they are asked for.

    An ``.npz`` file whose array ``images`` is stored as it is, or an ``.npy`` file, is mapped into memory; a
    compressed one is unpacked, 13 GB for 1,036,800 images.

    Parameters
    ----------
    path : path-like
        A local copy, ``mpi3d_toy.npz`` or one like it.

    Returns
    -------
    FactorImages
        Seven factors, the last runs fastest: object colour, shape and size (6, 6, 2 levels; 4, 4, 2 in files
        of 460,800 images), camera height (3), background colour (3), horizontal and vertical axis (40, 40).

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it has no ``images``, or they are not 64 x 64 x 3 bytes, as many as combinations of the factors.

    References
    ----------
    Gondal et al. (2019), *On the transfer of inductive bias from simulation to the real world*,
    arXiv 1906.03292.
    """
    file = locate("MPI3D", path, url=None, known_hash=None)
    assert isinstance(file, Path)
    try:
        images = _mapped(file)
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        raise ValueError(f"path={str(path)!r} is not an .npz or .npy file; want mpi3d_*.npz") from error
    counts = None if images is None else _MPI_COUNTS.get(len(images))
    if images is None or counts is None or images.shape[1:] != _MPI_IMAGE or images.dtype != np.uint8:
        got = "nothing" if images is None else f"{images.dtype} of shape {images.shape}"
        raise ValueError(
            f"path={str(path)!r}: want 'images', uint8 of shape (N, 64, 64, 3) with N one of "
            f"{', '.join(map(str, _MPI_COUNTS))}, got {got}; is it a whole file of MPI3D?"
        )
    return FactorImages(images, _all_levels(counts), _MPI)


def _mapped(file: Path) -> np.ndarray | None:
    """The array ``images`` of an archive, or the array of an .npy file, on disk if it can be."""
    if file.suffix == ".npy":
        return np.load(file, mmap_mode="r")
    with zipfile.ZipFile(file) as archive:
        if "images.npy" not in archive.namelist():
            return None
        member = archive.getinfo("images.npy")
        with archive.open(member) as inside:
            if member.compress_type != zipfile.ZIP_STORED:
                return np.lib.format.read_array(inside)
            version = np.lib.format.read_magic(inside)
            header = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, by_column, dtype = header(inside)
            begin = inside.tell()
    with open(file, "rb") as raw:  # the name and the extra field before the data have lengths of their own
        raw.seek(member.header_offset + 26)
        begin += member.header_offset + 30 + sum(struct.unpack("<HH", raw.read(4)))
    return np.memmap(file, dtype, "r", begin, shape, "F" if by_column else "C")


def _all_levels(counts: tuple[int, ...]) -> np.ndarray:
    return np.stack(np.unravel_index(np.arange(np.prod(counts)), counts), axis=-1)
