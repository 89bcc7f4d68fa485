"""Inputs of rows by name: a likelihood of one's own declares one, and fit, results and chains hand it on."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import scipy.sparse
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.likelihoods.base import NOTHING

pytestmark = pytest.mark.usefixtures("hurried_module")

QUICK = {"restarts": 1, "steps": 60, "seed": 0, "progress": False}
N, EDGES = 200, np.repeat(np.eye(2, dtype=bool), 4, axis=0)


class MeasuredBy(ps.likelihoods.Likelihood):
    """Cells with a known error, one for each row: instruments differ."""

    name = "measured_by"
    per_row_inputs = ("error",)

    def forward(self, f, per_row=NOTHING):
        error = per_row.get("error")
        return dist.Normal(f, 0.5 if error is None else error.to(f))

    def mean(self, f, per_row=NOTHING):
        return f

    def check_per_row(self, name, values):
        if (values <= 0).any():
            raise ValueError(f"has {int((values <= 0).sum())} that is not positive, wanted errors")


def problem(seed=1000):
    rng = np.random.default_rng(seed)
    error = np.where(rng.random(N) < 0.5, 0.2, 3.0)
    weight = EDGES * rng.choice([-1, 1], (8, 1))
    x = rng.standard_normal((N, 2)) @ weight.T + error[:, None] * rng.standard_normal((N, 8))
    return x, error


def model():
    return ps.models.SparseDecoder(8, 2, decoder="linear", likelihood=MeasuredBy(), factor_cov=False)


@pytest.fixture(scope="module")
def fitted():
    x, error = problem()
    return ps.fit(model(), x, error=error, **{**QUICK, "steps": 400}), x, error


def test_the_density_is_that_of_the_rows_errors(fitted):
    fit, x, error = fitted
    f = torch.as_tensor(np.random.default_rng(0).standard_normal((1, N, 8)))
    rows = fit.model.likelihood.log_prob(
        f, torch.as_tensor(x), None, {"error": torch.as_tensor(error)[:, None]}
    )
    np.testing.assert_allclose(rows[0], stats.norm.logpdf(x, f[0], error[:, None]).sum(1), rtol=1e-9)


def test_it_goes_with_the_rows(fitted):
    fit, x, error = fitted
    assert fit.settings["per_row"] == {"error": "given"}
    np.testing.assert_allclose(fit.table.per_row["error"][:, 0], error)
    few = fit.table.batch().rows(torch.tensor([3, 7]))
    np.testing.assert_allclose(few.per_row["error"][:, 0], error[[3, 7]], rtol=1e-6)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_allclose(
        fit.transform(x[order], error=error[order]), fit.transform(x, error=error)[order], atol=1e-3
    )


def test_rows_that_say_more_count_for_more(fitted):
    """Scores of rows measured well are near those of a fit to them alone; a fit without errors has worse."""
    fit, x, error = fitted
    well = error < 1
    plain = ps.fit(model(), x, **{**QUICK, "steps": 400})
    assert fit.score(x[well], error=error[well]) > plain.score(x[well])
    spread = fit.transform(x, error=error)[~well].std()
    assert spread < 0.8 * fit.transform(x, error=error)[well].std()  # shrunk to what they tell


@pytest.mark.slow(hurried=True)
def test_chains_read_it(fitted):
    """With the errors the edges are found, though the noise of half of the rows hides them."""
    fit, x, error = fitted
    idata = fit.edge_posterior(sweeps=120, seed=0, X=x, error=error)
    p = idata["edge_posterior"]["probability"].values
    right = max((EDGES, EDGES[:, ::-1]), key=lambda edge: (p * edge).sum())
    assert p[right].min() > 0.95 and p[~right].max() < 0.5


def test_files_and_tables_by_rows_have_it(fitted, tmp_path):
    fit, x, error = fitted
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt", model())
    np.testing.assert_array_equal(loaded.transform(x, error=error), fit.transform(x, error=error))
    sparse = as_table(scipy.sparse.csr_array(x), likelihood=MeasuredBy(), error=error)
    np.testing.assert_allclose(sparse.rows(np.array([5])).per_row["error"], [[error[5]]])


@pytest.mark.parametrize(
    "given, kind, message",
    [
        ({"error": np.zeros(N)}, ValueError, "error: has 200 that is not positive, wanted errors"),
        (
            {"error": np.full(N, np.inf)},
            ValueError,
            "error: is inf in row 0, wanted one finite number",
        ),
        (
            {"error": np.ones(3)},
            ValueError,
            r"error: has shape \(3,\) for 200 rows, wanted one",
        ),
        ({"exposure": np.ones(N)}, ValueError, "exposure: got some, and MeasuredBy has no use for them"),
        ({"eror": np.ones(N)}, TypeError, "unknown setting 'eror'"),
    ],
)
def test_what_it_cannot_be_is_refused_before_the_fit(given, kind, message):
    with pytest.raises(kind, match=message):
        ps.fit(model(), problem()[0], **QUICK, **given)


def test_misspelt_inputs_of_new_rows_are_named(fitted):
    fit, x, error = fitted
    with pytest.raises(TypeError, match="unexpected argument 'eror'; of rows, MeasuredBy takes error"):
        fit.transform(x, eror=error)
    with pytest.raises(ValueError, match="error: got none, and the fit was given its rows'"):
        fit.transform(x)
    with pytest.raises(ValueError, match="error: is of the rows of X, and X was left out"):
        fit.transform(error=error)
