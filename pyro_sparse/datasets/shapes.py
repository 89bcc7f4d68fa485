r"""Images of the six 3D Shapes factors: drawn here, or read from the published file.

480,000 images, one for each combination of floor hue (10 levels), wall hue (10), object hue (10), scale (8),
shape (4: cube, cylinder, sphere, capsule) and orientation (15), as in ``3dshapes.h5``. `render_shapes` draws
a room of its own with the same factors,

.. math:: x = c_{\text{floor}} F + c_{\text{wall}} W + c_{\text{object}} O + S, \qquad
          F, W, O, S \ \text{functions of scale, shape and orientation};

`load_3dshapes` reads the file; `shapes_data` puts either behind the tasks of the multi-task paper.
"""

from __future__ import annotations

import colorsys
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets._fetch import locate
from pyro_sparse.datasets._shapes_grid import COUNTS, LEVELS, grid, levels_of
from pyro_sparse.datasets._shapes_scene import weights_of_pixels
from pyro_sparse.datasets._stream import stream
from pyro_sparse.datasets.factor_images import FactorImages
from pyro_sparse.datasets.multitask import LATENT_NOISE, MultiTaskStream

__all__ = ["SHAPES_FACTORS", "Shapes3D", "load_3dshapes", "render_shapes", "shapes_data"]

SHAPES_FACTORS: dict[str, int] = dict(zip(LEVELS, COUNTS, strict=True))

# Images drawn at once: what stays in the processor's cache is faster by half.
_CHUNK = 256


def render_shapes(levels: ArrayLike, size: int = 32) -> np.ndarray:
    """Draw a room with an object.

    Two walls meet behind the object. The camera goes around it with the orientation, -30 to 30 degrees; the
    lamp stays where it is, so that shadows turn too.

    Parameters
    ----------
    levels : array_like of int, shape (..., 6)
        Level of each factor, in the order of `SHAPES_FACTORS`, counted from 0.
    size : int
        Rows and columns, at least 8. The first call with a size traces its 480 geometries (about a second for
        32, several for 64).

    Returns
    -------
    ndarray of shape (..., 3, size, size), dtype float32
        Red, green and blue in [0, 1].

    Raises
    ------
    ValueError
        If `levels` has another width, is not whole, or a level does not exist.

    Examples
    --------
    >>> render_shapes([[0, 3, 5, 7, 0, 7], [0, 3, 5, 7, 2, 7]], size=16).shape
    (2, 3, 16, 16)
    """
    check_whole(8, size=size)
    level = np.asarray(levels)
    if level.shape[-1:] != (len(COUNTS),) or not np.issubdtype(level.dtype, np.integer):
        raise ValueError(
            f"levels: want whole numbers of shape (..., {len(COUNTS)}), a level for each of "
            f"{', '.join(SHAPES_FACTORS)}, got shape {level.shape} of {level.dtype}"
        )
    wrong = (level < 0) | (level >= COUNTS)
    if wrong.any():
        k = int(np.argwhere(wrong)[0, -1])
        name = list(SHAPES_FACTORS)[k]
        raise ValueError(
            f"levels: {name} has the levels 0 to {COUNTS[k] - 1}, got {level[..., k][wrong[..., k]][0]}"
        )
    flat = level.reshape(-1, len(COUNTS))
    colours = np.ones((len(flat), 3, 4), dtype=np.float32)
    colours[..., :2] = _hues(0.7)[flat[:, :2]].swapaxes(1, 2)
    colours[..., 2] = _hues(1.0)[flat[:, 2]]
    weights = weights_of_pixels(size)
    images = np.empty((len(flat), 3, size * size), dtype=np.float32)
    for rows in (slice(i, i + _CHUNK) for i in range(0, len(flat), _CHUNK)):
        np.matmul(colours[rows], weights[tuple(flat[rows, 3:].T)], out=images[rows])
    return images.reshape(*level.shape[:-1], 3, size, size)


