r"""Are draws of graphs draws from the posterior? Rank each truth among its own draws, data set by data set.

.. math::

    \theta^* \sim p(\theta), \quad y \sim p(y \mid \theta^*), \quad
    \theta_1 \dots \theta_L \sim p(\theta \mid y)
    \quad \Rightarrow \quad \#\{l : f(\theta_l, y) < f(\theta^*, y)\} \text{ uniform on } 0 \dots L

for every statistic f, ties broken at random. Ranks that pile up say what is wrong: at one end, a bias; at
both ends, draws that are too sure; in the middle, draws that are not sure enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kstest

from .._utils.checks import check_whole
from .._utils.progress import Progress
from ..models import SparseDecoder
from ..programs.data import Data
from ..programs.program import Program
from ._check import Array
from .bands import ecdf_band
from .decoders import experiment
from .programs import program_experiment
from .statistics import graph_statistics, value_statistics

__all__ = ["SBC", "Statistic", "sbc"]

Statistic: TypeAlias = Callable[[Any, Any], float]
Drawn: TypeAlias = ArrayLike | Mapping[str, ArrayLike]  # edges alone, or by key with what else is ranked
Simulate: TypeAlias = Callable[[np.random.Generator], tuple[Drawn, Any]]  # the data are the caller's own kind
Infer: TypeAlias = Callable[[Any, np.random.Generator], Drawn]
_MAX_POINTS = 127  # of the band: each costs a convolution in every step of its search
_CLEAR = 2.0  # standard deviations from which a reading names its cause


@dataclass(frozen=True, eq=False)
class SBC:
    """Ranks of the truths among their draws; `print` it for a verdict.

    Attributes
    ----------
    statistics : tuple of str
        Their names.
    ranks : ndarray of int, shape (data set, statistic)
        How many draws lie below the truth, 0 to `num_draws`; ties are broken at random.
    pit : ndarray of shape (data set, statistic)
        (rank + a uniform number) / (num_draws + 1): uniform on [0, 1] if the draws are right.
    num_draws : int
        L.
    points : ndarray of shape (point,)
        Where the distribution functions of the ranks are looked at, multiples of 1 / (L + 1).
    band_low, band_high : ndarray of shape (point,)
        Between which the function of each statistic stays, at all points. The band is made for
        1 - (1 - prob) / number of statistics, so that all statistics stay inside with probability `prob`.
    prob : float
        That a method with right draws `passes`.
    note : str
        Empty, or why there are fewer data sets than were asked for.
    """

    statistics: tuple[str, ...]
    ranks: NDArray[np.int64]
    pit: Array
    num_draws: int
    points: Array
    band_low: Array
    band_high: Array
    prob: float
    note: str = ""

    @property
    def n_data_sets(self) -> int:
        """How many data sets were simulated."""
        return len(self.ranks)

    @property
    def ecdf(self) -> Array:
        """Share of ranks below (L + 1) times each point, shape (statistic, point)."""
        below = np.rint(self.points * (self.num_draws + 1))
        return (self.ranks.T[:, :, None] < below).mean(1)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each statistic stays inside the band, shape (statistic,)."""
        ecdf = self.ecdf
        within = (ecdf >= self.band_low - 1e-9) & (ecdf <= self.band_high + 1e-9)
        return np.asarray(within.all(1))

    @property
    def passes(self) -> bool:
        """Whether all statistics stay inside the band."""
        return bool(self.inside.all())

    @property
    def table(self) -> pd.DataFrame:
        """A row for each statistic.

        Columns: `inside` (the band), `p` (Kolmogorov-Smirnov), `bias_z` (of the mean rank; positive: the
        truth lies above its draws), `spread_z` (of the ranks' variance; positive: the draws are too sure),
        `reading` (in words, where the band is left).
        """
        n = self.n_data_sets
        # Of n uniform numbers the mean has the variance 1 / (12 n), their variance about 1 / (180 n).
        bias = np.sqrt(12 * n) * (self.pit.mean(0) - 0.5)
        spread = np.sqrt(180 * n) * (self.pit.var(0) - 1 / 12)
        inside = self.inside
        return pd.DataFrame(
            {
                "inside": inside,
                "p": [float(kstest(column, "uniform").pvalue) for column in self.pit.T],
                "bias_z": bias,
                "spread_z": spread,
                "reading": [
                    "" if ok else _reading(b, s) for ok, b, s in zip(inside, bias, spread, strict=True)
                ],
            },
            index=pd.Index(self.statistics, name="statistic"),
        )

    def __str__(self) -> str:
        verdict = "passes" if self.passes else "FAILS"
        lines = [
            f"Simulation-based calibration {verdict}: "
            f"{self.n_data_sets} data sets, {self.num_draws} draws each"
        ]
        lines += [f"  {self.note}"] * bool(self.note)
        width = max(len(name) for name in self.statistics)
        for name, row in self.table.iterrows():
            state = "inside " if row["inside"] else "OUTSIDE"
            words = f": {row['reading']}" if row["reading"] else ""
            lines.append(f"  {name:<{width}}  {state} its band (p = {row['p']:.2g}){words}")
        middle = np.argmin(np.abs(self.points - 0.5))
        reach = self.band_high[middle] - self.points[middle]
        lines.append(
            f"Right draws stay inside all bands with probability {self.prob:.0%}; they allow shifts of "
            f"{reach:.2f} in the middle."
        )
        return "\n".join(lines)

    __repr__ = __str__


