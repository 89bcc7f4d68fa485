"""Import every module of the installed package.

Without extras only the command line may refuse, and its message names the extra."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pyro_sparse

ROOT = Path(pyro_sparse.__file__).parent
refused = {}
for path in sorted(ROOT.rglob("*.py")):
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    if path.stem == "__main__":  # would run it
        continue
    try:
        importlib.import_module(name)
    except (ImportError, SystemExit) as error:
        refused[name] = str(error)
        print(f"{name}: {error}")
wrong = {
    name: message
    for name, message in refused.items()
    if not name.startswith("pyro_sparse.cli") or "pip install 'pyro-sparse[cli]'" not in message
}
sys.exit(f"cannot be imported without extras: {sorted(wrong)}" if wrong else 0)
