"""Linear regression: the solver against a coordinate descent written from the paper, on 8 random problems.

The reference works on residuals, one problem and one coefficient at a time, in plain numpy. It decides on
zero by the threshold Delta = inf_t [x'x t / 2 + pen(t) / t] and then iterates the fixed point of Rockova and
George (2018). The solver compares the two branches of the proximal map, found by Newton's method.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pyro_sparse.priors import SpikeSlabLasso, em, ssl_regression

PROBLEMS, ROWS, COLUMNS = 8, 100, 10
LAMBDA1, LADDER = 1.0, np.geomspace(1, 100, 6).tolist()


@pytest.fixture(scope="module")
def problems():
    rng = np.random.default_rng(2018)
    designs, responses = [], []
    for _ in range(PROBLEMS):
        shared = rng.uniform(0, 0.6)  # correlation of the columns
        common, own = rng.normal(size=(ROWS, 1)), rng.normal(size=(ROWS, COLUMNS))
        design = math.sqrt(shared) * common + math.sqrt(1 - shared) * own
        truth = np.where(rng.random(COLUMNS) < 0.35, rng.normal(size=COLUMNS), 0.0)
        designs.append(design)
        responses.append(design @ truth + rng.normal(size=ROWS))
    return np.array(designs), np.array(responses)


def reference(design, response, ladder, eta=0.5, beta_prior=None):
    """Cyclic coordinate descent with unit noise; returns coefficients and eta."""
    n_columns = design.shape[1]
    square = (design**2).sum(0)
    beta, residual = np.zeros(n_columns), response.copy()
    known = {}  # thresholds, which the search below takes long to find
    for lambda0 in ladder:
        for _ in range(2000):
            last, last_eta = beta.copy(), eta
            odds = (1 - eta) / eta * lambda0 / LAMBDA1

            def inclusion(b, odds=odds, gap=lambda0 - LAMBDA1):
                return 1 / (1 + odds * np.exp(-gap * b))

            def penalty(b, inclusion=inclusion):
                return LAMBDA1 * b + np.log(inclusion(b) / inclusion(0.0))

            def slope(b, odds=odds, gap=lambda0 - LAMBDA1):
                return LAMBDA1 + gap * (1 - 1 / (1 + odds * math.exp(-gap * b)))

            for j in range(n_columns):
                z = design[:, j] @ residual + square[j] * beta[j]
                size = abs(z)
                if (lambda0, eta, j) not in known:
                    known[lambda0, eta, j] = threshold(square[j], penalty, slope(0.0))
                if size <= known[lambda0, eta, j]:
                    new = 0.0
                else:
                    ends = []
                    for b in (size / square[j], 0.0):
                        for _ in range(5000):
                            moved = max(size - slope(b), 0.0) / square[j]
                            if abs(moved - b) < 1e-16:
                                break
                            b = moved
                        ends.append(b)
                    value = [0.5 * square[j] * b * b - size * b + penalty(b) for b in ends]
                    new = math.copysign(ends[int(np.argmin(value))], z)
                residual -= design[:, j] * (new - beta[j])
                beta[j] = new
            if beta_prior is not None:
                a, b = beta_prior
                expected = inclusion(np.abs(beta)).sum()
                eta = min(max((expected + a - 1) / (a + b + n_columns - 2), 1e-6), 1 - 1e-6)
            if max(np.abs(beta - last).max(), abs(eta - last_eta)) < 1e-11:
                break
    return beta, eta


def threshold(square, penalty, slope_at_zero):
    """Delta by three rounds of ever finer search; its limit for t -> 0 is the slope at zero."""
    t = np.geomspace(1e-6, 10, 150)
    for _ in range(3):
        value = square * t / 2 + penalty(t) / t
        best = int(np.argmin(value))
        t = np.linspace(t[max(best - 1, 0)], t[min(best + 1, len(t) - 1)], 40)
    return min(value.min(), slope_at_zero)


@pytest.fixture(scope="module", params=[None, (1.0, float(COLUMNS))], ids=["eta fixed", "eta learned"])
def modes(request, problems):
    X, y = (torch.as_tensor(v) for v in problems)
    return request.param, ssl_regression(X, y, LADDER, LAMBDA1, beta_prior=request.param, tol=1e-9)


@pytest.mark.slow
def test_twenty_regressions_agree_in_the_mode(problems, modes):
    designs, responses = problems
    beta_prior, found = modes
    assert found.converged
    sizes = []
    for i, (design, response) in enumerate(zip(designs, responses, strict=True)):
        beta, eta = reference(design, response, LADDER, beta_prior=beta_prior)
        np.testing.assert_allclose(found.coef[i], beta, atol=1e-6, err_msg=f"problem {i}")
        np.testing.assert_array_equal(found.coef[i] != 0, beta != 0, err_msg=f"support of problem {i}")
        assert found.eta[i].item() == pytest.approx(eta, abs=1e-6)
        sizes.append(int((beta != 0).sum()))
    assert max(sizes) > 3 and len(set(sizes)) > 3  # not an agreement about nothing


def test_the_mode_is_a_fixed_point_of_the_prior_in_a_fit(problems, modes):
    """What a fit does to W, proximal gradient steps and eta updates, leaves the modes where they are."""
    X, y = (torch.as_tensor(v) for v in problems)
    beta_prior, found = modes
    prior = SpikeSlabLasso(LAMBDA1, LADDER[-1], b=float(COLUMNS)).double()
    prior.setup(COLUMNS, 1, PROBLEMS)
    prior.eta.copy_(found.eta[..., None])
    step = 1 / torch.linalg.eigvalsh(X.mT @ X)[:, -1][:, None, None]
    weights = found.coef[..., None]
    for _ in range(50):
        weights = prior.prox(weights + step * X.mT @ (y[..., None] - X @ weights), step)
        if beta_prior is not None:
            prior.update(weights)
    torch.testing.assert_close(weights[..., 0], found.coef, atol=1e-7, rtol=0)
    torch.testing.assert_close(prior.eta[..., 0], found.eta, atol=1e-7, rtol=0)
    torch.testing.assert_close(prior.edge_log_odds(weights).sigmoid()[..., 0], found.prob, atol=1e-6, rtol=0)


def test_orthogonal_design_is_one_proximal_map():
    rng = np.random.default_rng(1)
    design = torch.as_tensor(np.linalg.qr(rng.normal(size=(30, 6)))[0])
    response = torch.as_tensor(rng.normal(size=30) * 3)
    found = ssl_regression(design, response, [20.0], lambda1=0.5, sigma=0.7, eta=0.2)
    wanted = em.ssl_prox(design.T @ response, 0.49, 0.2, 0.5, 20.0)
    torch.testing.assert_close(found.coef, wanted)
    assert found.sweeps == 2


def test_problems_are_separate_and_share_a_design():
    rng = np.random.default_rng(2)
    X, y = torch.as_tensor(rng.normal(size=(40, 5))), torch.as_tensor(rng.normal(size=(3, 40)))
    y = y + 2 * X[:, 0]
    together = ssl_regression(X, y, [1.0, 30.0])
    assert together.coef.shape == (3, 5) and together.eta.shape == (3, 1)
    for i in range(3):
        alone = ssl_regression(X, y[i], [1.0, 30.0])
        torch.testing.assert_close(together.coef[i], alone.coef)
    again = ssl_regression(X, y, [30.0], start=together.coef)
    torch.testing.assert_close(again.coef, together.coef)


def test_a_limit_on_sweeps_is_reported():
    X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).double()
    assert not ssl_regression(X, X.sum(1), [1.0], max_sweeps=1).converged


@pytest.mark.parametrize(
    "change, message",
    [
        ({"X": torch.ones(5)}, r"X is \(5,\) and y \(20,\)"),
        ({"y": torch.ones(7)}, r"X is \(20, 4\) and y \(7,\)"),
        ({"eta": 1.0}, "eta is 1.0"),
        ({"ladder": []}, r"ladder is \[\]"),
        ({"ladder": [0.5]}, r"none below lambda1=1.0"),
        ({"sigma": 0.0}, "sigma is 0.0"),
        ({"X": torch.zeros(20, 4)}, "column of zeros"),
    ],
)
def test_bad_input(change, message):
    settings = {"X": torch.ones(20, 4), "y": torch.ones(20), "ladder": [1.0]} | change
    with pytest.raises(ValueError, match=message):
        ssl_regression(**settings)
