"""Right draws pass at the nominal rate, exact posteriors among them; wrong priors and too sure draws fail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from pyro_sparse.calibrate import graph_statistics, sbc, value_statistics
from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior


def quick(*args, **options):
    return sbc(*args, progress=False, **{"n_data_sets": 100, "num_draws": 31, **options})


def simulate(rng):
    """Edges that share a rate, seen through one noisy measurement each."""
    edge = rng.random((4, 3)) < rng.beta(2, 2)
    return edge, edge + rng.normal(size=edge.shape)


def infer_with(a=2.0, b=2.0, sharpness=1.0, draws=31):
    """Exact posterior over the rate (a grid) and the edges under a Beta(a, b) prior."""
    grid = (np.arange(200) + 0.5) / 200

    def infer(y, rng):
        odds = np.exp(sharpness * (y - 0.5))[..., None] * grid / (1 - grid)
        log = np.log((1 - grid) * (1 + odds)).sum((0, 1)) + (a - 1) * np.log(grid) + (b - 1) * np.log1p(-grid)
        weight = np.exp(log - log.max())
        p = (odds / (1 + odds))[..., rng.choice(200, draws, p=weight / weight.sum())]
        return np.moveaxis(rng.random(p.shape) < p, -1, 0)

    return infer


def test_right_draws_pass_at_the_nominal_rate():
    found = [quick(simulate, infer_with(), n_data_sets=40, prob=0.9, seed=seed) for seed in range(40)]
    assert np.mean([one.passes for one in found]) > 0.75  # .9 wanted, three standard errors
    pit = np.concatenate([one.pit for one in found])
    assert min(kstest(column, "uniform").pvalue for column in pit.T) > 0.001


@pytest.mark.parametrize(
    ("infer", "statistic", "words"),
    [
        (infer_with(a=1.0, b=8.0), "edges", "the truth lies above its draws"),
        (infer_with(a=8.0, b=1.0), "largest column", "the truth lies below its draws"),
        (infer_with(sharpness=3.0), "edges", "the draws are too sure"),
        (infer_with(sharpness=3.0), "log score", "the truth lies below its draws"),
        (
            lambda y, rng: rng.random((31, 4, 3)) < rng.random((31, 1, 1)),
            "edges",
            "the draws are not sure enough",
        ),
    ],
)
def test_wrong_draws_are_told_what_is_wrong(infer, statistic, words):
    found = quick(simulate, infer, n_data_sets=200)
    assert not found.passes and "FAILS" in str(found)
    assert found.table.loc[statistic, "reading"] == words


def exact(a, b):
    def infer(data, rng):
        posterior = enumerate_edges(*data, RowPrior(noise_variance=1.0, eta_prior=(a, b)))
        return posterior.draws(31, int(rng.integers(2**31)))._asdict()

    return infer


def rows(rng):
    edge = rng.random((3, 4)) < rng.beta(1, 1, (3, 1))
    weight = rng.normal(size=edge.shape) * edge
    x = rng.normal(size=(3, 10, 4))
    return {"edge": edge, "weight": weight}, (
        x,
        np.einsum("tnm,tm->tn", x, weight) + rng.normal(size=(3, 10)),
    )


def test_enumerated_rows_pass_and_the_same_with_another_prior_fails():
    errors = {
        "squared error": lambda one, data: (
            (data[1] - np.einsum("tnm,tm->tn", data[0], one["weight"])) ** 2
        ).sum()
    }
    found = quick(rows, exact(1, 1), errors, seed=1)
    assert found.statistics[-1] == "squared error" and found.passes
    other = quick(rows, exact(1, 6), errors, seed=1)
    assert not other.passes and other.table.loc["edges", "bias_z"] > 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "statistic", "words"),
    [
        (lambda w: 0.5 * w, "weight size", "the truth lies above its draws"),
        (lambda w: 100.0 * (w != 0), "weight largest", "the truth lies below its draws"),
        (
            lambda w: w.mean(0) + 0.3 * (w - w.mean(0)),
            "weight largest",
            "the draws are too sure",
        ),
    ],
)
def test_wrong_weights_of_right_graphs_fail(change, statistic, words):
    def infer(data, rng):
        draws = exact(1, 1)(data, rng)
        return draws | {"weight": change(draws["weight"])}

    found = quick(rows, infer, n_data_sets=200, seed=1)
    assert found.table.loc[["edges", "log score"], "inside"].all()
    assert not found.passes and found.table.loc[statistic, "reading"] == words


def test_what_the_truth_holds_is_ranked_and_nothing_else():
    def known(rng):
        rate = rng.beta(2, 2)
        edge = rng.random((4, 3)) < rate
        return {"edge": edge, "rate": rate, "none": np.ones((2, 0))}, edge

    def infer(edge, rng):
        rate = rng.beta(2 + edge.sum(), 2 + (~edge).sum(), 31)
        kept = {"edge": np.tile(edge, (31, 1, 1)), "none": np.ones((31, 2, 0))}
        return kept | {"rate": rate, "name": np.full(31, "a")}

    found = quick(known, infer, n_data_sets=200, columns=0)
    assert found.passes
    assert found.statistics == ("edges", "log score", "same parent", "largest column", "rate")
    elsewhere = np.random.default_rng(1)
    wrong = quick(
        known, lambda *given: infer(*given) | {"rate": elsewhere.random(31)}, n_data_sets=200, columns=0
    )
    assert wrong.table.loc["rate", "reading"] == "the draws are not sure enough"


def test_value_statistics_by_loops():
    values = np.random.default_rng(0).normal(size=(6, 5, 4))
    found = value_statistics("weight", values)
    assert list(found) == ["weight size", "weight largest"]
    for j, one in enumerate(values):
        assert found["weight size"][j] == pytest.approx(sum(abs(x) for x in one.flat))
        assert found["weight largest"][j] == max(abs(x) for x in one.flat)
    turned = value_statistics("weight", -values[:, :, ::-1])
    np.testing.assert_allclose(turned["weight size"], found["weight size"])
    (alone,) = value_statistics("rate", values[:, :1, 0]).items()
    assert alone[0] == "rate" and (alone[1] == values[:, 0, 0]).all()


def test_draws_scored_by_probabilities_of_their_own_would_fail():
    """Few exact draws of many edges: the default log score passes, since the truth helps to make p."""

    def coins(rng):
        return rng.random(200) < 0.5, None

    def toss(_, rng):
        return rng.random((7, 200)) < 0.5

    found = quick(coins, toss, n_data_sets=200, num_draws=7)
    assert found.passes
    rng = np.random.default_rng(0)
    ranks = []
    for _ in range(100):
        truth, draws = coins(rng)[0], toss(None, rng)
        p = (draws.sum(0) + 0.5) / 8
        score = [np.where(one, np.log(p), np.log1p(-p)).sum() for one in (truth, *draws)]
        ranks.append((np.array(score[1:]) < score[0]).sum())
    assert np.mean(ranks) < 0.5  # of 7


def test_ranks_are_counts_below_and_ties_are_spread():
    def constant(rng):
        return np.array([1, 0, 1]), None

    found = quick(constant, lambda _, rng: np.tile([1, 0, 1], (31, 1)), n_data_sets=1000)
    counts = np.bincount(found.ranks[:, 0], minlength=32)
    assert counts.min() > 8 and counts.max() < 60 and len(counts) == 32  # 31 each, standard deviation 5.5
    np.testing.assert_array_equal(np.floor(found.pit * 32), found.ranks)
    below = quick(constant, lambda _, rng: np.tile([[1, 0, 0], [1, 1, 1]], (16, 1))[:31])
    # Draws alternate between one edge and three: 16 below the truth's two, 15 above.
    assert (below.ranks[:, 0] == 16).all()
    assert below.ecdf[0].tolist() == (below.points > 16.5 / 32).astype(float).tolist()


def test_default_statistics_by_loops():
    rng = np.random.default_rng(0)
    edge = rng.integers(0, 2, (6, 5, 4))
    found = graph_statistics(edge, columns=2)
    assert list(found) == ["edges", "log score", "same parent", "largest column", "column 0", "column 1"]
    p = (edge.sum(0) + 0.5) / 7
    for j, graph in enumerate(edge):
        assert found["edges"][j] == graph.sum()
        assert found["largest column"][j] == max(graph[:, k].sum() for k in range(4))
        assert found["column 1"][j] == graph[:, 1].sum()
        assert found["same parent"][j] == np.triu(graph @ graph.T, 1).sum()
        want = sum(np.log(p[i, k] if graph[i, k] else 1 - p[i, k]) for i, k in np.ndindex(5, 4))
        assert found["log score"][j] == pytest.approx(want)
    assert list(graph_statistics(edge.reshape(6, -1))) == ["edges", "log score"]
    assert "column 0" not in graph_statistics(edge, columns=0)


def test_same_seed_same_ranks_and_the_first_data_sets_stay():
    found = quick(simulate, infer_with(), n_data_sets=20)
    np.testing.assert_array_equal(found.pit, quick(simulate, infer_with(), n_data_sets=20).pit)
    np.testing.assert_array_equal(found.pit[:7], quick(simulate, infer_with(), n_data_sets=7).pit)
    assert (found.pit != quick(simulate, infer_with(), n_data_sets=20, seed=1).pit).all()


def test_more_draws_than_needed_are_thinned_evenly():
    seen = []

    def count(edge, _):
        seen.append(edge.sum())
        return edge.sum()

    ladder = np.tril(np.ones((61, 61), dtype=int))  # draw i has i + 1 edges
    quick(lambda rng: (ladder[0], None), lambda *_: ladder, {"count": count}, n_data_sets=1)
    assert seen == [1, *range(1, 62, 2)]


def test_ctrl_c_gives_what_is_done():
    calls = []

    def interrupted(y, rng):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return infer_with()(y, rng)

    found = quick(simulate, interrupted)
    assert found.n_data_sets == 5 and len(found.band_low) == len(found.points)
    assert "stopped by Ctrl-C after 5 of 100 data sets" in str(found)
    np.testing.assert_array_equal(found.pit, quick(simulate, infer_with(), n_data_sets=5).pit)
    calls[:] = [1] * 5
    with pytest.raises(KeyboardInterrupt):
        quick(simulate, interrupted)


def test_progress_bar_counts_data_sets(capsys, monkeypatch):
    monkeypatch.setattr("pyro_sparse._utils.progress.is_watched", lambda: True)
    sbc(simulate, infer_with(), n_data_sets=3, num_draws=31)
    assert "3/3" in capsys.readouterr().err
    quick(simulate, infer_with(), n_data_sets=3)
    assert capsys.readouterr().err == ""


TRUTH = {"edge": np.array([[1, 0]]), "weight": np.array([[0.3, 0.0]])}
DRAWS = {"edge": np.ones((31, 1, 2)), "weight": np.ones((31, 1, 2))}


@pytest.mark.parametrize(
    ("truth", "draws", "error", "message"),
    [
        (TRUTH, DRAWS | {"edge": np.ones((31, 2, 2))}, ValueError,
         r"infer: want draws of 'edge' of shape \(draw, 1, 2\), got \(31, 2, 2\); one leading axis"),
        (TRUTH, DRAWS | {"edge": np.ones((2, 31, 1, 2))}, ValueError, r"got \(2, 31, 1, 2\).*chains joined"),
        (TRUTH, {k: v[:5] for k, v in DRAWS.items()}, ValueError,
         "infer: want at least 31 draws of 'edge', got 5; draw more, or lower num_draws"),
        (TRUTH, {"edge": DRAWS["edge"]}, ValueError, r"the draws lack \['weight'\]; draw them, or leave"),
        (TRUTH, DRAWS | {"weight": np.full((31, 1, 2), np.nan)}, ValueError,
         "infer: want finite numbers, got 62 NaN or inf in 'weight'"),
        (TRUTH | {"weight": np.array([[np.inf, 0]])}, DRAWS, ValueError, "simulate: want finite numbers"),
        (TRUTH, DRAWS | {"edge": np.full((31, 1, 2), 0.4)}, ValueError,
         "infer: want edges of 0 or 1, at least one, got 0.4; compare weights with 0"),
        (np.array([2, 0]), np.ones((31, 2)), ValueError, "simulate: want edges of 0 or 1.* got 2"),
        (np.array([]), np.ones((31, 0)), ValueError, "simulate: want edges of 0 or 1.* got none"),
        (TRUTH | {"weight": np.array([["a", "b"]])}, DRAWS, TypeError,
         "simulate: want real numbers in 'weight', got <U1; leave it out"),
        (TRUTH, DRAWS | {"weight": np.full((31, 1, 2), 1j)}, TypeError,
         "infer: want real numbers in 'weight', got complex128"),
        ({"weight": np.ones(2)}, DRAWS, TypeError, r"simulate: want the truth .* got keys \['weight'\]"),
    ],
)  # fmt: skip
def test_bad_draws_are_named(truth, draws, error, message):
    with pytest.raises(error, match=message) as caught:
        quick(lambda rng: (truth, None), lambda data, rng: draws, seed=3)
    assert caught.value.__notes__ == ["sbc: in data set 0 of 100, seed 3"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_data_sets": 0}, ValueError, "n_data_sets: want a whole number of at least 1, got 0"),
        ({"num_draws": 1.5}, ValueError, "num_draws: want a whole number of at least 1, got 1.5"),
        ({"seed": -1}, ValueError, "seed: want a whole number of at least 0, got -1"),
        ({"columns": -1}, ValueError, "columns: want a whole number of at least 0, got -1"),
        ({"prob": 95}, ValueError, "prob: want a probability strictly between 0 and 1, got 95"),
        (
            {"statistics": {"mine": 3}},
            TypeError,
            r"statistics: want functions f\(truth, data\), got 3 for 'mine'",
        ),
        (
            {"statistics": {"mine": lambda *_: np.nan}},
            ValueError,
            "'mine' wants to give one finite number, got",
        ),
        ({"statistics": {"mine": lambda t, _: t}}, ValueError, "'mine' wants to give one finite number"),
    ],
)
def test_bad_settings_are_named(options, error, message):
    with pytest.raises(error, match=message):
        quick(simulate, infer_with(), **options)


def test_simulate_wants_a_pair():
    with pytest.raises(TypeError, match=r"simulate: want a pair \(truth, data\), got ndarray"):
        quick(lambda rng: np.ones(3), infer_with())
