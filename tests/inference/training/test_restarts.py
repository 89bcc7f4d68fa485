"""Seeds, groups, joining restarts, and bringing them into one frame."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyro_sparse.inference.table.start import cap_grid
from pyro_sparse.inference.training import restarts
from pyro_sparse.inference.training.restarts import (
    bent_starts,
    child_seeds,
    group_sizes,
    in_frame,
    join,
    out_of_frame,
    score_similarity,
)
from pyro_sparse.models import SparseDecoder
from pyro_sparse.rivals import VSC


def test_seeds_are_keyed_by_number():
    assert child_seeds(3, 2) == child_seeds(3, 6)[:2]
    assert len(set(child_seeds(3, 100) + child_seeds(4, 100))) == 200
    torch.manual_seed(max(child_seeds(0, 100)))  # within torch's range


@pytest.mark.parametrize(("k", "n"), [(5, 8), (5, 10), (2, 8), (1, 4), (20, 8), (3, 1)])
def test_half_of_the_restarts_bend(k, n):
    n_factors_init = cap_grid(k, n)
    bent = bent_starts(n_factors_init)
    assert bent.dtype == bool and bent.shape == (n,) and not bent[0]
    assert abs(int(bent.sum()) - n / 2) <= 1
    for cap in set(n_factors_init.tolist()):
        kinds = bent[n_factors_init == cap]
        assert (kinds[1:] != kinds[:-1]).all()  # restarts with the same number of factors take turns


def test_groups_fit_in_memory(monkeypatch):
    model = SparseDecoder(10, 2)
    assert group_sizes(model, 8, 100) == [8]
    each = 4 * 4 * 100 * 10 * 50
    monkeypatch.setattr(restarts, "GROUP_BYTES", 3 * each)
    assert group_sizes(model, 8, 100) == [3, 3, 2]
    monkeypatch.setattr(restarts, "GROUP_BYTES", each / 2)
    assert group_sizes(model, 3, 100) == [1, 1, 1]


@pytest.mark.parametrize("sizes", [[2, 1], [1, 1, 1], [3]])
@pytest.mark.parametrize(
    "make", [lambda: SparseDecoder(6, 2, likelihood="poisson", forbidden=[(0, 0)]), lambda: VSC(6, 2)]
)
def test_join_puts_every_restart_in_its_place(make, sizes):
    parts = []
    for i, size in enumerate(sizes):
        torch.manual_seed(i)
        part = make()
        part.setup(size)
        parts.append(part)
    whole = make()
    whole.setup(3)
    assert join([part.state_dict() for part in parts], whole) is whole
    for name, value in whole.state_dict().items():
        pieces = [part.state_dict()[name] for part in parts]
        if value.shape[:1] == (3,) and pieces[0].shape[:1] == (sizes[0],):
            assert torch.equal(value, torch.cat(pieces)), name
        else:
            assert torch.equal(value, pieces[0]), name


def test_into_the_frame_of_a_fit_and_out_of_it():
    alignment = {"permutation": np.array([[0, 1, 2], [2, 0, 1]]), "sign": np.array([[1, 1, 1], [1, -1, 1.0]])}
    fit = SimpleNamespace(best=1, alignment=alignment)
    own = np.array([[[1.0, 2.0, 3.0]]])
    assert in_frame(fit, own).tolist() == [[[3.0, -1.0, 2.0]]]
    assert out_of_frame(fit, in_frame(fit, own)).tolist() == own.tolist()


def test_scores_know_a_factor_by_any_sign_and_place():
    """Restart 1 has the best one's factors in another order, one reversed; restart 2 has their sum."""
    z = torch.as_tensor(np.random.default_rng(0).normal(size=(200, 2)))
    swapped = torch.stack([-z[:, 1], z[:, 0]], 1)
    total = torch.stack([z.sum(1), torch.zeros(200)], 1)
    model = SimpleNamespace(encode=lambda batch: (torch.stack([z, swapped, total]), None))
    present = np.ones((3, 5, 2), dtype=bool)
    present[2, :, 1] = False
    batch = type(
        "Rows", (), {"x": z, "rows": staticmethod(lambda rows: z[rows]), "__len__": lambda self: 200}
    )()
    alike = score_similarity(model, batch, present, 0)
    expected = [abs(np.corrcoef(z[:, k], z.sum(1))[0, 1]) for k in range(2)]
    np.testing.assert_allclose(alike, [[1, 1], [1, 1], expected], atol=1e-12)
