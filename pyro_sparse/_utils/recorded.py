"""Objects that remember how they were made, so that a saved fit can make them again from plain JSON."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import pandas as pd

__all__ = ["Recorded", "describe", "rebuild"]


class Recorded:
    """Base class whose subclasses record the arguments of their outermost constructor in ``_arguments``."""

    _arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in cls.__dict__:
            return
        original: Callable[..., None] = cls.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def init(self: Recorded, *args: object, **options: object) -> None:
            outermost = "_arguments" not in self.__dict__
            if outermost:
                try:
                    bound = signature.bind(self, *args, **options).arguments
                except TypeError as error:
                    names = list(signature.parameters)[1:]
                    raise TypeError(f"{type(self).__name__}: {error}; its arguments are {names}") from None
                self_name = next(iter(signature.parameters))  # the object itself, whatever it is called
                flat = {k: v for k, v in bound.items() if k != self_name}
                for name, parameter in signature.parameters.items():
                    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                        flat.update(flat.pop(name, {}))
                self.__dict__["_arguments"] = flat
            original(self, *args, **options)

        cls.__init__ = cast(Any, init)  # type: ignore[method-assign]


def describe(thing: object) -> object:
    """Plain JSON for a recorded object and the recorded objects among its arguments.

    Raises
    ------
    TypeError
        An argument is neither plain nor recorded.
    """
    if isinstance(thing, Recorded):
        name = f"{type(thing).__module__}:{type(thing).__qualname__}"
        return {"made": name, "with": {k: describe(v) for k, v in getattr(thing, "_arguments", {}).items()}}
    if isinstance(thing, dict):
        return {"items": [[describe(k), describe(v)] for k, v in thing.items()]}
    if isinstance(thing, (list, tuple, set)):
        return [describe(v) for v in thing]
    if isinstance(thing, pd.DataFrame):
        return {"frame": thing.to_dict(orient="split")}
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if hasattr(thing, "tolist"):  # numpy numbers and arrays, tensors
        return thing.tolist()
    raise TypeError(f"cannot describe a {type(thing).__name__} in JSON; pass the model to load() instead")


def rebuild(text: object) -> Any:
    """Make again what `describe` described; only classes of this package.

    Raises
    ------
    ValueError
        The class belongs to another package: pass the object itself instead.
    """
    if isinstance(text, list):
        return [rebuild(v) for v in text]
    if not isinstance(text, dict):
        return text
    if "frame" in text:
        return pd.DataFrame(**text["frame"])
    if "items" in text:
        return {(tuple(k) if isinstance(k := rebuild(a), list) else k): rebuild(b) for a, b in text["items"]}
    module, _, name = text["made"].partition(":")
    if not module.startswith("pyro_sparse."):
        raise ValueError(
            f"load: the file was made with {name} of {module!r}, which is not part of pyro_sparse; "
            "pass model=, a model made the same way"
        )
    import importlib

    made_class = getattr(importlib.import_module(module), name)
    if not (isinstance(made_class, type) and issubclass(made_class, Recorded)):
        raise ValueError(f"load: {text['made']!r} is not a model, prior or likelihood")
    return made_class(**{k: rebuild(v) for k, v in text["with"].items()})
