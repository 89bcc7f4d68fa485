r"""Simulation of a program from its own prior, and chains over all simulated tables in one pass.

.. math:: \theta^*, \gamma^* \sim p(\theta, \gamma), \quad x \sim p(x \mid \theta^*), \quad
          \theta_1, \theta_2, \dots \sim p(\theta \mid x)

Rows, features and what is known of them are those of `data`; cells that were not seen there are not seen in
any table. Chains begin at the tables' components and at other draws from the prior, never at the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pyro import poutine

from .._utils.checks import check_whole
from .._utils.torch_state import default_dtype, undisturbed
from ..distributions.edge_weights import EdgeWeights
from ..graphs.alignment import SAME_FACTOR, match_columns, similarity
from ..graphs.chain_groups import pool_chains
from ..inference.edges.program.findings import loose_factors
from ..inference.edges.program.sampler import ProgramDraws, run_program, units_of
from ..inference.program.layout import PARAMETER, Layout, read_layout
from ..inference.program.recorded import RecordedDensity
from ..inference.program.result import REACH
from ..inference.program.starts import starts_of
from ..programs.parameters import GivenParameters
from .reliability import Reliability, reliability

if TYPE_CHECKING:
    from ..programs.data import Data
    from ..programs.program import Program

__all__ = ["ProgramExperiment", "SimulatedTable", "program_experiment", "simulate_tables"]

Array = NDArray[np.float64]

_CHAINS = 2  # of each table
# With 700 sweeps rates had some 60 effective draws, and 90 % intervals of so few cover .87 at best.
_SWEEPS, _WARM_UP = 2000, 500
_AWAY = 0.5  # standard deviation of parameters' starts around their true values, on the scale of real numbers


class SimulatedTable(NamedTuple):
    """A draw of a program.

    Attributes
    ----------
    x : ndarray (row, ..., feature)
    edge : ndarray of bool (feature, factor)
        Of the program's first site of edges.
    weight : ndarray (feature, factor)
        Of gates 0 and 1.
    sites : dict of ndarray
        All other latent sites, on their own support, and what the program names by `deterministic`.
    other_edges : dict of ndarray of bool (feature, factor)
        Of the other sites of edges.
    """

    x: Array
    edge: NDArray[np.bool_]
    weight: Array
    sites: dict[str, Array]
    other_edges: dict[str, NDArray[np.bool_]] = {}


@dataclass(frozen=True, eq=False)
class ProgramExperiment:
    """Truths of a program and what its chains say of them.

    Attributes
    ----------
    tables : list of SimulatedTable
    probability : ndarray (table, feature, factor)
        Of each edge of the program's first site, factors matched to the true ones.
    draws : list of dict of ndarray (draw, ...)
        Of each table, over the chains kept: "edge", "weight" and the other sites outside of the rows.
    right_axes : ndarray of bool (table,)
        Whether all true factors with an edge are there, with a congruence of .9 at least.
    flagged : ndarray of bool (table,)
        Whether the chains of a table hold different graphs or differ in an edge by more than .25, or draws of
        a factor in use have no axis in common: what `edge_posterior` would say.
    other_probability : dict of ndarray (table, feature, factor)
        Of the edges of the other sites.
    site : str
        Name of the first.
    """

    tables: list[SimulatedTable]
    probability: Array
    draws: list[dict[str, Array]]
    right_axes: NDArray[np.bool_]
    flagged: NDArray[np.bool_]
    other_probability: dict[str, Array] = field(default_factory=dict)
    site: str = ""

    @property
    def edge(self) -> NDArray[np.bool_]:
        """The true edges of the program's first site, (table, feature, factor)."""
        return np.stack([table.edge for table in self.tables])

    def reliability(self, site: str | None = None) -> Reliability:
        """Whether edges called .8 are there eight times in ten, over all tables.

        Parameters
        ----------
        site : str, optional
            Whose edges, of a program with several `ps.edges` or `ps.gates`; default the first.

        Raises
        ------
        ValueError
            There is no other site of this name that has edges.
        """
        probability, edge = self.probability, self.edge
        if site is not None and site != self.site:
            if site not in self.other_probability:
                wanted = ", ".join([self.site, *self.other_probability])
                raise ValueError(f"site: got {site!r}, wanted one that has edges: {wanted}")
            probability = self.other_probability[site]
            edge = np.stack([table.other_edges[site] for table in self.tables])
        groups = np.broadcast_to(np.arange(len(self.tables))[:, None, None], probability.shape)
        return reliability(probability.ravel(), edge.ravel(), group=groups.ravel())

    def coverage(self, prob: float = 0.9) -> dict[str, float]:
        """Share of true values inside of the central interval of their draws, by site.

        Parameters
        ----------
        prob : float
            Probability of an interval.
        """
        ends = (1 - prob) / 2, (1 + prob) / 2
        inside: dict[str, list[Array]] = {}
        for table, draws in zip(self.tables, self.draws, strict=True):
            for name, drawn in draws.items():
                if name == "edge" or name not in ("weight", *table.sites):
                    continue  # a parameter has no draws of its own
                true = table.weight if name == "weight" else table.sites[name]
                low, high = np.quantile(drawn, ends, axis=0)
                inside.setdefault(name, []).append(((true >= low) & (true <= high)).ravel())
        return {name: float(np.concatenate(values).mean()) for name, values in inside.items()}


