"""Programs that are stopped while they write to an object store."""

import contextlib
import math
from collections.abc import Iterator
from unittest import mock

from fsspec.implementations.memory import MemoryFileSystem

OPERATIONS = ("put_file", "cp_file", "rm_file", "rm")


class Stopped(BaseException):
    """Stands for the end of the program, so no code may handle it."""


@contextlib.contextmanager
def stopping_after(most: float = math.inf) -> Iterator[list[str]]:
    """Stop the program after a number of operations that change fsspec's memory file system.

    Yields: the names of these operations so far.
    """
    done: list[str] = []

    def limited(name):
        original = getattr(MemoryFileSystem, name)

        def call(*arguments, **options):
            if len(done) >= most:
                raise Stopped
            done.append(name)
            return original(*arguments, **options)

        return call

    with contextlib.ExitStack() as patches:
        for name in OPERATIONS:
            patches.enter_context(mock.patch.object(MemoryFileSystem, name, limited(name)))
        yield done
