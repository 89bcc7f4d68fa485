"""The shape of the repository: links, names, docstrings, the direction of imports, what a wheel carries."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
import unittest
import zipfile
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

import pytest
from numpydoc.validate import validate

import pyro_sparse
from benchmarks.house import ROOMS, imports_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pyro_sparse"
MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages([str(PACKAGE)], "pyro_sparse.")
    if not any(part.startswith("_") for part in name.split("."))
)


def sources():
    return sorted(p for p in PACKAGE.rglob("*.py"))


@functools.cache
def read(path: Path) -> tuple[str | None, frozenset[tuple[str, str]]]:
    """Docstring of a file of ours, and what it imports; a file is parsed once for all tests."""
    tree = ast.parse(path.read_text())
    return ast.get_docstring(tree), frozenset(imports_of(path, tree))


def imports(path: Path) -> frozenset[tuple[str, str]]:
    """What a file of ours imports, at the top or in a function, as ("pyro_sparse.x", name in it or "")."""
    return read(path)[1]


def imported(path: Path) -> set[str]:
    """Modules of ours that a file may import, as "pyro_sparse.x.y"."""
    return {name for stem, own in imports(path) for name in (stem, f"{stem}.{own}" if own else stem)}


@pytest.mark.parametrize("name", ["models", "inference"])
def test_links_are_relative_and_lead_into_the_package(name):
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("pyro_sparse") / name
    assert link.resolve() == PACKAGE / name


@pytest.mark.slow
def test_nothing_imports_through_the_links():
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0 or isinstance(node, ast.Import):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                assert not {str(n).split(".")[0] for n in names} & {"models", "inference"}, path


FAMILIES = ("inference.table", "inference.transition", "inference.observed", "inference.multitask")


@functools.cache
def room_of(name: str) -> str:
    """The room of a module, or of a name in it, by the folders that there are."""
    parts = name.split(".")[1:]
    while parts and not (PACKAGE.joinpath(*parts) / "__init__.py").is_file():
        parts.pop()
    return ".".join(parts)


def test_rooms_import_only_those_before_them():
    for path in sources():
        own = ".".join(path.relative_to(PACKAGE).parent.parts)
        module = ".".join(["pyro_sparse", *path.relative_to(PACKAGE).with_suffix("").parts])
        for name in imported(path) - {"pyro_sparse"} - {late for late_in, late in LATE if late_in == module}:
            room = room_of(name)
            if any(name.startswith(late) for late_in, late in LATE if late_in == module) or room == "":
                continue
            assert ROOMS.index(room) <= ROOMS.index(own), f"{path.relative_to(ROOT)} imports {name}"


def test_every_room_has_its_place_and_says_its_question():
    rooms = {".".join(path.relative_to(PACKAGE).parent.parts) for path in sources()}
    assert rooms == set(ROOMS)
    for room in rooms:
        assert read(PACKAGE.joinpath(*room.split("."), "__init__.py"))[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_families_do_not_import_one_another(family):
    others = tuple(f"pyro_sparse.{other}" for other in FAMILIES if other != family)
    for path in sources():
        if ".".join(path.relative_to(PACKAGE).parts).startswith(f"{family}."):
            assert [name for name in imported(path) if name.startswith(others)] == [], path


LATE = {  # imports in a method of the one base of results, of what is made of results
    ("pyro_sparse.inference.training.fit_result", "pyro_sparse.pages.any_fit"),
    ("pyro_sparse.inference.training.fit_result", "pyro_sparse.posterior.tables"),
    ("pyro_sparse.inference.training.fit_result", "pyro_sparse.inference.edges.families"),
}


@pytest.mark.slow
def test_no_file_needs_itself():
    """No circle of imports, those in functions included; files of packages only where they are named."""
    files = {".".join(["pyro_sparse", *p.relative_to(PACKAGE).with_suffix("").parts]): p for p in sources()}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    needs = {
        name: {full if (full := f"{stem}.{own}") in files else stem for stem, own in imports(path)} - {name}
        for name, path in files.items()
    }
    assert all(other in needs[name] for name, other in LATE), "LATE lists an import that is gone: drop it"
    for name, other in LATE:
        needs[name].discard(other)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" is needed by ".join(error.args[1]))


@pytest.mark.parametrize("name", ["pyro_sparse", *MODULES])
def test_all_is_explicit_and_resolves(name):
    module = importlib.import_module(name)
    exported = module.__all__
    assert len(exported) == len(set(exported))
    assert [public for public in exported if not hasattr(module, public)] == []


@functools.cache
def docstring_errors(name: str) -> list[tuple[str, str]]:
    """What numpydoc complains of: codes and texts; once for what several packages offer."""
    return validate(name)["errors"]


@pytest.mark.parametrize("name", ["pyro_sparse", *MODULES])
def test_public_things_have_numpydoc_docstrings(name):
    """All have a docstring; the parameters of what a package offers are documented too."""
    module = importlib.import_module(name)
    offered = hasattr(module, "__path__") or name.count(".") == 1
    complaints = []
    for public in module.__all__:
        thing = getattr(module, public)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)) or "pyro_sparse" not in thing.__module__:
            continue
        # GL08 no docstring, SS01 no summary, PR01/PR02/PR03 parameters undocumented, unknown or out of order
        wanted = {"GL08", "SS01"} | ({"PR01", "PR02", "PR03"} if offered else set())
        if hasattr(thing, "__dataclass_fields__") or hasattr(thing, "_fields"):
            wanted -= {"PR01"}  # their fields stand under Attributes
        found = docstring_errors(f"{thing.__module__}.{thing.__qualname__}")
        complaints += [f"{public}: {code} {text}" for code, text in found if code in wanted]
    assert not complaints


def test_files_say_what_they_are():
    for path in sources():
        if path.stat().st_size:
            assert read(path)[0], f"{path.relative_to(ROOT)} has no docstring"


def test_version_is_the_installed_one():
    try:
        installed = version("pyro-sparse")
    except PackageNotFoundError:
        pytest.skip("pyro_sparse is not installed: a checkout on the path has no metadata")
    assert pyro_sparse.__version__ == installed


def required(*extras: str) -> set[str]:
    """Names of the packages that an installation with these extras brings, as pyproject.toml states them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return {re.match(r"[\w-]+", line)[0].lower() for lines in lists for line in lines}