def simulate_tables(model: Program, data: Data, n_tables: int, seed: int = 0) -> list[SimulatedTable]:
    """Draws of a program.

    Parameters
    ----------
    model : Program
    data : Data
        Rows, features, and what is known of them. Parameters (`pyro.param`) have their initial values.
    n_tables : int
    seed : int

    Raises
    ------
    ValueError
        The program's cells are not one observed site of the table's shape: `pyro.factor` says how likely data
        are and not how they come about.
    """
    check_whole(1, n_tables=n_tables)
    check_whole(0, seed=seed)
    with undisturbed(seed), default_dtype(torch.float64):
        layout, _ = read_layout(model.program, data.view(model.n_factors))
        return [_simulated(model, data, layout) for _ in range(n_tables)]


def _simulated(model: Program, data: Data, layout: Layout) -> SimulatedTable:
    with GivenParameters():
        trace = poutine.trace(poutine.uncondition(model.program)).get_trace(data.view(model.n_factors))
    observed = [site.name for site in layout.sites.values() if site.observed]
    cells = trace.nodes[observed[0]]
    if len(observed) > 1 or cells["value"].shape != data.x.shape:
        raise ValueError(
            f"program: its data are {', '.join(observed)}, and a table can be drawn only from one observed "
            f"site of shape {data.x.shape}: pyro.sample(..., obs=d.x)"
        )
    first = layout.edges[0]
    values = {
        s.name: trace.nodes[s.name]["value"].numpy()
        for s in layout.sites.values()
        if not s.observed and s.kind != PARAMETER
    }
    values |= {name: trace.nodes[name]["value"].numpy() for name in layout.derived}
    edges = {s.name: _drawn_edges(trace.nodes[s.name]) for s in layout.edges}
    edge, weight = edges.pop(first.name), values.pop(first.name)
    return SimulatedTable(cells["value"].numpy(), edge, weight, values, edges)


def _drawn_edges(node: dict[str, Any]) -> NDArray[np.bool_]:
    """The edges of a site's node in a trace, of gates those that are 1."""
    fn = node["fn"]
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    edge: NDArray[np.bool_] = (fn.drawn_edges if isinstance(fn, EdgeWeights) else node["value"] > 0.5).numpy()
    return edge


def program_experiment(
    model: Program,
    data: Data,
    n_tables: int = 50,
    *,
    sweeps: int = _SWEEPS,
    warm_up: int = _WARM_UP,
    num_draws: int = 200,
    chains: int = _CHAINS,
    seed: int = 0,
    device: str = "cpu",
    progress: bool = False,
) -> ProgramExperiment:
    """Simulate tables from a program and sample all of them in one pass.

    Parameters
    ----------
    model : Program
    data : Data
    n_tables : int
    sweeps, warm_up : int
        Of each chain; the first include the second.
    num_draws : int
        Kept of each chain.
    chains : int
        Of each table.
    seed : int
    device : str
        Where the chains are sampled: "cpu", "cuda", ...
    progress : bool

    Raises
    ------
    ValueError
        The program cannot be simulated, or not be sampled.
    """
    check_whole(1, num_draws=num_draws, chains=chains, warm_up=warm_up)
    check_whole(warm_up + 10, sweeps=sweeps)
    tables = simulate_tables(model, data, n_tables, seed)
    of_chain = np.repeat(np.arange(n_tables), chains)
    x = np.stack([tables[t].x for t in of_chain])
    with undisturbed(seed + 1):
        density = RecordedDensity(model, data, len(of_chain), seed=seed + 1, tables=x, device=device)
        names = [site.name for site in density.layout.edges]
        start = _starts(density, x, data.seen, of_chain, seed)
        draws = run_program(
            density,
            start,
            names[0],
            pivot=_truths(density, tables, of_chain),
            frame_sites=names,
            table_of=of_chain,
            sweeps=sweeps,
            warm_up=warm_up,
            num_draws=num_draws,
            progress=progress,
        )
    return _compared(tables, draws, of_chain, density.layout)


