"""What the strategies for fuzzing share: one case, and the way to Hypothesis, an optional requirement."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["Case", "require_hypothesis"]


@dataclass(frozen=True)
class Case:
    """Input as people have it, and what a reader should make of it.

    Attributes
    ----------
    arguments : dict
        For `pyro_sparse.fit`, by name: ``ps.fit(model, **case.arguments)``.
    cells : list of ndarray, or None
        The numbers that should be read, NaN where missing, in the order that the package promises: one array
        (row, feature) of a table, (time, feature) of each sequence, (sample, feature) of each task. None
        where there is nothing to read.
    targets : list of ndarray, or None
        Of each task, (sample,).
    features : list of str, or None
        Names that a fit should have; None where the input has none.
    groups : list of str, or None
        Names of sequences or tasks, where the input has them.
    likelihood : str
        That the values of a table were made for.
    done : tuple of str
        How the input was made, in words.
    refuse : str
        Why nobody can fit this, in words; empty where a fit may be made.
    """

    arguments: dict[str, Any]
    cells: list[np.ndarray] | None = None
    targets: list[np.ndarray] | None = None
    features: list[str] | None = None
    groups: list[str] | None = None
    likelihood: str = "normal"
    done: tuple[str, ...] = field(default=())
    refuse: str = ""

    def __repr__(self) -> str:
        made = ", ".join(self.done) or "plain"
        why = f"; to be refused: {self.refuse}" if self.refuse else ""
        return f"<Case: {made}; {', '.join(f'{n}={_shown(v)}' for n, v in self.arguments.items())}{why}>"


def _shown(value: object) -> str:
    """A value in a line: its type and shape where it is long."""
    text = repr(value)
    if len(text) <= 60 and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    size = tuple(shape) if shape is not None else f"[{len(value)}]" if hasattr(value, "__len__") else ""
    return f"{type(value).__name__}{size}"


def require_hypothesis() -> ModuleType:
    """Hypothesis' strategies.

    Raises
    ------
    ImportError
        Hypothesis is not installed.
    """
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise ImportError(
            "pyro_sparse.testing: strategies for fuzzing want hypothesis, which is not installed; "
            "pip install 'pyro-sparse[test]'"
        ) from error
    return strategies