def sbc(
    simulate: Simulate | SparseDecoder | Program,
    infer: Infer | Data | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    *,
    n_data_sets: int = 200,
    num_draws: int = 63,
    columns: int = 3,
    prob: float = 0.95,
    seed: int = 0,
    progress: bool = True,
    **of_model: Any,
) -> SBC:
    """Simulation-based calibration of joint draws of graphs.

    Parameters
    ----------
    simulate : callable
        ``simulate(rng) -> (truth, data)``: a truth from the prior and a data set made with it. The truth is
        an array of 0/1 edges, or a mapping with "edge" and whatever else is to be ranked ("weight" …), real
        numbers. Or a `SparseDecoder`, to be simulated from its prior and fitted (`experiment`); or a
        `Program`, whose tables are sampled in one pass (`program_experiment`).
    infer : callable
        ``infer(data, rng) -> draws``: the same keys and shapes with one leading axis of at least `num_draws`
        joint draws; keys that the truth lacks are not looked at. Of more, `num_draws` evenly spaced ones are
        kept. They must be (nearly) independent: thinning a chain until they are is the caller's job, and
        a chain too short for it fails here. Draws of a `RowPosterior` pass as
        ``posterior.draws(63, seed)._asdict()``. With a `Program` the `Data` whose rows and features it reads.
    statistics : mapping of str to callable, optional
        ``f(truth, data) -> number``, called with the truth and with one draw at a time, in the form that
        `simulate` gives. They are added to those of the graph, "edges", "log score", "same parent", "largest
        column", "column 0" … (`pyro_sparse.calibrate.graph_statistics`), and to those of every other key of
        the truth, "weight size", "weight largest" … (`value_statistics`), which see neither signs nor places.
    n_data_sets : int
        How many truths and data sets; the first ones do not depend on how many there are.
    num_draws : int
        L. Numbers such as 63 make rank histograms easy to bin. With a model each of its chains gives so many.
    columns : int
        How many of the first columns (last axis) are counted one by one; 0 where columns have no lasting
        name, unless `infer` matches them. Of a `Program` none is.
    prob : float
        Probability in (0, 1) that right draws pass.
    seed : int
        Every data set has its own three random streams (truth, inference, ties) from it.
    progress : bool
        Show a progress bar.
    **of_model
        With a model: arguments of `experiment` (``n_rows``, ``sweeps``, settings of the fit), or of
        `program_experiment` (``sweeps``, ``warm_up``, ``chains``).

    Returns
    -------
    SBC
        Ctrl-C gives the result of the data sets that are done, with a note, if there is one.

    Raises
    ------
    TypeError
        If `simulate` returns no pair, or a truth without "edge"; if values are no real numbers.
    ValueError
        If shapes of truth and draws differ, there are too few draws, edges are not 0 or 1, a value is not
        finite, or a setting is out of range. The data set at fault is named.

    Notes
    -----
    Passing means that nothing was seen by these statistics at this number of data sets. The prior of the
    simulation is part of the test: inference under another prior fails, rightly.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari and Gelman (2018), arXiv:1804.06788; ties and statistics that look at
    the data: Modrák et al. (2023), Bayesian Analysis, doi:10.1214/23-BA1404; bands: `ecdf_band`.

    Examples
    --------
    Four edges that are there with probability .3, seen through noise:

    >>> import numpy as np
    >>> def simulate(rng):
    ...     edge = rng.random(4) < 0.3
    ...     return edge, edge + rng.normal(size=4)
    >>> def infer(y, rng):
    ...     p = 1 / (1 + 0.7 / 0.3 * np.exp(0.5 - y))
    ...     return rng.random((63, 4)) < p
    >>> sbc(simulate, infer, seed=1, progress=False).passes
    True
    """
    check_whole(1, n_data_sets=n_data_sets, num_draws=num_draws)
    check_whole(0, columns=columns, seed=seed)
    if isinstance(simulate, Program):
        columns = 0  # factors are matched to the truth, and counts of matched ones would be too good
        of_model = {"n_data_sets": n_data_sets, "seed": seed, "progress": progress, **of_model}
    simulate, infer = _both(simulate, infer, num_draws, of_model)
    names: tuple[str, ...] = ()
    ranks: list[Array] = []
    note = ""
    extra = dict(statistics or {})
    for name, function in extra.items():
        if not callable(function):
            raise TypeError(f"statistics: want functions f(truth, data), got {function!r} for {name!r}")
    points = _points(num_draws)
    ecdf_band(n_data_sets, points, prob)  # complains before the work, not after
    counted = Progress("calibration", n_data_sets, "data set", shown=progress)
    try:
        for i, child in enumerate(np.random.SeedSequence(seed).spawn(n_data_sets)):
            streams = [np.random.default_rng(s) for s in child.spawn(3)]
            try:
                names, rank = _one_data_set(simulate, infer, extra, num_draws, columns, streams)
            except Exception as error:
                error.add_note(f"sbc: in data set {i} of {n_data_sets}, seed {seed}")
                raise
            ranks.append(rank)
            counted.advance()
    except KeyboardInterrupt:
        if not ranks:
            raise
        note = f"stopped by Ctrl-C after {len(ranks)} of {n_data_sets} data sets"
    finally:
        counted.close()
    table = np.array(ranks)
    low, high = ecdf_band(len(table), points, 1 - (1 - prob) / len(names))
    whole_ranks = np.floor(table).astype(np.int64)
    return SBC(names, whole_ranks, table / (num_draws + 1), num_draws, points, low, high, float(prob), note)


