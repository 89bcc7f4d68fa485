"""What comes first on a page: what is known, what is open, and every caution with its remedy.

All of it is read from the table of edges, the certificate and the one list of findings; nothing here has a
doubt of its own, so that no two parts of a page disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ..findings.finding import Finding, findings_of
from ..posterior.arviz import get_group
from ..posterior.edge_table import left_open
from ..posterior.verdicts import SCORES, as_sentence, verdict_of

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.training.fit_result import FitResult

__all__ = [
    "SURE",
    "Words",
    "asked_for",
    "cautions",
    "counted",
    "decided",
    "in_doubt",
    "in_letters",
    "joined",
    "known_edges",
    "known_identified",
    "not_asked",
    "open_edges",
    "open_identified",
    "short",
]

SURE = 0.95  # probability at which an edge is called present, or a factor identified
_MOST_NAMES = 8  # of a sentence; the tables have all
_MOST_GROUPS = 12  # factors, or latents, that have a sentence of their own
_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()


class Words(NamedTuple):
    """How the edges of a kind of fit are spoken of; `row` and `column` are columns of its `summary`."""

    row: str
    column: str
    group: str  # the column whose edges make a sentence
    rows: str  # what has edges, in the plural
    groups: str
    sentence: tuple[str, str]  # for one name and for several, of {names} and {group}
    edge: str  # one edge, of {row} and {column}


def counted(n: int, noun: str, plural: str = "") -> str:
    """A number with its noun, such as "1 edge" and "1,204 rows".

    Parameters
    ----------
    n : int
    noun : str
    plural : str
        Default: with an s.

    Examples
    --------
    >>> counted(1, "edge"), counted(1204, "row"), counted(2, "latent axis", "latent axes")
    ('1 edge', '1,204 rows', '2 latent axes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def in_letters(n: int) -> str:
    """A number as a sentence begins with it, such as "Three".

    Parameters
    ----------
    n : int
    """
    return (_NUMBERS[n] if n < len(_NUMBERS) else f"{n:,}").capitalize()


def joined(names: Sequence[object], most: int = _MOST_NAMES) -> str:
    """Names in a sentence, the first few of many.

    Parameters
    ----------
    names : sequence
    most : int

    Examples
    --------
    >>> joined(["x1"]), joined(["x1", "x2", "x3"]), joined(list("abcde"), most=2)
    ('x1', 'x1, x2 and x3', 'a, b and 3 more')
    """
    shown = [str(name) for name in names]
    if len(shown) > most + 1:  # never "and 1 more"
        shown = [*shown[:most], f"{len(shown) - most} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def short(p: float) -> str:
    """A probability as in a sentence: two figures, no zero before the point.

    Parameters
    ----------
    p : float

    Examples
    --------
    >>> short(0.951), short(0.9499), short(1.0), short(0.9999), short(0.001)
    ('.95', '<.95', '1.00', '>.99', '<.01')
    """
    if 0.99 < p < 1:
        return ">.99"
    if 0 < p < 0.01:
        return "<.01"
    rounded = f"{p:.2f}".removeprefix("0")
    return f"<{rounded}" if p < SURE <= float(rounded) else rounded


def cautions(fit: FitResult, idata: ArvizData, beside: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Everything that is known against the result, once each: doubts first, those of one remedy together.

    Parameters
    ----------
    fit : Fit, ProgramFit, TransitionFit or MultiTaskFit
    idata : InferenceData or DataTree
    beside : iterable of str
        What the certificate has to say beyond the findings.
    """
    known = sorted(findings_of(fit, idata), key=lambda finding: not finding.is_doubt)
    known += [Finding("certificate", note) for note in beside]
    once = {str(finding): finding for finding in reversed(known)}
    together: dict[tuple[str, bool, str], list[str]] = {}
    for finding in reversed(once.values()):
        alone = "" if finding.remedy else finding.message
        said = as_sentence(replace(finding, remedy=""))
        together.setdefault((finding.remedy, finding.is_doubt, alone), []).append(said)
    return [
        {"messages": messages, "remedy": remedy.rstrip("."), "is_doubt": is_doubt}
        for (remedy, is_doubt, _), messages in together.items()
    ]


def in_doubt(fit: FitResult, idata: ArvizData) -> str:
    """How much of the result a doubt touches: "all", "some" or "" for none.

    Parameters
    ----------
    fit : Fit, ProgramFit, TransitionFit or MultiTaskFit
    idata : InferenceData or DataTree
    """
    doubts = [finding for finding in findings_of(fit, idata) if finding.is_doubt]
    return "all" if any(doubt.touches_all for doubt in doubts) else "some" if doubts else ""


def decided(fit: FitResult, idata: ArvizData) -> list[str]:
    """What the edge posterior concludes beside its findings and the meaning of its numbers.

    Parameters
    ----------
    fit : Fit, ProgramFit, TransitionFit or MultiTaskFit
    idata : InferenceData or DataTree
        Its attribute `verdict` is what the command line prints, too.
    """
    elsewhere = {SCORES, str(idata.attrs.get("note", ""))}
    for finding in findings_of(fit, idata):
        elsewhere |= {str(finding), as_sentence(finding)}
    return [line for line in verdict_of(idata) if line not in elsewhere]


def known_edges(table: pd.DataFrame, words: Words, order: Sequence[str]) -> list[str]:
    """A sentence for each factor (or latent) that has edges: those that are present; of scores the selected.

    Parameters
    ----------
    table : DataFrame
        From `summary`.
    words : Words
    order : sequence of str
        Factors or latents, as they are to be listed.
    """
    is_score = bool(table.attrs["is_score"])
    sure = table["selected"] if is_score else table["verdict"] == "present"
    sentences = []
    for group in order:
        edges = table[sure & (table[words.group] == group)]
        if not len(edges):
            continue
        names = _named(edges, words)
        how = f"score ≥ {short(float(edges['score'].min()))}" if is_score else f"probability ≥ {short(SURE)}"
        said = words.sentence[len(names) > 1].format(names=joined(names), group=group)
        sentences.append(f"{said} ({how}).")
    if len(sentences) > _MOST_GROUPS + 1:
        left = len(sentences) - _MOST_GROUPS
        sentences = [*sentences[:_MOST_GROUPS], f"And so on for {left} more {words.groups}: see the edges."]
    return sentences


def _named(edges: pd.DataFrame, words: Words) -> list[str]:
    """Names at the other end of the edges of a group, each once."""
    other = words.row if words.group == words.column else words.column
    return list(dict.fromkeys(str(name) for name in edges[other]))


def open_edges(table: pd.DataFrame, words: Words, asked: np.ndarray | None = None) -> list[str]:
    """Sentences on edges that are open: selected all the same, not ruled out, only doubted, or not asked for.

    Parameters
    ----------
    table : DataFrame
        From `summary`.
    words : Words
    asked : ndarray of bool (edge,), optional
        In the order of `table`: edges that the data were asked for. Default: all.
    """
    is_score = bool(table.attrs["is_score"])
    said = []
    if not is_score:
        less = table[table["selected"] & (table["verdict"] == "open")]
        if len(less):
            what = f"{len(less)} of the selected edges {'is' if len(less) == 1 else 'are'} open"
            said.append(f"{what}: {_edges(less, words, 'probability')}.")
    near = left_open(table)
    high = np.zeros(len(near), dtype=bool) if is_score else (near["probability"] >= SURE).to_numpy()
    word = "score" if is_score else "probability"
    middle = []
    if (~high).any():
        listed = _edges(near[~high], words, word)
        middle = [f"{counted(int((~high).sum()), 'edge')} not selected, but not ruled out: {listed}."]
    if is_score:
        return [SCORES, *said, *middle]
    was_asked = np.ones(len(table), dtype=bool) if asked is None else asked
    low = (table["verdict"] == "open") & ~table["selected"] & ~table.index.isin(near.index) & was_asked
    if high.any():
        listed = _edges(near[high], words, word)
        said.append(f"{_open_all_the_same(int(high.sum()), f'{short(SURE)} or more')}: {listed}.")
    said += middle
    if low.any():
        said.append(f"{_open_all_the_same(int(low.sum()), '.05 or less')}.")
    n_rest = int((~was_asked).sum())
    if n_rest:
        whole = not_asked(table, words.column, was_asked)
        of = f" (those of {joined(whole)})" if whole else ""
        verb = "was" if n_rest == 1 else "were"
        said.append(f"{counted(n_rest, 'edge')} {verb} not examined{of}: nothing is known of them.")
    return said


def _open_all_the_same(n: int, how: str) -> str:
    verb, subject = ("is", "it is") if n == 1 else ("are", "they are")
    touched = "it" if n == 1 else "them"
    return (
        f"{counted(n, 'edge')} with a probability of {how} {verb} open all the same, because {subject} "
        f"unresolved or a doubt touches {touched}"
    )


def not_asked(table: pd.DataFrame, column: str, asked: np.ndarray) -> list[str]:
    """Factors none of whose edges the data were asked for.

    Parameters
    ----------
    table : DataFrame
        From `summary`.
    column : str
        That names the factor.
    asked : ndarray of bool (edge,)
    """
    any_asked = pd.Series(asked, index=table[column].to_numpy()).groupby(level=0, sort=False).any()
    return [str(name) for name in any_asked.index[~any_asked]]


def _edges(table: pd.DataFrame, words: Words, word: str) -> str:
    named = [
        f"{words.edge.format(row=edge[words.row], column=edge[words.column])} ({short(float(edge[word]))})"
        for _, edge in table.head(_MOST_NAMES + 1).iterrows()
    ]
    return joined(named + [""] * (len(table) - len(named)))


def known_identified(certificate: Mapping[str, Any] | None) -> list[str]:
    """Which factors the graph identifies, in a sentence.

    Parameters
    ----------
    certificate : mapping, optional
        From `certificate_facts`.
    """
    sure = [row["name"] for row in _rows(certificate) if row["level"] == "good"]
    return [f"Identified, under the assumptions listed below: {joined(sure)}."] if sure else []


def open_identified(certificate: Mapping[str, Any] | None) -> list[str]:
    """Which factors it does not identify, with what they may be mixed with; or only in doubt.

    Parameters
    ----------
    certificate : mapping, optional
        From `certificate_facts`.
    """
    unsure, doubted = [], []
    for row in _rows(certificate):
        if row["level"] not in ("mixed", "poor"):
            continue
        p = short(row["probability"])
        mixed = f", may be mixed with {joined(row['mixed'])}" if row["mixed"] else ""
        if row["probability"] >= SURE and not mixed:
            doubted.append(f"{row['name']} ({p})")
        else:
            unsure.append(f"{row['name']} (probability {p}{mixed})")
    if len(unsure) > _MOST_GROUPS:
        unsure = [*unsure[:_MOST_GROUPS], f"{len(unsure) - _MOST_GROUPS} more"]
    said = [f"Not surely identified: {'; '.join(unsure)}."] if unsure else []
    if doubted:
        said.append(f"Identified by the edges found, which are in doubt themselves: {joined(doubted)}.")
    return said


def _rows(certificate: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return list(certificate["rows"]) if certificate else []


def asked_for(table: pd.DataFrame, idata: ArvizData) -> np.ndarray:
    """Which edges of a summary the data were asked for: neither forbidden nor of a factor left out.

    Parameters
    ----------
    table : DataFrame
        From `summary`.
    idata : InferenceData or DataTree

    Returns
    -------
    ndarray of bool (edge,)
    """
    numbers = get_group(idata, "edge_posterior")
    dims = "feature", "factor"
    possible = (numbers["restart_probability"] > 0).any("chain") | (numbers["probability"] > 0)
    places = [pd.Index([str(n) for n in numbers[dim].to_numpy()]) for dim in dims]
    i, j = (index.get_indexer(table[dim].astype(str)) for index, dim in zip(places, dims, strict=True))
    return np.asarray(possible.transpose(*dims).to_numpy()[i, j], dtype=bool)
