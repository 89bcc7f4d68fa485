"""What was given of rows or features and a program never reads: a misspelt name, or a forgotten covariate."""

from __future__ import annotations

from ..._utils.wording import listed
from ...findings.finding import Finding
from .recorded import RecordedDensity

__all__ = ["unread_data"]


def unread_data(density: RecordedDensity) -> list[Finding]:
    """A note on what the program was given by name and does not read.

    Parameters
    ----------
    density : RecordedDensity
        Of the program and its data.
    """
    given = [*density.data.rows, *density.data.features]
    unread = [f"d.{name}" for name in given if name not in density.names_read]
    if not unread:
        return []
    return [
        Finding(
            "unread",
            f"the program never reads {listed(unread)}, which Data was given: edges are not net of it",
            "read it in the program, or leave it out of Data",
        )
    ]
