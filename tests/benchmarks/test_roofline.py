"""The roofline: the count of operations is torch's own, a known rate comes out as itself."""

from __future__ import annotations

import argparse
import time

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import roofline
from benchmarks._step import Sizes, started

SMALL = Sizes(40, 5, 16, 12)


def in_place(own, a, b, out_shape=None, **settings):
    """What torch's counter leaves out: products added to what is there."""
    return 2 * a.numel() * b[-1]


@pytest.mark.parametrize("chunked", [False, True])
def test_count_is_that_of_torch(chunked, monkeypatch):
    monkeypatch.setattr("pyro_sparse.models.sparse_decoder.CHUNKED_FROM", 0)
    run = started(SMALL, 0.0, 1, 1000, chunked)
    run.closed_form.compiled = None  # machine code that torch does not see
    run.advance()
    aten = torch.ops.aten
    with FlopCounterMode(
        display=False, custom_mapping={aten.addmm_: in_place, aten.baddbmm_: in_place}
    ) as counter:
        run.advance()
    assert run.model.closed_form(SMALL.rows) == [0]
    assert roofline.flops(SMALL) == counter.get_total_flops()


def test_count_is_that_of_the_definition_by_autograd():
    """The traced program multiplies the heads by hand, and works the factors' prior out forth and back."""
    run = started(SMALL, 0.0, 1, 1000, False)
    with FlopCounterMode(display=False) as counter:
        run.advance()
    g, k, h, n = SMALL
    assert roofline.flops(SMALL) - 2 * n * g * 2 * h + 2 * n * k * k == counter.get_total_flops()


def busy(seconds):
    """A call of so much CPU time."""

    def once():
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    return once


def test_rates_of_calls_of_known_time(monkeypatch):
    monkeypatch.setattr(roofline, "TURN", 0.0)
    products = [(10_000_000, busy(0.01)), (8_000_000, busy(0.004))]
    found = roofline.rates(10_000_000, busy(0.01), products, turns=3)
    assert found["gflops_step"] == pytest.approx(1.0, rel=0.1)
    assert found["gflops_gemm"] == pytest.approx(2.0, rel=0.1), "the faster of the two"
    assert found["share"] == pytest.approx(0.5, rel=0.1) and found["ms"] == pytest.approx(10, rel=0.1)


def test_a_product_is_a_product():
    count, once = roofline.product(8)
    with FlopCounterMode(display=False) as counter:
        assert once().shape == (8, 8)
    assert count == counter.get_total_flops()


@pytest.mark.slow
def test_jobs_a_run_and_what_is_collected(monkeypatch):
    options = argparse.Namespace(quick=True, seeds=2, sizes=None)
    jobs = roofline.tasks(options)
    assert [(job["size"], job["seed"]) for job in jobs] == [(s, n) for n in (0, 1) for s in roofline.WHICH]
    monkeypatch.setitem(roofline.SIZES, "big", SMALL)
    monkeypatch.setattr(roofline, "SQUARES", (16,))
    monkeypatch.setattr(roofline, "TURN", 0.0)
    row = {"size": "big", "seed": 0, **roofline.run("big", 0, 1)}
    assert 0 < row["share"] and row["gflop"] == pytest.approx(1e-9 * roofline.flops(SMALL))
    found = roofline.collect([{**row, "share": share} for share in (0.5, 0.6, 0.9)], options)
    assert found["big"]["share"] == 0.6 and found["big"]["asked"] == 0.55
