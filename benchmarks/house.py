"""house: whether a stranger finds the way about: rooms, arrows, names, types, depth, from the code itself.

Read from the sources (ast, tokenize) unless said: *rooms* are folders with modules, and an arrow is an import
from one room in another, in functions too, but not for types only. *upward* is the least number of arrows
(found greedily) against some order of rooms. *Any* is counted of annotated parameters, *vague names* of bound
names (`found`, `own`, `told`, …: no word says what they hold), comments of all lines, bodies without their
docstring. Two figures are of running code: CPU seconds of an import in a process of its own (the least of
three), and, for three walks, how many functions of the package stand on the stack where the walk ends.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import TypeVar

from benchmarks._common import Row

ResultT = TypeVar("ResultT")

SEEDS = QUICK_SEEDS = 1
PACKAGE = Path(__file__).parent.parent / "pyro_sparse"
VAGUE = {
    "also", "both", "each", "every", "found", "given", "held", "known", "one", "other", "own", "part",
    "parts", "rest", "said", "seen", "spoken", "those", "told", "what", "which",
}  # fmt: skip
# Each room may import those before it and nothing after it (tests/test_house.py); "" is the package itself.
ROOMS = (
    "_utils", "findings", "distributions", "graphs", "metrics", "likelihoods", "data", "data.checks", "nets",
    "priors", "models", "programs", "inference.training", "posterior", "inference.rotation",
    "inference.multitask.inner", "inference.table", "inference.program", "inference.transition",
    "inference.observed", "inference.multitask", "inference.edges.density", "inference.edges.moves",
    "inference.edges.regression", "inference.edges.mcmc", "inference.edges.program",
    "inference.edges.parents", "inference.edges.dictionaries", "inference.edges", "inference.autoencoders",
    "inference",
    "certificates", "calibrate", "plots", "pages", "estimators", "datasets", "rivals", "testing", "cli", "",
)  # fmt: skip
PER_ROW_INPUT = "exposure"  # the one per-row input of today; files that name it are counted
_IMPORT = """
import resource, pyro_sparse
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


def tasks(options: argparse.Namespace) -> list[Row]:
    return [{"seed": 0, "n_imports": 1 if options.quick else 3}]


