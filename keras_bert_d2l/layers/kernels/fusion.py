"""Functions and their gradients, compiled with XLA for TensorFlow's CPU.

TensorFlow executes one operation after the other, and each reads and writes complete tensors. On a
CPU, memory therefore limits chains of elementwise operations. XLA turns a chain into one loop, and
the chain with its gradient into another.
"""

import functools
import math
from collections.abc import Callable

import keras

from keras_bert_d2l.types import Tensor

_MIN_SIZE = 2**18  # for smaller tensors, compiling takes longer than hundreds of steps


def is_fusible(x: Tensor) -> bool:
    """Return whether to process `x` with XLA: a large tensor of known shape on TensorFlow's CPU.

    XLA compiles once per shape, so batches of varying length are excluded.
    """
    if keras.backend.backend() != "tensorflow" or None in x.shape or math.prod(x.shape) < _MIN_SIZE:
        return False
    import tensorflow as tf

    devices = tf.config.list_logical_devices()
    return tf.is_tensor(x) and all(device.device_type == "CPU" for device in devices)


@functools.cache
def fused(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the function with XLA-compiled forms of the function and its gradient.

    The gradient is found by automatic differentiation and recomputes the function from its inputs,
    so no intermediate tensors are kept. Check `is_fusible` before calling the result.

    Args:
        function: Function written with `keras.ops`, of tensors (positional arguments) and constants
            (keyword arguments). Integer tensors have no gradient.
    """
    import tensorflow as tf

    def gradient_of(tensors: tuple[Tensor, ...], upstream: Tensor, **constants: object) -> list:
        floats = [x for x in tensors if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            output = function(*tensors, **constants)
        gradients = iter(tape.gradient(output, floats, upstream))
        return [next(gradients) if x.dtype.is_floating else None for x in tensors]

    forward, backward = compiled(function), compiled(gradient_of)

    @functools.wraps(function)
    def call(*tensors: Tensor, **constants: object) -> Tensor:
        @tf.custom_gradient
        def differentiable(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list]]:
            def gradient(upstream: Tensor) -> list:
                return backward(tensors, upstream, **constants)

            return forward(*tensors, **constants), gradient

        values = (
            keras.ops.convert_to_tensor(x) for x in tensors
        )  # reads variables, as `autocast` says
        return differentiable(*map(tf.convert_to_tensor, values))

    return call


@functools.cache
def compiled(function: Callable) -> Callable:
    """Return the function as a TensorFlow function that XLA compiles."""
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)
