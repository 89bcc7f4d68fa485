"""By what a file knows its program: its sites and, where there is one, its source."""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import Any

from ...programs.program import Program
from .layout import Layout

__all__ = ["mark_of"]


def mark_of(model: Program, layout: Layout) -> dict[str, Any]:
    """What must agree for a file to belong to a program: its sites and, where there is one, its source.

    Parameters
    ----------
    model : Program
    layout : Layout
    """
    sites = [(s.name, s.observed, s.group, str(s.link), s.kind) for s in layout.sites.values()]
    try:
        source = hashlib.sha256(inspect.getsource(model.program).encode()).hexdigest()
    except (OSError, TypeError):  # typed at a prompt, or no function
        source = ""
    text = json.dumps(sites, default=str)
    return {"model": repr(model), "sites": hashlib.sha256(text.encode()).hexdigest(), "program": source}
