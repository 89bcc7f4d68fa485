"""Numbers among settings: whole ones checked, all made plain, in one place for models, fits, edge methods."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["check_whole", "plain_fields"]


def check_whole(low: int, or_none: bool = False, /, **values: object) -> None:
    """Raise unless all are whole numbers of at least `low`; None passes with `or_none`."""
    for name, value in values.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if (not whole or cast(int, value) < low) and not (or_none and value is None):
            wanted = f"a whole number of at least {low}{', or None' if or_none else ''}"
            raise ValueError(f"{name}: want {wanted}, got {value!r}")


def plain_fields(record: DataclassInstance) -> None:
    """Make numbers of NumPy or torch in a frozen record of settings Python's: JSON knows no others.

    Parameters
    ----------
    record : dataclass instance
        Several numbers become a tuple. To be called before they are checked.
    """
    for field in fields(record):
        object.__setattr__(record, field.name, _plain(getattr(record, field.name)))


def _plain(value: object) -> object:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(_plain(element) for element in value) if isinstance(value, list | tuple) else value
