"""Progress: silence where nobody asked, a bar in a terminal, a line a minute in a file."""

from __future__ import annotations

import io
import logging

import pytest

from pyro_sparse._utils import progress as module
from pyro_sparse._utils.progress import Progress, in_words


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so, and nobody who watches."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "is_watched", lambda: False)
    monkeypatch.setattr(module.LOGGER, "hasHandlers", lambda: False)

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def work(clock, total, seconds, **options):
    with Progress("chains", total, "sweep", shown=True, **options) as progress:
        for k in range(total):
            clock(seconds)
            progress.advance(status=f"{k + 1} of 9 edges decided")


def test_short_work_is_silent_and_so_is_what_nobody_asked_for(clock, capsys):
    work(clock, 50, 1.0)
    assert capsys.readouterr() == ("", "")
    with Progress("fit", 1000, "step", shown=False) as progress:
        clock(10_000)
        progress.advance(500)
    assert capsys.readouterr() == ("", "")


def test_long_work_says_how_long_and_then_a_line_a_minute(clock, capsys):
    work(clock, 1500, 0.25, shorter="time_budget=… ends them sooner")
    out, lines = capsys.readouterr()
    assert out == ""
    first, *others = lines.splitlines()
    assert first == "chains: 1,500 sweeps, about 6 minutes; time_budget=… ends them sooner"
    assert len(others) == 6  # one a minute after the first
    assert others[1] == "chains: 501 of 1,500 sweeps, 4 minutes left, 501 of 9 edges decided"


def test_steps_that_were_made_before_took_no_time(clock, capsys):
    with Progress("fit", 1000, "step", shown=True) as progress:
        progress.resume(900)
        clock(50)  # what the first step needs, and no other
        progress.advance(10)
        assert progress.left() == float("inf")
        clock(10)
        progress.advance(10)
        assert progress.left() == pytest.approx(80)
    assert "1,000 steps, about 2 minutes" in capsys.readouterr().err


def test_one_slow_unit_among_the_first_says_nothing_of_the_others(clock, capsys):
    with Progress("chains", 1500, "sweep", shown=True) as progress:
        for seconds in (3, 10, 0.01, 0.01):  # machine code is made in the first, and again in the second
            clock(seconds)
            progress.advance()
        assert progress.left() == pytest.approx(14.96)
    assert "about" not in capsys.readouterr().err


def test_lines_go_to_the_logger_if_it_has_handlers(clock, monkeypatch, capsys, caplog):
    monkeypatch.setattr(module.LOGGER, "hasHandlers", lambda: True)
    with caplog.at_level(logging.INFO, logger="pyro_sparse"):
        work(clock, 100, 1.0)
    assert capsys.readouterr() == ("", "")
    assert "chains: 100 sweeps, about 2 minutes" in caplog.messages


def test_a_terminal_has_one_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(module.sys, "stderr", terminal)
    with Progress("chains", 3, "sweep", shown=True) as progress:
        for _ in range(3):
            progress.advance(status="7 of 9 edges decided")
    assert "chains: 100%" in terminal.getvalue() and terminal.getvalue().endswith("\n")
    assert "7 of 9 edges decided" in terminal.getvalue()


def test_lengths_of_time():
    assert [in_words(s) for s in (0.2, 1, 59.4, 61, 5399, 5401)] == [
        "1 second", "1 second", "59 seconds", "1 minute", "90 minutes", "1.5 hours",
    ]  # fmt: skip
