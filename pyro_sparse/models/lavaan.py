"""Measurement models as lavaan writes them: which items measure which factor, as edges of a decoder.

``visual =~ x1 + x2 + x3`` says that three items depend on a factor called visual. Read as a confirmatory
model, these edges are there and all others are not; read as what is expected, the others are asked for.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..likelihoods import LikelihoodLike
from .sparse_decoder import SparseDecoder

__all__ = ["Measurement", "from_lavaan", "read_lavaan"]

_NAME = re.compile(r"[A-Za-z.][\w.]*")
_OPERATORS = ("=~", "~~", "~*~", "~", "|", ":=", "==", "<", ">")


class Measurement(NamedTuple):
    """What a text says.

    Attributes
    ----------
    factors : list of str
        In the order of the text.
    items : list of str
        In the order in which they first occur.
    edges : list of (str, str)
        (item, factor).
    zeros : list of (str, str)
        Edges that the text says are not there.
    """

    factors: list[str]
    items: list[str]
    edges: list[tuple[str, str]]
    zeros: list[tuple[str, str]]


def from_lavaan(
    text: str, *, explore: bool = False, likelihood: LikelihoodLike = "normal", **settings: Any
) -> SparseDecoder:
    """A linear decoder whose factors have names and items, from the measurement part of a lavaan model.

    Parameters
    ----------
    text : str
        Lines ``factor =~ item + item``, with ``#`` or ``!`` before a comment, and ``;`` or a new line between
        statements.
    explore : bool
        False, confirmatory: the edges of the text are there, no others are. If the data want one of those,
        a finding of the edge posterior says so, and its ``if_permitted`` how probable it would be. True: the
        text is what is expected; every other edge is asked for.
    likelihood : str, mapping or Likelihood
        As for `SparseDecoder`.
    **settings
        Of `SparseDecoder`: prior, `factor_cov` …

    Returns
    -------
    SparseDecoder
        Give it a table with the columns of the text and no others: ``X[read_lavaan(text).items]``.

    Raises
    ------
    ValueError
        The text says something else, or says it wrongly: the statement, what is wanted, what to do.

    Notes
    -----
    Scales are set by factors of variance 1, so that no loading is fixed to 1; factors are correlated.

    References
    ----------
    Rosseel (2012), *lavaan: an R package for structural equation modeling*, Journal of Statistical Software
    48(2).

    Examples
    --------
    >>> model = from_lavaan("visual =~ x1 + x2 + x3; speed =~ x7 + x8 + x9")
    >>> model.factor_names, model.n_features
    (['visual', 'speed'], 6)
    """
    if said := settings.keys() & {"n_features", "n_factors", "factor_names", "required", "forbidden"}:
        raise TypeError(
            f"from_lavaan: got {sorted(said)}, and the text says that; leave it out, or write a SparseDecoder"
        )
    measured = read_lavaan(text)
    there = set(measured.edges)
    place = {name: k for k, name in enumerate(measured.factors)}
    required = [(item, place[factor]) for item, factor in measured.edges]
    forbidden = [
        (item, k) for item in measured.items for factor, k in place.items() if (item, factor) not in there
    ]
    return SparseDecoder(
        n_features=len(measured.items),
        n_factors=len(measured.factors),
        factor_names=measured.factors,
        likelihood=likelihood,
        required=required,
        forbidden=[(item, place[factor]) for item, factor in measured.zeros] if explore else forbidden,
        **{"decoder": "linear", **settings},
    )


def read_lavaan(text: str) -> Measurement:
    """Factors, items and edges of a text in lavaan's syntax.

    Parameters
    ----------
    text : str

    Raises
    ------
    ValueError, TypeError
        As for `from_lavaan`.
    """
    if not isinstance(text, str):
        raise TypeError(f"text: got a {type(text).__name__}, wanted lines such as 'visual =~ x1 + x2 + x3'")
    items_of: dict[str, list[str]] = {}
    zeros: list[tuple[str, str]] = []
    for statement in _statements(text):
        factor, items = _read_statement(statement)
        for item, is_zero in items:
            if item in items_of.get(factor, []):
                raise ValueError(f"text: {statement!r} names {item!r} of {factor!r} again; leave one of them")
            if is_zero:
                zeros.append((item, factor))
            else:
                items_of.setdefault(factor, []).append(item)
    if not items_of:
        raise ValueError("text: has no statement; wanted lines such as 'visual =~ x1 + x2 + x3'")
    for factor, measured in items_of.items():
        above = next((item for item in measured if item in items_of), None)
        if above is not None:
            raise ValueError(
                f"text: {factor!r} is a factor of the factor {above!r}; factors of factors are written as a "
                "program (ps.Program)"
            )
    names = list(dict.fromkeys(item for items in items_of.values() for item in items))
    if len(names) <= len(items_of):
        raise ValueError(f"text: has {len(items_of)} factors and {len(names)} items; wanted more items")
    edges = [(item, factor) for factor, items in items_of.items() for item in items]
    lost = next((zero for zero in zeros if zero[0] not in names or zero[1] not in items_of), None)
    if lost is not None:
        raise ValueError(f"text: 0*{lost[0]} of {lost[1]!r} names an item or a factor of no other loading")
    return Measurement(list(items_of), names, edges, zeros)


def _statements(text: str) -> list[str]:
    """Statements without comments; a line goes on after an operator or a plus, and before a plus."""
    without = [re.split(r"[#!]", line)[0] for line in text.split("\n")]
    lines = [part.strip() for line in without for part in line.split(";")]
    joined: list[str] = []
    for line in filter(None, lines):
        goes_on = joined and (joined[-1].endswith(("+", "=~")) or line.startswith("+"))
        if goes_on:
            joined[-1] += " " + line
        else:
            joined.append(line)
    return joined


def _read_statement(statement: str) -> tuple[str, list[tuple[str, bool]]]:
    """Factor and items, each with whether it is fixed to zero."""
    operator = next((o for o in _OPERATORS if o in statement), None)
    if operator != "=~":
        wanted = "wanted measurements such as 'visual =~ x1 + x2 + x3'"
        hint = {
            "~~": "factors are correlated as it is (factor_cov=False: they are not), and each item has a "
            "noise of its own; leave the line out",
            "~": "regressions are covariates of a program (ps.Program)",
        }.get(str(operator), "leave the line out")
        raise ValueError(f"text: {statement!r} measures nothing, {wanted}; {hint}")
    left, _, right = statement.partition("=~")
    factor = left.strip()
    if not _NAME.fullmatch(factor):
        raise ValueError(f"text: {statement!r} has {factor!r} for a factor, wanted one name before '=~'")
    return factor, [_read_term(term.strip(), statement) for term in right.split("+")]


def _read_term(term: str, statement: str) -> tuple[str, bool]:
    modifier, star, item = term.rpartition("*")
    item, modifier = item.strip(), modifier.strip()
    if not _NAME.fullmatch(item):
        raise ValueError(f"text: {statement!r} has {term!r} where an item is wanted; separate names by '+'")
    if not star or modifier in (
        "NA",
        "1",
        "1.0",
    ):  # free, or lavaan's marker, for which factors have variance 1 here
        return item, False
    if modifier in ("0", "0.0"):
        return item, True
    raise ValueError(
        f"text: {statement!r} has {modifier!r} for the loading of {item!r}, wanted it free or 0; equal or "
        "given loadings are written as a program (ps.Program)"
    )
