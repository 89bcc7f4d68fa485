"""What is installed: the facts of `pyro-sparse doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from typing import Any

import torch

__all__ = ["installed"]


def installed() -> dict[str, Any]:
    """Versions, threads, devices and extras; "ok" is whether nothing that is required is missing."""
    wanted = importlib.metadata.requires("pyro-sparse") if _version("pyro-sparse") else None
    extras: dict[str, dict[str, str | None]] = {"": {}}
    for line in wanted or []:
        match = re.match(r"([\w.-]+)[^;]*(?:;.*extra == ['\"]([\w-]+)['\"])?", line)
        if match and match[1] != "pyro-sparse":
            extras.setdefault(match[2] or "", {})[match[1]] = _version(match[1])
    core = extras.pop("")
    devices = [
        "cpu",
        *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())),
    ]
    if torch.backends.mps.is_available():
        devices.append("mps")
    absent = [
        name for name, version in {"pyro-sparse": _version("pyro-sparse"), **core}.items() if version is None
    ]
    return {
        "pyro_sparse": _version("pyro-sparse"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": core,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "devices": devices,
        "extras": {name: all(versions.values()) for name, versions in extras.items()},
        "missing": {name: [m for m, v in versions.items() if v is None] for name, versions in extras.items()},
        "ok": not absent,
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
