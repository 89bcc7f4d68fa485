"""What the records of settings of the four kinds of fit share: names, limits, a copy for JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from numbers import Real
from typing import Any, ClassVar

from ..._utils.checks import check_whole, plain_fields

__all__ = ["NOT_NEGATIVE", "POSITIVE", "SHARE", "Limits", "Settings"]


@dataclass(frozen=True)
class Limits:
    """Numbers that a setting may have.

    Parameters
    ----------
    wanted : str
        The same in words.
    low, high : float
        Both are possible unless left out by name.
    without_low, without_high : bool
    """

    wanted: str
    low: float
    high: float
    without_low: bool = False
    without_high: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        number = float(value)
        above = number > self.low if self.without_low else number >= self.low
        return above and (number < self.high if self.without_high else number <= self.high)


POSITIVE = Limits("a positive number", 0, inf, without_low=True, without_high=True)
NOT_NEGATIVE = Limits("a number, 0 or more", 0, inf, without_high=True)
SHARE = Limits("a share from 0 to 1", 0, 1)


@dataclass(frozen=True)
class Settings:
    """A frozen record of numbers: made plain, checked against their limits, JSON-able.

    A subclass lists its whole numbers, with the least of each, and its other numbers, with their limits. None
    is possible where the annotation of the field says so.
    """

    WHOLE: ClassVar[dict[str, int]] = {}
    NUMBERS: ClassVar[dict[str, Limits]] = {}

    def __post_init__(self) -> None:
        plain_fields(self)
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            may_be_none = "None" in str(field.type)
            if value is None and may_be_none:
                continue
            if name in self.WHOLE:
                check_whole(self.WHOLE[name], may_be_none, **{name: value})
            elif name in self.NUMBERS and value not in self.NUMBERS[name]:
                wanted = self.NUMBERS[name].wanted + (", or None" if may_be_none else "")
                raise ValueError(f"{name}: want {wanted}, got {value!r}")

    @classmethod
    def names(cls) -> list[str]:
        """Names of all settings."""
        return [field.name for field in fields(cls)]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able copy."""
        return {name: list(v) if isinstance(v := getattr(self, name), tuple) else v for name in self.names()}
