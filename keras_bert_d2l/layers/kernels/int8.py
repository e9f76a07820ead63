"""Dense layers in 8-bit integer arithmetic, for exports to TensorFlow on CPUs.

M tokens, D width of the inputs, H width of the outputs.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np

from keras_bert_d2l.types import Tensor

_MAX = 127  # largest absolute value of a signed code
_ZERO = 128  # the unsigned code of 0, because TensorFlow has no product of signed inputs
_SMALLEST = 1e-30  # prevents a division by 0 for tokens and columns of zeros


class Int8Weights(NamedTuple):
    """The weights of dense layers with the same inputs, side by side.

    Attributes:
        kernel: int8 `(D, H)`.
        offset: Sum to add to the product because the code of 0 is not 0, int32 `(H,)`.
        scale: Value of code 1 in each column of the kernel, float32 `(H,)`.
        bias: float32 `(H,)`.
    """

    kernel: np.ndarray
    offset: np.ndarray
    scale: np.ndarray
    bias: np.ndarray


Layers = tuple[keras.layers.Dense, ...]
_weights = contextvars.ContextVar[dict[Layers, Int8Weights]]("int8 weights")


@contextlib.contextmanager
def int8_arithmetic(weights: dict[Layers, Int8Weights]) -> Iterator[None]:
    """Let this package's dense layers compute in 8-bit integers.

    Args:
        weights: The quantized weights by layers. Eager calls add missing ones.
    """
    token = _weights.set(weights)
    try:
        yield
    finally:
        _weights.reset(token)


def is_int8() -> bool:
    """Return whether dense layers compute in 8-bit integers."""
    return _weights.get(None) is not None


def int8_dense(x: Tensor, *layers: keras.layers.Dense) -> list[Tensor]:
    """Return the outputs of dense layers before their activations, from one integer product.

    Each token and each column of the kernels has its own scale. Call it inside `int8_arithmetic`.

    Args:
        x: Inputs of all layers, `(..., D)`.
        *layers: The layers.
    """
    import tensorflow as tf

    weights = _weights.get()
    if layers not in weights:
        weights[layers] = quantized(*layers)
    kernel, offset, scale, bias = weights[layers]
    rows = tf.reshape(tf.cast(x, tf.float32), (-1, x.shape[-1]))  # (M, D)
    largest = tf.reduce_max(tf.abs(rows), axis=-1, keepdims=True)  # (M, 1)
    step = tf.maximum(largest, _SMALLEST) / _MAX
    codes = tf.cast(rows / step + (_ZERO + 0.5), tf.uint8)  # (M, D), rounded down by the cast
    outputs = integer_product(codes, kernel, offset) * step * scale + bias  # (M, H)
    outputs = tf.reshape(outputs, tf.concat([tf.shape(x)[:-1], [len(bias)]], axis=0))
    return tf.split(tf.cast(outputs, x.dtype), [layer.units for layer in layers], axis=-1)


def quantized(*layers: keras.layers.Dense) -> Int8Weights:
    """Return the quantized weights of layers."""
    kernel = np.concatenate([_array(layer.kernel) for layer in layers], axis=1)  # (D, H)
    scale = np.maximum(np.abs(kernel).max(axis=0), np.float32(_SMALLEST)) / np.float32(_MAX)
    codes = np.rint(kernel / scale).astype("int8")
    offset = -_ZERO * codes.sum(axis=0, dtype="int32")
    biases = [
        np.zeros(layer.units, "float32") if layer.bias is None else _array(layer.bias)
        for layer in layers
    ]
    return Int8Weights(codes, offset, scale, np.concatenate(biases))


def _array(x: Tensor) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


def integer_product(codes: Tensor, kernel: Tensor, offset: Tensor) -> Tensor:
    """Return `codes @ kernel + offset`, computed with integers and converted to float32.

    In a graph, `kernel` should be a constant: oneDNN reorders a variable in every call.

    Args:
        codes: uint8 `(M, D)`.
        kernel: int8 `(D, H)`.
        offset: int32 `(H,)`.
    """
    import tensorflow as tf

    return tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
        a=tf.bitcast(codes, tf.quint8),
        b=tf.bitcast(kernel, tf.qint8),
        bias=tf.bitcast(offset, tf.qint32),  # TensorFlow 2.12 fails if it is a float
        input_quant_mode="SCALED",
        min_a=0.0,  # with these ranges, code 1 means 1.0
        max_a=255.0,
        min_b=-127.0,
        max_b=127.0,
        min_freezed_output=0.0,
        max_freezed_output=1.0,
        Toutput=tf.float32,
    )


def assert_exact_products() -> None:
    """Assert that integer products are exact, eagerly or in the graph that is being traced.

    On CPUs without VNNI, oneDNN adds pairs of products in 16 bits, in which large sums overflow.
    """
    import tensorflow as tf

    codes, kernel = np.full((1, 2), 255, "uint8"), np.full((2, 1), _MAX, "int8")
    product = integer_product(codes, kernel, np.zeros(1, "int32"))
    message = "This model is quantized to int8, which requires a CPU with VNNI."
    tf.debugging.Assert(tf.reduce_all(product == 2 * 255 * _MAX), [message])


def check_int8_products() -> None:
    """Raise `RuntimeError` if TensorFlow cannot multiply 8-bit integers on this machine."""
    import tensorflow as tf

    try:  # in a graph, because without oneDNN the eager operation returns nothing and no error
        tf.function(assert_exact_products)()
    except tf.errors.OpError as error:
        reason = error.message.strip().splitlines()[-1]  # below TensorFlow's stack trace
        raise RuntimeError(
            "`quantize='int8'` requires a TensorFlow with oneDNN, and a CPU with VNNI. Received, "
            "from QuantizedMatMulWithBiasAndDequantize on this machine: "
            f"{reason}. Export on another machine, or omit `quantize`."
        ) from error
