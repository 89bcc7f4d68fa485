r"""Checked inputs of sparse linear rows, and all that their likelihood needs of them.

With weights in units of the slab, :math:`w = S u`, and columns centred if there is an intercept,

.. math:: \log p(y \mid u, \sigma) = -\tfrac{\nu}{2} \log 2\pi\sigma^2 - \tfrac12 \log n -
          \tfrac1{2\sigma^2} (y'y - 2 u'SF'y + u'SF'FSu), \qquad \nu = n - 1
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..density.weight import SpikeSlab
from .rows import RowPrior

__all__ = [
    "Rows",
    "first_noise",
    "pooled",
    "rows_of",
    "slab_unit",
    "tables",
]


Array = NDArray[np.float64]


class Rows(NamedTuple):
    """Sufficient statistics, in units of the slab's scale.

    Attributes
    ----------
    gram : ndarray of shape (..., task, feature, feature)
        SF'FS. Exactly zero at columns that are constant.
    cross : ndarray of shape (..., task, feature)
        SF'y.
    square : ndarray of shape (..., task)
        y'y.
    samples : ndarray of shape (..., task)
        n, samples that exist.
    dof : ndarray of shape (..., task)
        n - 1 with an intercept, else n.
    scale : ndarray of shape (..., task, feature)
        S.
    log_odds : ndarray of shape (..., task, feature), or None
        Of a known eta.
    noise : ndarray of shape (..., task), or None
        Known variances.
    density : SpikeSlab
    """

    gram: Array
    cross: Array
    square: Array
    samples: Array
    dof: Array
    scale: Array
    log_odds: Array | None
    noise: Array | None
    density: SpikeSlab

    def flat(self) -> Rows:
        """The same rows along one axis."""
        m = self.cross.shape[-1]

        def reshaped(v: Array | None, *shape: int) -> Any:
            return None if v is None else v.reshape(-1, *shape)

        return Rows(
            gram=reshaped(self.gram, m, m),
            cross=reshaped(self.cross, m),
            square=reshaped(self.square),
            samples=reshaped(self.samples),
            dof=reshaped(self.dof),
            scale=reshaped(self.scale, m),
            log_odds=reshaped(self.log_odds, m),
            noise=reshaped(self.noise),
            density=self.density._replace(ratio=reshaped(self.density.ratio, m)),
        )

    def take(self, index: NDArray[np.intp]) -> Rows:
        """Some of the rows, which must be flat; one may be taken several times."""

        def taken(v: Array | None) -> Any:
            return None if v is None else v[index]

        density = self.density._replace(ratio=self.density.ratio[index])
        fields: Any = [*(taken(v) for v in self[:-1]), density]
        return Rows(*fields)


def rows_of(features: ArrayLike, targets: ArrayLike, prior: RowPrior, mask: ArrayLike | None) -> Rows:
    """Check everything; sums over samples.

    Raises
    ------
    ValueError
        If a shape does not fit, a sample that exists is not finite, or a task has too few samples.
    """
    x, y, observed = tables(features, targets, mask)
    count = observed.sum(-1)
    if (count < 1).any():
        task = tuple(int(i) for i in np.argwhere(count < 1)[0])
        raise ValueError(f"mask: task {task} has no samples, want at least 1; drop the task")
    raw = np.abs(x).max(-2, initial=0)
    if prior.intercept:
        n = count[..., None]
        x = np.where(observed[..., None], x - (x.sum(-2) / n)[..., None, :], 0.0)
        y = np.where(observed, y - y.sum(-1, keepdims=True) / n, 0.0)
    # A constant column is all rounding after centring: it must not look like a tiny signal.
    still = np.abs(x).max(-2) <= 64 * np.finfo(float).eps * raw
    x = np.where(still[..., None, :], 0.0, x)
    scale = _fit(prior.slab_scale, "slab_scale", (*y.shape[:-1], x.shape[-1]), "(..., task, feature)")
    noise = None
    if prior.noise_variance is not None:
        noise = _fit(prior.noise_variance, "noise_variance", y.shape[:-1], "(..., task)")
    ratio = prior.spike_scale / scale
    if prior.slab_units == "noise" and noise is not None:
        scale = scale * np.sqrt(noise)[..., None]
    x = x * scale[..., None, :]
    log_odds = None
    if prior.eta is not None:
        eta = _fit(prior.eta, "eta", scale.shape, "(..., task, feature)")
        log_odds = np.log(eta) - np.log1p(-eta)
    return Rows(
        gram=np.swapaxes(x, -1, -2) @ x,
        cross=(x * y[..., None]).sum(-2),
        square=(y**2).sum(-1),
        samples=count.astype(float),
        dof=(count - prior.intercept).astype(float),
        scale=scale,
        log_odds=log_odds,
        noise=noise,
        density=SpikeSlab(prior.slab == "laplace", ratio),
    )


def tables(
    features: ArrayLike, targets: ArrayLike, mask: ArrayLike | None
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Features and targets, checked, zero where no sample is; which samples are."""
    x, y = _array(features), _array(targets)
    if x.ndim < 3 or not x.size:
        raise ValueError(
            f"features: want shape (..., task, sample, feature), none of them 0, got {x.shape}; one table "
            "for all tasks can be passed as numpy.broadcast_to(table, (tasks, *table.shape))"
        )
    if y.shape != x.shape[:-1]:
        raise ValueError(f"targets: want the tasks and samples of features, {x.shape[:-1]}, got {y.shape}")
    observed = np.ones(y.shape, dtype=bool) if mask is None else np.asarray(_plain(mask))
    if observed.shape != y.shape or not np.isin(observed, (0, 1)).all():
        raise ValueError(
            f"mask: want booleans of shape (..., task, sample) {y.shape}, true where the sample exists, "
            f"got shape {observed.shape}"
        )
    observed = observed.astype(bool)
    for name, fine in (("features", np.isfinite(x).all(-1)), ("targets", np.isfinite(y))):
        bad = np.argwhere(observed & ~fine)
        if len(bad):
            where = tuple(int(i) for i in bad[0])
            raise ValueError(
                f"{name}: want finite numbers, got NaN or infinity at (task, sample) {where}; set mask to "
                "false there"
            )
    return np.where(observed[..., None], x, 0.0), np.where(observed, y, 0.0), observed


