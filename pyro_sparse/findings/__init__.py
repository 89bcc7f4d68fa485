"""What is known against a result: one list of findings, which every output reads."""

from __future__ import annotations

from .finding import (
    Finding,
    Severity,
    Source,
    doubted_edges,
    findings_of,
    read_findings,
    sentences,
    write_findings,
)

__all__ = [
    "Finding",
    "Severity",
    "Source",
    "doubted_edges",
    "findings_of",
    "read_findings",
    "sentences",
    "write_findings",
]
