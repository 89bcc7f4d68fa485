"""Settings of the fit of observed variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..training._settings import Limits, Settings

__all__ = ["ObservedSchedule"]


@dataclass(frozen=True)
class ObservedSchedule(Settings):
    """Settings of the fit of an `ObservedTransition`.

    Attributes
    ----------
    sampler_steps : int
        Terms that each chain puts in or takes out, for each target.
    rounds : int
        Shorter runs by which the rates of terms and the sizes of effects are set.
    imputations : int
        Draws of the missing cells that each chain keeps, where there are any; half as many come before.
    num_draws : int
        Graphs that are kept of each chain.
    """

    WHOLE: ClassVar[dict[str, int]] = {"sampler_steps": 50, "rounds": 0, "imputations": 1, "num_draws": 1}
    NUMBERS: ClassVar[dict[str, Limits]] = {}

    sampler_steps: int = 600
    rounds: int = 2
    imputations: int = 40
    num_draws: int = 500
