"""The only module that imports tensorflow-text, so that code for token ids runs without it."""

import contextlib
import types
from collections.abc import Iterator


def tensorflow_text() -> types.ModuleType:
    """Return the module `tensorflow_text`, importing it on the first call.

    Raises:
        ImportError: If it is not installed or does not match the installed TensorFlow.
    """
    with _explained():
        import tensorflow_text as module
    return module


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # mismatched minor versions raise NotFoundError
        raise ImportError(
            "Tokenizing strings requires tensorflow-text with the same minor version as "
            "tensorflow: `pip install 'tensorflow==2.21.*' 'tensorflow-text==2.21.*'`. It has "
            "wheels for Linux (x86_64, aarch64) and macOS (arm64) with Python 3.10 to 3.13. On "
            "other platforms, including Windows, use token ids instead of strings. "
            f"The import failed with {type(error).__name__}: {error}"
        ) from error
