r"""Gibbs chains of sparse factor analysis: loadings, edges, noise, correlations, each from its conditional.

.. math:: x_{ij} = c_j^\top d_i + w_j^\top z_i + \varepsilon_{ij}, \quad z_i \sim N(0, C), \quad
          w_{jk} \sim \eta_k\,\psi_1 + (1 - \eta_k)\,\psi_0, \quad \varepsilon_{ij} \sim N(0, \sigma_j^2)

:math:`d_i` is 1 and the covariates of the row. A sweep maps factors and loadings together
(`moves/expansion.py`), moves what the factors explain of each feature (`moves/communalities.py`) and the
axes (`moves/axes.py`, `moves/rotations.py`), both with factors summed out, draws what the rest needs of
the factors (`row_moments.py`: sums over rows, whose cost does not grow with their number), correlations
given these (`moves/correlations.py`), angles between factors with the loadings of one of them summed out
(`moves/marginal_angles.py`), then the loadings column by column with the edge summed out
(`density/weight.py`: its probability is what is averaged, after Rao and Blackwell), then coefficients of
:math:`d_i`, noise, rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ....priors import LKJ
from ..density._compiled_weight import AVAILABLE as COMPILED
from ..density._compiled_weight import loading_steps
from ..density.loadings import Parabola
from ..density.rates import drawn_log_odds, log_density
from ..density.weight import Slabs, SpikeSlab, edge_summed_out, floor_precision
from ..moves.axes import all_axes_move, moved_axes
from ..moves.communalities import moved_communalities
from ..moves.correlations import moved_correlations
from ..moves.expansion import Expansion, translation
from ..moves.marginal_angles import MarginalAngles
from ..moves.permutation import Anchors, anchors_of, exchanged, prior_of_places
from ..moves.rotations import Turns
from .row_moments import Moments, RowMoments, by_feature

__all__ = ["LinearChains", "LinearState"]

Array = NDArray[np.float64]
_BOTH = 0.2  # of sweeps rotate pairs as well, where swivels move their factors one by one
# Share of sweeps that move what factors explain, and features up to which; of more the cost grows as their
# square, and with many features of a factor none of them decides it.
_EXPLAINED, _NARROW = 0.5, 100
# Angles that a sweep moves for each factor with the loadings of another one summed out, of tables up to
# _NARROW features and of wider ones, where they cost more and zeros hold the axes anyway; and the share of
# sweeps that still move axes with all loadings as they are.
_ANGLES, _ANGLES_WIDE, _HELD = 2.0, 0.5, 0.25
_EXPANDED = 0.5  # share of sweeps with an expansion


class LinearState(NamedTuple):
    """One state of every chain.

    Attributes
    ----------
    weight : ndarray (chain, feature, factor)
    edge : ndarray of bool (chain, feature, factor)
    log_odds : ndarray (chain, 1, factor)
        Of the inclusion rates.
    noise : ndarray (chain, feature)
        Variance.
    coefficients : ndarray (chain, feature, coefficient)
        The intercept, then effects of covariates.
    cov : ndarray (chain, factor, factor)
        Of the factors.
    moments : Moments, optional
        Of the factors as they were last drawn.
    """

    weight: Array
    edge: NDArray[np.bool_]
    log_odds: Array
    noise: Array
    coefficients: Array
    cov: Array
    moments: Moments | None = None


@dataclass(frozen=True, eq=False)
class LinearChains:
    """The data and the prior, which stay, and the sweep.

    Parameters
    ----------
    x : ndarray (chain or 1, row, feature)
        Missing cells hold 0.
    mask : ndarray of bool (1, row, feature), or None
        None: every cell was seen.
    permitted, must : ndarray of bool (feature, factor)
        Edges that may, and that have to, be there.
    density : Slabs
        Slab and spike in units of the slab's scale.
    slab_scale : float
    eta_prior : tuple of ndarray
        a and b of the rates' Beta distribution, each broadcastable to (factor,).
    shared_eta : bool
        One rate for the whole graph.
    noise_prior : tuple of float
        Shape and scale of the inverse gamma.
    intercept_sd : float, or ndarray (feature,)
        Of all coefficients.
    related : ndarray of bool (factor, factor)
        Factors that are correlated.
    learn_cov : bool
        Whether C is learned, a correlation matrix; otherwise it stays where it is.
    edge_offset : ndarray (feature, factor) or None
        Log odds of single edges beside those of their factor.
    shared_noise : bool
        One variance for all features.
    correlation_prior : LKJ
        Of C, where it is learned.
    design : ndarray (row, effect) or None
        Covariates.
    rows : RowMoments, optional
        What `x`, `mask` and `design` amount to; made where it is not given.
    """

    x: Array
    mask: NDArray[np.bool_] | None
    permitted: NDArray[np.bool_]
    must: NDArray[np.bool_]
    density: Slabs
    slab_scale: float
    eta_prior: tuple[Array, Array]
    shared_eta: bool
    noise_prior: tuple[float, float]
    intercept_sd: float | Array
    related: NDArray[np.bool_]
    learn_cov: bool
    edge_offset: Array | None = None
    shared_noise: bool = False
    correlation_prior: LKJ = LKJ(1.0)
    design: Array | None = None
    rows: RowMoments = None  # type: ignore[assignment]  # made once, not for every scale that is tried

    def __post_init__(self) -> None:
        if self.rows is None:
            rows = RowMoments.of(self.x, self.mask, self.permitted.shape[1], self.design)
            object.__setattr__(self, "rows", rows)

    def edge_log_odds(self, state: LinearState) -> Array:
        """Prior log odds of edges, (chain, feature or 1, factor)."""
        return state.log_odds if self.edge_offset is None else state.log_odds + self.edge_offset

    def sweep(
        self, state: LinearState, rng: np.random.Generator, rates_fixed: NDArray[np.bool_] | None = None
    ) -> tuple[LinearState, Array]:
        """The next state, and P(edge | everything else) of each edge as it was drawn.

        Parameters
        ----------
        state : LinearState
        rng : numpy.random.Generator
        rates_fixed : ndarray of bool (chain,), optional
            Chains whose rates stay as they are (at "all edges", while a dense start is made).
        """
        state = self._turned(self._explained(self._expanded(state, rng), rng), rng)
        moments = self.rows.draw(state.weight, state.noise, state.coefficients, state.cov, rng)
        if self.learn_cov:
            state = state._replace(cov=self._correlations(state.cov, moments, rng))
        state, moments = self._angles(state, moments, rng)
        weight, edge, prob = self._loadings(state, moments, rng)
        count, (cells, squares) = self.rows.count, self.rows.sums
        left = cells - by_feature(weight, np.swapaxes(moments.total, -1, -2))  # D'(x - what the factors say)
        coefficients, of_means = self._coefficients(left, state.noise, rng)
        explained = 2 * (weight * moments.cross).sum(-1) - self._spread(weight, moments)
        noise = self._noise(np.maximum(squares - explained + of_means, 0.0), count, rng)
        log_odds = self._rates(edge, state, rng)
        if rates_fixed is not None:
            log_odds = np.where(rates_fixed[:, None, None], state.log_odds, log_odds)
        state = LinearState(weight, edge, log_odds, noise, coefficients, state.cov, moments)
        return self._relabelled(state, rng), prob

    def if_permitted(self, state: LinearState) -> Array:
        """P(edge | everything else) of edges that are not permitted, if each alone were; 0 for the others."""
        moments = _drawn(state)
        centred = moments.centred(state.coefficients)
        columns = range(state.weight.shape[-1])
        likelihoods = [(k, *self._column(k, state.weight, state, moments.gram, centred)) for k in columns]
        odds = np.broadcast_to(self.edge_log_odds(state), state.weight.shape)
        chance = [edge_summed_out(self.density, a, b, odds[..., k])[1] for k, a, b in likelihoods]
        return np.where(self.permitted, 0.0, np.stack(chance, -1))

    def log_evidence(self, state: LinearState) -> Array:
        """log p(x, weights, noise, rates, C), factors and edges summed out, up to a constant, (chain,)."""
        rows = self.rows.log_evidence(state.weight, state.noise, state.coefficients, state.cov)
        if self.learn_cov:
            log_det = np.linalg.slogdet(state.cov)[1]
            rows = rows + self.correlation_prior.log_density(log_det, state.cov.shape[-1])
        a, b = self.noise_prior
        noise = state.noise[:, :1] if self.shared_noise else state.noise
        rows = rows - ((a + 1) * np.log(noise) + b / noise).sum(-1)
        u = np.abs(state.weight) / self.slab_scale
        slab, log_odds = self.density.log_density(u), self.edge_log_odds(state)
        if np.any(self.density.ratio):
            log_prior = self.density.log_prob(u, log_odds)
        else:
            log_prior = np.where(state.edge, slab - np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds))
        log_prior = np.where(self.must, slab, np.where(self.permitted, log_prior, 0.0))
        return rows + log_prior.sum((-1, -2)) + log_density(state.log_odds, self.eta_prior, self.shared_eta)

    @cached_property
    def _axes(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of D'D, in whose axes coefficients are independent of each other."""
        values, vectors = np.linalg.eigh(self.rows.gram)
        return np.maximum(values, 0.0), vectors

    def _coefficients(self, left: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Coefficients (chain, feature, coefficient) given D'(x - W z), and what they add to squares."""
        values, vectors = self._axes
        pull = by_feature(left, vectors)
        precision = 1 / np.asarray(self.intercept_sd)[..., None] ** 2
        scale = 1 / (values / noise[..., None] + precision)
        in_axes = scale * pull / noise[..., None] + np.sqrt(scale) * rng.standard_normal(scale.shape)
        of_means = (values * in_axes**2 - 2 * in_axes * pull).sum(-1)
        return by_feature(in_axes, np.swapaxes(vectors, -1, -2)), of_means

    def _noise(self, squares: Array, count: Array, rng: np.random.Generator) -> Array:
        """Variances given the sums of squared residuals, (chain, feature)."""
        a, b = self.noise_prior
        if not self.shared_noise:
            return (b + squares / 2) / rng.standard_gamma(a + count / 2, squares.shape)
        total = squares.sum(-1, keepdims=True)
        count = np.broadcast_to(count, squares.shape).sum(-1, keepdims=True)
        drawn = (b + total / 2) / rng.standard_gamma(a + count / 2, total.shape)
        return np.broadcast_to(drawn, squares.shape).copy()

    @staticmethod
    def _spread(weight: Array, moments: Moments) -> Array:
        """Sum of squares of what the factors say of each feature's cells, (chain, feature)."""
        return ((moments.gram @ weight[..., None])[..., 0] * weight).sum(-1)

    def _loadings(
        self, state: LinearState, moments: Moments, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_], Array]:
        weight, edge, gram = state.weight.copy(), state.edge.copy(), moments.gram
        centred = moments.centred(state.coefficients)
        prob, prior = np.zeros(weight.shape), self.edge_log_odds(state)
        if self._loadings_compile:
            density = cast(SpikeSlab, self.density)
            log_odds = np.where(self.must, np.inf, prior) + np.zeros(weight.shape)
            # each layout of an array in memory would be compiled anew
            noise, permitted, uniform, drawn = map(
                np.ascontiguousarray,
                (state.noise, self.permitted, *density.random_numbers(weight.shape, rng)),
            )
            loading_steps(
                weight, edge, prob, gram, centred, noise, log_odds, permitted, density.laplace,
                float(np.max(density.ratio)), float(self.slab_scale), uniform, drawn,
            )  # fmt: skip
            return weight, edge, prob
        for k in range(weight.shape[-1]):
            a, b = self._column(k, weight, state, gram, centred)
            log_odds = np.where(self.must[:, k], np.inf, prior[..., k])
            now, may = weight[..., k] / self.slab_scale, self.permitted[:, k]
            new, there, p = self.density.stepped(a, b, log_odds, now, rng)
            weight[..., k] = np.where(may, self.slab_scale * new, 0.0)
            edge[..., k], prob[..., k] = there & may, p * may
        return weight, edge, prob

    @property
    def _loadings_compile(self) -> bool:
        """Whether columns can be drawn in machine code, from the same random numbers."""
        return COMPILED and self._has_compiled_density

    @cached_property
    def _has_compiled_density(self) -> bool:
        return isinstance(self.density, SpikeSlab) and bool(np.any(self.density.ratio))

    def _column(
        self, k: int, weight: Array, state: LinearState, gram: Array, cross: Array
    ) -> tuple[Array, Array]:
        """Likelihood of column k given the others, exp(-a w^2/2 + b w) in units of the slab."""
        row, unit = gram[..., k, :], self.slab_scale
        pull = cross[..., k] - (row * weight).sum(-1) + row[..., k] * weight[..., k]
        return floor_precision(row[..., k] * unit**2 / state.noise), pull * unit / state.noise

    @cached_property
    def _turns(self) -> Turns:
        related = self.related | self.learn_cov
        return Turns(
            self.permitted,
            self.must,
            related,
            self.density,
            self.slab_scale,
            correlation_prior=self.correlation_prior,
        )

    def _correlations(self, cov: Array, moments: Moments, rng: np.random.Generator) -> Array:
        """Of as many pairs as there are factors."""
        k = cov.shape[-1]
        pairs = rng.permutation(np.argwhere(np.triu(np.ones((k, k)), 1)))[:k]
        return moved_correlations(cov, moments.whole, self.x.shape[1], pairs, self.correlation_prior, rng)

    def _angles(
        self, state: LinearState, moments: Moments, rng: np.random.Generator
    ) -> tuple[LinearState, Moments]:
        """Angles between factors, the loadings of one of each two summed out and drawn anew."""
        pairs = self._angle_pairs
        if not len(pairs):
            return state, moments
        log_odds = self.edge_log_odds(state)
        features, factors = self.permitted.shape
        each = _ANGLES if features <= _NARROW else _ANGLES_WIDE
        pairs = rng.permutation(pairs)[: max(1, int(each * factors))]
        if self._marginal_angles.compiles:
            centred = moments.centred(state.coefficients)
            weight, edge, cov, by = self._marginal_angles.all_moved(
                pairs, state.weight, state.edge, state.cov, log_odds, moments.gram, centred, state.noise, rng
            )
            return state._replace(weight=weight, edge=edge, cov=cov), moments.mapped(by)
        for i, j in pairs:
            centred = moments.centred(state.coefficients)
            likelihood = Parabola(*self._column(j, state.weight, state, moments.gram, centred))
            moved = self._marginal_angles.moved(
                (i, j), state.weight, state.edge, state.cov, log_odds, likelihood, rng
            )
            state = state._replace(weight=moved.weight, edge=moved.edge, cov=moved.cov)
            moments = moments.mapped(moved.map)
        return state, moments

    @cached_property
    def _angle_pairs(self) -> NDArray[np.intp]:
        """None where all axes move at once: these go everywhere by themselves."""
        moves = self.learn_cov and self.density.closed_form and not self._all_axes
        return np.argwhere(self._turns.swivels) if moves else np.empty((0, 2), dtype=np.intp)

    @cached_property
    def _marginal_angles(self) -> MarginalAngles:
        return MarginalAngles(
            self.permitted, self.must, self.density, self.slab_scale, self.correlation_prior
        )

    def _turned(self, state: LinearState, rng: np.random.Generator) -> LinearState:
        """Other axes; factors and edges are to be drawn anew."""
        weight, cov, log_odds = state.weight, state.cov, self.edge_log_odds(state)
        if self._all_axes:
            unit, density = self.slab_scale, self.density
            prior = self.correlation_prior
            weight, cov, _ = moved_axes(weight, cov, log_odds, self.must, density, unit, prior, rng)
            weight, cov, _ = self._turns.gone_round(weight, cov, log_odds, rng)
            return state._replace(weight=weight, cov=cov)
        if len(self._angle_pairs) and rng.random() > _HELD:
            return state
        if self.learn_cov:
            weight, cov, _ = self._turns.swivelled(weight, cov, log_odds, rng)
        if not self.learn_cov or rng.random() < _BOTH:
            weight, _ = self._turns.turned(weight, cov, log_odds, rng)
        return state._replace(weight=weight, cov=cov)

    @cached_property
    def _all_axes(self) -> bool:
        return self.learn_cov and all_axes_move(self.permitted, self.density)

    def _expanded(self, state: LinearState, rng: np.random.Generator) -> LinearState:
        """Factors mapped and translated, loadings and coefficients likewise; edges are to be drawn anew."""
        if state.moments is None or rng.random() > _EXPANDED:
            return state
        precision = np.linalg.inv(state.cov).astype(float)
        weight, by = self._expansion.moved(
            state.weight, self.edge_log_odds(state), state.moments.whole, self.x.shape[1], precision, rng
        )
        moments = state.moments.mapped(by)
        b = translation(
            weight, state.coefficients, self.intercept_sd, moments.known, self.rows.known_gram, precision, rng
        )
        coefficients = state.coefficients - weight @ np.swapaxes(b, -1, -2)
        moments = self.rows.translated(moments, b)
        return state._replace(weight=weight, coefficients=coefficients, moments=moments)

    @cached_property
    def _expansion(self) -> Expansion:
        return Expansion(self.permitted, self.must, self.density, self.slab_scale)

    def _explained(self, state: LinearState, rng: np.random.Generator) -> LinearState:
        """What the factors explain of each feature; factors and edges are to be drawn anew."""
        share = _EXPLAINED * min(1.0, (_NARROW / state.noise.shape[1]) ** 2)
        if state.moments is None or self.shared_noise or rng.random() > share:
            return state
        weight, noise = moved_communalities(
            state.weight, state.noise, state.cov, self.edge_log_odds(state),
            self.rows.summed_out(state.coefficients, state.cov, state.moments), self.x.shape[1],
            self.permitted, self.must, self.density, self.slab_scale, self.noise_prior, rng,
        )  # fmt: skip
        return state._replace(weight=weight, noise=noise)

    @cached_property
    def _anchors(self) -> Anchors:
        return anchors_of(self.permitted, self.must, self.eta_prior, self.edge_offset)

    def _relabelled(self, state: LinearState, rng: np.random.Generator) -> LinearState:
        """Factors exchanged as far as anchors, odds and rates do not mind; weights of anchors drawn anew.

        Correlations that are learned go with their factors, unless these have anchors: then they are those
        of the places.
        """
        rows, factors, pairs = self._anchors
        if not len(pairs):
            return state
        moments = _drawn(state)
        evidence = prior_of_places(
            state.edge, state.log_odds, self._free, self.eta_prior, self.shared_eta, self.edge_offset
        )
        a, b = self._anchor_likelihood(state, moments)
        log_evidence = self.density.slab(a, b).log_norm  # chain, anchor, factor
        for column, factor in enumerate(factors):
            evidence[:, factor] += log_evidence[:, column]
        cov_goes = self.learn_cov and not len(rows)
        whole = np.zeros_like(moments.whole) if cov_goes else moments.whole
        order = exchanged(evidence, whole, np.linalg.inv(state.cov).astype(float), pairs, rng)
        wide = order[:, None]
        weight = np.take_along_axis(state.weight, wide, -1)
        edge = np.take_along_axis(state.edge, wide, -1)
        new_factors = order[:, factors][..., None]
        a, b = (np.take_along_axis(array, new_factors, -1)[..., 0] for array in (a, b))
        drawn = self.density.draw(a, b, np.ones(a.shape, dtype=bool), rng)
        weight[:, rows], edge[:, rows] = 0.0, False
        weight[:, rows, factors], edge[:, rows, factors] = self.slab_scale * drawn, True
        log_odds = np.take_along_axis(state.log_odds, wide, -1)
        cov = state.cov
        if cov_goes:
            cov = np.take_along_axis(np.take_along_axis(cov, order[..., None], 1), wide, 2)
        moments = moments.exchanged(order)
        return state._replace(weight=weight, edge=edge, log_odds=log_odds, cov=cov, moments=moments)

    def _anchor_likelihood(self, state: LinearState, moments: Moments) -> tuple[Array, Array]:
        """Of the weight of each anchor on each factor, exp(-a u^2/2 + b u), (chain, anchor, factor)."""
        rows = self._anchors.rows
        gram, cross = moments.gram, moments.centred(state.coefficients)
        noise = state.noise[:, rows, None]
        gram = np.broadcast_to(gram, (*state.noise.shape, *gram.shape[-2:]))[:, rows]
        a = floor_precision(np.diagonal(gram, axis1=-2, axis2=-1) * self.slab_scale**2 / noise)
        return a, cross[:, rows] * self.slab_scale / noise

    @cached_property
    def _free(self) -> NDArray[np.bool_]:
        return self.permitted & ~self.must

    def _rates(self, edge: NDArray[np.bool_], state: LinearState, rng: np.random.Generator) -> Array:
        return drawn_log_odds(
            edge, self._free, self.eta_prior, self.shared_eta, self.edge_offset, state.log_odds, rng
        )


def _drawn(state: LinearState) -> Moments:
    if state.moments is None:
        raise ValueError("state: has no moments of factors; they come with its first sweep")
    return state.moments
