"""Seeds, groups, joining and choosing restarts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.graphs.selection import kept_restarts
from pyro_sparse.inference.table.start import cap_grid
from pyro_sparse.inference.training import restarts
from pyro_sparse.inference.training.restarts import (
    bent_starts,
    best_restart,
    child_seeds,
    chosen_restart,
    compared_restarts,
    group_sizes,
    in_frame,
    join,
    level_of,
    likeliest_restart,
    out_of_frame,
    score_similarity,
    unconfirmed,
)
from pyro_sparse.metrics import mcc
from pyro_sparse.models import SparseDecoder
from pyro_sparse.rivals import VSC
from tests._fake_fit import fake_fit


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


def test_best_is_the_simplest_that_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    base = rng.normal(size=200)
    noise = rng.normal(size=200)
    rows = np.stack([base, base - 0.001 + 0.1 * (noise - noise.mean()), base - 1.0])
    factors, edges = np.array([3, 2, 1]), np.array([9, 9, 9])
    assert best_restart(rows, factors, edges) == 1  # alike, fewer factors
    assert best_restart(rows, np.array([2, 2, 2]), np.array([8, 9, 1])) == 0  # then fewer edges
    assert best_restart(rows[[0, 2]], factors[[0, 2]], edges[[0, 2]]) == 0  # a worse one is never chosen


def test_a_restart_that_is_not_finite_is_never_best():
    rows = np.array([[np.nan, 5.0], [0.0, 1.0], [np.inf, 2.0]])
    assert best_restart(rows, np.array([1, 2, 1]), np.array([1, 2, 1])) == 1
    assert likeliest_restart(rows, np.array([1, 2, 1]), 2) == 1


def test_the_likeliest_restart_has_as_many_edges_as_its_rows_pay_for():
    """On polynomials, where the criterion is N log RSS + k log N."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 150)
    y = 1 + x - 2 * x**3 + 0.5 * rng.standard_normal(150)
    rows, want = [], []
    for degree in range(7):
        left = y - np.polyval(np.polyfit(x, y, degree), x)
        var = left.var()
        rows.append(-0.5 * np.log(2 * np.pi * var) - 0.5 * left**2 / var)
        want.append(150 * np.log((left**2).sum()) + (degree + 1) * np.log(150))
    assert likeliest_restart(np.array(rows), np.arange(7), 150) == np.argmin(want) == 3
    assert likeliest_restart(np.array(rows)[:, :20], np.arange(7), 20) < 7


def test_all_rows_choose_the_number_of_factors_and_rows_aside_the_restart():
    rng = np.random.default_rng(0)
    train, held = rng.normal(size=(1, 180)), rng.normal(size=(1, 20))
    gain = np.array([0.0, 0.3, 0.32])[:, None]  # 54 and 58 nats over 180 rows
    train = np.concatenate([train + gain, train - 2.0])
    wide = rng.normal(size=(4, 20))
    held = held + np.array([0.0, 0.05, 0.0, 9.0])[:, None] + wide - wide.mean(1, keepdims=True)
    active, edges = np.array([3, 4, 4, 1]), np.array([20, 24, 27, 5])
    seen = np.concatenate([train, held], 1)
    assert best_restart(held[:3], active[:3], edges[:3]) == 0  # rows aside cannot tell
    assert chosen_restart(held, seen, active, edges, 200) == 1  # four factors; then fewer edges
    assert chosen_restart(held[:1], seen[:1], active[:1], edges[:1], 200) == 0


@pytest.mark.slow
def test_a_fit_keeps_a_factor_that_the_few_rows_aside_cannot_tell_from_none():
    rng = np.random.default_rng(1)
    z, loading = rng.standard_normal((130, 3)), np.kron(np.eye(3), np.ones((4, 1)))
    x = z @ loading.T + 1.2 * rng.standard_normal((130, 12))
    fit = ps.fit(ps.models.SparseDecoder(12, 3, decoder="linear"), x, restarts=4, progress=False)
    edges = (fit.model.weights != 0).sum((1, 2)).numpy()
    active = (fit.model.weights != 0).any(1).sum(1).numpy()
    level = 117 * fit.elbo + 13 * fit.heldout_elbo - 0.5 * edges * np.log(130)
    assert active[fit.best] == active[np.argmax(level)] == 3
    assert mcc(z, fit.transform(x)).value > 0.8


def test_factors_held_by_their_anchors_alone_are_not_found():
    edge = np.zeros((2, 5, 2), dtype=bool)
    edge[:, 0, 0] = edge[:, 1, 1] = edge[0, 2:, 0] = edge[1, 3, 1] = edge[1, 4, 0] = True
    assert restarts.found_factors(edge, restarts.prescribed_edges(object())).tolist() == [2, 2]
    model = SparseDecoder(5, 2, anchors={0: 0, 1: 1})
    model.setup(2)
    assert restarts.found_factors(edge, restarts.prescribed_edges(model)).tolist() == [1, 2]


