"""Hooks that run when any code imports TensorFlow or Keras.

- TensorFlow's start-up messages are hidden.
- This package's classes are registered with Keras, so that `keras.saving.load_model` finds them
  even though `import keras_bert_d2l` itself does not import them.
"""

import contextlib
import importlib
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

_PACKAGE = "keras_bert_d2l"
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_OF_USER = os.environ.get(_LEVEL)  # read before JAX is imported, which sets it
# Runs around the import of TensorFlow and around that of Keras, of which one is within the other.
while_loading: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext


def install() -> None:
    """Install the hooks, or register the classes immediately if Keras is already imported."""
    if "keras" in sys.modules:
        _register_classes()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Import finder that acts around the import of TensorFlow and of Keras.

    Not an `importlib.abc.MetaPathFinder`, whose import takes a tenth of a second.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in ("tensorflow", "keras"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            is_keras = fullname == "keras"
            with while_loading(), contextlib.nullcontext() if is_keras else _silently():
                execute(module)
                if is_keras:
                    _register_classes()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _silently() -> Iterator[None]:
    """Hide TensorFlow's start-up messages, unless the environment sets a log level."""
    if _OF_USER is not None:
        yield
        return
    os.environ[_LEVEL] = "3"  # Python exceptions still report every error
    with open(os.devnull, "wb") as nowhere:
        stderr = os.dup(2)
        os.dup2(nowhere.fileno(), 2)  # some lines are written before TensorFlow reads the level
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            del os.environ[_LEVEL]  # already read; child processes should not inherit it


def _register_classes() -> None:
    """Import the modules of all classes that a `.keras` file of this package can name."""
    from keras_bert_d2l.contract.task import BUILT_IN

    modules = [f"tasks.{name}.model" for name in BUILT_IN] + ["models.ranking_losses"]
    modules += [f"training.optimization.{name}" for name in ("optimizers", "schedules")]
    for module in modules:
        importlib.import_module(f"{_PACKAGE}.{module}")
