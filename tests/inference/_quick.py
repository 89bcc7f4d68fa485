"""Tiny fits that take a moment, and when two fits are the same to the bit."""

from __future__ import annotations

import importlib

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.models import SparseDecoder

fit_module = importlib.import_module("pyro_sparse.inference.table.job")

DATA = ps.datasets.sim1(n=120, seed=1).x

QUICK = {"restarts": 3, "steps": 20, "batch_size": 20, "evaluate_every": 5, "progress": False}


@pytest.fixture(autouse=True)
def in_a_hurry(hurried):
    """Rough axes and rough posteriors will do here: good ones take most of a tiny fit's time."""


def small(k=2, g=7, **options):
    return SparseDecoder(g, k, hidden=5, encoder_hidden=4, **options)


def quick(model=None, x=DATA, **options):
    return ps.fit(model or small(), x, **{**QUICK, **options})


def same(one, two):
    for (name, a), (_, b) in zip(one.model.state_dict().items(), two.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    for name in ("weights", "effects", "edge_score", "eta", "elbo", "heldout_elbo", "factor_cov"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    pd.testing.assert_frame_equal(one.history, two.history)
    assert one.best == two.best
