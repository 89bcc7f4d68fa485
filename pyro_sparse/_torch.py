"""The state of torch that a call must not leave changed: its random stream and its number of threads.

The models are small: their products are too short to share among threads, and on a busy machine two threads
can be ten times slower than one. Speed comes from restarts in one pass and from processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["undisturbed"]


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
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        if threads is not None and threads != before:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)
