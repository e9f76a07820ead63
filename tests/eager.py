"""Run models eagerly, because tracing or compiling a small model takes longer than running it."""

import contextlib

import keras
import pytest


@contextlib.contextmanager
def running_eagerly():
    """Run all models eagerly; the arguments of `compile` have no influence."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("run_eagerly", True), ("jit_compile", False)):
            constant = property(lambda model, value=value: value, lambda model, ignored: None)
            patch.setattr(keras.Model, name, constant)
        yield
