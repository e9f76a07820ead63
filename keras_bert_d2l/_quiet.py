"""Imported before TensorFlow: keeps its start-up chatter out of the command line.

Nothing happens where the package is imported as a library, or where the environment sets
TF_CPP_MIN_LOG_LEVEL, with which all messages can be had.
"""

import contextlib
import logging
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

_COMMAND, _PACKAGE = "keras-bert-d2l", "keras_bert_d2l"
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def _is_command_line() -> bool:
    program = sys.argv[0] if sys.argv else ""  # a program that embeds Python may have none
    if pathlib.Path(program).stem == _COMMAND:
        return True
    # While `python -m` imports the package, sys.argv does not name it yet.
    return program == "-m" and _PACKAGE in sys.orig_argv


@contextlib.contextmanager
def _stderr_hidden() -> Iterator[None]:
    """Holds back what is written to stderr, also by C++; shows it if an exception follows."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            yield
        except BaseException:
            hidden.seek(0)
            os.write(stderr, hidden.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def import_tensorflow() -> None:
    """Imports TensorFlow, without a word where this process is the command line."""
    if not _is_command_line() or _LEVEL in os.environ:
        return
    os.environ[_LEVEL] = "3"
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with _stderr_hidden():  # its libraries write some lines before they read the level
        import tensorflow  # noqa: F401


import_tensorflow()
