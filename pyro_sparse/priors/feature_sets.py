"""Sets of features that belong together, such as pathways or the items of a scale, and the odds they make.

A GMT file has a set in each line: its name, a description, and its members, separated by tabs. In an AnnData
sets stand as columns of 0 and 1 of its variables (`varm`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._utils.checks import check_whole

__all__ = ["odds_of_sets", "read_gmt"]


def read_gmt(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Sets of a GMT file, members by the name of their set.

    Parameters
    ----------
    path : path
        Of a file on this machine; nothing is fetched.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        A line has no members, or a set occurs twice; the line is named.
    """
    sets: dict[str, list[str]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip():
            continue
        name, *rest = (part.strip() for part in line.split("\t"))
        members = [member for member in rest[1:] if member]
        if not members:
            raise ValueError(
                f"path: line {number} of {str(path)!r} has no members; wanted a name, a description and "
                "members, separated by tabs"
            )
        if name in sets:
            raise ValueError(f"path: line {number} of {str(path)!r} has the set {name!r} again; rename one")
        sets[name] = list(dict.fromkeys(members))
    return sets


def odds_of_sets(
    sets: Mapping[str, Sequence[str]] | pd.DataFrame,
    features: Sequence[str] | Any,
    *,
    member: float = 10.0,
    other: float = 0.3,
    free: int = 0,
) -> pd.DataFrame:
    """Odds of edges, a factor for each set: for `SparseDecoder(edge_odds=...)`.

    Parameters
    ----------
    sets : mapping of str to sequence of str, or DataFrame (feature, set)
        From `read_gmt`; or a table of memberships, such as a `varm` of an AnnData, other than 0 where a
        feature is in.
    features : sequence of str
        The table's columns. Members that are not among them are left out.
    member, other : float
        Odds of a set's features, and of all others, as multiples of those that a factor's edges have anyway.
    free : int
        Factors of no set beside these, whose odds are 1.

    Returns
    -------
    DataFrame (feature, factor)
        Columns are called by the sets, then free 1, free 2, …

    Raises
    ------
    ValueError
        Odds that are not positive; a set with no member among the features.
    TypeError
        No sets at all.

    Examples
    --------
    >>> odds_of_sets({"stress": ["a", "c", "z"]}, ["a", "b", "c"], free=1)
       stress  free 1
    a    10.0     1.0
    b     0.3     1.0
    c    10.0     1.0
    """
    if isinstance(sets, pd.DataFrame):
        sets = {str(name): list(sets.index[sets[name].fillna(0).to_numpy() != 0]) for name in sets.columns}
    if not isinstance(sets, Mapping) or not sets:
        raise TypeError("sets: wanted members by the name of their set, or a table of memberships; got none")
    if not (0 < member < np.inf and 0 < other < np.inf):
        raise ValueError(f"member, other: got {member} and {other}, wanted positive odds")
    check_whole(0, free=free)
    names = [str(name) for name in features]
    odds = pd.DataFrame(index=pd.Index(names))
    for name, members in sets.items():
        inside = np.isin(names, [str(m) for m in members])
        if not inside.any():
            raise ValueError(
                f"sets: no feature is in {name!r} (its members begin {list(members)[:3]}, the features "
                f"{names[:3]}); are they called by other names? Leave the set out if not"
            )
        odds[name] = np.where(inside, float(member), float(other))
    for k in range(free):
        if f"free {k + 1}" in odds:
            raise ValueError(f"sets: a set is called 'free {k + 1}', as a factor of no set is; rename it")
        odds[f"free {k + 1}"] = 1.0
    return odds
