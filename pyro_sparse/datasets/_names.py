"""Names of columns that tell them apart."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["unique_names"]


def unique_names(names: Iterable[str]) -> list[str]:
    """The names, with " (2)", " (3)" … behind those that have come before."""
    counts: dict[str, int] = {}
    out = []
    for name in names:
        new = name
        while new in counts:
            counts[name] += 1
            new = f"{name} ({counts[name]})"
        counts[new] = 1
        out.append(new)
    return out
