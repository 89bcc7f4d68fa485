r"""What a sweep of linear chains needs of the rows, drawn without drawing their factors.

Rows have means :math:`D c^\top`, D = [1, covariates]. Given loadings W, noise :math:`\Psi`, coefficients c
(intercepts first) and correlations C, the factors of rows without a missing cell have one precision, so
:math:`Z = \tilde X B + E` with :math:`\tilde X = [D, X]`, rows of E :math:`\sim N(0, V)`,
:math:`V^{-1} = C^{-1} + W^\top \Psi^{-1} W` and :math:`B = [-c^\top \Psi^{-1} W V;\ \Psi^{-1} W V]`.
Loadings, coefficients and noise ask for :math:`\tilde X^\top Z` and :math:`Z^\top Z` only. With
:math:`S = \tilde X^\top \tilde X = L L^\top` and Q columns of D

.. math:: \tilde X^\top Z = S B + L F, \qquad
          Z^\top Z = B^\top S B + B^\top L F + F^\top L^\top B + F^\top F + U,

rows of F (G + Q, K) :math:`\sim N(0, V)` and :math:`U \sim \mathrm{Wishart}(N - G - Q, V)`: exact draws whose
cost does not grow with N. The factors of rows with missing cells are drawn, by pattern of what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..density.row_likelihood import FactorsDrawn, RowLikelihood
from ._compiled_row_moments import AVAILABLE, explained_by_rows, factors_of_rows

__all__ = ["Moments", "RowMoments", "by_feature"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
_ROWS_AT_ONCE = 20_000  # with missing cells: each has a matrix of its own meanwhile


class Moments(NamedTuple):
    """Sums over rows, of every chain.

    Attributes
    ----------
    gram : ndarray (chain, feature or 1, factor, factor)
        Z'Z over the rows in which the feature was seen.
    cross : ndarray (chain, feature, factor)
        x'Z over the same rows.
    total : ndarray (chain, feature or 1, coefficient, factor)
        D'Z over the same rows; of intercepts the sum of z.
    whole : ndarray (chain, factor, factor)
        Z'Z over all rows.
    known : ndarray (chain, coefficient, factor)
        D'Z over all rows.
    rows_drawn : Moments, optional
        The same over those rows alone whose factors were drawn one by one; None where there are none.
    """

    gram: Array
    cross: Array
    total: Array
    whole: Array
    known: Array
    rows_drawn: Moments | None = None

    def centred(self, coefficients: Array) -> Array:
        """(x - D coefficients)'Z, (chain, feature, factor)."""
        return self.cross - by_feature(coefficients, self.total)

    def exchanged(self, order: NDArray[np.intp]) -> Moments:
        """The same of factors in another order (chain, factor)."""
        wide, square = order[:, None], order[:, None, None]
        gram = np.take_along_axis(np.take_along_axis(self.gram, square, -1), order[:, None, :, None], -2)
        whole = np.take_along_axis(np.take_along_axis(self.whole, wide, -1), order[..., None], -2)
        cross, total = np.take_along_axis(self.cross, wide, -1), np.take_along_axis(self.total, square, -1)
        known = np.take_along_axis(self.known, wide, -1)
        drawn = None if self.rows_drawn is None else self.rows_drawn.exchanged(order)
        return Moments(gram, cross, total, whole, known, drawn)

    def mapped(self, by: Array) -> Moments:
        """The same of factors ``z @ by.T``, `by` (chain, factor, factor)."""
        back, wide = np.swapaxes(by, -1, -2), by[:, None]
        gram, whole = wide @ self.gram @ back[:, None], by @ self.whole @ back
        drawn = None if self.rows_drawn is None else self.rows_drawn.mapped(by)
        total, known = self.total @ back[:, None], self.known @ back
        return Moments(gram, self.cross @ back, total, whole, known, drawn)

    def translated(self, by: Array, sums: Array, gram: Array, whole: Array) -> Moments:
        """The same of factors ``z + by.T @ d``, of these rows alone, without those of `rows_drawn`.

        Parameters
        ----------
        by : ndarray (chain, coefficient, factor)
        sums : ndarray (chain or 1, feature, coefficient)
            D'x of each feature over its rows.
        gram : ndarray (feature or 1, coefficient, coefficient)
            D'D over each feature's rows.
        whole : ndarray (coefficient, coefficient)
            D'D over all rows.
        """
        wide = by[:, None]
        return Moments(
            self.gram + _widened(self.total, wide, gram),
            self.cross + sums @ by,
            self.total + gram @ wide,
            self.whole + _widened(self.known, by, whole),
            self.known + whole @ by,
        )


