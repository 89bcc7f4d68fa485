"""What is known against a result: one list of findings, which every output reads."""

from __future__ import annotations

from .finding import Finding, doubted_edges, findings_of

__all__ = [
    "Finding",
    "doubted_edges",
    "findings_of",
]
