"""What the tests share that start a process with the JAX backend."""

import importlib.util

import pytest

JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}  # environment of such a process

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None,
    reason='needs JAX: pip install "keras-bert-d2l[jax]", or make test-peers',
)
