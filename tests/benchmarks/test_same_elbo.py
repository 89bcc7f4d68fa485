"""The benchmark of whole fits: two versions are run apart, each by its own code, and the ratio is theirs."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import same_elbo

VERSION = """
FACTOR = {factor}
class datasets:
    class Table:
        def part(self, name):
            return [[1.0]]
    sim1 = anchored60 = staticmethod(lambda seed: datasets.Table())
"""
TORCH = """
from types import SimpleNamespace
set_num_threads = zeros = lambda n: None
optim = SimpleNamespace(Adam=lambda parameters: None)
"""
BENCHMARKS = """
import time
import numpy as np
from types import SimpleNamespace
from pyro_sparse import FACTOR


def sparse_fit(x, n_factors, seed, restarts):
    start = time.process_time()
    while time.process_time() - start < 0.2 * FACTOR:
        pass
    return SimpleNamespace(heldout_elbo=np.array([-5.0, FACTOR - 3.0]))
"""


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """Two checkouts; the older takes three times as long."""
    for name, factor in (("new", 1), ("old", 3)):
        package, own = tmp_path / name / "pyro_sparse", tmp_path / name / "benchmarks"
        package.mkdir(parents=True)
        own.mkdir()
        (package / "__init__.py").write_text(VERSION.format(factor=factor))
        (own / "__init__.py").write_text("")
        (tmp_path / name / "torch.py").write_text(TORCH)  # the real one takes seconds to import
        (own / "_common.py").write_text(BENCHMARKS)
        for table in ("sim1", "anchored60", "bfi"):
            (own / f"{table}.py").write_text("RESTARTS = 1\n")
    script = tmp_path / "new" / "benchmarks" / "_one_fit.py"
    script.write_text((same_elbo.ROOT / "benchmarks" / "_one_fit.py").read_text())
    monkeypatch.setattr(same_elbo, "ROOT", tmp_path / "new")
    return tmp_path


def options(**given):
    return argparse.Namespace(
        **{"quick": False, "seeds": 2, "first_seed": 0, "against": "x", "path": "p", **given}
    )


def test_jobs():
    jobs = same_elbo.tasks(options())
    assert [(job["table"], job["seed"], job["path"]) for job in jobs[:3]] == [
        ("sim1", 0, None),
        ("anchored60", 0, None),
        ("bfi", 0, "p"),
    ]
    assert len(jobs) == 6
    assert [job["seed"] for job in same_elbo.tasks(options(quick=True, seeds=1, first_seed=1000))] == [1000]


def test_each_version_fits_with_its_own_code(versions):
    row = same_elbo.run("sim1", 0, str(versions / "old"), None)
    assert row["ratio"] == pytest.approx(1 / 3, rel=0.2)
    assert (row["elbo"], row["elbo_older"]) == (-2.0, 0.0)
    assert not row["reached"]
    figures = same_elbo.collect([{"table": "sim1", **row}], options())["sim1"]
    assert figures["ratio"] == row["ratio"] and figures["gain_min"] == -2.0
    assert (figures["reached"], figures["n"]) == (0, 1)


def test_a_folder_that_is_no_checkout(versions):
    (versions / "empty").mkdir()
    (versions / "empty" / "torch.py").write_text("")
    with pytest.raises(RuntimeError, match=r"the fit by .*empty failed"):
        same_elbo.run("sim1", 0, str(versions / "empty"), None)
