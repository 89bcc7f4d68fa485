"""The fuzz counts what came of its cases, and a process that dies is a crash, not an end."""

from __future__ import annotations

import os
import signal

import pytest

from benchmarks import _faults_fuzz as faults_fuzz

LINE = {"case": "tables: <Case>", "fitted": False}


def dies(n, seed, path):
    with path.open("w", encoding="utf-8") as file:
        faults_fuzz._write(file, {**LINE, "kind": "begun"})
        faults_fuzz._write(file, {**LINE, "kind": "right", "why": "", "where": ""})
        faults_fuzz._write(file, {**LINE, "kind": "begun"})
        os.kill(os.getpid(), signal.SIGKILL)


def fails(n, seed, path):
    raise RuntimeError("the strategy itself")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_dies_is_a_crash_after_the_cases_that_ended():
    assert [line["kind"] for line in faults_fuzz.in_a_process(dies, 2, 0)] == ["right", "crash"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fault_of_the_fuzz_itself_is_no_result(capfd):
    with pytest.raises(RuntimeError, match="the fuzz itself failed"):
        faults_fuzz.in_a_process(fails, 2, 0)


def test_all_kinds_are_counted(monkeypatch, capsys):
    lines = [{**LINE, "kind": kind, "why": "w", "where": "f.py:1"} for kind in ("right", "refused", "silent")]
    monkeypatch.setattr(faults_fuzz, "in_a_process", lambda work, n, seed: lines)
    row = faults_fuzz.fuzz(2 * faults_fuzz.CHUNK, 0)
    assert {name: row[name] for name in ("cases", "right", "refused", "obscure", "silent", "crash")} == {
        "cases": 6, "right": 2, "refused": 2, "obscure": 0, "silent": 2, "crash": 0,
    }  # fmt: skip
    assert capsys.readouterr().out.count("silent: w at f.py:1") == 2


@pytest.mark.slow
def test_a_few_cases_run():
    pytest.importorskip("hypothesis")
    row = faults_fuzz.fuzz(10, 1000)
    assert row["cases"] >= 5 and row["crash"] == 0
