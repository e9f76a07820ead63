import contextlib
import io
import re
import sys
import time
import types

import pytest

from keras_bert_d2l import progress
from keras_bert_d2l.progress import Stage, parts, showing_stages, stage, without_bar

CURSOR_HIDDEN, CURSOR_SHOWN, ERASED = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    """Return a function that replaces stderr and the times of the display."""

    def replace(stream, delay=0.0, line=30.0):
        monkeypatch.setattr(progress, "_own_stderr", lambda: contextlib.nullcontext(stream))
        monkeypatch.setattr(progress, "_DELAY_SECONDS", delay)
        monkeypatch.setattr(progress, "_UPDATE_SECONDS", 0.01)
        monkeypatch.setattr(progress, "_LINE_SECONDS", line)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        return stream

    return replace


@pytest.fixture
def clock(monkeypatch):
    """Return a list with the current time."""
    now = [0.0]
    # Not the clock of the process: the server of other tests would wait for the time to come.
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    return now


def is_clean(terminal):
    """Return whether the bar is erased, and the cursor visible."""
    _, _, end = terminal.getvalue().rpartition(CURSOR_HIDDEN)
    return CURSOR_SHOWN in end and end.endswith(ERASED)


def wait_for(stream, text):
    deadline = time.monotonic() + 10
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.005)


def test_stages_are_silent_by_default_and_without_verbose(stderr):
    for context in (contextlib.nullcontext(), showing_stages(False)):
        terminal = stderr(Terminal(), line=0.001)
        with context, stage("Reading", 2) as work:
            work.advance()
            time.sleep(0.05)
        assert terminal.getvalue() == ""


def test_a_short_stage_shows_nothing(stderr):
    terminal = stderr(Terminal(), delay=2.0)
    with showing_stages(), stage("Reading"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_a_terminal_shows_a_bar_and_erases_it(stderr):
    terminal = stderr(Terminal())
    with showing_stages(), stage("Reading [all]", 4) as work:
        work.advance()
        wait_for(terminal, "25%")
        work.remark = "3 files"
        wait_for(terminal, "3 files, 25%, 0 s left")
    assert "Reading [all] " in terminal.getvalue()
    assert is_clean(terminal)


def test_an_error_or_ctrl_c_erases_the_bar(stderr):
    terminal = stderr(Terminal())

    def interrupted():
        with showing_stages(), stage("Reading"):
            wait_for(terminal, "Reading")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert is_clean(terminal)
    before = terminal.getvalue()
    time.sleep(0.05)
    assert terminal.getvalue() == before
    assert progress._innermost.get() is None


def test_lines_are_printed_without_the_bar(stderr):
    terminal = stderr(Terminal())
    with showing_stages(), stage("Reading"):
        wait_for(terminal, "Reading")
        with without_bar():
            terminal.write("<result>\n")
            time.sleep(0.05)
            terminal.write("<end>")
        wait_for(terminal, "<end>" + CURSOR_HIDDEN)  # the bar is back
    assert "<result>\n<end>" in terminal.getvalue()
    assert terminal.getvalue().partition("<result>")[0].endswith(ERASED)
    with without_bar():
        pass


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_redirected_output_gets_lines(term, stderr, monkeypatch):
    stream = stderr(Terminal() if term == "dumb" else io.StringIO(), line=0.02)
    monkeypatch.setenv("TERM", term)
    with showing_stages(), stage("Reading", 4) as work:
        work.advance()
        wait_for(stream, "left\n")
    assert re.fullmatch(r"(Reading: 25%, 0 s left\n)+", stream.getvalue())


def test_the_remaining_time_follows_from_the_completed_share(clock):
    work = Stage("Reading", 10)
    assert work.state() == (0.0, "0%")
    clock[0] = 20.0
    work.advance(2)
    assert work.state() == (0.2, "20%, 1 min 20 s left")
    work.advance(20)  # an estimated total may be too low
    assert work.state() == (1.0, "100%, 0 s left")
    assert Stage("Loading").state() == (None, "0 s")


def test_a_stage_of_unknown_length_shows_the_progress_of_the_stage_within_it(clock, stderr):
    stderr(io.StringIO())
    with showing_stages(), stage("Evaluating") as outer:
        clock[0] = 100.0
        with stage("Predicting", 4) as inner:
            clock[0] = 110.0
            inner.advance()
            inner.remark = "1 text"
            assert outer.state() == (0.25, "1 text, 25%, 30 s left")
            outer.remark = "second pass"
            assert outer.state() == (None, "second pass, 1 min 50 s")
        assert outer.inner is None


def test_a_stage_within_a_part_completes_it_gradually(stderr):
    stderr(io.StringIO())
    shares = []
    with showing_stages(), stage("Evaluating") as outer:
        for part in parts("Predicting", 10, 4):
            with stage("Tagging", 2) as inner:
                inner.advance()
                shares.append((part, outer.state()[0]))
    assert shares == [(slice(0, 4), 0.2), (slice(4, 8), 0.6), (slice(8, 10), 0.9)]


def test_a_generator_that_is_not_finished_ends_its_stage(stderr):
    stream = stderr(io.StringIO(), line=0.01)
    with showing_stages():
        sliced = parts("Predicting", 10, 4)
        next(sliced)
        wait_for(stream, "Predicting")
        sliced.close()
        assert progress._innermost.get() is None


def test_the_output_goes_to_the_stderr_of_the_moment(monkeypatch):
    stream = io.StringIO()  # without a descriptor, as in a notebook
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.01)
    with showing_stages(), stage("Reading"):
        wait_for(stream, "Reading: 0 s\n")
    assert not stream.closed
