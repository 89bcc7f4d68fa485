"""Depth of rows from the table alone: against moments of a log-normal Poisson, and by hand."""

import itertools

import numpy as np
import pytest
import torch
from scipy import sparse

from pyro_sparse.data.read import as_table
from pyro_sparse.data.stores import open_rows
from pyro_sparse.likelihoods import NegativeBinomial, Poisson
from pyro_sparse.likelihoods.row_depth import common_variance, depth_share


def counts(depth, rows=2000, features=24, extra=None, seed=0):
    rng = np.random.default_rng(seed)
    z, edge = rng.standard_normal((rows, 3)), rng.random((features, 3)) < 0.25
    weight = edge * rng.choice([-1, 1], edge.shape) * rng.uniform(0.4, 0.8, edge.shape)
    rate = np.exp(z @ weight.T + rng.uniform(0, 2, features) + depth * rng.standard_normal((rows, 1)))
    if extra:
        rate = rate * rng.gamma(extra, 1 / extra, rate.shape)
    return torch.as_tensor(rng.poisson(rate).astype(float))


@pytest.mark.parametrize("extra", [None, 2.0])
@pytest.mark.parametrize("depth", [0.0, 0.3, 0.7])
def test_variance_of_log_depths_is_found_among_factors_and_noise(depth, extra):
    found = [common_variance(counts(depth, extra=extra, seed=seed)) for seed in range(8)]
    assert np.mean(found) == pytest.approx(depth**2, rel=0.15, abs=0.01)


def test_weighted_median_by_hand():
    rng = np.random.default_rng(0)
    x = rng.poisson([3.0, 8.0, 1.0, 5.0], (60, 4)) * (1.0 + rng.integers(0, 3, (60, 1)))
    x[rng.random(x.shape) < 0.2] = np.nan
    mean = np.nanmean(x, 0)
    off = [np.where(np.isnan(x[:, j]), 0.0, x[:, j] / mean[j] - 1) for j in range(4)]
    seen = ~np.isnan(x)
    variance = [off[j] @ off[j] / seen[:, j].sum() for j in range(4)]
    pairs = []
    for j, k in itertools.combinations(range(4), 2):
        n = (seen[:, j] & seen[:, k]).sum()
        pairs.append((off[j] @ off[k] / n, np.sqrt(n / (variance[j] * variance[k]))))
    pairs.sort()
    half = sum(weight for _, weight in pairs) / 2
    reached = np.cumsum([weight for _, weight in pairs])
    wanted = np.log1p(max(pairs[int((reached >= half).argmax())][0], 0))
    assert common_variance(torch.as_tensor(x)) == pytest.approx(wanted) and wanted > 0


def test_share_is_that_of_the_log_totals():
    x = counts(0.5)
    totals = x.sum(1, keepdim=True)
    spread = totals.log().var().item() - (1 / totals).mean().item()
    assert depth_share(x, totals) == pytest.approx(common_variance(x) / spread)
    assert depth_share(x, torch.full_like(totals, 7.0)) == 0
    assert depth_share(x[:, :1], x[:, :1]) == 0  # one feature: nothing to compare
    empty = torch.cat([totals, torch.zeros(5, 1, dtype=totals.dtype)])
    assert depth_share(x, empty) == pytest.approx(depth_share(x, totals))


@pytest.mark.parametrize(("rows", "features"), [(60, 8), (300, 40)])
def test_totals_that_are_counting_noise_are_no_depth(rows, features):
    tables = [torch.as_tensor(np.random.default_rng(s).poisson(1.0, (rows, features))) for s in range(20)]
    shares = [depth_share(x.double(), x.sum(1, keepdim=True)) for x in tables]
    assert np.mean(np.array(shares) >= 0.5) <= 0.05


def test_only_rows_that_differ_in_depth_have_size_factors():
    flat, deep = counts(0.0), counts(0.6)
    for kind in (Poisson, NegativeBinomial):
        likelihood = kind()
        likelihood.setup(24)
        assert likelihood.default_per_row(flat) == {} and not likelihood.takes_totals
        assert likelihood.default_per_row(deep) == {}  # the training table has decided
        likelihood.calibrate(deep)
        torch.testing.assert_close(likelihood.default_per_row(deep), kind(True).default_per_row(deep))
        assert kind(True).takes_totals and not kind(False).takes_totals


def test_other_readings_of_a_table_say_the_same():
    x = counts(0.4, rows=5000).numpy()
    dense, by_rows = Poisson(), Poisson()
    as_table(x, likelihood=dense)
    as_table(open_rows(sparse.csr_array(x)), likelihood=by_rows)
    assert float(dense.depth) == pytest.approx(float(by_rows.depth)) and 0.5 < float(dense.depth) <= 1