def _hues(saturation: float) -> np.ndarray:
    """Red, green and blue of every hue; the room is paler than the object, which may have its hue."""
    return np.array([colorsys.hsv_to_rgb(k / 10, saturation, 1.0) for k in range(10)], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Shapes3D(FactorImages):
    """The published images.

    Parameters
    ----------
    images : h5py.Dataset or ndarray of shape (480000, 64, 64, 3), dtype uint8
        All images.
    labels : ndarray of shape (480000, 6)
        The values of the factors as the file has them.
    factor_names : tuple of str
        The factors of `SHAPES_FACTORS`.
    """

    factor_names: tuple[str, ...] = tuple(SHAPES_FACTORS)


def load_3dshapes(path: str | os.PathLike[str]) -> Shapes3D:
    """Open the published file ``3dshapes.h5``; images are read when they are asked for.

    Where rows of the compressed file come too slowly and 5.9 GB of memory are there, hold them all:
    ``Shapes3D(shapes.images[:], shapes.labels)``.

    Parameters
    ----------
    path : path-like
        A local copy.

    Returns
    -------
    Shapes3D

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not the published file: no HDF5, other arrays, shapes or types, or labels in another order.
    ImportError
        If h5py is not installed.

    References
    ----------
    Burgess and Kim (2018), 3D Shapes dataset.
    """
    file = locate("3D Shapes", path, url=None, known_hash=None)
    try:
        import h5py
    except ImportError as error:
        raise ImportError("reading 3dshapes.h5 needs h5py: pip install 'pyro-sparse[data]'") from error
    assert isinstance(file, Path)
    try:
        opened = h5py.File(file, "r")
    except OSError as error:
        raise ValueError(f"path={str(path)!r} is not an HDF5 file; want 3dshapes.h5") from error
    n = int(np.prod(COUNTS))
    for name, shape, kind in (("images", (n, 64, 64, 3), "u1"), ("labels", (n, len(COUNTS)), "f8")):
        dataset = opened.get(name)
        if dataset is None or (dataset.shape, dataset.dtype) != (shape, np.dtype(kind)):
            got = "nothing" if dataset is None else f"{dataset.dtype} of shape {dataset.shape}"
            opened.close()
            raise ValueError(
                f"path={str(path)!r}: want {name!r}, {np.dtype(kind)} of shape {shape}, got {got}; "
                "is it the whole 3dshapes.h5?"
            )
    data = Shapes3D(opened["images"], opened["labels"][:])
    if not np.array_equal(data.levels, levels_of(np.arange(n))):
        opened.close()
        raise ValueError(
            f"path={str(path)!r}: 'labels' are not in the order of 3dshapes.h5, "
            "the last factor running fastest; want the file as published"
        )
    return data


def shapes_data(
    kind: str = "bernoulli",
    rho: float = 0.0,
    *,
    images: Shapes3D | None = None,
    size: int = 32,
    n_tasks: int = 8,
    n_samples: int = 50,
    latent_noise: float = 1.0,
    noise: float = 0.1,
    seed: int = 0,
) -> MultiTaskStream:
    """The 3D Shapes experiment: tasks whose labels are sparse functions of what an image shows.

    As `proxy_data`, with images in place of the linear mixing. Noise of the latents moves the labels, not the
    image: an image shows the middle of its cell.

    Parameters
    ----------
    kind, rho : str, float
        Distributions of the weights and of the latents, as in `proxy_data`.
    images : Shapes3D, optional
        The published images; by default they are drawn by `render_shapes`.
    size : int
        Rows and columns of drawn images.
    n_tasks, n_samples : int
        Tasks of a batch, and samples of a task.
    latent_noise, noise : float
        As in `proxy_data`.
    seed : int
        Seed of everything.

    Returns
    -------
    MultiTaskStream
        ``x`` of shape (task, sample, 3, size, size), float32.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Lachapelle, Deleu et al. (2023), section 5.1 and appendix D.2.1.

    Examples
    --------
    >>> shapes_data("block2", rho=0.5, size=16, n_tasks=2, n_samples=5).batch(step=0).x.shape
    (2, 5, 3, 16, 16)
    """
    check_whole(8, size=size)
    cells = grid(rho, latent_noise, stream(seed, LATENT_NOISE))
    settings = {
        "kind": kind,
        "rho": rho,
        "images": "rendered" if images is None else "3dshapes.h5",
        "size": size if images is None else 64,
        "n_tasks": n_tasks,
        "n_samples": n_samples,
        "latent_noise": latent_noise,
        "noise": noise,
        "seed": seed,
    }

    def drawn(where: np.ndarray) -> np.ndarray:
        return render_shapes(levels_of(where), size)

    observe = drawn if images is None else images.read
    return MultiTaskStream(cells, observe, kind, n_tasks, n_samples, noise, seed, None, settings)
