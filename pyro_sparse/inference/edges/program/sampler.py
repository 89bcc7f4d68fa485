r"""Edges of any program by Markov chains over all its latent sites.

.. math:: P(\gamma_{jk} = 1 \mid x) \approx
          \frac1{CS} \sum_{c, s} P(\gamma_{jk} = 1 \mid \text{all else in sweep } s \text{ of chain } c)

Chains begin at the best restarts of the fit and, for one of them, at the best in axes turned at random; what
they do not agree on is said. The kernels are chosen by what the program declares and how its density behaves
(`inference/program`), never by what it is.
"""

from __future__ import annotations

import time
import warnings
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...._utils.checks import check_whole
from ...._utils.progress import Progress
from ...._utils.torch_state import undisturbed
from ...._utils.types import ArvizData
from ....distributions.edge_weights import NEVER
from ....graphs.chain_groups import pool_chains
from ....graphs.chain_starts import came_back
from ...program.recorded import RecordedDensity
from ...program.result import REACH
from ...program.sweeps import ProgramChains
from ..mcmc.alignment import Frame
from ..mcmc.running import say_how_long
from ..mcmc.stopping import BatchMeans, Thinned
from .packing import packed_edges

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...program.recorded import Position
    from ...program.result import ProgramFit

__all__ = ["ProgramDraws", "check_lengths", "program_edges", "program_scores", "run_program"]

Array = NDArray[np.float64]

LEAST_KEPT = 10  # sweeps after the warm-up
_SWEEPS, _WARM_UP = 800, 200
_BATCHES = 10
_TIMED = 5  # sweeps, after as many, by which the rest is judged
_LOOKED_AT = 20  # sweeps of the warm-up, from half of which the frame is learned
_LEVEL_EVERY = 10  # sweeps, between two looks at the density of a chain


class ProgramDraws(NamedTuple):
    """What chains over a program saw, in the frame of the fit.

    Attributes
    ----------
    prob, prob_error : ndarray (chain, feature, factor)
        Rao-Blackwellised probabilities and their Monte Carlo standard errors.
    edge : ndarray of int8 (chain, draw, feature, factor)
    weight : ndarray (chain, draw, feature, factor)
    sites : dict of ndarray (chain, draw, ...)
        Draws of the other sites that are not in the plate of rows, on their own support.
    scores : dict of ndarray (chain, row, ..., factor)
        Posterior means of declared factors.
    log_marginal : ndarray (chain, look)
        Of every tenth sweep.
    sweeps : int
    asked : ndarray of bool (feature, factor)
        Edges that the program neither forbids nor requires.
    looked : ndarray (chain, feature, factor) or None
        Mean of what `look` saw.
    methods : dict of str
        How each block was drawn, and how often accepted.
    stopped_by : {"", "time", "interrupt"}
    other_prob : dict of ndarray (chain, feature, factor)
        Probabilities of the edges of the other sites.
    """

    prob: Array
    prob_error: Array
    edge: NDArray[np.int8]
    weight: Array
    sites: dict[str, Array]
    scores: dict[str, Array]
    log_marginal: Array
    sweeps: int
    asked: NDArray[np.bool_]
    methods: dict[str, str]
    stopped_by: str
    looked: Array | None = None
    other_prob: dict[str, Array] = {}


