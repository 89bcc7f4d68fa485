"""The log density of every site of a program, of all chains in one pass, recorded once and replayed.

The program runs under Pyro's handlers and `vmap` once; what it computes is recorded as a graph of tensor
operations (`make_fx`), from which gradients and Hessians of blocks are derived, and these graphs are
replayed. Nine tenths of the time of an evaluation would go into handlers and distributions.

A program whose rows, or features, are not independent given the rest is refused, by the name of the site
(`soundness.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyro
import torch
from pyro import poutine
from torch import Tensor
from torch.func import vjp, vmap

from ..._utils.torch_state import default_device, default_dtype
from ...distributions.edge_weights import EdgeWeights, widened_spikes
from ...programs.parameters import GivenParameters
from .derivatives import curvature_of, diagonal_of, pulled, sum_of, without_overflow
from .layout import GLOBAL, PARAMETER, Layout, is_within, read_layout, unchecked
from .refusals import explained, refuse_unnamed
from .replay import AsItIs, Graph, Position, attached, inputs_of_sites, parted, quick, recorded
from .soundness import blanket_of, check_finite, check_repeatable, check_unseen

if TYPE_CHECKING:
    import numpy as np

    from ...programs.data import Data
    from ...programs.program import Program

__all__ = ["Block", "EdgeTerms", "Position", "RecordedDensity"]


_RECORD_AFTER = 100  # evaluations of a derivative
_UPDATED = (
    "pyro.module with update_module_params=True takes its parameters from a network; write "
    "torch.func.functional_call(net, {n: pyro.param(n, p.detach()) for n, p in net.named_parameters()}, x)"
)
_UNITS = 1.0  # heat of the spikes that are as the program says


_Outputs: TypeAlias = "tuple[Position, dict[str, dict[str, Tensor]], Position]"


@dataclass(frozen=True)
class Block:
    """Latent sites that are drawn together, element by element of a plate.

    Attributes
    ----------
    name : str
    group : {"rows", "features", "global"}
    sites : tuple of str
    size : int
        Numbers of one element.
    """

    name: str
    group: str
    sites: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class EdgeTerms:
    """What an edge site is drawn from, (chain, feature, factor) each.

    Attributes
    ----------
    log_odds : Tensor
    slab, spike : Tensor
        Scales.
    slab_df, spike_df : Tensor
        Degrees of freedom of Student distributions.
    """

    log_odds: Tensor
    slab: Tensor
    spike: Tensor
    slab_df: Tensor
    spike_df: Tensor


class RecordedDensity:
    """Log density of a program given data, of several chains at once.

    Parameters
    ----------
    program : Program
    data : Data
    n_chains : int
    seed : int
        Of the draws from the prior, `start`.
    tables : ndarray (chain, row, ..., feature), optional
        A table of each chain's own, in place of the data's.
    device : str
        Where to compute; tensors that the program makes are made there.
    record_after : int
        Evaluations of a derivative after which it is recorded.

    Attributes
    ----------
    layout : Layout
    start : dict of Tensor
        A draw from the prior for each chain, as real numbers.
    blocks : dict of Block
    families : dict
        Of each edge site the families of slab and spike.
    inputs_of : dict
        Of each site the latent sites that its log density is computed from.
    recording_seconds : float
        CPU seconds that recording has taken so far; graphs are recorded when they are first asked for.
    """

    def __init__(
        self,
        program: Program,
        data: Data,
        n_chains: int,
        *,
        seed: int = 0,
        tables: np.ndarray | None = None,
        device: str = "cpu",
        record_after: int = _RECORD_AFTER,
    ):
        self.record_after = record_after
        self.program, self.data, self.n_chains = program, data, n_chains
        self.device, self.has_tables = device, tables is not None
        self._graphs: dict[Any, Graph] = {}
        self._asked: dict[Any, int] = {}
        self._parted: dict[tuple[str, ...] | None, tuple[Graph, Graph]] = {}
        self._tensors = data.tensors(device, torch.float64)
        self._in_dims: Any = None
        if tables is not None:
            self._tensors["x"] = torch.as_tensor(tables, device=device, dtype=torch.float64)
            self._in_dims = {name: 0 if name == "x" else None for name in self._tensors}
        self.seen = self._tensors["seen"].to(torch.float64)
        torch.manual_seed(seed)
        with default_dtype(torch.float64), default_device(device):
            views = [self._view(c if tables is not None else None) for c in range(n_chains)]
            drawn = [read_layout(program.program, view) for view in views]
        self.names_read = frozenset().union(
            *(view.names_read for view in views)
        )  # of the data, by the program
        self.layout: Layout = drawn[0][0]
        self._check_bounds(drawn)
        self.start: Position = {
            name: torch.stack([values[name] for _, values in drawn]).to(torch.float64) for name in drawn[0][1]
        }
        with default_dtype(torch.float64), default_device(device):
            self.families = {
                site.name: _families(
                    program.program, self._view(0 if tables is not None else None), site.name
                )
                for site in self.layout.edges
                if site.kind == "edges"
            }
        self._heat = torch.full((n_chains,), _UNITS, dtype=torch.float64, device=device)
        began = time.process_time()
        self._forward_graph = self._recorded_program()
        with default_dtype(torch.float64):
            self._quick_forward = quick(self._forward_graph, self.start, self._heat)
        self.recording_seconds = time.process_time() - began
        self.inputs_of = inputs_of_sites(self._forward_graph, self.start, self._heat)
        self.blocks = self._made_blocks()
        self._blankets: dict[str, frozenset[str]] = {}
        self._check_program()

    # ---- evaluation ----------------------------------------------------------------------------------------
    @property
    def is_heated(self) -> Tensor:
        """Chains whose spikes are wider than the program says, (chain,)."""
        return self._heat > _UNITS

    def heat(self, heat: Tensor | float) -> None:
        """Widen all spikes by this factor, of each chain (chain,), from now on; 1 is as the program says."""
        self._heat = torch.ones_like(self._heat) * heat

    def logs(self, u: Position) -> dict[str, Tensor]:
        """Log density of every site, (chain, *batch)."""
        with torch.no_grad(), default_dtype(torch.float64):  # of tensors that the program makes
            return self._quick_forward(u, self._heat)[0]

    def joint(self, u: Position) -> Tensor:
        """Log density of all sites together, (chain,)."""
        return sum_of(self.logs(u), self.layout.sites)

    def derived(self, u: Position) -> dict[str, Tensor]:
        """What the program names without a density, `deterministic`, (chain, ...)."""
        with torch.no_grad(), default_dtype(torch.float64):
            return self._quick_forward(u, self._heat)[2]

    def edges(self, u: Position) -> dict[str, EdgeTerms]:
        """What each site of edges is drawn from."""

        def terms(u: Position, heat: Tensor) -> Any:
            return self._parts()[1](u, heat)

        return {name: EdgeTerms(**values) for name, values in self._replayed("edges", terms, u).items()}

    def total(self, block: Block, q: Tensor, u: Position) -> Tensor:
        """Terms that depend on each element of a block, (chain, element)."""
        return self._replayed(("total", block.name), self._total_of(block), q, u)

    def slope(self, block: Block, q: Tensor, u: Position) -> tuple[Tensor, Tensor]:
        """`total` and its gradient (chain, element, number)."""
        total = self._total_of(block)

        def both(q: Tensor, u: Position, heat: Tensor) -> tuple[Tensor, Tensor]:
            value, back = pulled(lambda q: total(q, u, heat), q)
            return value, back(torch.ones_like(value))[0]

        return self._replayed(("slope", block.name), both, q, u, derives=True)

    def curvature(self, block: Block, q: Tensor, u: Position) -> tuple[Tensor, Tensor]:
        """Gradient (chain, element, D) and negative Hessian (chain, element, D, D) of `total`."""
        total = self._total_of(block)

        def both(q: Tensor, u: Position, heat: Tensor) -> tuple[Tensor, Tensor]:
            return curvature_of(lambda q: total(q, u, heat), q)

        return self._replayed(("curvature", block.name), both, q, u, derives=True)

    def some(self, sites: tuple[str, ...], u: Position) -> Tensor:
        """Log density of some sites together, (chain,)."""

        def terms(u: Position, heat: Tensor) -> Tensor:
            return sum_of(self._parts(sites)[0](u, heat), sites)

        return self._replayed(("some", sites), terms, u)

    def marginal_slope(self, rows: Block, u: Position, names: tuple[str, ...]) -> tuple[Tensor, Position]:
        """Log density with quadratic rows integrated out, (chain,), and its gradient by these sites.

        See `collapsed.RowIntegral`. The quadratic is taken around its own maximum, found from zero: around
        zero the terms of a feature with next to no noise are as large as its precision, and what is left of
        their difference is rounding.
        """
        row_total = self._total_of(rows)
        others = tuple(name for name in self.layout.sites if name not in self._blankets[rows.name])

        def level(chosen: Position, u: Position, heat: Tensor) -> Tensor:
            u = {**u, **chosen}
            zero = torch.zeros_like(self.pack(rows, u))
            at_zero = self.unpack(rows, zero, u)

            def total(q: Tensor) -> Tensor:
                return row_total(q, at_zero, heat)

            gradient, precision = curvature_of(total, zero)
            root = torch.linalg.cholesky_ex(precision)[0]
            # The level is the same around any point, so that its slope needs none of the point's.
            centre = torch.cholesky_solve(gradient[..., None], root)[..., 0].detach()
            value, back = pulled(total, centre)
            gradient = back(torch.ones_like(value))[0]
            half = torch.linalg.solve_triangular(root, gradient[..., None], upper=False)[..., 0]
            integral = 0.5 * half.square().sum(-1) - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            constant = 0.5 * rows.size * math.log(2 * math.pi)
            outside = sum_of(self._parts(others)[0](at_zero, heat), others) if others else 0.0
            return outside + (value + integral + constant).sum(-1)

        def both(u: Position, heat: Tensor) -> tuple[Tensor, Position]:
            chosen = {name: u[name] for name in names}
            value, back = pulled(lambda chosen: level(chosen, u, heat), chosen)
            return value, back(torch.ones_like(value))[0]

        return self._replayed(("marginal", names), both, u, derives=True)

    def transported(
        self, rows: Block, u: Position, shift: Position, centre: Tensor, noise: Tensor
    ) -> tuple[Tensor, Position, Tensor]:
        """Log density where rows follow shifts of other sites, (chain,), its slopes by these, and the rows.

        See `transport.TransportSampler`: of edges the shift is that of the logarithm of a feature's weights,
        (chain, feature), and the level has the Jacobian of all that moves.
        """

        def level(
            shift: Position, u: Position, centre: Tensor, noise: Tensor, heat: Tensor
        ) -> tuple[Tensor, Tensor]:
            moved, stretch = self.shifted(u, shift)

            def total(q: Tensor) -> Tensor:
                return self._total_of(rows)(q, moved, heat)

            gradient, precision = curvature_of(total, centre)
            bad = torch.linalg.cholesky_ex(precision)[1] > 0  # the same root as `blocks.cholesky`
            precision = torch.where(bad[..., None, None], diagonal_of(precision).diag_embed(), precision)
            root = torch.linalg.cholesky_ex(precision)[0]
            half = torch.linalg.solve_triangular(root, gradient[..., None], upper=False)
            q = centre + torch.linalg.solve_triangular(root.mT, half + noise[..., None], upper=True)[..., 0]
            volume = root.diagonal(dim1=-2, dim2=-1).log().sum((-1, -2))
            sites = tuple(self.layout.sites)
            joint = sum_of(self._parts(sites)[0](self.unpack(rows, q, moved), heat), sites)
            return joint + stretch - volume, q

        def both(
            u: Position, shift: Position, centre: Tensor, noise: Tensor, heat: Tensor
        ) -> tuple[Tensor, Position, Tensor]:
            of_shift = vjp(lambda shift: level(shift, u, centre, noise, heat), shift, has_aux=True)
            value, back, q = cast("tuple[Tensor, Graph, Tensor]", of_shift)
            return value, back(torch.ones_like(value))[0], q

        return self._replayed(("transported", *shift), both, u, shift, centre, noise, derives=True)

    def shifted(self, u: Position, shift: Position) -> tuple[Position, Tensor]:
        """Sites moved by a shift, of edges of the logarithm of all weights of a feature (chain, feature).

        And the logarithm of the Jacobian, (chain,); weights that are exactly 0 stay so.
        """
        moved, jacobian = dict(u), torch.zeros_like(next(iter(u.values())).reshape(self.n_chains, -1)[:, 0])
        for name, by in shift.items():
            if name not in self.layout.edge_names:
                moved[name] = u[name] + by
                continue
            weight = self.pack(self.blocks[name], u)
            moved = self.unpack(self.blocks[name], weight * by.exp()[..., None], moved)
            jacobian = jacobian + (by * (weight != 0).to(by).sum(-1)).sum(-1)
        return moved, jacobian

    def slopes(self, u: Position) -> tuple[Tensor, Position]:
        """The joint and its gradient by every continuous site."""

        def both(u: Position, heat: Tensor) -> tuple[Tensor, Position]:
            sites = tuple(self.layout.sites)
            value, back = pulled(lambda u: sum_of(self._parts(sites)[0](u, heat), sites), u)
            return value, back(torch.ones_like(value))[0]

        return self._replayed("slopes", both, u, derives=True)

    # ---- blocks --------------------------------------------------------------------------------------------
    def pack(self, block: Block, u: Position) -> Tensor:
        """Numbers of a block, (chain, element, number)."""
        packed = [self.element_first(u[name], name, block.group) for name in block.sites]
        return torch.cat([value.reshape(*value.shape[:2], -1) for value in packed], -1)

    def unpack(self, block: Block, q: Tensor, u: Position) -> Position:
        """The position with the numbers of a block in place of its own."""
        like = [self.element_first(u[name], name, block.group) for name in block.sites]
        split = q.split([value[0, 0].numel() for value in like], -1)
        new = {
            name: self.element_back(numbers.reshape(value.shape), name, block.group)
            for name, numbers, value in zip(block.sites, split, like, strict=True)
        }
        return {**u, **new}

    def values(self, u: Position) -> dict[str, Tensor]:
        """Latent sites on their own support, chain first."""
        sites = self.layout.sites
        return {n: v if (link := sites[n].link) is None else link(v) for n, v in u.items()}

    def blanket(self, block: Block) -> frozenset[str]:
        """Sites whose terms depend on a block."""
        return self._blankets[block.name]

    def of_first_chain(self, x: Tensor | None = None) -> dict[str, Tensor]:
        """Log densities where the first chain begins, by another run of the program itself.

        Parameters
        ----------
        x : Tensor, optional
            In place of its table.
        """
        tensors = {**self._tensors, "x": self._tensors["x"][0]} if self.has_tables else dict(self._tensors)
        if x is not None:
            tensors["x"] = x.to(tensors["x"])
        u = {name: value[0].clone() for name, value in self.start.items()}
        with torch.no_grad(), self._settings():
            return self._one(u, tensors, self._heat[0])[0]

    # ---- what is recorded ----------------------------------------------------------------------------------
    def _view(self, table: int | None = None) -> Any:
        tensors = self._tensors if table is None else {**self._tensors, "x": self._tensors["x"][table]}
        return self.data.view(self.program.n_factors, tensors)

    def _one(self, u: Position, tensors: Mapping[str, Tensor], heat: Tensor) -> _Outputs:
        """Log densities, edge terms and derived values of one chain."""
        with widened_spikes(heat):
            return self._densities(u, tensors)

    def _densities(self, u: Position, tensors: Mapping[str, Tensor]) -> _Outputs:
        sites = self.layout.sites
        values = {n: v if (link := sites[n].link) is None else link(v) for n, v in u.items()}
        view = self.data.view(self.program.n_factors, tensors)
        with GivenParameters({site.name: values[site.name] for site in self.layout.parameters}):
            trace = poutine.trace(poutine.condition(self.program.program, data=values)).get_trace(view)
        for node in trace.nodes.values():
            if node["type"] == "sample":
                node["fn"] = unchecked(node["fn"])
        trace.compute_log_prob()
        logs, terms = {}, {}
        for name, site in sites.items():
            if site.kind == PARAMETER:  # without a prior
                logs[name] = 0 * u[name].sum()
                continue
            log_prob = trace.nodes[name]["log_prob"]
            if not site.observed and site.link is not None:
                jacobian = site.link.log_abs_det_jacobian(u[name], values[name])
                extra = jacobian.dim() - log_prob.dim()
                log_prob = log_prob + (jacobian.sum(tuple(range(-extra, 0))) if extra > 0 else jacobian)
            within = is_within(trace.nodes[name]["fn"], trace.nodes[name]["value"]) if site.observed else None
            if within is not None:  # of what is masked the density is 1
                log_prob = torch.where(within | (log_prob == 0), log_prob, -torch.inf)
            logs[name] = log_prob
            if site.kind in ("edges", "gates"):
                terms[name] = _edge_terms(trace.nodes[name]["fn"], values[name])
        return logs, terms, {name: trace.nodes[name]["value"] for name in self.layout.derived}

    def _recorded_program(self) -> Graph:
        def forward(u: Position, heat: Tensor) -> Any:
            with AsItIs():
                return vmap(self._one, in_dims=(0, self._in_dims, 0))(u, self._tensors, heat)

        with self._settings(), explained():
            graph = recorded(forward, self.start, self._heat)
        refuse_unnamed(graph)
        return attached(graph)

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Double precision, the device, and no checks of arguments: `read_layout` has passed them."""
        with default_dtype(torch.float64), default_device(self.device), pyro.validation_enabled(False):
            yield

    def _replayed(self, key: Any, function: Graph, *arguments: Any, derives: bool = False) -> Any:
        """What a function of arguments and heat says, recorded once it was asked for often enough.

        Recording derivatives costs as much as some hundred evaluations without it.
        """
        if key not in self._graphs and derives and self._asked.get(key, 0) < self.record_after:
            self._asked[key] = self._asked.get(key, 0) + 1
            with torch.no_grad(), default_dtype(torch.float64):
                return function(*arguments, self._heat)
        if key not in self._graphs:
            began = time.process_time()
            with default_dtype(torch.float64):
                graph = recorded(function, *arguments, self._heat) if derives else function
                self._graphs[key] = quick(graph, *arguments, self._heat)
            self.recording_seconds += time.process_time() - began
        with torch.no_grad(), default_dtype(torch.float64):
            return self._graphs[key](*arguments, self._heat)

    def _parts(self, sites: tuple[str, ...] | None = None) -> tuple[Graph, Graph]:
        """The log densities of these sites alone, and the terms of the edges alone."""
        if sites not in self._parted:
            self._parted[sites] = parted(self._forward_graph, self.start, self._heat, sites)
        return self._parted[sites]

    def _total_of(self, block: Block) -> Graph:
        blanket = tuple(sorted(self._blankets[block.name]))

        def total(q: Tensor, u: Position, heat: Tensor) -> Tensor:
            logs = self._parts(blanket)[0](self.unpack(block, q, u), heat)
            terms = [self._by_element(logs[name], name, block.group) for name in blanket]
            # Of weights that nothing reads there are no terms.
            return without_overflow(sum(terms, 0 * q.sum(-1)))

        return total

    def _by_element(self, log_prob: Tensor, name: str, group: str) -> Tensor:
        """A site's log density summed over all but the elements of a plate, (chain, element)."""
        if group == GLOBAL:
            return log_prob.reshape(len(log_prob), -1).sum(1, keepdim=True)
        keep = log_prob.dim() + self.layout.sites[name].plates[group]
        others = [dim for dim in range(1, log_prob.dim()) if dim != keep]
        return log_prob.sum(others) if others else log_prob

    def element_first(self, value: Tensor, name: str, group: str) -> Tensor:
        """A site's value (chain, ...) with the elements of its group at dimension 1."""
        return value[:, None] if group == GLOBAL else value.movedim(self._dim_of(name, group), 1)

    def element_back(self, value: Tensor, name: str, group: str) -> Tensor:
        """The value whose elements are at dimension 1, as the program has it."""
        return value.squeeze(1) if group == GLOBAL else value.movedim(1, self._dim_of(name, group))

    def _dim_of(self, name: str, group: str) -> int:
        site = self.layout.sites[name]
        return 1 + site.batch_dim + site.plates[group]

    # ---- checks --------------------------------------------------------------------------------------------
    def _made_blocks(self) -> dict[str, Block]:
        """Rows in one block, every other site in its own."""

        def block(name: str, group: str, sites: tuple[str, ...]) -> Block:
            elements = [self.element_first(self.start[site], site, group) for site in sites]
            return Block(name, group, sites, sum(value[0, 0].numel() for value in elements))

        blocks = [block(site.name, GLOBAL, (site.name,)) for site in self.layout.parameters]
        blocks += [block(site.name, "features", (site.name,)) for site in self.layout.edges]
        for group in ("features", GLOBAL):
            blocks += [block(site.name, group, (site.name,)) for site in self.layout.latent(group)]
        # Last: where a start has factors of the data, noise that is still the prior's would overrule them.
        if rows := tuple(site.name for site in self.layout.latent("rows")):
            blocks.append(block("rows", "rows", rows))
        return {made.name: made for made in blocks}

    def _check_bounds(self, drawn: list[tuple[Layout, Position]]) -> None:
        """Complain of sites whose support is another one in each draw from the prior."""
        if len(drawn) == 1:  # one more, of which random numbers of later know nothing
            with torch.random.fork_rng(), self._settings():
                drawn = [
                    *drawn,
                    read_layout(self.program.program, self._view(0 if self.has_tables else None)),
                ]
        for layout, values in drawn[1:]:
            for name in sorted(self.layout.sites.keys() ^ layout.sites.keys()):
                # Pyro joins the names of a module and its parameter by "$$$"
                of_module = f"; {_UPDATED}" if "$$$" in name else ""
                raise ValueError(
                    f"program: has not the same sites in each run (site {name!r}); a program runs through "
                    f"the same statements whatever it draws{of_module}"
                )
            for name, site in self.layout.sites.items():
                other = layout.sites[name]
                if name in values and not site.has_support_of(other, values[name]):
                    raise ValueError(
                        f"program: the bounds of site {name!r} depend on other sites; draw a number with "
                        f"fixed bounds and scale it: upper * pyro.sample({name!r}, dist.Uniform(0., 1.))"
                    )

    def _check_program(self) -> None:
        before = self.logs(self.start)
        check_finite(self, before)
        check_repeatable(self, before)
        check_unseen(self)
        for block in self.blocks.values():
            self._blankets[block.name] = blanket_of(self, block, before)


def _base(fn: Any) -> Any:
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return fn


def _families(program: Any, view: Any, name: str) -> tuple[str, str]:
    with GivenParameters():
        density = _base(poutine.trace(program).get_trace(view).nodes[name]["fn"])
    return density.slab.family, density.narrow_spike.family


def _edge_terms(fn: Any, value: Tensor) -> dict[str, Tensor]:
    fn, like = _base(fn), torch.ones_like(value)
    if not isinstance(fn, EdgeWeights):  # gates
        return dict.fromkeys(("slab", "spike", "slab_df", "spike_df"), like) | {"log_odds": fn.logits * like}
    return {
        "log_odds": fn.log_odds * like,
        "slab": fn.slab.scale * like,
        "spike": fn.spike.scale * like,
        "slab_df": fn.slab.df * like,
        "spike_df": fn.spike.df * like,
    }
