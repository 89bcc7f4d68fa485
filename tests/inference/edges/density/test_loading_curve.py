import numpy as np
import pytest
import torch

from pyro_sparse.inference.edges.density import loading_curve as module
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.loading_curve import loading_curve
from pyro_sparse.inference.edges.density.loadings import Curve
from pyro_sparse.likelihoods import Bernoulli, Ordinal, Poisson, _compiled_cells
from pyro_sparse.likelihoods.base import CELL_TERMS, CELLS

needs_numba = pytest.mark.skipif(not _compiled_cells.COMPILED, reason="the extra 'fast' is not installed")


def given(likelihood, offset=False, mask=False):
    """Arguments of `Curve.along`."""
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.integers(0, 2, (1, 5, 211))).float()
    likelihood.setup(5, 3)
    z, weight = torch.as_tensor(rng.standard_normal((3, 211))).float(), rng.standard_normal((3, 5))
    f = torch.as_tensor(weight)[..., None] * z[:, None] + 0.5
    cells = Cells(
        x,
        torch.as_tensor(rng.random((1, 5, 211)) > 0.2).float() if mask else None,
        {},
        likelihood,
        offset=torch.as_tensor(rng.standard_normal((3, 5, 211))).float() if offset else None,
    )
    noise, unit = torch.ones(3, 5), torch.linspace(0.5, 1.5, 5)[:, None]
    with torch.no_grad():
        return cells, f.float(), cells.expanded(f.float(), noise), noise, z, weight, unit


@needs_numba
@pytest.mark.parametrize("likelihood", [Bernoulli(), Ordinal(levels=(0, 3))])
@pytest.mark.parametrize("offset, mask", [(False, False), (True, True)])
@torch.no_grad()
def test_compiled_curves_are_those_of_torch(monkeypatch, likelihood, offset, mask):
    arguments = given(likelihood, offset, mask)
    wanted = Curve.along(*arguments)
    monkeypatch.setattr(Curve, "along", None)  # is not asked
    curve = loading_curve(*arguments)
    np.testing.assert_allclose(curve.mode, wanted.mode, atol=1e-6)
    np.testing.assert_allclose(curve.shape.sd, wanted.shape.sd, rtol=1e-6)
    u = wanted.mode + np.linspace(-5, 5, 21)[:, None, None] * wanted.shape.sd
    np.testing.assert_allclose(curve.log_likelihood(u), wanted.log_likelihood(u), rtol=1e-5, atol=1e-4)


@torch.no_grad()
def test_other_cells_are_left_to_torch():
    arguments = given(Poisson(size_factors=False))
    assert arguments[0].logistic_cuts is None
    np.testing.assert_array_equal(loading_curve(*arguments).mode, Curve.along(*arguments).mode)


class Flipped(Bernoulli):
    """A class that says anew what cells say, and declares that it does."""

    declares = (CELLS, CELL_TERMS)

    def cell_terms(self, f, x, dispersion, per_row, order):
        terms = super().cell_terms(-f, x, dispersion, per_row, order)
        return tuple(-term if n == 1 else term for n, term in enumerate(terms))


@torch.no_grad()
def test_terms_that_a_subclass_writes_anew_are_those_that_are_used():
    arguments = given(Flipped())
    assert given(Bernoulli())[0].logistic_cuts is not None and arguments[0].logistic_cuts is None
    np.testing.assert_array_equal(loading_curve(*arguments).mode, Curve.along(*arguments).mode)
    cells, f, noise = arguments[0], arguments[1], arguments[3]
    flipped = torch.nn.functional.logsigmoid(-(2 * cells.x - 1) * f).double().sum(-1)
    torch.testing.assert_close(cells.log_probs(f, noise), flipped)


@torch.no_grad()
def test_without_numba_torch_is_asked(monkeypatch):
    monkeypatch.setattr(module, "loading_jets", lambda *arguments: None)
    arguments = given(Bernoulli())
    np.testing.assert_array_equal(loading_curve(*arguments).mode, Curve.along(*arguments).mode)
