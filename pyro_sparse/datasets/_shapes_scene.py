r"""A room with an object, traced once for each geometry and coloured by the hues afterwards.

Rays from a camera that circles the object meet the floor, two walls or the object; shading is by one lamp,
:math:`\text{ambient} + \text{diffuse}\,\max(0, n^\top l)`, with a shadow and a highlight. For every scale,
shape and orientation this leaves four weights per pixel, and an image is

.. math:: x = c_{\text{floor}} F + c_{\text{wall}} W + c_{\text{object}} O + S.
"""

from __future__ import annotations

import functools

import numpy as np

from pyro_sparse.datasets._shapes_grid import LEVELS

__all__ = ["weights_of_pixels"]

_ROOM = 2.6  # half a side
_LAMP = np.array([-0.9, 0.1, 1.0]) / np.linalg.norm([-0.9, 0.1, 1.0])
_AMBIENT, _DIFFUSE, _SHADOW = 0.6, 0.4, 0.5
_SAMPLES = 2  # rays per pixel and direction


@functools.lru_cache(maxsize=2)
def weights_of_pixels(size: int) -> np.ndarray:
    """F, W, O and S: shape (scale, shape, orientation, 4, size * size), float32, weights between 0 and 1."""
    scales, shapes, angles = LEVELS["scale"], LEVELS["shape"], LEVELS["orientation"]
    maps = np.zeros((len(scales), len(shapes), len(angles), 4, size * size), dtype=np.float32)
    for k, angle in enumerate(angles):
        eye, rays = _camera(size, float(angle))
        points, floor, shade = _room(eye, rays)
        reach = np.linalg.norm(points - eye, axis=1)
        for i, scale in enumerate(scales):
            for j in range(len(shapes)):
                maps[i, j, k] = _mean(_traced(j, scale, eye, rays, points, reach, floor, shade), size)
    maps.flags.writeable = False  # every caller gets this very array
    return maps


