"""Episodes of any origin as batches of tensors, (episode, n, ...) inputs and (episode, n) labels.

An element is one episode, ``(support_x, support_y, query_x, query_y)`` with inputs (n, ...) and labels (n,),
or already a batch of them with a leading dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["EpisodeLike", "batches", "endless"]

EpisodeLike: TypeAlias = Sequence[npt.ArrayLike | Tensor]  # support_x, support_y, query_x, query_y


def endless(episodes: Iterable[EpisodeLike] | Callable[[], EpisodeLike]) -> Iterator[EpisodeLike]:
    """Episodes without end: an iterable is begun again, a callable is called again."""
    if callable(episodes):
        while True:
            yield episodes()
    while True:
        some = False
        for episode in episodes:
            some = True
            yield episode
        if not some:
            raise ValueError(
                "episodes: got none; wanted at least one, and an iterable that can be begun again (a list, "
                "not a generator) if there are fewer than steps * episodes_per_step"
            )


def batches(episodes: Iterable[EpisodeLike], size: int) -> Iterator[tuple[Tensor, ...]]:
    """Checked batches (support_x, support_y, query_x, query_y): single episodes in stacks of `size`.

    Raises
    ------
    ValueError
        An element is no such tuple, its shapes do not fit, a query's class has no support, or single episodes
        that are to be stacked differ in shape.
    """
    waiting: list[tuple[Tensor, ...]] = []
    for number, episode in enumerate(episodes):
        tensors = _checked(episode, number)
        if tensors[1].ndim == 2:
            yield tensors
            continue
        waiting.append(tensors)
        if len(waiting) == size:
            yield _stack(waiting)
            waiting = []
    if waiting:
        yield _stack(waiting)


def _stack(waiting: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    shapes = {tuple(tensor.shape for tensor in tensors) for tensors in waiting}
    if len(shapes) > 1:
        raise ValueError(
            f"episodes: those of one step have shapes {sorted(map(str, shapes))}; wanted the same number of "
            "classes and examples in all, or episodes_per_step=1"
        )
    return tuple(torch.stack(tensors) for tensors in zip(*waiting, strict=True))


def _checked(episode: EpisodeLike, number: int) -> tuple[Tensor, ...]:
    try:
        support_x, support_y, query_x, query_y = (torch.as_tensor(array) for array in episode)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"episode {number}: {error}; wanted (support_x, support_y, query_x, query_y), arrays or tensors"
        ) from error
    lead = support_y.ndim
    fits = lead in (1, 2) and query_y.ndim == lead and support_x.shape[:lead] == support_y.shape
    if not fits or query_x.shape != (*query_y.shape, *support_x.shape[lead:]):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (support_x, support_y, query_x, query_y))
        raise ValueError(
            f"episode {number}: got shapes {shapes}; wanted (n, ...), (n,), (q, ...), (q,), or these with a "
            "leading dimension of episodes"
        )
    if int(support_y.min()) < 0:
        raise ValueError(f"episode {number}: has label {int(support_y.min())}; wanted classes from 0")
    alone = ~(query_y.unsqueeze(-1) == support_y.unsqueeze(-2)).any(-1)
    if alone.any():
        raise ValueError(
            f"episode {number}: a query has label {int(query_y[alone][0])}, which no example of its support "
            "has; every class of the queries needs examples"
        )
    return support_x, support_y, query_x, query_y
