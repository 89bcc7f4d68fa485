"""Levels of covariates and groups, and tasks, whose names differ in their spelling only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...findings.finding import Finding
from ..spelling import alike

if TYPE_CHECKING:
    from ..design import Design

__all__ = ["alike_labels", "alike_levels"]

_SHOWN = 3  # pairs in a sentence


def alike_levels(design: Design | None) -> list[Finding]:
    """Levels of what was given of rows that are probably one.

    Parameters
    ----------
    design : Design or None
    """
    terms = () if design is None else design.terms
    return [
        finding
        for term in terms
        for finding in alike_labels(list(term.levels), f"levels of {term.name!r}", "an effect of its own")
    ]


def alike_labels(names: list[str], noun: str, apart: str) -> list[Finding]:
    """A note on names that are the same but for spaces, case or zeros.

    Parameters
    ----------
    names : list of str
    noun : str
        What they are names of, such as "tasks".
    apart : str
        What each of them has.
    """
    same = alike(names)
    if not same:
        return []
    shown = ", ".join(" and ".join(map(repr, pair)) for pair in same[:_SHOWN])
    more = f" and {len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
    return [
        Finding(
            "labels",
            f"{noun} have names that are the same but for spaces, case or zeros: {shown}{more}; each has "
            f"{apart}",
            "if they are one, spell them alike: fewer rows speak for each, as they are",
            source="data",
            size=float(len(same)),
        )
    ]
