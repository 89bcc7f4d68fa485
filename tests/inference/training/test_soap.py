"""SOAP against its definition in the plainest case, and on problems where it must be better."""

from __future__ import annotations

import copy

import pytest
import torch

from pyro_sparse.inference.training.soap import SOAP


def descend(optimiser, loss, steps):
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()


def test_on_vectors_it_is_adam():
    torch.manual_seed(0)
    ours = torch.nn.Parameter(torch.randn(3, 1, 5))
    theirs = torch.nn.Parameter(ours.detach().clone())
    scale = torch.arange(1.0, 6.0)
    descend(SOAP([ours], lr=0.01, betas=(0.9, 0.99)), lambda: (scale * ours**2).sum(), 50)
    descend(torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99)), lambda: (scale * theirs**2).sum(), 50)
    torch.testing.assert_close(ours, theirs)


def test_matrices_of_a_batch_do_not_see_each_other():
    torch.manual_seed(0)
    start, target = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    together = torch.nn.Parameter(start.clone())
    alone = [torch.nn.Parameter(start[i : i + 1].clone()) for i in range(3)]
    descend(SOAP([together], lr=0.05), lambda: ((together - target) ** 4).sum(), 40)
    descend(
        SOAP(alone, lr=0.05),
        lambda: sum(((a - t) ** 4).sum() for a, t in zip(alone, target, strict=True)),
        40,
    )
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_in_turned_coordinates_it_takes_turned_steps():
    """What Adam lacks: the descent is the same in any orthogonal basis of rows and columns."""
    torch.manual_seed(0)
    left, right = torch.linalg.qr(torch.randn(2, 5, 5).double())[0]
    scale, start = torch.rand(5, 5).double() + 0.1, torch.randn(5, 5).double()
    plain = torch.nn.Parameter(start.clone())
    turned = torch.nn.Parameter(left.mT @ start @ right)
    descend(SOAP([plain], lr=0.02), lambda: (scale * plain**2).sum(), 30)
    descend(SOAP([turned], lr=0.02), lambda: (scale * (left @ turned @ right.mT) ** 2).sum(), 30)
    torch.testing.assert_close(left @ turned @ right.mT, plain, atol=1e-6, rtol=1e-5)


def test_it_beats_adam_on_a_correlated_regression():
    torch.manual_seed(0)
    turn = torch.linalg.qr(torch.randn(20, 20))[0]
    mixing = torch.randn(20, 20) @ torch.diag(torch.logspace(0, -2, 20)) @ turn
    x = torch.randn(500, 20) @ mixing
    y = x @ torch.randn(20, 10)
    left = {}
    for kind in (SOAP, torch.optim.Adam):
        w = torch.nn.Parameter(torch.zeros(20, 10))
        descend(kind([w], lr=0.03), lambda w=w: ((x @ w - y) ** 2).mean(), 300)
        left[kind] = float(((x @ w.detach() - y) ** 2).mean())
    assert left[SOAP] < 0.3 * left[torch.optim.Adam]


def test_a_resumed_descent_is_the_same():
    torch.manual_seed(0)
    target = torch.randn(2, 3, 4)
    w = torch.nn.Parameter(torch.zeros(2, 3, 4))
    optimiser = SOAP([w], lr=0.05, every=3)
    descend(optimiser, lambda: ((w - target) ** 4).sum(), 10)
    state, saved = copy.deepcopy(optimiser.state_dict()), w.detach().clone()
    descend(optimiser, lambda: ((w - target) ** 4).sum(), 10)
    again = torch.nn.Parameter(saved)
    resumed = SOAP([again], lr=0.05, every=3)
    resumed.load_state_dict(state)
    descend(resumed, lambda: ((again - target) ** 4).sum(), 10)
    assert torch.equal(w, again)


def test_no_move_is_longer_than_the_most():
    """After small gradients a huge one: each turned coordinate moves by `most` steps of `lr` at most."""
    moved = {}
    for most in (float("inf"), 0.1):
        torch.manual_seed(0)
        w = torch.nn.Parameter(torch.zeros(1, 4, 3))
        optimiser = SOAP([w], lr=0.1, most=most)
        for step in range(31):
            w.grad = torch.randn(1, 4, 3) * (1e4 if step == 30 else 1e-3)
            before = w.detach().clone()
            optimiser.step()
        moved[most] = float((w.detach() - before).norm())
    assert moved[0.1] <= 0.1 * 0.1 * 12**0.5 + 1e-6 < moved[float("inf")]


def test_long_sides_keep_their_coordinates():
    w = torch.nn.Parameter(torch.ones(4, 30))
    optimiser = SOAP([w], largest=10)
    descend(optimiser, lambda: (w**2).sum(), 3)
    assert set(optimiser.state[w]) >= {"left", "left basis"}
    assert "right" not in optimiser.state[w]


@pytest.mark.parametrize("bad", [{"lr": 0.0}, {"every": 0}])
def test_impossible_settings(bad):
    with pytest.raises(ValueError, match="wanted a positive step size"):
        SOAP([torch.nn.Parameter(torch.ones(2))], **bad)


def test_rounding_does_not_choose_directions_that_had_no_gradient():
    """The first gradients leave rows and columns idle, which later ones move; last digits must not show."""

    def end(off):
        torch.manual_seed(0)
        w, to = torch.nn.Parameter(torch.randn(6, 9).double()), torch.randn(2, 6, 9).double()
        u, v = torch.randn(6, 2).double(), torch.randn(9, 2).double()
        optimiser = SOAP([w], lr=0.02, every=4)
        for step in range(25):
            optimiser.zero_grad()
            left = u.T @ (w - to[0]) @ v if step < 6 else w - to[1]
            (left**2).sum().backward()
            w.grad.mul_(1 + off * torch.randn(6, 9).double())
            optimiser.step()
        return w.detach()

    torch.testing.assert_close(end(1e-15), end(0.0), atol=1e-5, rtol=0)  # it was .4


def test_bases_do_not_hang_on_single_precision(monkeypatch):
    """LAPACK's single precision gives up on one matrix of low rank in many: here on all of them."""
    eigh = torch.linalg.eigh

    def double_only(matrix):
        if matrix.dtype != torch.float64:
            raise torch.linalg.LinAlgError("failed to converge")
        return eigh(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", double_only)
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.randn(2, 4, 3))
    descend(SOAP([w], lr=0.02), lambda: (w**2).sum(), 200)
    assert w.dtype == torch.float32 and w.abs().max() < 0.1
