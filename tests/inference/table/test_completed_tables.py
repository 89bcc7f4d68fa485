"""Missing cells drawn: closed forms, quadrature, units and words, pooled intervals that cover, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student_t

import pyro_sparse as ps
from pyro_sparse.inference.table.normal_rows import drawn_cells
from pyro_sparse.inference.training.restarts import pick

pytestmark = pytest.mark.usefixtures("hurried_module")

W = np.array([[1.0, 0], [0.8, 0], [0.9, 0], [0, 1.0], [0, -0.9], [0.5, 0.7]])
C = np.array([[1.0, 0.4], [0.4, 1.0]])
QUICK = {"restarts": 1, "seed": 0, "progress": False}


def linear(likelihood="normal", n_factors=2, **kwargs):
    return ps.models.SparseDecoder(n_factors=n_factors, decoder="linear", likelihood=likelihood, **kwargs)


def normal_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.multivariate_normal([0, 0], C, size=n) @ W.T + 0.7 * rng.normal(size=(n, 6))


@pytest.fixture(scope="module")
def normal():
    x = 10 + 3 * normal_rows(300)
    x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    x[np.isnan(x).all(1), 0] = 10.0
    frame = pd.DataFrame(x, columns=list("abcdef"))
    return ps.fit(linear(), frame, steps=300, n_factors_init=[2], **QUICK), frame


def conditional(fit, row):
    """Mean and covariance of a row's missing cells, from the parameters, in the caller's units."""
    best = pick(fit.model, [fit.best])
    w, cov = best.weights[0].detach().double().numpy(), best.factor_cov[0].double().numpy()
    noise = best.likelihood.noise_sd()[0, 0].detach().double().numpy()
    scale = fit.table.scale
    whole = (w @ cov @ w.T + np.diag(noise**2) + fit.excess_cov) * np.outer(scale, scale)
    mean = fit.table.centre + scale * best.decoder.intercept[0, 0].detach().double().numpy()
    h = np.isnan(row)
    gain = whole[h][:, ~h] @ np.linalg.inv(whole[~h][:, ~h])
    return mean[h] + gain @ (row - mean)[~h], whole[h][:, h] - gain @ whole[~h][:, h]


def test_normal_cells_are_drawn_from_the_conditional_normal(normal):
    fit, frame = normal
    some = frame[frame.isna().sum(axis=1) == 2][:5]
    tables = fit.impute(some.to_numpy(), draws=2000, seed=3)
    assert isinstance(tables, list) and len(tables) == 2000
    cells = np.stack(tables)
    for i, row in enumerate(some.to_numpy()):
        drawn = cells[:, i, np.isnan(row)]
        mean, covariance = conditional(fit, row)
        error = np.sqrt(np.diag(covariance) / 2000)
        np.testing.assert_allclose((drawn.mean(0) - mean) / error, 0, atol=4)
        np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.12 * np.diag(covariance).max())
        np.testing.assert_array_equal(cells[:, i, ~np.isnan(row)], np.tile(row[~np.isnan(row)], (2000, 1)))


def test_their_mean_is_what_is_filled_in_once(normal):
    fit, frame = normal
    once, hole = fit.impute(frame).to_numpy(), frame.isna().to_numpy()
    cells = np.stack([table.to_numpy() for table in fit.impute(frame, draws=400, seed=0)])
    off = (cells.mean(0) - once)[hole] / (cells.std(0)[hole] / 20)
    assert np.abs(off).max() < 5 and 0.8 < off.std() < 1.25


def test_a_seed_says_which_draws_and_frames_are_the_callers(normal):
    fit, frame = normal
    turned = frame[list("fedcba")].rename(index=lambda i: f"row {i}")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = (fit.impute(turned, draws=2, seed=s) for s in (0, 0, 1))
    assert bool((torch.get_rng_state() == state).all())
    for one, two in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one, two)
        assert list(one.columns) == list("fedcba") and one.index[0] == "row 0"
        pd.testing.assert_frame_equal(one.where(turned.notna()), turned, check_exact=True)
    assert not first[0].equals(first[1]) and not first[0].equals(other[0])
    arrays = fit.impute(frame.to_numpy(), draws=2, seed=0)
    assert isinstance(arrays[0], np.ndarray)
    np.testing.assert_array_equal(arrays[1], first[1][list("abcdef")].to_numpy())
    pd.testing.assert_frame_equal(fit.impute(frame.fillna(1.0), draws=2)[1], frame.fillna(1.0))


def test_rows_of_one_pattern_are_drawn_together_and_apart():
    rng = np.random.default_rng(0)
    covariance = W @ C @ W.T + 0.49 * np.eye(6)
    x = rng.multivariate_normal(np.arange(6.0), covariance, size=3)
    mask = np.array([[1, 1, 0, 0, 1, 1], [0] * 6, [1] * 6], dtype=bool)
    drawn = drawn_cells(x, mask, np.arange(6.0), covariance, 20_000, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn[:, 2], np.tile(x[2], (20_000, 1)))
    np.testing.assert_allclose(drawn[:, 1].mean(0), np.arange(6.0), atol=0.05)  # nothing seen: the marginal
    np.testing.assert_allclose(np.cov(drawn[:, 1].T), covariance, atol=0.06)
    assert abs(np.corrcoef(drawn[:, 0, 2], drawn[:, 1, 2])[0, 1]) < 0.03  # rows are independent


# ---- other likelihoods -------------------------------------------------------------------------------------
@pytest.mark.slow(hurried=True)
@pytest.mark.parametrize("kind", ["bernoulli", "ordinal", "poisson"])
def test_other_cells_have_the_moments_that_quadrature_gives(kind):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(150, 1)) * np.linspace(0.8, 1.6, 8)
    x = {
        "bernoulli": (f + rng.logistic(size=f.shape) > 0).astype(float),
        "ordinal": np.digitize(f + rng.logistic(size=f.shape), [-1.0, 0.5, 2.0]).astype(float) + 1,
        "poisson": rng.poisson(np.exp(0.5 + 0.5 * f)).astype(float),
    }[kind]
    likelihood = ps.likelihoods.Poisson(size_factors=False) if kind == "poisson" else kind
    fit = ps.fit(linear(likelihood, 1), x, steps=200, **QUICK)
    holes = x[:3].copy()
    holes[:, 5] = np.nan
    cells = np.stack(fit.impute(holes, draws=2000, seed=0))[:, :, 5]
    grid = torch.linspace(-6, 6, 1201).view(1, -1, 1)
    best = pick(fit.model, [fit.best])
    at, like = best.decode(grid, best.weights), best.likelihood
    seen = torch.tensor([j != 5 for j in range(8)])
    numbers = torch.arange(60.0).view(-1, 1, 1) if kind == "poisson" else torch.arange(4.0).view(-1, 1, 1)
    if kind == "bernoulli":
        numbers = numbers[:2]
    each = like(at).log_prob(numbers.expand(-1, 1201, 8)).detach().double().exp()[..., 5]  # number, grid
    for i in range(3):
        row = torch.nan_to_num(torch.as_tensor(holes[i] - fit.table.centre, dtype=torch.float32))
        log_p = like.log_prob(at, row.expand(1201, -1), seen.expand(1201, -1))[0].detach().double()
        weight = torch.softmax(log_p - 0.5 * grid[0, :, 0].double() ** 2, 0)
        p = (each @ weight).numpy()
        level = numbers.flatten().double().numpy() + fit.table.centre[5]
        mean = p @ level
        sd = np.sqrt(p @ (level - mean) ** 2)
        assert abs(cells[:, i].mean() - mean) < 0.08 * sd + 4 * sd / np.sqrt(2000)
        assert cells[:, i].std() == pytest.approx(sd, rel=0.1)
        assert set(cells[:, i]) <= set(level)


def test_curved_decoders_are_drawn_around_what_is_filled_in_once(normal):
    _, frame = normal
    fit = ps.fit(ps.models.SparseDecoder(n_factors=2), frame, steps=60, **QUICK)
    some = frame[frame.isna().any(axis=1)][:8]
    hole, once = some.isna().to_numpy(), fit.impute(some).to_numpy()
    cells = np.stack(fit.impute(some.to_numpy(), draws=500))
    sd, noise = cells.std(0)[hole], np.tile(fit.noise_sd, (8, 1))[hole]
    assert (np.abs(cells.mean(0) - once)[hole] < 0.3 * sd).all()
    assert (sd > 0.9 * noise).all()


def test_counts_go_with_their_exposure():
    rng = np.random.default_rng(0)
    time = rng.uniform(1, 9, size=120)
    x = rng.poisson(time[:, None] * np.exp(0.4 * rng.normal(size=(120, 1)) + np.zeros(5))).astype(float)
    fit = ps.fit(linear("poisson", 1), x, exposure=time, steps=100, **QUICK)
    ends = time.argsort()[[0, -1]]
    holes = x[ends]
    holes[:, 0] = np.nan
    cells = np.stack(fit.impute(holes, draws=800, exposure=time[ends]))[:, :, 0]
    want = fit.predict(holes, exposure=time[ends])[:, 0]
    np.testing.assert_allclose(cells.mean(0), want, rtol=0.1)
    assert (cells == cells.round()).all() and cells[:, 1].mean() > 3 * cells[:, 0].mean()
    with pytest.raises(ValueError, match="exposure: got none"):
        fit.impute(holes, draws=2)


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(200, 2)) @ np.kron(np.eye(2), np.ones((1, 3)))
    site = rng.choice(list("pq"), 200)
    words = ["never", "often", "always"]
    table = pd.DataFrame({
        "height": 170 + 8 * f[:, 0] + 3 * rng.normal(size=200) + 30 * (site == "p"),
        "mood": pd.Categorical.from_codes(
            np.digitize(f[:, 1] + rng.logistic(size=200), [-1, 1]), words, ordered=True
        ),
        "smokes": pd.array(f[:, 2] + rng.logistic(size=200) > 0, dtype="boolean"),
        "visits": pd.array(rng.poisson(np.exp(1 + 0.6 * f[:, 3])), dtype="Int64"),
        "share": 1 / (1 + np.exp(-f[:, 4] - 0.4 * rng.normal(size=200))),
        "weight": 70 + 9 * f[:, 5] + 3 * rng.normal(size=200),
        "site": site,
    })  # fmt: skip
    for name in table.columns[:-1]:
        table.loc[rng.random(200) < 0.1, name] = pd.NA if name in ("smokes", "visits") else np.nan
    table = table[table.iloc[:, :6].notna().any(axis=1)]
    kinds = {"mood": "ordinal", "smokes": "bernoulli", "visits": "poisson", "share": "beta", "*": "normal"}
    return ps.fit(linear(kinds), table, groups="site", steps=150, **QUICK), table


def test_columns_of_several_kinds_are_drawn_as_they_are_given(mixed):
    fit, table = mixed
    tables = fit.impute(table, draws=40, seed=2)
    for drawn in tables:
        assert (drawn.dtypes == table.dtypes).all() and drawn.notna().all(axis=None)
        for name in table.columns:
            seen = table[name].notna()
            assert (drawn[name][seen] == table[name][seen]).all()
    assert ((0 < tables[0]["share"]) & (tables[0]["share"] < 1)).all()
    hole = table["mood"].isna()
    assert {str(word) for drawn in tables for word in drawn["mood"][hole]} == {"never", "often", "always"}
    hole = table["height"].isna()  # groups keep their own means
    by_site = pd.concat([t[hole] for t in tables]).groupby("site")["height"].mean()
    assert 20 < by_site["p"] - by_site["q"] < 40


def test_views_are_completed_as_one_table():
    x = normal_rows(120, seed=4)
    views = {
        "u": pd.DataFrame(x[:90, :3], index=[f"r{i}" for i in range(90)], columns=list("abc")),
        "v": pd.DataFrame(x[30:, 3:], index=[f"r{i}" for i in range(30, 120)], columns=list("def")),
    }
    fit = ps.fit(linear(), views, steps=60, **QUICK)
    one, two = fit.impute(views, draws=2)
    joined = ps.join_views(views)
    assert one.shape == (120, 6) and not one.isna().any(axis=None) and not one.equals(two)
    pd.testing.assert_frame_equal(one.where(joined.notna()), joined, check_exact=True)


# ---- with the chains' draws --------------------------------------------------------------------------------
@pytest.mark.slow(hurried=True)
def test_draws_of_the_parameters_add_what_they_leave_open(normal):
    fit, _ = normal
    rows = pd.DataFrame(10 + 3 * normal_rows(40, 5), columns=list("abcdef"))
    few = ps.fit(linear(), rows, steps=200, n_factors_init=[2], **QUICK)
    idata = few.edge_posterior(sweeps=160, warm_up=60, chains=2)
    holes = np.full((1, 6), np.nan)
    holes[0, [1, 3]] = 16.0, 4.0
    given = np.stack(few.impute(holes, draws=600, seed=0))[:, 0]
    drawn = np.stack(few.impute(holes, draws=600, seed=0, idata=idata))[:, 0]
    np.testing.assert_array_equal(drawn[:, [1, 3]], given[:, [1, 3]])
    wider = drawn[:, [0, 2, 4, 5]].std(0) / given[:, [0, 2, 4, 5]].std(0)
    assert wider.mean() > 1.05
    np.testing.assert_array_equal(
        drawn[:5], np.stack(few.impute(holes, draws=600, seed=0, idata=idata))[:5, 0]
    )
    with pytest.raises(ValueError, match="idata: is the edge posterior of another fit"):
        fit.impute(holes, draws=2, idata=idata)
    with pytest.raises(ValueError, match="idata: got one, and draws was left out"):
        fit.impute(holes, idata=idata)


def pooled(tables, estimate):
    """Mean, and the ends of a 95 % interval, by Rubin's rules."""
    values, squares = zip(*(estimate(np.asarray(table)) for table in tables), strict=True)
    m, between = len(tables), np.var(values, ddof=1)
    total = np.mean(squares) + (1 + 1 / m) * between
    freedom = (m - 1) * (total / ((1 + 1 / m) * between)) ** 2
    half = student_t.ppf(0.975, freedom) * np.sqrt(total)
    return np.mean(values) - half, np.mean(values) + half


