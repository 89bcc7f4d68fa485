"""One seed opens independent random streams, each with a key of its own."""

from __future__ import annotations

import numpy as np

from pyro_sparse._utils.checks import check_whole

__all__ = ["stream"]


def stream(seed: int, *key: int) -> np.random.Generator:
    """The random stream of a seed that belongs to a key.

    Raises
    ------
    ValueError
        If `seed` is not a whole number of at least 0.
    """
    check_whole(0, seed=seed)
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=key))
