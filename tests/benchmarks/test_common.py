"""The harness: seeds, processes, the last line."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tests.benchmarks.cheap as cheap
from benchmarks import __main__ as door
from benchmarks import _common


def test_report_and_tuning_seeds_never_meet():
    assert not set(_common.report_seeds(1000)) & set(_common.tuning_seeds(1000))
    assert _common.report_seeds(3) == [0, 1, 2]
    for n in (0, 1001):
        with pytest.raises(ValueError, match="stay apart"):
            _common.report_seeds(n)


def test_plain_is_json():
    value = {"a": np.float64(1.5), "b": np.arange(2), "c": [np.nan, np.inf], 3: (np.bool_(True),)}
    assert (
        json.dumps(_common.plain(value), allow_nan=False)
        == '{"a": 1.5, "b": [0, 1], "c": [null, null], "3": [true]}'
    )


@pytest.fixture(scope="module")
def rows():
    return _common.run_tasks("tests.benchmarks.cheap", cheap.tasks(SimpleNamespace(seeds=4)), jobs=2)


def test_tasks_run_elsewhere_single_threaded_in_order(rows):
    assert [row["seed"] for row in rows] == [0, 1, 2, 3] and [row["value"] for row in rows] == [0, 1, 4, 9]
    assert os.getpid() not in {row["pid"] for row in rows} and {row["threads"] for row in rows} == {1}
    assert rows[0]["wall_s"] >= 0.2 > rows[0]["cpu_s"]


def test_a_failed_task_fails_the_run_after_the_others(capfd):
    tasks = [{"seed": 99, "slow": False}, {"seed": 1, "slow": False}]
    with pytest.raises(RuntimeError, match="1 of 2 tasks failed"):
        _common.run_tasks("tests.benchmarks.cheap", tasks, jobs=1)
    noise = capfd.readouterr().err
    assert "seed 99 breaks" in noise and "value=1" in noise


@pytest.mark.slow
def test_rows_on_record_are_not_run_again(tmp_path, capfd):
    record = tmp_path / "rows.jsonl"
    first = _common.run_tasks("tests.benchmarks.cheap", [{"seed": 2, "slow": False}], 1, record)
    tasks = [{"seed": 2, "slow": False}, {"seed": 3, "slow": False}]
    again = _common.run_tasks("tests.benchmarks.cheap", tasks, 1, record)
    assert again[0] == first[0] and again[0]["pid"] != again[1]["pid"] and again[1]["value"] == 9
    assert len(record.read_text().splitlines()) == 2 and "1/1" in capfd.readouterr().err
    assert _common.recorded({"seed": 2, "slow": True}, record) == {}, "another setting is another task"


def test_the_door_lists_runs_and_refuses(monkeypatch, capsys, tmp_path, rows):
    assert door.main([]) == 0
    listing = capsys.readouterr().out
    for name in ("sim1", "bfi", "anchored60", "baselines", "ablation"):
        assert f"  {name}: " in listing
    assert door.main(["nothing"]) == 2
    assert "no benchmark 'nothing'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "benchmarks.cheap", cheap)
    monkeypatch.setattr(door, "names", lambda: ["cheap"])
    monkeypatch.setattr(_common, "run_tasks", lambda module, tasks, jobs, record: rows[: len(tasks)])
    assert door.main(["cheap", "--quick", "--json", str(tmp_path / "out.json")]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["values"] == [0.0, 1.0] and last["nan"] is None and last["seeds"] == [0, 1]
    assert last["command"] == f"python -m benchmarks cheap --quick --json {tmp_path}/out.json"
    assert last["machine"]["cpu_count"] == os.cpu_count() and last["versions"]["torch"]
    saved = json.loads((tmp_path / "out.json").read_text())
    assert saved["rows"][1]["value"] == 1 and "rows" not in last


@pytest.mark.parametrize("name", door.names())
def test_every_benchmark_keeps_the_protocol(name):
    import importlib

    module = importlib.import_module(f"benchmarks.{name}")
    assert 1 <= module.QUICK_SEEDS <= module.SEEDS
    assert module.__doc__.splitlines()[0].startswith(f"{name}: ")
    for function in ("tasks", "run", "collect"):
        assert callable(getattr(module, function))
