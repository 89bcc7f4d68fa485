"""Import every module of the installed package.

Without extras only the modules of the command line may refuse, for a library of their extra; the one that
`pyro-sparse` starts names the extra and how to install it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pyro_sparse

ROOT = Path(pyro_sparse.__file__).parent
STARTED = "pyro_sparse.cli.commands"
LIBRARIES = {"filelock", "jinja2", "rich", "typer"}  # the extra `cli` of pyproject.toml
wrong = []
for path in sorted(ROOT.rglob("*.py")):
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    if path.stem == "__main__":  # would run it
        continue
    try:
        importlib.import_module(name)
    except (ImportError, SystemExit) as error:
        print(f"{name}: {error}")
        if name == STARTED:
            refused_well = "pip install 'pyro-sparse[cli]'" in str(error)
        else:
            refused_well = name.startswith("pyro_sparse.cli.") and getattr(error, "name", None) in LIBRARIES
        if not refused_well:
            wrong.append(name)
sys.exit(f"cannot be imported without extras: {wrong}" if wrong else 0)
