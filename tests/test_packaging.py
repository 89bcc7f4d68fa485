"""What is said about the package in several places is the same: requirements, version, licence, addresses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
OF_PYPI = {"pytorch": "torch", "matplotlib-base": "matplotlib"}  # names that conda-forge has otherwise
PLACEHOLDER = "example.org"
REPEATED = {"pyproject.toml", "packaging/scverse/meta.yaml", ".github/workflows/release.yml"}


def bounds(lines: list[str]) -> dict[str, str]:
    """Versions that are accepted, by the name of the package on PyPI."""
    parsed = [Requirement(line) for line in lines]
    return {OF_PYPI.get(item.name, item.name): str(item.specifier) for item in parsed}


def test_the_conda_recipe_requires_what_pip_installs():
    extras = PROJECT["optional-dependencies"]
    wanted = bounds([*PROJECT["dependencies"], *extras["cli"], *extras["plots"]])
    python = {"python": PROJECT["requires-python"]}
    run = [
        line.replace("${{ python_min }}", RECIPE["context"]["python_min"])
        for line in RECIPE["requirements"]["run"]
    ]
    assert bounds(run) == wanted | python


def test_the_conda_recipe_builds_with_what_pip_builds_with():
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    host = [line for line in RECIPE["requirements"]["host"] if not line.startswith(("python ", "pip"))]
    assert bounds(host) == bounds(system)


@pytest.mark.parametrize(
    "path, pattern",
    [("CITATION.cff", r"^version: (\S+)$"), ("packaging/conda/recipe.yaml", r'^  version: "(\S+)"$')],
)
def test_versions_agree(path, pattern):
    assert re.findall(pattern, (ROOT / path).read_text(), re.MULTILINE) == [PROJECT["version"]]


def test_licences_agree():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["license"]
    listed = yaml.safe_load((ROOT / "packaging/scverse/meta.yaml").read_text())["license"]
    assert {cited, listed, RECIPE["about"]["license"]} == {PROJECT["license"]}


def test_supported_pythons_are_those_that_are_tested():
    named = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    assert set(workflow["jobs"]["test"]["strategy"]["matrix"]["python"]) == named


def test_the_entry_for_scverse_has_the_addresses_of_the_project():
    entry = yaml.safe_load((ROOT / "packaging/scverse/meta.yaml").read_text())
    assert entry["project_home"] == PROJECT["urls"]["Repository"]
    assert entry["documentation_home"] == PROJECT["urls"]["Documentation"]


def test_no_other_file_repeats_the_placeholder_of_the_address():
    """Where a real address takes its place, few files have to change."""
    folders = [ROOT, *(ROOT / name for name in (".github", "packaging", "docs", "paper"))]
    files = [
        path
        for folder in folders[1:]
        for path in folder.rglob("*")
        if path.suffix in {".md", ".yaml", ".yml", ".bib"}
    ]
    files += [path for path in ROOT.iterdir() if path.suffix in {".md", ".toml", ".cff", ".yaml"}]
    found = {
        str(path.relative_to(ROOT))
        for path in files
        if "_build" not in path.parts and PLACEHOLDER in path.read_text()
    }
    assert found <= REPEATED


def test_every_requirement_is_judged_in_the_docs():
    page = (ROOT / "docs/architecture.md").read_text().split("## Dependencies")[1]
    assert [name for name in bounds(PROJECT["dependencies"]) if not re.search(rf"\b{name}\b", page)] == []
