"""Growth: exponents of times that are known, and the jobs, clocks and picture."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
from scipy import stats

from benchmarks import growth
from benchmarks._step import Sizes
from tests.benchmarks.test_roofline import busy


def options(**given):
    return argparse.Namespace(
        **{"quick": False, "seeds": 2, "axes": None, "picture": None, "first_seed": 0, **given}
    )


def test_jobs():
    jobs = growth.tasks(options())
    assert len(jobs) == 2 * len(growth.AXES) and {job["seed"] for job in jobs} == {0, 1}
    assert all(job["sizes"] == list(growth.AXES[job["axis"]]) for job in jobs)
    quick = growth.tasks(options(quick=True, axes=["fit", "width"], first_seed=1000, seeds=1))
    assert [(job["axis"], job["seed"], len(job["sizes"])) for job in quick] == [
        ("fit", 1000, 3),
        ("width", 1000, 4),
    ]
    assert quick[0]["passes"] == growth.QUICK_PASSES and "passes" not in quick[1]


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_exponent_of_a_step_whose_time_is_known(power):
    sizes = np.array([1, 2, 4])
    clocks = [lambda n=n: growth.usual(busy(0.004 * n**power), 0.0, 1) for n in sizes]
    seconds = growth.in_turns(clocks, turns=3)
    assert growth.exponent(sizes, [seconds])[0] == pytest.approx(power, abs=0.1)


def test_exponent_is_least_squares_and_a_seed_has_its_own_constant():
    rng = np.random.default_rng(1000)
    sizes = np.array([10, 20, 40, 80])
    seconds = np.exp(rng.normal(0, 0.1, (3, 4))) * sizes**1.3
    one = stats.linregress(np.log(sizes), np.log(seconds[0]))
    assert growth.exponent(sizes, seconds[:1]) == pytest.approx((one.slope, one.stderr))
    x = np.column_stack([np.tile(np.log(sizes), 3), np.repeat(np.eye(3), 4, axis=0)])
    y = np.log(seconds).ravel()
    slopes, left, _, _ = np.linalg.lstsq(x, y, rcond=None)
    error = np.sqrt(left[0] / (12 - 4) * np.linalg.inv(x.T @ x)[0, 0])
    assert growth.exponent(sizes, seconds) == pytest.approx((slopes[0], error))
    assert growth.exponent(sizes, seconds * [[1], [5], [9]]) == pytest.approx((slopes[0], error))
    assert np.isnan(growth.exponent(sizes[:2], seconds[:1, :2])[1]), "two points leave nothing over"


def test_turns_go_back_and_forth_and_their_median_counts():
    order = []

    def clock(name, times):
        def read():
            order.append(name)
            return times.pop(0)

        return read

    clocks = [clock("a", [1.0, 9.0, 2.0]), clock("b", [3.0, 3.0, 4.0])]
    assert growth.in_turns(clocks, 3) == [2.0, 3.0] and order == ["a", "b", "b", "a", "a", "b"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(growth, "MIDDLE", Sizes(9, 3, 6, 16))
    monkeypatch.setattr(growth, "FITTED", Sizes(9, 3, 6, 16))
    monkeypatch.setattr(growth, "TURN", 0.0)
    monkeypatch.setattr(growth, "FEW", 3)


@pytest.mark.slow
@pytest.mark.parametrize("axis", growth.AXES)
def test_every_axis_runs(small, axis):
    sizes = [32, 64] if axis in ("epoch", "fit", "once") else [2, 3] if axis == "factors" else [8, 9]
    row = growth.run(axis, sizes, turns=1, seed=1000, passes=1 if axis == "fit" else 0)
    assert len(row["seconds"]) == 2 and min(row["seconds"]) > 0


@pytest.mark.parametrize(
    ("axis", "at"), [("features", 0), ("factors", 1), ("width", 2), ("minibatch", 3), ("restarts", None)]
)
def test_an_axis_moves_its_own_size(small, monkeypatch, axis, at):
    seen = []

    def begun(sizes, one_factor, restarts, seed, **more):
        seen.append((*sizes, restarts))
        return argparse.Namespace(advance=lambda: None)

    monkeypatch.setattr(growth, "started", begun)
    monkeypatch.setattr(growth, "usual", lambda *given: 1.0)
    growth.clock(axis, 33, 0)
    wanted = [9, 3, 6, 16, 1]
    wanted[4 if at is None else at] = 33
    assert seen == [tuple(wanted)]


def test_an_epoch_is_a_pass_and_a_fit_makes_as_many_whatever_the_table(small, monkeypatch):
    steps = []

    class Run:
        def advance(self):
            steps.append(1)

    monkeypatch.setattr(growth, "started", lambda *given, n_rows: Run())
    read = growth.clock("epoch", 64, 0)
    steps.clear()
    read()
    assert len(steps) == 64 // 16
    fits = []
    monkeypatch.setattr(growth, "fitted", lambda n, steps, seed: fits.append((n, steps)) or 1.0)
    growth.run("fit", [32, 64], turns=1, seed=0, passes=5)
    growth.run("once", [32, 64], turns=1, seed=0)
    assert fits == [(32, 3), (32, 10), (64, 20), (32, 3), (32, 3), (64, 3)]


def test_panels_have_one_scale():
    low, high = growth.around(np.array([[2.0, 8.0]]), 100.0)
    assert high / low == pytest.approx(100) and low * high == pytest.approx(16)


def test_what_is_collected_and_drawn(tmp_path):
    sizes = [1, 2, 4, 8]
    flat_then_square = np.array([4.0, 4.0, 4.0, 16.0])
    rows = [
        *(
            {"axis": "features", "seed": n, "sizes": sizes, "seconds": [n + 1.0, *[n + 1.0] * 3]}
            for n in (0, 1)
        ),
        {"axis": "width", "seed": 0, "sizes": sizes, "seconds": flat_then_square.tolist()},
    ]
    for name in ("growth.svg", "growth.png"):
        found = growth.collect(rows, options(picture=tmp_path / name))
        assert (tmp_path / name).stat().st_size > 1000
    assert found["features"]["upper"] == pytest.approx(0) and found["features"]["asked"] == 1.05
    assert found["features"]["ms"] == {str(n): 1500.0 for n in sizes}
    assert found["width"]["upper"] == pytest.approx(2) and 0 < found["width"]["all"] < 1
    assert "asked" not in found["width"]
    assert (tmp_path / "growth.svg").read_text().count("<svg") == 1
    assert growth.table(rows)[-1] == {"axis": "width", "seed": 0, "size": 8, "ms": 16000.0}