def run(seed: int, n_imports: int) -> Row:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    stub = PACKAGE / "__init__.pyi"  # what the package itself offers
    arrows = room_arrows(trees)
    return {
        "rooms": len({path.parent for path in trees if path.name != "__init__.py"}),
        "arrows": len(arrows),
        "upward": upward(arrows),
        "any_share": any_share(trees.values()),
        "vague_name_share": vague_share(trees.values()),
        "comment_share": comment_share(sources.values()),
        "longest_body": max(body_length(node) for tree in trees.values() for node in functions(tree)),
        "exposure_files": sum(PER_ROW_INPUT in text for text in sources.values()),
        **public_names({**trees, PACKAGE / "__init__.py": ast.parse(stub.read_text(encoding="utf-8"))}),
        "import_cpu_s": min(import_seconds() for _ in range(n_imports)),
        "depth": depths(seed),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    (row,) = rows
    return {
        name: row[name]
        for name in row
        if name not in {"seed", "n_imports", "cpu_s", "wall_s", "task", "commit"}
    }


def table(rows: list[Row]) -> list[Row]:
    figures = collect(rows, argparse.Namespace())
    walks = figures.pop("depth")
    return [{"figure": name, "value": value} for name, value in {**figures, **walks}.items()]


# ---- rooms and arrows --------------------------------------------------------------------------------------
def room_arrows(trees: dict[Path, ast.Module]) -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports from the second."""
    room_of = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.parent for path in trees
    }
    room_of = {name.removesuffix(".__init__"): room for name, room in room_of.items()}
    arrows = set()
    for path, tree in trees.items():
        for module, member in imports_of(path, tree):
            name = f"{module}.{member}" if member else module
            while name and name not in room_of:  # a name in a module, not a module
                name = name.rpartition(".")[0]
            room = room_of.get(name, path.parent)
            if room != path.parent and name != "pyro_sparse":
                arrows.add((str(path.parent), str(room)))
    return arrows


def draw_rooms(file: Path) -> None:
    """Which room imports which, as a square whose rows and columns are `ROOMS`.

    Parameters
    ----------
    file : Path
        Of a picture, by its ending.
    """
    from matplotlib.figure import Figure

    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    name = {str(PACKAGE / room.replace(".", "/")): room for room in ROOMS if room}
    arrows = {(name[a], name[b]) for a, b in room_arrows(trees) if a in name and b in name}
    order = list(name.values())
    place = {room: i for i, room in enumerate(order)}
    figure = Figure(figsize=(9, 9), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([-0.5, len(order) - 0.5], [-0.5, len(order) - 0.5], color="0.8", linewidth=1)
    axes.scatter(
        [place[b] for _, b in arrows], [place[a] for a, _ in arrows], marker="s", s=32, color="#2a6f97"
    )
    axes.set(xlim=(-0.5, len(order) - 0.5), ylim=(len(order) - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(len(order)), order, rotation=90)
    axes.set_yticks(range(len(order)), order)
    axes.xaxis.tick_top()
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _run_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements of a file, those in functions too, but for what is there for types only."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.If) and "TYPE_CHECKING" in ast.unparse(inner.test):
            continue
        if isinstance(inner, ast.stmt):
            yield inner
        if not isinstance(inner, ast.expr):  # which holds no statement
            yield from _run_statements(inner)


def imports_of(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a file imports of the package, but for types only: a module's dotted name, a name in it or ""."""
    package = path.relative_to(PACKAGE.parent).parent.parts
    for node in _run_statements(tree):
        pairs: list[tuple[str, str]] = []
        if isinstance(node, ast.Import):
            pairs = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            pairs = [(module, alias.name) for alias in node.names]
        yield from (pair for pair in pairs if pair[0].split(".")[0] == PACKAGE.name)


def upward(arrows: set[tuple[str, str]]) -> int:
    """Arrows against an order of rooms that has few of them.

    >>> upward({("report", "models"), ("models", "priors")}), upward({("a", "b"), ("b", "a"), ("b", "c")})
    (0, 1)
    """
    floor = {room: i for i, room in enumerate(ordered(arrows))}
    return sum(floor[a] > floor[b] for a, b in arrows)


def ordered(arrows: set[tuple[str, str]]) -> list[str]:
    """Rooms in an order that few arrows are against, importers first (Eades, Lin and Smyth 1993)."""
    left = set(arrows)
    rooms = {room for arrow in arrows for room in arrow}
    top: list[str] = []
    bottom: list[str] = []
    while rooms:
        out = {room: sum(a == room for a, _ in left) for room in rooms}
        into = {room: sum(b == room for _, b in left) for room in rooms}
        sinks, sources = [r for r in sorted(rooms) if not out[r]], [r for r in sorted(rooms) if not into[r]]
        room = (
            sinks[0]
            if sinks
            else sources[0]
            if sources
            else max(sorted(rooms), key=lambda r: out[r] - into[r])
        )
        if sinks:
            bottom.insert(0, room)
        else:
            top.append(room)
        rooms.discard(room)
        left = {arrow for arrow in left if room not in arrow}
    return [*top, *bottom]


# ---- names, types, comments --------------------------------------------------------------------------------
def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    own = function.args
    return [*own.posonlyargs, *own.args, *own.kwonlyargs, *filter(None, (own.vararg, own.kwarg))]


def any_share(trees: Iterable[ast.Module]) -> float:
    """Share of annotated parameters that are `Any`, or `Any` or None."""
    notes = [
        ast.unparse(arg.annotation)
        for tree in trees
        for function in functions(tree)
        for arg in parameters(function)
        if arg.annotation is not None
    ]
    return sum("Any" in re.split(r"\s*\|\s*", note) for note in notes) / len(notes)


def vague_share(trees: Iterable[ast.Module]) -> float:
    """Share of bound names (parameters, targets of assignments, loops and `with`) that are vague words."""
    names = []
    for tree in trees:
        names += [arg.arg for function in functions(tree) for arg in parameters(function)]
        names += [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    names = [name.strip("_") for name in names if name not in ("self", "cls", "_")]
    return sum(name in VAGUE for name in names) / len(names)


def comment_share(texts: Iterable[str]) -> float:
    """Lines with a comment, of all lines."""
    comments = lines = 0
    for text in texts:
        lines += text.count("\n")
        comments += sum(
            token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )
    return comments / lines


def body_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return 1 + (body[-1].end_lineno or 0) - body[0].lineno if body else 0


def public_names(trees: dict[Path, ast.Module]) -> dict[str, int]:
    """Names in `__all__` of the package itself, and of all packages and public modules together."""
    counts = {}
    for path, tree in trees.items():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                value = getattr(node, "value", None)
                counts[path] = len(value.elts) if isinstance(value, ast.List | ast.Tuple) else 0
    packages = {path: n for path, n in counts.items() if path.name == "__init__.py"}
    return {
        "public_top": counts.get(PACKAGE / "__init__.py", 0),
        "public_all": sum(packages.values()),
        "public_modules": sum(counts.values()) - sum(packages.values()),
    }


# ---- running code ------------------------------------------------------------------------------------------
def import_seconds() -> float:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _IMPORT],
        capture_output=True, text=True, check=True, cwd=PACKAGE.parent,
    )  # fmt: skip
    return float(done.stdout)


def depths(seed: int) -> dict[str, int]:
    """Functions of the package from a user's call to the place where a walk ends, both counted."""
    import numpy as np

    import pyro_sparse as ps

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 6)) + 0.5 * rng.normal(size=(60, 6))
    model = ps.models.SparseDecoder(n_factors=2)
    stacks: dict[str, list[str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = _watched(lambda: ps.fit(model, x, restarts=2, steps=6, progress=False), stacks, "fit ")
        _watched(lambda: fit.edge_posterior(sweeps=20, progress=False), stacks, "edges ")
    return {
        "a table to its edge posterior": _nearest(
            stacks, r"^edges .*[Cc]hains\.sweep$|^edges .*[kK]ernel\S*\.step$"
        ),
        "a prior's densities to a chain": _nearest(stacks, r"^edges .*weight_(law|density)$"),
        "a likelihood to a training step": _nearest(stacks, r"^fit .*SparseElbo\.terms$"),
    }


def _watched(call: Callable[[], ResultT], stacks: dict[str, list[str]], prefix: str) -> ResultT:
    """The call's value; the shortest stack of the package's functions above each function that it calls."""

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        stack = []
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if code.co_filename.startswith(str(PACKAGE)) and "<" not in code.co_name:
                stack.append(code.co_qualname)
            at = at.f_back
        name = prefix + frame.f_code.co_qualname
        if name not in stacks or len(stack) < len(stacks[name]):
            stacks[name] = stack[::-1]

    sys.setprofile(note)
    try:
        return call()
    finally:
        sys.setprofile(None)


def _nearest(stacks: dict[str, list[str]], end: str) -> int:
    """Length of the shortest stack that ends at such a function."""
    lengths = [len(stack) for name, stack in stacks.items() if re.search(end, name)]
    if not lengths:
        raise RuntimeError(f"no call of {end}: give this walk the name that its end has now")
    return min(lengths)
