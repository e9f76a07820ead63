"""Weight initializers, selected by the configuration's `initializer`.

`"truncated_normal"` is a normal distribution with a standard deviation of 0.02, truncated at two
standard deviations (google-research/bert, modeling.py, `create_initializer`). `"book"` is the Keras
default of each kind of layer, as in d2l.ai, section 15.8.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import keras
from keras import ops

from keras_bert_d2l.config import Initializer, check_field
from keras_bert_d2l.types import ConfigDict, Shape, Tensor

_is_off = contextvars.ContextVar("without_initialization", default=False)


@contextlib.contextmanager
def without_initialization() -> Iterator[None]:
    """Skip the random initialization of layers built in this context.

    Their weights contain arbitrary numbers. Use it for models whose weights are loaded right
    afterwards: initializing BERT base takes longer than reading its weights. Biases and
    normalization weights are initialized as usual. Call `initialize` for a layer whose kernels are
    missing from the file.
    """
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def initialize(layer: keras.layers.Layer) -> None:
    """Initialize the kernels of all dense layers inside a layer."""
    for part in layer._flatten_layers():  # private, but Keras's quantization uses it the same way
        if isinstance(part, keras.layers.Dense):
            part.kernel.assign(part.kernel_initializer(part.kernel.shape, part.kernel.dtype))


@keras.saving.register_keras_serializable("keras_bert_d2l")
class _Drawn(keras.initializers.Initializer):
    """An initializer that `without_initialization` turns off."""

    def __init__(self, initializer: keras.initializers.Initializer) -> None:
        self.initializer = initializer

    def __call__(self, shape: Shape, dtype: str | None = None) -> Tensor:
        return _empty(shape, dtype) if _is_off.get() else self.initializer(shape, dtype)

    def get_config(self) -> ConfigDict:
        return {"initializer": keras.saving.serialize_keras_object(self.initializer)}

    @classmethod
    def from_config(cls, config: ConfigDict) -> "_Drawn":
        return cls(keras.saving.deserialize_keras_object(config["initializer"]))


def _empty(shape: Shape, dtype: str | None) -> Tensor:
    """Return a tensor with arbitrary values."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Untouched pages use no memory, so loading does not keep two copies of the weights.
        return tf.raw_ops.Empty(shape=tuple(shape), dtype=dtype, init=False)
    return ops.zeros(shape, dtype)


def dense_initializer(initializer: Initializer) -> keras.initializers.Initializer:
    """Return the initializer for the kernels of dense layers inside the network."""
    return _drawn(initializer, keras.initializers.GlorotUniform())


def embedding_initializer(initializer: Initializer) -> keras.initializers.Initializer:
    """Return the initializer for the token and segment embeddings."""
    return _drawn(initializer, keras.initializers.RandomUniform(-0.05, 0.05))


def position_initializer(initializer: Initializer) -> keras.initializers.Initializer:
    """Return the initializer for the position embedding."""
    return _drawn(initializer, keras.initializers.RandomNormal(stddev=0.05))


def output_initializer() -> keras.initializers.Initializer:
    """Return the initializer for the output kernel of a head.

    Its values are small, so that the initial predictions are close to uniform.
    """
    return _Drawn(keras.initializers.TruncatedNormal(stddev=0.02))


def _drawn(
    initializer: Initializer, of_book: keras.initializers.Initializer
) -> keras.initializers.Initializer:
    is_book = check_field("initializer", initializer) == "book"
    return _Drawn(of_book) if is_book else output_initializer()
