"""Controls against optima known from elsewhere (SLSQP, enumeration)."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from pyro_sparse._utils.recorded import describe, rebuild
from pyro_sparse.inference.transition.constraint import (
    BernoulliKL,
    Budget,
    Penalty,
    SparsityControl,
    dual_step,
    get_control,
)

# Three restarts of the toy problem: minimise sum of weight (p - wish)^2 over four edges.
WEIGHT = torch.tensor([[1.0, 2.0, 1.0, 3.0], [1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 0.5, 1.0]]).double()
WISH = torch.tensor([[0.9, 0.8, 0.6, 0.7], [0.9, 0.8, 0.7, 0.6], [0.3, 0.4, 0.3, 0.4]]).double()


def ready(control, possible, **sizes):
    control.double().setup(possible, **sizes)
    return control


def descend(control, weight, wish, steps, state=None, lr=0.5, first=0, total=None):
    """Gradient descent on alpha beside the control's own steps; resumes from (alpha, state dict)."""
    alpha = torch.full_like(wish, 2.0) if state is None else state[0].clone()
    if state is not None:
        control.load_state_dict(state[1])
    alpha.requires_grad_()
    for step in range(first, first + steps):
        p = alpha.sigmoid()
        loss = (weight * (p - wish) ** 2).sum(1) + control.loss(p)
        (slope,) = torch.autograd.grad(loss.sum(), alpha)
        with torch.no_grad():
            alpha -= lr * slope
            control.after_step(alpha.sigmoid(), (step + 1) / (total or steps))
    return alpha.detach()