def program_edges(
    fit: ProgramFit,
    num_draws: int = 500,
    seed: int = 0,
    *,
    site: str | None = None,
    chains: int = 4,
    sweeps: int = _SWEEPS,
    warm_up: int | None = None,
    time_budget: float | None = None,
    progress: bool = True,
) -> ArvizData:
    """Edge probabilities of the fit of a `Program`, by Markov chains over all it holds.

    Parameters
    ----------
    fit : ProgramFit
    num_draws : int
        Draws kept of each chain, at most as many as sweeps.
    seed : int
    site : str, optional
        Whose edges, of a program with several `ps.edges` or `ps.gates`; default the first. Factors have the
        same order and signs whichever is asked for, and the same seed the same chains.
    chains : int
        At least two: one alone could not disagree.
    sweeps, warm_up : int
        Of each chain; the first include the second, by default a quarter of them.
    time_budget : float, optional
        Seconds after which the chains stop, if they have ten sweeps after the warm-up.
    progress : bool

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        As of other tables; `posterior` also has every site outside of the plate of rows, and `factor_scores`
        the posterior means of the factors.
    """
    check_whole(1, num_draws=num_draws)
    warm_up = check_lengths(chains, sweeps, warm_up)
    names = [edge_site.name for edge_site in fit.layout.edges]
    site = fit.site if site is None else site
    if site not in names:
        raise ValueError(f"site: got {site!r}, wanted one that has edges: {', '.join(names)}")
    with undisturbed(seed):
        restarts, turned = _plan(fit, chains)
        density = RecordedDensity(fit.model, fit.data, chains, seed=seed, device=str(fit.settings["device"]))
        start = _starts(fit, restarts, turned, seed)
        # A restart's last sweep is a draw, unlike its mean: that is no evidence that it lacked a factor.
        restart_weights = fit.weights[restarts] if site == fit.site else np.nan
        began = np.where(np.array(turned)[:, None, None], _loadings(start, site), restart_weights)
        start = {name: value.to(density.device) for name, value in start.items()}
        draws = run_program(
            density, start, site, pivot=_pivot(fit, density, names), frame_sites=names, sweeps=sweeps,
            warm_up=warm_up, num_draws=num_draws, heated=turned, time_budget=time_budget, progress=progress,
        )  # fmt: skip
    level = draws.log_marginal.mean(1)
    pool = pool_chains(draws.prob, draws.prob_error, level, None, REACH)
    returned = came_back(draws.weight.mean(1), began, _fitted(fit, site), pool)
    confirmed = list(compress(fit.factor_names, returned))
    return packed_edges(fit, site, draws, pool, restarts, turned, confirmed, sweeps - warm_up)


def check_lengths(chains: int, sweeps: int, warm_up: int | None) -> int:
    """Sweeps of the warm-up, by default a quarter; complains of too few chains or sweeps.

    Parameters
    ----------
    chains, sweeps : int
    warm_up : int or None

    Raises
    ------
    ValueError
        Fewer than two chains, or fewer than ten sweeps after the warm-up.
    """
    check_whole(2, chains=chains)
    check_whole(LEAST_KEPT, sweeps=sweeps)
    warm_up = sweeps // 4 if warm_up is None else warm_up
    check_whole(0, warm_up=warm_up)
    if sweeps - warm_up < LEAST_KEPT:
        raise ValueError(
            f"warm_up: leaves {sweeps - warm_up} of sweeps={sweeps}, want at least {LEAST_KEPT}; lower it"
        )
    return warm_up