@pytest.mark.slow
def test_a_graph_that_was_told_whole_is_not_called_empty():
    rng = np.random.default_rng(0)
    graph = np.kron(np.eye(2, dtype=bool), np.ones((4, 1), dtype=bool))
    x = rng.normal(size=(120, 2)) @ graph.T + 0.6 * rng.normal(size=(120, 8))
    required, forbidden = (list(map(tuple, np.argwhere(part).tolist())) for part in (graph, ~graph))
    model = SparseDecoder(8, 2, decoder="linear", required=required, forbidden=forbidden)
    said = " ".join(ps.fit(model, x, restarts=1, steps=40, progress=False).warnings)
    assert "no edge" not in said
    noise = SparseDecoder(8, 2, decoder="linear", anchors={0: 0, 4: 1})
    said = " ".join(ps.fit(noise, rng.normal(size=(120, 8)), restarts=1, progress=False).warnings)
    assert "no edge but those it was given" in said


@pytest.mark.slow
def test_right_anchors_do_not_make_a_restart_with_one_factor_look_like_two():
    rng = np.random.default_rng(28)
    loading = np.kron(np.eye(2), np.full((4, 1), 0.7))
    x = rng.normal(size=(200, 2)) @ loading.T + 0.51**0.5 * rng.normal(size=(200, 8))
    model = SparseDecoder(8, 2, decoder="linear", factor_cov=False, anchors={0: 0, 4: 1})
    fit = ps.fit(model, x, restarts=4, seed=0, progress=False)
    assert (fit.weights[fit.best] != 0).sum(0).tolist() == [4, 4]
    assert fit.elbo[fit.best] > fit.elbo.max() - 20 / 200


def test_a_single_row_gives_no_error_estimate():
    assert best_restart(np.array([[1.0], [0.9]]), np.array([2, 1]), np.array([2, 1])) == 0


def test_factors_that_only_the_best_restart_found_are_named():
    congruence = np.array([[0.97, np.nan, 0.2], [1.0, 1.0, 1.0], [0.5, 0.3, 0.9]])
    names = ["factor 1", "factor 2", "factor 3"]
    (doubt,) = unconfirmed(congruence, 1, names)
    assert doubt.is_doubt and doubt.factors == ("factor 2", "factor 3")
    assert [str(doubt)] == ["no other restart found factor 2, factor 3: their axes are a guess"]
    assert unconfirmed(congruence[[0, 1, 1]], 1, names) == []
    assert unconfirmed(congruence[:1], 0, names) == []


def test_into_the_frame_of_a_fit_and_out_of_it():
    alignment = {"permutation": np.array([[0, 1, 2], [2, 0, 1]]), "sign": np.array([[1, 1, 1], [1, -1, 1.0]])}
    fit = SimpleNamespace(best=1, alignment=alignment)
    own = np.array([[[1.0, 2.0, 3.0]]])
    assert in_frame(fit, own).tolist() == [[[3.0, -1.0, 2.0]]]
    assert out_of_frame(fit, in_frame(fit, own)).tolist() == own.tolist()


def test_level_is_of_rows_kept_aside_where_there_are_any():
    fit = SimpleNamespace(elbo=np.array([1.0, 2.0]), heldout_elbo=np.array([np.nan, 3.0]))
    assert level_of(fit).tolist() == [1.0, 3.0]


def test_chains_are_compared_as_their_restarts_are():
    fit = fake_fit()
    kept, rivals = compared_restarts(fit)
    assert kept.tolist() == kept_restarts(fit.elbo, 200, best=0, rivals=rivals).tolist()
    assert rivals.tolist() == [False, *[True] * 4, False]  # the last has lost a factor, and is far worse
    chains = np.array([5, 0, 1])
    assert compared_restarts(fit, chains)[1].tolist() == [False, False, True]
    assert compared_restarts(fit, chains)[0].tolist() == [False, True, True]


@pytest.mark.parametrize("n", [12, 200])
def test_one_standard_error_of_the_paired_difference_is_what_cannot_be_told_apart(n):
    """By scipy's standard error: a simpler restart 0.9 of it behind is taken, one 1.1 behind is not."""
    noise = np.random.default_rng(0).normal(size=n)
    noise -= noise.mean()
    best = 3 * np.random.default_rng(1).normal(size=n)  # which rows share: it is no part of the difference
    unit = stats.sem(noise)
    for behind in (0.0, 0.5, 0.9, 1.1, 1.5, 1.9, 2.1):
        rows = np.stack([best, best + noise - behind * unit])
        assert best_restart(rows, np.array([2, 1]), np.array([5, 4])) == int(behind < 1), behind


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
