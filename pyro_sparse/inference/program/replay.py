"""Graphs of tensor operations: recorded once, cut down to what is asked for, replayed quickly."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    has_proxy_slot,
    make_fx,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ..._utils.torch_state import default_dtype

__all__ = [
    "DETACHED",
    "AsItIs",
    "Graph",
    "Position",
    "attached",
    "inputs_of_sites",
    "parted",
    "quick",
    "recorded",
]

Position: TypeAlias = "dict[str, Tensor]"  # by site, real numbers, chain first
Graph: TypeAlias = "Callable[..., Any]"

# What a graph has where a program says `detach`; since torch 2.14 it has the second.
DETACHED = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


def recorded(function: Graph, *arguments: Any) -> Graph:
    """A graph of the tensor operations of a function of arguments of these shapes, derivatives included.

    Parameters
    ----------
    function : callable
    *arguments
        Tensors, or dicts of such.
    """
    copies = tree_map(torch.clone, arguments)  # a tensor that came twice would be recorded as one
    with torch.no_grad(), _one_mode_of_shapes():
        graph = make_fx(function)(*copies)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def attached(graph: Any) -> Any:
    """The same graph with derivatives through what a program detached.

    Chains draw from the density that the program's values are, and a derivative without a part of it is that
    of another density.

    Parameters
    ----------
    graph : GraphModule
        From `recorded`.
    """
    for node in graph.graph.nodes:
        if node.target in DETACHED:
            node.target = torch.ops.aten.alias.default
    graph.recompile()
    return graph


def _one_mode_of_shapes() -> AbstractContextManager[Any]:
    """While a graph is recorded, one mode of tensors without data for the shapes of all its nodes.

    Otherwise torch makes one for each node, with a trace of the stack: two fifths of the time of recording.
    These names of torch are not public; where they are missing, and with torch 2.6, recording takes longer
    and gives the same graph.
    """
    try:
        from torch._guards import TracingContext, tracing
        from torch._subclasses.fake_tensor import FakeTensorMode

        return tracing(TracingContext(FakeTensorMode()))
    except Exception:  # whatever another version of torch has there
        return nullcontext()


class AsItIs(TorchDispatchMode):
    """Inside of it, while a graph is recorded, what is computed of data alone is computed and not recorded.

    So a program may ask its data for a number: ``int(d.batch.max())``, ``if (d.x < 0).any()``. What is
    computed with a tensor that has a gradient is recorded, for `refusals.refuse_unnamed` to see.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, recorded if one of its tensors is."""
        kwargs = kwargs or {}
        mode = get_proxy_mode()
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        if mode is None or any(v.requires_grad or has_proxy_slot(v, mode.tracer) for v in tensors):
            return func(*args, **kwargs)
        with disable_proxy_modes_tracing():
            return func(*args, **kwargs)


def inputs_of_sites(graph: Any, start: Position, heat: Tensor) -> dict[str, frozenset[str]]:
    """Of each site the latent sites that its log density is computed from.

    Parameters
    ----------
    graph : callable
        Of a whole program, from `recorded`.
    start : dict of Tensor
    heat : Tensor
    """
    outputs, numbered, _ = _outputs(graph, start, heat)
    names = [*start, ""]
    reached: dict[Any, frozenset[str]] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            reached[node] = frozenset({names[len(reached)]})
        elif node.op != "output":
            sources = (reached[source] for source in node.all_input_nodes if source in reached)
            reached[node] = frozenset().union(*sources)
    return {site: reached.get(outputs[number], frozenset()) for site, number in numbered.items()}


def parted(graph: Any, start: Position, heat: Tensor, sites: tuple[str, ...] | None) -> tuple[Graph, Graph]:
    """Two functions of a position and heat: log densities of some sites alone, and terms of the edges alone.

    What else the program computes is left out, which is nine tenths of what a derivative would be taken of.

    Parameters
    ----------
    graph : callable
        Of a whole program, from `recorded`.
    start : dict of Tensor
    heat : Tensor
    sites : tuple of str or None
        None: all, for the second function.
    """
    outputs, numbered, terms = _outputs(graph, start, heat)
    names = list(start)
    chosen = [name for name in numbered if sites is None or name in sites]
    of_logs = _cut(graph, [outputs[numbered[name]] for name in chosen])
    flat_terms, spec = tree_flatten(terms)
    of_terms = _cut(graph, [outputs[number] for number in flat_terms])

    def logs(u: Position, heat: Tensor) -> dict[str, Tensor]:
        return dict(zip(chosen, of_logs(*(u[name] for name in names), heat), strict=True))

    def edge_terms(u: Position, heat: Tensor) -> Any:
        return tree_unflatten(list(of_terms(*(u[name] for name in names), heat)), spec)

    return logs, edge_terms


def _cut(graph: Any, outputs: list[Any]) -> Graph:
    """The part of a graph that leads to some of its nodes; tensors are shared, not copied."""
    copied = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    copied.graph_copy(graph.graph, copies)
    copied.output(tuple(copies[node] for node in outputs))
    copied.eliminate_dead_code()
    return torch.fx.GraphModule(graph, copied)


def _outputs(graph: Any, start: Position, heat: Tensor) -> tuple[list[Any], dict[str, int], Any]:
    """Nodes that a program's graph returns; the number of each site's among them, and of the edges' terms."""
    [output] = [node for node in graph.graph.nodes if node.op == "output"]
    with torch.no_grad(), default_dtype(torch.float64):
        values, spec = tree_flatten(graph(start, heat))
    numbered, terms, _ = tree_unflatten(list(range(len(values))), spec)
    return tree_flatten(output.args[0])[0], numbered, terms


def quick(graph: Graph, *arguments: Any) -> Graph:
    """The same by TorchScript's interpreter, which takes a third of the time of Python's for each operation.

    Where this torch has none, or not for these operations, the graph as it is.

    Parameters
    ----------
    graph : callable
        Without derivatives, or from `recorded`.
    *arguments
        Tensors, or dicts of such, to be given in this order later.
    """
    flat, inputs = tree_flatten(arguments)
    outputs: Any = None

    def flattened(*flat: Tensor) -> tuple[Tensor, ...]:
        nonlocal outputs
        values, outputs = tree_flatten(graph(*tree_unflatten(list(flat), inputs)))
        return tuple(values)

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            script = torch.jit.trace(flattened, tuple(flat), check_trace=False)
    except (RuntimeError, AttributeError, NotImplementedError):
        return graph

    def replayed(*arguments: Any) -> Any:
        return tree_unflatten(list(script(*tree_flatten(arguments)[0])), outputs)

    return replayed
