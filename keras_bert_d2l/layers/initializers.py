"""How weights begin, by the configuration's `initializer`.

`"truncated_normal"` is google's: everything from a normal distribution of 0.02, cut at two
standard deviations (modeling.py, `create_initializer`). `"book"` is Keras's default for each kind
of layer, as in d2l.ai 15.8.
"""

import keras

from keras_bert_d2l.config import INITIALIZERS


def _truncated_normal() -> keras.initializers.Initializer:
    return keras.initializers.TruncatedNormal(stddev=0.02)


def check_initializer(initializer: str) -> str:
    """Returns `initializer`, or raises a `ValueError` that names the known ones."""
    if initializer not in INITIALIZERS:
        raise ValueError(
            f"`initializer` must be one of {INITIALIZERS}. Received: initializer={initializer!r}."
        )
    return initializer


def dense_initializer(initializer: str) -> keras.initializers.Initializer:
    """For the kernels of dense layers inside the network."""
    if check_initializer(initializer) == "book":
        return keras.initializers.GlorotUniform()
    return _truncated_normal()


def embedding_initializer(initializer: str) -> keras.initializers.Initializer:
    """For the token and segment embeddings."""
    if check_initializer(initializer) == "book":
        return keras.initializers.RandomUniform(-0.05, 0.05)
    return _truncated_normal()


def position_initializer(initializer: str) -> keras.initializers.Initializer:
    """For the position embeddings."""
    if check_initializer(initializer) == "book":
        return keras.initializers.RandomNormal(stddev=0.05)
    return _truncated_normal()


def output_initializer() -> keras.initializers.Initializer:
    """For the last kernel of a head: small, so that an untrained loss is that of a guess."""
    return _truncated_normal()