@pytest.mark.slow
def test_pooled_intervals_cover():
    """Mean and variance of a column that is missing where another is high; filled in once they do not."""
    truth = (0.0, (W @ C @ W.T)[0, 0] + 0.49)

    def mean(x):
        return x[:, 0].mean(), x[:, 0].var(ddof=1) / len(x)

    def variance(x):
        return x[:, 0].var(ddof=1), 2 * x[:, 0].var(ddof=1) ** 2 / (len(x) - 1)

    inside, of_one = [], []
    for seed in range(1000, 1024):
        x, rng = normal_rows(150, seed), np.random.default_rng(seed)
        x[rng.random(150) < 1 / (1 + np.exp(0.6 - 1.5 * x[:, 3])), 0] = np.nan
        x[rng.random(150) < 0.15, 1] = np.nan
        fit = ps.fit(linear(), x, steps=300, n_factors_init=[2], **QUICK)
        idata = fit.edge_posterior(sweeps=250, warm_up=100, chains=2)
        tables = fit.impute(x, draws=20, seed=seed, idata=idata)
        once = fit.impute(x)
        for true, estimate in zip(truth, (mean, variance), strict=True):
            low, high = pooled(tables, estimate)
            inside.append(low < true < high)
            value, square = estimate(once)
            of_one.append(abs(value - true) < 1.96 * np.sqrt(square))
    assert np.mean(inside) > 0.85 and np.mean(of_one) < 0.8


