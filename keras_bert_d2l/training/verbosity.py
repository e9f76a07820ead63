"""How much a run says, and how it says it: Keras's `verbose` in, functions that print out."""

import functools
import sys
from collections.abc import Callable
from typing import Literal

Verbose = Literal["auto"] | int


def verbosity(verbose: Verbose) -> int:
    """Returns 1 (progress bars), 2 (a line for each evaluation) or 0 for `verbose` of Keras."""
    if verbose != "auto":
        return verbose
    # Where a line cannot be overwritten, each update of a progress bar would be one more line.
    return 1 if sys.stdout.isatty() or "ipykernel" in sys.modules else 2


def printer(verbose: Verbose) -> Callable[[str], None]:
    """Returns what prints a line at once, unless all is to be silent."""
    return functools.partial(print, flush=True) if verbose else lambda _: None
