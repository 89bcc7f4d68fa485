"""Whether methods that a subclass writes anew can be called as the package calls them, seen beforehand."""

from __future__ import annotations

import inspect
from collections.abc import Callable

__all__ = ["refuse_signatures", "signature_misfits"]

Method = Callable[..., object]


def signature_misfits(thing: object, base: type, by_name: tuple[str, ...] = ()) -> list[str]:
    """What of an object's own methods cannot be called as those of the package's class.

    Parameters
    ----------
    thing : object
        Of a subclass of `base`, or with methods set on it.
    base : type
        Whose methods the package calls by position, with all arguments and with those only that have no
        default.
    by_name : tuple of str
        Methods that it calls with every argument by its name instead.

    Returns
    -------
    list of str
        "Class.method(…): …" of each method that does not fit.
    """
    misfits = []
    for name in dir(base):
        of_base = inspect.getattr_static(base, name)
        if name.startswith("_") or not (callable(of_base) or isinstance(of_base, property | staticmethod)):
            continue
        if not _defined_by(base, name).startswith("pyro_sparse"):
            continue  # torch's
        member = vars(thing).get(name, inspect.getattr_static(type(thing), name))
        if member is of_base:
            continue
        label = f"{type(thing).__name__}.{name}"
        if isinstance(of_base, property):
            if inspect.isroutine(member):
                misfits.append(f"{label}: is a method, and the package reads it; write @property above it")
            continue
        if isinstance(member, property):
            misfits.append(f"{label}: is a property, and the package calls it; leave @property out")
            continue
        if inspect.isroutine(member) and (
            why := _misfit(name, getattr(thing, name), of_base, name in by_name)
        ):
            misfits.append(f"{label}{why}")
    return misfits


def refuse_signatures(argument: str, thing: object, base: type, by_name: tuple[str, ...] = ()) -> None:
    """Complain of a method that cannot be called as the package calls it.

    Parameters
    ----------
    argument : str
        What the caller knows the object by.
    thing : object
    base : type
    by_name : tuple of str
        As for `signature_misfits`.

    Raises
    ------
    TypeError
        Naming the method and the argument.
    """
    if misfits := signature_misfits(thing, base, by_name):
        raise TypeError(f"{argument}: {misfits[0]}")


def _defined_by(base: type, name: str) -> str:
    return next((ancestor.__module__ for ancestor in base.__mro__ if name in vars(ancestor)), "")


def _misfit(name: str, method: Method, of_base: Method | staticmethod | classmethod, by_name: bool) -> str:
    """Why a call fails, as the end of a sentence that begins with the method's name; empty if it does not."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # of a built-in
        return ""
    function = of_base.__func__ if isinstance(of_base, staticmethod | classmethod) else of_base
    wanted = [*inspect.signature(function).parameters.values()]
    wanted = wanted if isinstance(of_base, staticmethod) else wanted[1:]
    wanted = [p for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    calls: list[tuple[tuple[None, ...], dict[str, None]]] = []
    if by_name:
        calls.append(((), {p.name: None for p in wanted}))
    else:
        least = sum(p.default is p.empty for p in wanted)
        calls += [((None,) * n, {}) for n in {least, len(wanted)}]
    for args, named in calls:
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            how = ", ".join(f"{p.name}=…" if named else p.name for p in wanted)
            return f"{signature}: {error}; the package calls it as {name}({how})"
    return ""
