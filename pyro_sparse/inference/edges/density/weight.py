r"""One weight, all others held: a normal factor times a spike and a slab, in closed form.

.. math:: \tilde p(w, \gamma) \propto e^{-A w^2 / 2 + B w}\,
          [\eta\, \psi_1(w)]^{\gamma}\, [(1 - \eta)\, \psi_0(w)]^{1 - \gamma}

Slab :math:`\psi_1`: standard normal, or Laplace with rate 1. Spike :math:`\psi_0`: a point mass at zero, or
the slab's family with r times its scale. Under a Laplace, each sign of w is a normal cut off at zero, so that
normalisers, moments and draws need only the normal distribution function. Units: the slab's scale.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, log_ndtr, ndtri_exp

__all__ = [
    "FAR",
    "LEAST_PRECISION",
    "Component",
    "Slabs",
    "SpikeSlab",
    "Tilted",
    "blended",
    "edge_summed_out",
    "floor_precision",
    "mixture",
]

Array = NDArray[np.float64]

LEAST_PRECISION = 1e-10
"""What a constant feature, which has none, is given: in units of the slab."""

_LOG_2PI = np.log(2 * np.pi)
_WHOLE = 30.0  # of a normal distribution nothing is beyond, and erfcx of less does not overflow
FAR = 60.0  # beyond, a truncated normal is an exponential up to 1e-8, and differences lose as much


class Component(NamedTuple):
    """Spike or slab under the normal factor: log of its integral, mean and variance."""

    log_norm: Array
    mean: Array
    var: Array


class Tilted(NamedTuple):
    """The mixture: log normaliser, P(edge), mean and variance of the weight; its two parts."""

    log_norm: Array
    prob: Array
    mean: Array
    var: Array
    slab: Component
    spike: Component


class Slabs(Protocol):
    """What chains ask of slab and spike, in units of a scale: `SpikeSlab` in closed form, or `UserSlabs`."""

    @property
    def laplace(self) -> bool: ...

    @property
    def ratio(self) -> Array: ...

    def log_density(self, u: Array) -> Array: ...

    def log_spike(self, u: Array) -> Array: ...

    def log_prob(self, u: Array, log_odds: Array) -> Array: ...

    def sloped(self, u: Array, log_odds: Array) -> tuple[Array, Array]: ...

    def excess(self, u: Array, log_odds: Array) -> Array | float: ...

    def stepped(
        self, a: Array, b: Array, log_odds: Array, now: Array, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_], Array]: ...

    @property
    def closed_form(self) -> bool: ...

    def log_norms(self, a: Array, b: Array) -> tuple[Array, Array]: ...

    def slab(self, a: Array, b: Array) -> Component: ...

    def tilted(self, a: Array, b: Array, log_odds: Array) -> Tilted: ...

    def draw(self, a: Array, b: Array, edge: NDArray[np.bool_], rng: np.random.Generator) -> Array: ...


class SpikeSlab(NamedTuple):
    """The two densities of a weight, in units of the slab's scale.

    Attributes
    ----------
    laplace : bool
        The slab is Laplace with rate 1, else standard normal.
    ratio : ndarray
        r, scale of the spike over that of the slab; 0 where the spike is a point mass.
    """

    laplace: bool
    ratio: Array

    @property
    def variance(self) -> float:
        """Variance of the slab."""
        return 2.0 if self.laplace else 1.0

    @property
    def closed_form(self) -> bool:
        """Whether integrals cost next to nothing."""
        return True

    def log_density(self, u: Array, ratio: Array | float = 1.0) -> Array:
        """log density of the slab's family with `ratio` times its scale."""
        u = u / ratio
        if self.laplace:
            return -np.abs(u) - np.log(2 * ratio)
        return -0.5 * u**2 - np.log(ratio * np.sqrt(2 * np.pi))

    def log_spike(self, u: Array) -> Array:
        """log density of a spike that is no point."""
        return self.log_density(u, self.ratio)

    def log_prob(self, u: Array, log_odds: Array) -> Array:
        """log of the mixture, whose spike is no point; `log_odds` are those of eta."""
        ratio = float(np.max(self.ratio))
        size, narrow, of_one = self._sizes(u, ratio)
        return np.logaddexp(
            of_one - np.logaddexp(0, -log_odds) - size,
            of_one - np.log(ratio) - np.logaddexp(0, log_odds) - narrow * size,
        )

    def sloped(self, u: Array, log_odds: Array) -> tuple[Array, Array]:
        """log of the mixture and its derivative; infinite log odds: of the slab alone."""
        ratio, towards = float(np.max(self.ratio)), -np.sign(u) if self.laplace else -u
        size, narrow, of_one = self._sizes(u, ratio)
        slab = of_one - np.logaddexp(0, -log_odds) - size
        if not ratio:  # there is nothing beside it where a weight is not zero
            return slab, towards
        against = -log_odds - np.log(ratio) - (narrow - 1) * size  # log odds of the spike
        odds = np.exp(np.minimum(against, 700.0))  # and log1p: numpy's are vectorised, logaddexp is not
        excess = odds / (1 + odds) * (narrow - 1)
        return slab + np.maximum(np.log1p(odds), against), towards * (1 + excess)

    def _sizes(self, u: Array, ratio: float) -> tuple[Array, float, float]:
        """Minus log slab up to its constant; what the spike multiplies it with; that constant."""
        if self.laplace:
            return np.abs(u), 1 / ratio if ratio else np.inf, -np.log(2.0)
        return 0.5 * u**2, 1 / ratio**2 if ratio else np.inf, -0.5 * _LOG_2PI

    def log_norms(self, a: Array, b: Array) -> tuple[Array, Array]:
        """log of the integrals of slab and spike under exp(-a w^2/2 + b w), as in `slab` and `spike`."""
        norm = _log_laplace if self.laplace else _log_normal
        slab = norm(a, b, 1.0)
        return slab, norm(a, b, self.ratio) if np.any(self.ratio) else np.zeros_like(slab)

    def slab(self, a: Array, b: Array) -> Component:
        """The slab under exp(-a w^2/2 + b w)."""
        if self.laplace:
            return _laplace(a, b, 1.0)
        return _normal(a, b, 1.0)

    def spike(self, a: Array, b: Array) -> Component:
        """The spike under exp(-a w^2/2 + b w)."""
        if not np.any(self.ratio):
            nothing = np.zeros(np.broadcast_shapes(a.shape, b.shape))
            return Component(nothing, nothing, nothing)
        return (_laplace if self.laplace else _normal)(a, b, self.ratio)

    def tilted(self, a: Array, b: Array, log_odds: Array) -> Tilted:
        """Moments of the mixture, `log_odds` being those of eta."""
        return blended(self.slab(a, b), self.spike(a, b), log_odds)

    def excess(self, u: Array, log_odds: Array) -> float:
        """log of the mixture, less that of what weights are proposed from: nothing."""
        return 0.0

    def stepped(
        self, a: Array, b: Array, log_odds: Array, now: Array, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_], Array]:
        """Weights, edges and P(edge) of the next sweep, given the weights now: here a draw that forgets them.

        Infinite log odds: there must be an edge.
        """
        sure = log_odds == np.inf
        slab, spike = self.log_norms(a, b)
        p = expit(log_odds + np.where(sure, 0.0, slab - spike))
        edge = rng.random(a.shape) < p
        return self.draw(a, b, edge, rng), edge, p

    def random_numbers(self, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Array, Array]:
        """What `stepped` takes for each column of weights (..., feature, factor) in turn, all at once.

        Parameters
        ----------
        shape : tuple of int
        rng : numpy.random.Generator

        Returns
        -------
        uniform : ndarray (factor, ..., feature)
            For edges.
        drawn : ndarray (factor, 2 or 1, ..., feature)
            Uniform ones for sign and size under a Laplace slab, else a normal one.
        """
        *of_column, n_columns = shape
        if self.laplace:
            together = rng.random((n_columns, 3, *of_column))
            return together[:, 0], together[:, 1:]
        pairs = [(rng.random(of_column), rng.standard_normal((1, *of_column))) for _ in range(n_columns)]
        uniform, drawn = zip(*pairs, strict=True)
        return np.array(uniform), np.array(drawn)

    def draw(self, a: Array, b: Array, edge: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        """Weights given the edges."""
        if self.laplace:
            point = not np.any(self.ratio)
            rate = np.where(edge, 1.0, 1.0 if point else 1 / self.ratio)
            w = _draw_laplace(a, b, rate, rng)
            return np.where(edge, w, 0.0) if point else w
        var = np.where(edge, 1.0, self.ratio**2)
        return var * b / (1 + a * var) + rng.standard_normal(edge.shape) * np.sqrt(var / (1 + a * var))


def floor_precision(a: Array) -> Array:
    """Keep a precision above zero."""
    return np.maximum(a, LEAST_PRECISION)


def blended(nonzero: Component, zero: Component, log_odds: Array) -> Tilted:
    """Slab and spike with odds of eta, whose logarithms these are."""
    logit = log_odds + nonzero.log_norm - zero.log_norm
    p = expit(logit)
    log_norm = zero.log_norm + np.logaddexp(0, logit) - np.logaddexp(0, log_odds)
    mean, var = mixture(p, nonzero, zero)
    return Tilted(log_norm, p, mean, var, nonzero, zero)


def edge_summed_out(density: Slabs, a: Array, b: Array, log_odds: Array) -> tuple[Array, Array]:
    """`Tilted.log_norm` and `Tilted.prob`, without the moments.

    Parameters
    ----------
    density : Slabs
    a, b, log_odds : ndarray
        As in `Slabs.tilted`.

    Returns
    -------
    log_norm, prob : ndarray
    """
    slab, spike = density.log_norms(a, b)
    logit = log_odds + slab - spike
    return spike + np.logaddexp(0, logit) - np.logaddexp(0, log_odds), expit(logit)


def mixture(p: Array, nonzero: Component, zero: Component) -> tuple[Array, Array]:
    """Mean and variance of `nonzero` with probability p, else `zero`."""
    mean = p * nonzero.mean + (1 - p) * zero.mean
    return mean, p * nonzero.var + (1 - p) * zero.var + p * (1 - p) * (nonzero.mean - zero.mean) ** 2


def _log_cut(x: Array) -> Array:
    r"""log of exp(x^2/2) :math:`\Phi(x)`, without the cancellation for very negative x."""
    low = np.minimum(x, _WHOLE)
    return np.where(x < _WHOLE, np.log(0.5 * erfcx(-np.sqrt(0.5) * low)), 0.5 * x**2)


def _cut_moments(x: Array) -> tuple[Array, Array]:
    """Mean and variance of N(x, 1) given that it is positive."""
    near = np.maximum(x, -FAR)
    hazard = np.sqrt(2 / np.pi) / erfcx(-near / np.sqrt(2))
    mean = near + hazard
    t = 1 / np.maximum(-x, FAR)
    far = x < -FAR  # there by the first terms of their series in 1/x
    return (
        np.where(far, t * (1 - t**2 * (2 - 10 * t**2)), mean),
        np.where(far, t**2 * (1 - t**2 * (6 - 50 * t**2)), 1 - mean * hazard),
    )


def _log_normal(a: Array, b: Array, sd: Array | float) -> Array:
    """log of the integral of a normal density under exp(-a w^2/2 + b w)."""
    var = np.square(sd)
    return 0.5 * (b**2 * var / (1 + a * var) - np.log1p(a * var))


def _normal(a: Array, b: Array, sd: Array | float) -> Component:
    posterior = np.square(sd) / (1 + a * np.square(sd))
    return Component(_log_normal(a, b, sd), b * posterior, posterior)


def _log_laplace(a: Array, b: Array, scale: Array | float) -> Array:
    """log of the integral of a Laplace density under exp(-a w^2/2 + b w).

    Of its two sides at most one is far up, and then the other is nothing beside it.
    """
    s = 1 / np.sqrt(a)
    middle, half = b * s, s / scale
    top = np.abs(middle) - half  # the larger of the two points where a side is cut off
    low = np.minimum(top, _WHOLE)
    sides = erfcx(-np.sqrt(0.5) * low) + erfcx(np.sqrt(0.5) * (low + 2 * half))
    log_sides = np.where(top < _WHOLE, np.log(0.5 * sides), 0.5 * top**2)
    return 0.5 * (_LOG_2PI - np.log(a)) - np.log(2 * scale) + log_sides


def _laplace(a: Array, b: Array, scale: Array | float) -> Component:
    s = 1 / np.sqrt(a)
    up, down = (b - 1 / scale) * s, -(b + 1 / scale) * s
    p = expit(_log_cut(up) - _log_cut(down))  # of what lies above zero
    (m1, v1), (m0, v0) = _cut_moments(up), _cut_moments(down)
    mean = s * (p * m1 - (1 - p) * m0)
    var = s**2 * (p * v1 + (1 - p) * v0 + p * (1 - p) * (m1 + m0) ** 2)
    return Component(_log_laplace(a, b, scale), mean, var)


def _draw_laplace(a: Array, b: Array, rate: Array, rng: np.random.Generator) -> Array:
    s = 1 / np.sqrt(a)
    up, down = (b - rate) * s, -(b + rate) * s
    positive = rng.random(rate.shape) < expit(_log_cut(up) - _log_cut(down))
    x = np.where(positive, up, down)
    tail = np.log1p(-rng.random(x.shape))  # of the part above zero, as a log probability
    near = np.maximum(x, -FAR)
    size = near - ndtri_exp(tail + log_ndtr(near))
    size = np.where(x < -FAR, tail / np.minimum(x, -FAR), size)
    size = np.maximum(size, 0) * s
    return np.where(positive, size, -size)
