"""How far long work is: a bar where somebody looks, a line a minute where output goes to a file.

Fits, chains, calibration and the command line all count through `Progress`. In a terminal or a notebook it is
one bar of tqdm's, with the time that is left. Elsewhere it says, once it knows, how long work will take that
takes more than a minute, and then a line a minute: through the logger ``pyro_sparse`` where the caller has
handlers for it, else on standard error.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from statistics import median_low
from types import TracebackType
from typing import Self

from tqdm.auto import tqdm

__all__ = ["Progress", "in_words"]

LOGGER = logging.getLogger("pyro_sparse")
_EVERY = 60.0  # seconds between lines, and the length of work from which it says beforehand how long it takes
_TIMED = 5.0  # seconds, or
_SHARE = 0.05  # share of the work, after which its length is judged
_LAST = 50  # units by which it is judged
_OFTEN = 0.5  # seconds between two states of a bar


class Progress:
    """A count of something, shown as far as anybody looks; used in a `with` statement.

    Parameters
    ----------
    stage : str
        What is done: "fit", "chains".
    total : int
        How many units there are.
    unit : str
        "step", "sweep", "restart", "data set".
    shown : bool
        False: nothing is ever said.
    shorter : str
        What would make the work shorter, for the line that says how long it takes.

    Examples
    --------
    >>> with Progress("chains", 3, "sweep", shown=False) as progress:
    ...     for _ in range(3):
    ...         progress.advance()
    >>> progress.done
    3
    """

    def __init__(self, stage: str, total: int, unit: str, *, shown: bool, shorter: str = ""):
        self.stage, self.total, self.unit, self.shorter = stage, total, unit, shorter
        self.done, self.status = 0, ""
        self.bar = None
        self.shown = shown
        if shown and is_watched():
            self.bar = tqdm(total=total, desc=stage, unit=unit, mininterval=_OFTEN)
        self.began = self.said = time.monotonic()
        # Judged by units after the first: these compile and import, and those of a state that was read took
        # no time. A later one may compile, too, which the median does not mind.
        self.timed: float | None = None
        self.seconds: deque[float] = deque(maxlen=_LAST)
        self.announced = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def advance(self, units: int = 1, status: str = "") -> None:
        """So many units more are done.

        Parameters
        ----------
        units : int
        status : str
            What is known so far, such as the number of edges decided; by default what it was.
        """
        self.done += units
        now = time.monotonic()
        if self.timed is not None and units:
            self.seconds.append((now - self.timed) / units)
        self.timed = now
        self.status = status or self.status
        if self.bar is not None:
            if status:
                self.bar.set_postfix_str(status, refresh=False)
            self.bar.update(units)
        elif self.shown:
            self._speak()

    def resume(self, units: int) -> None:
        """So many units were done before, and took no time now.

        Parameters
        ----------
        units : int
        """
        self.done += units
        self.timed = None
        if self.bar is not None:
            self.bar.initial = self.done
            self.bar.n = self.done
            self.bar.refresh()

    def extend(self, units: int) -> None:
        """So many units more than was said at first.

        Parameters
        ----------
        units : int
        """
        self.total += units
        if self.bar is not None:
            self.bar.total = self.total
            self.bar.refresh()

    def close(self) -> None:
        """Nothing more will come."""
        if self.bar is not None:
            self.bar.close()

    def left(self) -> float:
        """Seconds that are left, as far as the last units tell; infinite before the second."""
        if not self.seconds:
            return float("inf")
        return median_low(self.seconds) * max(self.total - self.done, 0)

    def _speak(self) -> None:
        now = time.monotonic()
        passed, left = now - self.began, self.left()
        if (
            not self.announced
            and (len(self.seconds) > 1 or self.seconds and passed >= _EVERY)  # one unit may have compiled
            and (passed > _TIMED or self.done >= _SHARE * self.total)
        ):
            self.announced = True
            if passed + left > _EVERY:
                shorter = f"; {self.shorter}" if self.shorter else ""
                say(f"{self.stage}: {self.total:,} {self.unit}s, about {in_words(passed + left)}{shorter}")
                self.said = now
        elif now - self.said >= _EVERY and self.done < self.total:
            status = f", {self.status}" if self.status else ""
            say(f"{self.stage}: {self.done:,} of {self.total:,} {self.unit}s, {in_words(left)} left{status}")
            self.said = now


def is_watched() -> bool:
    """Whether standard error is a terminal, or the code runs in a notebook, so that a bar can be redrawn."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def say(line: str) -> None:
    """A line to the logger ``pyro_sparse`` (level INFO) if it has handlers, else to standard error.

    Parameters
    ----------
    line : str
    """
    if LOGGER.hasHandlers():
        LOGGER.info(line)
    else:
        print(line, file=sys.stderr, flush=True)


def in_words(seconds: float) -> str:
    """A length of time as people say it.

    Parameters
    ----------
    seconds : float

    Examples
    --------
    >>> in_words(8), in_words(100), in_words(340), in_words(9000)
    ('8 seconds', '2 minutes', '6 minutes', '2.5 hours')
    """
    if seconds < 60:
        number, unit = f"{max(seconds, 1):.0f}", "second"
    elif seconds < 5400:
        number, unit = f"{seconds / 60:.0f}", "minute"
    else:
        number, unit = f"{seconds / 3600:.1f}", "hour"
    return f"{number} {unit}{'' if number == '1' else 's'}"
