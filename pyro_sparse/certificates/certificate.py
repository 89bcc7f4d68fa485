"""What may be claimed about each latent: a table of verdicts, the assumptions behind it, and how to read it.

`identify` fills it, from the graph of a table, of a transition, or from the supports of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from ..findings.finding import Finding
from ..graphs.identifiability import IdentifiabilityProbability

__all__ = ["UNCHECKED", "Certificate", "doubted", "verdicts"]

UNCHECKED: dict[str, object] = {"holds": None, "figure": "not checked: the fit was loaded without its data"}


@dataclass(frozen=True, eq=False)
class Certificate:
    """What may be claimed about each latent.

    Attributes
    ----------
    theorem : str
        Whose criterion was asked.
    table : DataFrame
        Index `latent`; columns `verdict` ("identified", "mixed", "unresolved", "alone" where there is no
        other latent, or "empty" where it reaches no feature), `probability` (that the criterion singles the
        latent out), `mixed_with` (names it may be mixed with), `would_help`; of a table also `by`, the
        criterion that says "identified".
    all_identified : float
        Probability that the criterion holds for all latents at once.
    assumptions : DataFrame
        Index `assumption`; columns `holds` (True, False or None where it cannot be checked), `figure`.
    caution : list of str
        Reasons to distrust the graph itself.
    criteria : DataFrame, optional
        Where several criteria were asked, the probability of each (column) for each latent (row).
    set_aside : tuple of str
        Assumptions of criteria that no verdict goes by.
    """

    theorem: str
    table: pd.DataFrame
    all_identified: float
    assumptions: pd.DataFrame
    caution: list[str] = field(default_factory=list)
    criteria: pd.DataFrame | None = None
    set_aside: tuple[str, ...] = ()

    @property
    def fails(self) -> list[str]:
        """Assumptions that the verdict "identified" rests on, and that do not hold."""
        if not (self.table["verdict"] == "identified").any():
            return []
        return [
            str(name)
            for name, holds in self.assumptions["holds"].items()
            if holds is not None and not holds and name not in self.set_aside
        ]

    def __str__(self) -> str:
        lines = ["Caution:", *(f"  {note}" for note in self.caution), ""] if self.caution else []
        lines += [f"Criterion: {self.theorem}", ""]
        fails = f" (if the assumptions below hold; {_fail(len(self.fails))})" if self.fails else ""
        for name, row in self.table.iterrows():
            with_whom = f" with {', '.join(row['mixed_with'])}" if len(row["mixed_with"]) else ""
            by = f" by {row['by']}" if row.get("by") else ""
            only_if = fails if row["verdict"] == "identified" else ""
            lines.append(f"{name}: {row['verdict']}{with_whom}{by} (P = {row['probability']:.2f}){only_if}")
            if row["would_help"]:
                lines.append(f"    would help: {row['would_help']}")
        lines += [
            "",
            f"The criterion holds for all at once: P = {self.all_identified:.2f}",
            "",
            "Assumptions:",
        ]
        for name, row in self.assumptions.iterrows():
            state = {True: "holds", False: "FAILS"}.get(row["holds"], "cannot be checked")
            lines.append(f"  {name}: {state} ({row['figure']})")
        return "\n".join(lines)

    __repr__ = __str__


def doubted(table: pd.DataFrame, findings: Sequence[Finding], advice: str = "") -> pd.DataFrame:
    """The table, "identified" only where no doubt touches the latent: a verdict is of what was found.

    Parameters
    ----------
    table : DataFrame
        From `verdicts`.
    findings : sequence of Finding
        Of the fit and its edge posterior.
    advice : str
        What would help where a doubt does not say.
    """
    table = table.copy()
    for name in table.index:
        doubts = [f for f in findings if f.is_doubt and (f.touches_all or name in f.factors)]
        if doubts and table.at[name, "verdict"] == "identified":
            helps = dict.fromkeys(finding.remedy or advice or str(finding) for finding in doubts)
            table.at[name, "verdict"], table.at[name, "would_help"] = "unresolved", "; ".join(helps)
            if "by" in table:
                table.at[name, "by"] = ""
    return table


def _fail(n: int) -> str:
    return f"{n} FAILS" if n == 1 else f"{n} FAIL"


def verdicts(
    names: list[str], identifiability: IdentifiabilityProbability, sure: float, help_: str
) -> pd.DataFrame:
    """The table of a certificate.

    Parameters
    ----------
    names : list of str
        Of the latents.
    identifiability : IdentifiabilityProbability
    sure : float
        Probability that a verdict wants.
    help_ : str
        What would tell a latent from others, with places {name} and {others}.
    """
    rows = []
    for i, p in enumerate(identifiability.disentangled):
        verdict = "identified" if p >= sure else "mixed" if p <= 1 - sure else "unresolved"
        # Named beside an unresolved latent is all that is not ruled out, beside a mixed one what is likely.
        least = 1 - sure if verdict == "unresolved" else 0.5
        others = [j for j in range(len(names)) if j != i and identifiability.consistency[i, j] > least]
        mixed = [] if verdict == "identified" else [names[j] for j in others]
        advice = ""
        if mixed:
            some = " or ".join(mixed[:3]) + (" …" if len(mixed) > 3 else "")
            advice = help_.format(name=names[i], others=some)
        if len(names) == 1:
            verdict = "alone"
        rows.append({"verdict": verdict, "probability": float(p), "mixed_with": mixed, "would_help": advice})
    return pd.DataFrame(rows, index=pd.Index(names, name="latent"))
