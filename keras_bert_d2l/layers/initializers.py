"""How weights begin, by the configuration's `initializer`.

`"truncated_normal"` is google's: everything from a normal distribution of 0.02, cut at two
standard deviations (modeling.py, `create_initializer`). `"book"` is Keras's default for each kind
of layer, as in d2l.ai 15.8.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_bert_d2l.config import check_choice

_is_off = contextvars.ContextVar("without_initialization", default=False)


@contextlib.contextmanager
def without_initialization() -> Iterator[None]:
    """Within this block the weights of new layers cost no time, and hold no meaningful numbers.

    For models whose weights are read from a file right away: drawing those of BERT base takes
    longer than reading them. Biases and normalisations, which are not drawn, begin as always.
    `initialize` draws what no file has.
    """
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def initialize(layer: keras.layers.Layer) -> None:
    """Draws the kernels of the dense layers in a layer, as if it was new."""
    for part in layer._flatten_layers():  # of Keras, as its own quantisation finds layers
        if isinstance(part, keras.layers.Dense):
            part.kernel.assign(part.kernel_initializer(part.kernel.shape, part.kernel.dtype))


@keras.saving.register_keras_serializable("keras_bert_d2l")
class _Drawn(keras.initializers.Initializer):
    """An initializer that `without_initialization` turns off."""

    def __init__(self, initializer: keras.initializers.Initializer) -> None:
        self.initializer = initializer

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return _empty(shape, dtype) if _is_off.get() else self.initializer(shape, dtype)

    def get_config(self) -> dict[str, Any]:
        return {"initializer": keras.saving.serialize_keras_object(self.initializer)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "_Drawn":
        return cls(keras.saving.deserialize_keras_object(config["initializer"]))


def _empty(shape: Any, dtype: Any) -> Any:
    """Returns a tensor of no particular numbers."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Pages that nobody has written to take no memory: the model is not there twice while
        # its weights are read.
        return tf.raw_ops.Empty(shape=tuple(shape), dtype=dtype, init=False)
    return ops.zeros(shape, dtype)


def _truncated_normal() -> keras.initializers.Initializer:
    return _Drawn(keras.initializers.TruncatedNormal(stddev=0.02))


def dense_initializer(initializer: str) -> keras.initializers.Initializer:
    """For the kernels of dense layers inside the network."""
    if check_choice("initializer", initializer) == "book":
        return _Drawn(keras.initializers.GlorotUniform())
    return _truncated_normal()


def embedding_initializer(initializer: str) -> keras.initializers.Initializer:
    """For the token and segment embeddings."""
    if check_choice("initializer", initializer) == "book":
        return _Drawn(keras.initializers.RandomUniform(-0.05, 0.05))
    return _truncated_normal()


def position_initializer(initializer: str) -> keras.initializers.Initializer:
    """For the position embeddings."""
    if check_choice("initializer", initializer) == "book":
        return _Drawn(keras.initializers.RandomNormal(stddev=0.05))
    return _truncated_normal()


def output_initializer() -> keras.initializers.Initializer:
    """For the last kernel of a head: small, so that an untrained loss is that of a guess."""
    return _truncated_normal()
