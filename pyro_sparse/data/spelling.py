"""Names that are the same but for spaces, case or zeros before a number, and so probably one."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["alike", "plain"]


def plain(name: object) -> str:
    """A name without spaces around it, case, and zeros before numbers.

    Parameters
    ----------
    name : any
    """
    return re.sub(r"(?<!\d)0+(?=\d)", "", str(name).strip().casefold())


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Different names that `plain` makes the same, those of each together.

    Parameters
    ----------
    names : iterable of str

    Examples
    --------
    >>> alike(["Oslo", "Bergen", "oslo ", "P01", "P1"])
    [('Oslo', 'oslo '), ('P01', 'P1')]
    """
    together: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        together.setdefault(plain(name), []).append(name)
    return [tuple(same) for same in together.values() if len(same) > 1]
