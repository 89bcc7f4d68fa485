"""What a class declares its methods to amount to, and whether an object still keeps to the declaration.

A solver that samples a model by a program of its own must know that the two have one density. The class that
writes the methods declares which density they are (`Declared`), and which names a subclass may write anew
without changing it. Any other name written anew, in a subclass, a mixin or on the object itself, takes the
declaration away, until the subclass declares it again:

    class Watched(SparseDecoder):
        declares = SparseDecoder.declares  # after_step only writes to a log

        def after_step(self, batch, progress):
            super().after_step(batch, progress)
            log(self)

The idea is skglm's, whose solvers list what they require of a loss.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

__all__ = ["Change", "Declared", "changes", "hooks", "keeps", "overridden"]

_MISSING = object()
# How an object is made, shown, copied and stored: nothing of what it says of data.
_FREE_ALWAYS = frozenset({
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__",
    "__class_getitem__", "__copy__", "__deepcopy__", "__dict__", "__dir__", "__doc__", "__eq__",
    "__firstlineno__", "__format__", "__getstate__", "__hash__", "__init__", "__init_subclass__",
    "__module__", "__orig_bases__", "__parameters__", "__qualname__", "__reduce__", "__reduce_ex__",
    "__repr__", "__setstate__", "__sizeof__", "__slots__", "__static_attributes__", "__str__",
    "__subclasshook__", "__weakref__", "_abc_impl", "declares", "dump_patches", "extra_repr",
    "get_params", "load_state_dict", "set_params", "state_dict", "train", "training",
})  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """One density that a class's methods amount to.

    Parameters
    ----------
    kind : str
        Its name, by which a solver asks for it.
    free : frozenset of str
        Names of the class that may be written anew without changing the density.
    rests_on : frozenset of str, optional
        The only names that may not, where the solver calls everything else itself; default all but `free`.
    """

    kind: str
    free: frozenset[str] = frozenset()
    rests_on: frozenset[str] | None = None


class Change(NamedTuple):
    """A name that is written anew.

    Attributes
    ----------
    owner : str
        The class that has it.
    name : str
        Empty where the class has no declaration at all.
    on_object : bool
        Whether it is set on the object itself.
    """

    owner: str
    name: str
    on_object: bool = False

    def __str__(self) -> str:
        if self.on_object:
            return f"{self.name}, set on the {self.owner} itself,"
        return f"{self.owner}.{self.name}" if self.name else self.owner


def keeps(thing: object, *kinds: str) -> bool:
    """Whether an object has the density of one of these kinds.

    Parameters
    ----------
    thing : object
    *kinds : str
    """
    return any(
        not overridden(thing, base, declared)
        for kind in kinds
        for base, declared in _declarations(thing, kind)
    )


def changes(thing: object, kind: str) -> list[Change]:
    """What an object has that its nearest declaration of a kind does not cover.

    Parameters
    ----------
    thing : object
    kind : str

    Returns
    -------
    list of Change
        Empty if it keeps to the declaration; its class if it has none.
    """
    by_declaration = [overridden(thing, base, declared) for base, declared in _declarations(thing, kind)]
    if not by_declaration:
        return [Change(type(thing).__name__, "")]
    return [] if not all(by_declaration) else by_declaration[0]


def overridden(thing: object, base: type, declared: Declared) -> list[Change]:
    """Names of `base` that the object's other classes, or the object itself, write anew.

    Parameters
    ----------
    thing : object
    base : type
        A class of its.
    declared : Declared
    """
    kind: type = type(thing)
    on_object = [
        Change(kind.__name__, name, on_object=True)
        for name in vars(thing).keys() & _settable(kind)
        if name not in _FREE_ALWAYS and name not in declared.free
    ]
    return [*_overridden_in_classes(kind, base, declared), *sorted(on_object)]


@functools.lru_cache(maxsize=1024)  # asked of the same few classes in every training step
def _overridden_in_classes(kind: type, base: type, declared: Declared) -> tuple[Change, ...]:
    free = _FREE_ALWAYS | declared.free
    base_names = {*dir(base)} | {
        name for ancestor in base.__mro__ for name in vars(ancestor).get("__annotations__", ())
    }
    rests_on = base_names if declared.rests_on is None else declared.rests_on
    changed: list[Change] = []
    for ancestor in kind.__mro__:
        if ancestor in base.__mro__:
            continue
        for name in vars(ancestor):
            if name in free or name not in base_names or name not in rests_on:
                continue
            if inspect.getattr_static(kind, name) is inspect.getattr_static(base, name, _MISSING):
                continue  # the same function under the same name, or one that is hidden by it
            changed.append(Change(ancestor.__name__, name))
    return tuple(changed)


@functools.lru_cache(maxsize=1024)
def _settable(kind: type) -> frozenset[str]:
    """Methods and properties of a class: an object may have something else under their names."""
    names = set()
    for name in dir(kind):
        of_class = inspect.getattr_static(kind, name, None)
        if callable(of_class) or isinstance(of_class, property | staticmethod | classmethod):
            names.add(name)
    return frozenset(names)


def hooks(thing: nn.Module, leave_out: Iterable[str] = ()) -> list[str]:
    """Modules with hooks that may change what they return, by name.

    Parameters
    ----------
    thing : Module
    leave_out : iterable of str
        Submodules that are not looked at.
    """
    skipped = tuple(leave_out)
    return [
        name or type(thing).__name__
        for name, module in thing.named_modules()
        if (module._forward_hooks or module._forward_pre_hooks) and name.split(".")[0] not in skipped
    ]


def _declarations(thing: object, kind: str) -> list[tuple[type, Declared]]:
    """Classes that declare a kind, the nearest first."""
    return [
        (ancestor, declared)
        for ancestor in type(thing).__mro__
        for declared in vars(ancestor).get("declares", ())
        if declared.kind == kind
    ]
