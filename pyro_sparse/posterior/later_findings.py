"""What is noticed about an edge posterior once it is made: filed with it, and its verdict said anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..findings.finding import Finding, findings_of, write_findings
from . import arviz as _arviz
from .verdicts import as_sentence, counts_of

if TYPE_CHECKING:
    from .._utils.types import ArvizData

__all__ = ["with_findings"]


def with_findings(idata: ArvizData, findings: Sequence[Finding]) -> ArvizData:
    """An edge posterior of a table with more findings: its verdict counts edges anew and says them.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table. It stays as it is.
    findings : sequence of Finding
    """
    if not findings:
        return idata
    before = findings_of(idata=idata)
    counted, recounted = counts_of(idata, before), counts_of(idata, [*before, *findings])
    verdict = str(idata.attrs.get("verdict", "")).splitlines()
    lines = [recounted if line == counted else line for line in verdict]
    about = {
        "findings": write_findings([*before, *findings]),
        "verdict": "\n".join([*lines, *(as_sentence(finding) for finding in findings)]),
    }
    groups = {name: _arviz.get_group(idata, name) for name in _arviz.group_names(idata)}
    return _arviz.from_datasets(groups, {**idata.attrs, **about})
