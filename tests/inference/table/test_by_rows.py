"""`ps.fit` of tables read by rows: never whole, same bits again and resumed, same answers as in memory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import pyro_sparse as ps
from pyro_sparse.data import stores
from pyro_sparse.data.read import as_table
from pyro_sparse.data.stores import SparseRows, open_rows
from pyro_sparse.inference.edges.mcmc import sampler
from pyro_sparse.inference.table import by_rows, effects
from pyro_sparse.inference.table.by_rows import frugal, judge
from pyro_sparse.inference.table.effects import total_effects
from pyro_sparse.inference.table.refine import refine
from pyro_sparse.inference.training.elbo import rowwise_elbo
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.likelihoods import Poisson
from pyro_sparse.models import SparseDecoder, sparse_decoder

pytestmark = pytest.mark.usefixtures("hurried_module")


RNG = np.random.default_rng(1000)
LOADINGS = np.repeat(np.eye(2), 6, 0) * 0.8
COUNTS = RNG.poisson(np.exp(0.3 + RNG.normal(size=(300, 2)) @ LOADINGS.T)).astype(np.float32)
SPARSE = sp.csr_matrix(COUNTS)
QUICK = {"restarts": 2, "steps": 20, "batch_size": 20, "evaluate_every": 10, "progress": False}


def model(**options):
    return SparseDecoder(12, 2, likelihood="poisson", hidden=5, encoder_hidden=4, **options)


def quick(x, own=None, **options):
    return ps.fit(own or model(), x, **{**QUICK, **options})


@pytest.fixture(scope="module")
def found():
    return quick(open_rows(SPARSE))


class Watched(SparseRows):
    """Refuses to give more than a third of its rows at once."""

    def rows(self, index, dtype=np.float32):
        assert len(index) <= 100, "asked for the whole table"
        return super().rows(index, dtype)


def same(one, two):
    for (name, a), (_, b) in zip(one.model.state_dict().items(), two.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.heldout_elbo, two.heldout_elbo)


def test_the_whole_table_is_never_asked_for(monkeypatch):
    monkeypatch.setattr(
        "pyro_sparse.data.large_table.LargeTable.rows_together",
        lambda self, least, most, cells=None: min(100, most),
    )
    fit = quick(Watched(SPARSE))
    assert fit.weights.shape == (2, 12, 2) and np.isfinite(fit.elbo).all()
    assert fit.transform(Watched(SPARSE)).shape == (300, 2)
    assert fit.log_likelihood(Watched(SPARSE)).shape == (300,)


def test_the_same_seed_gives_the_same_bits_whatever_holds_the_rows(found, tmp_path):
    same(found, quick(open_rows(SPARSE.tocsc())))
    np.save(tmp_path / "x.npy", COUNTS)
    on_disk = quick(open_rows(tmp_path / "x.npy"))
    np.testing.assert_allclose(on_disk.weights, found.weights, atol=1e-4)
    other = quick(open_rows(SPARSE), seed=1)
    assert not torch.equal(other.model.decoder.first, found.model.decoder.first)


def test_resumed_from_blocks_on_a_disk(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=COUNTS, chunks=(16, 12))
    rows = BlocksOf16(h5py.File(tmp_path / "x.h5")["x"])
    whole = quick(rows, restarts=1)

    class Enough(Exception):
        pass

    def stop(run):
        if run.step == 13:
            raise Enough

    plain = by_rows_run_finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyro_sparse.inference.training.loop.Run.finish", plain(stop))
        with pytest.raises(Enough):
            quick(rows, restarts=1, checkpoint=tmp_path / "run.pt", checkpoint_every=6)
    resumed = quick(rows, restarts=1, checkpoint=tmp_path / "run.pt")
    same(whole, resumed)
    with pytest.raises(ValueError, match="belongs to another fit"):
        quick(open_rows(COUNTS[::-1].copy() + 1), restarts=1, checkpoint=tmp_path / "run.pt")


class BlocksOf16(stores.BlockRows):
    def __init__(self, source):
        super().__init__(source)
        self._blocks(np.append(np.arange(0, len(self), 16), len(self)))
        self.held = 4


def by_rows_run_finish():
    """`Run.finish`, which also asks `stop` after every report."""
    from pyro_sparse.inference.training.loop import Run

    usual = Run.finish

    def plain(stop):
        def finish(self, report=None):
            usual(self, lambda run: (report(run), stop(run)))

        return finish

    return plain


def test_rows_kept_aside_are_few(monkeypatch, found):
    for rows in (open_rows(SPARSE), COUNTS):
        assert as_table(rows, likelihood=model().likelihood).most_judged == 2000
    monkeypatch.setattr("pyro_sparse.data.large_table.FEWEST_JUDGED", 7)
    monkeypatch.setattr("pyro_sparse.data.large_table.MOST_JUDGED", 7)
    monkeypatch.setattr("pyro_sparse.data.table.MOST_JUDGED", 5)
    seen = []
    monkeypatch.setattr(
        "pyro_sparse.inference.table.further_restarts.judge",
        lambda whole, train, heldout, *how: (
            seen.append((len(train), len(heldout))) or judge(whole, train, heldout, *how)
        ),
    )
    quick(open_rows(SPARSE), steps=2)
    quick(COUNTS, steps=2)
    assert seen == [(293, 7), (295, 5)]


@pytest.mark.slow(hurried=True)
def test_factors_of_new_rows_in_pieces(found, monkeypatch):
    whole = found.transform(COUNTS, refine=False)
    monkeypatch.setattr(by_rows, "JUDGED_CELLS", 0)
    monkeypatch.setattr("pyro_sparse.inference.table.result.JUDGED_CELLS", 9 * 12)
    np.testing.assert_allclose(found.transform(open_rows(SPARSE)), whole, atol=1e-5)
    np.testing.assert_allclose(
        found.transform(open_rows(SPARSE[:30]), refine=True), found.transform(COUNTS[:30]), atol=0.3
    )
    apart = found.log_likelihood(open_rows(SPARSE), num_draws=200)
    np.testing.assert_allclose(apart.mean(), found.log_likelihood(COUNTS, num_draws=200).mean(), rtol=0.01)
    assert found.score(open_rows(SPARSE)) == pytest.approx(found.score(COUNTS), rel=0.02)


def test_answers_that_would_be_dense_are_refused(found):
    for method in ("predict", "impute"):
        with pytest.raises(ValueError, match=rf"dense table of 300 x 12 cells.*fit.{method}\(X\[:1000\]\)"):
            getattr(found, method)(open_rows(SPARSE))
    with pytest.raises(ValueError, match="is read by rows, and this wants a table in memory"):
        ps.plots.plot_predictive(found, open_rows(SPARSE))
    assert found.excess_cov is None and found.predict(COUNTS[:3]).shape == (3, 12)


def test_saved_and_loaded(found, tmp_path):
    found.save(tmp_path / "fit.pt")
    np.testing.assert_array_equal(
        ps.load(tmp_path / "fit.pt").transform(COUNTS, refine=False), found.transform(COUNTS, refine=False)
    )


def test_edges_by_chains_on_a_sample_or_a_score_that_says_why(found, monkeypatch):
    options = {"num_draws": 5, "sweeps": 13, "warm_up": 3}
    sampled = found.edge_posterior("mcmc", max_rows=60, **options)
    assert sampled.attrs["rows_used"] == 60 and not sampled.attrs["is_score"]
    monkeypatch.setattr(sampler, "MOST_GB", 0)
    monkeypatch.setattr("pyro_sparse.inference.edges.MOST_GB", 0)
    with pytest.raises(ValueError, match='chains over 60 rows of 12 features.*smaller max_rows.*"score"'):
        found.edge_posterior("mcmc", max_rows=60)
    scored = found.edge_posterior("auto", num_draws=11)
    assert scored.attrs["is_score"] and "small max_rows" in scored.attrs["chosen_because"]


def test_effects_of_a_sample_are_the_effects(found, monkeypatch):
    table = as_table(open_rows(SPARSE), likelihood=found.model.likelihood)
    train = table.part(np.arange(300), "cpu", torch.float32)
    plain = as_table(COUNTS, likelihood=found.model.likelihood).batch()
    monkeypatch.setattr("pyro_sparse.data.large_table.JUDGED_CELLS", 70 * 12)
    monkeypatch.setattr(effects, "CELLS", 10**9)
    torch.manual_seed(0)
    for one, two in zip(total_effects(found.model, train), total_effects(found.model, plain), strict=True):
        np.testing.assert_allclose(one, two, atol=0.15 * np.abs(two).max() + 1e-6)


def test_judging_looks_at_a_sample_and_never_makes_a_bound_worse(found):
    table = as_table(open_rows(SPARSE), likelihood=found.model.likelihood)
    train = table.part(np.arange(300), "cpu", torch.float32)
    aside = table.rows(np.arange(40)).batch()
    torch.manual_seed(0)
    rows, held = judge(found.model, train, aside)
    torch.manual_seed(0)
    plain = rowwise_elbo(found.model, aside, num_draws=64).numpy()
    assert rows.shape == (2, 300) and held.shape == (2, 40)
    assert (held.mean(1) > plain.mean(1) - 0.1).all()
    assert judge(found.model, train, None)[1] is None


def test_a_frugal_model_climbs_the_same_way(found, monkeypatch):
    monkeypatch.setattr(sparse_decoder, "CHUNKED_FROM", 0)
    one, batch = pick(found.model, [0]), as_table(COUNTS, likelihood=found.model.likelihood).batch()
    torch.manual_seed(0)
    usual = refine(one, batch, steps=5)
    torch.manual_seed(0)
    with frugal(one) as same_model:
        mean = refine(same_model, batch, steps=5).mean
    torch.testing.assert_close(mean, usual.mean, rtol=1e-4, atol=1e-5)
    assert "decode" not in vars(one)


@pytest.mark.filterwarnings("ignore:X. (all cells are whole|columns are of several kinds):RuntimeWarning")
@pytest.mark.parametrize("name", ["normal", "negative_binomial", "multinomial"])
def test_other_likelihoods(name):
    own = SparseDecoder(12, 2, likelihood=name, hidden=5, encoder_hidden=4)
    assert np.isfinite(quick(open_rows(SPARSE), own, restarts=1).heldout_elbo).all()


def test_missing_cells_of_a_dense_store():
    holes = np.where(np.random.default_rng(1).random(COUNTS.shape) < 0.1, np.nan, COUNTS)
    fit = quick(open_rows(holes), restarts=1)
    assert fit.model.missing and np.isfinite(fit.elbo).all()


def test_large_sparse_data_are_read_by_rows_unasked(monkeypatch):
    monkeypatch.setattr(stores, "LARGE", 100)
    fit = quick(SPARSE, restarts=1, steps=2)
    assert type(fit.table).__name__ == "LargeTable"
    assert type(quick(COUNTS, restarts=1, steps=2).table).__name__ == "Table"


@pytest.mark.slow
def test_it_finds_the_graph_that_a_table_in_memory_gives():
    """Without size factors: given the rows' totals, two factors of equal weights are one contrast."""
    settings = {"restarts": 2, "steps": 600, "batch_size": 60, "progress": False}
    truth = LOADINGS > 0
    for data in (COUNTS, open_rows(SPARSE)):
        fit = ps.fit(SparseDecoder(12, 2, likelihood=Poisson(size_factors=False)), data, **settings)
        edges = fit.weights[fit.best] != 0
        assert (edges == truth).all() or (edges == truth[:, ::-1]).all()
