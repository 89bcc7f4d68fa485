"""Levels and tasks that are spelt in two ways are told, in every place where names are read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks.tasks import task_findings
from pyro_sparse.data.spelling import alike
from pyro_sparse.data.tasks import as_tasks

# the search for clusters of rows is most of what a check of a table takes: a rough one will do
pytestmark = pytest.mark.usefixtures("hurried_module")

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(120, 4))).add_prefix("x")


@pytest.mark.parametrize(
    ("names", "same"),
    [
        (["a", "b", "A"], [("a", "A")]),
        (["a", "a ", " a", "b"], [("a", "a ", " a")]),
        (["P01", "P1", "P10", "P010"], [("P01", "P1"), ("P10", "P010")]),
        (["1", "10", "100"], []),
        (["a b", "ab", "a-b"], []),
        (["a", "a"], []),
    ],
)
def test_names_that_are_spelt_in_two_ways(names, same):
    assert alike(names) == same


@pytest.mark.parametrize("role", ["groups", "covariates"])
def test_levels_of_what_is_given_of_rows(role):
    site = pd.Series(RNG.choice(["Oslo", "Bergen", "oslo "], len(X)), name="site")
    (finding,) = [f for f in ps.check_table(X, **{role: site}) if f.kind == "labels"]
    assert "levels of 'site' have names" in finding.message and "'Oslo' and 'oslo '" in finding.message
    assert not finding.is_doubt and finding.size == 1
    clean = site.str.strip().str.title()
    assert not [f for f in ps.check_table(X, **{role: clean}) if f.kind == "labels"]


def test_tasks():
    names = np.repeat(["a", "b", "B", "c"], 30)
    tasks = as_tasks(X.to_numpy(), RNG.normal(size=120), task=names)
    (finding,) = [f for f in task_findings(tasks, 2) if f.kind == "labels"]
    assert finding.message.startswith("tasks have names") and "'B' and 'b'" in finding.message