@pytest.mark.slow
def test_what_is_imported_is_required():
    """A package that only comes along with another one goes when that one no longer needs it."""
    makers_of = packages_distributions()
    for path in sources():
        front_end = path.parent.name == "cli"
        stated = required("cli") if front_end else required()
        for node in ast.parse(path.read_text()).body:  # not in functions, in `try` or for types only
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"pyro_sparse"}:
                makers = {maker.lower() for maker in makers_of.get(name, [])}
                assert makers & stated, (
                    f"{path.relative_to(ROOT)} imports {name}, required is {sorted(stated)}"
                )


def test_an_arviz_object_can_be_written_with_what_is_required():
    """ArviZ 1.x, of Python 3.12 and later, does not bring the libraries that its files need."""
    assert {"h5netcdf", "h5py", "xarray"} <= required()


@pytest.mark.slow
def test_wheel_carries_the_package_only(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("pyro_sparse-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {"pyro_sparse"}
    tracked = {
        str(p.relative_to(ROOT)) for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    assert tracked <= set(names)
    assert "pyro_sparse/py.typed" in names


def code_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_prior_of_the_contributors_page_passes_its_battery():
    scope = {}
    for block in code_blocks("CONTRIBUTING.md"):
        exec(block, scope)
    battery = scope["TestMyLaplace"]()
    battery.test_density_integrates_to_one()
    assert battery.make().rate == 2.0
    for name in ("TestHeavyTails", "TestHeavyNoise"):
        for check in dir(scope[name]):
            if check.startswith("test_"):
                with contextlib.suppress(unittest.SkipTest):
                    getattr(scope[name](), check)()


@pytest.mark.slow
def test_the_example_of_the_front_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = code_blocks("README.md")
    exec(block, {})
    printed = capsys.readouterr().out
    assert "sentence completion -> factor 1" in printed and printed.count(" -> factor ") >= 10
    assert (tmp_path / "report.html").is_file()