def constrained_optimum(weight, wish, budget):
    """The same problem by SLSQP in p, and the price of an edge there from its stationarity."""
    found = optimize.minimize(
        lambda p: (weight * (p - wish) ** 2).sum(), np.full(len(wish), 0.2), bounds=[(0, 1)] * len(wish),
        constraints={"type": "ineq", "fun": lambda p: budget - p.sum()}, method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert found.success
    return found.x, (2 * weight * (wish - found.x)).mean()


@pytest.mark.parametrize("budget", [1.6, 2.2])
def test_budget_reaches_the_constrained_optimum_and_its_price(budget):
    control = ready(Budget(budget, dual_rate=0.1, restart=False), 4, n_restarts=3)
    p = descend(control, WEIGHT, WISH, 700, lr=1.0).sigmoid()
    for r in range(3):
        wanted, price = constrained_optimum(WEIGHT[r].numpy(), WISH[r].numpy(), budget)
        np.testing.assert_allclose(p[r].numpy(), wanted, atol=1e-4)
        assert control.multiplier[r].item() == pytest.approx(price, abs=1e-4)
    assert control.multiplier[2] == 0  # its wishes stay within the budget


def test_price_is_per_row():
    """The same problem as a sum over 50 rows: the same multiplier, a loss 50 times as large."""
    one = ready(Budget(1.6, dual_rate=0.02), 4, n_restarts=3)
    many = ready(Budget(1.6, dual_rate=0.02), 4, n_restarts=3, n_samples=50)
    p = torch.full((3, 4), 0.7).double()
    for control in (one, many):
        control.after_step(p, 0.5)
    np.testing.assert_allclose(one.multiplier, 0.02 * (2.8 - 1.6))
    np.testing.assert_allclose(many.multiplier, one.multiplier)
    np.testing.assert_allclose(one.loss(p), 0.02 * 1.2 * 1.2)
    np.testing.assert_allclose(many.loss(p), 50 * one.loss(p))


def test_budget_with_restart_keeps_the_most_useful_edges():
    """Linear gains: the optimum is known to be the two largest, and gates end open or shut."""
    gain = torch.tensor([[3.0, 1.0, 2.0, 0.5], [0.2, 0.4, 0.3, 0.5]]).double()
    control = ready(Budget(2, dual_rate=0.05), 4, n_restarts=2)
    alpha = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    for _ in range(500):
        p = alpha.sigmoid()
        (slope,) = torch.autograd.grad((control.loss(p) - (gain * p).sum(1)).sum(), alpha)
        with torch.no_grad():
            alpha -= 0.5 * slope
            control.after_step(alpha.sigmoid(), 1.0)
    np.testing.assert_array_equal(
        (alpha > 0).numpy(), [[True, False, True, False], [False, True, False, True]]
    )
    np.testing.assert_allclose(alpha.detach().sigmoid().sum(1), [2, 2], atol=0.25)


def test_dual_steps_by_hand():
    old, violation = torch.tensor([0.0, 1.0, 1.0, 0.1]), torch.tensor([2.0, 2.0, -3.0, -3.0])
    np.testing.assert_allclose(dual_step(old, violation, 0.1, restart=False), [0.2, 1.2, 0.7, 0.0], rtol=1e-6)
    np.testing.assert_allclose(dual_step(old, violation, 0.1, restart=True), [0.2, 1.2, 0.0, 0.0], rtol=1e-6)
    assert dual_step(torch.tensor(5.0), torch.tensor(0.0), 0.1) == 0  # kept exactly is kept


def test_restart_forgets_a_price_that_was_needed():
    p = torch.full((2, 4), 1.0).double()
    controls = [ready(Budget(2, dual_rate=0.5, restart=r), 4, n_restarts=2) for r in (True, False)]
    for control in controls:
        for _ in range(3):
            control.after_step(p, 1.0)
        assert control.multiplier.tolist() == [3.0, 3.0]
        control.after_step(torch.stack([0.4 * p[0], p[0]]), 1.0)
    np.testing.assert_allclose(controls[0].multiplier, [0.0, 4.0])
    np.testing.assert_allclose(controls[1].multiplier, [2.8, 4.0])


def test_level_falls_linearly_from_all_edges():
    control = ready(Budget(20, anneal_until=0.5), 100, n_required=5)
    p = torch.zeros(1, 100).double()
    levels = [control.level.item()]
    for progress in (0.125, 0.25, 0.5, 1.0):
        control.after_step(p, progress)
        levels.append(control.level.item())
    assert levels == [100, 80, 60, 20, 20]
    assert ready(Budget(20), 100).level == 20


@pytest.mark.parametrize(
    "make",
    [
        lambda: Budget(1.7, dual_rate=0.02, anneal_until=0.6),
        lambda: Budget(1.7, dual_rate=0.02, restart=False),
        lambda: Penalty(0.3),
        lambda: BernoulliKL(a=1.5, b=3.0),
        lambda: BernoulliKL(0.2),
        SparsityControl,
    ],
)
class TestEveryControl:
    def test_restarts_do_not_know_of_each_other(self, make):
        together = descend(ready(make(), 4, n_restarts=3), WEIGHT, WISH, 25)
        apart = [descend(ready(make(), 4), WEIGHT[r : r + 1], WISH[r : r + 1], 25) for r in range(3)]
        torch.testing.assert_close(together, torch.cat(apart), rtol=1e-12, atol=1e-12)

    def test_resume_is_bit_identical(self, make):
        straight = ready(make(), 4, n_restarts=3)
        wanted = descend(straight, WEIGHT, WISH, 40)
        first = ready(make(), 4, n_restarts=3)
        alpha = descend(first, WEIGHT, WISH, 15, total=40)
        file = io.BytesIO()
        torch.save((alpha, first.state_dict()), file)
        file.seek(0)
        again = ready(make(), 4, n_restarts=3)
        found = descend(again, WEIGHT, WISH, 25, torch.load(file, weights_only=True), first=15, total=40)
        assert torch.equal(found, wanted)
        for name, value in straight.state_dict().items():
            assert torch.equal(value, again.state_dict()[name])

    def test_forbidden_edges_may_stay_out(self, make):
        """Zeros at forbidden edges, and any arrangement of edges, change neither loss nor state."""
        p = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)).double()
        p[:, 0] = 1.0
        wide = torch.cat([p, torch.zeros(3, 2)], 1).reshape(3, 2, 3)
        found = []
        for probabilities in (p, wide):
            control = ready(make(), 4, n_required=1, n_restarts=3)
            control.after_step(probabilities, 1.0)
            found.append((control.loss(probabilities), *control.state_dict().values()))
        for narrow, broad in zip(*found, strict=True):
            torch.testing.assert_close(narrow, broad)
            assert narrow.dtype == torch.float64

    def test_made_again_from_plain_text(self, make):
        control = make()
        again = rebuild(describe(control))
        p = torch.full((1, 4), 0.6)
        for c in (control, again):
            c.setup(4)
            c.after_step(p, 0.3)
        assert torch.equal(control.loss(p), again.loss(p))

    def test_wrong_sizes(self, make):
        with pytest.raises(ValueError, match="sizes are not known yet; call setup first"):
            make().loss(torch.zeros(1, 4))
        control = make()
        control.setup(4, n_restarts=2)
        for shape in [(2, 3), (3, 4), (4,)]:
            with pytest.raises(
                ValueError, match=r"probabilities: got shape .*, wanted \(restart=2, \.\.\.\)"
            ):
                control.loss(torch.zeros(shape))


def test_penalty_is_the_price_of_the_expected_edges():
    p = torch.rand(2, 3, 3)
    np.testing.assert_allclose(
        ready(Penalty(2.5), 9, n_restarts=2).loss(p.double()),
        2.5 * p.double().numpy().sum((1, 2)),
        rtol=1e-12,
    )
    np.testing.assert_array_equal(ready(SparsityControl(), 9, n_restarts=2).loss(p), [0, 0])


def kl(p, eta):
    """Over both values of every edge."""
    return (special.rel_entr(p, eta) + special.rel_entr(1 - p, 1 - eta)).sum()


