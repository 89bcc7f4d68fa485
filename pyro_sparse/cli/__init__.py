"""The package from a command line: `pyro-sparse fit table.csv` and its other commands."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and exit; Ctrl-C while it starts is no error to be traced."""
    try:
        from .commands import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
