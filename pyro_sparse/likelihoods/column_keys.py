"""Which columns a key means: a name, a pattern, a position, a type, or all that no other key means."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Column

__all__ = ["keys_of", "read_key"]

REST = "*"  # the key of all columns that no other key names
_TYPES = (bool, int, float)


def read_key(key: object) -> tuple[Any, ...]:
    """A key as a tuple.

    Parameters
    ----------
    key : str, int, type or tuple of these

    Raises
    ------
    TypeError
        It names no columns.
    """
    members = key if isinstance(key, tuple) else (key,)
    if len(members) > 1 and REST in members:
        raise TypeError(f"likelihood: the key {key!r} has {REST!r} among others, which is a key of its own")
    kinds = [_is_position(member) or isinstance(member, str) or member in _TYPES for member in members]
    if not kinds or not all(kinds):
        raise TypeError(
            f"likelihood: the key {key!r} names no columns; wanted a name or a pattern, a position, bool, "
            "int or float, or a tuple of these"
        )
    return tuple(int(member) if isinstance(member, np.integer) else member for member in members)


def _is_position(member: object) -> bool:
    return isinstance(member, int | np.integer) and not isinstance(member, bool)


def keys_of(columns: Sequence[Column], keys: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The key of each column.

    Parameters
    ----------
    columns : sequence of Column
    keys : list of tuple
        From `read_key`.

    Raises
    ------
    ValueError
        A key that no column has; a column that has no key, or two.
    """
    names = {column.name for column in columns}

    def means(member: object, j: int, column: Column) -> bool:
        if isinstance(member, str):
            is_pattern = member not in names and member != REST  # a name may have brackets or stars
            return member == column.name or (is_pattern and fnmatch.fnmatchcase(column.name, member))
        return member is column.type if isinstance(member, type) else member == j

    keys_by_column = [
        [key for key in keys if any(means(member, j, column) for member in key)]
        for j, column in enumerate(columns)
    ]
    for column, of_column in zip(columns, keys_by_column, strict=True):
        named = [key for key in of_column if column.name in key]
        if len(named) == 1:
            of_column[:] = named  # its own name is plainer than a pattern
        if len(of_column) > 1:
            both = " and ".join(repr(_shown(key)) for key in of_column)
            raise ValueError(f"likelihood: column {column.name!r} is meant by {both}; leave one of them")
        if not of_column and (REST,) in keys:
            of_column.append((REST,))
        if not of_column:
            raise ValueError(
                f"likelihood: no key means column {column.name!r}; name it, or say what all others are, as "
                '{..., "*": "normal"}'
            )
    used = {key for of_column in keys_by_column for key in of_column}
    for key in keys:
        if key not in used and key != (REST,):
            raise ValueError(
                f"likelihood: no column is meant by {_shown(key)!r}; the columns are "
                f"{', '.join(repr(column.name) for column in columns[:8])}{', …' if len(columns) > 8 else ''}"
            )
    return [of_column[0] for of_column in keys_by_column]


def _shown(key: tuple[Any, ...]) -> object:
    """A key as its caller wrote it."""
    return key[0] if len(key) == 1 else key
