"""The race with the published training: its jobs, its update by hand, a made-up peer, the ratios."""

from __future__ import annotations

import argparse
import sys

import numpy as np
import pytest
import torch

from benchmarks import transition_peer

PEER = {
    "model/nn.py": """
import torch


def MLP(n_in, n_out, nhidden, nlayers, batch_norm):
    return torch.nn.Linear(n_in, n_out)
""",
    "model/latent_models_vae.py": """
import torch


class FCGaussianLatentModel(torch.nn.Module):
    def __init__(self, d_z, cont_c_dim, *others, n_lag, **settings):
        super().__init__()
        self.cont_c_dim = cont_c_dim
        self.log_alpha = torch.nn.Parameter(torch.full((d_z, d_z), 5.0))

    def g_regularizer(self):
        return self.log_alpha.sigmoid().sum()

    gc_regularizer = g_regularizer

    def transform_q_params(self, q):
        return q.chunk(2, 1)
""",
    "model/ilcm_vae.py": """
import numpy as np
import torch


class ILCM_VAE(torch.nn.Module):
    def __init__(self, latent, shape, cont_c_dim, disc_c_dim, disc_n_values, opt):
        super().__init__()
        self.latent_model, self.scale = latent, np.product(shape)

    def encode(self, x):
        return self.encoder(x)

    def elbo(self, obs, cont_c, disc_c):
        z = self.encode(obs.flatten(0, 1)).chunk(2, 1)[0]
        return -((self.decoder(z) - obs.flatten(0, 1)) ** 2).mean(1) / self.scale, 0, 0, 0
""",
}


@pytest.fixture
def peer(tmp_path, monkeypatch):
    for name, text in PEER.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.split(".")[0] == "model"]:
        monkeypatch.delitem(sys.modules, name)
    yield str(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "model"]:
        del sys.modules[name]


def options(**given):
    usual = {"quick": False, "seeds": 1, "peer": "", "dataset": None, "settings": None, "limit": None}
    return argparse.Namespace(**{**usual, "first_seed": 0, "picture": None, **given})


def test_jobs():
    alone = transition_peer.tasks(options(seeds=2))
    assert len(alone) == 2 * 2 * len(transition_peer.BUDGETS) and {job["side"] for job in alone} == {"ours"}
    jobs = transition_peer.tasks(options(quick=True, peer="P", dataset=["TimeDiag"], first_seed=1000))
    assert [(job["side"], job["seed"]) for job in jobs[-2:]] == [("published", 1000), ("reduced", 1000)]
    assert jobs[-1]["limit"] == transition_peer.QUICK_LIMIT


def test_the_bound_falls_along_a_line_and_the_multiplier_starts_anew():
    assert [transition_peer.bound(i, 10, 25, 4) for i in (0, 1, 4, 9)] == [25, 21.25, 10, 10]
    assert transition_peer.ascent(0.5, 2.0, 0.1) == pytest.approx(0.7)
    assert transition_peer.ascent(0.5, -1e-6, 0.1) == 0.0


def test_a_step_is_that_of_the_lagrangian():
    """Against the same two updates written for two numbers: Adam's first step is its rate."""
    settings = transition_peer.PEERS["reduced"]._replace(schedule=1, rate=0.1, mask_rate=0.2, dual_rate=0.5)

    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.log_alpha = torch.nn.Parameter(torch.tensor([3.0]))
            self.weight = torch.nn.Parameter(torch.tensor([1.0]))

        def elbo(self, x, actions, disc):
            return (x * self.weight + self.log_alpha,)

    model = Tiny()
    step = transition_peer.constrained_step(model, lambda: model.log_alpha.sum(), 1, 3, settings)
    step(torch.ones(4, 1), None, 1)  # bound 3, multiplier 0: up with both
    assert model.weight.item() == pytest.approx(1.1) and model.log_alpha.item() == pytest.approx(3.2)
    step(torch.ones(4, 1), None, 2)  # bound 1; the multiplier is still 0 and becomes .5 * 2.2
    assert model.log_alpha.item() == pytest.approx(3.4)
    step(torch.ones(4, 1), None, 3)
    assert model.log_alpha.item() < 3.55  # slope 1.1 - 1 against the momentum of two steps up


@pytest.mark.parametrize("dataset", transition_peer.DATASETS)
def test_a_peer_is_trained_until_its_limit(peer, monkeypatch, dataset):
    monkeypatch.setattr(transition_peer, "GRID", 3)
    small = transition_peer.simulated(dataset, 1000, True)[0]
    monkeypatch.setattr(transition_peer, "simulated", lambda *given, **named: (small, {}))
    row = transition_peer.run(dataset, 1000, "reduced", peer=peer, limit=0.3 / 60)
    spent, found = np.transpose(row["curve"])
    assert (np.diff(spent) > 0).all() and spent[-1] == pytest.approx(0.3, abs=0.2)
    assert ((found > 0.1) & (found <= 1)).all() and row["iterations"] > 1
    assert row["true_edges"] == (5 if dataset == "TimeDiag" else 10) and row["edges"] <= 25


def test_the_ratios(tmp_path):
    def row(side, curve):
        return {"dataset": "TimeDiag", "seed": 0, "side": side, "curve": curve}

    rows = [
        row("ours", [(10.0, 0.8)]),
        row("ours", [(20.0, 0.95)]),
        row("published", [(5.0, 0.3), (100.0, 0.7)]),
        row("reduced", [(50.0, 0.9), (80.0, 0.96), (90.0, 0.97)]),
    ]
    picture = tmp_path / "curves.svg"
    figures = transition_peer.collect(rows, options(picture=picture))["TimeDiag"]
    assert figures["ours"] == [[10.0, 0.8], [20.0, 0.95]]
    assert figures["ratio_to_equal_mcc_published"] == 5.0 and figures["is_lower_bound_published"]
    assert figures["ratio_at_their_best_published"] == 10.0
    assert figures["ratio_to_equal_mcc_reduced"] == 4.0 and not figures["is_lower_bound_reduced"]
    assert figures["ratio_at_their_best_reduced"] is None and figures["best_mcc_reduced"] == 0.97
    assert picture.read_text().count("<svg") == 1
    lines = transition_peer.table([{**r, "cpu_s": 1.0} for r in rows])
    assert [line["mcc"] for line in lines] == [0.8, 0.95, 0.7, 0.97]
