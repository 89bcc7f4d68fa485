"""What is kept of the sweeps of `sampler.py`: sums, some draws and levels, all in the frame of the pivot."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....graphs._mixing import split_rhat
from ....graphs.selection import UNRESOLVED_GAP, edge_verdicts
from .alignment import Frame
from .kernels import CurvedRun, LinearRun
from .stopping import BatchMeans, Halves, Thinned

__all__ = ["ChainSummary", "OfRows", "Tally"]

Array = NDArray[np.float64]
ScalarT = TypeVar("ScalarT", bound=np.generic)

_ASKED_EVERY = 10  # sweeps, what the data say of edges that are not permitted
_BATCHES = 10  # stretches of each chain at least, from which the error of its probabilities is known
# Draws of what is kept of rows in each chain, at most, and numbers in all: predictive criteria and intervals
# of scores want some hundred.
_OF_ROWS, _NUMBERS = 200, 50_000_000
# Differences of probabilities from which chains go on, before and after so many sweeps (by chance chains that
# mix slowly differ by a quarter after 280, and after 1,100 by .15 on three of 20 fits of personality items);
# one from which more sweeps of as many chains hardly help then; and R-hat of a loading (two of 32 fits of
# questionnaires had more after 500 sweeps, none after 1,100).
_UNSETTLED, _MANY, _ANOTHER_GRAPH, _UNEVEN = (UNRESOLVED_GAP, 0.15), 500, 0.75, 1.1
_LOOKS = 20  # of each chain, at weights that should look like draws from their prior


class ChainSummary(NamedTuple):
    """What the chains saw, every sweep turned into the frame of the pivot.

    Attributes
    ----------
    prob : ndarray (chain, feature, factor)
        Rao-Blackwellised edge probabilities, averaged over the sweeps kept.
    prob_error : ndarray (chain, feature, factor)
        Their Monte Carlo standard errors; NaN of a single sweep.
    edge : ndarray of int8 (chain, draw, feature, factor)
    weight : ndarray (chain, draw, feature, factor)
        Signed standardised loadings: sign of the mean slope times the root of the share of the feature's
        variance that goes with the factor.
    eta : ndarray (chain, draw, factor)
    sweeps : int
        That are kept.
    log_joint : ndarray (chain, some sweeps)
        Of sweeps kept, in nats and up to a constant, with the factors summed out: exactly for a linear
        decoder with normal noise, by importance sampling (every 20 sweeps) under any other likelihood; of
        curves by adding the log of the volume they move in.
    if_permitted : ndarray (chain, feature, factor)
        P(edge) of what is not permitted, if it alone were; 0 elsewhere.
    weights : tuple of ndarray
        Some sweeps' weights (chain, draw, feature, factor) and log odds of rates (chain, draw, 1, factor), in
        the chains' own frames.
    scales : ndarray (sweep, 2)
        Of slab and spike, in the sweeps kept.
    stopped_by : {"", "interrupt", "time"}
        What cut them short.
    terms : dict of str to ndarray (chain, draw, ...)
        What else was drawn, in model units: "noise_sd" (feature), "factor_correlation" (factor, factor),
        "covariate_effect" (effect, feature); those that the chains have.
    row_levels : ndarray (chain, draw, row) or None
        Log density of rows in model units, factors summed out, at some of the sweeps kept.
    scores : ndarray (chain, draw, row, factor) or None
        Draws of rows' factors at some of the sweeps kept.
    """

    prob: Array
    prob_error: Array
    edge: NDArray[np.int8]
    weight: Array
    eta: Array
    sweeps: int
    log_joint: Array
    if_permitted: Array
    weights: tuple[Array, Array]
    scales: Array
    stopped_by: str
    terms: dict[str, Array] = {}  # of a NamedTuple, and nobody writes to it
    row_levels: Array | None = None
    scores: Array | None = None

    def widened(self, n_factors: int) -> ChainSummary:
        """The same with factors that the chains did not run over, without an edge, behind the others.

        Parameters
        ----------
        n_factors : int
            In all.
        """
        more = n_factors - self.prob.shape[-1]
        if not more:
            return self

        def wide(part: NDArray[ScalarT]) -> NDArray[ScalarT]:
            return np.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, more)])

        return self._replace(
            prob=wide(self.prob),
            prob_error=wide(self.prob_error),
            edge=wide(self.edge),
            weight=wide(self.weight),
            eta=wide(self.eta),
            if_permitted=wide(self.if_permitted),
            # of factors that no chain ran over nothing is known
            scores=None
            if self.scores is None
            else np.pad(self.scores, [(0, 0)] * 3 + [(0, more)], constant_values=np.nan),
            terms={
                name: _widened(part, more) if name == "factor_correlation" else part
                for name, part in self.terms.items()
            },
        )


def _widened(correlation: Array, more: int) -> Array:
    """Correlations with more factors that are correlated with none."""
    k = correlation.shape[-1]
    wide = np.pad(correlation, [(0, 0)] * (correlation.ndim - 2) + [(0, more)] * 2)
    wide[..., range(k, k + more), range(k, k + more)] = 1.0
    return wide


class OfRows(NamedTuple):
    """What is kept of rows, of which there may be many.

    Attributes
    ----------
    n_rows : int
    levels : bool
        Their log densities.
    scores : bool
        Draws of their factors.
    """

    n_rows: int = 0
    levels: bool = False
    scores: bool = False


class Tally:
    """Counts of sweeps as they come.

    Parameters
    ----------
    run : LinearRun or CurvedRun
    frame : Frame
    num_draws : int
        Kept of each chain.
    tolerance : float
        Of `Halves`.
    pinned : bool
        Whether factors have one order, so that only draws that are kept ask for their loadings.
    of_rows : OfRows
        What is kept of rows.
    """

    draws: Thinned[tuple[NDArray[np.bool_], NDArray[np.float32], Array, dict[str, Array]]]
    looks: Thinned[tuple[Array, Array]]

    def __init__(
        self,
        run: LinearRun | CurvedRun,
        frame: Frame,
        num_draws: int,
        tolerance: float,
        pinned: bool,
        of_rows: OfRows = OfRows(),  # noqa: B008  # that cannot change
    ):
        self.run, self.frame, self.pinned = run, frame, pinned
        self.constrained = not bool(run.kernel.permitted.all())
        self.draws, self.looks, self.halves = Thinned(num_draws), Thinned(_LOOKS), Halves(tolerance)
        shape = run.state.weight.shape
        self.total, self.done = np.zeros(shape), 0
        self.batches = BatchMeans(_BATCHES)
        self.forbidden, self.asked = np.zeros(shape), 0
        self.of_rows = of_rows
        n_chains, n_factors = run.state.weight.shape[0], run.state.weight.shape[-1]
        most = _NUMBERS // max(of_rows.n_rows * n_chains, 1)
        self.levels: Thinned[Array] = Thinned(max(2, min(_OF_ROWS, most)))
        self.scores: Thinned[NDArray[np.float32]] = Thinned(max(2, min(_OF_ROWS, most // n_factors)))
        self.joint: list[Array] = []
        self.scales: list[tuple[float, float]] = []

    def decided(self) -> str:
        """How many edges have a probability, so far, that is near 0 or 1; empty before the first draw."""
        if not self.done:
            return ""
        mean = np.clip(self.total.mean(0) / self.done, 0, 1)
        return f"{(edge_verdicts(mean) != 'open').sum()} of {mean.size} edges decided"

    def is_unsettled(self) -> bool:
        """Whether chains differ on an edge or a loading as they do by chance, and not as two graphs do."""
        mean = self.total / max(self.done, 1)
        gap = float(np.max(mean.max(0) - mean.min(0)))
        many = self.done >= _MANY
        if many and gap >= _ANOTHER_GRAPH:
            return False
        return gap > _UNSETTLED[many] or (many and self._largest_rhat() > _UNEVEN)

    def _largest_rhat(self) -> float:
        """Split R-hat of the loadings that vary, the largest; 0 if there is none."""
        loadings = np.stack([weight for _, weight, *_ in self.draws.chosen()], 1).astype(float)
        varies = np.ptp(loadings, axis=(0, 1)) > 0
        return float(np.nan_to_num(split_rhat(loadings[:, :, varies])).max(initial=0.0))

    def add(self, rng: np.random.Generator) -> None:
        """The sweep that the run has just made."""
        run, done = self.run, self.done
        wanted = self.draws.wants(done) or (self.of_rows.scores and self.scores.wants(done))
        sweep = run.seen(rng, loading=not self.pinned or wanted)
        if done % run.joint_every == 0:
            self.joint.append(run.log_joint(rng))
        self.scales.append((run.density.slab, run.density.spike))
        turn, sign = self.frame.turns(sweep.loading)
        prob = _reordered(sweep.prob, turn)
        self.total += prob
        self.batches.add(prob)
        if self.constrained and done % _ASKED_EVERY == 0:
            self.forbidden += _reordered(run.if_permitted(), turn)
            self.asked += 1
        if self.draws.wants(done) and sweep.loading is not None:
            weight = _reordered(sweep.loading, turn) * sign[:, None]
            edge, eta = _reordered(sweep.edge, turn), np.take_along_axis(sweep.eta, turn, -1)
            self.draws.add((edge, weight.astype(np.float32), eta, _in_frame(run.terms(), turn, sign)))
        if self.of_rows.levels and self.levels.wants(done):
            self.levels.add(run.row_levels(rng))
        if self.of_rows.scores and self.scores.wants(done):
            z = _reordered(run.scores(rng), turn) * sign[:, None]
            self.scores.add(z.astype(np.float32))
        if self.looks.wants(done):
            self.looks.add(run.weights())
        self.done += 1

    def enough(self) -> bool:
        """Whether more sweeps would hardly change the probabilities; to be asked after each."""
        return self.halves.agree(self.total, self.done)

    def result(self, stopped_by: str) -> ChainSummary:
        """All of it.

        Parameters
        ----------
        stopped_by : {"", "interrupt", "time"}
        """
        *of_edges, terms = zip(*self.draws.chosen(), strict=True)
        edges, weights, etas = (np.stack(draws, 1) for draws in of_edges)
        looked_at, odds = (np.stack(draws, 1) for draws in zip(*self.looks.chosen(), strict=True))
        return ChainSummary(
            self.total / self.done,
            self.batches.error(),
            edges.astype(np.int8),
            weights.astype(float),
            etas,
            self.done,
            np.stack(self.joint, 1) + self.run.volume()[:, None],
            self.forbidden / max(self.asked, 1),
            (looked_at, odds),
            np.array(self.scales),
            stopped_by,
            {name: np.stack([draw[name] for draw in terms], 1) for name in terms[0]},
            np.stack(self.levels.chosen(), 1) if self.of_rows.levels else None,
            np.stack(self.scores.chosen(), 1) if self.of_rows.scores else None,
        )


def _in_frame(terms: dict[str, Array], turn: NDArray[np.intp], sign: Array) -> dict[str, Array]:
    """Terms in the frame of the pivot; only correlations are of factors."""
    if "factor_correlation" not in terms:
        return terms
    cov = _reordered(_reordered(terms["factor_correlation"], turn).swapaxes(-1, -2), turn)
    cov = cov * sign[:, None] * sign[..., None]
    return {**terms, "factor_correlation": cov}


def _reordered(array: NDArray[ScalarT], turn: NDArray[np.intp]) -> NDArray[ScalarT]:
    """(chain, any, factor) with each chain's factors in its order, in a fifth of numpy's time."""
    return array.swapaxes(1, 2)[np.arange(len(turn))[:, None], turn].swapaxes(1, 2)
