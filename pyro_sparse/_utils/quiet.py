"""Warnings of others that need not be seen.

`warnings.catch_warnings` swaps the filters of the whole process: two threads that enter and leave by turns
can leave it with each other's for good. Within the package one thread at a time may do so.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .torch_state import isolated

__all__ = ["ignored"]


@contextmanager
def ignored(message: str = "", category: type[Warning] = Warning) -> Iterator[None]:
    """Do not show such warnings meanwhile.

    Parameters
    ----------
    message : str
        Regular expression of their beginning; empty for any.
    category : type of Warning
    """
    with isolated(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, category)
        yield
