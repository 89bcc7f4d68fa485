"""Likelihoods that users write: right ones pass the battery, and their fits leave missing cells out."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import nn

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.data.stores import open_rows
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.likelihoods import Likelihood
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.testing import LikelihoodTestCase

pytestmark = pytest.mark.usefixtures("hurried_module")


def log_mean(f):
    return f.clamp(-30, 30)


class Gamma(Likelihood):
    """Positive numbers of one shape per feature; at 0 the density is infinite, 0 or undefined."""

    name = "gamma"
    separable = True
    filler = 1.0

    def setup(self, n_features, n_restarts=1):
        self.log_shape = nn.Parameter(torch.full((n_restarts, 1, n_features), 0.5))

    def forward(self, f, per_row=NOTHING):
        shape = self.log_shape.exp()
        return dist.Gamma(shape.expand_as(f), shape / log_mean(f).exp())

    def mean(self, f, per_row=NOTHING):
        return log_mean(f).exp()

    def intercept(self, total, seen, exposed):
        return torch.log(total / seen.clamp(min=1))

    def encoder_view(self, x, per_row=NOTHING):
        return x.log()


class LogNormal(Gamma):
    name = "lognormal"

    def forward(self, f, per_row=NOTHING):
        return dist.LogNormal(log_mean(f), (-self.log_shape).exp().expand_as(f))

    def mean(self, f, per_row=NOTHING):
        return (log_mean(f) + (-2 * self.log_shape).exp() / 2).exp()

    def start(self, x, mask=None):
        start = torch.as_tensor(x).log().nanmean(0)
        return start if isinstance(x, torch.Tensor) else start.numpy()


class Beta(Likelihood):
    """Shares, of mean logistic(f)."""

    name = "beta"
    separable = True
    filler = 0.5

    def forward(self, f, per_row=NOTHING):
        mean = self.mean(f)
        return dist.Beta(9 * mean, 9 * (1 - mean))

    def mean(self, f, per_row=NOTHING):
        return torch.sigmoid(f.clamp(-10, 10))

    def intercept(self, total, seen, exposed):
        return torch.logit(total / seen.clamp(min=1))


class StudentT(Likelihood):
    name = "student_t"
    separable = True

    def forward(self, f, per_row=NOTHING):
        return dist.StudentT(4.0, f, 0.5)

    def mean(self, f, per_row=NOTHING):
        return f


class Binomial(Likelihood):
    """Successes of seven trials."""

    name = "binomial"
    separable = True

    def forward(self, f, per_row=NOTHING):
        return dist.Binomial(7, logits=f)

    def mean(self, f, per_row=NOTHING):
        return 7 * torch.sigmoid(f)

    def intercept(self, total, seen, exposed):
        return torch.logit((total + 0.5) / (7 * seen + 1))


class TestGamma(LikelihoodTestCase):
    def make(self):
        return Gamma()


class TestLogNormal(LikelihoodTestCase):
    def make(self):
        return LogNormal()


class TestBeta(LikelihoodTestCase):
    def make(self):
        return Beta()


class TestStudentT(LikelihoodTestCase):
    def make(self):
        return StudentT()


class TestBinomial(LikelihoodTestCase):
    def make(self):
        return Binomial()


# ---- fits with missing cells -----------------------------------------------------------------------------
SUPPORT = np.zeros((8, 2), dtype=bool)
SUPPORT[:4, 0] = SUPPORT[4:, 1] = True


def table(likelihood, n=300):
    """Draws of two factors; half the features follow either."""
    rng = np.random.default_rng(0)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        f = torch.as_tensor(rng.normal(size=(1, n, 2)) @ SUPPORT.T * 0.9)
        likelihood.setup(8)
        x = likelihood(f).sample()[0].double().numpy()
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def test_missing_cells_hold_the_filler(tmp_path):
    x = table(Gamma())
    np.save(tmp_path / "x.npy", x)
    whole = as_table(x, likelihood=Gamma())
    large = as_table(open_rows(tmp_path / "x.npy"), likelihood=Gamma())
    hidden = np.isnan(x)
    for found in (whole, large.rows(np.arange(len(x)))):
        assert (found.x[hidden] == 1).all() and (found.inputs[hidden] == 0).all()
        np.testing.assert_allclose(found.x[~hidden], x[~hidden], rtol=1e-6)
    for found in (whole, large):  # nobody counts it as a measurement
        start = found.intercept(Gamma(), np.arange(len(x)))
        np.testing.assert_allclose(start, np.log(np.nanmean(x, 0)), rtol=1e-6)
    sequences = as_sequences([x[:30], x[30:50]], likelihood=Gamma())
    assert (sequences.x[~sequences.mask] == 1).all() and sequences.x.shape == (2, 30, 8)
    np.testing.assert_array_equal(sequences.x[1, :20][~hidden[30:50]], x[30:50][~hidden[30:50]])


def test_cells_that_are_missing_have_no_slope():
    """Whatever they hold: here a value of infinite density."""
    likelihood = AtZero()
    likelihood.setup(3)
    x = torch.tensor([[[0.0, 2.0], [1.0, 0.0], [3.0, 4.0]]])
    seen, f = (x > 0).float(), torch.full((1, 3, 2), 0.3)
    cells = Cells(x, seen, {}, likelihood)
    each, slope, bend = cells.expanded(f, torch.ones(1, 3))
    shape = float(likelihood.log_shape.detach()[0, 0, 0].exp())
    ratio = shape * x[0].numpy() / np.exp(0.3)
    want = stats.gamma.logpdf(np.where(x[0] > 0, x[0], 1), shape, scale=np.exp(0.3) / shape)
    for found, wanted in ((each, want), (slope, ratio - shape), (bend, ratio)):
        np.testing.assert_allclose(found[0].detach(), np.where(seen[0] > 0, wanted, 0), rtol=1e-5)


class AtZero(Gamma):
    """Leaves missing cells at 0, where its density is not finite."""

    filler = 0.0


@pytest.mark.slow(hurried=True)
@pytest.mark.parametrize("kind", [Gamma, AtZero, LogNormal, Beta])
def test_missing_cells_cost_no_edges(kind):
    x = table(kind())
    model = ps.models.SparseDecoder(8, 2, likelihood=kind(), decoder="linear")
    fit = ps.fit(model, x, restarts=1, steps=400, seed=0, progress=False)
    found = fit.weights[0] != 0
    assert (found == SUPPORT).all() or (found == SUPPORT[:, ::-1]).all()


class Outside(LogNormal):
    filler = 0.0


class ToNowhere(LogNormal):
    """As above, where nothing looks at the support."""

    filler = 0.0

    def forward(self, f, per_row=NOTHING):
        return dist.LogNormal(log_mean(f), (-self.log_shape).exp().expand_as(f), validate_args=False)


@pytest.mark.parametrize("kind", [Outside, ToNowhere])
def test_a_filler_that_spoils_the_fit_is_named(kind):
    x = table(LogNormal(), 60)
    model = ps.models.SparseDecoder(8, 2, likelihood=kind(), decoder="linear")
    with pytest.raises(ValueError, match=f"{kind.__name__}.filler: missing cells hold 0, .*inside the sup"):
        ps.fit(model, x, restarts=1, steps=5, progress=False)
    dynamic = ps.models.LatentTransition(8, 2, likelihood=kind())
    with pytest.raises(ValueError, match=f"{kind.__name__}.filler"):
        dynamic.setup(missing=True)
    ps.fit(model, np.nan_to_num(x, nan=1.0), restarts=1, steps=5, progress=False)


@pytest.mark.slow
def test_chains_leave_missing_cells_out():
    x = table(Beta(), 100)
    model = ps.models.SparseDecoder(8, 2, likelihood=Beta(), decoder="linear")
    fit = ps.fit(model, x, restarts=1, steps=300, seed=0, progress=False)
    p = ps.edge_prob(fit.edge_posterior("mcmc", sweeps=60, warm_up=20, num_draws=20)).to_numpy()
    truth = SUPPORT if p[:4, 0].sum() > p[:4, 1].sum() else SUPPORT[:, ::-1]
    assert p[truth].mean() > p[~truth].mean() + 0.5
