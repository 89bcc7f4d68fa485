"""Whole numbers, checked in one place for models, fits and edge methods."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check_whole"]


def check_whole(low: int, **values: Any) -> None:
    """Raise unless all are whole numbers of at least `low`."""
    for name, value in values.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < low:
            raise ValueError(f"{name}: want a whole number of at least {low}, got {value!r}")
