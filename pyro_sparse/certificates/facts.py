"""A certificate as plain facts for the report's page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..findings.finding import findings_of, sentences
from .certificate import Certificate
from .identify import identify

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.program.result import ProgramFit
    from ..inference.table.result import Fit
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["certificate_facts"]

_SHORT = {
    "identified": "good",
    "alone": "good",
    "mixed": "poor",
    "unresolved": "mixed",
    "empty": "unknown",
}


def certificate_facts(
    fit: Fit | ProgramFit | TransitionFit | MultiTaskFit, idata: ArvizData
) -> dict[str, Any] | None:
    """What the certificate says; None where edges are only scores.

    Warnings of the fit and of the chains are left out, for the page shows them elsewhere.
    """
    if int(idata.attrs.get("is_score", 0)):
        return None
    certificate = identify(fit, idata=idata)
    elsewhere = set(sentences(findings_of(fit, idata)))
    return {
        "by": "by" in certificate.table,
        "criteria": re.split(r"; (?![^(]*\))", certificate.theorem),  # not inside of brackets
        "all": certificate.all_identified,
        "caution": [*_only_if(certificate), *(note for note in certificate.caution if note not in elsewhere)],
        "rows": [
            {
                "name": name,
                "verdict": row["verdict"],
                "level": _SHORT.get(row["verdict"], "unknown"),
                "by": row.get("by", ""),
                "probability": row["probability"],
                "mixed": list(row["mixed_with"]),
                "help": row["would_help"],
            }
            for name, row in certificate.table.iterrows()
        ],
        "assumptions": [
            {
                "name": name,
                "state": {True: "holds", False: "fails"}.get(row["holds"], "open"),
                "level": {True: "good", False: "poor"}.get(row["holds"], "unknown"),
                "figure": row["figure"],
            }
            for name, row in certificate.assumptions.iterrows()
        ],
    }


def _only_if(certificate: Certificate) -> list[str]:
    """What is to be said beside "identified" where an assumption fails."""
    if not certificate.fails:
        return []
    verb = "fails" if len(certificate.fails) == 1 else "fail"
    return [
        f"of the assumptions below {len(certificate.fails)} {verb} ({', '.join(certificate.fails)}): what is "
        "called identified is so only if all of them hold"
    ]
