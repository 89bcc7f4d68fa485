"""What a warning means, what it touches and what to do: the texts of `explanations.md`."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Explanation", "all_explanations", "explained"]

_FIELDS = ("Says", "Means", "Touches", "Do")


class Explanation(NamedTuple):
    """A text on one warning.

    Attributes
    ----------
    kind : str
        As `Finding.kind`.
    title : str
    says : tuple of str
        Distinctive parts of the warning.
    means, touches, do : str
    """

    kind: str
    title: str
    says: tuple[str, ...]
    means: str
    touches: str
    do: str


@cache
def all_explanations() -> tuple[Explanation, ...]:
    """The texts, in the order of the file."""
    text = files("pyro_sparse.cli").joinpath("explanations.md").read_text(encoding="utf-8")
    explanations = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        head, _, body = section.partition("\n")
        kind, _, title = head.partition(": ")
        parts = dict(
            re.findall(rf"^({'|'.join(_FIELDS)}): (.*?)(?=\n(?:{'|'.join(_FIELDS)}): |\Z)", body, re.M | re.S)
        )
        means, touches, do = (" ".join(parts[name].split()) for name in _FIELDS[1:])
        says = tuple(part.strip() for part in " ".join(parts["Says"].split()).split(" | "))
        explanations.append(Explanation(kind.strip(), title.strip(), says, means, touches, do))
    return tuple(explanations)


def explained(text: str) -> list[Explanation]:
    """The explanations of a warning.

    Parameters
    ----------
    text : str
        Of it all, of a distinctive part, or of a `Finding.kind`.

    Raises
    ------
    ValueError
        There is none.

    Examples
    --------
    >>> [entry.title for entry in explained("no other restart found factor 2")]
    ['No other restart found a factor']
    """
    entries = all_explanations()
    asked = _plain(text)
    if of_kind := [entry for entry in entries if entry.kind == asked]:
        return of_kind
    length = {entry: max((len(said) for part in entry.says if (said := _plain(part)) in asked), default=0)
              for entry in entries}  # fmt: skip
    if longest := max(length.values()):
        return [entry for entry in entries if length[entry] == longest]
    if len(asked) >= 4:  # a part of what a warning says
        if parts := [entry for entry in entries if any(asked in _plain(said) for said in entry.says)]:
            return parts
    words = {
        word for entry in entries for said in entry.says for word in _plain(said).split() if len(word) > 3
    }
    meant = [
        difflib.get_close_matches(word, words, n=1, cutoff=0.8) for word in asked.split() if len(word) > 3
    ]
    known = {word for match in meant for word in match}
    shared = {
        entry: len(known & {w for said in entry.says for w in _plain(said).split()}) for entry in entries
    }
    if (most := max(shared.values())) >= 2:
        return [entry for entry in entries if shared[entry] == most][:3]
    kinds = ", ".join(dict.fromkeys(entry.kind for entry in entries))
    raise ValueError(
        f"WARNING: nothing is known of {text[:60]!r}; wanted the text of a warning or of the verdict, or "
        f"a part of "
        f"it, or one of these: {kinds}"
    )


def _plain(text: str) -> str:
    """Small letters and single spaces, without what a message ends or is quoted with."""
    return " ".join(text.lower().replace("“", '"').replace("”", '"').split()).strip(" .!?'\"")
