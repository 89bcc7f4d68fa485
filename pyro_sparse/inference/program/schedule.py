"""Settings of the fit of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..training._settings import Limits, Settings

__all__ = ["ProgramSchedule"]


@dataclass(frozen=True)
class ProgramSchedule(Settings):
    """Settings of the fit of a `Program`.

    Attributes
    ----------
    sweeps : int
        Of each restart, over all that the program draws. The later half is averaged.
    evaluate_every : int
        Sweeps between two rows of `history`.
    """

    WHOLE: ClassVar[dict[str, int]] = {"sweeps": 20, "evaluate_every": 1}
    NUMBERS: ClassVar[dict[str, Limits]] = {}

    sweeps: int = 120
    evaluate_every: int = 10