def _widened(total: Array, by: Array, gram: Array) -> Array:
    """What Z'Z gains as z become z + by' d, of D'Z and D'D."""
    across = np.swapaxes(total, -1, -2) @ by
    gained: Array = across + np.swapaxes(across, -1, -2) + np.swapaxes(by, -1, -2) @ gram @ by
    return gained


def by_feature(vectors: Array, matrices: Array) -> Array:
    """Each feature's vector (chain, feature, i) times its matrix, or that of all (…, feature or 1, i, j).

    Parameters
    ----------
    vectors, matrices : ndarray
    """
    if matrices.shape[-3] == 1:  # one product, and not one for each feature
        return vectors @ matrices[..., 0, :, :]
    product: Array = (vectors[..., None, :] @ matrices)[..., 0, :]
    return product


@dataclass(frozen=True, eq=False)
class RowMoments:
    """Second moments of the rows, and the rows that these do not replace.

    Parameters
    ----------
    n : int
        Rows without a missing cell.
    square : ndarray (chain or 1, coefficient + feature, coefficient + feature)
        Their second moments S, those of D first.
    root : ndarray of the same shape, or None
        Its Cholesky factor L; None where there are too few such rows, or they lie in fewer dimensions: their
        factors are then drawn.
    x : ndarray (chain or 1, row, feature)
        Rows whose factors are drawn: those with missing cells (which hold 0), and all where `root` is None.
    seen : ndarray of bool (pattern, feature)
        What was seen, by pattern.
    pattern : ndarray of int (row,)
        Which one each row has.
    known : ndarray (row, coefficient)
        D of the rows whose factors are drawn.
    """

    n: int
    square: Array
    root: Array | None
    x: Array
    seen: Bools
    pattern: NDArray[np.intp]
    known: Array

    @classmethod
    def of(cls, x: Array, seen: Bools | None, n_factors: int, design: Array | None = None) -> RowMoments:
        """Of a table.

        Parameters
        ----------
        x : ndarray (chain or 1, row, feature)
            Missing cells hold 0.
        seen : ndarray of bool (1, row, feature), or None
            None: every cell was seen.
        n_factors : int
        design : ndarray (row, effect), optional
            Covariates, beside the intercept.
        """
        ones = np.ones((x.shape[1], 1))
        known = ones if design is None else np.concatenate([ones, design], 1)
        whole = np.ones(x.shape[1], bool) if seen is None else seen[0].all(-1)
        full = x[:, whole]
        framed = np.concatenate([np.broadcast_to(known[whole], (*full.shape[:2], known.shape[1])), full], -1)
        square = np.swapaxes(framed, -1, -2) @ framed
        root = None
        if framed.shape[1] >= framed.shape[2] + n_factors:
            root = _root(square)
        rest = ~whole if root is not None else np.ones(x.shape[1], bool)
        if root is None:
            square, n = np.zeros_like(square), 0
        else:
            n = int(whole.sum())
        observed = np.ones((int(rest.sum()), x.shape[-1]), bool) if seen is None else seen[0][rest]
        kinds, pattern = np.unique(observed, axis=0, return_inverse=True)
        return cls(n, square, root, x[:, rest], kinds, pattern.reshape(-1), known[rest])

    @property
    def n_known(self) -> int:
        """Coefficients of each feature's mean."""
        return self.known.shape[1]

    @property
    def count(self) -> Array:
        """Seen cells of each feature, (1, feature)."""
        rows = np.bincount(self.pattern, minlength=len(self.seen)).astype(float)
        return (self.n + rows @ self.seen)[None]

    @cached_property
    def sums(self) -> tuple[Array, Array]:
        """D'x of each feature (chain or 1, feature, coefficient), and its sum of squares (…, feature)."""
        q, diagonal = self.n_known, np.diagonal(self.square, axis1=-2, axis2=-1)
        return self.square[:, q:, :q] + self._drawn_sums, diagonal[:, q:] + (self.x**2).sum(1)

    @cached_property
    def gram(self) -> Array:
        """D'D over the rows in which each feature was seen, (feature or 1, coefficient, coefficient)."""
        whole = self.square[:1, : self.n_known, : self.n_known]
        return whole if not len(self.pattern) else whole + self._drawn_gram

    @cached_property
    def _drawn_sums(self) -> Array:
        return np.swapaxes(self.x, -1, -2) @ self.known

    @cached_property
    def _drawn_gram(self) -> Array:
        q, observed = self.n_known, self.seen[self.pattern].T.astype(float)
        pairs = (self.known[:, :, None] * self.known[:, None]).reshape(-1, q * q)
        return (observed @ pairs).reshape(-1, q, q)

    def draw(
        self, weight: Array, noise: Array, coefficients: Array, cov: Array, rng: np.random.Generator
    ) -> Moments:
        """Moments with factors drawn given everything else.

        Parameters
        ----------
        weight : ndarray (chain, feature, factor)
        noise : ndarray (chain, feature)
        coefficients : ndarray (chain, feature, coefficient)
            The intercept and effects of covariates.
        cov : ndarray (chain, factor, factor)
        rng : numpy.random.Generator
        """
        n_chains, g, k = weight.shape
        q = self.n_known
        scaled, precision = weight / noise[..., None], np.linalg.inv(cov).astype(float)
        framed, whole = np.zeros((n_chains, q + g, k)), np.zeros((n_chains, k, k))
        if self.root is not None:
            framed, whole = self._of_complete_rows(weight, scaled, coefficients, precision, rng)
        known, total, cross = framed[:, :q], framed[:, None, :q], framed[:, q:]
        if not len(self.pattern):
            return Moments(whole[:, None], cross, total, whole, known)
        gram, all_total = np.zeros((n_chains, g, k, k)), np.zeros((n_chains, g, q, k))
        all_cross, all_whole = np.zeros((n_chains, g, k)), np.zeros((n_chains, k, k))
        all_known = np.zeros((n_chains, q, k))
        for start in range(0, len(self.pattern), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            observed, z, squares, of_known = self._factors(part, weight, scaled, coefficients, precision, rng)
            gram += (observed @ squares.reshape(n_chains, -1, k * k)).reshape(gram.shape)
            all_total += (observed @ of_known.reshape(n_chains, -1, q * k)).reshape(all_total.shape)
            all_cross += np.swapaxes(self.x[:, part], -1, -2) @ z
            all_whole += np.swapaxes(z, -1, -2) @ z
            all_known += self.known[part].T @ z
        drawn = Moments(gram, all_cross, all_total, all_whole, all_known)
        return Moments(
            whole[:, None] + gram,
            cross + all_cross,
            total + all_total,
            whole + all_whole,
            known + all_known,
            drawn,
        )

    def translated(self, moments: Moments, by: Array) -> Moments:
        """Moments of factors ``z + by.T @ d``, `by` (chain, coefficient, factor)."""
        new = moments.translated(by, self.sums[0], self.gram, self.known_gram)
        if moments.rows_drawn is None:
            return new
        of_drawn = self._drawn_sums, self._drawn_gram, self.known.T @ self.known
        return new._replace(rows_drawn=moments.rows_drawn.translated(by, *of_drawn))

    @cached_property
    def known_gram(self) -> Array:
        """D'D over all rows, (coefficient, coefficient)."""
        q = self.n_known
        whole: Array = self.square[0, :q, :q] + self.known.T @ self.known
        return whole

    def summed_out(self, coefficients: Array, cov: Array, moments: Moments) -> RowLikelihood:
        """log p(x | weight, noise), the factors of complete rows summed out and those of others as drawn.

        Parameters
        ----------
        coefficients : ndarray (chain, feature, coefficient)
            The intercept and effects of covariates.
        cov : ndarray (chain, factor, factor)
        moments : Moments
        """
        moment, precision = self._centred(coefficients), np.linalg.inv(cov).astype(float)
        drawn, c = moments.rows_drawn, coefficients
        if drawn is None:
            return RowLikelihood(self.n, moment, precision, None)
        spread_of_means = ((c[..., None, :] @ self._drawn_gram)[..., 0, :] * c).sum(-1)
        squares = (self.x**2).sum(1) - 2 * (c * self._drawn_sums).sum(-1) + spread_of_means
        rest = FactorsDrawn(drawn.gram, drawn.centred(c), squares, self.count - self.n)
        return RowLikelihood(self.n, moment, precision, rest)

    def _centred(self, coefficients: Array) -> Array:
        """Second moments of the complete rows around their means, (chain, feature, feature)."""
        s, c, q = self.square, coefficients, self.n_known
        across = c @ s[:, :q, q:]
        return s[:, q:, q:] - across - np.swapaxes(across, -1, -2) + c @ s[:, :q, :q] @ np.swapaxes(c, -1, -2)

    def log_evidence(self, weight: Array, noise: Array, coefficients: Array, cov: Array) -> Array:
        """log p(x | weight, noise, coefficients, cov), factors summed out, up to a constant, (chain,).

        Parameters
        ----------
        weight, noise, coefficients, cov
            As in `draw`.
        """
        scaled, precision = weight / noise[..., None], np.linalg.inv(cov).astype(float)
        log_cov, log_noise = np.linalg.slogdet(cov)[1], np.log(noise)
        inner = precision + np.swapaxes(weight, -1, -2) @ scaled
        c, moment = np.swapaxes(coefficients, -1, -2), self._centred(coefficients)
        pulled = np.swapaxes(scaled, -1, -2) @ moment @ scaled
        level = -0.5 * self.n * (log_noise.sum(-1) + log_cov + np.linalg.slogdet(inner)[1])
        level = level - 0.5 * (np.diagonal(moment, axis1=-2, axis2=-1) / noise).sum(-1)
        level = level + 0.5 * np.trace(np.linalg.solve(inner, pulled), axis1=-2, axis2=-1)
        if not len(self.pattern):
            return level
        inner = self._inner(weight, scaled, precision)
        lower = None if AVAILABLE else _inverse_root(inner)
        for start in range(0, len(self.pattern), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            pattern = self.pattern[part]
            left = (self.x[:, part] - self.known[part] @ c) * self.seen[pattern]
            if lower is None:
                log_det, explained = explained_by_rows(inner.copy(), pattern, left @ scaled)
            else:
                log_det = -2 * np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(-1)
                explained = ((lower[:, pattern] @ (left @ scaled)[..., None]) ** 2).sum((-1, -2, -3))
            log_det = log_det + log_cov[:, None] + log_noise @ self.seen.T
            explained = explained - log_det @ np.bincount(pattern, minlength=len(self.seen))
            level = level + 0.5 * (explained - (left**2 / noise[:, None]).sum((-1, -2)))
        return level

    def _of_complete_rows(
        self, weight: Array, scaled: Array, coefficients: Array, precision: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """[D, X]'Z (chain, coefficient + feature, factor) and Z'Z (chain, factor, factor)."""
        assert self.root is not None
        n_chains, g, k = weight.shape
        n_columns = self.n_known + g
        spread = np.linalg.inv(precision + np.swapaxes(weight, -1, -2) @ scaled)
        lower = np.linalg.cholesky(spread)
        of_cells = scaled @ spread
        b = np.concatenate([-(np.swapaxes(coefficients, -1, -2) @ of_cells), of_cells], 1)
        f = rng.standard_normal((n_chains, n_columns, k)) @ np.swapaxes(lower, -1, -2)
        sb, lf = self.square @ b, self.root @ f
        bartlett = np.tril(rng.standard_normal((n_chains, k, k)), -1)
        freedom = self.n - n_columns - np.arange(k)
        bartlett[:, range(k), range(k)] = np.sqrt(rng.chisquare(freedom, (n_chains, k)))
        rest = lower @ bartlett
        across = np.swapaxes(b, -1, -2) @ lf
        whole = np.swapaxes(b, -1, -2) @ sb + across + np.swapaxes(across, -1, -2)
        whole = whole + np.swapaxes(f, -1, -2) @ f + rest @ np.swapaxes(rest, -1, -2)
        return sb + lf, whole

    def _inner(self, weight: Array, scaled: Array, precision: Array) -> Array:
        """Precision of the factors of a row of each pattern, (chain, pattern, factor, factor)."""
        n_chains, g, k = weight.shape
        outer = (weight[..., :, None] * scaled[..., None, :]).reshape(n_chains, g, k * k)
        return precision[:, None] + (self.seen.astype(float) @ outer).reshape(n_chains, -1, k, k)

    def _factors(
        self,
        part: slice,
        weight: Array,
        scaled: Array,
        coefficients: Array,
        precision: Array,
        rng: np.random.Generator,
    ) -> tuple[Array, Array, Array, Array]:
        """Of some of the rows whose factors are drawn, by group of rows that have the same cells.

        Returns
        -------
        observed : ndarray (feature, group)
            1 where the feature was seen, else 0.
        z : ndarray (chain, row, factor)
            The factors.
        squares : ndarray (chain, group, factor, factor)
            Sums of z z'.
        of_known : ndarray (chain, group, coefficient, factor)
            Sums of d z'.
        """
        pattern, known = self.pattern[part], self.known[part]
        inner = self._inner(weight, scaled, precision)
        means = known @ np.swapaxes(coefficients, -1, -2)
        pull = ((self.x[:, part] - means) * self.seen[pattern]) @ scaled
        noise = rng.standard_normal(pull.shape)
        if AVAILABLE:
            sums = factors_of_rows(inner, pattern, pull, noise, np.ascontiguousarray(known))
            return self.seen.T.astype(float), noise, *sums
        lower = _inverse_root(inner)
        root = np.swapaxes(lower, -1, -2)
        if len(self.seen) == 1:
            z = (pull @ root[:, 0] + noise) @ lower[:, 0]
        else:
            half = (lower[:, pattern] @ pull[..., None])[..., 0] + noise
            z = (root[:, pattern] @ half[..., None])[..., 0]
        squares, of_known = (left[..., :, None] * z[..., None, :] for left in (z, known))
        return self.seen[pattern].T.astype(float), z, squares, of_known


def _inverse_root(precision: Array) -> Array:
    """Inverses of the Cholesky factors of small matrices (..., i, i), row by row of all at once."""
    lower = np.moveaxis(np.linalg.cholesky(precision).astype(float), (-2, -1), (0, 1))
    inverse = np.zeros(lower.shape)
    for i in range(len(lower)):
        inverse[i, i] = 1 / lower[i, i]
        inverse[i, :i] = -inverse[i, i] * (lower[i, :i, None] * inverse[:i, :i]).sum(0)
    return np.ascontiguousarray(np.moveaxis(inverse, (0, 1), (-2, -1)))


def _root(square: Array) -> Array | None:
    """Cholesky factor, or None where columns depend on one another as far as rounding lets one see."""
    scale = np.sqrt(np.diagonal(square, axis1=-2, axis2=-1))
    if not (scale > 0).all():
        return None
    try:
        unit = np.linalg.cholesky(square / scale[..., :, None] / scale[..., None, :])
    except np.linalg.LinAlgError:
        return None
    if np.diagonal(unit, axis1=-2, axis2=-1).min() < 1e-6:
        return None
    return scale[..., None] * unit
