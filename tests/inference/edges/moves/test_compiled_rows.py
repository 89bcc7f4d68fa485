import numpy as np
import pytest
import torch

from pyro_sparse.inference.edges.moves import rows as module
from pyro_sparse.inference.edges.moves._compiled_rows import AVAILABLE
from pyro_sparse.inference.edges.moves.rows import line_rows

from .test_lines import drawn


@pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")
@pytest.mark.parametrize("family", ["bernoulli", "negative binomial", "normal"])
@torch.no_grad()
def test_compiled_rows_are_those_of_torch(monkeypatch, family):
    program, state = drawn(family, chains=200)
    f = program.value(state)
    terms = program.cells.expanded(f, state.noise)

    def moved():
        rng = np.random.default_rng(1)
        return *line_rows(program, state, f, terms, program.cells, rng), rng.random()

    compiled = moved()
    monkeypatch.setattr(module, "AVAILABLE", False)
    for mine, theirs in zip(compiled, moved(), strict=True):  # the stream of random numbers, too
        torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(theirs), rtol=1e-4, atol=1e-5)
    assert 0.5 < compiled[2].mean() <= 1
    assert not torch.equal(compiled[0], state.z)


@pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")
@pytest.mark.parametrize("summed_by_machine_code", [True, False])
@torch.no_grad()
def test_rows_of_many_blocks_are_those_of_torch(monkeypatch, summed_by_machine_code):
    monkeypatch.setattr(module, "_FEATURES", 200 if summed_by_machine_code else 0)
    generator = torch.Generator().manual_seed(0)
    chains, features, n, k = 2, 6, 300, 4  # more rows than a block, and a part of one
    _, state = drawn("bernoulli", chains=chains)
    normals = torch.randn(k, chains, n, generator=generator).double()
    root = torch.randn(chains, k, k, generator=generator).double()
    state = state._replace(
        weight=torch.randn(chains, features, k, generator=generator),
        precision=root @ root.mT + torch.eye(k).double(),
        z=torch.randn(chains, n, k, generator=generator),
    )
    slope = torch.randn(chains, features, n, generator=generator)
    terms = slope, slope, torch.rand(chains, features, n, generator=generator)
    by_torch = module._proposal(state, state.z, terms)
    to, density = module._compiled(state, state.z, terms, normals)
    wanted = by_torch.at(normals).permute(1, 2, 0).float()
    torch.testing.assert_close(to, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(density, by_torch.log_density(to), rtol=1e-5, atol=1e-5)
    there = module._compiled(state, state.z, terms, normals[:0], state.z)[1]
    torch.testing.assert_close(there, by_torch.log_density(state.z), rtol=1e-5, atol=1e-5)
