import os
import pty
import signal
import threading

import pytest

from keras_bert_d2l.training.run.interruption import TrainingInterrupted, interruptible

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def sighup_is_not_ignored():
    """Also under `nohup`, whose child processes ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_recorded_and_announced(number, capfd):
    with interruptible() as interrupt:
        interrupt.check("none yet")
        signal.raise_signal(number)
        with pytest.raises(TrainingInterrupted, match="stopped") as error:
            interrupt.check("stopped")
    assert error.value.signal_number == number
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    assert f"{name}: stopping after this step or evaluation." in capfd.readouterr().err


def test_a_second_ctrl_c_interrupts_the_program(capfd):
    with interruptible():
        signal.raise_signal(signal.SIGINT)
        assert "Press Ctrl-C again to stop immediately" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_repeated_sigterm_is_announced_once(capfd):
    with interruptible() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert interrupt.signal_number == signal.SIGTERM
    assert capfd.readouterr().err.count("stopping") == 1


def test_the_previous_handlers_are_restored():
    before = list(map(signal.getsignal, SIGNALS))
    with interruptible():
        assert all(
            signal.getsignal(number) is not old for number, old in zip(SIGNALS, before, strict=True)
        )
    assert list(map(signal.getsignal, SIGNALS)) == before


def test_a_signal_that_the_program_ignores_remains_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under `nohup`
    try:
        with interruptible() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert interrupt.signal_number is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_unchanged_outside_the_main_thread():
    before, events = signal.getsignal(signal.SIGINT), []

    def work():
        with interruptible() as interrupt:
            same = signal.getsignal(signal.SIGINT) is before
            events.append((interrupt.signal_number, same))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert events == [(None, True)]


def test_output_after_sighup_does_not_fail_although_the_terminal_is_closed():
    terminal, side = pty.openpty()
    stdout = os.dup(1)
    os.dup2(side, 1)
    os.close(side)
    os.close(terminal)
    try:
        with interruptible() as interrupt:
            with pytest.raises(OSError, match="Input/output error"):
                os.write(1, b"an error")
            signal.raise_signal(signal.SIGHUP)
            os.write(1, b"discarded")
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    assert interrupt.signal_number == signal.SIGHUP
