"""What generators share: whole numbers are checked, and one seed opens independent streams by key."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["stream", "whole"]


def whole(least: int = 1, **arguments: Any) -> None:
    """Refuse arguments that are not whole numbers of at least `least`.

    Raises
    ------
    ValueError
        Naming the argument.
    """
    for name, value in arguments.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r}: want a whole number, at least {least}")


def stream(seed: int, *key: int) -> np.random.Generator:
    """The random stream of a seed that belongs to a key.

    Raises
    ------
    ValueError
        If `seed` is not a whole number of at least 0.
    """
    whole(0, seed=seed)
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=key))
