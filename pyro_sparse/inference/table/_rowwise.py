r"""A network as a function of one row: what must stay the same while a latent is moved.

The Jacobian of a decoder is that of one row's features in the same row's latents. Three things blur it in
training. *Dropout* draws a new mask at every evaluation: here all evaluations of one `Rowwise` use the masks
of the first. *Batch norm* in training mode lets rows meet in the batch's mean and variance, and a latent
moved in all rows is then subtracted again: here the statistics are held at what they are for the batch, as
constants of the row (they still depend on the network's parameters), and running averages and the count of
batches behind them are not touched.
*Fused attention* has no second derivative: here it is spelt out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from ..._utils.torch_state import load_random_state, random_state

if TYPE_CHECKING:
    from torch.autograd.graph import Node

__all__ = ["Rowwise", "around", "by_row", "leads_to", "nodes", "reusable"]

_UNFIT = ("BatchNorm", "ScaledDotProduct")  # rows may have met; no second derivative


class Rowwise:
    """Evaluate a network with the masks and batch statistics of its first evaluation.

    Parameters
    ----------
    fn : callable
        Of latents (..., row, K), to features (..., row, ...).

    Attributes
    ----------
    meets : bool
        Whether rows met in batch statistics, known after the first evaluation.
    random : bool
        Whether the first evaluation drew random numbers.
    """

    def __init__(self, fn: Callable[[Tensor], Tensor]):
        self.fn = fn
        self.statistics: list[tuple[Tensor, Tensor]] = []
        self.random = False
        self._state: list[Tensor] | None = None

    def __call__(self, z: Tensor) -> Tensor:
        """Features (..., row, feature), what lies behind the rows flattened."""
        first = self._state is None
        if self._state is None:
            self._state = random_state()
        elif self.random:
            load_random_state(self._state)
        with _Held(self.statistics, record=first), sdpa_kernel(SDPBackend.MATH):
            x = self.fn(z)
        if first:
            self.random = _drew(self._state)
        return by_row(x, z)

    @property
    def meets(self) -> bool:
        return bool(self.statistics)


class _Held(TorchFunctionMode):
    """Batch norm in training mode, with statistics recorded at one evaluation and used at the next."""

    def __init__(self, statistics: list[tuple[Tensor, Tensor]], record: bool):
        super().__init__()
        self.statistics, self.record, self.at = statistics, record, 0
        self.counts: dict[Tensor, Tensor] = {}

    def __enter__(self) -> Self:
        self.hook = register_module_forward_pre_hook(self._note_count)
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.hook.remove()
        for count, before in self.counts.items():
            count.copy_(before)

    def _note_count(self, module: nn.Module, inputs: object) -> None:
        """A module of batch norm counts its batches before it asks for the statistics."""
        count = getattr(module, "num_batches_tracked", None)
        if isinstance(count, Tensor) and count not in self.counts:
            self.counts[count] = count.clone()

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        if func is F.batch_norm:
            return self._batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        if self.record:
            variance, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0)
            self.statistics.append((mean, variance))
        mean, variance = self.statistics[self.at]
        self.at += 1
        shape = (1, -1, *[1] * (x.dim() - 2))
        x = (x - mean.view(shape)) * (variance + eps).rsqrt().view(shape)
        x = x if weight is None else x * weight.view(shape)
        return x if bias is None else x + bias.view(shape)


def around(
    fn: Callable[[Tensor], Tensor], z: Tensor, moves: list[Tensor], x_hat: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Features at `z` and at `z` plus each move, with the same masks and batch statistics.

    Parameters
    ----------
    fn : callable
        As for `Rowwise`.
    z : Tensor (..., row, K)
    moves : list of Tensor (..., row, K)
    x_hat : Tensor, optional
        ``fn(z)``; taken where it is what another evaluation would give.
    """
    if x_hat is not None and z.requires_grad and reusable(x_hat, z):
        before = random_state()
        moved = [by_row(fn(z + move), z) for move in moves]  # plainly: nothing in there that needs care
        if not _drew(before):  # else x_hat was made with masks of its own
            return by_row(x_hat, z), moved
    network = Rowwise(fn)
    here = network(z)
    return here, [network(z + move) for move in moves]


def by_row(x: object, z: Tensor) -> Tensor:
    """Features (..., row, feature) of what a network returned; images and the like are flattened.

    Raises
    ------
    TypeError, ValueError
        It is no tensor, or has not the rows of `z`.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"fn: returned a {type(x).__name__}, wanted a tensor (..., row, feature)")
    rows = z.shape[:-1]
    if x.shape[: len(rows)] != rows or x.dim() <= len(rows):
        raise ValueError(
            f"fn: returned shape {tuple(x.shape)} for latents {tuple(z.shape)}, wanted "
            f"{(*rows, 'feature')}: one row of features for every row of latents, in the same places"
        )
    return x.flatten(len(rows))


def reusable(x: Tensor, z: Tensor) -> bool:
    """Whether the derivative of `x` in `z` may be taken from the graph it came with.

    Parameters
    ----------
    x : Tensor
        Said to be computed from `z`.
    z : Tensor
        Requires a gradient.

    Raises
    ------
    ValueError
        `x` was not computed from this very tensor.
    """
    behind = list(nodes(x, _is_of(z)))
    fit = not any(name in node.name() for node, last in behind if not last for name in _UNFIT)
    if not any(last for _, last in behind):
        raise ValueError(
            "x_hat: was not computed from this z (its graph does not lead there), wanted fn(z) of the very "
            "tensor; leave x_hat out and it is computed"
        )
    return fit


def leads_to(x: Tensor, z: Tensor) -> bool:
    """Whether the graph that `x` was computed in leads to `z`, which requires a gradient."""
    return any(last for _, last in nodes(x, _is_of(z)))


def _is_of(z: Tensor) -> Callable[[Node], bool]:
    goal = z.grad_fn
    return lambda node: node is goal if goal else getattr(node, "variable", None) is z


def nodes(x: Tensor, stop: Callable[[Node], bool] = lambda node: False) -> Iterator[tuple[Node, bool]]:
    """The nodes of the graph that `x` was computed in, and whether each is one to stop at."""
    waiting, visited = [x.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        last = stop(node)
        yield node, last
        if not last:
            waiting.extend(before for before, _ in node.next_functions)


def _drew(before: list[Tensor]) -> bool:
    """Whether random numbers were drawn since the state `before`."""
    return any(not torch.equal(a, b) for a, b in zip(before, random_state(), strict=False))
