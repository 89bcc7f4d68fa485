"""All that is known against a result, in one list: what was seen, what it touches, and what would help.

Every check (of columns, restarts, axes, chains, rows used) files a `Finding`. Warnings, verdicts, the
summary, the report, the command line and the certificate read that list and have no doubts of their own, so
that no two of them disagree. An edge is *present* if its probability says so and no doubt touches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .._utils.wording import listed

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.training.fit_result import FitResult

__all__ = [
    "Finding",
    "Severity",
    "Source",
    "confirmed_by_chains",
    "dispelled_by_chains",
    "doubted_edges",
    "findings_of",
    "found_by_one_restart",
    "read_findings",
    "replaced_in_rivals",
    "sentences",
    "write_findings",
]

Severity = Literal["note", "doubt"]
Source = Literal["data", "fit", "chains"]
_CAME_BACK = ", but chains that began in other axes came back to {}"
# Doubts of a fit that its chains can dispel.
_DISPELLED = ("rivals", "unconfirmed")


@dataclass(frozen=True)
class Finding:
    """One thing that a reader should know before believing a result.

    Parameters
    ----------
    kind : str
        What was checked, in a word: "columns", "rows", "restarts", "rivals" (restarts that explain the data
        as well, with other factors), "unconfirmed" (factors that one restart alone found), "chains", "axes",
        "scales", "model", … A program may choose by it.
    message : str
        What was seen, in plain words, with names and figures; no full stop at its end.
    remedy : str
        What the reader can do, as an imperative; empty where nothing helps.
    severity : {"note", "doubt"}
        "doubt": edges that it touches are *open*, whatever their probability, and not selected. A "note" is
        to be read beside the result.
    source : {"data", "fit", "chains"}
        The stage that noticed: the table alone, the fit, or the edge posterior.
    factors : tuple of str
        Factors, or latents, that it touches, by the names of the fit.
    edges : tuple of (str, str)
        Single edges: (feature, factor), (task, latent), (target, source) or (target, action).
    columns : tuple of str
        Columns of the table, or tasks, that it names.
    size : float, optional
        How large the effect is, in the units that `message` states.

    Notes
    -----
    A doubt with neither factors nor edges touches every edge.

    Raises
    ------
    ValueError
        `severity` or `source` is none of those, or `message` is empty.

    Examples
    --------
    >>> doubt = Finding("restarts", "no other restart found factor 2", "anchor it", severity="doubt")
    >>> str(doubt)
    'no other restart found factor 2: anchor it'
    """

    kind: str
    message: str
    remedy: str = ""
    severity: Severity = "note"
    source: Source = "fit"
    factors: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    size: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("severity", Severity), ("source", Source)):
            value = getattr(self, name)
            if value not in get_args(allowed):
                raise ValueError(f"{name}: want one of {list(get_args(allowed))}, got {value!r}")
        if not self.message:
            raise ValueError("message: is empty; say what was seen")

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}" if self.remedy else self.message

    @property
    def is_doubt(self) -> bool:
        """Whether it speaks against edges that it touches, which are open then."""
        return self.severity == "doubt"

    @property
    def leaves_open(self) -> bool:
        """Whether edges that it touches are open: by a doubt, or since nobody asked for them ("empty")."""
        return self.is_doubt or self.kind == "empty"

    @property
    def touches_all(self) -> bool:
        """Whether it is about no factor and no edge in particular."""
        return not self.factors and not self.edges

    def touches(self, feature: str, factor: str) -> bool:
        """Whether it is about this edge: it names it, or its factor, or nothing in particular.

        Parameters
        ----------
        feature, factor : str
            As in the columns of `pyro_sparse.summary`.

        Examples
        --------
        >>> doubt = Finding("restarts", "no other restart found factor 2", factors=("factor 2",))
        >>> doubt.touches("x1", "factor 2"), doubt.touches("x1", "factor 1")
        (True, False)
        """
        return self.touches_all or factor in self.factors or (feature, factor) in self.edges


def sentences(findings: Iterable[Finding], source: Source | None = None) -> list[str]:
    """Each finding as a sentence, doubts first; of one source if it is named.

    Parameters
    ----------
    findings : iterable of Finding
    source : {"data", "fit", "chains"}, optional
    """
    chosen = [finding for finding in findings if source in (None, finding.source)]
    return [str(finding) for finding in sorted(chosen, key=lambda finding: not finding.is_doubt)]


def doubted_edges(
    findings: Iterable[Finding],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    targets_are_factors: bool = False,
) -> NDArray[np.bool_]:
    """Edges that a doubt touches, or that nobody asked for, (row, column).

    Parameters
    ----------
    findings : iterable of Finding
    rows : sequence of str
        Features, tasks or targets.
    columns : sequence of str
        Factors, latents, sources or actions.
    targets_are_factors : bool
        Rows are latents, too, as in a transition: a doubted latent touches the edges into it as well.

    Examples
    --------
    >>> doubt = Finding("restarts", "no other restart found it", severity="doubt", factors=("factor 2",))
    >>> doubted_edges([doubt], ["x1", "x2"], ["factor 1", "factor 2"]).tolist()
    [[False, True], [False, True]]
    """
    row_at = {name: i for i, name in enumerate(rows)}
    column_at = {name: i for i, name in enumerate(columns)}
    touched = np.zeros((len(rows), len(columns)), dtype=bool)
    for finding in findings:
        if not finding.leaves_open:
            continue
        if finding.touches_all:
            touched[:] = True
        for name in finding.factors:
            if name in column_at:
                touched[:, column_at[name]] = True
            if targets_are_factors and name in row_at:
                touched[row_at[name]] = True
        for row, column in finding.edges:
            if row in row_at and column in column_at:
                touched[row_at[row], column_at[column]] = True
    return touched


def found_by_one_restart(factors: Sequence[str], remedy: str) -> Finding:
    """The doubt about factors that no other restart found: one for all of them, however many.

    Parameters
    ----------
    factors : sequence of str
        At least one.
    remedy : str

    Examples
    --------
    >>> print(found_by_one_restart(["a", "b", "c"], "fit more restarts"))
    no other restart found a, b and c: fit more restarts
    """
    message = f"no other restart found {listed(factors)}"
    return Finding("unconfirmed", message, remedy, "doubt", factors=tuple(factors))


def replaced_in_rivals(factors: Sequence[str], remedy: str) -> Finding:
    """The doubt about factors that a restart as good as the best one has others for.

    Parameters
    ----------
    factors : sequence of str
        At least one.
    remedy : str

    Examples
    --------
    >>> print(replaced_in_rivals(["a"], "an anchor"))
    a restart that explains the data as well has other factors in place of a: an anchor
    """
    message = f"a restart that explains the data as well has other factors in place of {listed(factors)}"
    return Finding("rivals", message, remedy, "doubt", factors=tuple(factors))


def confirmed_by_chains(
    findings: Iterable[Finding], factors: Iterable[str], with_edges: Iterable[str] = ()
) -> list[Finding]:
    """The same, where doubts that chains dispel are notes.

    A fit doubts factors that none but its best restart found. Markov chains that begin in other axes and come
    back to one of them are what those restarts were not, so that this doubt shrinks to the other factors.

    A fit also doubts factors for which a rival, a restart that explains the data as well, has others. That is
    a doubt about the graph as a whole: where a rival has one factor in another place, its neighbours have
    other edges. So it stays as it is unless chains came back to every factor with an edge, in the fit, in its
    rivals or in the chains. Then all chains kept hold one set of factors, whichever axes they began in; one
    that began at a rival (the best of them has its own, if there are four chains) left it, or was left out
    for its evidence. By the likelihood with rows' factors summed out the rival is none. A rival with more
    factors than the chains ran over has edges of which they say nothing, and stays one.

    Parameters
    ----------
    findings : iterable of Finding
        Of a fit.
    factors : iterable of str
        That chains came back to (`graphs.chain_starts.came_back`).
    with_edges : iterable of str
        Factors with an edge, anywhere. Default: not known, and doubts about rivals stay.

    Examples
    --------
    >>> doubts = [found_by_one_restart(["a", "b"], "fit more"), replaced_in_rivals(["b"], "an anchor")]
    >>> print(*confirmed_by_chains(doubts, ["b"], ["a", "b"]), sep="\\n")
    no other restart found a: fit more
    no other restart found b, but chains that began in other axes came back to it
    a restart that explains the data as well has other factors in place of b: an anchor
    """
    confirmed, wanted = set(factors), set(with_edges)
    left: list[Finding] = []
    for finding in findings:
        known = tuple(name for name in finding.factors if name in confirmed)
        if finding.kind == "unconfirmed" and finding.is_doubt and known:
            lost = tuple(name for name in finding.factors if name not in confirmed)
            left += [found_by_one_restart(lost, finding.remedy)] if lost else []
            left.append(_dispelled(found_by_one_restart(known, ""), "them" if len(known) > 1 else "it"))
        elif finding.kind == "rivals" and finding.is_doubt and wanted and wanted <= confirmed:
            left.append(_dispelled(finding, "every factor that has an edge"))
        else:
            left.append(finding)
    return left


def dispelled_by_chains(findings: Iterable[Finding]) -> list[Finding]:
    """The notes that `confirmed_by_chains` made of doubts.

    Parameters
    ----------
    findings : iterable of Finding
        Of an edge posterior.

    Examples
    --------
    >>> doubts = [found_by_one_restart(["a", "b"], "fit more restarts")]
    >>> [note.factors for note in dispelled_by_chains(confirmed_by_chains(doubts, ["b"]))]
    [('b',)]
    """
    return [finding for finding in findings if finding.kind in _DISPELLED and not finding.is_doubt]


def _dispelled(doubt: Finding, to: str) -> Finding:
    """A doubt as a note that says to what chains came back."""
    return replace(doubt, message=f"{doubt.message}{_CAME_BACK.format(to)}", remedy="", severity="note")


def write_findings(findings: Iterable[Finding]) -> str:
    """Findings as JSON text, for files and attributes; `read_findings` has them back.

    Parameters
    ----------
    findings : iterable of Finding
    """
    return json.dumps([asdict(finding) for finding in findings], default=float)


def read_findings(text: str) -> list[Finding]:
    """Findings from `write_findings`.

    Parameters
    ----------
    text : str

    Raises
    ------
    ValueError
        The text is no list of findings.
    """
    try:
        return [
            Finding(
                **{
                    **row,
                    "factors": tuple(row["factors"]),
                    "edges": tuple((str(a), str(b)) for a, b in row["edges"]),
                    "columns": tuple(row["columns"]),
                }
            )
            for row in json.loads(text)
        ]
    except (TypeError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"findings: not written by this package ({error!r})") from error


def findings_of(fit: FitResult | None = None, idata: ArvizData | None = None) -> list[Finding]:
    """All that is known against a result; an edge posterior knows the findings of its fit.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit, optional
    idata : InferenceData or DataTree, optional
        From its `edge_posterior`.

    Raises
    ------
    TypeError
        An edge posterior, or something else without findings, is passed as the fit.
    """
    if fit is not None and not hasattr(fit, "findings"):
        raise TypeError(
            f"fit: a {type(fit).__name__} has no findings; wanted a fit, and an edge posterior as idata="
        )
    recorded = read_findings(str(idata.attrs.get("findings", "[]"))) if idata is not None else []
    written = {write_findings([finding]) for finding in recorded}  # a size of NaN equals no other
    # What chains dispelled, or some of it, is another finding in the edge posterior than in the fit.
    answered = {(f.kind, name) for f in recorded if f.kind in _DISPELLED for name in f.factors}
    extra = [
        candidate
        for candidate in ([] if fit is None else fit.findings)
        if write_findings([candidate]) not in written
        and not (candidate.factors and {(candidate.kind, name) for name in candidate.factors} <= answered)
    ]
    return [*extra, *recorded]
