"""The benchmark of speed: its jobs, that both sides train, that a published loop is timed, its figures."""

from __future__ import annotations

import argparse
import sys

import pytest
import torch

from benchmarks import speed
from benchmarks._step import Sizes

PEER = {
    "model/models.py": """
import torch


class SparseVAESpikeSlab(torch.nn.Linear):
    def __init__(self, batch_size, input_dim, latent_dim, hidden_dim):
        super().__init__(input_dim, 1)
""",
    "model/model_trainer.py": """
class ModelTrainer:
    def __init__(self, model, model_name):
        self.model = model

    def train_vae_model(self, training_loader, epochs):
        for data in training_loader:
            print(self.model(data["data"]).sum().backward())
""",
}


@pytest.fixture
def peer(tmp_path, monkeypatch):
    for name, text in PEER.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return str(tmp_path)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(speed.SIZES, "ml", Sizes(12, 3, 6, 10))
    monkeypatch.setattr(speed, "TURN", 0.0)
    monkeypatch.setattr("pyro_sparse.models.sparse_decoder.CHUNKED_FROM", 0)


def options(**given):
    return argparse.Namespace(**{"quick": False, "seeds": 2, "peer": "", "sizes": None, **given})


def test_jobs():
    jobs = speed.tasks(options())
    assert len(jobs) == 2 * (2 + 3 * 3) and {job["seed"] for job in jobs} == {0, 1}
    quick = speed.tasks(options(quick=True, seeds=1))
    assert [(job["size"], job["one_factor"], job["restarts"]) for job in quick] == [
        ("tiny", 0.0, 1),
        ("tiny", 0.0, 8),
        ("ml", 0.0, 1),
        ("ml", 0.7, 1),
        ("ml", 0.95, 1),
    ]


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_both_passes_take_the_same_step_and_one_factor_rows_are_there(share):
    runs = [speed.started(speed.SIZES["ml"], share, 1, 1000, chunked) for chunked in (True, False)]
    assert runs[0].model.closed_form(10) == [round(12 * share)] and runs[1].model.closed_form(10) == [0]
    for run in runs:
        torch.manual_seed(1)
        run.advance()
        assert run._stage() == "sparse"
    torch.testing.assert_close(runs[0].smooth, runs[1].smooth)


def test_ratios(peer):
    without = speed.times("ml", 0.7, 1, 1000, 2, "")
    assert without["ratio"] == without["plain_ratio"] > 0 and "ms_peer" not in without
    found = speed.times("tiny", 0.0, 2, 1000, 2, peer)
    assert found["ratio"] == pytest.approx(2 * found["ms_peer"] / found["ms_ours"], rel=0.9)


def test_steps_in_bfloat16_are_timed_where_all_features_are_dense():
    found = speed.times("ml", 0.0, 1, 1000, 2, "")
    assert found["ms_bf16"] > 0
    assert found["ratio_bf16"] == pytest.approx(found["ms_plain"] / found["ms_bf16"], rel=0.9)
    assert "ms_bf16" not in speed.times("ml", 0.7, 1, 1000, 2, "")


@pytest.mark.slow
def test_memory_is_that_of_a_process_of_its_own():
    assert 0 < speed.memory("plain", "tiny", 1000, "") < 500


def test_what_is_collected():
    plain = {"size": "ml", "one_factor": 0.0, "restarts": 1, "rss_ratio": 9.0, "mb": 1.0, "mb_rival": 9.0}
    plain["ratio_bf16"] = 4.0
    rows = [
        {"size": "tiny", "one_factor": 0.0, "restarts": 8, "ratio": 8.0},
        *({**plain, "ratio": r} for r in (1.0, 3.0)),
        {"size": "ml", "one_factor": 0.95, "restarts": 1, "ratio": 11.0},
    ]
    assert speed.collect(rows, options(peer="somewhere")) == {
        "against": "published",
        "tiny": {"ratio_8_restarts": 8.0},
        "ml": {
            "ratio": 2.0,
            "rss_ratio": 9.0,
            "mb": 1.0,
            "mb_rival": 9.0,
            "ratio_95": 11.0,
            "ratio_bf16": 4.0,
        },
    }