def _plain(values: ArrayLike) -> ArrayLike:
    return values.detach().cpu() if hasattr(values, "detach") else values


def _array(values: ArrayLike) -> Array:
    return np.asarray(_plain(values), dtype=np.float64)


def _fit(value: ArrayLike, name: str, shape: tuple[int, ...], words: str) -> Array:
    v = np.asarray(_plain(value), dtype=float)
    try:
        return np.broadcast_to(v, shape)
    except ValueError:
        raise ValueError(
            f"{name}: want a number or an array that fits {words} {shape}, got shape {v.shape}"
        ) from None


def first_noise(rows: Rows) -> Array:
    """Variance of the targets, above zero even where they are constant."""
    return np.maximum(rows.square / np.maximum(rows.dof, 1), np.finfo(float).tiny ** 0.5)


def slab_unit(prior: RowPrior, rows: Rows, noise: Array) -> Array:
    """What a slab's scale is measured in: 1, or the standard deviation of noise that is learned."""
    return np.sqrt(noise) if prior.slab_units == "noise" and rows.noise is None else np.ones_like(noise)


def pooled(values: Array, over: str) -> tuple[Array, float]:
    """Sum over the edges that share a rate, broadcastable to (..., task, feature); how many they are."""
    axes = {"row": (-1,), "feature": (-2,), "all": (-2, -1)}[over]
    return values.sum(axes, keepdims=True), float(np.prod([values.shape[i] for i in axes]))
