"""``python -m benchmarks [NAME] [--quick] [--seeds N] [--json FILE] [--jobs 2]``: list, or run one.

Prints a table, then one JSON object as the last line. ``--json FILE`` writes the same with one row per job.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import shlex
import sys
import time
from pathlib import Path

import benchmarks
from benchmarks import _common


def names() -> list[str]:
    """Every file of this folder that does not start with an underscore."""
    return sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        for name in names():
            first = (importlib.import_module(f"benchmarks.{name}").__doc__ or "").strip().splitlines()[0]
            print(f"  {first}")
        return 0
    name = words[0]
    if name not in names():
        print(f"no benchmark {name!r}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=module.__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute: too few seeds to quote")
    parser.add_argument("--seeds", type=int, help=f"number of seeds (default {module.SEEDS})")
    parser.add_argument("--json", type=Path, help="also write the result here, with one row per job")
    parser.add_argument(
        "--record", type=Path, help="add each row here (JSON lines); rows it holds are not run"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    if hasattr(module, "arguments"):
        module.arguments(parser)
    options = parser.parse_args(words[1:])
    options.seeds = options.seeds or (module.QUICK_SEEDS if options.quick else module.SEEDS)

    start = time.perf_counter()
    tasks = module.tasks(options)
    rows = _common.run_tasks(module.__name__, tasks, options.jobs, options.record)
    result = {
        "benchmark": name,
        **module.collect(rows, options),
        "quick": options.quick,
        "seeds": sorted({task["seed"] for task in tasks}),
        "cpu_s": sum(row["cpu_s"] for row in rows),
        "wall_s": time.perf_counter() - start,
        **_common.about(shlex.join(["python", "-m", "benchmarks", *words])),
    }
    show(module.table(rows) if hasattr(module, "table") else rows)
    if hasattr(module, "markdown"):  # what a page of the docs shows
        print(module.markdown(rows))
    if options.json is not None:
        text = json.dumps(_common.plain({**result, "rows": rows}), indent=1, allow_nan=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(_common.plain(result), allow_nan=False))
    return 0


def show(rows: list[dict]) -> None:
    """Print rows as an aligned table."""
    import pandas as pd

    shown = [{k: v for k, v in row.items() if not isinstance(v, dict | list)} for row in rows]
    print(pd.DataFrame(shown).to_string(index=False, float_format=lambda v: f"{v:.3f}"))


if __name__ == "__main__":
    sys.exit(main())
