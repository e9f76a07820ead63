"""Stopping a run on Ctrl-C, SIGTERM or SIGHUP."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from keras_bert_d2l.training.devices.distribution import gathered

# Sent by Ctrl-C; by job schedulers, containers and `timeout`; and when the terminal is closed.
_NAMES = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM", "SIGHUP": "SIGHUP"}
_SIGNALS = {getattr(signal, name): _NAMES[name] for name in _NAMES if hasattr(signal, name)}


class TrainingInterrupted(KeyboardInterrupt):
    """Exception raised after Ctrl-C, SIGTERM or SIGHUP, once the training state is saved.

    Attributes:
        signal_number: The signal. The command line exits with the code 128 + `signal_number`.
    """

    def __init__(self, message: str, signal_number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class Interrupt:
    """The first signal that asked a run to stop.

    Attributes:
        signal_number: The signal, or `None` as long as there was none.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def agreed(self) -> int | None:
        """Return the signal if any of the processes has received one."""
        if number := int(gathered(self.signal_number or 0).max()):
            self.signal_number = number
        return number or None

    def check(self, message: str) -> None:
        """Raise `TrainingInterrupted` if any of the processes has received a signal."""
        if number := self.agreed():
            raise TrainingInterrupted(message, number)


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Yield an object that records the first signal, so that the run can save its state.

    A second Ctrl-C ends the program immediately. A repeated SIGTERM or SIGHUP does not, because
    `timeout` and shells send both to a process and to its group. Signals that the program ignores,
    as under `nohup`, remain ignored.

    Outside the main thread no signal is recorded, because Python handles signals only there.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def record(number: int, frame: FrameType | None) -> None:
        if interrupt.signal_number is None:
            interrupt.signal_number = number
            if _SIGNALS[number] == "SIGHUP":
                _leave_closed_terminal()
            notice = f"\n{_SIGNALS[number]}: stopping after this step or evaluation."
            if number == signal.SIGINT:
                notice += " Press Ctrl-C again to stop immediately."
            os.write(2, f"{notice}\n".encode())  # the signal may have interrupted a print()
        if number == signal.SIGINT:
            signal.signal(number, previous[number])

    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, record)
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _leave_closed_terminal() -> None:
    """Discard further output if the terminal is closed, because writing to it would fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            os.dup2(null, descriptor)
    os.close(null)