# ---- refusals ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws: want a whole number of at least 1"),
        ({"draws": 2, "seed": -1}, "seed: want a whole number of at least 0"),
        ({"draws": 10**6}, r"draws: 1000000 tables of 300 x 6 cells would take 14.4 GB, wanted at most 1.6"),
        ({"draws": 2, "exposure": np.ones(300)}, "exposure: got some, and Normal has no use for them"),
    ],
)
def test_what_cannot_be_drawn_is_said(normal, options, message):
    fit, frame = normal
    with pytest.raises(ValueError, match=message):
        fit.impute(frame, **options)


def test_likelihoods_of_shares_and_factors_that_are_not_normal_are_refused():
    x = np.random.default_rng(0).poisson(3, (60, 4)).astype(float)
    x[3, 1] = np.nan
    for kind, table in (("multinomial", x), ("categorical", np.where(np.isnan(x), np.nan, x > 3))):
        fit = ps.fit(linear(kind, 1), table, steps=5, **QUICK)
        with pytest.raises(ValueError, match=f"draws: '{kind}' shares out a row's total"):
            fit.impute(table, draws=2)
    fit = ps.fit(ps.rivals.VSC(4, 2), np.nan_to_num(x) + 0.5, steps=5, **QUICK)
    with pytest.raises(ValueError, match="draws: factors of a VSC are no normal variables"):
        fit.impute(x, draws=2)


def test_a_loaded_fit_draws_the_same_but_has_no_rows_for_intercepts(normal, tmp_path):
    fit, frame = normal
    fit.save(tmp_path / "a.fit")
    loaded = ps.load(tmp_path / "a.fit")
    for one, two in zip(fit.impute(frame, draws=2), loaded.impute(frame, draws=2), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
    idata = fit.edge_posterior(sweeps=30, warm_up=10, chains=2)
    with pytest.raises(ValueError, match="idata: intercepts want the rows of the fit"):
        loaded.impute(frame, draws=2, idata=idata)
    again = loaded.with_data(frame).impute(frame, draws=2, idata=idata)
    np.testing.assert_allclose(again[0], fit.impute(frame, draws=2, idata=idata)[0], rtol=1e-5)
