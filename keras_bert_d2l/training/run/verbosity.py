"""Printed output of a run, according to the argument `verbose` of `keras.Model.fit`."""

import shutil
import sys
import time
from typing import Literal

from keras_bert_d2l.progress import without_bar

Verbose = Literal["auto"] | int

_UPDATE_SECONDS, _LINE_SECONDS = 0.2, 30.0  # between updates of the progress


class Printer:
    """Prints lines, and the progress: a line that each update replaces, or a new one now and then.

    Args:
        verbose: 0 (silent), 1 (the progress is one line that is replaced) or 2 (it is a new line,
            after 30 seconds without another one). `"auto"` means 1 in a terminal or a notebook,
            otherwise 2.
    """

    def __init__(self, verbose: Verbose) -> None:
        if verbose == "auto":
            verbose = 1 if sys.stdout.isatty() or "ipykernel" in sys.modules else 2
        self.is_silent = not verbose
        self._is_replaced = verbose == 1
        self._seconds = _UPDATE_SECONDS if self._is_replaced else _LINE_SECONDS
        self._progress, self._updated = "", time.monotonic()

    def __call__(self, line: str) -> None:
        """Print a line immediately."""
        if not self.is_silent:
            self.clear()
            with without_bar():
                print(line, flush=True)
            self._updated = time.monotonic()

    def progress(self, line: str) -> None:
        """Show the progress, unless something was printed a moment ago."""
        if self.is_silent or time.monotonic() - self._updated < self._seconds:
            return
        if self._is_replaced:
            self._replace_progress(line[: shutil.get_terminal_size().columns - 1])
            self._updated = time.monotonic()
        else:
            self(line)

    def clear(self) -> None:
        """Remove the progress, so that a bar can take its place."""
        self._replace_progress("")

    def _replace_progress(self, line: str) -> None:
        if self._progress or line:
            print("\r" + line.ljust(len(self._progress)), end="" if line else "\r", flush=True)
        self._progress = line
