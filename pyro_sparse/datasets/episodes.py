r"""Few-shot episodes: N classes at random, k images of each to learn from, others as queries.

.. math:: \mathcal D_{\mathrm{support}} = \{(x_i, y_i)\}_{i \le Nk}, \qquad
          \mathcal D_{\mathrm{query}} = \{(x_i, y_i)\}_{i \le Nq}, \qquad y_i \in \{0, \dots, N-1\}

`Episodes` draws them from any labelled arrays, `load_image_folders` reads class folders (miniImageNet,
Omniglot), `split_classes` keeps training and test classes apart, and `glyphs` draws a stand-in for Omniglot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets._fetch import locate
from pyro_sparse.datasets._stream import stream

__all__ = ["Episode", "Episodes", "LabelledImages", "as_episode", "load_image_folders", "split_classes"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")


class Episode(NamedTuple):
    """One small classification problem, or a batch of them with a leading axis.

    Parameters
    ----------
    support_x : ndarray of shape (n_way * n_shot, ...)
        What to learn from, class after class.
    support_y : ndarray of shape (n_way * n_shot,), dtype int64
        Classes, 0 to n_way - 1.
    query_x : ndarray of shape (n_way * n_query, ...)
        What to classify.
    query_y : ndarray of shape (n_way * n_query,), dtype int64
        Their classes.
    """

    support_x: np.ndarray
    support_y: np.ndarray
    query_x: np.ndarray
    query_y: np.ndarray


def as_episode(
    support_x: ArrayLike, support_labels: ArrayLike, query_x: ArrayLike, query_labels: ArrayLike
) -> Episode:
    """An episode from a support and a query set with labels of any kind.

    Parameters
    ----------
    support_x : array_like of shape (n, ...)
        Inputs; bytes become float32 in [0, 1].
    support_labels : array_like of shape (n,)
        Their labels; the classes, sorted, become 0, 1, ...
    query_x : array_like of shape (n_query, ...)
        Inputs to classify.
    query_labels : array_like of shape (n_query,)
        Their labels.

    Returns
    -------
    Episode

    Raises
    ------
    ValueError
        If inputs and labels differ in length, or a label of the query is not in the support.

    Examples
    --------
    >>> as_episode([[0.0], [1.0]], ["b", "a"], [[0.9]], ["a"]).query_y
    array([0])
    """
    (xs, support), (xq, query) = _paired(support_x, support_labels), _paired(query_x, query_labels)
    classes, support_y = np.unique(support, return_inverse=True)
    unseen = np.setdiff1d(query, classes)
    if unseen.size:
        raise ValueError(
            f"query_labels: {unseen[0].item()!r} is not in the support, which has {classes[:5].tolist()}; "
            "leave those queries out, or give the support an example"
        )
    return Episode(_unit(xs), support_y, _unit(xq), np.searchsorted(classes, query))


@dataclass(frozen=True, eq=False)
class Episodes:
    """N-way k-shot episodes without end, drawn from labelled arrays.

    An episode depends on the seed and its number alone. Iterating gives episodes 0, 1, 2, ...

    Parameters
    ----------
    x : ndarray of shape (row, ...)
        Inputs; bytes become float32 in [0, 1] in the episodes.
    labels : ndarray of shape (row,)
        Labels of any kind.
    n_way : int
        Classes of an episode; at least 2.
    n_shot, n_query : int
        Rows of each class in the support and among the queries; no row is in both.
    seed : int
        Seed of the draw.

    Raises
    ------
    ValueError
        If there are fewer classes than `n_way`, a class has fewer than ``n_shot + n_query`` rows, x and
        labels differ in length, or a number is out of range.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits()
    >>> episodes = Episodes(digits.images, digits.target, n_way=5, n_shot=1, n_query=3)
    >>> support_x, support_y, query_x, query_y = episodes.episode(0)
    >>> support_x.shape, support_y.tolist(), query_x.shape
    ((5, 8, 8), [0, 1, 2, 3, 4], (15, 8, 8))
    >>> episodes.batch(step=0, n_episodes=4).query_x.shape
    (4, 15, 8, 8)
    """

    x: np.ndarray
    labels: np.ndarray
    n_way: int = 5
    n_shot: int = 1
    n_query: int = 15
    seed: int = 0
    _rows: list[np.ndarray] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        check_whole(2, n_way=self.n_way)
        check_whole(1, n_shot=self.n_shot, n_query=self.n_query)
        check_whole(0, seed=self.seed)
        x, labels = _paired(self.x, self.labels)
        classes, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        if len(classes) < self.n_way:
            raise ValueError(
                f"labels: n_way={self.n_way} classes are wanted, but there are {len(classes)}; lower n_way"
            )
        few, need = int(sizes.argmin()), self.n_shot + self.n_query
        if sizes[few] < need:
            raise ValueError(
                f"labels: class {classes[few].item()!r} has {sizes[few]} rows, but n_shot={self.n_shot} and "
                f"n_query={self.n_query} need {need} of each class; lower one, or leave the class out"
            )
        rows = np.split(np.argsort(inverse, kind="stable"), np.cumsum(sizes)[:-1])
        for name, value in (("x", x), ("labels", labels), ("_rows", rows)):
            object.__setattr__(self, name, value)

    def episode(self, step: int) -> Episode:
        """The episode of a number.

        Parameters
        ----------
        step : int
            At least 0.

        Returns
        -------
        Episode

        Raises
        ------
        ValueError
            If `step` is negative or not a whole number.
        """
        check_whole(0, step=step)
        rng = stream(self.seed, step)
        chosen = [
            rng.choice(self._rows[k], size=self.n_shot + self.n_query, replace=False)
            for k in rng.choice(len(self._rows), size=self.n_way, replace=False)
        ]
        support, query = np.split(np.stack(chosen), [self.n_shot], axis=1)
        way = np.arange(self.n_way)
        return Episode(
            _unit(self.x[support.ravel()]),
            np.repeat(way, self.n_shot),
            _unit(self.x[query.ravel()]),
            np.repeat(way, self.n_query),
        )

    def batch(self, step: int, n_episodes: int) -> Episode:
        """Several episodes at once: numbers ``step * n_episodes`` and following.

        Parameters
        ----------
        step : int
            At least 0; batches of different steps share no episode.
        n_episodes : int
            How many.

        Returns
        -------
        Episode
            With a leading axis: (episode, n, ...).

        Raises
        ------
        ValueError
            If a number is out of range.
        """
        check_whole(0, step=step)
        check_whole(1, n_episodes=n_episodes)
        drawn = [self.episode(step * n_episodes + i) for i in range(n_episodes)]
        return Episode(*(np.stack(arrays) for arrays in zip(*drawn, strict=True)))

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(step) for step in count())


def split_classes(
    labels: ArrayLike, n_train: int, n_validation: int = 0, seed: int = 0
) -> dict[str, np.ndarray]:
    """Rows of training, validation and test classes: no class is in two splits.

    Parameters
    ----------
    labels : array_like of shape (row,)
        Labels of any kind.
    n_train, n_validation : int
        Classes of the first two splits, chosen at random; the test split has all others, at least one.
    seed : int
        Seed of the choice.

    Returns
    -------
    dict of str to ndarray of int
        Row numbers of ``"train"``, ``"validation"`` and ``"test"``, increasing.

    Raises
    ------
    ValueError
        If there are too few classes, or a number is out of range.

    Examples
    --------
    >>> {name: rows.tolist() for name, rows in split_classes(["a", "b", "a", "c"], n_train=1).items()}
    {'train': [3], 'validation': [], 'test': [0, 1, 2]}
    """
    check_whole(1, n_train=n_train)
    check_whole(0, n_validation=n_validation)
    classes, inverse = np.unique(np.asarray(labels), return_inverse=True)
    if n_train + n_validation >= len(classes):
        raise ValueError(
            f"n_train={n_train}, n_validation={n_validation}: want fewer than the {len(classes)} classes "
            "that there are, so that some are left to test on"
        )
    order = stream(seed).permutation(len(classes))
    groups = np.split(order, [n_train, n_train + n_validation])
    names = ("train", "validation", "test")
    return {name: np.flatnonzero(np.isin(inverse, group)) for name, group in zip(names, groups, strict=True)}


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and their classes.

    Parameters
    ----------
    x : ndarray of shape (image, channel, row, column), dtype uint8
        Brightness, 0 to 255.
    labels : ndarray of shape (image,), dtype int64
        Class of each image, 0, 1, ...
    class_names : tuple of str
        Name of each class.
    """

    x: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]


