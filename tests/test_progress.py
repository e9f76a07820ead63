import contextlib
import io
import re
import sys
import time

import pytest

from keras_bert_d2l import progress
from keras_bert_d2l.progress import parts, showing_stages, stage, without_bar

CURSOR_HIDDEN = "\x1b[?25l"
GONE = r"\x1b\[2K(\r|\x1b\[\?25h|\x1b\[1A)*$"  # the line is erased, and the cursor visible


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    """Return a function that replaces stderr, and the time after which a stage is displayed."""

    def replace(stream, delay=0.0):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "_DELAY_SECONDS", delay)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        return stream

    return replace


def wait_for(stream, text):
    deadline = time.monotonic() + 10
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.005)


def test_stages_are_silent_by_default_and_without_verbose(stderr):
    for context in (contextlib.nullcontext(), showing_stages(False)):
        terminal = stderr(Terminal())
        with context, stage("Reading", 2) as work:
            work.advance()
            time.sleep(0.05)
        assert terminal.getvalue() == ""


def test_a_short_stage_has_no_bar(stderr):
    terminal = stderr(Terminal(), delay=2.0)
    with showing_stages(), stage("Reading"):
        time.sleep(0.2)
    assert "Reading" not in terminal.getvalue()
    assert "\n" not in terminal.getvalue()


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_redirected_output_has_no_bar(term, stderr, monkeypatch):
    stream = stderr(Terminal() if term == "dumb" else io.StringIO())
    monkeypatch.setenv("TERM", term)
    with showing_stages(), stage("Reading"), without_bar():
        time.sleep(0.2)
    assert stream.getvalue() == ""


def test_a_terminal_shows_a_bar_for_each_stage(stderr):
    terminal = stderr(Terminal())
    with showing_stages(), stage("Reading [all]", 4) as work:
        work.advance()
        wait_for(terminal, "25%")
        work.remark = "3 files"
        wait_for(terminal, "3 files")
        with stage("Tokenizing", 10) as inner:
            inner.advance(9)
            wait_for(terminal, "90%")
    assert "Reading [all] " in terminal.getvalue()


def test_ctrl_c_erases_the_bar(stderr):
    terminal = stderr(Terminal())

    def interrupted():
        with showing_stages(), stage("Reading"):
            wait_for(terminal, "Reading")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert re.search(GONE, terminal.getvalue())
    assert progress._bars.get() is None


def test_lines_are_printed_without_the_bar(stderr):
    terminal = stderr(Terminal())
    with showing_stages(), stage("Reading"):
        wait_for(terminal, "Reading")
        with without_bar():
            terminal.write("<result>\n")
            time.sleep(0.2)
            terminal.write("<end>")
        wait_for(terminal, "<end>" + CURSOR_HIDDEN)  # the bar is back
    assert "<result>\n<end>" in terminal.getvalue()
    assert re.search(GONE, terminal.getvalue().partition("<result>")[0])


def test_parts_are_slices_and_end_their_stage_also_if_they_are_not_all_taken(stderr):
    assert [*parts("Predicting", 10, 4)] == [slice(0, 4), slice(4, 8), slice(8, 10)]
    terminal = stderr(Terminal())
    with showing_stages():
        sliced = parts("Predicting", 10, 4)
        next(sliced)
        next(sliced)
        wait_for(terminal, "40%")
        sliced.close()
        assert progress._bars.get() is None
