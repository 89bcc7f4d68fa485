"""The version of the installed package, "0" in a checkout that is only on the path."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("pyro-sparse")
except PackageNotFoundError:
    __version__ = "0"
