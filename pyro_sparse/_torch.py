"""The state of torch that a call must not leave changed: random stream, threads, how small numbers may be.

The models are small: their products are too short to share among threads, and on a busy machine two threads
can be ten times slower than one. Speed comes from restarts in one pass and from processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["default_dtype", "first_rows", "load_random_state", "no_subnormals", "random_state", "undisturbed"]

_LEAST = 5e-324  # a subnormal number


@contextmanager
def undisturbed(seed: int | None = None, threads: int | None = 1) -> Iterator[None]:
    """Run with this seed and number of threads, and restore the caller's afterwards.

    Parameters
    ----------
    seed : int, optional
        None continues the caller's stream (and still restores it).
    threads : int, optional
        None leaves the number of threads alone.
    """
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=_accelerators()):
        if seed is not None:
            torch.manual_seed(seed)
        if threads is not None and threads != before:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """As long as this lasts, tensors of plain numbers are of this type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def no_subnormals() -> Iterator[None]:
    """As long as this lasts, numbers too small for all their digits are zero on this thread's processor.

    It takes a hundred times as long for them, and an optimiser's moments of a parameter that no longer has a
    gradient (a hidden unit that is never on) fall to such numbers and stay there.
    """
    if _LEAST * 1.0 == 0:  # the caller will have it so
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def first_rows(batch: Any, most: int) -> Any:
    """The first rows (sequences, tasks) of a batch, at most so many."""
    return batch.rows(torch.arange(min(len(batch), most), device=batch.x.device))


def random_state() -> list[torch.Tensor]:
    """State of the random streams: the processor's first, then each accelerator's that is in use."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(i) for i in _accelerators())]


def load_random_state(state: list[torch.Tensor]) -> None:
    """Continue the streams of `random_state`; those of accelerators that are not here are left out."""
    torch.set_rng_state(state[0])
    for device, own in zip(_accelerators(), state[1:], strict=False):
        torch.cuda.set_rng_state(own, device)


def _accelerators() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
