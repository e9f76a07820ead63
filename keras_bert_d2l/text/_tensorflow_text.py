"""The one door to tensorflow-text: what starts from token ids works where it does not exist."""

import contextlib
import types
from collections.abc import Iterator


def tensorflow_text() -> types.ModuleType:
    """Returns the module `tensorflow_text`, imported at the first call.

    Raises:
        ImportError: It is not installed, or does not match the installed TensorFlow.
    """
    with _explained():
        import tensorflow_text as module
    return module


def wordpiece_learner() -> types.ModuleType:
    """Returns tensorflow-text's module that learns WordPiece vocabularies.

    Raises:
        ImportError: tensorflow-text is not installed, or does not match the installed TensorFlow.
    """
    with _explained():
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as module
    return module


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a pair of different minor versions fails with NotFoundError
        raise ImportError(
            "Turning strings into tokens needs tensorflow-text of the same minor version as "
            "tensorflow: `pip install --upgrade tensorflow tensorflow-text`. It has wheels for "
            "Linux (x86_64, aarch64) and macOS (arm64) with Python 3.10 to 3.13; elsewhere, "
            "Windows included, work with token ids instead of strings. "
            f"The import failed with {type(error).__name__}: {error}"
        ) from error