def test_bernoulli_kl_is_the_divergence_of_the_free_edges():
    free = np.array([0.1, 0.5, 0.97])
    p = torch.tensor([[1.0, 1.0, *free, 0.0]]).double()
    fixed = ready(BernoulliKL(0.2), 5, n_required=2)
    assert fixed.loss(p).item() == pytest.approx(kl(free, 0.2), rel=1e-9)
    fixed.after_step(p, 0.5)
    assert fixed.eta.item() == 0.2
    learned = ready(BernoulliKL(a=2.0, b=4.0), 5, n_required=2)
    eta = 1 / 3
    assert learned.loss(p).item() == pytest.approx(kl(free, eta) - stats.beta(2, 4).logpdf(eta), rel=1e-9)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 6.0), (1.0, 30.0)])
def test_eta_step_minimises_the_loss(a, b):
    """Against a scalar search over eta in [0, 1]."""
    free = np.array([[0.1, 0.5, 0.97, 0.3], [0.9, 0.8, 0.99, 0.6]])
    p = torch.cat([torch.ones(2, 1), torch.as_tensor(free), torch.zeros(2, 2)], 1)
    control = ready(BernoulliKL(a=a, b=b), 5, n_required=1, n_restarts=2)
    control.after_step(p, 0.5)
    for r in range(2):
        best = optimize.minimize_scalar(
            lambda eta, r=r: kl(free[r], eta) - stats.beta(a, b).logpdf(eta), bounds=(1e-6, 1 - 1e-6),
            method="bounded", options={"xatol": 1e-10},
        )  # fmt: skip
        assert control.eta[r].item() == pytest.approx(best.x, abs=1e-6)
        assert control.loss(p)[r].item() == pytest.approx(best.fun, abs=1e-9)


def test_saturated_probabilities_have_finite_slopes():
    alpha = torch.tensor([[-200.0, -20.0, 0.3, 20.0, 200.0]], requires_grad=True)
    control = BernoulliKL(0.1)
    control.setup(5)
    value = control.loss(alpha.sigmoid())
    (slope,) = torch.autograd.grad(value.sum(), alpha)
    assert torch.isfinite(value).all() and torch.isfinite(slope).all() and slope[0, 2] != 0


def test_resolver():
    assert get_control(None)._buffers == {} and type(get_control(None)) is SparsityControl
    assert get_control("auto").edges is None and isinstance(get_control("auto"), Budget)
    assert isinstance(get_control(12), Budget) and get_control(np.int64(12)).edges == 12
    assert isinstance(get_control(2.0), Penalty) and get_control(2.0).rate == 2.0
    mine = BernoulliKL()
    assert get_control(mine) is mine
    for wrong, kind in [("automatic", ValueError), (True, TypeError), ([3], TypeError)]:
        with pytest.raises(kind, match=r'sparsity: got .*, wanted "auto", None, a whole number of edges'):
            get_control(wrong)
    with pytest.raises(ValueError, match="edges: got -3, wanted a finite number of at least 0"):
        get_control(-3)


def test_a_budget_without_a_level_never_binds_until_told():
    control = ready(Budget(), 6, n_required=2)
    p = torch.ones(1, 6).double()
    control.after_step(p, 0.5)
    assert control.level == 6 and control.multiplier == 0
    control.set_edges(4)
    control.after_step(p, 0.6)
    assert control.level == 4 and control.multiplier > 0


def test_refused_settings():
    with pytest.raises(
        ValueError, match="the budget is 3 and 5 edges are required; raise it to at least 5, or"
    ):
        Budget(3).setup(20, n_required=5)
    with pytest.raises(ValueError, match="the budget is 21 and only 20 edges are possible; lower it"):
        Budget(21).setup(20)
    budget = ready(Budget(10), 20, n_required=5)
    with pytest.raises(ValueError, match="5 edges are required"):
        budget.set_edges(4)
    for wrong in (-1, float("nan"), float("inf"), True, "many"):
        with pytest.raises(ValueError, match="edges: got .*, wanted a finite number of at least 0"):
            Budget(wrong)
    with pytest.raises(ValueError, match="dual_rate: got 0, wanted a finite number above 0"):
        Budget(3, dual_rate=0)
    with pytest.raises(ValueError, match=r"anneal_until: got 2, wanted a share of the fit in \[0, 1\]"):
        Budget(3, anneal_until=2)
    with pytest.raises(ValueError, match="rate: got -0.1, wanted a finite number of at least 0"):
        Penalty(-0.1)
    with pytest.raises(
        ValueError, match=r"eta: got 1.0, wanted a probability in \(0, 1\), or None to learn it"
    ):
        BernoulliKL(1.0)
    with pytest.raises(ValueError, match="b: got 0.0, wanted a finite number above 0"):
        BernoulliKL(b=0.0)
    for sizes in (
        {"n_edges_possible": 0},
        {"n_edges_possible": 2.5},
        {"n_edges_possible": 4, "n_restarts": 0},
    ):
        with pytest.raises(ValueError, match="want a whole number of at least 1"):
            SparsityControl().setup(**sizes)
    with pytest.raises(ValueError, match="n_required: got 5, wanted at most the n_edges_possible=4"):
        SparsityControl().setup(4, n_required=5)
