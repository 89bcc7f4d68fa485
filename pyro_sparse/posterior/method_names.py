"""Names of the methods that give edges, and the names that they had before."""

from __future__ import annotations

import warnings

__all__ = ["FORMER_NAMES", "current_name", "warned_name"]

FORMER_NAMES = {
    "polish": "mcmc",
    "strengths": "jacobian",
    "parents": "parent_sets",
    "relaxed": "gate_probability",
}


def current_name(method: str) -> str:
    """The name of a method today: files keep the name of the day on which they were written.

    Parameters
    ----------
    method : str
    """
    return FORMER_NAMES.get(method, method)


def warned_name(method: str) -> str:
    """`current_name` of what a caller asks for, with a `FutureWarning` where it is a former name.

    Parameters
    ----------
    method : str
    """
    name = current_name(method)
    if name != method:
        warnings.warn(
            f"method={method!r} is called {name!r} now; the former name goes with the next release",
            FutureWarning,
            stacklevel=4,
        )
    return name
