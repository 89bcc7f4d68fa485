r"""Letters nobody has seen: a few curved strokes per class, drawn by many hands.

A class is one to four quadratic Bézier curves with control points c. A drawing of it is the same curves with
shaky control points, turned, sheared, scaled and moved (A, b), in a pen of half-width h:

.. math:: x(p) = \operatorname{clip}\bigl(\tfrac12 + \tfrac{h - d(p)}{\text{pixel}}, 0, 1\bigr), \qquad
          d(p) = \min_{\text{stroke}, t} \bigl\| p - A\,B_t(c + \epsilon) - b \bigr\|

A stand-in for Omniglot where its images are not at hand: many classes, few drawings of each.
"""

from __future__ import annotations

import numpy as np

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets._stream import stream
from pyro_sparse.datasets.episodes import LabelledImages

__all__ = ["glyphs"]

_T = np.linspace(0.0, 1.0, 49)
_BERNSTEIN = np.stack([(1 - _T) ** 2, 2 * _T * (1 - _T), _T**2], axis=1)  # (point, control)


def glyphs(n_classes: int, n_per_class: int = 20, size: int = 28, seed: int = 0) -> LabelledImages:
    """Draw glyphs of random classes, bright on black.

    Parameters
    ----------
    n_classes : int
        Classes; those of a smaller number are the first of a larger one.
    n_per_class : int
        Drawings of each class; 20, as in Omniglot.
    size : int
        Rows and columns of an image, at least 8.
    seed : int
        Seed of everything.

    Returns
    -------
    LabelledImages
        ``x`` of shape (n_classes * n_per_class, 1, size, size), class after class.

    Raises
    ------
    ValueError
        If an argument is not a whole number or too small.

    Examples
    --------
    >>> images = glyphs(n_classes=10, n_per_class=4, size=20)
    >>> images.x.shape, images.labels[:6].tolist(), images.class_names[:2]
    ((40, 1, 20, 20), [0, 0, 0, 0, 1, 1], ('glyph 0', 'glyph 1'))
    """
    check_whole(1, n_classes=n_classes, n_per_class=n_per_class)
    check_whole(8, size=size)
    drawings = [_draw(n_per_class, size, stream(seed, k)) for k in range(n_classes)]
    return LabelledImages(
        x=np.concatenate(drawings)[:, None],
        labels=np.repeat(np.arange(n_classes), n_per_class),
        class_names=tuple(f"glyph {k}" for k in range(n_classes)),
    )


def _draw(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """All drawings of one new class: (n, size, size) bytes. The page is [-1, 1] in both directions."""
    strokes = _strokes(rng)
    shaky = strokes + rng.normal(0, 0.05, (n, *strokes.shape))
    angle, shear = rng.normal(0, 0.12, (2, n))
    scale = rng.uniform(0.85, 1.1, (2, n))
    shift = rng.normal(0, 0.06, (n, 1, 2))
    pen = rng.uniform(0.07, 0.13, (n, 1))
    cos, sin, none = np.cos(angle), np.sin(angle), np.zeros(n)
    turned = np.moveaxis(np.array([[cos, -sin], [sin, cos]]), -1, 0)
    sheared = np.moveaxis(np.array([[scale[0], shear], [none, scale[1]]]), -1, 0)
    points = (_BERNSTEIN @ shaky).reshape(n, -1, 2) @ (turned @ sheared).swapaxes(1, 2) + shift
    middle = (np.arange(size) + 0.5) * 2 / size - 1
    dx, dy = (np.square(middle - points[..., k, None], dtype=np.float32) for k in (0, 1))
    distance = np.sqrt((dy[:, :, :, None] + dx[:, :, None, :]).min(axis=1))
    ink = np.clip(0.5 + (pen[..., None] - distance) * size / 2, 0, 1)
    return np.round(255 * ink).astype(np.uint8)


def _strokes(rng: np.random.Generator) -> np.ndarray:
    """Control points of a class, of shape (stroke, 3, 2): strokes long enough to be seen."""
    ends: list[np.ndarray] = []
    wanted = rng.integers(1, 5)
    while len(ends) < wanted:
        stroke = rng.uniform(-0.7, 0.7, (3, 2))
        if np.linalg.norm(stroke[2] - stroke[0]) > 0.6:
            ends.append(stroke)
    return np.stack(ends)
