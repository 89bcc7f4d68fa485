"""Options of the methods of `edge_posterior`: which there are, and a complaint of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

__all__ = ["check_options", "options_of"]

_FROM_THE_FIT = {
    "fit", "num_draws", "seed", "inputs", "features", "targets", "mask", "required", "forbidden", "groups",
    "odds", "likelihood", "is_set_up",
}  # fmt: skip


def options_of(function: Callable[..., object]) -> set[str]:
    """Arguments that a caller of `edge_posterior` may choose; the fit gives the others.

    Parameters
    ----------
    function : callable
    """
    return {*inspect.signature(function).parameters} - _FROM_THE_FIT


def check_options(method: str, options: Iterable[str], accepted: Iterable[str] = ()) -> None:
    """Complain of an option that a method does not have.

    Parameters
    ----------
    method : str
    options : iterable of str
        Those given.
    accepted : iterable of str
        Those there are.

    Raises
    ------
    TypeError
        An option is not known.
    """
    unknown = sorted({*options} - {*accepted})
    if unknown:
        takes = ", ".join(sorted(accepted)) or "none"
        raise TypeError(f"edge_posterior(method={method!r}): no option {unknown[0]!r}; it takes {takes}")