def _points(num_draws: int) -> Array:
    """Multiples of 1 / (L + 1) strictly inside, at most 127."""
    ranks = np.linspace(1, num_draws, min(num_draws, _MAX_POINTS))
    return np.unique(np.rint(ranks)) / (num_draws + 1)


def _both(
    simulate: Simulate | SparseDecoder | Program,
    infer: Infer | Data | None,
    num_draws: int,
    of_model: Mapping[str, Any],
) -> tuple[Simulate, Infer]:
    """The two functions, made from the model if one was given."""
    if isinstance(simulate, Program):
        if not isinstance(infer, Data):
            raise TypeError(
                f"infer: want the Data that the program reads, got {type(infer).__name__}; sbc(model, data)"
            )
        return _of_program(simulate, infer, num_draws, **of_model)
    if isinstance(infer, Data):
        raise TypeError(
            f"simulate: want a Program beside Data, got {type(simulate).__name__}; sbc(model, data)"
        )
    if isinstance(simulate, SparseDecoder):
        if infer is not None:
            raise TypeError("infer: a model brings its own; leave it out, or pass simulate and infer")
        return experiment(simulate, num_draws=num_draws, **of_model)
    if infer is None:
        raise TypeError("infer: want a function infer(data, rng) beside simulate, got none")
    if of_model:
        raise TypeError(f"{next(iter(of_model))}: only with a model; leave it out")
    return simulate, infer


def _of_program(
    model: Program, data: Data, num_draws: int, n_data_sets: int, **settings: Any
) -> tuple[Simulate, Infer]:
    """Truths of a program in their order, and the draws of each."""
    sampled = program_experiment(model, data, n_data_sets, num_draws=num_draws, **settings)
    numbers = iter(range(n_data_sets))
    latent = set(sampled.draws[0]) - {"edge", "weight"}

    def simulate(rng: np.random.Generator) -> tuple[Drawn, Any]:
        number = next(numbers)
        table = sampled.tables[number]
        sites = {name: value for name, value in table.sites.items() if name in latent}
        return {"edge": table.edge.astype(int), "weight": table.weight, **sites}, number

    def infer(number: Any, rng: np.random.Generator) -> Drawn:
        return sampled.draws[number]

    return simulate, infer