def run_program(
    density: RecordedDensity,
    start: Position,
    site: str,
    *,
    pivot: Array,
    frame_sites: list[str] | None = None,
    groups: list[NDArray[np.intp]] | None = None,
    signed: bool = True,
    sweeps: int,
    warm_up: int,
    num_draws: int,
    heated: list[bool] | None = None,
    table_of: NDArray[np.intp] | None = None,
    time_budget: float | None = None,
    look: Callable[[Position], Tensor] | None = None,
    progress: bool = False,
) -> ProgramDraws:
    """Sweep all chains and keep what is wanted, every sweep in the pivot's frame.

    Parameters
    ----------
    density : RecordedDensity
    start : dict of Tensor
        Chain first.
    site : str
        Whose edges are asked for.
    pivot : ndarray (feature, factor) or (chain, feature, factor)
        Loadings that set order and signs of declared factors.
    frame_sites : list of str, optional
        Sites of edges whose features the pivot has, one site's below the other's; default the one asked for.
    groups : list of ndarray of int, optional
        Sets of factors that can change places; default those with the same edges permitted and required.
    signed : bool
        Whether the signs of weights say which factor is which.
    sweeps, warm_up, num_draws : int
    heated
        Of `ProgramChains`.
    table_of : ndarray of int (chain,), optional
        Table of each chain; default one for all.
    time_budget : float, optional
    look : callable, optional
        Of a position, something of each edge (chain, feature, factor), asked every tenth sweep.
    progress : bool
    """
    tables = [0] * density.n_chains if table_of is None else table_of.tolist()
    chains = ProgramChains(density, start, warm_up, heated=heated, table_of=tables)
    frame_sites = [site] if frame_sites is None else frame_sites
    if groups is None:
        terms = density.edges(chains.position)
        groups = _alike(torch.cat([terms[name].log_odds[0] for name in frame_sites]))
    frame = Frame(pivot, groups, density.n_chains, signed)
    collected = _Collector(density, chains, site, frame, frame_sites, num_draws, look)
    began, stopped_by = time.monotonic(), ""
    timed = began  # once the first sweeps, which record, are made
    before: list[Array] = []  # loadings, which say where factors are
    with Progress("chains", sweeps, "sweep", shown=progress) as counted:
        try:
            for sweep in range(sweeps):
                if sweep == warm_up and before:
                    frame.settle(np.stack(before))
                chains.sweep()
                counted.advance()
                if sweep + 1 == 2 * _TIMED and time_budget is None:
                    seconds = (time.monotonic() - timed) / _TIMED * sweeps
                    say_how_long(
                        seconds, len(density.data), sweeps, "fewer sweeps or time_budget shorten them"
                    )
                timed = time.monotonic() if sweep + 1 == _TIMED else timed
                if sweep < warm_up:
                    if (
                        collected.learns
                        and sweep >= warm_up // 2
                        and sweep % (1 + warm_up // _LOOKED_AT) == 0
                    ):
                        before.append(collected.loadings(chains.edges()))
                    continue
                collected.add()
                if time_budget and time.monotonic() - began > time_budget and collected.done >= LEAST_KEPT:
                    stopped_by = "time"
                    break
        except KeyboardInterrupt:
            if collected.done < LEAST_KEPT:
                raise
            stopped_by = "interrupt"
            warnings.warn(
                f"edge_posterior: stopped after {collected.done} of {sweeps - warm_up} sweeps",
                RuntimeWarning,
                stacklevel=6,
            )
    return collected.result(stopped_by)


class _Collector:
    """Sums and draws of sweeps as they come."""

    def __init__(
        self,
        density: RecordedDensity,
        chains: ProgramChains,
        site: str,
        frame: Frame,
        frame_sites: list[str],
        num_draws: int,
        look: Callable[[Position], Tensor] | None,
    ):
        self.look, self.looked = look, list[Array]()
        self.density, self.chains, self.site, self.frame_sites = density, chains, site, frame_sites
        self.kinds = {s.name: s.kind for s in density.layout.sites.values()}
        n_factors = density.layout.n_factors
        self.has_axes = density.layout.has_axes
        self.frame = frame
        self.total: dict[str, Any] = dict.fromkeys((s.name for s in density.layout.edges), 0.0)
        self.done = 0
        self.batches, self.level = BatchMeans(_BATCHES), list[Array]()
        self.draws: Thinned[dict[str, Array]] = Thinned(num_draws)
        self.scores: dict[str, Array] = {}
        self.rng = np.random.default_rng(torch.initial_seed())  # the chains do not depend on num_draws
        log_odds = density.edges(chains.position)[site].log_odds.abs()
        self.asked = (log_odds < -_NEARLY_NEVER).any(0).cpu().numpy()
        self.identity = (
            np.tile(np.arange(n_factors), (density.n_chains, 1)),
            np.ones((density.n_chains, n_factors)),
        )

    def add(self) -> None:
        """The sweep that was just made."""
        edges = self.chains.edges()
        conditional = {**edges, **self.chains.drawn()}
        order = self._frame_of(conditional)[0][:, None]
        for name in self.total:
            given_others = np.take_along_axis(conditional[name][1].cpu().numpy(), order, -1)
            self.total[name] = self.total[name] + given_others
            if name == self.site:
                self.batches.add(given_others)
        weight, prob = (value.cpu().numpy() for value in edges[self.site])
        order, sign = self._frame_of(edges)
        prob = np.take_along_axis(prob, order[:, None], -1)
        if self.done % _LEVEL_EVERY == 0:
            self.level.append(self.chains.log_marginal().cpu().numpy())
        if self.look is not None and self.done % _LEVEL_EVERY == 0:
            seen = self.look(self.chains.position).cpu().numpy()
            self.looked.append(np.take_along_axis(seen, order[:, None], -1))
        values = self.density.values(self.chains.position)
        for name, kind in self.kinds.items():
            if kind == "factors":
                of_rows = values[name].squeeze(2)  # without the plate of features
                drawn = _reordered(of_rows.cpu().numpy(), order, sign)
                self.scores[name] = self.scores.get(name, 0.0) + drawn
        if self.draws.wants(self.done):
            self.draws.add(self._draw(values, weight, prob, order, sign))
        self.done += 1

    def _frame_of(self, edges: dict[str, tuple[Tensor, Tensor]]) -> tuple[NDArray[np.intp], Array]:
        """Order and signs of the factors, by the weights of all sites of the frame."""
        return self.frame.turns(self.loadings(edges)) if self.has_axes else self.identity

    @property
    def learns(self) -> bool:
        """Whether there is a factor of which loadings can say where it is."""
        return self.has_axes and self.frame.learns

    def loadings(self, edges: dict[str, tuple[Tensor, Tensor]]) -> Array:
        """Weights of all sites of the frame in units of their slabs, (chain, feature, factor).

        Parameters
        ----------
        edges : dict of (Tensor, Tensor)
            From `ProgramChains.edges`.
        """
        units = units_of(self.density, self.chains.position)
        return np.concatenate([edges[n][0].cpu().numpy() * units[n] for n in self.frame_sites], 1)

    def _draw(
        self, values: Any, weight: Array, prob: Array, order: NDArray[np.intp], sign: Array
    ) -> dict[str, Array]:
        # Gates are their own draws; given its weight an edge is independent of all else.
        is_gate = self.kinds[self.site] == "gates"
        edge = (
            _reordered(weight, order, np.ones_like(sign)) if is_gate else self.rng.random(prob.shape) < prob
        )
        kept: dict[str, Array] = {
            "": edge.astype(np.int8),
            self.site: _reordered(weight, order, sign),
        }
        layout = self.density.layout
        values = {**values, **(self.density.derived(self.chains.position) if layout.derived else {})}
        for name, site in {**layout.sites, **layout.derived}.items():
            if name not in values or site.group == "rows" or name == self.site:
                continue
            value = values[name].cpu().numpy()
            if site.kind == "correlation":
                value = _reordered(value @ value.swapaxes(-1, -2), order, sign)
                value = _reordered(value.swapaxes(-1, -2), order, sign)
            elif self.has_axes and site.kind in ("edges", "gates", "axis"):
                value = _reordered(value, order, sign if site.kind != "gates" else np.ones_like(sign))
            elif self.has_axes and site.kind == "each":
                value = _reordered(value, order, np.ones_like(sign))
            kept[name] = value
        return kept

    def result(self, stopped_by: str) -> ProgramDraws:
        """All of it."""
        draws = self.draws.chosen()
        stacked = {name: np.stack([draw[name] for draw in draws], 1) for name in draws[0]}
        methods = {
            name: f"{s.method}, accepted {s.acceptance:.2f}" for name, s in self.chains.samplers.items()
        }
        return ProgramDraws(
            prob=self.total[self.site] / self.done,
            prob_error=self.batches.error(),
            edge=stacked.pop("").astype(np.int8),
            weight=stacked.pop(self.site),
            sites=stacked,
            scores={name: total / self.done for name, total in self.scores.items()},
            log_marginal=np.stack(self.level, 1),
            sweeps=self.done,
            asked=self.asked,
            methods=methods,
            stopped_by=stopped_by,
            looked=np.mean(self.looked, axis=0) if self.looked else None,
            other_prob={n: total / self.done for n, total in self.total.items() if n != self.site},
        )


def units_of(density: RecordedDensity, u: Position) -> dict[str, float]:
    """What makes weights of any units comparable, by site: mean scales of slabs; of gates 1.

    Parameters
    ----------
    density : RecordedDensity
    u : dict of Tensor
    """
    terms, edges = density.edges(u), density.layout.edges
    return {s.name: 1.0 if s.kind == "gates" else _UNIT / float(terms[s.name].slab.mean()) for s in edges}


def _alike(log_odds: Tensor) -> list[NDArray[np.intp]]:
    """Sets of factors with the same edges permitted and required, of log odds (feature, factor)."""
    fixed = torch.where(log_odds.abs() < -_NEARLY_NEVER, 0.0, log_odds.sign()).cpu().numpy()
    kind = np.unique(fixed, axis=1, return_inverse=True)[1].reshape(fixed.shape[1])
    return [np.flatnonzero(kind == label) for label in np.unique(kind)]


_NEARLY_NEVER = NEVER + 1  # log odds
_UNIT = 0.5  # of a slab that is called standardised, as that of practical edges is


def program_scores(fit: ProgramFit, num_draws: int = 500, seed: int = 0) -> ArvizData:
    """Scores of the best restart, without chains: they rank the edges and are too sure of them.

    Parameters
    ----------
    fit : ProgramFit
    num_draws : int
    seed : int
    """
    p = fit.edge_score
    rng = np.random.default_rng(seed)
    edge = (rng.random((len(p), num_draws, *p.shape[1:])) < p[:, None]).astype(np.int8)
    draws = ProgramDraws(
        p, np.full(p.shape, np.nan), edge, np.repeat(fit.weights[:, None], num_draws, 1), {}, {},
        fit.log_marginal[:, None], 0, np.ones(p.shape[1:], bool), {}, "",
    )  # fmt: skip
    pool = pool_chains(p, np.zeros(p.shape), fit.log_marginal, None, REACH)
    restarts = list(range(fit.n_restarts))
    return packed_edges(fit, fit.site, draws, pool, restarts, [False] * len(restarts), [], 0, is_score=True)


def _plan(fit: ProgramFit, chains: int) -> tuple[list[int], list[bool]]:
    """Restart of each chain, and whether it begins in axes turned at random."""
    level = np.where(np.isfinite(fit.log_marginal), fit.log_marginal, -np.inf)
    order = [r for r in np.argsort(-level, kind="stable") if level[r] >= level[fit.best] - REACH]
    restarts = [int(order[c % len(order)]) for c in range(chains)]
    turned = [c >= len(order) for c in range(chains)]
    if fit.layout.has_axes and not any(turned):
        restarts[-1], turned[-1] = fit.best, True
    return restarts, [t and fit.layout.has_axes for t in turned]


def _starts(fit: ProgramFit, restarts: list[int], turned: list[bool], seed: int) -> Position:
    """Positions of the chains."""
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    start = {name: value[restarts].clone() for name, value in fit.position.items()}
    for c, turns in enumerate(turned):
        if not turns:
            continue
        matrix = np.linalg.qr(rng.standard_normal((fit.model.n_factors,) * 2))[0]
        for site in fit.layout.axes:
            value = start[site.name]
            value[c] = value[c] @ torch.as_tensor(matrix).to(value)
    return start


def _loadings(start: Position, site: str) -> Array:
    """Weights where chains begin, (chain, feature, factor)."""
    weight = start[site]
    return weight.reshape(len(weight), -1, weight.shape[-1]).cpu().numpy()


def _fitted(fit: ProgramFit, site: str) -> Array:
    """The best restart's weights as the fit shows them; of other sites than the first by its last sweep."""
    if site == fit.site:
        return fit.weights[fit.best]
    order, sign = (fit.alignment[name][fit.best] for name in ("permutation", "sign"))
    last: Array = _loadings(fit.position, site)[fit.best][:, order] * sign
    return last


def _pivot(fit: ProgramFit, density: RecordedDensity, names: list[str]) -> Array:
    """The fit's weights of all sites as loadings."""
    units = units_of(density, density.start)
    stacked = np.concatenate([units[name] * _fitted(fit, name) for name in names])
    largest = np.abs(stacked).max()
    return stacked / largest if largest > 0 else stacked


def _reordered(value: Array, order: NDArray[np.intp], sign: Array) -> Array:
    """The last axis of values (chain, ..., factor) in another order, with other signs."""
    shape = (len(value), *[1] * (value.ndim - 2), value.shape[-1])
    drawn: Array = np.take_along_axis(value, np.broadcast_to(order.reshape(shape), value.shape), -1)
    return drawn * sign.reshape(shape)
