"""Which factor of a pivot each factor of a draw is (`alignment.py`), compiled: all chains in one call."""

from __future__ import annotations

import numpy as np

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile

__all__ = ["AVAILABLE", "matched"]


@_compile
def matched(loading, pivot, members, least, turn, sign):
    """Order and signs of some factors by the cosines of their loadings, where these leave no doubt.

    `loading` and `pivot` are (chain, feature, factor), `members` the factors that can change places; loadings
    of a norm below `least` are taken for none. `turn` and `sign` (chain, factor) are written to, but not of
    chains in which a place has no factor of its own that is most like it.

    Returns
    -------
    ndarray of bool (chain,)
        Of which chains they were written.
    """
    n_chains, g, _ = loading.shape
    n = len(members)
    clear = np.ones(n_chains, dtype=np.bool_)
    size, to = np.empty(n), np.empty(n, dtype=np.int64)
    flipped, taken = np.empty(n), np.empty(n, dtype=np.bool_)
    for c in range(n_chains):
        for b in range(n):
            total = 0.0
            for f in range(g):
                total += loading[c, f, members[b]] ** 2
            size[b] = np.sqrt(total)
            taken[b] = False
        for a in range(n):
            best, at, up = 0.0, -1, True
            for b in range(n):
                product = 0.0
                for f in range(g):
                    product += pivot[c, f, members[a]] * loading[c, f, members[b]]
                # the pivot's own size is the same for all
                alike = abs(product) / size[b] if size[b] >= least else 0.0
                if alike > best:
                    best, at, up = alike, b, product >= 0
            if at < 0 or taken[at]:
                clear[c] = False
                break
            taken[at] = True
            to[a], flipped[a] = at, 1.0 if up else -1.0
        if clear[c]:
            for a in range(n):
                turn[c, members[a]], sign[c, members[a]] = members[to[a]], flipped[a]
    return clear