def _one_data_set(
    simulate: Simulate,
    infer: Infer,
    extra: Mapping[str, Statistic],
    num_draws: int,
    columns: int,
    streams: list[np.random.Generator],
) -> tuple[tuple[str, ...], Array]:
    """Names of the statistics, and rank plus a uniform number of each."""
    made = simulate(streams[0])
    if not isinstance(made, tuple) or len(made) != 2:
        raise TypeError(f"simulate: want a pair (truth, data), got {type(made).__name__}")
    truth, data = made
    stack = _stack(truth, infer(data, streams[1]), num_draws)
    values = graph_statistics(stack["edge"].astype(float), columns)
    for key, truth_and_draws in stack.items():
        if key != "edge":
            values |= value_statistics(key, truth_and_draws)
    bare = not isinstance(truth, Mapping)
    for name, function in extra.items():
        items = ({key: value[j] for key, value in stack.items()} for j in range(num_draws + 1))
        statistics = [
            np.asarray(function(item["edge"] if bare else item, data), dtype=float) for item in items
        ]
        if any(value.size != 1 for value in statistics) or not np.isfinite(statistics).all():
            raise ValueError(
                f"statistics: {name!r} wants to give one finite number, got {statistics[0]} for the truth; "
                "return a float"
            )
        values[name] = np.array([value.item() for value in statistics])
    ranks = []
    for value in values.values():
        below, equal = (value[1:] < value[0]).sum(), (value[1:] == value[0]).sum()
        # Uniform among the ties, and within the rank.
        ranks.append(below + streams[2].integers(equal + 1) + streams[2].random())
    return tuple(values), np.array(ranks)


def _stack(truth: Drawn, draws: Drawn, num_draws: int) -> dict[str, NDArray]:
    """The truth on top of its draws, by key."""
    true_values = truth if isinstance(truth, Mapping) else {"edge": truth}
    many = draws if isinstance(draws, Mapping) else {"edge": draws}
    if "edge" not in true_values:
        raise TypeError(
            f'simulate: want the truth to be an array or to have "edge", got keys {list(true_values)}'
        )
    missing = [key for key in true_values if key not in many]
    if missing:
        raise ValueError(
            f"infer: the truth has {list(true_values)}, the draws lack {missing}; draw them, or "
            "leave them out of the truth"
        )
    stack = {}
    for key, value in true_values.items():
        top, below = np.asarray(value), np.asarray(many[key])
        for who, array in (("simulate", top), ("infer", below)):
            if array.dtype.kind not in "biuf":
                raise TypeError(f"{who}: want real numbers in {key!r}, got {array.dtype}; leave it out")
        if below.ndim != top.ndim + 1 or below.shape[1:] != top.shape:
            raise ValueError(
                f"infer: want draws of {key!r} of shape (draw, {', '.join(map(str, top.shape))}), got "
                f"{below.shape}; one leading axis, chains joined"
            )
        if len(below) < num_draws:
            raise ValueError(
                f"infer: want at least {num_draws} draws of {key!r}, got {len(below)}; draw more, or "
                "lower num_draws"
            )
        kept = below[np.rint(np.linspace(0, len(below) - 1, num_draws)).astype(int)]
        stack[key] = np.concatenate([top[None], kept])
        for who, array in (("simulate", top), ("infer", kept)):
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{who}: want finite numbers, "
                    f"got {int((~np.isfinite(array)).sum())} NaN or inf in {key!r}"
                )
            if key == "edge" and (array.size == 0 or not np.isin(array, (0, 1)).all()):
                strange = array[~np.isin(array, (0, 1))].flat[0] if array.size else "none"
                raise ValueError(
                    f"{who}: want edges of 0 or 1, at least one, got {strange}; compare weights with 0"
                )
    return stack


def _reading(bias: float, spread: float) -> str:
    """What ranks outside their band say."""
    if max(abs(bias), abs(spread)) < _CLEAR:
        return "ranks are uneven"
    if abs(bias) >= abs(spread):
        return "the truth lies above its draws" if bias > 0 else "the truth lies below its draws"
    return "the draws are too sure" if spread > 0 else "the draws are not sure enough"
