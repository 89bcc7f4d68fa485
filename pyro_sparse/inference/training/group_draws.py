"""Random numbers of a few restarts as their whole group draws them: from the plate's stream, some rows of it.

Restarts that train side by side share one stream of random numbers. A process that trains some of them draws
for all and keeps its own: what it learns then differs from the plate's by rounding only. The same for rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["GroupDraws"]

_SIZED: set[Callable] = {torch.rand, torch.randn, torch.randint}
_LIKE: set[Callable] = {torch.rand_like, torch.randn_like}
_FILLED: set[Callable] = {Tensor.normal_, Tensor.uniform_, Tensor.cauchy_, Tensor.exponential_}


class GroupDraws(TorchFunctionMode):
    """Within it, draws with a restart dimension come from the stream of all restarts of a group.

    The first dimension that is as long as there are restarts here is theirs, unless `dim` says which it is.
    Draws without one (an order of the rows) and those from a generator of their own are left alone.

    Parameters
    ----------
    places : sequence of int
        Places in the group of the restarts that are trained here.
    n_group : int
        Number of restarts in the group.
    dim : int, optional
        Their dimension, counted from the end: -2 in draws (restart, row, factor) of which rows are kept.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> plate = torch.randn(4, 100, 2)
    >>> _ = torch.manual_seed(0)
    >>> with GroupDraws([1, 3], 4):
    ...     kept = torch.randn(2, 100, 2)
    >>> bool((kept == plate[[1, 3]]).all())
    True
    """

    def __init__(self, places: Sequence[int], n_group: int, dim: int | None = None):
        super().__init__()
        self.places, self.n_group, self.dim = list(places), n_group, dim

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FILLED and kwargs.get("generator") is None:
            place = self._place(args[0].shape)
            if place is not None:
                full = func(args[0].new_empty(self._whole(args[0].shape, place)), *args[1:], **kwargs)
                return args[0].copy_(self._mine(full, place))
        elif func in _LIKE:
            place = self._place(args[0].shape)
            if place is not None:
                like = args[0].new_empty(self._whole(args[0].shape, place))
                return self._mine(func(like, *args[1:], **kwargs), place)
        elif func in _SIZED and kwargs.get("generator") is None:
            first, size, kwargs = _size(func, args, kwargs)
            place = self._place(size)
            if place is not None:
                return self._mine(func(*first, self._whole(size, place), **kwargs), place)
        return func(*args, **kwargs)

    def _place(self, size: Sequence[int]) -> int | None:
        """Which dimension of a draw is that of the restarts."""
        n_kept = len(self.places)
        if self.dim is not None:
            return len(size) + self.dim if len(size) >= -self.dim and size[self.dim] == n_kept else None
        return next((d for d, n in enumerate(size) if n == n_kept), None)

    def _whole(self, size: Sequence[int], place: int) -> tuple[int, ...]:
        return (*size[:place], self.n_group, *size[place + 1 :])

    def _mine(self, full: Tensor, place: int) -> Tensor:
        index = torch.as_tensor(self.places, dtype=torch.long, device=full.device)
        return full.index_select(place, index)


def _size(
    func: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[int, ...], dict[str, Any]]:
    """Arguments before the size, the size, and the keywords without it."""
    kwargs = dict(kwargs)
    if "size" in kwargs:
        return args, tuple(kwargs.pop("size")), kwargs
    if func is torch.randint or (args and isinstance(args[-1], tuple | list)):
        return args[:-1], tuple(args[-1]), kwargs
    return (), tuple(args), kwargs