def _camera(size: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Where the eye is, and the unit rays through all samples, row after row from the top left."""
    turn = np.deg2rad(225 + angle)
    eye = np.array([3.0 * np.cos(turn), 3.0 * np.sin(turn), 1.9])
    ahead = np.array([0.0, 0.0, 0.6]) - eye
    ahead /= np.linalg.norm(ahead)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    across = (np.arange(size * _SAMPLES) + 0.5) * 2 / (size * _SAMPLES) - 1
    u, v = np.meshgrid(0.4 * across, -0.4 * across)
    rays = ahead + u.reshape(-1, 1) * right + v.reshape(-1, 1) * np.cross(right, ahead)
    return eye, rays / np.linalg.norm(rays, axis=1, keepdims=True)


def _room(eye: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points where rays leave the room, whether that is the floor, and how bright it is there."""
    with np.errstate(divide="ignore"):
        far = np.stack([(_ROOM - eye[0]) / rays[:, 0], (_ROOM - eye[1]) / rays[:, 1], -eye[2] / rays[:, 2]])
    far[far <= 0] = np.inf
    first = far.argmin(axis=0)
    points = eye + far.min(axis=0)[:, None] * rays
    facing = np.array([[-1.0, 0, 0], [0, -1.0, 0], [0, 0, 1.0]]) @ _LAMP
    shade = (_AMBIENT + _DIFFUSE * np.maximum(facing, 0))[first]
    return points, first == 2, shade


def _traced(
    shape: int,
    scale: float,
    eye: np.ndarray,
    rays: np.ndarray,
    points: np.ndarray,
    reach: np.ndarray,
    floor: np.ndarray,
    shade: np.ndarray,
) -> np.ndarray:
    """The four weights of every ray: (4, ray)."""
    distance, normal = _hit(shape, scale, np.broadcast_to(eye, rays.shape), rays)
    visible = distance < reach
    lit = np.where(_hit(shape, scale, points, np.broadcast_to(_LAMP, rays.shape))[0] < np.inf, _SHADOW, 1.0)
    half = _LAMP - rays
    half /= np.linalg.norm(half, axis=1, keepdims=True)
    shine = 0.5 * np.maximum((normal * half).sum(axis=1), 0) ** 30
    body = _AMBIENT + _DIFFUSE * np.maximum(normal @ _LAMP, 0)
    return np.stack(
        [
            np.where(visible | ~floor, 0.0, shade * lit),
            np.where(visible | floor, 0.0, shade * lit),
            np.where(visible, body * (1 - shine), 0.0),
            np.where(visible, shine, 0.0),
        ]
    )


def _mean(weights: np.ndarray, size: int) -> np.ndarray:
    """Samples averaged over each pixel."""
    return weights.reshape(4, size, _SAMPLES, size, _SAMPLES).mean(axis=(2, 4)).reshape(4, -1)


def _hit(shape: int, scale: float, start: np.ndarray, ray: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance to the object, infinite where there is none, and the outward normal there.

    Only rays that come near are traced.
    """
    middle = np.array([0.0, 0.0, 0.6 * scale])
    along = ((middle - start) * ray).sum(axis=1)
    near = np.linalg.norm(start + along[:, None] * ray - middle, axis=1) < 0.95 * scale
    near &= along > -0.95 * scale
    distance, normal = np.full(len(ray), np.inf), np.zeros(ray.shape)
    o, d = start[near], ray[near]
    if shape == 0:
        intersection = _box(o, d, 0.46 * scale)
    elif shape == 1:
        intersection = _cylinder(o, d, 0.48 * scale, 1.05 * scale)
    elif shape == 2:
        intersection = _capsule(o, d, 0.58 * scale, 0.58 * scale, 0.58 * scale)
    else:
        intersection = _capsule(o, d, 0.36 * scale, 0.36 * scale, 1.0 * scale)
    distance[near], normal[near] = intersection
    return distance, normal


def _positive(t: np.ndarray) -> np.ndarray:
    return np.where(t > 1e-6, t, np.inf)


def _box(o: np.ndarray, d: np.ndarray, half: float) -> tuple[np.ndarray, np.ndarray]:
    """A cube on the floor, edges along the walls."""
    with np.errstate(divide="ignore", invalid="ignore"):
        to_low, to_high = (np.array([[-half, -half, 0.0], [half, half, 2 * half]])[:, None] - o) / d
    enter, leave = np.minimum(to_low, to_high), np.maximum(to_low, to_high)
    axis = enter.argmax(axis=1)
    first, last = enter.max(axis=1), leave.min(axis=1)
    normal = np.where(np.arange(3) == axis[:, None], -np.sign(d), 0.0)
    return np.where(first <= last, _positive(first), np.inf), normal


def _roots(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """First root of a t^2 + 2 b t + c; infinite where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        first = (-b - np.sqrt(b * b - a * c)) / a
    return _positive(np.nan_to_num(first, nan=np.inf))


def _side(o: np.ndarray, d: np.ndarray, radius: float, low: float, high: float) -> np.ndarray:
    """Distance to an upright tube."""
    flat_o, flat_d = o[:, :2], d[:, :2]
    t = _roots((flat_d**2).sum(1), (flat_o * flat_d).sum(1), (flat_o**2).sum(1) - radius**2)
    with np.errstate(invalid="ignore"):
        z = o[:, 2] + t * d[:, 2]
    return np.where((z >= low) & (z <= high), t, np.inf)


def _cylinder(o: np.ndarray, d: np.ndarray, radius: float, height: float) -> tuple[np.ndarray, np.ndarray]:
    side = _side(o, d, radius, 0.0, height)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = _positive((height - o[:, 2]) / d[:, 2])
        on = np.linalg.norm(o[:, :2] + top[:, None] * d[:, :2], axis=1) <= radius
    top = np.where(on, top, np.inf)
    t = np.minimum(side, top)
    point = o + np.where(np.isfinite(t), t, 0.0)[:, None] * d
    round_ = np.column_stack([point[:, :2] / radius, np.zeros(len(t))])
    return t, np.where((top <= side)[:, None], [0.0, 0.0, 1.0], round_)


def _capsule(
    o: np.ndarray, d: np.ndarray, radius: float, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """An upright tube with round ends at heights low and high; a sphere where they are one."""
    t = _side(o, d, radius, low, high)
    for z in (low, high):
        away = o - [0.0, 0.0, z]
        t = np.minimum(t, _roots(np.ones(len(o)), (away * d).sum(1), (away**2).sum(1) - radius**2))
    point = o + np.where(np.isfinite(t), t, 0.0)[:, None] * d
    centre = np.clip(point[:, 2:], low, high) * [0.0, 0.0, 1.0]
    return t, (point - centre) / radius
