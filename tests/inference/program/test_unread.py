"""What Data holds by name and a program never asks for."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch

import pyro_sparse as ps
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.program.unread import unread_data


def program(d):
    with d.features:
        W = ps.edges("W", log_odds=-1.0, to=d.factors, slab=dist.Normal(0, 1), spike=dist.Normal(0, 0.05))
        of_age = pyro.sample("of_age", dist.Normal(0.0, 1.0))
    with d.rows:
        z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT + d.age[:, None] * of_age + 0 * d.levels("site"), 1.0), obs=d.x)


def test_names_that_a_program_never_reads_are_told():
    rng = np.random.default_rng(0)
    rows = {"age": rng.normal(size=30), "site": list("abc") * 10, "income": rng.normal(size=30)}
    x, model = rng.normal(size=(30, 4)), ps.Program(program, n_factors=2)
    (note,) = unread_data(RecordedDensity(model, ps.Data(x, rows=rows, features={"length": np.ones(4)}), 2))
    assert "never reads d.income and d.length" in note.message and not note.is_doubt
    del rows["income"]
    assert unread_data(RecordedDensity(model, ps.Data(x, rows=rows), 2)) == []
    fit = ps.fit(
        model, ps.Data(x, rows={**rows, "b": np.ones(30)}), restarts=1, seed=0, sweeps=40, progress=False
    )
    assert [finding.kind for finding in fit.findings].count("unread") == 1
