"""Ctrl-C during a run: the step under way is finished first, so that the rest can be resumed bit for bit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Stopped", "stopped_between_steps"]


class Stopped(KeyboardInterrupt):
    """Interrupted between two steps: the run's state is whole."""


@contextmanager
def stopped_between_steps(report: Callable[[Any], None]) -> Iterator[Callable[[Any], None]]:
    """Hold Ctrl-C back until the step under way is done, so that what is left can be resumed bit for bit.

    Yields what to call between steps. A second Ctrl-C does not wait. Only the main thread gets the signal.
    """
    asked = False
    main = threading.current_thread() is threading.main_thread()
    previous = (signal.getsignal(signal.SIGINT) if main else None) or signal.default_int_handler

    def ask(*_: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, previous)

    def between(run: Any) -> None:
        try:
            report(run)
        except KeyboardInterrupt as error:
            raise Stopped from error
        if asked:
            raise Stopped

    if main:
        signal.signal(signal.SIGINT, ask)
    try:
        yield between
    finally:
        if main:
            signal.signal(signal.SIGINT, previous)