def _starts(
    density: RecordedDensity, x: Array, seen: NDArray[np.bool_], of_chain: NDArray[np.intp], seed: int
) -> dict[str, Any]:
    """A table's first chain on its components, the others there in axes turned at random, or as drawn.

    The true values of parameters are those that the program names; chains begin near them.
    """
    start = {name: value.clone() for name, value in density.start.items()}
    for c in range(len(of_chain)):
        first = c == 0 or of_chain[c] != of_chain[c - 1]
        drawn = {
            name: value[c : c + 1].repeat(3, *[1] * (value.dim() - 1))
            for name, value in density.start.items()
        }
        made = starts_of(density.layout, drawn, x[c], seen, seed + c)
        for name in start:
            start[name][c] = made[name][0 if first else 2]
    for site in density.layout.parameters:  # which would begin at the truth
        start[site.name] += _AWAY * torch.randn_like(start[site.name])
    return start


def _truths(density: RecordedDensity, tables: list[SimulatedTable], of_chain: NDArray[np.intp]) -> Array:
    """True weights of all sites of edges as loadings, one site's features below the other's."""
    first, *others = (site.name for site in density.layout.edges)
    units = units_of(density, density.start)
    of_table = [
        np.concatenate([units[first] * table.weight, *(units[name] * table.sites[name] for name in others)])
        for table in tables
    ]
    return np.stack([of_table[t] for t in of_chain])


def _compared(
    tables: list[SimulatedTable], draws: ProgramDraws, of_chain: NDArray[np.intp], layout: Layout
) -> ProgramExperiment:
    probability, by_table, right, flagged = [], [], [], []
    others: dict[str, list[Array]] = {name: [] for name in draws.other_prob}
    level = draws.log_marginal.mean(1)
    for t, table in enumerate(tables):
        chains = np.flatnonzero(of_chain == t)
        pool = pool_chains(draws.prob[chains], draws.prob_error[chains], level[chains], None, REACH)
        kept = chains[pool.keep & (pool.weight > 0)]
        weights = pool.weight[pool.keep & (pool.weight > 0)]
        probability.append(np.average(draws.prob[kept], axis=0, weights=weights).clip(0, 1))
        for name, prob in draws.other_prob.items():
            others[name].append(np.average(prob[kept], axis=0, weights=weights).clip(0, 1))
        pooled: dict[str, NDArray[Any]] = {
            "edge": draws.edge[kept],
            "weight": draws.weight[kept],
            **{n: v[kept] for n, v in draws.sites.items()},
        }
        by_table.append({name: value.reshape(-1, *value.shape[2:]) for name, value in pooled.items()})
        right.append(_has_axes(draws.weight[kept].mean((0, 1)), table) if layout.has_axes else True)
        apart = np.ptp(draws.prob[kept], axis=0).max() > 0.25 if len(kept) > 1 else False
        loose = layout.has_axes and bool(loose_factors(by_table[-1]["weight"], probability[-1]))
        flagged.append(apart or loose or pool.n_graphs > 1)
    return ProgramExperiment(
        tables, np.stack(probability), by_table, np.array(right), np.array(flagged),
        {name: np.stack(probs) for name, probs in others.items()}, layout.edges[0].name,
    )  # fmt: skip


def _has_axes(weight: Array, table: SimulatedTable) -> bool:
    """Whether mean weights have every true factor that has two edges or more."""
    true = table.weight * table.edge
    used = table.edge.sum(0) >= 2
    alike = similarity(true, weight)
    order, _ = match_columns(alike)
    congruence = np.abs(alike[np.arange(len(order)), order])
    return bool((congruence[used] >= SAME_FACTOR).all())
