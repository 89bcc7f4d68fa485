"""One thread per process: the models are tiny, and several test processes share the cores."""

from __future__ import annotations

import importlib

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def short_unfolding(monkeypatch):
    """Look for folded factors in a few steps: that is most of the time of a tiny `DependencyVAE` fit."""
    module = importlib.import_module("pyro_sparse.inference.unfold")
    for name in ("_STEPS", "_LESSONS"):
        monkeypatch.setattr(module, name, 5)


@pytest.fixture
def no_pictures(monkeypatch):
    """For pages of which only the words matter: drawing is what takes time."""
    module = importlib.import_module("pyro_sparse.report")  # ps.report is the function of that name
    monkeypatch.setattr(module, "_pictures", lambda *args: {})
