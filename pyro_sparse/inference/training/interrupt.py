"""Ctrl-C during a run: the step under way is finished first, so that the rest can be resumed bit for bit.

A fit that was cut short says so in its warnings, by a note that begins with "interrupted".
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fit_result import FitResult

__all__ = ["BRIEF", "Stopped", "cut_short", "stopped_between_steps", "warns", "whole"]

BRIEF = 200  # rows or sequences that tell restarts apart for somebody who waits no longer
_RAISES = ContextVar("_RAISES", default=False)  # in `whole`, of this thread alone


class Stopped(KeyboardInterrupt):
    """Interrupted between two steps: the run's state is whole."""


@contextmanager
def stopped_between_steps(report: Callable[[Any], None]) -> Iterator[Callable[[object], None]]:
    """Hold Ctrl-C back until the step under way is done, so that what is left can be resumed bit for bit.

    Yields what to call between steps. A second Ctrl-C does not wait. Only the main thread gets the signal.
    """
    asked = False
    main = threading.current_thread() is threading.main_thread()
    previous = (signal.getsignal(signal.SIGINT) if main else None) or signal.default_int_handler

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, previous)

    def between(run: object) -> None:
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


def cut_short(fit: FitResult | None) -> str:
    """How a fit was interrupted, in words; empty if it was not.

    Parameters
    ----------
    fit : Fit, TransitionFit, MultiTaskFit or None
    """
    notes = (note for note in getattr(fit, "warnings", []) if note.startswith("interrupted"))
    return next(notes, "").split(";")[0]


def warns() -> bool:
    """Whether a fit that was interrupted is to warn of it; in `whole` it raises."""
    return not _RAISES.get()


def whole(train: Callable[..., FitResult], *arguments: object, **settings: object) -> Any:
    """The fit, for callers who cannot use one that was interrupted.

    Parameters
    ----------
    train : callable
        `pyro_sparse.fit`.
    *arguments, **settings
        Its own.

    Raises
    ------
    KeyboardInterrupt
        The fit was interrupted, so that what runs many of them stops, too.
    """
    before = _RAISES.set(True)
    try:
        fit = train(*arguments, **settings)
    finally:
        _RAISES.reset(before)
    if how := cut_short(fit):
        raise KeyboardInterrupt(f"{how}; pyro_sparse.fit returns the fit so far")
    return fit
