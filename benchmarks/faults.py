"""faults: whether anything wrong passes in silence: inputs that mislead, files, threads, truths of no model.

Each kind of fault counts its seeds as *silent* (wrong, and nothing said), *told* (a finding or refusal names
it) or *right*. Beside them: how many clean tables, sequences and tasks are told anything; of edges called
*present* on truths that no model of the package contains, how many are false, how many their probabilities
claim, and how many true edges are present; files with flipped bits that are accepted; inputs drawn by
`hypothesis` strategies; fits and chains killed at random moments. ``--parts`` runs some of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks._common import REPORT, Row, report_seeds

SEEDS, QUICK_SEEDS = 20, 1
PARTS = ("kinds", "clean", "off_model", "bitflips", "fuzz", "kills")
AREAS = ("tables", "models", "numbers", "sequences")  # benchmarks/_faults_….py, each with its KINDS
FULL = {"clean": 200, "off_model": 30, "bitflips": 500, "fuzz": 5000, "kills": 60}
QUICK = {"clean": 4, "off_model": 0, "bitflips": 6, "fuzz": 40, "kills": 0}
CHUNK = {"clean": 10, "bitflips": 50, "fuzz": 500, "kills": 10}
_QUICK_AREAS = ("tables", "numbers")
_COUNTS = ("silent", "told", "right")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    parser.add_argument("--areas", nargs="+", choices=AREAS, help="kinds of these only")
    parser.add_argument(
        "--first-seed", type=int, default=REPORT, help="begin at this seed (1000 and up: tuning)"
    )


def tasks(options: argparse.Namespace) -> list[Row]:
    sizes, first = (QUICK if options.quick else FULL), options.first_seed
    jobs: list[Row] = []
    if "kinds" in options.parts:
        areas = options.areas or (_QUICK_AREAS if options.quick else AREAS)
        jobs += [
            {"part": "kinds", "area": area, "kind": kind, "seed": first + seed, "n": 1}
            for area in areas
            for kind in _area(area).KINDS
            for seed in report_seeds(options.seeds)
        ]
    if "clean" in options.parts:
        jobs += [
            {"part": "clean", "area": area, "kind": "", "seed": first + start, "n": n}
            for area in (("tables",) if options.quick else ("tables", "sequences"))
            for start, n in _chunks(sizes["clean"], CHUNK["clean"])
        ]
    if "off_model" in options.parts:
        jobs += [
            {"part": "off_model", "area": area, "kind": "", "seed": first + seed, "n": 1}
            for area in ("off_model", "sequences")
            for seed in range(sizes["off_model"])
        ]
    for part, area in (("bitflips", "files"), ("kills", "files"), ("fuzz", "fuzz")):
        if part in options.parts:
            jobs += [
                {"part": part, "area": area, "kind": "", "seed": first + start, "n": n}
                for start, n in _chunks(sizes[part], CHUNK[part])
            ]
    return jobs


def run(part: str, area: str, kind: str, seed: int, n: int) -> Row:
    module = _area(area)
    works: dict[str, Callable[[], Row]] = {
        "kinds": lambda: module.run_kind(kind, [seed]),
        "clean": lambda: {"share_with_findings": module.clean(n, seed)},
        "off_model": lambda: module.off_model([seed]),
        "bitflips": lambda: module.bitflips(n, seed),
        "fuzz": lambda: module.fuzz(n, seed),
        "kills": lambda: module.kills(n, seed),
    }
    return works[part]()


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    kinds: dict[str, Row] = {}
    for row in (row for row in rows if row["part"] == "kinds"):
        counts = kinds.setdefault(row["kind"], dict.fromkeys(_COUNTS, 0))
        for name in _COUNTS:
            counts[name] += row[name]
    clean = [row for row in rows if row["part"] == "clean"]
    told = sum(row["share_with_findings"] * row["n"] for row in clean)
    return {
        "kinds": kinds,
        "clean_told": told / max(sum(row["n"] for row in clean), 1),
        "off_model": {
            name: _summed(rows, "off_model", area)
            for name, area in (("tables", "off_model"), ("sequences", "sequences"))
        },
        "bitflips_accepted": _summed(rows, "bitflips").get("accepted", 0),
        "fuzz": _summed(rows, "fuzz"),
        "kills": _summed(rows, "kills"),
    }


def table(rows: list[Row]) -> list[Row]:
    """Kinds added up over seeds; the other parts as they are."""
    kinds: dict[tuple[str, str], Row] = {}
    others = []
    for row in rows:
        if row["part"] != "kinds":
            others.append({name: value for name, value in row.items() if name != "task"})
            continue
        entry = kinds.setdefault((row["area"], row["kind"]), {"part": row["area"], "kind": row["kind"]})
        for name in (*_COUNTS, "cpu_s"):
            entry[name] = entry.get(name, 0) + row[name]
    return [*kinds.values(), *others]


def _area(name: str) -> Any:
    return import_module(f"benchmarks._faults_{name}")


def _chunks(total: int, size: int) -> list[tuple[int, int]]:
    """First number and length of each part of 0, …, total - 1."""
    return [(start, min(size, total - start)) for start in range(0, total, size)]


def _summed(rows: list[Row], part: str, area: str | None = None) -> Row:
    """Whole numbers and sums of the rows of one part."""
    chosen = [row for row in rows if row["part"] == part and area in (None, row["area"])]
    names = {"part", "area", "kind", "seed", "n", "cpu_s", "wall_s", "task", "commit"}
    figures = [name for name in (chosen[0] if chosen else {}) if name not in names]
    summed = {name: sum(row[name] for row in chosen) for name in figures if _is_number(chosen[0][name])}
    return summed | ({"n": sum(row["n"] for row in chosen)} if part == "kills" else {})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
