"""Verbosity of a run: the argument `verbose` of `keras.Model.fit`."""

import functools
import sys
from collections.abc import Callable
from typing import Literal

Verbose = Literal["auto"] | int


def verbosity(verbose: Verbose) -> int:
    """Return 0 (silent), 1 (progress bar) or 2 (one line per evaluation)."""
    if verbose != "auto":
        return verbose
    # Without a terminal, every update of the progress bar would be a separate line.
    return 1 if sys.stdout.isatty() or "ipykernel" in sys.modules else 2


def printer(verbose: Verbose) -> Callable[[str], None]:
    """Return a function that prints a line immediately, or does nothing if `verbose` is 0."""
    return functools.partial(print, flush=True) if verbose else lambda _: None
