"""The state of torch that a call must not leave changed, and that must not change its answer.

Random stream, number of threads, default dtype, and Pyro's stack of handlers belong to the whole process, so
calls from several threads take turns (`isolated`). Gradient mode, autocast, default device and NumPy's error
state are the caller's; a call does not depend on them.

The models are small: their products are too short to share among threads, and on a busy machine two threads
can be ten times slower than one. Speed comes from restarts in one pass and from processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar

import numpy as np
import torch

__all__ = [
    "default_device",
    "default_dtype",
    "first_rows",
    "isolated",
    "load_random_state",
    "no_subnormals",
    "others_may_run",
    "random_state",
    "undisturbed",
]

_LEAST = 5e-324  # a subnormal number
Rows = TypeVar("Rows", covariant=True)


class _Batch(Protocol[Rows]):
    """What batches of tables, sequences and tasks have in common."""

    @property
    def x(self) -> torch.Tensor: ...

    def __len__(self) -> int: ...

    def rows(self, index: torch.Tensor) -> Rows: ...


class _Turn:
    """A re-entrant lock that its holder can lay down for a while.

    Attributes
    ----------
    depth : int
        How often the thread that has the lock has taken it.
    thread : threading.local
        Has `is_isolated`: whether this thread has the settings of `isolated` already.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0
        self.thread = threading.local()

    @contextmanager
    def taken(self) -> Iterator[None]:
        with self.lock:
            self.depth += 1
            try:
                yield
            finally:
                self.depth -= 1

    @contextmanager
    def laid_down(self) -> Iterator[None]:
        depth, self.depth = self.depth, 0
        for _ in range(depth):
            self.lock.release()
        try:
            yield
        finally:
            for _ in range(depth):
                self.lock.acquire()
            self.depth = depth


_TURN = _Turn()


def _after_fork() -> None:
    """A child has one thread: what another thread of its parent had locked would stay locked for ever."""
    global _TURN
    _TURN = _Turn()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def isolated() -> Iterator[None]:
    """Take turns with other threads, and compute with the default settings of torch and NumPy.

    Gradients are on, inference mode and autocast off, the default dtype is float32, the default device the
    processor, and NumPy warns as it does by default, whatever the caller chose; afterwards all is as it was.
    A call within such a call changes nothing.
    """
    with _TURN.taken():
        if getattr(_TURN.thread, "is_isolated", False):
            yield
            return
        with ExitStack() as settings:
            settings.enter_context(torch.inference_mode(False))
            settings.enter_context(torch.enable_grad())
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    settings.enter_context(torch.autocast(kind, enabled=False))
            if torch.get_default_dtype() != torch.float32:
                settings.enter_context(default_dtype(torch.float32))
            settings.enter_context(default_device("cpu"))
            settings.enter_context(np.errstate(all="warn", under="ignore"))  # NumPy's defaults
            _TURN.thread.is_isolated = True
            try:
                yield
            finally:
                _TURN.thread.is_isolated = False


@contextmanager
def others_may_run() -> Iterator[None]:
    """Lay the turn down, for a call that waits for other threads of its own.

    They have to find the random stream as they need it, and leave it as they found it (`undisturbed`).
    """
    with _TURN.laid_down():
        yield


@contextmanager
def undisturbed(seed: int | None = None, threads: int | None = 1) -> Iterator[None]:
    """Run `isolated` with this seed and number of threads, and restore the caller's afterwards.

    Parameters
    ----------
    seed : int, optional
        None continues the caller's stream (and still restores it).
    threads : int, optional
        None leaves the number of threads alone.
    """
    with isolated(), torch.random.fork_rng(devices=_accelerators()):
        before = torch.get_num_threads()
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
def default_device(device: str | torch.device) -> Iterator[None]:
    """As long as this lasts, tensors are made on this device; nothing changes where they are already."""
    # Only where it is another one, for it slows every call of torch. In torch 2.6 and 2.7 get_default_device
    # does not see the caller's `with torch.device(...)`; a tensor does.
    if torch.device(device).type == torch.empty(0).device.type:
        yield
        return
    with torch.device(device):
        yield


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


def first_rows(batch: _Batch[Rows], most: int) -> Rows:
    """The first rows (sequences, tasks) of a batch, at most so many."""
    return batch.rows(torch.arange(min(len(batch), most), device=batch.x.device))


def random_state() -> list[torch.Tensor]:
    """State of the random streams: the processor's first, then each accelerator's that is in use."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(i) for i in _accelerators())]


def load_random_state(state: list[torch.Tensor]) -> None:
    """Continue the streams of `random_state`; those of accelerators that are not here are left out."""
    torch.set_rng_state(state[0])
    for device, stream in zip(_accelerators(), state[1:], strict=False):
        torch.cuda.set_rng_state(stream, device)


def _accelerators() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
