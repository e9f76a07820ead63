"""Printed output of a run, according to the argument `verbose` of `keras.Model.fit`."""

import sys
import time
from typing import Literal

Verbose = Literal["auto"] | int

_UPDATE_SECONDS = 0.2


class Printer:
    """Prints lines, and one progress line that each update replaces.

    Args:
        verbose: 0 (silent), 1 (with the progress line) or 2 (without it). `"auto"` means 1 in a
            terminal or a notebook, otherwise 2, because each update would be a line of its own.
    """

    def __init__(self, verbose: Verbose) -> None:
        if verbose == "auto":
            verbose = 1 if sys.stdout.isatty() or "ipykernel" in sys.modules else 2
        self.is_silent = not verbose
        self.has_progress = verbose == 1
        self._progress, self._updated = "", 0.0

    def __call__(self, line: str) -> None:
        """Print a line immediately."""
        if not self.is_silent:
            self._replace_progress("")
            print(line, flush=True)

    def progress(self, line: str) -> None:
        """Replace the progress line, unless the last update was a moment ago."""
        if self.has_progress and time.monotonic() - self._updated >= _UPDATE_SECONDS:
            self._replace_progress(line)
            self._updated = time.monotonic()

    def _replace_progress(self, line: str) -> None:
        if self._progress or line:
            print("\r" + line.ljust(len(self._progress)), end="" if line else "\r", flush=True)
        self._progress = line


def duration(seconds: float) -> str:
    """Return a time span in its two largest units."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