def load_image_folders(
    path: str | os.PathLike[str], size: int, *, depth: int = 1, grayscale: bool = False
) -> LabelledImages:
    """Images of a folder that has a folder for each class.

    ============  =============================================  ====================================
    data set      files                                          arguments
    ============  =============================================  ====================================
    miniImageNet  ``train/n01532829/*.jpg``; val and test alike  ``"train", size=84``
    Omniglot      ``images_background/Greek/character01/*.png``  ``size=28, depth=2, grayscale=True``
    ============  =============================================  ====================================

    Parameters
    ----------
    path : path-like
        Folder that holds the classes, or with ``depth=2`` the groups of classes (alphabets).
    size : int
        Rows and columns that every image is resized to, whatever its proportions.
    depth : {1, 2}
        Levels of folders above the images.
    grayscale : bool
        One channel instead of three.

    Returns
    -------
    LabelledImages
        Classes in the order of their names, which are folder names (``"Greek/character01"``).

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If there is no class at that depth, a class has no image, or a file is not one.
    ImportError
        If Pillow is not installed.
    """
    check_whole(1, size=size)
    if depth not in (1, 2):
        raise ValueError(f"depth={depth!r}: want 1 (a folder per class) or 2 (a folder per group of classes)")
    root = locate("the class folders", path, url=None, known_hash=None)
    assert isinstance(root, Path)
    if not root.is_dir():
        raise ValueError(f"path={str(path)!r}: want a folder of class folders, got a file; unpack it first")
    folders = sorted(f for f in root.glob("/".join("*" * depth)) if f.is_dir() and f.name[0] != ".")
    if not folders:
        raise ValueError(f"path={str(path)!r}: no folder is {depth} deep; give the one above the classes")
    images, labels = [], []
    for k, folder in enumerate(folders):
        files = sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES)
        if not files:
            raise ValueError(
                f"path={str(path)!r}: class {folder.name!r} has no image ({', '.join(SUFFIXES)}); "
                f"are classes {3 - depth} deep (depth={3 - depth})?"
            )
        images += [_read(file, size, "L" if grayscale else "RGB") for file in files]
        labels += [k] * len(files)
    names = tuple(f.relative_to(root).as_posix() for f in folders)
    return LabelledImages(np.stack(images), np.array(labels, dtype=np.int64), names)


def _read(file: Path, size: int, mode: str) -> np.ndarray:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ImportError("reading images needs Pillow: pip install 'pyro-sparse[plots]'") from error
    try:
        with Image.open(file) as image:
            pixels = np.asarray(image.convert(mode).resize((size, size), Image.Resampling.BILINEAR))
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{file} is not an image that can be read; fix or remove it") from error
    return pixels.reshape(size, size, -1).transpose(2, 0, 1)


def _paired(x: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    x, labels = np.asarray(x), np.asarray(labels)
    if x.ndim < 1 or labels.ndim != 1 or len(x) != len(labels):
        raise ValueError(
            f"x, labels: want shape (n, ...) and (n,), got {x.shape} and {labels.shape}; "
            "want one label for each row"
        )
    return x, labels


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.float32(255) if x.dtype == np.uint8 else x
