"""Ranks share one fit: the numbers of one process, whoever is killed, and what they cannot share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.inference.training.group_draws import GroupDraws
from pyro_sparse.inference.training.ranks import ALONE, RankRows, Ranks, first_rank, ranks_here, refuse_ranks

ROOT = Path(__file__).resolve().parents[3]
HERE = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
CASES = ["draws for all rows too", "linear counts", "read by rows"]


def found_by(folder, words):
    """What each rank of each job found, or its error; 0 ranks is no group at all."""
    script = Path(__file__).parents[1] / "_in_ranks.py"
    words = [sys.executable, str(script), str(folder), *words.split()]
    subprocess.run(words, env=HERE, check=True, timeout=600)
    return {path.stem: torch.load(path, weights_only=True) for path in folder.glob("*-*.pt")}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return found_by(tmp_path_factory.mktemp("few"), "normal 0 normal 2 one_killed 2 resumed 3")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    words = "normal 0 every_case 0 every_case 2 pieces 0 pieces 2 other_seed 2 bad_checkpoint 2 ctrl_c 2 "
    return found_by(tmp_path_factory.mktemp("ranks"), words + "all_killed 2 resumed 2")


def alike(one, other, atol):
    assert one.keys() == other.keys()
    for name in one.keys() - {"ranks"}:
        torch.testing.assert_close(
            other[name], one[name], atol=atol, rtol=atol, msg=lambda why, name=name: f"{name}: {why}"
        )


@pytest.mark.slow
def test_two_ranks_give_the_parameters_of_one_process(few):
    alone, first, second = (few[f"normal-{who}"] for who in ("alone", 0, 1))
    alike(alone, first, atol=1e-9)
    alike(first, second, atol=0)
    assert (alone["ranks"], first["ranks"], second["ranks"]) == (1, 2, 2)
    assert 0 < int((alone["weights"] != 0).sum()) < alone["weights"].numel()  # something was pruned


@pytest.mark.slow
def test_a_killed_rank_ends_the_other_and_three_resume_to_the_same_end(few):
    said = few["one_killed-0"]
    assert said.startswith("RuntimeError: ranks: rank 0 of 2 cannot reach the others (")
    assert "start all again, with the same checkpoint= they go on from what was last written" in said
    assert "one_killed-1" not in few
    for rank in range(3):
        found = few[f"resumed-{rank}"]
        assert found.pop("from") == 10 and found["ranks"] == 3
        alike(few["normal-alone"], found, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_other_priors_likelihoods_and_tables(jobs, case):
    alone, first, second = (jobs[f"every_case-{who}"][case] for who in ("alone", 0, 1))
    alike(alone, first, atol=1e-9)
    alike(first, second, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["rowwise", "gains", "refined", "few"])
def test_what_ranks_share_chunk_by_chunk(jobs, piece):
    alone, first, second = (jobs[f"pieces-{who}"][piece] for who in ("alone", 0, 1))
    torch.testing.assert_close(first, alone, atol=1e-4, rtol=1e-5)
    assert torch.equal(first, second) and len(torch.unique(alone)) > 1


@pytest.mark.slow
def test_random_streams_stay_together(jobs):
    alone, first, second = (jobs[f"pieces-{who}"]["next"] for who in ("alone", 0, 1))
    assert torch.equal(first, alone) and torch.equal(second, alone)


@pytest.mark.slow
def test_a_rank_with_another_fit_is_named_everywhere(jobs):
    for rank in (0, 1):
        said = jobs[f"other_seed-{rank}"]
        assert "ranks: rank 1 was given another fit than rank 0 (seed: 1 there, 0 here, rank 0" in said
        assert "give all ranks the same table, model, seed and settings" in said


@pytest.mark.slow
def test_a_bad_checkpoint_stops_all_ranks(jobs):
    for rank in (0, 1):
        assert "is not a pyro_sparse file" in jobs[f"bad_checkpoint-{rank}"]


@pytest.mark.slow
def test_ctrl_c_ends_all_ranks_and_keeps_the_step(jobs):
    assert jobs["ctrl_c-0"].startswith("KeyboardInterrupt: interrupted at step 8 of 30")
    assert jobs["ctrl_c-1"].startswith(("KeyboardInterrupt", "RuntimeError: ranks: rank 1 of 2 cannot reach"))


@pytest.mark.slow
def test_a_job_whose_ranks_are_all_killed_resumes(jobs):
    assert {"all_killed-0", "all_killed-1"}.isdisjoint(jobs)
    for rank in range(2):
        found = jobs[f"resumed-{rank}"]
        assert found.pop("from") == 20
        alike(jobs["normal-alone"], found, atol=1e-9)


# ---- without a group


def test_one_process_is_alone_and_copies_nothing():
    x = torch.arange(10.0).reshape(5, 2)
    batch = Batch(x, x, None, 5)
    assert ranks_here("cpu") is ALONE and first_rank()
    assert type(ALONE.rows(batch, torch.tensor([3, 1]))) is Batch
    assert (
        ALONE.share(batch) is batch
        and ALONE.kept(x, batch) is x
        and ALONE.joined(x, batch) is x
        and batch.mean(x) is x
    )
    ALONE.sum([x], batch)
    ALONE.mean([x], batch)
    assert x.sum() == 45 and ALONE.first(lambda: 3) == 3


def test_every_row_is_some_ranks_own():
    x = torch.arange(17.0).reshape(17, 1)
    batch = Batch(x, x, None, 17)
    for size in (2, 3, 17):
        order = torch.arange(17).flip(0)
        parts = [Ranks(rank, size).rows(batch, order) for rank in range(size)]
        assert torch.equal(torch.cat([part.x for part in parts]), x.flip(0))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert all(isinstance(p, RankRows) and (p.total, p.n_rows) == (17, 17) for p in parts)
        shares = [Ranks(rank, size).share(batch) for rank in range(size)]
        assert torch.equal(torch.cat([part.x for part in shares]), x)
        for rank, part in enumerate(shares):
            assert torch.equal(Ranks(rank, size).kept(x.expand(3, 17, 1), part)[1], part.x)
    few = Ranks(1, 18).rows(batch, torch.arange(17))  # not one for everyone
    assert type(few) is Batch and torch.equal(few.x, x)


def test_draws_of_rows_are_told_from_others_of_that_length_by_their_dimension():
    torch.manual_seed(0)
    whole, after = torch.randn(2, 5, 3), torch.randn(2)
    torch.manual_seed(0)
    with GroupDraws([1, 2], 5, dim=-2):
        own, still = torch.randn(2, 2, 3), torch.randn(2)
    assert torch.equal(own, whole[:, 1:3]) and torch.equal(still, after)


TWO = Ranks(0, 2)


@pytest.mark.parametrize(
    ("kind", "change", "error", "says"),
    [
        (
            ps.models.DependencyVAE,
            {},
            TypeError,
            "model: got a DependencyVAE in 2 ranks, .* SparseDecoder only",
        ),
        (None, {"n_jobs": 2}, ValueError, "n_jobs: got 2 in 2 ranks, wanted 1; divide either"),
        (None, {"dependency": 1.0}, ValueError, "dependency: got a float in 2 ranks, wanted none"),
        (
            None,
            {"batch_size": 1},
            ValueError,
            "batch_size: got 1 for 2 ranks, wanted a row for each at least",
        ),
    ],
)
def test_what_ranks_cannot_share_is_refused(kind, change, error, says):
    given = {"dependency": None, "n_jobs": 1, "batch_size": 100, **change}
    schedule = SimpleNamespace(batch_size=given.pop("batch_size"))
    model = (kind or ps.models.SparseDecoder)(7, 2)
    refuse_ranks(ALONE, model, schedule, **given)
    with pytest.raises(error, match=says):
        refuse_ranks(TWO, model, schedule, **given)


# ---- torchrun


@pytest.mark.slow
def test_the_command_line_under_torchrun(tmp_path):
    x = ps.datasets.sim1(n=120, seed=1).frame
    x.to_csv(tmp_path / "x.csv", index=False)
    fit = "-m pyro_sparse fit x.csv --factors 2 --restarts 2 --steps 40 --edges score --json".split()
    two = "-m torch.distributed.run --standalone --nproc-per-node 2".split()
    said = []
    for folder, words in (("one", fit), ("two", [*two, *fit])):
        words = [sys.executable, *words, "--out", str(tmp_path / folder)]
        done = subprocess.run(words, env=HERE, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        said.append([line for line in done.stdout.splitlines() if line.startswith("{")])
    assert len(said[0]) == len(said[1]) == 1
    one, two = ps.load(tmp_path / "one" / "model.pt"), ps.load(tmp_path / "two" / "model.pt")
    np.testing.assert_allclose(two.weights, one.weights, atol=1e-4)
    np.testing.assert_allclose(two.heldout_elbo, one.heldout_elbo, atol=1e-3)
    assert two.settings["ranks"] == 2
    edges = [pd.read_csv(tmp_path / folder / "edges.csv")["selected"] for folder in ("one", "two")]
    assert edges[0].equals(edges[1])
